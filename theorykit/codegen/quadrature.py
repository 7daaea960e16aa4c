"""Compute means over a standard normal number in JAX: by Gauss rules, and by a composite rule with an error bound.

Panels end at kinks and jumps of the integrand, so its points depend differentiably on the parameters. By Leibniz' rule,
automatic derivatives of the sums are then derivatives of the mean, of any order, even if a jump moves. No rule refines
itself in compiled code. The integrand acts elementwise. For a batch, every element has separate points.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.lax import stop_gradient
from jaxtyping import Array

Function = Callable[[Array], Array]
# A function whose zeros are needed: a callable, or coefficients of a polynomial of degree one or two, constant first.
Zeros = Sequence[Any] | Function

# Edges of panels in standard deviations, on both sides. Above 38 the density underflows in float64. No edge is a round
# number, because positions of kinks often are: derivatives by a kink at an edge that stays would be wrong.
_GRID = np.array([0.7931, 2.2093, 4.0317, 6.5241, 10.573, 17.091, 26.947, 38.0])
# Number of nodes per panel and largest argument of the hyperbolic sine. The distance of the outer nodes from the ends
# of a panel is then 1e-28 of its width, so a pole of power -1/2 at zero is integrated to 1e-13.
_NODES, _LARGEST = 145, 3.7
# Edges around a place where the integrand may be steep, in units of its width there.
_STEPS = np.array([-100.0, -10.0, -1.0, 1.0, 10.0, 100.0])
# Largest number of roots of a function that is not a polynomial.
_MOST_ROOTS = 64
# Number of points between which roots are searched for, and their largest absolute value in standard deviations.
_SEARCH, _SEARCHED = 4097, 9.0
# Position of a root that does not exist, far beyond all panels.
_NOWHERE = 1e30
# A mean absolute value below this underflows.
_NOTHING = 1e-100
# Number of nodes from which the trapezoidal rule replaces the Gauss-Hermite rule, and panels a Gauss-Legendre rule.
_DENSE, _PER_PANEL = 256, 64
_EPSILON = float(np.finfo(float).eps)
_LOG_LARGEST = float(np.log(np.finfo(float).max)) - 1


@cache
def _gauss_hermite(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for a standard normal mean, without weights that are zero in float64.

    For many nodes, use the trapezoidal rule, whose nodes are closer together (L. N. Trefethen, J. A. C. Weideman,
    SIAM Review 56 (2014) 385). Its range grows with their number, so that a tail beyond it changes the result.
    """
    if nodes >= _DENSE:
        reach = 8 + np.log2(nodes) / 2
        points = np.linspace(-reach, reach, nodes)
        return points, np.exp(-(points**2) / 2) * (points[1] - points[0]) / np.sqrt(2 * np.pi)
    points, weights = scipy.special.roots_hermitenorm(nodes)
    kept = weights > 0
    return points[kept], weights[kept] / np.sqrt(2 * np.pi)


@cache
def _gauss_legendre(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for integrals from -1 to 1. Many nodes, which are eigenvalues, are on panels."""
    if nodes <= _DENSE:
        return np.polynomial.legendre.leggauss(nodes)
    panels = nodes // _PER_PANEL
    points, weights = np.polynomial.legendre.leggauss(_PER_PANEL)
    points = (2 * np.arange(panels)[:, None] + points + 1) / panels - 1
    return points.ravel(), np.tile(weights, panels) / panels


@cache
def _tanh_sinh() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes, their distances from one, and weights for integrals from 0 to 1, by Takahasi and Mori (1974).

    Every second node belongs to the rule with the doubled step, from the first to the last node.
    """
    t = np.linspace(-_LARGEST, _LARGEST, _NODES)
    exponents = np.pi * np.sinh(t)
    below, above = 1 / (1 + np.exp(-exponents)), 1 / (1 + np.exp(exponents))
    return below, above, (t[1] - t[0]) * np.pi * np.cosh(t) * below * above


def _shape_of(function: Function, zeros: Sequence[Zeros]) -> tuple[int, ...]:
    """Return the shape of the batch. The numbers in `zeros` may have it, like the integrand."""
    numbers = [jnp.shape(number) for each in zeros if not callable(each) for number in each]
    return jnp.broadcast_shapes(jax.eval_shape(function, jnp.zeros(())).shape, *numbers)


def _density(z: Array) -> Array:
    return jnp.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)


def gaussian_mean(function: Function, nodes: int, kinks: Sequence[Zeros] = ()) -> Array:
    """Average `function` over a standard normal number, with `nodes` nodes.

    The rule is a Gauss-Hermite sum. If there are `kinks`, the rule is a Gauss-Legendre sum between each two of their
    roots.
    """
    if not kinks:
        points, weights = _gauss_hermite(nodes)
        return jnp.tensordot(weights, jax.vmap(function)(points), 1)
    shape = _shape_of(function, kinks)
    # Cut off where the density is about as small as the error of the rule on a piece.
    reach = min(float(np.sqrt(2 * nodes)), _GRID[-1])
    end = jnp.full((1, *shape), reach)
    roots = jnp.clip(_all_roots(kinks, shape)[0], -reach, reach)
    edges = jnp.sort(jnp.concatenate([-end, roots, end]), axis=0)
    left, width = edges[:-1, None], (edges[1:] - edges[:-1])[:, None]
    points, weights = (_column(each, shape) for each in _gauss_legendre(nodes))
    z = left + width * (points + 1) / 2
    # Panels and nodes stay separate axes, because XLA does not vectorise loops over flattened ones.
    return jnp.sum(width * weights / 2 * _density(z) * jnp.broadcast_to(function(z), z.shape), (0, 1))


def composite_mean(
    function: Function, kinks: Sequence[Zeros] = (), features: Sequence[Zeros] = ()
) -> tuple[Array, Array]:
    """Average `function` over a standard normal number, and bound the error.

    The rule is a tanh-sinh sum on panels that end at the roots of `kinks`. They are short near roots and vertices of
    the polynomials in `features`, where the integrand may be steep. The error is extrapolated from the changes between
    rules with a quarter, a half and all of the nodes, plus bounds on what lies between the last node and a singularity,
    and beyond the last panel. It is infinite if it or the last change exceeds one percent of the mean absolute value,
    or if the mean may not exist.
    """
    shape, reach = _shape_of(function, (*kinks, *features)), _GRID[-1]
    roots, missed = _all_roots(kinks, shape)
    grid = jnp.broadcast_to(_column(np.union1d(-_GRID, _GRID), shape), (2 * len(_GRID), *shape))
    near = [stop_gradient(_around(each, shape, reach)) for each in features]
    edges = jnp.sort(jnp.concatenate([jnp.clip(roots, -reach, reach), grid, *near]), axis=0)
    left, right = edges[:-1, None], edges[1:, None]
    width = right - left
    below, above, weights = (_column(each, shape) for each in _tanh_sinh())
    y = jnp.where(below < above, left + width * below, right - width * above)
    # A node that is rounded to an end may be at a singularity, and has negligible weight. Empty panels keep their
    # nodes: if two kinks coincide, derivatives by their distance are not zero.
    is_end = ((y <= left) | (y >= right)) & (width > 0)
    y = jnp.where(is_end, stop_gradient((left + right) / 2), y)
    values = jnp.broadcast_to(function(y), y.shape)
    is_lost = ~jnp.isfinite(values) & ~is_end
    density = _density(y) * jnp.where(is_end | is_lost, 0.0, values)
    mean = jnp.sum(width * weights * density, (0, 1))

    # The barrier makes XLA compute the integrand once instead of again in every sum.
    y, width, density, is_lost = jax.lax.optimization_barrier(stop_gradient((y, width, density, is_lost)))
    terms = width * weights * density
    sizes = jnp.abs(terms)
    size = jnp.sum(sizes, (0, 1))
    # If the change falls by a factor from one halving of the step to the next, the error falls by at least this factor.
    fine, middle, coarse = (step * jnp.sum(terms[:, ::step], 1) for step in (1, 2, 4))
    change, before = jnp.abs(fine - middle), jnp.abs(middle - coarse)
    falls = 10 * change < before
    changes = change * jnp.where(falls, 10 * change / jnp.where(falls, before, 1.0), 1.0)
    error = jnp.sum(changes, 0) + _beyond(sizes, is_end, size) + 64 * _EPSILON * size
    # A value that overflows is about as large as the largest number.
    overflow = jnp.max(jnp.where(is_lost & (width > 0), -(y**2) / 2, -jnp.inf), (0, 1))
    error = error + 2 * reach * jnp.exp(overflow + _LOG_LARGEST)
    # Beyond the outermost panels, the integrand is assumed to decay at the same rate as before their ends.
    sides, density = jnp.stack([-y, y]), jnp.abs(density)
    outer = jnp.max(jnp.where(sides > 0.99 * reach, density, 0.0), (1, 2))
    is_before = (sides > 0.95 * reach) & (sides < 0.97 * reach) & (density > 0)
    decay = jnp.log(jnp.min(jnp.where(is_before, density, jnp.inf), (1, 2)) / outer) / (0.05 * reach)
    tail = jnp.where(decay > 0, outer / decay, jnp.inf)
    error = error + jnp.sum(jnp.where(outer > _NOTHING, tail, 0.0), 0)
    # Such large changes say nothing about the error.
    is_rough = jnp.maximum(error, jnp.sum(change, 0)) > size / 100
    unresolved = missed | jnp.isnan(error) | (is_rough & (size > _NOTHING))
    return mean, jnp.where(unresolved, jnp.inf, error)


def _beyond(sizes: Array, is_end: Array, size: Array) -> Array:
    """Bound the parts of all panels between their first or last node and the end, by geometric series of the terms."""
    sizes, is_end = (jnp.concatenate([each, each[:, ::-1]]) for each in (sizes, is_end))
    first = jnp.argmin(is_end, axis=1)[:, None]
    last, before = (jnp.take_along_axis(sizes, first + step, axis=1)[:, 0] for step in (0, 4))
    ratio = (last / jnp.where(before > 0, before, 1.0)) ** (1 / 4)
    series = jnp.where(last < before, last * ratio / (1 - ratio), jnp.inf)
    return jnp.sum(jnp.where(last > _EPSILON * size, series, last), 0)


def _around(feature: Sequence[Any], shape: tuple[int, ...], reach: float) -> Array:
    """Return edges around points where a function of a + b z + c z^2 may vary rapidly, or the end without points."""
    a, b, *higher = polynomial = _broadcast(feature, shape)
    c = higher[0] if higher else jnp.zeros_like(a)
    slope = jnp.sqrt(jnp.abs(b**2 - 4 * a * c))
    places = [(root, 1 / slope) for root in _polynomial_roots(*polynomial)]
    if higher:
        places.append((-b / (2 * c), jnp.minimum(1 / jnp.sqrt(jnp.abs(c)), slope / jnp.abs(2 * c))))
    edges = []
    for centre, width in places:
        steps = centre + _column(_STEPS, shape) * width
        edges.append(jnp.where((width < 1) & jnp.isfinite(centre), jnp.clip(steps, -reach, reach), reach))
    return jnp.concatenate(edges)


def _column(array: Any, shape: tuple[int, ...]) -> Array:
    return jnp.asarray(array).reshape(-1, *(1 for _ in shape))


def _broadcast(polynomial: Sequence[Any], shape: tuple[int, ...]) -> list[Array]:
    return [jnp.broadcast_to(jnp.asarray(each, float), shape) for each in polynomial]


def _polynomial_roots(a: Array, b: Array, c: Array | None = None) -> list[Array]:
    """Return the real roots of a + b z or a + b z + c z^2, or a distant point if there are none."""
    if c is None:
        return [_quotient(-a, b)]
    discriminant = b**2 - 4 * a * c
    is_real = discriminant > 0
    # This form avoids differences of nearly equal numbers for both roots.
    large = -(b + jnp.where(b < 0, -1.0, 1.0) * jnp.sqrt(jnp.where(is_real, discriminant, 1.0))) / 2
    return [jnp.where(is_real, root, _NOWHERE) for root in (_quotient(large, c), _quotient(a, large))]


def _quotient(over: Array, under: Array) -> Array:
    # The derivative with respect to a vanishing slope would be infinity times zero.
    is_near = (jnp.abs(over) < 1e9 * jnp.abs(under)) & (jnp.abs(under) > 1e-100)
    return jnp.where(is_near, over / jnp.where(is_near, under, 1.0), _NOWHERE)


def _all_roots(kinks: Sequence[Zeros], shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the roots of all functions, and whether roots may be missing."""
    found, missed = [jnp.zeros((0, *shape))], jnp.zeros(shape, bool)
    for kink in kinks:
        if callable(kink):
            roots, more = _located_roots(kink, shape)
            missed = missed | more
        else:
            roots = jnp.stack(_polynomial_roots(*_broadcast(kink, shape)))
        found.append(roots)
    return jnp.concatenate(found), missed


def _located_roots(function: Function, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Find sign changes of a function by bisection, and report whether there are too many or they are too close."""

    def bisected(grid: Array) -> tuple[Array, Array]:
        def is_positive(y: Array) -> Array:
            return jnp.broadcast_to(function(y), y.shape) > 0

        y = jnp.broadcast_to(_column(grid, shape), (len(grid), *shape))
        positive = is_positive(y)
        changes, coarse = positive[1:] != positive[:-1], positive[4::4] != positive[:-4:4]
        count = jnp.sum(changes, axis=0)
        missed = (count > _MOST_ROOTS) | (count != jnp.sum(coarse, axis=0))
        first = jnp.argsort(~changes, axis=0, stable=True)[:_MOST_ROOTS]
        exists, below, left, right = (
            jnp.take_along_axis(each, first, axis=0) for each in (changes, positive[:-1], y[:-1], y[1:])
        )

        def halve(_, ends):
            middle = (ends[0] + ends[1]) / 2
            is_left = is_positive(middle) == below
            return jnp.where(is_left, middle, ends[0]), jnp.where(is_left, ends[1], middle)

        left, right = jax.lax.fori_loop(0, 60, halve, (left, right))
        return jnp.where(exists, (left + right) / 2, _NOWHERE), missed

    # Search without derivatives, which closed-over values may have.
    grid = jnp.linspace(-_SEARCHED, _SEARCHED, _SEARCH)
    locate, constants = jax.closure_convert(bisected, grid)
    at, missed = locate(grid, *map(stop_gradient, constants))
    at = stop_gradient(at)
    for _ in range(2):
        # If k derivatives of a root are correct, 2k + 1 are correct after a Newton step: here 0, then 1, then 3.
        slopes = jax.jvp(function, (at,), (jnp.ones_like(at),))
        value, slope = (jnp.broadcast_to(each, at.shape) for each in slopes)
        is_smooth = jnp.isfinite(value) & jnp.isfinite(slope) & (slope != 0) & (jnp.abs(at) < _NOWHERE)
        at = at - jnp.where(is_smooth, value / jnp.where(is_smooth, slope, 1.0), 0.0)
    return at, missed
