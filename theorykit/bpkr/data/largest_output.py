"""Compute the probability that each of several independent Gaussian outputs is the largest.

P(k) is the integral over x of the density of output k times the probability that all other outputs
are below x. The edges of panels are at every output's mean and at multiples of its standard
deviation from the mean, so standard deviations may differ by any factor. For the log probability of
one output we integrate about the peak of the integrand, which is log-concave. The result is accurate
even if the probability is too small for double precision.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int
from scipy.special import erfcx, log_ndtr, logsumexp

Outputs = Float[np.ndarray, "examples outputs"]

# Edges of panels in standard deviations of each output. The density beyond nine is negligible.
_EDGES = np.arange(-9.0, 9.1, 3.0)
# Nodes and weights of Gauss-Legendre quadrature on a panel.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(14)
# Smallest standard deviation relative to the largest number of an example. Rounding errors of means are smaller.
_LEAST = 1e-11
# Number of values of the integrand in memory at a time.
_HELD = 2**20
# Drop of the log-integrand at which we cut off: exp(-45) is below double precision.
_FALL = 45.0
# Number of panels on either side of the peak.
_PANELS = 8
# Number of bisection steps, enough to reach double precision.
_HALVINGS = 80


def probabilities(mean: Outputs, deviation: Outputs) -> Outputs:
    """Return the probability that each output is the largest."""
    mean, deviation = _scaled(mean, deviation)
    found = np.exp(_log_integrals(mean, deviation, _edges_of(mean, deviation)))
    return found / np.sum(found, axis=1, keepdims=True)


def log_probability(
    mean: Outputs, deviation: Outputs, output: Int[np.ndarray, " examples"]
) -> Float[np.ndarray, " examples"]:
    """Return the log probability that the given `output` of each example is the largest."""
    mean, deviation = _scaled(mean, deviation)
    chosen = np.arange(len(mean)), output
    own_mean, own_deviation = mean[chosen], deviation[chosen]
    is_other = np.arange(mean.shape[1]) != output[:, None]

    def logarithm(value):
        below = np.where(is_other, log_ndtr((value[:, None] - mean) / deviation), 0.0)
        return np.sum(below, axis=1) - ((value - own_mean) / own_deviation) ** 2 / 2

    def slope(value):
        # The ratio of density and distribution function, without a difference of large logarithms.
        away = (value[:, None] - mean) / deviation
        ratio = np.sqrt(2 / np.pi) / erfcx(-away / np.sqrt(2)) / deviation
        return np.sum(np.where(is_other, ratio, 0.0), axis=1) - (value - own_mean) / own_deviation**2

    highest = np.maximum(np.max(mean + 40 * deviation, axis=1), own_mean)
    peak = _halve(lambda value: slope(value) > 0, own_mean, highest)
    top = logarithm(peak)
    # The log-integrand falls at least as fast as the log density of the output itself.
    far = np.sqrt(2 * _FALL) * own_deviation
    ends = [_halve(lambda value: logarithm(value) >= top - _FALL, peak, peak + sign * far) for sign in (-1, 1)]
    grid = [np.linspace(peak, end, _PANELS + 1, axis=1) for end in ends]
    edges = np.clip(_edges_of(mean, deviation), ends[0][:, None], ends[1][:, None])
    found = _log_integrals(mean, deviation, np.concatenate([edges, *grid], axis=1))[chosen]
    # Rounding can make the log probability positive.
    return np.minimum(found, 0.0)


def _scaled(mean: Outputs, deviation: Outputs) -> tuple[Outputs, Outputs]:
    """Shift the means so that the largest is zero, and make the standard deviations positive."""
    scale = np.max(np.abs(mean) + deviation, axis=1, keepdims=True)
    least = _LEAST * np.where(scale > 0, scale, 1.0)
    return mean - np.max(mean, axis=1, keepdims=True), np.maximum(deviation, least)


def _edges_of(mean: Outputs, deviation: Outputs) -> Float[np.ndarray, "examples edges"]:
    return (mean[:, :, None] + deviation[:, :, None] * _EDGES).reshape(len(mean), -1)


def _log_integrals(mean: Outputs, deviation: Outputs, edges: Float[np.ndarray, "examples edges"]) -> Outputs:
    """Return the logarithm of the integral for every output, over panels between the sorted edges."""
    found, (outputs, nodes) = np.empty_like(mean), (mean.shape[1], len(_POINTS) * edges.shape[1])
    batch = max(1, _HELD // (outputs * nodes))
    for first in range(0, len(mean), batch):
        some = slice(first, first + batch)
        ends = np.sort(edges[some], axis=1)
        left, half = ends[:, :-1, None], np.diff(ends, axis=1)[:, :, None] / 2
        values, weights = left + half * (1 + _POINTS), half * _WEIGHTS / np.sqrt(2 * np.pi)
        away = (values[..., None] - mean[some, None, None]) / deviation[some, None, None]
        below = log_ndtr(away)
        others = np.sum(below, axis=3, keepdims=True) - below
        terms = others - away**2 / 2 - np.log(deviation[some, None, None])
        found[some] = logsumexp(terms, b=weights[..., None], axis=(1, 2))
    return found


def _halve(holds: Callable[[np.ndarray], np.ndarray], inside: np.ndarray, outside: np.ndarray) -> np.ndarray:
    """Bisect for the last points between `inside` and `outside` at which the condition holds."""
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        held = holds(middle)
        inside, outside = np.where(held, middle, inside), np.where(held, outside, middle)
    return inside
