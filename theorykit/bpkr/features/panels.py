"""Panels on which a function of hidden units is smooth: split at its kinks and steps, halved until it is resolved.

They hold at any variance, since they are places of the function itself. Quadrature over Gaussian numbers scales them
by the standard deviation at hand.
"""

from collections.abc import Callable, Iterator
from functools import cache

import jax
import numpy as np
from scipy.optimize import brentq
from sympy import Abs, Expr, Heaviside, Max, Min, Piecewise, ceiling, floor, pi, sign, sin
from sympy.core.relational import Relational

from ..specification.activations import UNIT, Activation
from .functions import apply_to

# Nodes of a panel. A product of two functions that as many nodes resolve to _RESOLVED is integrated to its square.
NODES = 14
_RESOLVED, _NEGLIGIBLE = 3e-7, 1e-14
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(NODES)
_COEFFICIENTS = (np.polynomial.legendre.legvander(_POINTS, NODES - 1) * _WEIGHTS[:, None]).T
_COEFFICIENTS *= (2 * np.arange(NODES)[:, None] + 1) / 2
# values that are looked at in one call, so that a function is compiled once
_AT_ONCE = 2**12, 2**16
MOST_PANELS = 400
# a square that grows this fast towards a point has no integral
_SMALLEST = 2.0**-60


def host_function(activation: Activation) -> Callable[[np.ndarray], np.ndarray]:
    """phi of arrays of NumPy, also while something is traced."""

    def evaluate(points: np.ndarray) -> np.ndarray:
        count = _AT_ONCE[points.size > 4 * _AT_ONCE[0]]
        flat = np.ones(-(-points.size // count) * count)
        flat[: points.size] = points.ravel()
        with jax.ensure_compile_time_eval():
            values = [np.asarray(apply_to(activation, jax.numpy.asarray(part))) for part in flat.reshape(-1, count)]
        return np.concatenate(values)[: points.size].reshape(points.shape)

    return evaluate


@cache
def kinks(function: Expr, reach: float) -> tuple[float, ...]:
    """Where within `reach` of zero an argument of Abs, sign, Heaviside, Max, Min, floor or Piecewise changes sign."""
    found: set[float] = set()
    for switch in _switches(function):
        numerator = switch.as_numer_denom()[0]
        if numerator.is_polynomial(UNIT) and numerator.as_poly(UNIT).degree() == 1:
            slope, offset = numerator.as_poly(UNIT).all_coeffs()
            found.add(float(-offset / slope))
        else:
            found.update(_sign_changes(switch, reach))
    return tuple(sorted(place for place in found if abs(place) < reach))


def _switches(function: Expr) -> Iterator[Expr]:
    for node in function.atoms(Abs, sign, Heaviside, Max, Min, Piecewise, floor, ceiling):
        if isinstance(node, (Max, Min)):
            yield from (a - b for i, a in enumerate(node.args) for b in node.args[:i])
        elif isinstance(node, Piecewise):
            yield from (each.lhs - each.rhs for _, condition in node.args for each in condition.atoms(Relational))
        elif isinstance(node, (floor, ceiling)):
            yield sin(pi * node.args[0])
        else:
            yield node.args[0]


def _sign_changes(switch: Expr, reach: float) -> Iterator[float]:
    evaluate = host_function(Activation(str(switch), switch))
    near = np.geomspace(reach * 1e-6, reach, 2000)
    points = np.unique(np.concatenate([-near, np.linspace(-reach, reach, 4001), near]))
    values = evaluate(points)
    yield from points[values == 0].tolist()
    for left in np.flatnonzero(values[:-1] * values[1:] < 0):
        yield float(brentq(lambda at: evaluate(np.array([at]))[0], points[left], points[left + 1], xtol=1e-300))


def panels(activation: Activation, reach: float, scale: float, finest: float) -> tuple[tuple[float, ...], bool]:
    """Edges of panels from -reach to `reach`, and whether they resolve the function; `scale` is its typical size.

    Hidden units have a standard deviation of `finest` at the least: panels that are much narrower are not halved unless
    the function is large there.

    Raises `ValueError` for a function that is not finite, or whose square has no integral.
    """
    evaluate, places = host_function(activation), kinks(activation.function, reach)
    trials = tried(places, reach)
    of_trials = evaluate(trials)
    _check_finite(activation, trials, of_trials)
    edges = np.unique([-reach, *places, 0.0, reach])
    left, right, done = edges[:-1], edges[1:], []
    while len(left) and len(done) + len(left) <= MOST_PANELS:
        middle, half = (left + right)[:, None] / 2, (right - left)[:, None] / 2
        values = evaluate(middle + half * _POINTS)
        _check_finite(activation, middle + half * _POINTS, values)
        size = np.max(np.abs(values), axis=1)
        coefficients = values @ _COEFFICIENTS.T
        error = np.max(np.abs(coefficients[:, -3:]), axis=1)
        # all nodes may miss a feature
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            inside = slice(*np.searchsorted(trials, [np.nextafter(a, b), b]))
            at = (trials[inside] - middle[i]) / half[i]
            missed = np.abs(np.polynomial.legendre.legval(at, coefficients[i]) - of_trials[inside])
            error[i] = max(error[i], np.max(missed, initial=0.0))
        rough = error > np.maximum(_RESOLVED * size, _NEGLIGIBLE * scale)
        rough &= error * half[:, 0] > _NEGLIGIBLE * scale * finest
        narrow = half[:, 0] < _SMALLEST * reach
        if np.any(rough & narrow & (size**2 * half[:, 0] > 1e-9 * scale**2)):
            at = float(middle[rough & narrow][0, 0])
            raise ValueError(f"it is infinite at h = {at:.6g}")
        again = rough & ~narrow
        done += list(left[~again])
        left, right = (
            np.concatenate([left[again], middle[again, 0]]),
            np.concatenate([middle[again, 0], right[again]]),
        )
    return tuple(sorted({*done, *left.tolist(), reach})), not len(left)


def tried(places: tuple[float, ...], reach: float) -> np.ndarray:
    """Points where a panel is compared with the function: dense about zero, its kinks, and where h is of order one."""
    away = np.geomspace(reach * 1e-9, reach, 500)
    about = np.concatenate([[0.0], *([place + away, place - away] for place in (0.0, *places[:20]))], axis=None)
    points = np.concatenate([about, np.linspace(-8, 8, 1601), np.linspace(-reach, reach, 1601)])
    # a step has either value at its place
    points = np.setdiff1d(points, places)
    return points[np.abs(points) < reach]


def _check_finite(activation: Activation, points: np.ndarray, values: np.ndarray) -> None:
    if not np.all(np.isfinite(values)):
        at = points[~np.isfinite(values)].flat[0]
        raise ValueError(f"it is not finite at h = {at:.6g}")
