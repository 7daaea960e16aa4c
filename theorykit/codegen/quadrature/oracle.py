"""Means over a standard normal number in NumPy: what the interpreter evaluates averages by.

It is the double-exponential rule of Takahasi and Mori (1974), which takes singularities at the ends of panels as they
are. It shares no rule with generated code, and no way to state an error.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

# in standard deviations; the density beyond is zero in float64
_EDGES = np.array([1.3, 3.1, 5.3, 8.3, 12.7, 20.0, 30.0, 38.5])
_EDGES = np.concatenate([-_EDGES[::-1], _EDGES])
_STEP = 0.2
_EXPONENTS = np.pi * np.sinh(_STEP * np.arange(-26, 27))
# parts of a panel below and above a node, both without rounding
_BELOW, _ABOVE = 1 / (1 + np.exp(-_EXPONENTS)), 1 / (1 + np.exp(_EXPONENTS))
_WEIGHTS = _STEP * np.sqrt(np.pi**2 + _EXPONENTS**2) * _BELOW * _ABOVE
_TOLERANCE = 1e-15
# of a function that rounding makes rough no number of panels is enough
_MOST_PANELS, _MOST_HALVINGS = 1024, 100

Function = Callable[[np.ndarray], np.ndarray]


def normal_mean(
    function: Function,
    breaks: Iterable[np.ndarray | float] = (),
    shape: Sequence[int] = (),
    tilt: tuple[Function, np.ndarray | float, np.ndarray | float] | None = None,
) -> np.ndarray | float | complex:
    """The mean of `function` over a standard normal number, to about 1e-14 of its size.

    Panels are halved until halving changes nothing. `function` takes an array of points whose trailing axes have
    `shape`, or could be broadcast to it, and its values have that shape too. It may have kinks, jumps and integrable
    singularities; those at the `breaks`, arrays of this shape, cost little. With a `tilt` it is multiplied by exp of
    its first entry, a + b z + c z^2, with b and c.
    """
    exponent, mean, deviation = None, np.zeros(shape), np.ones(shape)
    if tilt is not None:
        exponent, narrowing = tilt[0], 1 - 2 * np.broadcast_to(tilt[2], shape)
        deviation = 1 / np.sqrt(np.where(narrowing > 0, narrowing, 1.0))
        mean = np.where(narrowing > 0, tilt[1] * deviation**2, 0.0)

    def weighted(z: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            density = np.exp((0.0 if exponent is None else exponent(z)) - z**2 / 2)
            product = np.broadcast_to(function(z), z.shape) * density
            # an overflow far out, where a function that has a mean is nothing
            return np.where(~np.isfinite(product) & (density < 1e-150), 0.0, product)

    grid = mean + deviation * _EDGES.reshape(-1, *(1 for _ in shape))
    inner = [np.clip(np.broadcast_to(at, (1, *shape)), grid[:1], grid[-1:]) for at in breaks]
    edges = np.sort(np.concatenate([grid, *inner]), axis=0)
    left, right = edges[:-1], edges[1:]
    whole = _integrals(weighted, left, right)
    scale, total = np.nansum(np.abs(whole), axis=0), np.zeros(shape)
    for halvings in range(_MOST_HALVINGS):
        middle = (left + right) / 2
        first, second = _integrals(weighted, left, middle), _integrals(weighted, middle, right)
        # not a number is as good as it will be
        again = np.abs(first + second - whole) > _TOLERANCE * scale
        again = np.any(again, axis=tuple(range(1, again.ndim))) & (len(left) < _MOST_PANELS)
        again &= halvings < _MOST_HALVINGS - 1
        total = total + np.sum((first + second)[~again], axis=0)
        left, right = np.concatenate([left[again], middle[again]]), np.concatenate([middle[again], right[again]])
        whole = np.concatenate([first[again], second[again]])
        if not len(left):
            break
    return total / np.sqrt(2 * np.pi)


def _integrals(weighted: Function, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The integral over each of the panels, which are along the first axis."""
    ones = (1,) * (left.ndim - 1)
    below, above, weights = (each.reshape(1, -1, *ones) for each in (_BELOW, _ABOVE, _WEIGHTS))
    low, high = left[:, None], right[:, None]
    points = np.where(below < above, low + (high - low) * below, high - (high - low) * above)
    values = weighted(points.reshape(-1, *left.shape[1:])).reshape(points.shape)
    # a node that is rounded to the end of its panel may lie on a singularity, and has no weight
    values = np.where(((points == low) | (points == high)) & ~np.isfinite(values), 0.0, values)
    return np.sum(weights * values, axis=1) * (right - left)
