"""Mistakes planted in what a step arrives at: signs, factors, powers, dropped terms, transpositions."""

from collections.abc import Iterator
from dataclasses import replace

from sympy import Add, Expr, MatAdd, MatrixSymbol, S, Symbol, sqrt

from theorykit.derivation import Derivation, Step
from theorykit.derivation.claims import Average, EqualUpToConstant, Volume
from theorykit.symbolic.atoms import PositiveSemidefiniteSymbol


def planted(step: Step) -> Iterator[tuple[str, Step]]:
    """`step` with one mistake in `after`, and which."""
    for name, after in mistaken(step.after, isinstance(step.claim, (EqualUpToConstant, Volume))):
        # the average of exp(-i t^T d) over a centred Gaussian t is the same for either sign
        is_even = isinstance(step.claim, Average) and step.claim.of == "after"
        if not (is_even and name.startswith("wrong sign")):
            yield name, replace(step, after=after)


def mistaken(expression: Expr, constants: bool = False) -> Iterator[tuple[str, Expr]]:
    """One mistake in one term of a sum; in terms without matrices only if these are not `constants` to be dropped."""
    terms = (MatAdd if expression.is_Matrix else Add).make_args(expression)
    for number, term in enumerate(terms):
        if constants and not term.atoms(MatrixSymbol):
            continue
        rest = [*terms[:number], *terms[number + 1 :]]
        for name, wrong in mistakes_in_term(term):
            yield f"{name} in term {number}", type(expression)(*rest, wrong) if rest else wrong
        if rest:
            yield f"term {number} dropped", type(expression)(*rest) if len(rest) > 1 else rest[0]


def mistakes_in_term(term: Expr) -> Iterator[tuple[str, Expr]]:
    yield "wrong sign", -term
    yield "factor 2", 2 * term
    yield "factor 1/2", S.Half * term
    yield from _wrong_powers(term)
    for symbol in sorted(term.atoms(MatrixSymbol), key=str):
        if not isinstance(symbol, PositiveSemidefiniteSymbol) and symbol.shape[0] == symbol.shape[1] != 1:
            yield f"{symbol} transposed", term.xreplace({symbol: symbol.T})
        if isinstance(symbol, PositiveSemidefiniteSymbol):
            yield f"{symbol} squared", term.xreplace({symbol: symbol * symbol})


def _wrong_powers(term: Expr) -> Iterator[tuple[str, Expr]]:
    """N for sqrt(N) and the reverse, where N multiplies the term."""
    coefficient = term.as_coeff_mmul()[0] if term.is_Matrix else term
    for size in sorted(coefficient.free_symbols, key=str):
        if isinstance(size, Symbol) and size.name.startswith("N"):
            yield f"sqrt({size}) too many", sqrt(size) * term
            yield f"sqrt({size}) too few", term / sqrt(size)


def is_caught(step: Step, sizes, seed: int = 0) -> bool:
    return not Derivation((step,), sizes).verify(seed).holds
