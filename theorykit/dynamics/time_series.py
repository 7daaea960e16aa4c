"""Statistics of orbits: the 0-1 test for chaos, spectrum, autocorrelation and period.

The functions use NumPy on finished series. Time is the last axis, in steps of the map. Every axis before it (values of
a parameter, patterns, starting windows) is a batch axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np
import scipy.fft
import xarray as xr
from jaxtyping import Complex, Float, Int

from ..checks import Count, Key, NonNegative, checked_arguments, checked_array, checked_whole_number
from ..precision import require_float64

_FREQUENCIES = (np.pi / 5, 4 * np.pi / 5)


def _series(name: str, value: Any, *, least: int = 2) -> Float[np.ndarray, "*batch time"]:
    """Return finite float64 values (..., time), with at least `least` steps."""
    array = checked_array(name, value)
    if array.ndim == 0 or array.shape[-1] < least or 0 in array.shape:
        raise ValueError(f"{name} must have at least {least} steps along its last axis, got shape {array.shape}")
    return array


Series = Annotated[Any, _series]
_LongSeries = Annotated[Any, partial(_series, least=100)]


@checked_arguments
def zero_one_test(series: _LongSeries, *, key: Key, draws: Count = 100) -> Float[np.ndarray, "*batch"]:
    """Return K of the 0-1 test for chaos for every series (..., time): near 0 if regular, near 1 if chaotic.

    The series drives a walk in the plane, p + i q = sum_t x_t exp(i c t), which stays bounded for regular dynamics and
    diffuses for chaotic dynamics. K_c is the correlation between the lag and the mean-square displacement of the walk,
    over lags up to a tenth of the series. K is the median of K_c over random frequencies c.

    About 1000 values distinguish regular from strongly chaotic dynamics. A series sampled too finely in time always
    looks regular. A constant series has K = 0, and a series that is still relaxing to a constant has negative K.

    Args:
        series: Series (..., time) of at least 100 values.
        key: Random key of the frequencies.
        draws: Number of frequencies.

    Source: G. A. Gottwald, I. Melbourne, SIAM J. Appl. Dyn. Syst. 8, 129 (2009).
    """
    require_float64()
    # Rescale first, so that sums and squares neither overflow nor vanish.
    largest = np.max(np.abs(series), axis=-1, keepdims=True)
    series = series / np.where(largest > 0, largest, 1.0)
    spread = np.ptp(series, axis=-1, keepdims=True)
    # Subtract the mean of the series, which removes an oscillating term from the displacement. Set a constant series to
    # zero explicitly, because rounding may make its computed mean differ from its value.
    centred = np.where(spread == 0, 0.0, _centre(series) / np.where(spread > 0, spread, 1.0))
    frequencies = np.asarray(jax.random.uniform(key, (draws,), minval=_FREQUENCIES[0], maxval=_FREQUENCIES[1]))
    time = series.shape[-1]
    lags = np.arange(1, time // 10 + 1)
    # Average over equally many t for every lag.
    starts, centred_lags = time - len(lags), np.arange(time // 10, dtype=float)
    centred_lags -= np.mean(centred_lags)

    def growth(frequency: float) -> np.ndarray:
        """Return the correlation of <|z_{t+n} - z_t|^2> with the lag n, or 0 without displacement."""
        walk = np.cumsum(centred * np.exp(1j * frequency * np.arange(1, time + 1)), axis=-1)
        products = _correlations(walk[..., :starts], walk, len(lags))[..., 1:]
        squares = np.cumsum(np.abs(walk) ** 2, axis=-1)
        later = squares[..., lags + starts - 1] - squares[..., lags - 1]
        deviation = _centre((squares[..., starts - 1, None] + later - 2 * products.real) / starts)
        norms = np.linalg.norm(deviation, axis=-1) * np.linalg.norm(centred_lags)
        return np.divide(deviation @ centred_lags, norms, out=np.zeros_like(norms), where=norms > 0)

    return np.asarray(np.median([growth(frequency) for frequency in frequencies], axis=0))


@checked_arguments
def autocorrelation(series: Series, lags: int) -> Float[np.ndarray, "*batch lags"]:
    """Return the autocorrelation r_k (..., lags + 1) of a series (..., time) at lags k = 0, ..., `lags`, with r_0 = 1.

    r_k = sum_t (x_t - mean) (x_{t+k} - mean) / sum_t (x_t - mean)^2. The numerator has k fewer terms than the
    denominator, so r_k of a periodic series of T steps falls as 1 - k/T.
    """
    checked_whole_number("lags", lags, least=0, most=series.shape[-1] - 1)
    spread = np.ptp(series, axis=-1, keepdims=True)
    constant = np.argwhere(spread[..., 0] == 0)
    if len(constant):
        index = tuple(constant[0].tolist())
        raise ValueError(
            f"the series at index {index} is constant, {series[index][0]}, so its autocorrelation is not defined"
        )
    # Divide by the spread, which cancels in the result, so that the squares of a tiny series do not underflow.
    centred = _centre(series) / spread
    products = _correlations(centred, centred, lags).real
    return products / np.sum(centred**2, axis=-1, keepdims=True)


def _correlations(first: np.ndarray, second: np.ndarray, lags: int) -> Complex[np.ndarray, "*batch lags"]:
    """Return sum_t conj(first_t) second_{t+k} for k = 0, ..., `lags`, over all t at which both have a value."""
    length = scipy.fft.next_fast_len(max(first.shape[-1] + lags, second.shape[-1]))
    spectrum = np.conj(scipy.fft.fft(first, length)) * scipy.fft.fft(second, length)
    return scipy.fft.ifft(spectrum)[..., : lags + 1]


@checked_arguments
def amplitude_spectrum(series: Series, axes: Sequence[str] = ()) -> xr.DataArray:
    """Return the amplitude spectrum of a series at frequencies from 0 to 1/2 cycles per step.

    Args:
        series: Series (..., time).
        axes: Names of the axes before time.

    Returns:
        The modulus of the Fourier transform, with `frequency` as its last axis. It is scaled so that a cosine of
        amplitude a at one of the frequencies k/T gives a. The value at frequency 0 is the modulus of the mean.
    """
    time = series.shape[-1]
    if len(axes) != series.ndim - 1:
        raise ValueError(f"axes must name the {series.ndim - 1} axes of series before time, got {axes}")
    modes = np.arange(time // 2 + 1)
    # The real transform folds the frequencies k and -k into one, except for k = 0 and k = T/2.
    sides = np.where((modes == 0) | (2 * modes == time), 1.0, 2.0)
    coordinates = {"frequency": ("frequency", np.fft.rfftfreq(time), {"units": "cycles per step"})}
    moduli = sides * np.abs(np.fft.rfft(series)) / time
    return xr.DataArray(moduli, dims=(*axes, "frequency"), coords=coordinates, name="amplitude")


@checked_arguments
def detect_period(series: Any, max_period: Count, tolerance: NonNegative = 1e-9) -> Int[np.ndarray, "*batch"]:
    """Return the smallest period of every series, or 0 if it has none up to `max_period`.

    The period of an orbit is the least common multiple of the periods of its components,
    `np.lcm.reduce(periods, axis=-1)`. It is 0 if a component has no period.

    Args:
        series: Series (..., time) of at least twice `max_period` steps.
        max_period: Largest period to consider.
        tolerance: Largest difference between values that are one period apart, over the whole series.

    Example:
        >>> import numpy as np
        >>> from theorykit import dynamics
        >>> int(dynamics.detect_period(np.array([0.0, 1.0, 2.0] * 10), max_period=5))
        3
    """
    values = _series("series", series, least=2 * max_period)
    periods = np.zeros(values.shape[:-1], dtype=int)
    for period in range(1, max_period + 1):
        phases = values[..., values.shape[-1] % period :].reshape(*values.shape[:-1], -1, period)
        spread = np.max(np.ptp(phases, axis=-2), axis=-1)  # between values of equal phase
        periods = np.where((periods == 0) & (spread <= tolerance), period, periods)
        if np.all(periods):
            break
    return np.asarray(periods)


def _centre(series: np.ndarray) -> np.ndarray:
    return series - np.mean(series, axis=-1, keepdims=True)
