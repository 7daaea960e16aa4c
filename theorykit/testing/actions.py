"""Check an action in its domains, and compare it with your NumPy function."""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import jax.numpy as jnp
import numpy as np
from sympy import Expr, MatrixSymbol, Symbol, Trace, log, solve

from .._compat import require_float64
from ..checks import by_name, checked_instance, shown
from ..codegen import interpret
from ..saddle import Action
from ..symbolic import log_det
from .explain import Finding, Point, Report, Trial, changes_of, compare, of_shape, random_value

Values = Mapping[Any, Any]
# Undetermined sizes of matrices differ, so that a transpose is detected.
_SIDES = (3, 4, 2, 5)
# Sets of parameters, and points per set beyond one per term.
_GROUPS, _POINTS = 3, 6
# Gaussian averages have errors of quadrature.
_TOLERANCE = 1e-7


def check_action(
    action: Action,
    values: Values | None = None,
    *,
    reference: Callable[..., Any] | None = None,
    seed: int = 0,
) -> Report:
    """Return a report of the mistakes in an action. A mistake raises no error.

    Args:
        action: the action.
        values: values of the parameters, by default random numbers.
        reference: the same action in NumPy, a function of all symbols by name. It may
            differ by a constant that depends on parameters.
        seed: seed of all random numbers.
    """
    require_float64()
    checked_instance("action", action, Action)
    rng, count = np.random.default_rng(seed), len(action.terms) + _POINTS
    groups = [random_values(action, rng, count, values) for _ in range(_GROUPS if values is None else 1)]
    checks = [_check_domains(action, [point for group in groups for point in group])]
    if reference is not None and not checks[0].meaning:
        checks.append(_check_reference(action, groups, reference))
    return Report("The action", tuple(checks))


def _check_domains(action: Action, points: Sequence[Point]) -> Finding:
    claim = "the action is defined in its domains"
    count = np.sum([[not np.isfinite(_value(term, at)) for term in action.terms] for at in points], axis=0)
    most = int(np.argmax(count))
    if not count[most]:
        return Finding(claim, f"at {len(points)} random points")
    domains = ", ".join(f"{each} in {domain}" for each, domain in action.order_parameters.items())
    wrong = f"{shown(action.terms[most])} has a wrong sign, or a domain is too wide: {domains}"
    return Finding(claim, f"it is not at {count[most]} of {len(points)} points", wrong)


def random_values(action: Action, rng: np.random.Generator, count: int, values: Values | None = None) -> list[Point]:
    """Draw values of all symbols, at points with the same parameters."""
    known = {name: np.asarray(value)[()] for name, value in by_name("values", values or {}).items()}
    shapes = {symbol: getattr(symbol, "shape", ()) for symbol in action.symbols}
    for symbol, shape in shapes.items():
        for side, length in zip(shape, np.shape(known.get(symbol.name)), strict=False):
            rest = side.subs({each: known.get(each.name, each) for each in side.free_symbols}) - length
            known |= {size.name: int(solve(rest, size)[0]) for size in rest.free_symbols}
    sides = {size.name for shape in shapes.values() for side in shape for size in side.free_symbols}
    known |= dict(zip(sorted(sides - known.keys()), _SIDES * len(sides), strict=False))
    for symbol in action.parameters:
        if symbol.name not in known:
            known[symbol.name] = random_value(symbol, known, rng)

    def draw(symbol: Expr, domain: Any) -> Any:
        # Any coordinates give a point inside a domain.
        shape = tuple(int(interpret(side, known)) for side in shapes[symbol])
        coordinates = jnp.asarray(rng.standard_normal(domain.size(shape)))
        return np.asarray(domain.value(coordinates, shape))[()]

    own = action.order_parameters.items()
    return [{**known, **{symbol.name: draw(symbol, domain) for symbol, domain in own}} for _ in range(count)]


def _value(expression: Expr, point: Point) -> float:
    with np.errstate(all="ignore"):
        try:
            value = np.asarray(interpret(expression, point))
        except (ValueError, ArithmeticError):
            return np.nan
    return float(value) if np.isrealobj(value) else np.nan


def _check_reference(action: Action, groups: Sequence[Sequence[Point]], reference: Callable) -> Finding:
    claim, trials = "the action equals the reference, up to a constant", []
    names = [symbol.name for symbol in action.symbols]
    for points in groups:
        try:
            found = [reference(**{name: at[name] for name in names}) for at in points]
            values = [of_shape((), np.squeeze(each)) for each in found]
        except Exception as error:  # The user's code may raise any error.
            return Finding(claim, "", repr(error))
        numbers = {each.name: abs(points[0][each.name]) for each in action.parameters if isinstance(each, Symbol)}
        trials.append(Trial(points, values, _TOLERANCE, numbers))

    def named(terms: Sequence[Expr]) -> dict[str, Callable[[Point], float]]:
        return {shown(term): lambda at, of=term: _value(of, at) for term in terms}

    own = [symbol.name for symbol in action.symbols if symbol not in action.sizes]
    changes = changes_of(groups[0][0], own)
    return compare(claim, named(action.terms), trials, changes, named(_simple_terms(action)))


def _simple_terms(action: Action) -> list[Expr]:
    found = []
    for each in action.order_parameters:
        if isinstance(each, Symbol):
            found += [each, each**2, each**3, each**4, 1 / each, 1 / (1 - each)]
            found += [log(each), log(1 - each), log(1 + each)]
        else:
            found.append(Trace(each.T * each))
            is_square = each.shape[0] == each.shape[1]
            found += [log_det(each), Trace(each), Trace(each.I)] if is_square else []
    for one, other in permutations(action.symbols, 2):
        if isinstance(one, Symbol) and isinstance(other, Symbol):
            found += [one * other, one**2 * other, one / (1 - other)]
        elif isinstance(one, MatrixSymbol) and one.shape == getattr(other, "shape", ()):
            found.append(Trace(one.T * other))
    return found
