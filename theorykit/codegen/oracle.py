"""Compute Gaussian averages in NumPy, for the interpreter.

This module halves panels until Gauss-Legendre rules with 8 and with 16 nodes agree. It shares neither panels nor an
error estimate with compiled code, which does not refine its rules.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..symbolic.atoms import bound_outside, matrix_scalars
from ..symbolic.averages import breaks, coefficients, exponential_factor, features, singularities
from ..symbolic.envelopes import MoreauEnvelope
from ..symbolic.envelopes import derivative as derivative_of_loss

# Edges of panels in standard deviations. The density beyond the last edge is zero in float64.
_EDGES = np.array([1.3, 3.1, 5.3, 8.3, 12.7, 20.0, 30.0, 38.5])
_EDGES = np.concatenate([-_EDGES[::-1], _EDGES])
# Nodes on (0, 1) of a rule and of a coarser one, with the weights of both rules. The other rule's weights are zero.
_FINE, _COARSE = (np.polynomial.legendre.leggauss(count) for count in (16, 8))
_NODES = (1 + np.concatenate([_FINE[0], _COARSE[0]])) / 2
_WEIGHTS = np.concatenate([_FINE[1], np.zeros(8)]) / 2
_OTHERS = np.concatenate([np.zeros(16), _COARSE[1]]) / 2
# Difference of the two rules on a panel, relative to the mean absolute value, below which the panel is not halved. The
# error of the finer rule is smaller by orders of magnitude.
_TOLERANCE = 1e-14
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
    # Panels end at kinks and singularities.
    kinks, places = [], []
    for function in [*breaks(node), *singularities(node)]:
        if polynomial := coefficients(function, node.variable):
            kinks.append(polynomial)
        elif all(variable == node.variable or at.is_bound(variable) for variable in bound_outside(function)):
            places += _sign_changes(of_variable(function), shape)
    # Around the roots and the vertex, a function of a + b z + c z^2 may vary rapidly.
    steep = features(rest, node.variable)
    for polynomial in [*kinks, *steep]:
        if not all(at.is_bound(variable) for each in polynomial for variable in bound_outside(each)):
            continue
        a, b, c = (np.broadcast_to(at(each), shape) for each in polynomial)
        with np.errstate(all="ignore"):
            size, is_line = np.sqrt(np.abs(b**2 - 4 * a * c)), np.all(c == 0)
            centres = [-a / b] if is_line else [(-b + side * size) / (2 * c) for side in (1, -1, 0)]
            widths = [1 / size] if is_line else [1 / size, np.abs(c) ** -0.5, size / np.abs(2 * c)]
            places += centres
            if polynomial in steep:
                places += [centre + n * width for centre in centres for width in widths for n in (-30, -3, 3, 30)]
    places = [np.where(np.isfinite(place), place, 0.0) for place in places]
    tilt = tilt and (of_variable(tilt[0]), *map(at, tilt[1:]))
    return normal_mean(of_variable(rest), places, shape, tilt)


def _sign_changes(function: Function, shape: Sequence[int]) -> list[np.ndarray]:
    """Locate sign changes by bisection, each in all elements of the batch, or at zero if an element has fewer."""
    grid = np.linspace(-38.5, 38.5, 3851).reshape(-1, *(1 for _ in shape))
    above = np.broadcast_to(function(grid), (len(grid), *shape)) > 0
    changes = above[1:] != above[:-1]
    order = np.argsort(~changes, axis=0, kind="stable")[: int(np.max(np.sum(changes, axis=0), initial=0))]
    exists, is_above = (np.take_along_axis(each, order, axis=0) for each in (changes, above[:-1]))
    left, width = np.take_along_axis(np.broadcast_to(grid[:-1], changes.shape), order, axis=0), 0.02
    for _ in range(60):
        width /= 2
        left = np.where((function(left + width) > 0) == is_above, left + width, left)
    return list(np.where(exists, left, 0.0))


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

    def shaped(numbers: np.ndarray) -> np.ndarray:
        return numbers.reshape(-1, *(1 for _ in shape))

    def density_times(z: np.ndarray, ends: np.ndarray) -> np.ndarray:
        points = z.reshape(-1, *shape)
        with np.errstate(all="ignore"):
            density = np.exp((0.0 if exponent is None else exponent(points)) - points**2 / 2)
            values = np.broadcast_to(function(points), points.shape) * density
        # Set overflows at large |z| to zero, because a function whose mean exists is negligible there. A point that is
        # rounded to the end of its panel may be at a singularity, and has negligible weight.
        negligible = (density.reshape(z.shape) < 1e-150) | (z == ends)
        values = values.reshape(z.shape)
        return np.where(negligible & ~np.isfinite(values), 0.0, values)

    grid = mean + deviation * shaped(_EDGES)
    inner = [np.clip(np.broadcast_to(at, (1, *shape)), grid[:1], grid[-1:]) for at in places]
    edges = np.sort(np.concatenate([grid, *inner]), axis=0)
    # Each panel is integrated from both ends to its middle, in u with z = end + reach u^2, which softens singularities
    # at the ends. Panels are along the first axis, and nodes along the second.
    half = (edges[1:] - edges[:-1]) / 2
    ends, reach = np.concatenate([edges[:-1], edges[1:]]), np.concatenate([half, -half])
    left, length = np.zeros(len(ends)), np.ones(len(ends))
    scale, total = None, np.zeros(shape)
    for halvings in range(_MOST_HALVINGS):
        u = (left[:, None] + length[:, None] * _NODES).reshape(len(ends), -1, *(1 for _ in shape))
        z = ends[:, None] + reach[:, None] * u**2
        terms = density_times(z, ends[:, None]) * 2 * u * np.abs(reach[:, None]) * shaped(length)[:, None]
        whole, other = (np.tensordot(weights, terms, ([0], [1])) for weights in (_WEIGHTS, _OTHERS))
        scale = np.nansum(np.abs(whole), axis=0) if scale is None else scale
        # A NaN is not halved again, because the comparison is false.
        # The density has a relative rounding error in proportion to z^2, which no halving removes.
        rounding = np.max(z**2, axis=1) * np.abs(whole)
        again = np.abs(whole - other) > _TOLERANCE * (scale + rounding)
        again = np.any(again, axis=tuple(range(1, again.ndim))) & (len(left) < _MOST_PANELS)
        again &= halvings < _MOST_HALVINGS - 1
        total = total + np.sum(whole[~again], axis=0)
        if not np.any(again):
            break
        ends, reach = np.tile(ends[again], (2, *(1 for _ in shape))), np.tile(reach[again], (2, *(1 for _ in shape)))
        length = np.tile(length[again] / 2, 2)
        left = np.concatenate([left[again], left[again] + length[: len(length) // 2]])
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
        low, high = np.minimum(*ends), np.maximum(*ends)
        while np.any((low < (middle := low + (high - low) / 2)) & (middle < high)):
            is_above = middle - omega + variance * slope(middle, *given) > 0
            low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
        return (objective(high, *numbers) if isinstance(node, MoreauEnvelope) else high)[()]
