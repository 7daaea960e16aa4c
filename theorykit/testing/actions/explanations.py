"""Compare an action with your NumPy function, and find single mistakes that explain a difference.

The two may differ by a constant that depends only on the parameters. We therefore subtract the mean over points with
the same parameters from all values.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from sympy import Expr, Integer, MatrixSymbol, Symbol, Trace, Transpose, log, sqrt

from ...checks import are_equal_sizes, counted, shown
from ...saddle import Action, Positive, PositiveDefinite
from ...symbolic import GaussianAverage, inverse, log_det
from ...symbolic.atoms import SymmetricSymbol
from ..hypotheses import Explanation, Fit, Hypothesis, Place, explain, name_factor
from ..report import Finding, raised
from .points import ActionPoint, value_of

Reference = Callable[..., Any]
"""The same action in plain NumPy: a function of order parameters and parameters by name to a number."""

# Largest relative difference between equal actions. It allows for the quadrature of averages.
_EQUAL = 1e-7
# Factors that a standard normal variable may have by mistake.
_SPREADS = (2.0, 0.5, np.sqrt(2.0), np.sqrt(0.5))


class _Group(NamedTuple):
    """Points with the same parameters.

    - `points`: the points.
    - `terms` (points, terms): the terms of the action there.
    - `tolerance`: absolute value below which an array counts as zero.
    """

    points: Sequence[ActionPoint]
    terms: np.ndarray
    tolerance: float

    @property
    def total(self) -> np.ndarray:
        return self.terms.sum(axis=1)


def check_reference(groups: Sequence[Sequence[ActionPoint]], reference: Reference) -> Finding:
    """Compare action and reference at random points. The finding contains a mistake that explains a difference."""
    finding = partial(Finding, "the action equals the reference, up to a constant")
    names, values = {symbol.name for symbol in groups[0][0].action.symbols}, []
    for point in (point for group in groups for point in group):
        try:
            returned = reference(**{name: value for name, value in point.values.items() if name in names})
            if np.iscomplexobj(returned):
                said = f"the reference is complex, {np.asarray(returned).item():.4g} at {point.place}"
                return finding(said, "an action must be real: roots and logarithms of negative numbers are not")
            values.append(float(returned))
        except Exception as error:  # The user's code may raise any error.
            return finding(
                f"the reference fails: {raised(error)}", "the reference must accept every symbol by its name"
            )
        if not np.isfinite(values[-1]):
            return finding(
                f"the reference is not finite at {point.place}", "a domain is wider than the domain of the reference"
            )
    referred = [_centred(each) for each in np.reshape(values, (len(groups), -1))]
    terms = [_centred([point.terms() for point in group]) for group in groups]
    scale = max(*(float(np.max(np.abs(each))) for each in (*referred, *terms)), 1e-300)
    tolerance = _EQUAL * scale
    misfit = max(np.max(np.abs(one - each.sum(axis=1))) for one, each in zip(referred, terms, strict=True))
    if misfit <= tolerance:
        return finding(f"to {misfit / scale:.1g} of its size at {counted(len(values), 'point')}")
    places = []
    for points, one, each in zip(groups, referred, terms, strict=True):
        numbers = {symbol.name for symbol in points[0].action.parameters if isinstance(symbol, Symbol)}
        quantities = {name: abs(value) for name, value in points[0].values.items() if name in numbers}
        places.append(Place(_Group(points, each, tolerance), one, tolerance, quantities))
    found = explain([_hypotheses(places[0].at)], places) or Explanation(
        f"they differ by up to {misfit / scale:.3g} of their size, and by no single sign, factor, transpose or term",
        "more than one mistake, or another function of the order parameters: compare term by term",
    )
    return finding(found.measured, found.meaning)


def _centred(values: Any) -> np.ndarray:
    """Subtract the mean of values (points, ...), so that constants cancel."""
    values = np.array(values, dtype=float)
    return values - values.mean(axis=0)


def _hypotheses(group: _Group) -> Iterator[Hypothesis]:
    # Put cheap hypotheses first. Factors of terms need no new values, and other expressions are evaluated everywhere.
    point, terms = group.points[0], group.points[0].action.terms
    if len(terms) > 1:
        yield _scaled(lambda group: (0, [group.total]), "is {} times the action", "it")
    for at, term in enumerate(terms):
        what = f"the term {shown(term)}"
        yield _scaled(partial(_with_free_terms, free=(at,)), f"has {{}} times {_escaped(what)}", what)
    for guesses in (_exchanges, _of_symbols, _spreads):
        for expression, said, meaning in guesses(point):

            def of_expression(group: _Group, expression: Expr = expression) -> tuple | None:
                try:
                    return _centred([value_of(expression, point.values) for point in group.points]), ()
                except NotImplementedError:
                    return None

            explanation = Explanation(f"the reference has {said}", meaning)
            yield Hypothesis(of_expression, lambda fit, explanation=explanation: explanation)
    for term in simple_terms(point.action):
        with_term = partial(_with_term, term, {})
        missing = f"a term is missing: {term} with this factor"
        yield _scaled(with_term, f"has {{}} times {_escaped(str(term))} in addition", meaning=missing)
        for at, other in enumerate(terms):
            yield _scaled(
                partial(with_term, without=at),
                f"has {{}} times {_escaped(f'{term} in place of the term {shown(other)}')}",
                meaning=f"the term {shown(other)} should be another function",
                cost=1.5,
            )
    for pair in combinations(range(len(terms)), 2):

        def two_terms(fit: Fit, pair: tuple[int, ...] = pair) -> Explanation:
            pairs = zip(fit.factors[0], pair, strict=True)
            said = " and ".join(f"{factor:.4g} times {shown(terms[at])}" for factor, at in pairs)
            return Explanation(f"the reference has {said}", "two terms have wrong factors", cost=2.0)

        yield Hypothesis(partial(_with_free_terms, free=pair), two_terms)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _with_free_terms(group: _Group, free: tuple[int, ...]) -> tuple | None:
    columns = [group.terms[:, at] for at in free]
    if any(np.max(np.abs(column)) <= group.tolerance for column in columns):
        return None
    return group.total - sum(columns), columns


def _with_term(term: Expr, known: dict, group: _Group, without: int | None = None) -> tuple | None:
    """Return the action with a `term` of unknown factor, added or in place of the term number `without`."""
    # Evaluate the term only once for all hypotheses in which it replaces another term.
    at = id(group.points)
    if at not in known:
        known[at] = _centred([value_of(term, point.values) for point in group.points])
    fixed = group.total if without is None else group.total - group.terms[:, without]
    return (fixed, [known[at]]) if np.max(np.abs(known[at])) > group.tolerance else None


def _scaled(parts: Callable, said: str, what: str = "", meaning: str = "", cost: float = 1.0) -> Hypothesis:
    """Make a hypothesis with one factor, whose name replaces the braces in `said`.

    The default of `meaning` is that `what` must be multiplied by the factor.
    """

    def words(fit: Fit) -> Explanation:
        factors = fit.factors[:, 0]
        are_zero = np.max(np.abs(factors)) < 1e-9
        name = "0" if are_zero else name_factor(factors, fit.quantities, 1e-6) or f"{factors[0]:.6g}"
        of_factor = f"a factor: multiply {what} by it"
        if are_zero:
            of_factor = f"{what} should not be there, or the reference lacks it"
        elif np.allclose(factors, -1, atol=1e-6):
            of_factor = f"a sign: {what} has the opposite sign"
        return Explanation(f"the reference {said.format(name)}", meaning or of_factor, cost)

    return Hypothesis(parts, words)


# A guess is an action that may equal the reference, its description, and the corresponding mistake.
_Guesses = Iterator[tuple[Expr, str, str]]


def _exchanges(point: ActionPoint) -> _Guesses:
    action, values = point.action, point.values
    symbols = [symbol for symbol in action.symbols if symbol not in action.sizes]
    for one, other in combinations(symbols, 2):
        if np.shape(values[one.name]) != np.shape(values[other.name]):
            continue
        exchanged = action.expression.xreplace({one: other, other: one})
        yield exchanged, f"{one} and {other} exchanged", "the two are interchanged"
        for symbol, instead in ((one, other), (other, one)):
            yield from _replaced(action, symbol, instead, str(instead), f"another symbol: write {instead}")


def _replaced(action: Action, symbol: Expr, instead: Expr, words: str, meaning: str) -> _Guesses:
    said = f"{words} in place of {symbol} in the action"
    yield action.expression.xreplace({symbol: instead}).doit(), said, meaning
    having = [term for term in action.terms if term.has(symbol)]
    for term in having if len(having) > 1 else ():
        changed = action.expression - term + term.xreplace({symbol: instead}).doit()
        yield changed, f"{said}, in the term {shown(term)}", meaning


def _of_symbols(point: ActionPoint) -> _Guesses:
    action, values = point.action, point.values
    for symbol in (each for each in action.symbols if each not in action.sizes):
        value, found = values[symbol.name], []
        if not isinstance(symbol, MatrixSymbol):
            changes = [(-symbol, "a sign"), (symbol**2, "a power"), (1 / symbol, "a power")]
            changes += [(2 * symbol, "a factor 2"), (symbol / 2, "a factor 1/2")]
            changes += [(sqrt(symbol), "a square root")] * (value > 0)
            for other in (each for each in action.parameters if isinstance(each, Symbol) and each != symbol):
                changes += [(symbol * other, f"a factor {other}"), (symbol / other, f"a factor 1/{other}")]
            found = [(instead, str(instead), f"{mistake} of {symbol}") for instead, mistake in changes]
        elif value.shape[0] == value.shape[1] > 1:
            if not isinstance(symbol, SymmetricSymbol):
                found.append((Transpose(symbol), f"the transpose of {symbol}", f"a transpose: write {symbol}.T"))
            if symbol in action.order_parameters:
                found.append((inverse(symbol), f"the inverse of {symbol}", f"an inverse: write {symbol}.I"))
        for guess in found:
            yield from _replaced(action, symbol, *guess)


def _spreads(point: ActionPoint) -> _Guesses:
    expression = point.action.expression
    for average in sorted(expression.atoms(GaussianAverage), key=lambda node: node.sort_key()):
        variable = average.variable
        for spread in _SPREADS:
            integrand = average.integrand.xreplace({variable: spread * variable})
            widened = average.func(integrand, variable, *average.args[2:])
            said = f"{spread:.4g} times the Gaussian variable in {shown(average)}"
            yield expression.xreplace({average: widened}), said, "a standard deviation that lacks this factor"


def simple_terms(action: Action) -> Iterator[Expr]:
    """Yield simple terms that may be missing in an action: first order parameters alone, then with parameters."""
    alone: list[Expr] = []
    for symbol, domain in action.order_parameters.items():
        if isinstance(symbol, MatrixSymbol):
            alone += [Trace(symbol), Trace(symbol * symbol)] if are_equal_sizes(*symbol.shape) else []
            alone += [Trace(symbol.T * symbol)]
            alone += [log_det(symbol), Trace(symbol.I)] if isinstance(domain, PositiveDefinite) else []
        else:
            alone += [symbol**power for power in (1, 2, 3, 4)]
            alone += [log(symbol), Integer(1) / symbol] if isinstance(domain, Positive) else []
            alone += [log(1 - symbol), 1 / (1 - symbol), log(1 + symbol)]
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
