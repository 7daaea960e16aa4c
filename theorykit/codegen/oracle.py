"""Compute Gaussian averages in NumPy, for the interpreter.

This module uses the double-exponential rule of Takahasi and Mori (1974), which tolerates singularities at the ends of
panels. It shares neither a quadrature rule nor an error estimate with generated code.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np

from ..symbolic.atoms import bound_outside, matrix_scalars
from ..symbolic.averages import breaks, coefficients, exponential_factor, features, singularities
from ..symbolic.envelopes import MoreauEnvelope
from ..symbolic.envelopes import derivative as derivative_of_loss

# Edges of panels in standard deviations. The density beyond the last edge is zero in float64.
_EDGES = np.array([1.3, 3.1, 5.3, 8.3, 12.7, 20.0, 30.0, 38.5])
_EDGES = np.concatenate([-_EDGES[::-1], _EDGES])
# Step of the double-exponential rule, whose error is then below rounding.
_STEP = 0.2
_EXPONENTS = np.pi * np.sinh(_STEP * np.arange(-26, 27))
# Fraction of a panel below each node.
_BELOW = 1 / (1 + np.exp(-_EXPONENTS))
# Fraction of a panel above each node. It is computed separately, because 1 - _BELOW would lose digits.
_ABOVE = 1 / (1 + np.exp(_EXPONENTS))
_WEIGHTS = _STEP * np.sqrt(np.pi**2 + _EXPONENTS**2) * _BELOW * _ABOVE
# Change of a panel on halving, relative to the mean absolute value, below which it is not halved again.
_TOLERANCE = 1e-15
# Largest number of panels. A function with large rounding errors would need infinitely many.
_MOST_PANELS = 1024
# Largest number of halvings of a panel, for the same reason.
_MOST_HALVINGS = 100

Function = Callable[[np.ndarray], np.ndarray]
# Value of an expression. It is complex if the expression contains the imaginary unit, and boolean for conditions.
Value = np.ndarray | float | int | complex | bool | np.bool_


def mean_of_average(node, at):
    """Evaluate a `GaussianAverage`. The function `at` evaluates expressions."""
    rest, tilt = exponential_factor(node)

    def of_variable(expression):
        return at.function((node.variable,), expression)

    if any(map(bound_outside, matrix_scalars(node.integrand))):
        return normal_mean(lambda points: np.array([of_variable(node.integrand)(point) for point in points]))
    outside = [*bound_outside(node), *matrix_scalars(node.integrand)]
    shape = np.broadcast_shapes(*(np.shape(at(each)) for each in outside))
    places = []
    for function in [*breaks(node), *singularities(node)]:
        if any(variable != node.variable and not at.is_bound(variable) for variable in bound_outside(function)):
            continue
        if polynomial := coefficients(function, node.variable):
            places += _roots(*(np.broadcast_to(at(each), shape) for each in polynomial))
            continue
        points = np.linspace(-38.5, 38.5, 3851).reshape(-1, *(1 for _ in shape))
        values = np.broadcast_to(of_variable(function)(points), (len(points), *shape))
        changes = np.sign(values[1:]) != np.sign(values[:-1])
        for number in range(int(np.max(np.sum(changes, axis=0), initial=0))):
            is_next = changes & (np.cumsum(changes, axis=0) == number + 1)
            low = np.broadcast_to(points[:-1], changes.shape)
            left = np.where(np.any(is_next, axis=0), np.sum(np.where(is_next, low, 0.0), axis=0), 0.0)
            right = left + 0.02
            above = np.sign(of_variable(function)(left[None]))
            for _ in range(60):
                middle = (left + right) / 2
                is_left = (np.sign(of_variable(function)(middle[None])) == above)[0]
                left, right = np.where(is_left, middle, left), np.where(is_left, right, middle)
            places.append((left + right) / 2)
    # Around these points a function of a + b z + c z^2 may vary rapidly.
    for polynomial in features(rest, node.variable):
        if any(not at.is_bound(variable) for each in polynomial for variable in bound_outside(each)):
            continue
        a, b, c = (np.broadcast_to(at(each), shape) for each in polynomial)
        # A width is infinite if the function is constant.
        with np.errstate(all="ignore"):
            vertex = [] if np.all(c == 0) else [-b / (2 * c)]
            slope = np.sqrt(np.abs(b**2 - 4 * a * c))
            widths = [1 / slope, *([np.abs(c) ** -0.5, slope / np.abs(2 * c)] if vertex else [])]
            near = product([*_roots(a, b, c), *vertex], widths, (-30, -3, 0, 3, 30))
            places += [_finite(centre + steps * width) for centre, width, steps in near]
    tilt = tilt and (of_variable(tilt[0]), *map(at, tilt[1:]))
    return normal_mean(of_variable(rest), places, shape, tilt)


def _roots(a, b, c):
    """Return the real roots of a + b z + c z^2. Missing roots are zero."""
    with np.errstate(all="ignore"):
        found = [-a / b] if np.all(c == 0) else [(-b + side * np.sqrt(b**2 - 4 * a * c)) / (2 * c) for side in (1, -1)]
    return list(map(_finite, found))


def _finite(place):
    return np.where(np.isfinite(place), place, 0.0)


def normal_mean(
    function: Function,
    places: Iterable[np.ndarray | float] = (),
    shape: Sequence[int] = (),
    tilt: tuple[Function, np.ndarray | float, np.ndarray | float] | None = None,
) -> np.ndarray | float | complex:
    """Average `function` over a standard normal variable, to a relative accuracy of about 1e-14.

    The quadrature is adaptive: panels are halved until the result no longer changes. `function` may have kinks, jumps
    and integrable singularities.

    Args:
        function: takes an array of points, whose trailing axes have the shape `shape` or broadcast to it.
        places: positions of kinks, jumps and singularities, as numbers or arrays of shape `shape`. Without them, the
            quadrature needs more panels.
        shape: shape of the batch.
        tilt: a tuple (exponent, b, c) with exponent(z) = a + b z + c z^2. The integrand is multiplied by its
            exponential.
    """
    exponent, mean, deviation = None, np.zeros(shape), np.ones(shape)
    if tilt is not None:
        exponent, narrowing = tilt[0], 1 - 2 * np.broadcast_to(tilt[2], shape)
        deviation = 1 / np.sqrt(np.where(narrowing > 0, narrowing, 1.0))
        mean = np.where(narrowing > 0, tilt[1] * deviation**2, 0.0)

    def integrals(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Integrate over each panel. Panels are along the first axis."""
        below, above, weights = (each.reshape(1, -1, *(1 for _ in shape)) for each in (_BELOW, _ABOVE, _WEIGHTS))
        low, high = left[:, None], right[:, None]
        points = np.where(below < above, low + (high - low) * below, high - (high - low) * above)
        z = points.reshape(-1, *shape)
        with np.errstate(all="ignore"):
            density = np.exp((0.0 if exponent is None else exponent(z)) - z**2 / 2)
            values = np.broadcast_to(function(z), z.shape) * density
            # Set overflows at large |z| to zero, because a function whose mean exists is negligible there.
            values = np.where(~np.isfinite(values) & (density < 1e-150), 0.0, values).reshape(points.shape)
        # A node that is rounded to the end of its panel may be at a singularity, and has negligible weight.
        values = np.where(((points == low) | (points == high)) & ~np.isfinite(values), 0.0, values)
        return np.sum(weights * values, axis=1) * (right - left)

    grid = mean + deviation * _EDGES.reshape(-1, *(1 for _ in shape))
    inner = [np.clip(np.broadcast_to(at, (1, *shape)), grid[:1], grid[-1:]) for at in places]
    edges = np.sort(np.concatenate([grid, *inner]), axis=0)
    left, right = edges[:-1], edges[1:]
    whole = integrals(left, right)
    scale, total = np.nansum(np.abs(whole), axis=0), np.zeros(shape)
    for halvings in range(_MOST_HALVINGS):
        middle = (left + right) / 2
        first, second = integrals(left, middle), integrals(middle, right)
        # A NaN is not halved again, because the comparison is false.
        # The density has a relative rounding error in proportion to z^2, which no halving removes.
        rounding = np.maximum(left**2, right**2) * np.abs(whole)
        again = np.abs(first + second - whole) > _TOLERANCE * (scale + rounding)
        again = np.any(again, axis=tuple(range(1, again.ndim))) & (len(left) < _MOST_PANELS)
        again &= halvings < _MOST_HALVINGS - 1
        total = total + np.sum((first + second)[~again], axis=0)
        left, right = np.concatenate([left[again], middle[again]]), np.concatenate([middle[again], right[again]])
        whole = np.concatenate([first[again], second[again]])
        if not len(left):
            break
    return total / np.sqrt(2 * np.pi)


FARTHEST = 1e300
"""Distance that replaces an infinite one, if the slope of a loss overflows."""


def value_of_loss(node: Any, at: Any) -> Any:
    """Evaluate a proximal point or a Moreau envelope in NumPy. The function `at` evaluates expressions.

    It bisects between the same ends as generated code, until they are neighbours in float64.
    """
    given = [np.asarray(at(number)) for number in node.numbers]
    # There is no minimum around a complex number.
    numbers = np.broadcast_arrays(*(np.where(np.imag(each) == 0, np.real(each), np.nan) for each in given))
    x, *parameters = node.loss.variables

    def of_loss(order: int) -> Callable[..., np.ndarray]:
        expression = derivative_of_loss(node.loss, order)
        function = at.function((x, *parameters), expression)
        return lambda point, *given: np.broadcast_to(function(point, *given), np.shape(point))

    loss, slope = of_loss(0), of_loss(1)

    def objective(point, omega, variance, *given):
        return (point - omega) ** 2 / (2 * variance) + loss(point, *given)

    omega, variance, *given = numbers
    with np.errstate(all="ignore"):
        ends = omega, np.clip(omega - variance * slope(omega, *given), -FARTHEST, FARTHEST)
        if node.takes_least:
            grid = np.linspace(-200, 200, 40_001).reshape(-1, *(1 for _ in omega.shape))
            grid = np.sort(np.concatenate([grid + np.zeros_like(omega), omega + grid / 40]), axis=0)
            best = np.clip(np.argmin(objective(grid, *numbers), axis=0), 1, len(grid) - 2)
            ends = tuple(np.take_along_axis(grid, (best + shift)[None], 0)[0] for shift in (-1, 1))
        low, high = np.minimum(*ends), np.maximum(*ends)
        while np.any((low < (middle := low + (high - low) / 2)) & (middle < high)):
            is_above = middle - omega + variance * slope(middle, *given) > 0
            low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
        return (objective(high, *numbers) if isinstance(node, MoreauEnvelope) else high)[()]
