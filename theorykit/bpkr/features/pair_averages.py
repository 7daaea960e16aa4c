"""Compute E[phi(x) phi(y)] for Gaussian pairs with any variances and correlation, and estimate the error.

Mehler's formula expands phi at each variance in orthonormal Hermite polynomials h_n,

    E[phi(x) phi(y)] = sum_n a_n(v) a_n(w) rho^n,   a_n(v) = E[phi(sqrt(v) z) h_n(z)].

The remainder after N terms is at most |rho|^N times the square root of the product of both remainders of Parseval's
sum. It is negligible for smooth functions. It is not small for |rho| near one if phi has kinks or steps, or is steep at
these variances. Such pairs are integrated over panels in rotated coordinates, x = sqrt(v) (c p + s q) and y = sqrt(w)
(c p - s q). Here c and s are the cosine and sine of half the angle arccos(rho). Panels in p are split at every edge of
either factor, and panels in q where an edge of one factor crosses a kink of the other. Sources: Mehler (1866), and for
the coordinates Genz, Statistics and Computing 14 (2004) 251.
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
from sympy import Expr, Piecewise
from sympy.core.relational import Relational

from ...codegen import interpret
from ...symbolic.functions import many_digits
from ..specification.activations import CORRELATION, NAMED, OTHER, OWN, UNIT, Activation, apply_to

# Errors of a kernel, relative to sqrt(E[phi(x)^2] E[phi(y)^2]), above which we warn, and refuse.
WARNED = 1e-10
REFUSED = 1e-3
# Relative error of a pair above which panels replace Mehler's sum.
_TOLERANCE = 1e-11
# Fraction of a mean square that Mehler's sum may omit, and numbers of terms to try.
_ENOUGH = 1e-12
_TERMS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
# Largest number of terms if panels compute the pairs with correlations near one.
_BESIDE_PANELS = 1024
# Use the closed form if its rounding errors are below this.
_EXACT = 1e-11
# Default range of variances, and number of variances at which the error of a rule is estimated.
_RANGE = 2.0**-10, 2.0**10
_SAMPLE = 9
# Cutoffs in standard deviations: of single integrals, with sqrt(density), and of double integrals.
_REACH = 12.5
_REACH_OF_PAIRS = 9.0
# Nodes per panel in single and double integrals, and largest width of a panel in double integrals.
_NODES, _NODES_OF_PAIRS = 24, 12
_WIDTH_OF_PAIRS = 3.0
# Position of the nodes of panels with zero width, as a fraction of the range: away from kinks.
_ELSEWHERE = 0.0123
# Numbers of tokens, pairs and entries per batch, which fit in the cache of a CPU.
_TOKENS, _PAIRS, _ENTRIES = 16, 16, 2**14
# Largest numbers of edges in single and in double integrals.
_MOST_EDGES, _MOST_EDGES_OF_PAIRS = 400, 80
# Pairs of indices into the sample of variances and correlations at which panels are probed.
_PROBED = tuple(product(((0, 0), (4, 4), (4, -1), (-1, -1)), (-0.99, 0.999, 0.99999, 1.0)))
# Largest error of the function on a panel, relative to its size there: an integral over two factors
# has its square. Errors below the second fraction of the typical size do not matter.
_RESOLVED, _NEGLIGIBLE = 3e-7, 1e-14
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(14)
_LEGENDRE = np.polynomial.legendre.legvander(_POINTS, 13) * _WEIGHTS[:, None] * (np.arange(14) + 0.5)
# Further points of a panel, dense at its ends, where the nodes may miss a narrow feature.
_ENDS = 1 - 2.0 ** -np.arange(14)
_TRIED = np.concatenate([-_ENDS, _ENDS])
_AT_TRIED = np.polynomial.legendre.legvander(_TRIED, 13).T


@dataclass(frozen=True)
class Rule:
    """A rule that computes averages of a function over a range of variances. `rule_over` chooses it.

    - `activation`: the function phi.
    - `least`, `most`: the range of variances.
    - `edges`: edges of panels on which phi is smooth. They are values of the preactivation, valid at any variance.
    - `centres`: kinks of phi, or the edge about which the panels are finest.
    - `terms`: number of terms of Mehler's sum.
    - `uses_panels`: whether panels compute pairs for which Mehler's sum is not accurate enough.
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
        """Largest width of a panel in single integrals, which resolves the oscillations of the last polynomial h_n."""
        return min(1.0, 32 / np.sqrt(self.terms))


def rule_over(activation: Activation, variances: Iterable[float] | None) -> tuple[Rule | None, float]:
    """Choose a rule for the range of the given variances, or for a default range, and estimate its error.

    The rule None stands for the closed form. The error is an upper estimate relative to sqrt(E[phi(x)^2] E[phi(y)^2]).
    It is infinite if the function is not finite or not square integrable.
    """
    if variances is None:
        return _chosen(activation, *_RANGE)
    positive = [float(each) for each in variances if each > 0] or [1.0]
    # Round, so that similar data share a rule.
    return _chosen(activation, 2.0 ** np.floor(np.log2(min(positive))), 2.0 ** np.ceil(np.log2(max(positive))))


def joint(one: Rule | None, other: Rule | None) -> Rule | None:
    """Return a rule for the union of the ranges of two rules."""
    if one is None or one == other:
        return one
    return _chosen(one.activation, min(one.least, other.least), max(one.most, other.most))[0]


@lru_cache(maxsize=256)
def _chosen(activation: Activation, least: float, most: float) -> tuple[Rule | None, float]:
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
    return (None, error) if np.isfinite(error) and not error_of_rule < error else (rule, error_of_rule)


def _rounding_of_closed_form(activation: Activation, least: float, most: float) -> float:
    """Compare the closed form with fifty digits; infinite if there is none, or phi is not square integrable."""
    formula, worst = activation.kernel_of_correlation, 0.0
    if formula is None:
        return np.inf
    exact = many_digits((OWN, CORRELATION, OTHER), formula)
    middle, ratios = np.sqrt(least * most), (-1.0, -0.6, 0.95, 1.0)
    for v, w, ratio in product((least, middle, most), (least, most), ratios):
        found = float(interpret(formula.subs(CORRELATION, ratio), {OWN.name: v, OTHER.name: w}))
        with mpmath.workdps(50):
            places = (v, 1, v), (w, 1, w), (v, ratio, w)
            try:
                of_v, of_w, truth = (exact(*map(mpmath.mpf, place)) for place in places)
            except ZeroDivisionError:
                return np.inf
            # The formula of a mean square that is infinite is negative or not real.
            if mpmath.im(of_v) or mpmath.im(of_w) or not 0 < mpmath.re(of_v) * mpmath.re(of_w) < 1e300:
                return np.inf
            error = abs(found - mpmath.re(truth)) / mpmath.sqrt(of_v * of_w) if np.isfinite(found) else np.inf
            worst = max(worst, float(error))
    return 2 * worst + 1e-15


def _numerical(activation: Activation, least: float, most: float) -> tuple[Rule, float]:
    variances = np.geomspace(least, most, _SAMPLE)

    def value(points: np.ndarray) -> np.ndarray:
        return interpret(activation.function, {UNIT.name: points})

    kinks = _kinks(activation.function, _REACH * np.sqrt(most))
    edges, resolved = _edges(value, kinks, variances)
    centres = kinks or (edges[int(np.argmin(np.diff(edges)))],)
    # Oscillating functions have too many edges for panels.
    has_panels = len(edges) <= _MOST_EDGES_OF_PAIRS and len(edges) * len(centres) <= 2 * _MOST_EDGES_OF_PAIRS
    terms = _BESIDE_PANELS if has_panels else _TERMS[-1]
    rule = Rule(activation, least, most, edges, centres, terms, uses_panels=False)
    if not resolved:
        return rule, np.inf
    # Compare coefficients and mean squares with a finer quadrature.
    (found, squares), (finer, of_finer) = (_series(rule, value, variances, nodes) for nodes in (_NODES, _NODES + 8))
    whole = np.where(of_finer > 0, of_finer, 1.0)
    moved = 2 * np.sqrt(np.sum((finer - found) ** 2, axis=1) / whole) + np.abs(of_finer - squares) / whole

    def beyond(cutoff: float) -> np.ndarray:
        """Return the fraction of the largest mean square beyond a cutoff."""
        ends = value(np.sqrt(variances)[:, None] * np.array([-cutoff, cutoff]))
        return np.max(ends**2, axis=1) * np.exp(-(cutoff**2) / 2) / np.max(whole)

    off = float(np.max(moved + np.sqrt(beyond(_REACH))))
    # The mean square minus the squared coefficients so far (Parseval) bounds the remaining terms.
    left = np.max((squares[:, None] - np.cumsum(found**2, axis=1)) / whole[:, None], axis=0).clip(0.0)
    terms = next((terms for terms in _TERMS if left[min(terms, rule.terms) - 1] < _ENOUGH), rule.terms)
    if not has_panels or left[terms - 1] < _ENOUGH:
        return replace(rule, terms=terms), 2 * (off + float(left[terms - 1])) + 1e-14
    rule, roots = replace(rule, uses_panels=True), np.sqrt(squares)
    i, j, ratios = (np.array(each) for each in zip(*((*at, ratio) for at, ratio in _PROBED), strict=True))
    with jax.ensure_compile_time_eval():
        average = jax.jit(panel_average, static_argnums=(0, 4))
        nodes = _NODES_OF_PAIRS, _NODES_OF_PAIRS + 4
        coarse, fine = (np.asarray(average(rule, variances[i], variances[j], ratios, count)) for count in nodes)
    worst = np.max(np.abs(fine - coarse) / np.maximum(roots[i] * roots[j], 1e-300)) + np.max(beyond(_REACH_OF_PAIRS))
    return rule, 2 * (off + _TOLERANCE + float(worst)) + 1e-14


def _series(
    rule: Rule, value: Callable[[np.ndarray], np.ndarray], variances: np.ndarray, nodes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients a_n(v) and mean squares, computed on the host without compilation."""
    deviations, terms = np.sqrt(variances)[:, None], []
    points, weights = _panels(rule.edges / deviations, _REACH, rule.width, nodes)
    values, root = value(deviations * points), np.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
    weighted, before, now = weights * root * values, np.zeros_like(root), root
    for n in range(rule.terms):
        terms.append(np.sum(weighted * now, axis=1))
        before, now = now, (points * now - np.sqrt(n) * before) / np.sqrt(n + 1)
    return np.stack(terms, axis=1), np.sum(weighted * root * values, axis=1)


def _kinks(function: Expr, reach: float) -> tuple[float, ...]:
    """Find kinks and steps within `reach` of zero: sign changes of the conditions of a piecewise function."""
    found, points = set(), np.geomspace(1e-9 * reach, reach, 4001)
    # Points without symmetry and without zero, which many functions have as a root.
    points = np.concatenate([-1.0001 * points[::-1], points])
    for condition in function.rewrite(Piecewise).atoms(Relational):

        def switch(at, difference=condition.lhs - condition.rhs):
            return interpret(difference, {UNIT.name: at})

        values = switch(points)
        for i in np.flatnonzero(values[:-1] * values[1:] < 0):
            found.add(float(scipy.optimize.brentq(switch, points[i], points[i + 1], xtol=1e-300)))
    return tuple(sorted(place for place in found if abs(place) < reach))


def _edges(
    value: Callable[[np.ndarray], np.ndarray], kinks: tuple[float, ...], variances: np.ndarray
) -> tuple[tuple[float, ...], bool]:
    """Halve panels until they resolve the function. Return their edges, and whether few enough panels do."""
    normals, finest, reach = np.linspace(-6, 6, 600), np.sqrt(variances[0]), _REACH * np.sqrt(variances[-1])
    density = np.exp(-(normals**2) / 2) / np.sum(np.exp(-(normals**2) / 2))
    # The typical size of the function. At the smallest size alone, rounding errors at large arguments would matter.
    squares = value(np.sqrt(variances)[:, None] * normals) ** 2 @ density
    scale = (np.min(squares) * np.max(squares)) ** 0.25
    edges = np.unique(np.clip([-reach, -1.0, 0.0, 1.0, reach, *kinks], -reach, reach))
    left, right, done = edges[:-1], edges[1:], []
    while len(left) and len(done) + len(left) <= _MOST_EDGES:
        middle, half = (left + right) / 2, (right - left) / 2
        values, tried = (value(middle[:, None] + half[:, None] * points) for points in (_POINTS, _TRIED))
        series = values @ _LEGENDRE
        # The last three Legendre coefficients show whether the panel resolves the function at the nodes.
        error = np.maximum(np.max(np.abs(series[:, -3:]), axis=1), np.max(np.abs(series @ _AT_TRIED - tried), axis=1))
        fine = error <= np.maximum(_RESOLVED * np.max(np.abs(values), axis=1), _NEGLIGIBLE * scale)
        # Near a weak singularity, such as that of a root, panels become so narrow that they do not matter.
        fine |= error * half <= _NEGLIGIBLE * scale * finest
        done += [*left[fine]]
        left, right = (np.concatenate(each) for each in ((left[~fine], middle[~fine]), (middle[~fine], right[~fine])))
    return tuple(float(edge) for edge in sorted({*done, *left, reach})), not len(left)


def _panels(
    places: Float[Array, "pairs places"], reach: float, width: float, nodes: int
) -> tuple[Float[Array, "pairs nodes"], Float[Array, "pairs nodes"]]:
    """Return nodes and weights of Gauss-Legendre quadrature over panels that are split at `places` and on a grid."""
    xp = np if isinstance(places, np.ndarray) else jnp
    grid = np.linspace(-reach, reach, int(np.ceil(2 * reach / width)) + 1)
    grid = xp.broadcast_to(grid, (len(places), len(grid)))
    edges = xp.sort(xp.concatenate([xp.clip(places, -reach, reach), grid], axis=1), axis=1)
    points, weights = np.polynomial.legendre.leggauss(nodes)
    left, half = edges[:, :-1, None], (edges[:, 1:] - edges[:, :-1])[:, :, None] / 2
    # Move the nodes of panels with zero width away from the kink, where the function may be infinite.
    at = xp.where(half > 0, left + half * (1 + points), _ELSEWHERE * reach)
    return at.reshape(len(places), -1), (half * weights).reshape(len(places), -1)


def _at_nodes(rule: Rule, variance: Float[Array, ""]) -> tuple[Array, Array, Array]:
    """Return nodes and weights, without the density, for a standard normal z, and the values of phi."""
    deviation = jnp.sqrt(variance)
    (points,), (weights,) = _panels(jnp.asarray(rule.edges)[None] / deviation, _REACH, rule.width, _NODES)
    return points, weights, apply_to(rule.activation, deviation * points)


def moment(rule: Rule, variance: Float[Array, " tokens"], power: int) -> Float[Array, " tokens"]:
    """Return E[phi^power] at each variance."""

    def of_token(variance: Array) -> Array:
        points, weights, values = _at_nodes(rule, variance)
        return jnp.sum(weights * jnp.exp(-(points**2) / 2) / np.sqrt(2 * np.pi) * values**power)

    return jax.lax.map(of_token, variance, batch_size=_TOKENS)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def coefficients(rule: Rule, variance: Float[Array, " tokens"]) -> Float[Array, "tokens terms"]:
    """Return a_n(v) for n up to the number of terms."""

    def of_token(variance: Array) -> Array:
        points, weights, values = _at_nodes(rule, variance)
        # Multiply h_n by the square root of the density, which avoids overflow and underflow.
        root = jnp.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
        weighted = weights * root * values

        def step(pair, n):
            before, now = pair
            return (now, (points * now - jnp.sqrt(n) * before) / jnp.sqrt(n + 1)), jnp.sum(weighted * now)

        return jax.lax.scan(step, (jnp.zeros_like(root), root), np.arange(rule.terms, dtype=float), unroll=2)[1]

    return jax.lax.map(of_token, variance, batch_size=_TOKENS)


@coefficients.defjvp
def _coefficients_jvp(rule, primals, tangents):
    (variance,), (change,) = primals, tangents
    found, n = coefficients(rule, variance), np.arange(rule.terms)
    later = jnp.pad(found[:, 2:], ((0, 0), (0, 2)))
    # Integration by parts gives d a_n / dv = (n a_n + sqrt((n + 1) (n + 2)) a_{n+2}) / 2v.
    return found, (n * found + np.sqrt((n + 1) * (n + 2)) * later) * (change / (2 * variance))[:, None]


def mehler_sum(
    one: Float[Array, "k terms"], other: Float[Array, "m terms"], correlation: Float[Array, "k m"]
) -> Float[Array, "k m"]:
    """Return sum_n a_n b_n rho^n for every pair."""

    # Recompute the sums of Horner's scheme in reverse mode: all of them would not fit in memory.
    @jax.checkpoint
    def of_token(arguments):
        here, ratio = arguments

        def step(total, pair):
            return total * ratio + pair[0] * pair[1], None

        terms = here, other.T
        return jax.lax.scan(step, jnp.zeros_like(ratio), terms, reverse=True, unroll=8)[0]

    return jax.lax.map(of_token, (one, correlation), batch_size=max(1, min(len(one), _ENTRIES // max(1, len(other)))))


def panel_average(rule: Rule, own: Array, other: Array, correlation: Array, nodes: int = _NODES_OF_PAIRS) -> Array:
    """Compute E[phi(x) phi(y)] for 1D arrays of pairs, by panels in rotated coordinates."""
    flipped = jnp.where(correlation < 0, -1.0, 1.0)[:, None]
    square = jnp.maximum((1 - jnp.abs(correlation)) / 2, 1e-32)[:, None]
    c, s = jnp.sqrt(1 - square), jnp.sqrt(square)
    x, y = jnp.sqrt(own)[:, None], jnp.sqrt(other)[:, None]
    edges = np.asarray(rule.edges[1:-1])
    one, two = (each.ravel() for each in np.meshgrid(edges, rule.centres))
    crossings = jnp.concatenate([(one / x - flipped * two / y), (two / x - flipped * one / y)], axis=1) / (2 * s)
    # The inner integral is continuous at these edges, so they need no gradient, which would be unbounded.
    outer, of_outer = _panels(jax.lax.stop_gradient(crossings), _REACH_OF_PAIRS, _WIDTH_OF_PAIRS, nodes)
    of_outer = of_outer * jnp.exp(-(outer**2) / 2) / (2 * np.pi)

    def add(total, parts):
        q, weight = parts
        kinks = jnp.concatenate([(edges / x - s * q[:, None]) / c, (flipped * edges / y + s * q[:, None]) / c], axis=1)
        p, of_inner = _panels(kinks, _REACH_OF_PAIRS, _WIDTH_OF_PAIRS, nodes)
        along, across = c * p, s * q[:, None]
        values = apply_to(rule.activation, x * (along + across))
        values = values * apply_to(rule.activation, flipped * y * (along - across))
        return total + weight * jnp.sum(of_inner * jnp.exp(-(p**2) / 2) * values, axis=1), None

    total, _ = jax.lax.scan(jax.checkpoint(add), jnp.zeros_like(own), (outer.T, of_outer.T))
    return total


def pair_averages(rule: Rule, one: tuple[Array, ...], other: tuple[Array, ...], correlation: Array) -> Array:
    """Return E[phi(x) phi(y)] for every pair of tokens, given as (variances, coefficients, mean squares)."""
    (own, here, of_own), (others, there, of_others) = one, other
    found = mehler_sum(here, there, correlation)
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
    order = jnp.pad(order, (0, -len(order) % _PAIRS), mode="edge").reshape(-1, _PAIRS)

    def of_batch(chosen):
        rows, columns = jnp.divmod(chosen, len(others))
        # Put the smaller variance first, so that the result is exactly symmetric.
        v, w = jnp.minimum(own[rows], others[columns]), jnp.maximum(own[rows], others[columns])
        return jax.lax.cond(
            jnp.any(errors[chosen] > _TOLERANCE),
            lambda: panel_average(rule, v, w, correlation.ravel()[chosen]),
            lambda: jnp.zeros_like(v),
        )

    # The padding repeats the last pair.
    panels = jnp.zeros(correlation.size).at[order].set(jax.lax.map(of_batch, order)).reshape(correlation.shape)
    return jnp.where(off > _TOLERANCE, panels, found)
