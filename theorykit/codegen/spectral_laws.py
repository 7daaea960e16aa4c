r"""JAX code of the free sum of a semicircle law of variance v and a free Poisson law of rate c with jumps of size one.

Its Stieltjes transform g solves x = 1/g + v g + c / (1 - g). On the support, let g = r exp(-i phi). The distance
m = |1 - g| determines everything. Since x is real, m^2 = c r^2 / (1 - v r^2), so r = m / sqrt(c + v m^2), and

    x = v + c / m^2 - v m^2 + v r^2,

while the density r sin(phi) / pi follows from the triangle with sides 1, r and m. It vanishes at the edges of the
support: m + r = 1 at the right edge, m - r = 1 at the left edge, and r - m = 1 at the edges of a gap. We solve no cubic
equation, and lose no digits at close edges. The gap closes at v = (1 - c^(1/3))^3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jaxtyping import Array

from ..symbolic.numeric import slope_of_orders

Number = Array | float | int


class _Rule(NamedTuple):
    """Tanh-sinh quadrature on (0, 1): the nodes, their distances from one, and weights."""

    below: np.ndarray
    above: np.ndarray
    weights: np.ndarray

    def shaped(self, like: Array) -> _Rule:
        """Return the rule along a new first axis, before the axes of an array."""
        return _Rule(*(each.reshape(-1, *(1 for _ in like.shape)) for each in self))

    def between(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Return nodes and weights of a logarithmic grid between two numbers, along the first axis."""
        below, above, weights = self.shaped(low)
        length = jnp.log(high / low)
        return jnp.where(below < 0.5, low * jnp.exp(length * below), high * jnp.exp(-length * above)), length * weights


def _tanh_sinh(nodes: int) -> _Rule:
    """Return the rule of Takahasi and Mori (1974).

    It resolves square roots at the ends, and singularities beyond them, such as the edges of a gap that almost closes.
    """
    steps = np.linspace(-3.4, 3.4, nodes)
    exponents = np.pi * np.sinh(steps)
    below, above = 1 / (1 + np.exp(-exponents)), 1 / (1 + np.exp(exponents))
    return _Rule(below, above, (steps[1] - steps[0]) * np.pi * np.cosh(steps) * below * above)


_RULE, _FINER_RULE = _tanh_sinh(121), _tanh_sinh(241)
# Bisections that determine a double in its bracket.
_BISECTIONS = 60
# Relative rounding error of a mean over the nodes.
_ROUNDING = 32 * float(np.finfo(float).eps)


class _Nodes(NamedTuple):
    """Quadrature nodes of a law: positions, masses, and the density and the logarithmic potential at the positions."""

    positions: Array
    masses: Array
    density: Array
    potential: Array


class _Edges(NamedTuple):
    """Values of m at the right edge, the two edges of the gap, and the left edge.

    Without a gap, the second and third values are equal, and lie where a gap opens at smaller v.
    """

    right: Array
    first: Array
    second: Array
    left: Array
    has_gap: Array


def _radius(m: Array, v: Array, c: Array) -> Array:
    return m / jnp.sqrt(c + v * m**2)


def _position(m: Array, v: Array, c: Array) -> Array:
    return v + c / m**2 - v * m**2 + v * _radius(m, v, c) ** 2


def _speed(m: Array, v: Array, c: Array) -> Array:
    """Return -dx / d log m."""
    return 2 * (c / m**2 + v * m**2) - 2 * c * v * m**2 / (c + v * m**2) ** 2


def _height(m: Array, v: Array, c: Array) -> Array:
    """Return pi times the density, by Heron's formula for the area of the triangle."""
    r = _radius(m, v, c)
    area = (1 + r + m) * (1 + r - m) * (m - (1 - r)) * (m + (1 - r))
    inside = area > 0
    return jnp.where(inside, jnp.sqrt(jnp.where(inside, area, 1.0)), 0.0) / 2


def _root(
    miss: Callable[..., Array], slope: Callable[..., Array], low: Array, high: Array, *parameters: Array
) -> Array:
    """Return the only root in a bracket of numbers of one sign.

    Its derivatives with respect to the parameters are correct up to third order.
    """
    low, high = map(stop_gradient, (low, high))
    fixed = tuple(map(stop_gradient, parameters))
    sign = jnp.sign(low)
    low, high = jnp.log(jnp.abs(low)), jnp.log(jnp.abs(high))
    is_positive = miss(sign * jnp.exp(high), *fixed) > 0

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        is_above = (miss(sign * jnp.exp(middle), *fixed) > 0) == is_positive
        return jnp.where(is_above, low, middle), jnp.where(is_above, middle, high)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    root = sign * jnp.exp((low + high) / 2)
    # If k derivatives of a root are correct, 2k + 1 are correct after a Newton step: here 0, then 1, then 3.
    for _ in range(2):
        by = slope(root, *parameters)
        root = root - jnp.where(by == 0, 0.0, miss(root, *parameters) / jnp.where(by == 0, 1.0, by))
    return root


def _edge(a: int, b: int, low: Array, high: Array, v: Array, c: Array) -> Array:
    """Return the root of a m + b r(m) = 1 in a bracket."""
    return _root(
        lambda m, v, c: a * m + b * _radius(m, v, c) - 1,
        lambda m, v, c: a + b * c / jnp.sqrt(c + v * m**2) ** 3,
        low,
        high,
        v,
        c,
    )


def _edges(v: Array, c: Array) -> _Edges:
    root, one = jnp.sqrt(c), jnp.ones_like(c)
    right = _edge(1, 1, root / (1 + root), one, v, c)
    # For c < 1, the difference r - m is largest at the peak. There is a gap if it exceeds one there.
    is_few = c < 1
    few = jnp.where(is_few, c, 0.5)
    closing = (1 - jnp.cbrt(few)) ** 3
    has_gap = is_few & (v < closing)
    peak = jnp.sqrt((jnp.cbrt(few) ** 2 - few) / v)
    left = _edge(1, -1, jnp.where(is_few, jnp.maximum(1.0, peak), 1.0), 1 + 1 / jnp.sqrt(v), v, c)
    is_inside = is_few & (peak > right) & (peak < left)
    split = stop_gradient(jnp.where(is_inside, peak, jnp.sqrt(right * left)))
    # Without a gap these edges do not exist. Compute the edges of another law instead, whose values are not used.
    own_v = jnp.where(has_gap, v, closing / 2)
    own_peak = jnp.sqrt((jnp.cbrt(few) ** 2 - few) / own_v)
    first = _edge(-1, 1, jnp.sqrt(few) / (1 - jnp.sqrt(few)), own_peak, own_v, few)
    second = _edge(-1, 1, own_peak, 1 / jnp.sqrt(own_v), own_v, few)
    return _Edges(right, jnp.where(has_gap, first, split), jnp.where(has_gap, second, split), left, has_gap)


def _checked(v: Number, c: Number) -> tuple[Array, Array, Array]:
    """Return the parameters, replaced if they are not positive, and zero or NaN to add to results."""
    v, c = jnp.broadcast_arrays(jnp.asarray(v, float), jnp.asarray(c, float))
    is_law = (v > 0) & (c > 0) & jnp.isfinite(v) & jnp.isfinite(c)
    return jnp.where(is_law, v, 1.0), jnp.where(is_law, c, 1.0), jnp.where(is_law, 0.0, jnp.nan)


def _nodes(v: Number, c: Number, rule: _Rule = _RULE) -> _Nodes:
    """Return quadrature nodes along the first axis. They are NaN unless v > 0 and c > 0."""
    v, c, nan = _checked(v, c)
    edges = _edges(v, c)
    parts = [rule.between(*ends) for ends in ((edges.right, edges.first), (edges.second, edges.left))]
    m, weights = (jnp.concatenate(each) for each in zip(*parts, strict=True))
    r, height, x = _radius(m, v, c), _height(m, v, c) + nan, _position(m, v, c)
    # The real part of g, and the potential Re[x g - 1 - log g - v g^2 / 2 + c log(1 - g)].
    real = (1 + r**2 - m**2) / 2
    potential = x * real - 1 - jnp.log(r) - v * (real**2 - height**2) / 2 + c * jnp.log(m)
    return _Nodes(x, height / jnp.pi * _speed(m, v, c) * weights, height / jnp.pi, potential)


def _is_zero(number: Any) -> bool:
    return isinstance(number, (int, float)) and number == 0


def spectral_average(
    function: Callable[[Array], Number], v: Number, c: Number, i: int = 0, j: int = 0, side: Number = 0
) -> Array:
    """Return the mean of `function` over the law, or its derivative of order i in v and j in c.

    If v or c is the number 0, the law is free Poisson or semicircle. `side` times a bound on the quadrature error is
    added.
    """

    def mean(v: Array, c: Array, rule: _Rule) -> Array:
        if is_free_poisson:
            c = jnp.where(c > 0, c, jnp.nan)
            below, _, weights = rule.shaped(c)
            # x = 1 + c - 2 sqrt(c) cos(angle), without cancellation at a lower edge close to zero.
            x = (1 - jnp.sqrt(c)) ** 2 + 4 * jnp.sqrt(c) * np.sin(np.pi * below / 2) ** 2
            masses = 2 * c * np.sin(np.pi * below) ** 2 / x * weights
            atom = jnp.maximum(0.0, 1 - c)[None]
            # Without its mass, the atom is moved into the support, because functions may have a pole at zero.
            place = jnp.where(atom > 0, 0.0, c)
            positions, masses = jnp.concatenate([x, place]), jnp.concatenate([masses, atom])
        elif is_semicircle:
            v = jnp.where(v > 0, v, jnp.nan)
            below, _, weights = rule.shaped(v)
            positions = 2 * jnp.sqrt(v) * np.cos(np.pi * below)
            masses = jnp.ones_like(v) * 2 * np.sin(np.pi * below) ** 2 * weights
        else:
            positions, masses, *_ = _nodes(v, c, rule)
        values = function(positions) * jnp.ones_like(positions)
        return jnp.sum(masses * values, axis=0)

    is_free_poisson, is_semicircle = _is_zero(v), _is_zero(c)
    v, c = jnp.broadcast_arrays(jnp.asarray(v, float), jnp.asarray(c, float))
    value = slope_of_orders(lambda v, c: mean(v, c, _RULE), (i, j))(v, c)
    if _is_zero(side):
        return value
    finer = slope_of_orders(lambda v, c: mean(v, c, _FINER_RULE), (i, j))(v, c)
    return value + side * stop_gradient(2 * jnp.abs(value - finer) + _ROUNDING * jnp.abs(value))


def cube_of_density(v: Number, c: Number, i: int = 0, j: int = 0) -> Array:
    """Return the integral of the cube of the density, or its derivative of order i in v and j in c."""

    def value(v: Array, c: Array) -> Array:
        nodes = _nodes(v, c)
        return jnp.sum(nodes.masses * nodes.density**2, axis=0)

    return slope_of_orders(value, (i, j))(*jnp.broadcast_arrays(v, c))


def log_energy(v: Number, c: Number, j: int = 0) -> Array:
    """Return the mean of log|x - y| over pairs of independent eigenvalues, or its derivative of order j in c."""

    def value(v: Array, c: Array) -> Array:
        nodes = _nodes(v, c)
        return jnp.sum(nodes.masses * nodes.potential, axis=0)

    return slope_of_orders(value, (0, j))(*jnp.broadcast_arrays(v, c))


def spectral_density(x: Number, v: Number, c: Number, i: int = 0, j: int = 0, k: int = 0) -> Array:
    """Return the density at x, zero outside the support, or its derivative of order i, j and k in x, v and c."""

    def value(x: Array, v: Array, c: Array) -> Array:
        v, c, nan = _checked(v, c)
        edges = _edges(v, c)
        # x falls as m grows. The upper part of the support is between `right` and `first`, the lower part between
        # `second` and `left`.
        upper, lower = _position(edges.first, v, c), _position(edges.second, v, c)
        is_upper = x >= jnp.where(edges.has_gap, (upper + lower) / 2, upper)
        low, high = jnp.where(is_upper, edges.right, edges.second), jnp.where(is_upper, edges.first, edges.left)
        inside = (x < _position(low, v, c)) & (x > _position(high, v, c))
        inside |= (x == upper) & ~edges.has_gap
        # Outside the support, solve at a point inside and discard the result, so that no derivative is NaN.
        here = jnp.where(inside, x, _position(stop_gradient(jnp.sqrt(low * high)), v, c))
        m = _root(
            lambda m, x, v, c: _position(m, v, c) - x, lambda m, x, v, c: -_speed(m, v, c) / m, low, high, here, v, c
        )
        return jnp.where(inside, _height(m, v, c) / jnp.pi, 0.0) + nan

    return slope_of_orders(value, (i, j, k))(*jnp.broadcast_arrays(*(jnp.asarray(each, float) for each in (x, v, c))))


def stieltjes_transform(z: Number, v: Number, c: Number) -> Array:
    """Return the mean of 1 / (z - x) for a real z outside the support, and NaN inside."""
    if _is_zero(v):
        # Without a semicircle the equation is quadratic: z g^2 - (z + 1 - c) g + 1 = 0.
        b = z + 1 - c
        square = jnp.where(jnp.asarray(c, float) > 0, b**2 - 4 * z, jnp.nan)
        root = jnp.sqrt(jnp.where(square > 0, square, jnp.nan))
        signed = jnp.where(z > (1 + jnp.sqrt(c)) ** 2, root, -root)
        return jnp.where(b * signed > 0, 2 / (b + signed), (b - signed) / (2 * z))
    if _is_zero(c):
        # Without a free Poisson law it is v g^2 - z g + 1 = 0.
        square = jnp.where(jnp.asarray(v, float) > 0, z**2 - 4 * v, jnp.nan)
        return 2 / (z + jnp.sign(z) * jnp.sqrt(jnp.where(square > 0, square, jnp.nan)))
    z, v, c = jnp.broadcast_arrays(*(jnp.asarray(each, float) for each in (z, v, c)))
    v, c, nan = _checked(v, c)
    edges = _edges(v, c)
    right, first, second, left = (_position(m, v, c) for m in edges[:4])
    is_right, is_left, is_between = z > right, z < left, edges.has_gap & (z < first) & (z > second)
    is_outside = is_right | is_left | is_between
    z = jnp.where(is_outside, z, 2 * right + 1)
    # On each part, x(g) is monotone between infinity and an edge, or between two edges.
    low = jnp.where(is_left, -1 / jnp.maximum(c - z, 1e-300), jnp.where(is_between, 1 + edges.first, 1 / jnp.abs(z)))
    high = jnp.where(is_left, 1 - edges.left, jnp.where(is_between, 1 + edges.second, 1 - edges.right))
    g = _root(
        lambda g, z, v, c: 1 / g + v * g + c / (1 - g) - z,
        lambda g, z, v, c: -1 / g**2 + v + c / (1 - g) ** 2,
        low,
        high,
        z,
        v,
        c,
    )
    return jnp.where(is_outside, g, jnp.nan) + nan


def log_potential(z: Number, v: Number, c: Number) -> Array:
    """Return the mean of log|z - x| for a real z outside the support, and NaN inside."""
    g = stieltjes_transform(z, v, c)
    return z * g - 1 - jnp.log(jnp.abs(g)) - v * g**2 / 2 + c * jnp.log(jnp.abs(1 - g))
