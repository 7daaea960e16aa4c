"""Compute means over a standard normal number in JAX, by fixed, piecewise and adaptive quadrature rules.

All rules are sums of integrand values at points that depend differentiably on the parameters, because pieces end where
the integrand has a kink or a jump. By Leibniz' rule, automatic derivatives of the sums are then derivatives of the
mean, even if a jump moves. This holds for any order, in forward and reverse mode.

The integrand acts elementwise. For a batch, every element has separate points.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.lax import stop_gradient
from jaxtyping import Array

Function = Callable[[Array], Array]
# A function whose zeros are needed: a callable, or coefficients of a polynomial of degree one or two, constant first.
Zeros = Sequence[Any] | Function
# Exponential factor of the integrand: its exponent a + b z + c z^2, and the numbers b and c.
Tilt = tuple[Function, Any, Any]

# Edges of the first panels in standard deviations, on both sides. Above 38 the density underflows in float64. No edge
# is a round number, because positions of kinks often are. A kink at an edge would make a panel of zero width, which has
# one of the two boundary terms of the derivative with respect to the position of the kink.
_GRID = np.array([0.7931, 2.2093, 4.0317, 6.5241, 10.573, 17.091, 26.947, 38.0])
# Order of the rule on a panel, for the adaptive rule and for the rule that checks it.
_ORDERS = (16, 20)
# Scale of the grid for both rules, so that they share no points.
_SCALES = (1.0, 0.93)
# Number of panels that are split per step.
_SPLITS_AT_ONCE = 8
# Largest number of splits, which sets the size of arrays.
_MOST_SPLITS = 128
# Largest number of steps.
_MOST_STEPS = 64
# The sum covers the panels of this many splits at little cost, and all panels only if there are more.
_FEW_SPLITS = 8
# At a singularity r^p each panel is this fraction of the previous one. At p = -1/2 order 16 is then exact to 1e-11.
_GRADING = 1 / 8
# Largest number of roots of a function that is not a polynomial.
_MOST_ROOTS = 64
# Number of points between which roots are searched for.
_SEARCH = 4097
# Largest absolute value of these points in standard deviations. Beyond it, the density is below rounding.
_SEARCHED = 9.0
# Position of a root that does not exist, far beyond all panels.
_NOWHERE = 1e30
# A mean absolute value below this underflows.
_NOTHING = 1e-100
# Width of the shortest panels in rounding errors. It keeps nodes apart from the edges, which may be singularities.
_SHORTEST = 1200


@cache
def _gauss_hermite(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for a standard normal mean, without weights that are zero in float64."""
    points, weights = scipy.special.roots_hermitenorm(nodes)
    kept = weights > 0
    return points[kept], weights[kept] / np.sqrt(2 * np.pi)


@cache
def gauss_legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for integrals from 0 to 1."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return (points + 1) / 2, weights / 2


class _Weighted(NamedTuple):
    """The integrand times the density, in a variable y that is as close to standard normal as possible.

    With a factor exp(a + b z + c z^2), c < 1/2, we substitute z = mean + deviation y with a standard normal y.
    """

    function: Function
    exponent: Function
    is_normal: Array
    mean: Array
    deviation: Array
    shape: tuple[int, ...]

    @classmethod
    def of(cls, function: Function, tilt: Tilt | None, zeros: Sequence[Zeros]) -> "_Weighted":
        """Make the weighted integrand. The numbers in `zeros` may have the shape of the batch, like the integrand."""
        origin = jnp.zeros(())
        exponent, slope, curvature = tilt or (jnp.zeros_like, origin, origin)
        numbers = [exponent(origin), slope, curvature, *(n for each in zeros if not callable(each) for n in each)]
        values = [jax.eval_shape(function, origin), *map(jnp.asarray, numbers)]
        shape, dtype = jnp.broadcast_shapes(*(each.shape for each in values)), jnp.result_type(*values)
        narrowing = 1 - 2 * jnp.asarray(curvature, dtype)
        is_normal = narrowing > 0
        narrowing = jnp.where(is_normal, narrowing, 1.0)
        mean = jnp.where(is_normal, slope / narrowing, 0.0)
        return cls(function, exponent, is_normal, mean, 1 / jnp.sqrt(narrowing), shape)

    def z(self, y: Array) -> Array:
        return self.mean + self.deviation * y

    def y(self, z: Array, reach: float) -> Array:
        return jnp.clip((z - self.mean) / self.deviation, -reach, reach)

    def log_density(self, y: Array) -> Array:
        """Return the log density in y, without `factor` and 1/sqrt(2 pi)."""
        normal = -(y**2) / 2
        return jnp.where(self.is_normal, normal, self.exponent(y) + normal)

    def factor(self) -> Array:
        # The exponent is most accurate at the mean.
        return jnp.where(self.is_normal, jnp.exp(self.exponent(self.mean) - self.mean**2 / 2) * self.deviation, 1.0)

    def values(self, y: Array) -> Array:
        """Return the integrand without the density."""
        return jnp.broadcast_to(self.function(self.z(y)), y.shape)

    def integrals(self, left: Array, right: Array, order: int, used: Any = True, safe: Any = 0.0) -> Array:
        """Integrate over the `used` panels. The integrand of other panels is evaluated at a `safe` point."""
        points, steps = _points(left, right, order)
        used = jnp.broadcast_to(used, points.shape)
        points = jnp.where(used, points, safe)
        # Panels and nodes stay separate axes, because XLA does not vectorise loops over flattened ones.
        terms = steps * jnp.exp(self.log_density(points)) * self.values(points)
        return jnp.sum(jnp.where(used, terms, 0.0), (0, 1))


def gaussian_mean(function: Function, nodes: int, kinks: Sequence[Zeros] = (), tilt: Tilt | None = None) -> Array:
    """Average `function` times exp of `tilt` over a standard normal number, with `nodes` nodes.

    The rule is a Gauss-Hermite sum. If there are `kinks`, the rule is a Gauss-Legendre sum between each two of their
    roots.
    """
    if not kinks and tilt is None:
        points, weights = _gauss_hermite(nodes)
        return jnp.tensordot(weights, jax.vmap(function)(points), 1)
    of = _Weighted.of(function, tilt, kinks)
    if not kinks:
        points, weights = (_column(each, of.shape) for each in _gauss_hermite(nodes))
        points = jnp.broadcast_to(points, (len(points), *of.shape))
        return of.factor() * jnp.sum(weights * jnp.exp(of.log_density(points) + points**2 / 2) * of.values(points), 0)
    # Cut off where the density is about as small as the error of the rule on a piece.
    reach = min(float(np.sqrt(2 * nodes)), _GRID[-1])
    end = jnp.full((1, *of.shape), reach)
    edges = jnp.concatenate([jnp.sort(jnp.concatenate([-end, of.y(_all_roots(kinks, of)[0], reach)]), axis=0), end])
    return of.factor() / np.sqrt(2 * np.pi) * of.integrals(edges[:-1], edges[1:], nodes)


def adaptive_gaussian_mean(
    function: Function, side: Any, kinks: Sequence[Zeros] = (), features: Sequence[Zeros] = (), tilt: Tilt | None = None
) -> Array:
    """Average `function` times exp of `tilt` over a standard normal number, on adaptively split panels.

    The first panels end at the roots of `kinks`, and are short near the roots of `features`. A `side` of 1 or -1
    selects another order and grid, and adds or subtracts an error bound, which is infinite if the mean may not exist.
    """
    of = _Weighted.of(function, tilt, (*kinks, *features))
    checks = not (isinstance(side, int) and side == 0)
    order, grid = _ORDERS[checks], _GRID * _SCALES[checks]
    roots, missed = _all_roots(kinks, of)
    # The first edges of panels, in ascending order, and a mask of the edges that are kinks.
    reach = grid[-1]
    fixed = jnp.broadcast_to(_column(np.union1d(-grid, grid), of.shape), (2 * len(grid), *of.shape))
    ends = [of.y(roots, reach), fixed]
    for feature in features:
        # Edges around points where the function a + b z + c z^2 may vary rapidly, or the end without points.
        a, b, *higher = (jnp.broadcast_to(jnp.asarray(each, float), of.shape) for each in feature)
        c = higher[0] if higher else jnp.zeros_like(a)
        discriminant = b**2 - 4 * a * c
        scale = 1 / jnp.sqrt(jnp.abs(discriminant))
        places = [(root, scale) for root in _polynomial_roots(feature, of.shape)]
        if higher:
            width = jnp.minimum(1 / jnp.sqrt(jnp.abs(c)), jnp.sqrt(jnp.abs(discriminant)) / jnp.abs(2 * c))
            places.append((-b / (2 * c), width))
        near = [
            jnp.where((width < of.deviation) & jnp.isfinite(centre), of.y(centre + steps * width, reach), reach)
            for centre, width in places
            for steps in (-30, -3, 3, 30)
        ]
        ends.append(stop_gradient(jnp.stack(near)))
    ends = jnp.concatenate(ends)
    are_kinks = (jnp.abs(ends) < reach) & _column(np.arange(len(ends)) < len(roots), of.shape)
    if len(ends) > len(fixed):
        by_place = jnp.argsort(stop_gradient(ends), axis=0)
        ends, are_kinks = _taken(ends, by_place), _taken(are_kinks, by_place)
    # Choose the panels from values without derivatives, so that derivatives do not pass through the choice.
    choose, constants = jax.closure_convert(lambda ends: _chosen_panels(of, order, ends, are_kinks), ends)
    panels, error, safe = choose(stop_gradient(ends), *map(stop_gradient, constants))
    is_panel = panels.depth >= 0
    used = is_panel & (panels.lost == 0)

    def moving(at: Array, index: Array) -> Array:
        """Make edges of panels move with the first edge to which they belong."""
        first = _taken(ends, jnp.maximum(index, 0).astype(int))
        return jnp.where(index >= 0, at + (first - stop_gradient(first)), at)

    def total(most: int) -> Array:
        left, right, left_index, right_index = (each[:most] for each in panels[:4])
        edges = moving(left, left_index), moving(right, right_index)
        return of.integrals(*edges, order, used[:most, None], safe)

    few = len(ends) - 1 + _FEW_SPLITS
    is_short = jnp.all(jnp.sum(is_panel, axis=0) <= few)
    found = jax.lax.cond(is_short, lambda: total(few), lambda: total(len(used)))
    normalised = of.factor() / np.sqrt(2 * np.pi)
    value = normalised * found
    if not checks:
        return value
    error = jnp.where(missed, jnp.inf, error) * jnp.abs(stop_gradient(normalised))
    return value + side * stop_gradient(jnp.where(jnp.isnan(error), jnp.inf, error))


def adaptive_gaussian_means(*means: tuple) -> Sequence[Array] | Array:
    """Return `adaptive_gaussian_mean` of several tuples of arguments without a tilt.

    If all zeros are given by polynomials, a loop over the means lets XLA compile the rule once. That takes seconds.
    """
    side = means[0][1]
    kinks, features = ([each[i] if len(each) > i else () for each in means] for i in (2, 3))
    zeros = [zero for group in (*kinks, *features) for zero in group]
    if any(map(callable, zeros)) or any(each[1] is not side for each in means):
        return [adaptive_gaussian_mean(*each) for each in means]
    shapes = [jax.eval_shape(each[0], jnp.zeros(())).shape for each in means]
    shape = jnp.broadcast_shapes(*shapes, *(jnp.shape(number) for zero in zeros for number in zero))

    def stacked(groups: Sequence[Sequence[Zeros]]) -> list[list[Array]]:
        """Stack coefficients over the means. The constant 1, which has no roots, fills up shorter groups."""
        return [
            [
                jnp.stack([jnp.broadcast_to(jnp.asarray(number, float), shape) for number in numbers])
                for numbers in zip_longest(*zeros, fillvalue=0.0)
            ]
            for zeros in zip_longest(*groups, fillvalue=(1.0, 0.0))
        ]

    def filled(function: Function, z: Array) -> Array:
        return jnp.broadcast_to(jnp.asarray(function(z), float), jnp.broadcast_shapes(z.shape, shape))

    functions, kinks, features = [partial(filled, each[0]) for each in means], stacked(kinks), stacked(features)

    def mean(i: Array) -> Array:
        of_mean = ([[number[i] for number in zero] for zero in group] for group in (kinks, features))
        return adaptive_gaussian_mean(lambda z: jax.lax.switch(i, functions, z), side, *of_mean)

    return jax.lax.map(mean, jnp.arange(len(means)))


def _column(array: Any, shape: tuple[int, ...]) -> Array:
    return jnp.asarray(array).reshape(-1, *(1 for _ in shape))


def _points(left: Array, right: Array, order: int) -> tuple[Array, Array]:
    """Return nodes and weights in panels, along the second axis."""
    nodes, weights = (_column(each, left.shape[1:])[None] for each in gauss_legendre(order))
    width = (right - left)[:, None]
    return left[:, None] + width * nodes, width * weights


def _polynomial_roots(polynomial: Sequence[Any], shape: tuple[int, ...]) -> list[Array]:
    """Return the real roots of a + b z or a + b z + c z^2, or a distant point if there are none."""
    a, b, *higher = (jnp.broadcast_to(jnp.asarray(each, float), shape) for each in polynomial)
    if not higher:
        return [_quotient(-a, b)]
    (c,) = higher
    discriminant = b**2 - 4 * a * c
    is_real = discriminant > 0
    # This form avoids differences of nearly equal numbers for both roots.
    large = -(b + jnp.where(b < 0, -1.0, 1.0) * jnp.sqrt(jnp.where(is_real, discriminant, 1.0))) / 2
    return [jnp.where(is_real, root, _NOWHERE) for root in (_quotient(large, c), _quotient(a, large))]


def _quotient(over: Array, under: Array) -> Array:
    # The derivative with respect to a vanishing slope would be infinity times zero.
    is_near = (jnp.abs(over) < 1e9 * jnp.abs(under)) & (jnp.abs(under) > 1e-100)
    return jnp.where(is_near, over / jnp.where(is_near, under, 1.0), _NOWHERE)


def _all_roots(kinks: Sequence[Zeros], of: _Weighted) -> tuple[Array, Array]:
    """Return the roots of all functions, and whether roots may be missing."""
    found, missed = [jnp.zeros((0, *of.shape))], jnp.zeros(of.shape, bool)
    for kink in kinks:
        if callable(kink):
            roots, more = _located_roots(kink, of)
            found, missed = [*found, roots], missed | more
        else:
            found.append(jnp.stack(_polynomial_roots(kink, of.shape)))
    return jnp.concatenate(found), missed


def _located_roots(function: Function, of: _Weighted) -> tuple[Array, Array]:
    """Find sign changes of a function by bisection, and report whether there are too many or they are too close."""

    def bisected(y: Array) -> tuple[Array, Array]:
        y = jnp.broadcast_to(_column(y, of.shape), (len(y), *of.shape))

        def signs(y: Array) -> Array:
            return of._replace(function=function).values(y) > 0

        positive = signs(y)
        changes, coarse = positive[1:] != positive[:-1], positive[4::4] != positive[:-4:4]
        count = jnp.sum(changes, axis=0)
        missed = (count > _MOST_ROOTS) | (count != jnp.sum(coarse, axis=0))
        first = jnp.argsort(~changes, axis=0, stable=True)[:_MOST_ROOTS]
        is_root = _taken(changes, first)
        left, right = (_taken(each, first) for each in (y[:-1], y[1:]))
        below = _taken(positive[:-1], first)

        def halve(_, ends):
            left, right = ends
            middle = (left + right) / 2
            is_left = signs(middle) == below
            return jnp.where(is_left, middle, left), jnp.where(is_left, right, middle)

        left, right = jax.lax.fori_loop(0, 60, halve, (left, right))
        return jnp.where(is_root, jnp.broadcast_to(of.z((left + right) / 2), left.shape), _NOWHERE), missed

    locate, constants = jax.closure_convert(bisected, jnp.linspace(-1.0, 1.0, _SEARCH))
    at, missed = locate(jnp.linspace(-_SEARCHED, _SEARCHED, _SEARCH), *map(stop_gradient, constants))
    at = stop_gradient(at)
    for _ in range(2):
        # If k derivatives of a root are correct, 2k + 1 are correct after a Newton step: here 0, then 1, then 3.
        value, slope = jax.jvp(function, (at,), (jnp.ones_like(at),))
        value, slope = jnp.broadcast_to(value, at.shape), jnp.broadcast_to(slope, at.shape)
        is_smooth = jnp.isfinite(value) & jnp.isfinite(slope) & (slope != 0) & (jnp.abs(at) < _NOWHERE)
        at = at - jnp.where(is_smooth, value / jnp.where(is_smooth, slope, 1.0), 0.0)
    return at, missed


class _Panels(NamedTuple):
    """Panels of an integral, along the first axis of each array.

    - `left`, `right`: edges of a panel.
    - `left_index`, `right_index`: index of the first edge with which an edge moves, or -1.
    - `left_kink`, `right_kink`: 1 if the edge is a kink.
    - `between`: point at which the panel is split.
    - `value`, `size`, `lost`: integral of the integrand, integral of its absolute value, and a bound on the part that
      is not finite.
    - `first`, `first_size`, `first_lost`: these integrals over the first part of a split.
    - `second`, `second_size`, `second_lost`: these integrals over the second part.
    - `rate`: change of the logarithm of `difference` per split.
    - `depth`: number of splits, or -1 for an empty slot.
    """

    left: Array
    right: Array
    left_index: Array
    right_index: Array
    left_kink: Array
    right_kink: Array
    between: Array
    value: Array
    size: Array
    lost: Array
    first: Array
    first_size: Array
    first_lost: Array
    second: Array
    second_size: Array
    second_lost: Array
    rate: Array
    depth: Array

    @property
    def difference(self) -> Array:
        return jnp.abs(self.value - self.first - self.second)


# Index of the first integral among the fields.
_WHOLE = _Panels._fields.index("value")


def _chosen_panels(of: _Weighted, order: int, ends: Array, are_kinks: Array) -> tuple[_Panels, Array, Array]:
    """Split the panels between `ends` until the sum over each panel agrees with the sum over its parts.

    Returns the panels, an error bound, and a point at which the integrand is finite. Every step sorts the panels:
    first those to split, by falling difference, then the others, then empty slots, which receive the second parts.
    """
    dtype, epsilon = ends.dtype, float(jnp.finfo(ends.dtype).eps)
    largest = float(np.log(np.finfo(dtype).max)) - 1
    nodes, weights = gauss_legendre(order)

    def sums(left: Array, right: Array, more: Array | None = None) -> tuple[Array, Array]:
        """Return `value`, `size` and `lost` of panels, and the absolute weighted integrand at four more points."""
        count, (points, _) = len(left), _points(left, right, order)
        if more is not None:
            # One row of nodes more, so that XLA compiles the integrand once.
            points = jnp.concatenate([points, jnp.resize(more, (1, *points.shape[1:]))])
        log_density = of.log_density(points)
        # The barrier makes XLA compute the terms once instead of again in every sum.
        terms = jax.lax.optimization_barrier(of.values(points) * jnp.exp(log_density))
        panels, width = terms[:count], right - left
        is_finite = jnp.isfinite(panels)
        panels = jnp.where(is_finite, panels, 0.0)
        value, size = width * jnp.tensordot(weights, jnp.stack([panels, jnp.abs(panels)]), ([0], [2]))
        # A value that overflows is at least as large as the largest number.
        bound = jnp.max(jnp.minimum(log_density[:count] + largest, largest), axis=1)
        lost = jnp.where(jnp.all(is_finite, axis=1), 0.0, width * jnp.exp(bound) + size + 1e-300)
        return jnp.stack([value, size, lost]), jnp.abs(terms[count:, :4])

    def middle(left: Array, right: Array, is_left: Array, is_right: Array) -> Array:
        part = jnp.where(is_left == is_right, 1 / 2, jnp.where(is_left > 0, _GRADING, 1 - _GRADING))
        return left + part * (right - left)

    def gains_of(panels: Array) -> Array:
        """Return the differences that splits can reduce, 0 if they are small, and -1 for empty slots."""
        each = _Panels(*panels)
        floor = epsilon * (4 * each.size + jnp.sum(each.size, axis=0) / 8)
        step = _SHORTEST * epsilon * jnp.maximum(jnp.abs(each.left), jnp.abs(each.right))
        can_split = jnp.minimum(each.between - each.left, each.right - each.between) > step
        gains = jnp.where((each.difference > floor) & can_split, each.difference, 0.0)
        return jnp.where(each.depth < 0, -1.0, gains)

    def goes_on(carried) -> Array:
        steps, panels = carried
        gains = gains_of(panels)
        return jnp.any((jnp.max(gains, axis=0) > 0) & (jnp.min(gains, axis=0) < 0)) & (steps < _MOST_STEPS)

    def split(carried):
        steps, panels = carried
        gains = gains_of(panels)
        by_gain = jnp.argsort(-gains, axis=0)
        gains, panels = _taken(gains, by_gain), _taken(panels, by_gain[None], axis=1)
        few = _SPLITS_AT_ONCE
        old, empty = _Panels(*panels[:, :few]), panels[:, -few:]
        no_kink = jnp.zeros_like(old.left)
        # An edge near a singularity moves with it, so that a function of their distance has no derivative there.
        nearer = jnp.where(old.left_kink > old.right_kink, old.left_index, old.right_index)
        belongs = (old.left_kink != old.right_kink) | (old.left_index == old.right_index)
        index = jnp.where(belongs, nearer, -1.0)
        first = [old.left, old.between, old.left_index, index, old.left_kink, no_kink]
        second = [old.between, old.right, index, old.right_index, no_kink, old.right_kink]
        edges = jnp.concatenate([jnp.stack(first), jnp.stack(second)], axis=1)
        between = middle(edges[0], edges[1], edges[4], edges[5])
        parts, _ = sums(jnp.concatenate([edges[0], between]), jnp.concatenate([between, edges[1]]))
        wholes = jnp.concatenate([panels[_WHOLE + 3 : _WHOLE + 6, :few], panels[_WHOLE + 6 : _WHOLE + 9, :few]], axis=1)
        parent, rate, depth = (jnp.concatenate([each, each]) for each in (old.difference, old.rate, old.depth))
        new = _Panels(*edges, between, *wholes, *parts[:, : 2 * few], *parts[:, 2 * few :], rate, depth + 1)
        fall = jnp.log(new.difference + 1e-300) - jnp.log(parent + 1e-300)
        new = jnp.stack(new._replace(rate=jnp.where(depth == 0, fall, 0.75 * rate + 0.25 * fall)))
        is_split = (gains[:few] > 0) & (gains[-few:] < 0)
        first = jnp.where(is_split, new[:, :few], panels[:, :few])
        second = jnp.where(is_split, new[:, few:], empty)
        return steps + 1, jnp.concatenate([first, panels[:, few:-few], second], axis=1)

    number = len(ends) - 1
    index = jnp.broadcast_to(_column(np.arange(number + 1.0), of.shape), ends.shape).astype(dtype)
    kinks = are_kinks.astype(dtype)
    left, right = ends[:-1], ends[1:]
    between = middle(left, right, kinks[:-1], kinks[1:])
    tails = jnp.stack([0.97 * ends[0], 0.97 * ends[-1], ends[0], ends[-1]])
    found, at_ends = sums(jnp.concatenate([left, left, between]), jnp.concatenate([right, between, right]), tails)
    parts = [each for i in range(3) for each in found[:, i * number : (i + 1) * number]]
    zeros = jnp.zeros_like(left)
    panels = jnp.stack([left, right, index[:-1], index[1:], kinks[:-1], kinks[1:], between, *parts, zeros, zeros])
    empty = jnp.zeros((len(panels), _MOST_SPLITS, *of.shape), dtype).at[-1].set(-1)
    _, panels = jax.lax.while_loop(goes_on, split, (0, jnp.concatenate([panels, empty], axis=1)))
    # Move empty slots to the end.
    panels = _taken(panels, jnp.argsort(-panels[-1], axis=0)[None], axis=1)
    chosen = _Panels(*panels)
    size = jnp.sum(chosen.size, axis=0)
    # Sum the differences between panels and their parts, continued as a geometric series at a singularity. There the
    # difference d falls by a factor r from panel to panel, so the remaining differences sum to d / (1 - r). If it does
    # not fall, the mean is infinite.
    difference = chosen.difference
    is_small = difference <= epsilon * (4 * chosen.size + 32 * size)
    falls = chosen.rate < -0.02
    series = difference / -jnp.expm1(jnp.where(falls, chosen.rate, -1.0))
    unresolved = difference + chosen.size
    endless = jnp.where(chosen.depth >= 8, jnp.inf, unresolved)
    coarse = jnp.where(difference > chosen.size / 10, unresolved, 0.0)
    rough = jnp.where(chosen.depth == 0, difference, jnp.where(falls, series, endless))
    each = jnp.where(is_small, difference, jnp.maximum(rough, coarse))
    error = jnp.sum(each + chosen.lost, axis=0) + 8 * epsilon * size
    # Bound the part beyond the outermost edges, assuming that the integrand keeps decaying at the same rate.
    inner, outer = at_ends[0, :2], at_ends[0, 2:]
    decay = (jnp.log(inner) - jnp.log(outer)) / (0.03 * ends[-1])
    tail = jnp.where(decay > 0, outer / decay, jnp.inf)
    error = error + jnp.sum(jnp.where((outer > _NOTHING) & jnp.isfinite(outer), tail, 0.0), axis=0)
    # Use the first node of the largest panel as the safe point.
    best = jnp.argmax(jnp.where(chosen.lost == 0, chosen.size, -1.0), axis=0)[None]
    low, high = (_taken(each, best)[0] for each in (chosen.left, chosen.right))
    # If the error is above a quarter of the mean absolute value, no digit is valid, unless both underflow.
    error = jnp.where((error > size / 4) & (error > _NOTHING), jnp.inf, error)
    return chosen, error, low + (high - low) * nodes[0]


def _taken(array: Array, index: Array, axis: int = 0) -> Array:
    return jnp.take_along_axis(array, index, axis=axis, mode="promise_in_bounds")
