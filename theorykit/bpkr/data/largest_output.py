"""Compute the probability that each of several independent Gaussian outputs is the largest.

P(k) is the integral over x of the density of output k times the probability that all other outputs are below x. The
edges of panels are at every output's mean and at multiples of its standard deviation from the mean, so standard
deviations may differ by any factor. For the log probability of one output we integrate about the peak of the integrand,
which is log-concave. The result is accurate even if the probability is too small for double precision.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from ...codegen.functions import log_normal_cdf

# Edges of panels in standard deviations of each output. The density beyond nine is negligible.
_EDGES = np.arange(-9.0, 9.1, 3.0)
# Nodes and weights of Gauss-Legendre quadrature on a panel.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(14)
# Smallest standard deviation relative to the largest number of an example. Rounding errors of means are smaller.
_LEAST = 1e-11
# Number of examples per batch.
_TOGETHER = 64
# Drop of the log-integrand at which we cut off: exp(-45) is below double precision.
_FALL = 45.0
# Number of panels on either side of the peak.
_PANELS = 8
# Number of bisection steps, enough to reach double precision.
_HALVINGS = 80


@jax.jit
def probabilities(
    mean: Float[Array, "examples outputs"], deviation: Float[Array, "examples outputs"]
) -> Float[Array, "examples outputs"]:
    """Return the probability that each output is the largest."""

    def of_example(moments):
        mean, deviation = moments
        values, weights = _panelled(jnp.sort(_edges_of(mean, deviation)))
        away = (values - mean[:, None]) / deviation[:, None]
        below = norm.logcdf(away)
        others = jnp.sum(below, axis=0) - below
        found = jnp.sum(weights * jnp.exp(norm.logpdf(away) + others) / deviation[:, None], axis=1)
        return found / jnp.sum(found)

    return jax.lax.map(of_example, _scaled(mean, deviation), batch_size=_TOGETHER)


@jax.jit
def log_probability(
    mean: Float[Array, "examples outputs"], deviation: Float[Array, "examples outputs"], output: Int[Array, " examples"]
) -> Float[Array, " examples"]:
    """Return the log probability that the given `output` of each example is the largest."""

    def of_example(parts):
        mean, deviation, output = parts
        own_mean, own_deviation = mean[output], deviation[output]
        is_other = jnp.arange(len(mean)) != output

        def away(values):
            return (values[..., None] - mean) / deviation

        def logarithm(values):
            below = jnp.sum(jnp.where(is_other, norm.logcdf(away(values)), 0.0), axis=-1)
            return norm.logpdf((values - own_mean) / own_deviation) + below

        def slope(value):
            # This ratio avoids the difference of two logarithms that are large and nearly equal in the lower tail.
            ratio = log_normal_cdf(away(value), 1) / deviation
            return jnp.sum(jnp.where(is_other, ratio, 0.0)) - (value - own_mean) / own_deviation**2

        highest = jnp.maximum(jnp.max(mean + 40 * deviation), own_mean)
        peak = _halve(lambda value: slope(value) > 0, own_mean, highest)
        top = logarithm(peak)
        # The log-integrand falls at least as fast as the log density of the output itself.
        far = np.sqrt(2 * _FALL) * own_deviation
        ends = [_halve(lambda value: logarithm(value) > top - _FALL, peak, peak + sign * far) for sign in (-1, 1)]
        grid = [jnp.linspace(peak, end, _PANELS + 1) for end in ends]
        edges = jnp.clip(_edges_of(mean, deviation), *ends)
        values, weights = _panelled(jnp.sort(jnp.concatenate([edges, *grid])))
        # Rounding can make the log probability positive.
        return jnp.minimum(logsumexp(logarithm(values), b=weights / own_deviation), 0.0)

    return jax.lax.map(of_example, (*_scaled(mean, deviation), output), batch_size=_TOGETHER)


def _scaled(mean: Array, deviation: Array) -> tuple[Array, Array]:
    """Shift the means so that the largest is zero, and make the standard deviations positive."""
    scale = jnp.max(jnp.abs(mean) + deviation, axis=1, keepdims=True)
    least = _LEAST * jnp.where(scale > 0, scale, 1.0)
    return mean - jnp.max(mean, axis=1, keepdims=True), jnp.maximum(deviation, least)


def _edges_of(mean: Array, deviation: Array) -> Array:
    return (mean[:, None] + deviation[:, None] * _EDGES).ravel()


def _panelled(edges: Array) -> tuple[Array, Array]:
    left, half = edges[:-1, None], jnp.diff(edges)[:, None] / 2
    return (left + half * (1 + _POINTS)).ravel(), (half * _WEIGHTS).ravel()


def _halve(holds: Callable[[Array], Array], inside: Array, outside: Array) -> Array:
    """Bisect for the last point between `inside` and `outside` at which the condition holds."""

    def step(_, ends):
        middle = (ends[0] + ends[1]) / 2
        return jnp.where(holds(middle), middle, ends[0]), jnp.where(holds(middle), ends[1], middle)

    return jax.lax.fori_loop(0, _HALVINGS, step, (inside, outside))[0]
