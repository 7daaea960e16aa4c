"""With what probability each of several independent Gaussian outputs is the largest.

P(k) is the integral over x of the density of output k and the probability that all others are below x. Panels have
edges at every output's mean, and some of its standard deviations from there, so that deviations may differ by any
factor. Of one output the logarithm is integrated about the peak of the integrand, which is log-concave; there
probabilities may be smaller than any number of double precision.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from ...codegen.functions import log_normal_cdf

# edges of panels in standard deviations of each output, and nodes of a panel
_EDGES = np.arange(-9.0, 9.1, 3.0)
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(14)
# a deviation of zero, beside the largest number of an example: rounding alone moves a mean by less
_LEAST = 1e-11
# examples whose integrals are computed at once
_TOGETHER = 64
# how far down the integrand of a logarithm is followed, and its panels on either side of the peak
_FALL, _PANELS, _HALVINGS = 45.0, 8, 80


@jax.jit
def probabilities(
    mean: Float[Array, "examples outputs"], deviation: Float[Array, "examples outputs"]
) -> Float[Array, "examples outputs"]:
    """The probability that each output is the largest."""

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
    """The logarithm of the probability that this `output` of each example is the largest."""
    return jax.lax.map(_log_probability, (*_scaled(mean, deviation), output), batch_size=_TOGETHER)


def _log_probability(parts):
    mean, deviation, output = parts
    own_mean, own_deviation = mean[output], deviation[output]
    is_other = jnp.arange(len(mean)) != output

    def away(values):
        return (values[..., None] - mean) / deviation

    def logarithm(values):
        below = jnp.sum(jnp.where(is_other, norm.logcdf(away(values)), 0.0), axis=-1)
        return norm.logpdf((values - own_mean) / own_deviation) + below

    def slope(value):
        # kept whole: far below, the logarithms of density and probability are large and alike
        ratio = log_normal_cdf(away(value), 1) / deviation
        return jnp.sum(jnp.where(is_other, ratio, 0.0)) - (value - own_mean) / own_deviation**2

    highest = jnp.maximum(jnp.max(mean + 40 * deviation), own_mean)
    peak = _halve(lambda value: slope(value) > 0, own_mean, highest)
    top = logarithm(peak)
    # the logarithm falls at least as fast as that of the output's own density
    far = np.sqrt(2 * _FALL) * own_deviation
    ends = [_halve(lambda value: logarithm(value) > top - _FALL, peak, peak + sign * far) for sign in (-1, 1)]
    grid = [jnp.linspace(peak, end, _PANELS + 1) for end in ends]
    edges = jnp.clip(_edges_of(mean, deviation), *ends)
    values, weights = _panelled(jnp.sort(jnp.concatenate([edges, *grid])))
    # rounding alone carries it above zero
    return jnp.minimum(logsumexp(logarithm(values), b=weights / own_deviation), 0.0)


def _scaled(mean: Array, deviation: Array) -> tuple[Array, Array]:
    """Means from the largest on, and deviations that are not zero."""
    scale = jnp.max(jnp.abs(mean) + deviation, axis=1, keepdims=True)
    least = _LEAST * jnp.where(scale > 0, scale, 1.0)
    return mean - jnp.max(mean, axis=1, keepdims=True), jnp.maximum(deviation, least)


def _edges_of(mean: Array, deviation: Array) -> Array:
    return (mean[:, None] + deviation[:, None] * _EDGES).ravel()


def _panelled(edges: Array) -> tuple[Array, Array]:
    left, half = edges[:-1, None], jnp.diff(edges)[:, None] / 2
    return (left + half * (1 + _POINTS)).ravel(), (half * _WEIGHTS).ravel()


def _halve(holds: Callable[[Array], Array], inside: Array, outside: Array) -> Array:
    """The last point on the way from `inside` to `outside` where the condition holds, by bisection."""

    def step(_, ends):
        middle = (ends[0] + ends[1]) / 2
        return jnp.where(holds(middle), middle, ends[0]), jnp.where(holds(middle), ends[1], middle)

    return jax.lax.fori_loop(0, _HALVINGS, step, (inside, outside))[0]
