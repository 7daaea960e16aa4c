"""Compute E[phi(x) phi(y)] for Gaussian pairs, with an estimate of the error.

Mehler's formula expands phi at each variance in orthonormal Hermite polynomials h_n,

    E[phi(x) phi(y)] = sum_n a_n(v) a_n(w) rho^n,   a_n(v) = E[phi(sqrt(v) z) h_n(z)].

The remainder after N terms is at most |rho|^N times the root of the product of
both remainders of Parseval's sum. If it is large, because phi is steep or has kinks,
pairs are integrated over panels in rotated coordinates, x = sqrt(v) (c p + s q) and
y = sqrt(w) (c p - s q), with cosine and sine of half the angle arccos(rho). Panels in
p are split at edges of both factors, and panels in q where an edge crosses a kink.
Sources: Mehler (1866); Genz, Statistics and Computing 14 (2004) 251.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import scipy
from jaxtyping import Array, Float
from sympy import Piecewise
from sympy.core.relational import Relational

from ...codegen import interpret
from ...symbolic.functions import many_digits
from ..specification.activations import CORRELATION, NAMED, OTHER, OWN, UNIT, Activation, apply_to

# Relative errors above which we warn, and refuse.
WARNED, REFUSED = 1e-10, 1e-3
# Relative error above which panels replace Mehler's sum.
_TOLERANCE = 1e-11
# Fraction of a mean square that Mehler's sum may omit.
_ENOUGH = 1e-12
# Numbers of terms to try, and the most of them with panels.
_TERMS, _BESIDE_PANELS = 2 ** np.arange(5, 13), 1024
# Use the closed form if its rounding errors are below this.
_EXACT = 1e-11
# Default range of variances, and number that is sampled.
_RANGE, _SAMPLE = (2.0**-10, 2.0**10), 9
# Cutoffs of single integrals, with sqrt(density), and of double integrals.
_REACH, _REACH_OF_PAIRS = 12.5, 9.0
# Nodes per panel, and largest width of a panel in double integrals.
_NODES, _NODES_OF_PAIRS, _WIDTH_OF_PAIRS = 24, 12, 3.0
# Nodes of empty panels, as a fraction of the range.
_ELSEWHERE = 0.0123
# Tokens, pairs and entries per batch, for the cache of a CPU.
_TOKENS, _PAIRS, _ENTRIES = 16, 16, 2**14
# Largest numbers of edges in single and in double integrals.
_MOST_EDGES, _MOST_EDGES_OF_PAIRS = 400, 80
# Sampled variances and correlations at which panels are probed.
_PROBED = tuple(product(((0, 0), (4, 4), (4, -1), (-1, -1)), (-0.99, 0.999, 0.99999, 1.0)))
# Largest error on a panel, relative to the function there and to its typical
# size. Averages of two factors have its square.
_RESOLVED, _NEGLIGIBLE = 3e-7, 1e-14
_LEGENDRE_NODES = np.polynomial.legendre.leggauss
_POLYNOMIALS = np.polynomial.legendre.legvander
_POINTS, _WEIGHTS = _LEGENDRE_NODES(14)
_LEGENDRE = _POLYNOMIALS(_POINTS, 13) * _WEIGHTS[:, None] * (np.arange(14) + 0.5)
# Points near the ends of a panel, which nodes may miss.
_ENDS = 1 - 2.0 ** -np.arange(14)
_TRIED = np.concatenate([-_ENDS, _ENDS])
_AT_TRIED = _POLYNOMIALS(_TRIED, 13).T


@dataclass(frozen=True)
class Rule:
    """Quadrature of averages of phi at variances from `least` to `most`.

    - `edges`: values of the argument between which phi is smooth.
    - `centres`: kinks, or the edge about which panels are finest.
    - `terms`: number of terms of Mehler's sum; panels compute pairs that need more.
    """

    activation: Activation
    least: float
    most: float
    edges: tuple[float, ...]
    centres: tuple[float, ...]
    terms: int
    uses_panels: bool

    @property
    def width(self) -> float:
        """Width of a panel that resolves the last polynomial h_n."""
        return min(1.0, 32 / np.sqrt(self.terms))


def rule_over(activation: Activation, variances: Iterable[float] | None) -> tuple[Rule | None, float]:
    """Choose a rule, None for the closed form, and estimate its error.

    The error is relative to sqrt(E[phi(x)^2] E[phi(y)^2]), and infinite if phi
    is not square integrable.
    """
    if variances is None:
        return _chosen(activation, *_RANGE)
    powers = np.log2([float(each) for each in variances if each > 0] or [1.0])
    # Round, so that similar data share a rule.
    return _chosen(activation, 2.0 ** np.floor(min(powers)), 2.0 ** np.ceil(max(powers)))


def joint(one: Rule | None, other: Rule | None) -> Rule | None:
    if one is None or one == other:
        return one
    return _chosen(one.activation, min(one.least, other.least), max(one.most, other.most))[0]


@lru_cache(maxsize=256)
def _chosen(activation, least, most) -> tuple[Rule | None, float]:
    if activation in NAMED.values():
        return None, 1e-15
    with np.errstate(all="ignore"):
        try:
            error = _rounding_of_closed_form(activation, least, most)
        except ValueError:  # an average that is known to be infinite
            return None, np.inf
        if error < _EXACT:
            return None, error
        rule, error_of_rule = _numerical(activation, least, most)
    is_closed_better = np.isfinite(error) and not error_of_rule < error
    return (None, error) if is_closed_better else (rule, error_of_rule)


def _rounding_of_closed_form(activation, least, most) -> float:
    """Compare the closed form, if any, with fifty digits."""
    formula, worst = activation.kernel_of_correlation, 0.0
    if formula is None:
        return np.inf
    exact = many_digits((OWN, CORRELATION, OTHER), formula)
    middle, ratios = np.sqrt(least * most), (-1.0, -0.6, 0.95, 1.0)
    for v, w, ratio in product((least, middle, most), (least, most), ratios):
        at_ratio = formula.subs(CORRELATION, ratio)
        found = float(interpret(at_ratio, {OWN.name: v, OTHER.name: w}))
        with mpmath.workdps(50):
            places = (v, 1, v), (w, 1, w), (v, ratio, w)
            try:
                of_v, of_w, truth = (exact(*map(mpmath.mpf, place)) for place in places)
            except ZeroDivisionError:
                return np.inf
            # The formula of a mean square that is infinite is negative or not real.
            squares = mpmath.re(of_v) * mpmath.re(of_w)
            is_real = not mpmath.im(of_v) and not mpmath.im(of_w)
            if not np.isfinite(found) or not is_real or not 0 < squares < 1e300:
                return np.inf
            worst = max(worst, float(abs(found - mpmath.re(truth)) / mpmath.sqrt(squares)))
    return 2 * worst + 1e-15


def _numerical(activation, least, most) -> tuple[Rule, float]:
    variances = np.geomspace(least, most, _SAMPLE)

    def value(points):
        return interpret(activation.function, {UNIT.name: points})

    kinks = _kinks(activation.function, _REACH * np.sqrt(most))
    edges, resolved = _edges(value, kinks, variances)
    centres = kinks or (edges[int(np.argmin(np.diff(edges)))],)
    # Oscillating functions have too many edges for panels.
    has_panels = len(edges) * max(1, len(centres) / 2) <= _MOST_EDGES_OF_PAIRS
    terms = _BESIDE_PANELS if has_panels else int(_TERMS[-1])
    rule = Rule(activation, least, most, edges, centres, terms, uses_panels=False)
    if not resolved:
        return rule, np.inf
    found, squares = _series(rule, value, variances, _NODES)
    finer, of_finer = _series(rule, value, variances, _NODES + 8)
    whole = np.where(of_finer > 0, of_finer, 1.0)
    moved = 2 * np.sqrt(np.sum((finer - found) ** 2, axis=1) / whole)
    moved += np.abs(of_finer - squares) / whole

    def beyond(cutoff):
        ends = value(np.sqrt(variances)[:, None] * np.array([-cutoff, cutoff]))
        return np.max(ends**2, axis=1) * np.exp(-(cutoff**2) / 2) / np.max(whole)

    off = float(np.max(moved + np.sqrt(beyond(_REACH))))
    # Parseval's sum bounds the remaining terms.
    left = (squares[:, None] - np.cumsum(found**2, axis=1)) / whole[:, None]
    left = np.max(left, axis=0).clip(0.0)
    enough = (terms for terms in _TERMS if left[min(terms, rule.terms) - 1] < _ENOUGH)
    terms = int(next(enough, rule.terms))
    if not has_panels or left[terms - 1] < _ENOUGH:
        return replace(rule, terms=terms), 2 * (off + float(left[terms - 1])) + 1e-14
    rule, roots = replace(rule, uses_panels=True), np.sqrt(squares)
    i, j, ratios = map(np.array, zip(*((*at, ratio) for at, ratio in _PROBED), strict=True))
    pairs = variances[i], variances[j], ratios
    with jax.ensure_compile_time_eval():
        average = jax.jit(panel_average, static_argnums=(0, 4))
        coarse = np.asarray(average(rule, *pairs, _NODES_OF_PAIRS))
        fine = np.asarray(average(rule, *pairs, _NODES_OF_PAIRS + 4))
    worst = np.max(np.abs(fine - coarse) / np.maximum(roots[i] * roots[j], 1e-300))
    worst += np.max(beyond(_REACH_OF_PAIRS))
    return rule, 2 * (off + _TOLERANCE + float(worst)) + 1e-14


def _series(rule: Rule, value: Callable, variances, nodes) -> tuple[np.ndarray, np.ndarray]:
    """Return a_n(v) and mean squares on the host, without compilation."""
    deviations, terms = np.sqrt(variances)[:, None], []
    points, weights = _panels(rule.edges / deviations, _REACH, rule.width, nodes)
    values = value(deviations * points)
    root = np.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
    weighted, before, now = weights * root * values, np.zeros_like(root), root
    for n in range(rule.terms):
        terms.append(np.sum(weighted * now, axis=1))
        before, now = now, (points * now - np.sqrt(n) * before) / np.sqrt(n + 1)
    return np.stack(terms, axis=1), np.sum(weighted * root * values, axis=1)


def _kinks(function, reach) -> tuple[float, ...]:
    """Find kinks and steps, where conditions of a piecewise function change."""
    found, points = set(), np.geomspace(1e-9 * reach, reach, 4001)
    # Without symmetry and zero, which is a root of many functions.
    points = np.concatenate([-1.0001 * points[::-1], points])
    for condition in function.rewrite(Piecewise).atoms(Relational):

        def switch(at, difference=condition.lhs - condition.rhs):
            return interpret(difference, {UNIT.name: at})

        values = switch(points)
        for i in np.flatnonzero(values[:-1] * values[1:] < 0):
            found.add(float(scipy.optimize.brentq(switch, points[i], points[i + 1], xtol=1e-300)))
    return tuple(sorted(place for place in found if abs(place) < reach))


def _edges(value: Callable, kinks, variances) -> tuple[tuple[float, ...], bool]:
    """Halve panels until they resolve phi; return edges, and whether they do."""
    deviations, normals = np.sqrt(variances), np.linspace(-6, 6, 600)
    finest, reach = deviations[0], _REACH * deviations[-1]
    density = np.exp(-(normals**2) / 2)
    density /= np.sum(density)
    squares = value(deviations[:, None] * normals) ** 2 @ density
    scale = (np.min(squares) * np.max(squares)) ** 0.25
    edges = np.unique(np.clip([-reach, -1.0, 0.0, 1.0, reach, *kinks], -reach, reach))
    left, right, done = edges[:-1], edges[1:], []
    while len(left) and len(done) + len(left) <= _MOST_EDGES:
        middle, half = (left + right) / 2, (right - left) / 2
        values = value(middle[:, None] + half[:, None] * _POINTS)
        tried = value(middle[:, None] + half[:, None] * _TRIED)
        series = values @ _LEGENDRE
        errors = np.hstack([series[:, -3:], series @ _AT_TRIED - tried])
        error, size = (np.max(np.abs(each), axis=1) for each in (errors, values))
        fine = error <= np.maximum(_RESOLVED * size, _NEGLIGIBLE * scale)
        # Near a weak singularity panels are too narrow to matter.
        fine |= error * half <= _NEGLIGIBLE * scale * finest
        done += [*left[fine]]
        left, middle, right = left[~fine], middle[~fine], right[~fine]
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    return tuple(map(float, sorted({*done, *left, reach}))), not len(left)


def _panels(places, reach, width, nodes) -> tuple[Array, Array]:
    """Return nodes and weights over panels between `places` (pairs, places) and a grid."""
    xp = np if isinstance(places, np.ndarray) else jnp
    grid = np.linspace(-reach, reach, int(np.ceil(2 * reach / width)) + 1)
    grid = xp.broadcast_to(grid, (len(places), len(grid)))
    edges = xp.sort(xp.concatenate([xp.clip(places, -reach, reach), grid], axis=1), axis=1)
    points, weights = _LEGENDRE_NODES(nodes)
    left, half = edges[:, :-1, None], xp.diff(edges, axis=1)[:, :, None] / 2
    # At kinks phi may be infinite.
    at = xp.where(half > 0, left + half * (1 + points), _ELSEWHERE * reach)
    return at.reshape(len(places), -1), (half * weights).reshape(len(places), -1)


def _at_nodes(rule: Rule, variance) -> tuple[Array, Array, Array]:
    """Return nodes z, weights without the density, and phi(sqrt(v) z)."""
    deviation = jnp.sqrt(variance)
    edges = jnp.asarray(rule.edges)[None] / deviation
    (points,), (weights,) = _panels(edges, _REACH, rule.width, _NODES)
    return points, weights, apply_to(rule.activation, deviation * points)


def moment(rule: Rule, variance: Float[Array, " tokens"], power: int) -> Array:
    """Return E[phi^power] at each variance."""

    def of_token(variance: Array) -> Array:
        points, weights, values = _at_nodes(rule, variance)
        density = jnp.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
        return jnp.sum(weights * density * values**power)

    return jax.lax.map(of_token, variance, batch_size=_TOKENS)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def coefficients(rule: Rule, variance: Float[Array, " tokens"]) -> Array:
    """Return a_n(v) (tokens, terms)."""

    def of_token(variance: Array) -> Array:
        points, weights, values = _at_nodes(rule, variance)
        # h_n times the root of the density neither overflows nor underflows.
        root = jnp.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
        weighted = weights * root * values

        def step(pair, n):
            before, now = pair
            after = (points * now - jnp.sqrt(n) * before) / jnp.sqrt(n + 1)
            return (now, after), jnp.sum(weighted * now)

        first = (jnp.zeros_like(root), root)
        n = np.arange(rule.terms, dtype=float)
        return jax.lax.scan(step, first, n, unroll=2)[1]

    return jax.lax.map(of_token, variance, batch_size=_TOKENS)


@coefficients.defjvp
def _coefficients_jvp(rule, primals, tangents):
    (variance,), (change,) = primals, tangents
    found, n = coefficients(rule, variance), np.arange(rule.terms)
    later = jnp.pad(found[:, 2:], ((0, 0), (0, 2)))
    # By parts, d a_n / dv = (n a_n + sqrt((n + 1) (n + 2)) a_{n+2}) / 2v.
    slope = n * found + np.sqrt((n + 1) * (n + 2)) * later
    return found, slope * (change / (2 * variance))[:, None]


def mehler_sum(one, other, correlation) -> Array:
    """Return sum_n a_n b_n rho^n for every pair, by Horner's scheme."""

    # Partial sums would not fit in memory.
    @jax.checkpoint
    def of_token(arguments):
        here, ratio = arguments

        def step(total, pair):
            return total * ratio + pair[0] * pair[1], None

        terms = here, other.T
        return jax.lax.scan(step, jnp.zeros_like(ratio), terms, reverse=True, unroll=8)[0]

    batch = max(1, min(len(one), _ENTRIES // max(1, len(other))))
    return jax.lax.map(of_token, (one, correlation), batch_size=batch)


def panel_average(rule: Rule, own, other, correlation, nodes: int = _NODES_OF_PAIRS) -> Array:
    """Compute E[phi(x) phi(y)] of pairs by panels in rotated coordinates."""
    flipped = jnp.where(correlation < 0, -1.0, 1.0)[:, None]
    square = jnp.maximum((1 - jnp.abs(correlation)) / 2, 1e-32)[:, None]
    c, s = jnp.sqrt(1 - square), jnp.sqrt(square)
    x, y = jnp.sqrt(own)[:, None], jnp.sqrt(other)[:, None]
    edges = np.asarray(rule.edges[1:-1])
    one, two = (each.ravel() for each in np.meshgrid(edges, rule.centres))
    one, two = np.concatenate([one, two]), np.concatenate([two, one])
    crossings = (one / x - flipped * two / y) / (2 * s)
    panels = partial(_panels, reach=_REACH_OF_PAIRS, width=_WIDTH_OF_PAIRS, nodes=nodes)
    # The inner integral is continuous at these edges.
    outer, of_outer = panels(jax.lax.stop_gradient(crossings))
    of_outer = of_outer * jnp.exp(-(outer**2) / 2) / (2 * np.pi)

    def add(total, parts):
        q, weight = parts
        across = s * q[:, None]
        p, of_inner = panels(jnp.hstack([edges / x - across, flipped * edges / y + across]) / c)
        along = c * p
        values = apply_to(rule.activation, x * (along + across))
        values = values * apply_to(rule.activation, flipped * y * (along - across))
        return total + weight * jnp.sum(of_inner * jnp.exp(-(p**2) / 2) * values, axis=1), None

    total, _ = jax.lax.scan(jax.checkpoint(add), jnp.zeros_like(own), (outer.T, of_outer.T))
    return total


def pair_averages(rule: Rule, one, other, correlation) -> Array:
    """Return E[phi(x) phi(y)] of tokens with variances, coefficients, mean squares."""
    (own, here, of_own), (others, there, of_others) = one, other
    found = mehler_sum(here, there, correlation)
    if not rule.uses_panels:
        return found

    def share(squares, terms):
        # Rounding can make the remainder negative.
        left = jnp.maximum(squares - jnp.sum(terms**2, axis=-1), 0.0)
        return jnp.sqrt(left / jnp.where(squares > 0, squares, 1.0))

    off = share(of_own, here)[:, None] * share(of_others, there)
    off = jnp.abs(correlation) ** rule.terms * off
    # Sort by error, so that few batches need panels.
    errors = jax.lax.stop_gradient(off).ravel()
    order = jnp.argsort(-errors)
    order = jnp.pad(order, (0, -len(order) % _PAIRS), mode="edge").reshape(-1, _PAIRS)

    def of_batch(chosen):
        rows, columns = jnp.divmod(chosen, len(others))
        # With the smaller variance first, the result is exactly symmetric.
        v = jnp.minimum(own[rows], others[columns])
        w = jnp.maximum(own[rows], others[columns])
        return jax.lax.cond(
            jnp.any(errors[chosen] > _TOLERANCE),
            lambda: panel_average(rule, v, w, correlation.ravel()[chosen]),
            lambda: jnp.zeros_like(v),
        )

    panels = jnp.zeros(correlation.size).at[order].set(jax.lax.map(of_batch, order))
    return jnp.where(off > _TOLERANCE, panels.reshape(correlation.shape), found)
