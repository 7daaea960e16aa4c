"""Compute E[phi(x) phi(y)] for Gaussian pairs with any variances and correlation, by two complementary rules.

Mehler's formula expands phi at each variance in orthonormal Hermite polynomials h_n,

    E[phi(x) phi(y)] = sum_n a_n(v) a_n(w) rho^n,   a_n(v) = E[phi(sqrt(v) z) h_n(z)],

which is symmetric, and costs one multiplication per term and pair. The remainder after N terms is at most |rho|^N times
the square root of the product of both remainders of Parseval's sum. The remainder is not small for |rho| near one if
the function is rough at these variances. Such pairs are integrated over panels in rotated coordinates, x = sqrt(v) (c p
+ s q) and y = sqrt(w) (c p - s q). Here c and s are the cosine and sine of half the angle arccos(rho). Panels in p are
split at every kink of either factor, and panels in q where two kinks cross. Sources: Mehler (1866), and for the
coordinates Genz, Statistics and Computing 14 (2004) 251.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..specification.activations import Activation, apply_to

# Relative error of a pair above which panels replace Mehler's sum.
TOLERANCE = 1e-11
# Number of nodes per panel in single integrals.
NODES = 24
# Number of nodes per panel in double integrals.
PAIR_NODES = 10
# Cutoff of single integrals, which contain sqrt(density), in standard deviations.
REACH = 12.5
# Ratio of the cutoff of double integrals, which contain the density, to REACH. It is about 1 / sqrt(2).
OF_DENSITY = 0.72
# Largest width of a panel in double integrals, in standard deviations.
WIDTH = 3.0
# Position of the nodes of panels with zero width, as a fraction of the range: any point away from kinks.
_ELSEWHERE = 0.0123
# Numbers of tokens, pairs and entries per batch, chosen so that a batch fits in the cache of a CPU.
_TOKENS = 16
_PAIRS = 16
_ENTRIES = 2**14
# Number of terms of Mehler's sum between two writes to memory.
_UNROLLED = 8


@dataclass(frozen=True)
class Rule:
    """A rule that computes averages of a function over a range of variances. `kernel_rules.rule_over` chooses it.

    - `activation`: the function phi.
    - `least`, `most`: the range of variances.
    - `edges`: edges of panels on which phi is smooth.
    - `crossings`: pairs of edges that split the outer integral.
    - `terms`: number of terms of Mehler's sum.
    - `parity`: 1 for an even function, -1 for an odd function, 0 otherwise.
    - `stretch`: width of the integrands relative to the Gaussian density.
    - `uses_panels`: whether panels compute pairs for which Mehler's sum is not accurate enough.
    """

    activation: Activation
    least: float
    most: float
    edges: tuple[float, ...]
    crossings: tuple[tuple[float, float], ...]
    terms: int
    parity: int
    stretch: float
    uses_panels: bool

    @property
    def orders(self) -> np.ndarray:
        """The orders n of the terms of Mehler's sum that the parity allows."""
        return np.arange(self.parity < 0, self.terms, 2 if self.parity else 1).astype(float)


def _panelled(edges: Float[Array, "... edges"], count: int) -> tuple[Array, Array]:
    """Return nodes and weights of Gauss-Legendre quadrature between sorted edges, along the last axis."""
    points, weights = np.polynomial.legendre.leggauss(count)
    left, half = edges[..., :-1, None], (edges[..., 1:] - edges[..., :-1])[..., None] / 2
    # Move the nodes of panels with zero width away from the kink, where the function may be infinite.
    places = jnp.where(half > 0, left + half * (1 + points), _ELSEWHERE * edges[..., -1:, None])
    shape = (*edges.shape[:-1], -1)
    return places.reshape(shape), (half * weights).reshape(shape)


def _sorted_edges(places: Float[Array, "... places"], least: float, most: float, width: float) -> Array:
    grid = np.linspace(least, most, max(1, int(np.ceil((most - least) / width))) + 1)
    grid = jnp.broadcast_to(grid, (*places.shape[:-1], len(grid)))
    return jnp.sort(jnp.concatenate([jnp.clip(places, least, most), grid], axis=-1), axis=-1)


def nodes_of(rule: Rule, variance: Float[Array, " tokens"], nodes: int = NODES) -> tuple[Array, Array]:
    """Return nodes and weights, without the density, for a standard normal z, or for z >= 0 if phi has a parity."""
    edges = np.asarray(rule.edges)
    if rule.parity:
        edges = edges[edges >= 0]
    most = REACH * rule.stretch
    places = edges / jnp.sqrt(variance)[:, None]
    # Resolve the oscillations of the last Hermite polynomial.
    width = min(1.0, 32 / np.sqrt(rule.terms))
    scaled = _sorted_edges(places, 0.0 if rule.parity else -most, most, width)
    points, weights = _panelled(scaled, nodes)
    return points, weights * (2.0 if rule.parity else 1.0)


def moment(rule: Rule, variance: Float[Array, " tokens"], power: int) -> Float[Array, " tokens"]:
    """Return E[phi^power] at each variance."""
    if rule.parity < 0 and power % 2:
        return jnp.zeros_like(variance)

    def of_tokens(some: Array) -> Array:
        points, weights = nodes_of(rule, some)
        weights = weights * (jnp.exp(-(points**2) / 2) / np.sqrt(2 * np.pi))
        return jnp.sum(weights * apply_to(rule.activation, jnp.sqrt(some)[:, None] * points) ** power, axis=-1)

    return _by_tokens(of_tokens, variance)


def _by_tokens(function: Callable[[Array], Array], variance: Float[Array, " tokens"]) -> Array:
    count = len(variance)
    batches = -(-count // _TOKENS)
    padded = jnp.concatenate([variance, jnp.ones(batches * _TOKENS - count)]).reshape(batches, _TOKENS)
    found = jax.lax.map(function, padded)
    return found.reshape(batches * _TOKENS, *found.shape[2:])[:count]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def coefficients(rule: Rule, variance: Float[Array, " tokens"]) -> Float[Array, "tokens terms"]:
    """Return a_n(v) for n in `rule.orders`."""

    def of_tokens(some: Array) -> Array:
        points, weights = nodes_of(rule, some)
        # Multiply h_n by the square root of the density, which avoids overflow and underflow.
        root = jnp.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
        weighted = weights * root * apply_to(rule.activation, jnp.sqrt(some)[:, None] * points)

        def step(pair, n):
            # h_{n+1} = (z h_n - sqrt(n) h_{n-1}) / sqrt(n + 1), two orders per step.
            even, odd = pair
            of_parity = [each for each, sign in ((even, 1), (odd, -1)) if rule.parity in (0, sign)]
            found = jnp.stack([jnp.sum(weighted * each, axis=-1) for each in of_parity])
            even = (points * odd - jnp.sqrt(n + 1) * even) / jnp.sqrt(n + 2)
            odd = (points * even - jnp.sqrt(n + 2) * odd) / jnp.sqrt(n + 3)
            return (even, odd), found

        _, found = jax.lax.scan(step, (root, points * root), np.arange(0, rule.terms, 2).astype(float))
        return found.reshape(-1, len(some)).T

    return _by_tokens(of_tokens, variance)


@coefficients.defjvp
def _coefficients_jvp(rule, primals, tangents):
    (variance,), (change,) = primals, tangents
    found, orders = coefficients(rule, variance), rule.orders
    step = 1 if rule.parity else 2
    later = jnp.pad(found[:, step:], ((0, 0), (0, step)))
    # Integration by parts gives d a_n / dv = (n a_n + sqrt((n + 1) (n + 2)) a_{n+2}) / 2v.
    slope = (orders * found + np.sqrt((orders + 1) * (orders + 2)) * later) / (2 * variance[:, None])
    return found, slope * change[:, None]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def mehler_sum(
    rule: Rule, one: Float[Array, "k terms"], other: Float[Array, "m terms"], correlation: Float[Array, "k m"]
) -> Float[Array, "k m"]:
    """Return sum_n a_n b_n rho^n for every pair."""
    rows = max(1, min(len(one), _ENTRIES // max(1, len(other))))
    batches = -(-len(one) // rows)

    def padded(array):
        return jnp.pad(array, ((0, batches * rows - len(array)), (0, 0))).reshape(batches, rows, -1)

    terms = -(-one.shape[1] // _UNROLLED) * _UNROLLED
    by_term = jnp.pad(other, ((0, 0), (0, terms - other.shape[1]))).T.reshape(-1, _UNROLLED, len(other))

    def of_rows(arguments):
        some, ratio = arguments
        here = jnp.pad(some, ((0, 0), (0, terms - some.shape[1]))).T.reshape(-1, _UNROLLED, rows)
        power = ratio**2 if rule.parity else ratio

        def add(total, parts):
            a, b = parts
            # Horner's scheme, from the last term to the first, needs one multiplication per term and pair.
            for n in reversed(range(_UNROLLED)):
                total = total * power + a[n][:, None] * b[n][None, :]
            return total, None

        total, _ = jax.lax.scan(add, jnp.zeros_like(ratio), (here, by_term), reverse=True)
        return total * ratio if rule.parity < 0 else total

    return jax.lax.map(of_rows, (padded(one), padded(correlation))).reshape(batches * rows, -1)[: len(one)]


@mehler_sum.defjvp
def _mehler_sum_jvp(rule, primals, tangents):
    (one, other, correlation), (d_one, d_other, d_correlation) = primals, tangents
    # The derivative in rho is the sum of n a_n b_n rho^(n-1). For small rho, avoid the division by rho: the first
    # terms are enough.
    small, orders = jnp.abs(correlation) < 1e-3, rule.orders
    safe = jnp.where(small, 1e-3, correlation)
    few = (n * one[:, [i]] * other[:, i] * correlation ** int(n - 1) for i, n in enumerate(orders[:8]) if n)
    slope = jnp.where(small, sum(few), mehler_sum(rule, one * orders, other, safe) / safe)
    change = mehler_sum(rule, d_one, other, correlation) + mehler_sum(rule, one, d_other, correlation)
    return mehler_sum(rule, one, other, correlation), change + slope * d_correlation


def panel_average(rule: Rule, own: Array, other: Array, correlation: Array, nodes: int = PAIR_NODES) -> Array:
    """Compute E[phi(x) phi(y)] for 1D arrays of pairs, by panels in rotated coordinates."""
    flipped = jnp.where(correlation < 0, -1.0, 1.0)[:, None]
    square = jnp.maximum((1 - jnp.abs(correlation)) / 2, 1e-32)[:, None]
    c, s = jnp.sqrt(1 - square), jnp.sqrt(square)
    x, y = jnp.sqrt(own)[:, None], jnp.sqrt(other)[:, None]
    phi, most = partial(apply_to, rule.activation), OF_DENSITY * REACH * rule.stretch
    edges, pairs = np.asarray(rule.edges[1:-1]), np.asarray(rule.crossings).reshape(-1, 2)
    # The kinks of the two factors cross where both coordinates are at a kink.
    crossings = (pairs[:, 0] / x - flipped * pairs[:, 1] / y) / (2 * s)
    # The inner integral is continuous at these edges, so they need no gradient, which would be unbounded.
    crossings = jax.lax.stop_gradient(crossings)
    # For a function with a parity, the product is the same at (-p, -q) and (p, q), so half the range is enough.
    least = 0.0 if rule.parity else -most
    outer, of_outer = _panelled(_sorted_edges(crossings, least, most, WIDTH), nodes)
    of_outer = of_outer * jnp.exp(-(outer**2) / 2) * (2.0 if rule.parity else 1.0) / (2 * np.pi)

    def add(total, parts):
        q, weight = parts
        kinks = jnp.concatenate([(edges / x - s * q[:, None]) / c, (flipped * edges / y + s * q[:, None]) / c], axis=1)
        p, of_inner = _panelled(_sorted_edges(kinks, -most, most, WIDTH), nodes)
        along, across = c * p, s * q[:, None]
        product = phi(x * (along + across)) * phi(flipped * y * (along - across))
        return total + weight * jnp.sum(of_inner * jnp.exp(-(p**2) / 2) * product, axis=1), None

    total, _ = jax.lax.scan(jax.checkpoint(add), jnp.zeros_like(own), (outer.T, of_outer.T))
    return total


def pair_averages(rule: Rule, one: tuple[Array, ...], other: tuple[Array, ...], correlation: Array) -> Array:
    """Return E[phi(x) phi(y)] for every pair of tokens, given as (variances, coefficients, mean squares)."""
    (own, here, of_own), (others, there, of_others) = one, other
    found = mehler_sum(rule, here, there, correlation)
    if not rule.uses_panels:
        return found

    def share(squares, terms):
        # Clip the remainder of Parseval's sum, which rounding can make negative.
        left = jnp.maximum(squares - jnp.sum(terms**2, axis=-1), 0.0)
        return jnp.sqrt(left / jnp.where(squares > 0, squares, 1.0))

    off = jnp.abs(correlation) ** rule.terms * share(of_own, here)[:, None] * share(of_others, there)
    # Compute batches of pairs by panels, those with the largest errors of Mehler's sum first.
    errors = jax.lax.stop_gradient(off).ravel()
    order = jnp.argsort(-errors)
    batches = -(-len(order) // _PAIRS)
    order = jnp.pad(order, (0, batches * _PAIRS - len(order)), mode="edge")
    rows, columns = jnp.divmod(order, len(others))
    # Put the smaller variance first, so that the result is exactly symmetric.
    v, w, ratio = own[rows], others[columns], correlation.ravel()[order]
    parts = jnp.minimum(v, w), jnp.maximum(v, w), ratio, errors[order]

    def of_batch(parts):
        v, w, ratio, off = parts
        return jax.lax.cond(
            jnp.any(off > TOLERANCE), lambda: panel_average(rule, v, w, ratio), lambda: jnp.zeros_like(v)
        )

    panels = jax.lax.map(of_batch, tuple(part.reshape(batches, _PAIRS) for part in parts)).ravel()
    # The padding repeats the last pair.
    panels = jnp.zeros(correlation.size).at[order].set(panels).reshape(correlation.shape)
    return jnp.where(off > TOLERANCE, panels, found)
