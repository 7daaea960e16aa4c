"""An action against a function of the user's own in NumPy, and single mistakes by which they would differ.

They may differ by a constant, of the parameters alone: values are compared less their mean over points of the same
parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from sympy import Expr, Integer, MatrixSymbol, Symbol, Trace, Transpose, log, sqrt

from ...checks import are_equal_sizes, shown
from ...saddle import Action, Positive, PositiveDefinite
from ...symbolic import GaussianAverage, inverse, log_det
from ...symbolic.atoms import SymmetricSymbol
from ..factors import name_factor
from ..hypotheses import Explanation, Fit, Hypothesis, Place, explain
from ..report import Finding, Passed, Result
from .points import ActionPoint, value_of

Reference = Callable[..., Any]
"""The action once more: a function of order parameters and parameters by name, in plain NumPy, to a number."""

# differences of the action that count as equal, of their size: averages run by quadrature
_EQUAL = 1e-7
_CLAIM = "the action is the reference, up to a constant"
# factors that a standard normal variable may have by mistake
_SPREADS = (2.0, 0.5, np.sqrt(2.0), np.sqrt(0.5))


class _Group(NamedTuple):
    """Points of the same parameters, the terms (points, terms) there, and how small an array is zero."""

    points: Sequence[ActionPoint]
    terms: np.ndarray
    tolerance: float

    @property
    def total(self) -> np.ndarray:
        return self.terms.sum(axis=1)


def check_reference(groups: Sequence[Sequence[ActionPoint]], reference: Reference) -> Result:
    """The action at random points against the reference there; a finding says by which mistake they would differ."""
    values = []
    for point in (point for group in groups for point in group):
        found = _referred(point, reference)
        if isinstance(found, Finding):
            return found
        values.append(found)
    referred = np.reshape(values, (len(groups), -1))
    if not np.all(np.isfinite(referred)):
        group, at = np.argwhere(~np.isfinite(referred))[0]
        measured = f"the reference is not finite at {groups[group][at].place}"
        return Finding(_CLAIM, measured, "a domain is wider than the reference's own")
    referred = [_centred(each) for each in referred]
    terms = [_centred([point.terms() for point in group]) for group in groups]
    scale = max(*(float(np.max(np.abs(each))) for each in (*referred, *terms)), 1e-300)
    tolerance = _EQUAL * scale
    misfit = max(np.max(np.abs(one - each.sum(axis=1))) for one, each in zip(referred, terms, strict=True))
    if misfit <= tolerance:
        return Passed(_CLAIM, f"to {misfit / scale:.1g} of its size at {len(values)} points")
    places = []
    for points, one, each in zip(groups, referred, terms, strict=True):
        numbers = {symbol.name for symbol in points[0].action.parameters if isinstance(symbol, Symbol)}
        quantities = {name: abs(value) for name, value in points[0].values.items() if name in numbers}
        places.append(Place(_Group(points, each, tolerance), one, tolerance, quantities))
    found = explain([_hypotheses(places[0].at)], places) or Explanation(
        f"they differ by up to {misfit / scale:.3g} of their size, and by no single sign, factor, transpose or term",
        "more than one mistake, or a function of the order parameters that is another: compare term by term",
    )
    return Finding(_CLAIM, found.measured, found.meaning)


def _referred(point: ActionPoint, reference: Reference) -> float | Finding:
    names = {symbol.name for symbol in point.action.symbols}
    try:
        returned = reference(**{name: value for name, value in point.values.items() if name in names})
        if np.iscomplexobj(returned):
            return Finding(
                _CLAIM,
                f"the reference is complex, {np.asarray(returned).item():.4g} at {point.place}",
                "an action is a real number: a logarithm or a root of a negative number makes it complex",
            )
        return float(returned)
    except Exception as error:  # of the user's code, whatever it is
        line = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        return Finding(
            _CLAIM, f"the reference fails: {line}", "it takes every symbol by its name, and returns a number"
        )


def _centred(values: Any) -> np.ndarray:
    """Values (points, ...), less their mean, so that constants drop out."""
    values = np.array(values, dtype=float)
    return values - values.mean(axis=0)


def _hypotheses(group: _Group) -> Iterator[Hypothesis]:
    """Mistakes of the action at a group of points, the simplest first."""
    # From cheap to dear: factors of terms need no new values, other expressions are interpreted at every point.
    terms = group.points[0].action.terms
    if len(terms) > 1:
        yield _scaled(
            lambda group: (0, [group.total]), "the reference is ", " times the action", partial(_meaning, what="it")
        )
    for at, term in enumerate(terms):
        what = f"the term {shown(term)}"
        free = partial(_with_free_terms, free=(at,))
        yield _scaled(free, "the reference has ", f" times {what}", partial(_meaning, what=what))
    yield from _exchanges(group)
    yield from _of_symbols(group)
    yield from _spreads(group)
    yield from _extra_terms(group)
    for pair in combinations(range(len(terms)), 2):
        yield Hypothesis(partial(_with_free_terms, free=pair), partial(_two_terms, [shown(terms[at]) for at in pair]))


def _with_free_terms(group: _Group, free: tuple[int, ...]) -> tuple | None:
    """The action with other factors of these terms; None where they are zero."""
    columns = [group.terms[:, at] for at in free]
    if any(np.max(np.abs(column)) <= group.tolerance for column in columns):
        return None
    return group.total - sum(columns), columns


def _scaled(
    parts: Callable, before: str, after: str, meaning: Callable[[np.ndarray], str], cost: float = 1.0
) -> Hypothesis:
    """A hypothesis with one factor, whose name stands between `before` and `after`."""

    def words(fit: Fit) -> Explanation:
        factors = fit.factors[:, 0]
        name = "0" if _are_zero(factors) else name_factor(factors, fit.quantities, 1e-6) or f"{factors[0]:.6g}"
        return Explanation(f"{before}{name}{after}", meaning(factors), cost)

    return Hypothesis(parts, words)


def _are_zero(factors: np.ndarray) -> bool:
    return bool(np.max(np.abs(factors)) < 1e-9)


def _meaning(factors: np.ndarray, what: str) -> str:
    if _are_zero(factors):
        return f"{what} should not be there, or the reference lacks it"
    if np.allclose(factors, -1, atol=1e-6):
        return f"a sign: {what} has the opposite one"
    return f"a factor: {what} is to be multiplied by it"


def _two_terms(terms: Sequence[str], fit: Fit) -> Explanation:
    said = " and ".join(f"{factor:.4g} times {term}" for factor, term in zip(fit.factors[0], terms, strict=True))
    return Explanation(f"the reference has {said}", "two terms have wrong factors", cost=2.0)


def _is(expression: Expr, measured: str, meaning: str) -> Hypothesis:
    """That the reference is this expression."""

    def parts(group: _Group) -> tuple | None:
        try:
            values = [value_of(expression, point.values) for point in group.points]
        except NotImplementedError:
            return None
        return _centred(values), ()

    return Hypothesis(parts, lambda fit: Explanation(measured, meaning))


def _exchanges(group: _Group) -> Iterator[Hypothesis]:
    action, values = group.points[0].action, group.points[0].values
    symbols = [symbol for symbol in action.symbols if symbol not in action.sizes]
    for one, other in combinations(symbols, 2):
        if np.shape(values[one.name]) != np.shape(values[other.name]):
            continue
        exchanged = action.expression.xreplace({one: other, other: one})
        yield _is(exchanged, f"the reference has {one} and {other} exchanged", "each of the two stands for the other")
        for symbol, instead in ((one, other), (other, one)):
            measured = f"the reference has {instead} where the action has {symbol}"
            for place, expression in _replaced(action, symbol, instead):
                yield _is(expression, f"{measured}{place}", f"one symbol stands for another: write {instead}")


def _of_symbols(group: _Group) -> Iterator[Hypothesis]:
    action = group.points[0].action
    for symbol in action.symbols:
        for words, meaning, instead in () if symbol in action.sizes else _variants(group.points[0], symbol):
            for place, expression in _replaced(action, symbol, instead):
                yield _is(expression, f"the reference has {words} where the action has {symbol}{place}", meaning)


def _replaced(action: Action, symbol: Expr, instead: Expr) -> Iterator[tuple[str, Expr]]:
    """The action with a symbol replaced everywhere, and in each term alone; with where that is."""
    yield "", action.expression.xreplace({symbol: instead}).doit()
    having = [term for term in action.terms if term.has(symbol)]
    for term in having if len(having) > 1 else ():
        changed = term.xreplace({symbol: instead}).doit()
        yield f", in the term {shown(term)}", action.expression - term + changed


def _variants(point: ActionPoint, symbol: Expr) -> Iterator[tuple[str, str, Expr]]:
    """What may stand instead of a symbol: in words, what mistake that is, and the expression."""
    value = point.values[symbol.name]
    if isinstance(symbol, MatrixSymbol):
        is_square = value.shape[0] == value.shape[1] > 1
        if is_square and not isinstance(symbol, SymmetricSymbol):
            yield f"the transpose of {symbol}", f"a transpose: write {symbol}.T", Transpose(symbol)
        if is_square and symbol in point.action.order_parameters:
            yield f"the inverse of {symbol}", f"an inverse: write {symbol}.I", inverse(symbol)
        return
    yield f"-{symbol}", f"a sign of {symbol}", -symbol
    for power in (2, -1):
        yield f"{symbol**power}", f"a power of {symbol}", symbol**power
    for factor in (2, Integer(1) / 2):
        yield f"{factor * symbol}", f"a factor {factor} of {symbol}", factor * symbol
    if value > 0:
        yield f"{sqrt(symbol)}", f"a power of {symbol}: its square root", sqrt(symbol)
    for other in (each for each in point.action.parameters if isinstance(each, Symbol) and each != symbol):
        yield f"{symbol * other}", f"a factor {other} of {symbol}", symbol * other
        yield f"{symbol / other}", f"a factor 1/{other} of {symbol}", symbol / other


def _spreads(group: _Group) -> Iterator[Hypothesis]:
    expression = group.points[0].action.expression
    for average in sorted(expression.atoms(GaussianAverage), key=lambda node: node.sort_key()):
        variable = average.variable
        for spread in _SPREADS:
            integrand = average.integrand.xreplace({variable: spread * variable})
            widened = average.func(integrand, variable, *average.args[2:])
            yield _is(
                expression.xreplace({average: widened}),
                f"the reference has {spread:.4g} times the Gaussian variable in {shown(average)}",
                "the variance of the Gaussian variable is wrong: its standard deviation lacks this factor",
            )


def _extra_terms(group: _Group) -> Iterator[Hypothesis]:
    """A term of the reference that the action lacks, or has another in place of."""
    action = group.points[0].action
    for term in simple_terms(action):
        parts = partial(_with_term, term, {})
        missing, has = f"a term is missing: {term} with this factor", "the reference has "
        yield _scaled(parts, has, f" times {term} besides", lambda _, missing=missing: missing)
        for at, other in enumerate(action.terms):
            yield _scaled(
                partial(parts, without=at),
                has,
                f" times {term} in place of the term {shown(other)}",
                lambda _, other=other: f"the term {shown(other)} is to be another function",
                cost=1.5,
            )


def _with_term(term: Expr, known: dict, group: _Group, without: int | None = None) -> tuple | None:
    """The action, with a `term` of unknown factor in addition, or in place of the term number `without`."""
    # one evaluation serves the hypotheses of the term in place of each other one
    at = id(group.points)
    if at not in known:
        known[at] = _centred([value_of(term, point.values) for point in group.points])
    fixed = group.total if without is None else group.total - group.terms[:, without]
    return (fixed, [known[at]]) if np.max(np.abs(known[at])) > group.tolerance else None


def simple_terms(action: Action) -> Iterator[Expr]:
    """Simple terms that an action may lack, by increasing complexity; of order parameters, then with parameters."""
    alone = [term for symbol, domain in action.order_parameters.items() for term in _of_one(symbol, domain)]
    numbers = [symbol for symbol in action.order_parameters if isinstance(symbol, Symbol)]
    alone += [one**power * other for one, other in combinations(numbers, 2) for power in (1, 2)]
    alone += [one * other**2 for one, other in combinations(numbers, 2)]
    alone += [one / (1 - other) for one in numbers for other in numbers if one != other]
    yield from alone
    matrices = [symbol for symbol in action.order_parameters if isinstance(symbol, MatrixSymbol)]
    others = [symbol for symbol in action.parameters if isinstance(symbol, MatrixSymbol)]
    for one in matrices:
        for other in (*others, *matrices):
            if one.shape == other.shape and one != other:
                yield Trace(one.T * other)
            if are_equal_sizes(*one.shape) and other.shape[0] == one.shape[0]:
                yield Trace(other.T * one * other)
    parameters = [symbol for symbol in action.parameters if isinstance(symbol, Symbol) and symbol not in action.sizes]
    yield from (parameter * term for parameter in parameters for term in alone)
    yield from (term / parameter for parameter in parameters for term in alone)


def _of_one(symbol: Expr, domain: Any) -> Iterator[Expr]:
    if isinstance(symbol, MatrixSymbol):
        if are_equal_sizes(*symbol.shape):
            yield Trace(symbol)
            yield Trace(symbol * symbol)
        yield Trace(symbol.T * symbol)
        if isinstance(domain, PositiveDefinite):
            yield log_det(symbol)
            yield Trace(symbol.I)
        return
    yield from (symbol**power for power in (1, 2, 3, 4))
    if isinstance(domain, Positive):
        yield log(symbol)
        yield Integer(1) / symbol
    yield from (log(1 - symbol), 1 / (1 - symbol), log(1 + symbol))
