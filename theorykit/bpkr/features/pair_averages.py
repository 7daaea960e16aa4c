"""Compute E[phi(x) phi(y)] of Gaussian pairs by Mehler's formula, with a bound of the error.

Mehler's formula expands phi at each variance in orthonormal Hermite polynomials h_n,

    E[phi(x) phi(y)] = sum_n a_n(v) a_n(w) rho^n,   a_n(v) = E[phi(sqrt(v) z) h_n(z)].

Terms from N on are at most |rho|^N times the root of the product of both remainders
of Parseval's sum, r = E[phi^2] - sum_{n<N} a_n^2. We scale the last two coefficients,
so that their squares include r. Mean squares are then exact, and the kernel stays
positive semidefinite. Source: Mehler (1866).
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import legendre
from sympy import Add, Expr, Piecewise, piecewise_fold, real_roots
from sympy.core.relational import Relational

from ...codegen import interpret
from ..specification.activations import CORRELATION, OTHER, OWN, UNIT, Activation, apply_to

# Relative errors above which we warn, and refuse.
WARNED, REFUSED = 1e-10, 1e-3
# Fraction of a mean square that Mehler's sum may omit, and numbers of terms to try.
_ENOUGH, _TERMS = 1e-12, 2 ** np.arange(5, 13)
# Use the closed form if its rounding errors are below this.
_EXACT = 1e-11
# Range of variances that are not known, and number that is sampled.
RANGE, _SAMPLE = (2.0**-10, 2.0**10), 9
# Tokens and entries per batch, for the cache of a CPU.
_TOKENS, _ENTRIES = 4, 2**14
# Largest number of panels, and smallest width as a fraction of the range.
_MOST_EDGES, _NARROWEST = 400, 1e-14
# Largest relative error of a polynomial of degree 13 on a panel; 24 nodes square it.
_RESOLVED = 3e-7
_POINTS, _ = legendre.leggauss(14)
# More points near the ends of a panel, which nodes may miss.
_TRIED = np.outer([-1, 1], 1 - 2.0 ** -np.arange(14)).ravel()
_INTERPOLATION = np.linalg.solve(*(legendre.legvander(each, 13).T for each in (_POINTS, _TRIED)))


@dataclass(frozen=True)
class Rule:
    """Quadrature of averages of phi at variances from `least` to `most`.

    - `edges`: values of the argument between which phi is smooth.
    - `terms`: number of terms of Mehler's sum.
    - `nodes`: Gauss-Legendre nodes per panel.
    - `reach`: largest |z|, at which the root of the density is negligible.
    """

    activation: Activation
    least: float
    most: float
    edges: tuple[float, ...]
    terms: int = int(_TERMS[-1])
    nodes: int = 24
    reach: float = 12.5


def rule_over(activation: Activation, variances) -> tuple[Rule | None, float]:
    """Choose a rule, None for the closed form, and bound its error.

    The error is relative to sqrt(E[phi(x)^2] E[phi(y)^2]). It is infinite or NaN if phi
    is not square integrable.
    """
    variances = np.asarray(variances)
    positive = variances[variances > 0] if np.any(variances > 0) else np.ones(1)
    # Round, so that similar data share a rule.
    least, most = np.floor(np.log2(positive.min())), np.ceil(np.log2(positive.max()))
    return _choose_rule(activation, 2.0**least, 2.0**most)


def joint(one: Rule | None, other: Rule | None) -> Rule | None:
    if one is None or other is None or one == other:
        return one and other
    least, most = min(one.least, other.least), max(one.most, other.most)
    return _choose_rule(one.activation, least, most)[0]


@lru_cache(maxsize=256)
def _choose_rule(activation, least, most) -> tuple[Rule | None, float]:
    variances = np.geomspace(least, most, _SAMPLE)
    with np.errstate(all="ignore"):
        try:
            rounding = _rounding_of_closed_form(activation.kernel_of_correlation, variances)
        except ValueError:  # an average that is known to be infinite
            return None, np.inf
        if rounding < _EXACT:
            return None, rounding
        rule, error = _numerical(activation, variances)
    return (None, rounding) if rounding < error else (rule, error)


def _rounding_of_closed_form(formula: Expr | None, variances) -> float:
    """Estimate rounding errors from the cancellation between terms of mean squares."""
    if formula is None:
        return np.inf
    values = {OWN.name: variances, OTHER.name: variances}
    terms = [interpret(term, values) for term in Add.make_args(formula.subs(CORRELATION, 1))]
    ratio = sum(map(np.abs, terms)) / sum(terms)
    # The formula of an infinite mean square is negative or not real.
    return 1e-14 * float(np.max(ratio)) if np.all(ratio > 0) else np.inf


def _numerical(activation, variances) -> tuple[Rule, float]:
    edges = _edges(activation.function, variances)
    rule = Rule(activation, variances[0], variances[-1], edges)
    if len(edges) > _MOST_EDGES:
        return rule, np.inf
    found, squares = _on_host(rule, variances)
    finer, of_finer = _on_host(replace(rule, nodes=32, reach=14.0), variances)
    whole = np.where(of_finer > 0, of_finer, 1.0)
    error = 2 * np.sqrt(np.sum((finer - found) ** 2, axis=1) / whole)
    error += np.abs(of_finer - squares) / whole
    remainders = squares[:, None] - np.cumsum(found**2, axis=1)
    left = np.max(remainders / whole[:, None], axis=0).clip(0.0)
    # Without the last two terms, which are scaled.
    terms = int(next((n for n in _TERMS if left[n - 3] < _ENOUGH), _TERMS[-1]))
    omitted = left[terms - 3] + left[terms - 1]
    return replace(rule, terms=terms), 2 * float(np.max(error)) + float(omitted) + 1e-14


def _on_host(rule: Rule, variances) -> tuple[np.ndarray, np.ndarray]:
    """Return a_n(v) and mean squares, without compilation."""
    nodes = zip(*(_at_nodes(rule, deviation, np) for deviation in np.sqrt(variances)), strict=True)
    points, weights, root, values = map(np.stack, nodes)
    before, now, terms = np.zeros_like(root), root, []
    for n in range(rule.terms):
        terms.append(np.sum(weights * values * now, axis=1))
        before, now = now, (points * now - np.sqrt(n) * before) / np.sqrt(n + 1)
    return np.stack(terms, axis=1), np.sum(weights * values**2, axis=1)


def _edges(function: Expr, variances) -> tuple[float, ...]:
    """Split panels at kinks, and halve them until they resolve phi."""

    def value(points):
        return interpret(function, {UNIT.name: points})

    # Kinks and steps are where conditions of a piecewise function change.
    conditions = piecewise_fold(function.rewrite(Piecewise)).atoms(Relational)
    sides = (each.lhs - each.rhs for each in conditions)
    sides = (side for side in sides if side.is_polynomial(UNIT))
    kinks = {float(root) for side in sides for root in real_roots(side)}
    reach = Rule.reach * np.sqrt(variances[-1])
    negligible = 1e-14 * np.max(np.abs(value(np.sqrt([variances, variances]) * [[1], [-1]])))
    edges = np.unique(np.clip([-reach, -1.0, 0.0, 1.0, reach, *kinks], -reach, reach))
    while len(edges) <= _MOST_EDGES:
        left, half = edges[:-1, None], np.diff(edges)[:, None] / 2
        values, tried = (value(left + half * (1 + at)) for at in (_POINTS, _TRIED))
        largest = np.max(np.abs(values), axis=1, keepdims=True)
        error = np.abs(values @ _INTERPOLATION - tried)
        is_coarse = (error > np.maximum(_RESOLVED * largest, negligible)) & (half > _NARROWEST * reach)
        split = np.any(is_coarse, axis=1)
        if not np.any(split):
            break
        edges = np.sort(np.concatenate([edges, (left + half)[split, 0]]))
    return tuple(map(float, edges))


def _at_nodes(rule: Rule, deviation, xp=jnp) -> tuple[Array | np.ndarray, ...]:
    """Return nodes z, weights, the root of the density, and its product with phi.

    The product of the root with h_n neither overflows nor underflows.
    """
    # These panels resolve the last h_n.
    width = min(1.0, 32 / np.sqrt(rule.terms))
    grid = np.linspace(-rule.reach, rule.reach, int(np.ceil(2 * rule.reach / width)) + 1)
    edges = xp.clip(xp.asarray(rule.edges) / deviation, -rule.reach, rule.reach)
    edges = xp.sort(xp.concatenate([edges, grid]))
    points, weights = legendre.leggauss(rule.nodes)
    half = xp.diff(edges)[:, None] / 2
    # Panels without width are at kinks, where phi may be infinite.
    points = xp.where(half > 0, edges[:-1, None] + half * (1 + points), 0.0123 * rule.reach).ravel()
    root = xp.exp(-(points**2) / 4) / (2 * np.pi) ** 0.25
    at, phi = deviation * points, rule.activation
    values = apply_to(phi, at) if xp is jnp else interpret(phi.function, {UNIT.name: at})
    return points, (half * weights).ravel(), root, root * values


def mean_square(rule: Rule, variance: Float[Array, " tokens"]) -> Array:
    def of_token(deviation: Array) -> Array:
        _, weights, _, values = _at_nodes(rule, deviation)
        return jnp.sum(weights * values**2)

    return jax.lax.map(of_token, jnp.sqrt(variance), batch_size=_TOKENS)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def coefficients(rule: Rule, variance: Float[Array, " tokens"]) -> Array:
    """Return a_n(v) (tokens, terms)."""

    def of_token(deviation: Array) -> Array:
        points, weights, root, values = _at_nodes(rule, deviation)
        weighted = weights * values

        def step(pair, n):
            before, now = pair
            after = (points * now - jnp.sqrt(n) * before) / jnp.sqrt(n + 1)
            return (now, after), jnp.sum(weighted * now)

        first, n = (jnp.zeros_like(root), root), np.arange(rule.terms, dtype=float)
        return jax.lax.scan(step, first, n, unroll=2)[1]

    return jax.lax.map(of_token, jnp.sqrt(variance), batch_size=_TOKENS)


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

        return jax.lax.scan(step, jnp.zeros_like(ratio), (here, other.T), reverse=True, unroll=8)[0]

    batch = max(1, min(len(one), _ENTRIES // max(1, len(other))))
    return jax.lax.map(of_token, (one, correlation), batch_size=batch)


def with_remainder(terms: Array, mean_square: Array) -> Array:
    """Scale the last two coefficients, so that all squares sum to the mean square."""
    last = jnp.sum(terms[:, -2:] ** 2, axis=1)
    # Rounding can make the remainder negative.
    left = jnp.maximum(mean_square - jnp.sum(terms**2, axis=1), 0.0)
    scale = jnp.sqrt(1 + left / jnp.where(last > 0, last, jnp.inf))
    # Their derivatives need terms that are omitted.
    return terms.at[:, -2:].set(jax.lax.stop_gradient(terms[:, -2:] * scale[:, None]))
