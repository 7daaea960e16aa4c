"""Proximal points in JAX, and in NumPy for the interpreter. Derivatives come from `symbolic.envelopes`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..symbolic.envelopes import MoreauEnvelope, derivative

Numbers = Float[Array, "..."]
Function = Callable[[Numbers], Numbers]

# Largest number of steps. Newton's method takes about five, and bisection of exponents about sixty more.
_MOST_STEPS = 100
# Distance that replaces an infinite one, if the slope of the loss overflows.
_FARTHEST = 1e300
# Distances of the points among which several minima are searched for: short steps, then steps that grow.
_DISTANCES = np.concatenate([np.arange(0.0, 12.0, 0.04), np.geomspace(12.0, 1e4, 100)])
# Number of local minima that are refined.
_MOST_MINIMA = 4


def proximal_point(slope: Function, curvature: Function, omega: Numbers, variance: Numbers) -> Numbers:
    """Return the root x of x - omega + V loss'(x) for a convex loss, by Newton's method inside a bracket.

    The distance d of x from omega is the root of an increasing function, d - V |loss'|, between zero and V |loss'| at
    omega. A relative step keeps small distances accurate. If Newton's steps do not shrink, as on the steep side of an
    exponential function, the exponent of the bracket is bisected.
    """
    epsilon = float(jnp.finfo(jnp.float64).eps)
    first = slope(omega)
    side = -jnp.sign(first)
    most = jnp.minimum(variance * jnp.abs(first), _FARTHEST)

    def middle(low, high):
        start = jnp.maximum(low, 1e-3 * jnp.minimum(high, 1.0))
        return jnp.where(high < 4 * low, (low + high) / 2, jnp.sqrt(start) * jnp.sqrt(high))

    def inside(proposed, low, high, is_good=True):
        return jnp.where((proposed >= low) & (proposed <= high) & is_good, proposed, middle(low, high))

    def improve(state):
        number, distance, low, high, last, _ = state
        at = omega + side * distance
        residual = distance + side * variance * slope(at)
        # Rounding may make the residual of an overflowing slope NaN, which is on the far side.
        is_below = residual < 0
        low, high = jnp.where(is_below, distance, low), jnp.where(is_below, high, distance)
        step = residual / (1 + variance * curvature(at))
        moved = inside(distance - step, low, high, jnp.abs(step) <= last / 2)
        moved = jnp.where(residual == 0, distance, moved)
        done = jnp.abs(moved - distance) <= 4 * epsilon * (moved + jnp.abs(omega))
        return number + 1, moved, low, high, jnp.abs(moved - distance), done

    zeros = jnp.zeros_like(most)
    start = inside(most / (1 + variance * curvature(omega)), zeros, most)
    state = (0, start, zeros, most, jnp.full_like(most, jnp.inf), jnp.isnan(most) | (most == 0))
    goes_on = lambda state: (state[0] < _MOST_STEPS) & ~jnp.all(state[-1])  # noqa: E731
    _, distance, *_ = jax.lax.while_loop(goes_on, improve, state)
    return jnp.where(variance >= 0, omega + side * distance, jnp.nan)


def least_proximal_point(loss: Function, slope: Function, omega: Numbers, variance: Numbers) -> Numbers:
    """Return the least of the local minima of (x - omega)^2 / (2 V) + loss(x): scan, bisect, and compare."""
    objective = lambda x: (x - omega) ** 2 / (2 * variance) + loss(x)  # noqa: E731
    shifts = np.concatenate([-_DISTANCES[:0:-1], _DISTANCES]).reshape(-1, *(1 for _ in jnp.shape(omega)))
    # Look around the origin of the loss, and around the vertex of the square.
    points = jnp.sort(jnp.concatenate([omega + shifts, jnp.broadcast_to(shifts, (len(shifts), *jnp.shape(omega)))]), 0)
    values = objective(points)
    is_least = (values[1:-1] <= values[:-2]) & (values[1:-1] <= values[2:])
    ranked = jnp.argsort(jnp.where(is_least, values[1:-1], jnp.inf), axis=0)[:_MOST_MINIMA]
    # Two points of the scans may coincide, so the bracket ends at the second points on both sides.
    ends = (jnp.clip(ranked + shift, 0, len(points) - 1) for shift in (-1, 3))
    low, high = (jnp.take_along_axis(points, end, 0) for end in ends)

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        is_above = middle - omega + variance * slope(middle) > 0
        return jnp.where(is_above, low, middle), jnp.where(is_above, middle, high)

    low, high = jax.lax.fori_loop(0, 60, halve, (low, high))
    found = (low + high) / 2
    best = jnp.argmin(objective(found), axis=0)[None]
    # At the end of the grid there is no minimum: the loss falls faster than the square rises.
    is_minimum = jnp.min(values, axis=0) < jnp.minimum(values[0], values[-1])
    return jnp.where(is_minimum & (variance > 0), jnp.take_along_axis(found, best, 0)[0], jnp.nan)


def value_of_loss(node: Any, at: Any) -> Any:
    """Evaluate a proximal point or a Moreau envelope in NumPy. The function `at` evaluates expressions.

    It bisects between the same ends as `proximal_point`, until they are neighbours in float64.
    """
    numbers = np.broadcast_arrays(*(np.asarray(at(number), float) for number in node.numbers))
    x, *parameters = node.loss.variables

    def of_loss(order: int) -> Callable[..., np.ndarray]:
        expression = derivative(node.loss, order)
        return lambda point, *given: np.broadcast_to(
            at.where({x: point, **dict(zip(parameters, given, strict=True))})(expression), np.shape(point)
        )

    loss, slope = of_loss(0), of_loss(1)

    def objective(point, omega, variance, *given):
        return (point - omega) ** 2 / (2 * variance) + loss(point, *given)

    omega, variance, *given = numbers
    with np.errstate(all="ignore"):
        ends = omega, np.clip(omega - variance * slope(omega, *given), -_FARTHEST, _FARTHEST)
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
