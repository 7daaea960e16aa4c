"""Means over a standard normal number by adaptive quadrature, in NumPy: what the interpreter evaluates averages by.

It shares nothing with the Gauss-Hermite quadrature of generated code.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

# the density beyond is below 1e-56
_RANGE = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_TOLERANCE = 1e-15
# of a function that rounding makes rough no number of panels is enough
_MOST_PANELS = 128


def normal_mean(
    function: Callable[[np.ndarray], np.ndarray], breaks: Iterable[np.ndarray | float] = (), shape: Sequence[int] = ()
) -> np.ndarray | float:
    """The mean of `function` over a standard normal number, to about 1e-14 of its size.

    Gauss-Legendre quadrature over panels, each halved until halving it changes nothing. `function` takes an array of
    points whose trailing axes have `shape`, or could be broadcast to it, and its values have that shape too. It may
    have kinks and jumps, and those at the `breaks`, arrays of this shape, cost nothing.
    """
    grid = np.arange(-_RANGE, _RANGE + 1.0).reshape(-1, *(1 for _ in shape))
    inner = [np.clip(at, -_RANGE, _RANGE) for at in breaks]
    edges = np.sort(
        np.concatenate([np.broadcast_to(each, (len(each), *shape)) for each in (grid, *([b] for b in inner))]), axis=0
    )
    left, right = edges[:-1], edges[1:]
    whole = _integrals(function, left, right)
    scale, total = np.sum(np.abs(whole), axis=0), np.zeros(shape)
    while len(left):
        middle = (left + right) / 2
        first, second = _integrals(function, left, middle), _integrals(function, middle, right)
        # not a number is as good as it will be
        again = np.abs(first + second - whole) > _TOLERANCE * scale
        again = np.any(again, axis=tuple(range(1, again.ndim))) & (len(left) < _MOST_PANELS)
        total = total + np.sum((first + second)[~again], axis=0)
        left, right = np.concatenate([left[again], middle[again]]), np.concatenate([middle[again], right[again]])
        whole = np.concatenate([first[again], second[again]])
    return total


def _integrals(function: Callable[[np.ndarray], np.ndarray], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The integral of `function` times the normal density over each of the panels, which are along the first axis."""
    ones = (1,) * (left.ndim - 1)
    nodes, weights = _NODES.reshape(1, -1, *ones), _WEIGHTS.reshape(1, -1, *ones)
    points = (left[:, None] + right[:, None]) / 2 + (right - left)[:, None] / 2 * nodes
    values = np.broadcast_to(
        function(points.reshape(-1, *left.shape[1:])), (points.size // left[0].size, *left.shape[1:])
    )
    density = np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
    return np.sum(weights * density * values.reshape(points.shape), axis=1) * (right - left) / 2
