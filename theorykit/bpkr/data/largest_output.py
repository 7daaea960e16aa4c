"""Probability that each of several independent Gaussian outputs is the largest.

P(k) is the integral over x of the density of output k times the probability
that all others are below x. Panels have edges at multiples of every standard
deviation from its mean. For the log probability of one output we integrate
where its integrand, which is log-concave, is not negligible.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import log_ndtr, logsumexp

Outputs = Float[np.ndarray, "examples outputs"]

# Edges in standard deviations. The density beyond nine is negligible.
_EDGES = np.arange(-9.0, 9.1, 3.0)
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(14)
# Smallest standard deviation relative to the largest number of an example.
_LEAST = 1e-11
# Number of values of the integrand in memory at a time.
_HELD = 2**20
# Drop of the log-integrand at which we cut off: exp(-45) is negligible.
_FALL = 45.0
# Panels and points between the cutoffs, and searches for the cutoffs, each of
# which narrows the interval up to sixteenfold.
_PANELS, _GRID, _ZOOMS = 16, 33, 14


def probabilities(mean: Outputs, deviation: Outputs) -> Outputs:
    """Return the probability that each output is the largest."""
    mean, deviation = _scaled(mean, deviation)
    found = np.exp(_log_integrals(mean, deviation, _edges_of(mean, deviation)))
    return found / np.sum(found, axis=1, keepdims=True)


def log_probability(
    mean: Outputs, deviation: Outputs, output: Int[np.ndarray, " examples"]
) -> Float[np.ndarray, " examples"]:
    """Return the log probability, however small, that `output` is the largest."""
    mean, deviation = _scaled(mean, deviation)
    rows, own = np.arange(len(mean)), (np.arange(len(mean)), output)
    # The peak is between the output's mean and the largest relevant value.
    # The integrand falls at least as fast as the output's density about it.
    far = np.sqrt(2 * _FALL) * deviation[own]
    low = mean[own] - far
    high = np.maximum(np.max(mean + 40 * deviation, axis=1), mean[own]) + far
    for _ in range(_ZOOMS):
        grid = np.linspace(low, high, _GRID, axis=1)
        terms = _log_integrand(mean, deviation, grid)[rows, :, output]
        is_seen = terms >= np.max(terms, axis=1, keepdims=True) - _FALL
        first, last = np.argmax(is_seen, axis=1), _GRID - 1 - np.argmax(is_seen[:, ::-1], axis=1)
        low, high = grid[rows, np.maximum(first - 1, 0)], grid[rows, np.minimum(last + 1, _GRID - 1)]
    edges = np.clip(_edges_of(mean, deviation), low[:, None], high[:, None])
    grid = np.linspace(low, high, _PANELS + 1, axis=1)
    found = _log_integrals(mean, deviation, np.concatenate([edges, grid], axis=1))
    # Rounding can make the log probability positive.
    return np.minimum(found[own], 0.0)


def _scaled(mean: Outputs, deviation: Outputs) -> tuple[Outputs, Outputs]:
    """Shift the largest mean to zero, and make standard deviations positive."""
    scale = np.max(np.abs(mean) + deviation, axis=1, keepdims=True)
    least = _LEAST * np.where(scale > 0, scale, 1.0)
    return mean - np.max(mean, axis=1, keepdims=True), np.maximum(deviation, least)


def _edges_of(mean: Outputs, deviation: Outputs) -> Float[np.ndarray, "examples edges"]:
    return (mean[:, :, None] + deviation[:, :, None] * _EDGES).reshape(len(mean), -1)


def _log_integrand(mean: Outputs, deviation: Outputs, values: np.ndarray) -> np.ndarray:
    """Return the log-integrand of every output (examples, values, outputs)."""
    away = (values[:, :, None] - mean[:, None]) / deviation[:, None]
    below = log_ndtr(away)
    own = away**2 / 2 + np.log(deviation * np.sqrt(2 * np.pi))[:, None]
    return np.sum(below, axis=2, keepdims=True) - below - own


def _log_integrals(mean: Outputs, deviation: Outputs, edges: np.ndarray) -> Outputs:
    """Return the logarithm of the integral for every output, over panels."""
    found, nodes = np.empty_like(mean), len(_POINTS) * edges.shape[1]
    batch = max(1, _HELD // (mean.shape[1] * nodes))
    for first in range(0, len(mean), batch):
        some = slice(first, first + batch)
        ends = np.sort(edges[some], axis=1)[:, :, None]
        left, half = ends[:, :-1], np.diff(ends, axis=1) / 2
        values, weights = (part.reshape(len(left), -1) for part in (left + half * (1 + _POINTS), half * _WEIGHTS))
        terms = _log_integrand(mean[some], deviation[some], values)
        found[some] = logsumexp(terms, b=weights[:, :, None], axis=1)
    return found
