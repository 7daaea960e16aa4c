"""One mutator: mistakes of every kind, planted in any expression and in any step of a derivation."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations

import numpy as np
from sympy import Add, Expr, KroneckerProduct, MatAdd, MatMul, MatrixSymbol, Mul, S, Symbol, sqrt
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix

from theorykit.codegen import interpret
from theorykit.derivation import Derivation, Step, claims
from theorykit.derivation.claims import random_values
from theorykit.symbolic import inverse
from theorykit.symbolic.atoms import PartialTrace, PositiveDefiniteSymbol, SymmetricSymbol

# Kinds of mistakes: in one term of a sum or in all, and wherever a symbol or a node occurs in one term or in all.
IN_TERMS = ("wrong sign", "factor 2", "factor 1/2", "dropped")
IN_POWERS_OF_SIZES = ("sqrt(N) too many", "sqrt(N) too few", "a part of the next order", "N + 1 for N")
IN_SYMBOLS = ("minus a symbol", "half a symbol", "symbol / sqrt(N)", "squared", "inverted", "transposed", "exchanged")
IN_NODES = ("another order",)
# These parts of a claim are expressions, which may be wrong too. A wrong definition counts if the result contains it.
_PARTS = {
    claims.Average: ("law",),
    claims.Derivative: ("factor",),
    claims.Stationary: ("solution",),
    claims.OrderParameterInserted: ("value", "weight"),
    claims.Equal: ("definitions",),
}


def mutations(expression: Expr) -> Iterator[tuple[str, Callable[[], Expr]]]:
    """Yield the kind of every mistake, and a function that makes it.

    Some change nothing, such as the transpose of a symmetric matrix. Those that SymPy refuses return nothing.
    """
    sum_of = MatAdd if expression.is_Matrix else Add
    terms, sizes = sum_of.make_args(expression), _sizes(expression)

    def changed(number: int, change: Mapping[Expr, Expr] | Expr) -> Expr | None:
        """Replace symbols and nodes in a term or in all, or multiply it or all with a factor."""
        if not isinstance(change, dict):
            if number == len(terms):
                return change * expression
            return sum_of(*terms[:number], *([change * terms[number]] if change else ()), *terms[number + 1 :])
        try:
            if number == len(terms):
                return expression.xreplace(change)
            return sum_of(*terms[:number], terms[number].xreplace(change), *terms[number + 1 :])
        except (TypeError, ValueError):  # A product of other shapes, or a size that is no number.
            return None

    for number, term in enumerate(terms):
        coefficient = Mul(*(factor for factor in Mul.make_args(term) if not factor.atoms(MatrixSymbol)))
        coefficient = term.as_coeff_mmul()[0] if term.is_Matrix else coefficient
        factors = list(zip(IN_TERMS, (S.NegativeOne, S(2), S.Half, *[S.Zero] * (len(terms) > 1)), strict=False))
        for size in sorted(coefficient.free_symbols & sizes, key=str):
            larger = coefficient.xreplace({size: size + 1}) / coefficient
            factors += zip(IN_POWERS_OF_SIZES, (sqrt(size), 1 / sqrt(size), 1 + 1 / size, larger), strict=True)
        yield from ((kind, partial(changed, number, factor)) for kind, factor in factors)

    for kind, factor in zip(IN_TERMS, (S.NegativeOne, S(2), S.Half), strict=False) if len(terms) > 1 else ():
        yield kind, partial(changed, len(terms), factor)
    for kind, change in _changes(expression, sizes):
        having = [number for number, term in enumerate(terms) if any(term.has(node) for node in change)]
        for number in (*having, *[len(terms)] * (len(having) > 1)):
            yield kind, partial(changed, number, change)


def _changes(expression: Expr, sizes: set[Symbol]) -> Iterator[tuple[str, dict[Expr, Expr]]]:
    symbols = sorted(expression.free_symbols - sizes, key=str)
    for number, symbol in enumerate(symbols):
        wrong = {"minus a symbol": -symbol, "half a symbol": S.Half * symbol}
        yield from (("symbol / sqrt(N)", {symbol: symbol / sqrt(size)}) for size in sorted(sizes, key=str))
        if not symbol.is_Matrix:
            wrong |= {"squared": symbol**2, "inverted": 1 / symbol}
        elif symbol.shape[0] == symbol.shape[1] != 1:
            wrong |= {} if isinstance(symbol, SymmetricSymbol) else {"transposed": symbol.T}
            wrong |= {"squared": symbol * symbol}
            wrong |= {"inverted": inverse(symbol)} if isinstance(symbol, PositiveDefiniteSymbol) else {}
        yield from ((kind, {symbol: each}) for kind, each in wrong.items())
        for other in symbols[number + 1 :]:
            if getattr(symbol, "shape", None) == getattr(other, "shape", None):
                yield "exchanged", {symbol: other, other: symbol}
    for node in sorted(expression.atoms(KroneckerProduct, BlockDiagMatrix, PartialTrace, MatMul), key=str):
        if isinstance(node, PartialTrace):
            yield "another order", {node: PartialTrace(node.matrix, node.dimensions[::-1], 1 - node.traced)}
        elif isinstance(node, MatMul):
            for at, (left, right) in enumerate(pairwise(node.args)):
                if left.is_Matrix and left.shape == getattr(right, "shape", None) == (left.shape[0],) * 2:
                    yield "another order", {node: MatMul(*node.args[:at], right, left, *node.args[at + 2 :])}
        else:
            yield "another order", {node: type(node)(*reversed(node.args))}


def _other_sizes(expression: Expr) -> Iterator[Callable[[], Expr]]:
    """Replace a size by another in the coefficient of one term. Widths next to a skip connection may be equal."""
    sizes = [] if expression.is_Matrix else sorted(_sizes(expression), key=str)
    for term in Add.make_args(expression) if sizes else ():
        coefficient = Mul(*(factor for factor in Mul.make_args(term) if not factor.atoms(MatrixSymbol)))
        for size, other in permutations(sizes, 2):
            if coefficient.has(size):
                changed = term / coefficient * coefficient.xreplace({size: other})
                yield partial(lambda term, changed: expression - term + changed, term, changed)


def _sizes(*expressions: Expr) -> set[Symbol]:
    shapes = [side for each in expressions for symbol in each.atoms(MatrixSymbol) for side in symbol.shape]
    whole = [symbol for each in expressions for symbol in each.atoms(Symbol) if symbol.is_integer]
    return {symbol for each in (*shapes, *whole) for symbol in each.free_symbols}


def planted(step: Step, every: bool = False, kinds: slice = slice(None)) -> Iterator[tuple[str, Step]]:
    """Yield the kind of a mistake, and `step` with a mistake of this kind in its result or in its claim.

    Mistakes of some `kinds` are made at one place, or at `every` place. Those that change nothing are left out.
    """
    mistakes: dict[str, list[Callable[[], tuple]]] = {}
    for kind, make in mutations(step.after):
        mistakes.setdefault(kind, []).append(
            lambda make=make: (step.after, wrong := make(), wrong and replace(step, after=wrong))
        )
    # The check of `SameMoments` replaces the width by the number of equivalent weights, which is a size, too.
    for make in () if isinstance(step.claim, claims.SameMoments) else _other_sizes(step.after):
        mistakes.setdefault("another size", []).append(
            lambda make=make: (step.after, wrong := make(), replace(step, after=wrong))
        )
    for name in _PARTS.get(type(step.claim), ()):
        part = getattr(step.claim, name)
        for number, (symbol, value) in enumerate(part if name == "definitions" else [(None, part)]):

            def in_part(make, name=name, part=part, number=number, symbol=symbol, value=value):
                if (wrong := make()) is None or symbol is None:
                    return value, wrong, wrong and replace(step, claim=replace(step.claim, **{name: wrong}))
                definitions = (*part[:number], (symbol, wrong), *part[number + 1 :])
                sides = (step.after.xreplace({symbol: each}) for each in (value, wrong))
                return *sides, replace(step, claim=replace(step.claim, definitions=definitions))

            for kind, make in mutations(value) if isinstance(value, Expr) else ():
                mistakes.setdefault(f"{kind} in the {name}", []).append(partial(in_part, make))
    for kind, places in list(mistakes.items())[kinds]:
        first = len(step.rule) % len(places)
        for make in (*places[first:], *places[:first]):
            right, wrong, mistaken = make()
            if wrong is not None and not _is_same(step, right, wrong):
                yield kind, mistaken
                if not every:
                    break


def _is_same(step: Step, right: Expr, wrong: Expr) -> bool:
    """Evaluate both at random numbers, apart from the claim, to see whether they differ where the claim compares them.

    The claim may leave open a constant, or the sign of a variable over which it averages.
    """
    claim, rng = step.claim, np.random.default_rng(0)
    expressions = (*claim.expressions(step.before, step.after), right, wrong)
    names = sorted(_sizes(*expressions), key=str)
    for numbers in (range(2, len(names) + 2), [2] * len(names)):
        first, second = (random_values(expressions, dict(zip(names, numbers, strict=True)), rng) for _ in range(2))
        try:
            if right is step.after:
                if getattr(claim, "assignment", None) is not None:  # Every neuron is in one class.
                    classes, neurons = first[claim.assignment.name].shape
                    first[claim.assignment.name] = np.eye(classes)[:, np.arange(neurons) % classes]
                for symbol, value in getattr(claim, "definitions", ()):
                    first[symbol.name] = interpret(value, first)
            expected, found = interpret(right, first), interpret(wrong, first)
        except ValueError:  # The widths on both sides of a skip connection are equal.
            continue
        break
    else:
        return False
    if np.shape(found) != np.shape(expected):
        return False
    left_open, close = 0.0, 1e-9 * np.max(np.abs(expected))
    if isinstance(claim, (claims.EqualUpToConstant, claims.Volume)):
        every = {symbol for each in expressions for symbol in each.atoms(MatrixSymbol)}
        moved = every if isinstance(claim, claims.Volume) else claim.variables
        second = {**first, **{symbol.name: second[symbol.name] for symbol in moved}}
        left_open = interpret(wrong, second) - interpret(right, second)
    elif isinstance(claim, claims.Average) and claim.of == "after" and right is step.after:
        mirrored = {**first, claim.variable.name: -first[claim.variable.name]}
        if np.max(np.abs(interpret(wrong, mirrored) - expected)) <= close:
            return True
    return bool(np.max(np.abs(found - expected - left_open)) <= close)


def is_caught(step: Step, sizes, seed: int = 0) -> bool:
    return not Derivation((step,), sizes).verify(seed).holds
