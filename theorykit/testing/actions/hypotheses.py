"""Single mistakes that would explain how an action differs from a reference; each has the words for it."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from sympy import Expr, Integer, MatrixSymbol, Symbol, Transpose, sqrt

from ...checks import shown
from ...symbolic import GaussianAverage, inverse
from ...symbolic.atoms import SymmetricSymbol
from ..report import Finding
from .extra_terms import extra_terms
from .points import value_of
from .samples import CLAIM, Samples

# factors that a standard normal variable may have by mistake
_SPREADS = (2.0, 0.5, np.sqrt(2.0), np.sqrt(0.5))


def explanations(samples: Samples) -> Iterator[Finding]:
    """The mistakes that explain all of the difference, the simplest first."""
    yield from _of_the_whole(samples)
    yield from _of_a_term(samples)
    yield from _of_an_exchange(samples)
    yield from _of_a_symbol(samples)
    yield from _of_a_spread(samples)
    yield from _of_an_extra_term(samples)
    yield from _of_two_terms(samples)


def _of_the_whole(samples: Samples) -> Iterator[Finding]:
    less_one = samples.coefficients(samples.total)
    if less_one is not None and len(samples.terms[0]) > 1:
        factor = less_one + 1
        yield Finding(CLAIM, f"the reference is {samples.written(factor)} times the action", _meaning(factor, "it"))


def _of_a_term(samples: Samples) -> Iterator[Finding]:
    for at, term in enumerate(samples.points[0].action.terms):
        less_one = samples.coefficients(samples.terms[:, at])
        if less_one is not None:
            factor = less_one + 1
            yield Finding(
                CLAIM,
                f"the reference has {samples.written(factor)} times the term {shown(term)}",
                _meaning(factor, f"the term {shown(term)}"),
            )


def _of_two_terms(samples: Samples) -> Iterator[Finding]:
    terms = samples.points[0].action.terms
    for pair in combinations(range(len(terms)), 2):
        columns = samples.terms[:, pair]
        factors, *_ = np.linalg.lstsq(columns, samples.misfit, rcond=None)
        if samples.vanishes(samples.misfit - columns @ factors):
            words = " and ".join(f"{1 + by:.4g} times {shown(terms[at])}" for by, at in zip(factors, pair, strict=True))
            yield Finding(CLAIM, f"the reference has {words}", "two terms have wrong factors")


def _meaning(factors: np.ndarray, what: str) -> str:
    if np.max(np.abs(factors)) < 1e-9:
        return f"{what} should not be there, or the reference lacks it"
    if np.allclose(factors, -1, atol=1e-6):
        return f"a sign: {what} has the opposite one"
    return f"a factor: {what} is to be multiplied by it"


def _of_an_exchange(samples: Samples) -> Iterator[Finding]:
    """Two symbols of one shape exchanged, or one instead of another."""
    action, values = samples.points[0].action, samples.points[0].values
    symbols = [symbol for symbol in action.symbols if symbol not in action.sizes]
    for one, other in combinations(symbols, 2):
        if np.shape(values[one.name]) != np.shape(values[other.name]):
            continue
        if samples.becomes(action.expression.xreplace({one: other, other: one})):
            yield Finding(
                CLAIM, f"the reference has {one} and {other} exchanged", "each of the two stands for the other"
            )
        for symbol, instead in ((one, other), (other, one)):
            measured = f"the reference has {instead} where the action has {symbol}"
            for words, expression in _replaced(samples, symbol, instead):
                if samples.becomes(expression):
                    yield Finding(CLAIM, f"{measured}{words}", f"one symbol stands for another: write {instead}")


def _of_a_symbol(samples: Samples) -> Iterator[Finding]:
    """A symbol with another sign, power or factor, a matrix transposed or inverted; in one term, or everywhere."""
    action = samples.points[0].action
    for symbol in action.symbols:
        if symbol in action.sizes:
            continue
        for words, meaning, instead in _variants(samples, symbol):
            for place, expression in _replaced(samples, symbol, instead):
                if samples.becomes(expression):
                    yield Finding(CLAIM, f"the reference has {words} where the action has {symbol}{place}", meaning)


def _replaced(samples: Samples, symbol: Expr, instead: Expr) -> Iterator[tuple[str, Expr]]:
    """The action with a symbol replaced everywhere, and in each term alone; with where that is."""
    action = samples.points[0].action
    yield "", action.expression.xreplace({symbol: instead}).doit()
    having = [term for term in action.terms if term.has(symbol)]
    for term in having if len(having) > 1 else ():
        changed = term.xreplace({symbol: instead}).doit()
        yield f", in the term {shown(term)}", action.expression - term + changed


def _variants(samples: Samples, symbol: Expr) -> Iterator[tuple[str, str, Expr]]:
    """What may stand instead of a symbol: in words, what mistake that is, and the expression."""
    value = samples.points[0].values[symbol.name]
    if isinstance(symbol, MatrixSymbol):
        is_square = value.shape[0] == value.shape[1] > 1
        if is_square and not isinstance(symbol, SymmetricSymbol):
            yield f"the transpose of {symbol}", f"a transpose: write {symbol}.T", Transpose(symbol)
        if is_square and samples.points[0].action.order_parameters.get(symbol) is not None:
            yield f"the inverse of {symbol}", f"an inverse: write {symbol}.I", inverse(symbol)
        return
    yield f"-{symbol}", f"a sign of {symbol}", -symbol
    for power in (2, -1):
        yield f"{symbol**power}", f"a power of {symbol}", symbol**power
    for factor in (2, Integer(1) / 2):
        yield f"{factor * symbol}", f"a factor {factor} of {symbol}", factor * symbol
    if value > 0:
        yield f"{sqrt(symbol)}", f"a power of {symbol}: its square root", sqrt(symbol)
    numbers = [s for s in samples.points[0].action.parameters if isinstance(s, Symbol) and s != symbol]
    for other in numbers:
        yield f"{symbol * other}", f"a factor {other} of {symbol}", symbol * other
        yield f"{symbol / other}", f"a factor 1/{other} of {symbol}", symbol / other


def _of_a_spread(samples: Samples) -> Iterator[Finding]:
    """A Gaussian variable of another variance."""
    action = samples.points[0].action
    for average in sorted(action.expression.atoms(GaussianAverage), key=lambda node: node.sort_key()):
        variable = average.variable
        for spread in _SPREADS:
            integrand = average.integrand.xreplace({variable: spread * variable})
            widened = average.func(integrand, variable, *average.args[2:])
            if samples.becomes(action.expression.xreplace({average: widened})):
                yield Finding(
                    CLAIM,
                    f"the reference has {spread:.4g} times the Gaussian variable in {shown(average)}",
                    "the variance of the Gaussian variable is wrong: its standard deviation lacks this factor",
                )


def _of_an_extra_term(samples: Samples) -> Iterator[Finding]:
    """A term of the reference that the action lacks, or has another in place of."""
    terms, instead = samples.points[0].action.terms, []
    for term in extra_terms(samples.points[0].action):
        values = samples.centred(np.array([value_of(term, point.values) for point in samples.points]))
        if not np.all(np.isfinite(values)):
            continue
        factors = samples.coefficients(values)
        if factors is not None:
            yield Finding(
                CLAIM,
                f"the reference has {samples.written(factors)} times {term} besides",
                f"a term is missing: {term} with this factor",
            )
        for at, other in enumerate(terms):
            factors = samples.coefficients(values, without=at)
            if factors is not None:
                instead.append((other, samples.written(factors), term))
    for other, factor, term in instead:
        yield Finding(
            CLAIM,
            f"the reference has {factor} times {term} in place of the term {shown(other)}",
            f"the term {shown(other)} is to be another function",
        )
