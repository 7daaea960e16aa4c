"""Statistics of orbits whose answers are known: the logistic map, rotations, autoregressive noise."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit.dynamics import time_series

SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.sampled_from([(7,), (64,), (2, 3, 33)])
# irrational multiples of a turn
FREQUENCIES = st.sampled_from([(np.sqrt(5) - 1) / 2, np.sqrt(2) / 7, 1 / np.e])
KEY = jax.random.key(0)


def random_series(seed, shape):
    return np.random.default_rng(seed).normal(size=shape)


def logistic(rate, steps, start, transient=500):
    """An orbit of x -> rate x (1 - x)."""
    value, orbit = start, []
    for _ in range(transient + steps):
        value = rate * value * (1 - value)
        orbit.append(value)
    return np.array(orbit[transient:])


# ---- 0-1 test


@given(start=st.floats(0.26, 0.39))  # 1/4 falls on the fixed point
def test_the_logistic_map_is_chaotic_at_4(start):
    assert time_series.zero_one_test(logistic(4.0, 2000, start), key=KEY) > 0.95


@pytest.mark.parametrize("scale", [1e-300, 1e-100, 1e100, 1e300])
def test_chaos_is_chaos_at_any_scale(scale):
    chaotic, periodic = logistic(4.0, 2000, 0.3), logistic(3.5, 2000, 0.3)
    found = time_series.zero_one_test(scale * np.stack([chaotic, periodic]), key=KEY)
    np.testing.assert_allclose(found, time_series.zero_one_test(np.stack([chaotic, periodic]), key=KEY), atol=1e-9)
    assert found[0] > 0.95 and abs(found[1]) < 0.1


@given(frequency=FREQUENCIES, start=st.floats(0.11, 0.39))
def test_rotations_and_periodic_orbits_are_regular(frequency, start):
    turns = frequency * np.arange(2000)
    two_tones = np.cos(2 * np.pi * turns) + 0.5 * np.cos(2 * np.pi * np.sqrt(3) * turns + start)
    regular = np.stack([np.cos(2 * np.pi * turns), two_tones, logistic(3.5, 2000, start)])
    assert np.all(np.abs(time_series.zero_one_test(regular, key=KEY)) < 0.1)


@given(seed=SEEDS, time=st.sampled_from([100, 137]))
def test_zero_one_test_is_the_median_correlation_of_displacement_and_lag(seed, time):
    series, key = random_series(seed, time), jax.random.key(seed)
    fluctuations = series - np.mean(series)
    lags = np.arange(1, time // 10 + 1)
    statistics = []
    for frequency in np.asarray(jax.random.uniform(key, (5,), minval=np.pi / 5, maxval=4 * np.pi / 5)):
        p = np.cumsum([x * np.cos((t + 1) * frequency) for t, x in enumerate(fluctuations)])
        q = np.cumsum([x * np.sin((t + 1) * frequency) for t, x in enumerate(fluctuations)])
        displacement = [
            np.mean([(p[t + n] - p[t]) ** 2 + (q[t + n] - q[t]) ** 2 for t in range(time - len(lags))]) for n in lags
        ]
        statistics.append(np.corrcoef(lags, displacement)[0, 1])
    np.testing.assert_allclose(
        time_series.zero_one_test(series, key=key, draws=5), np.median(statistics), rtol=0, atol=1e-10
    )


@given(seed=SEEDS, scale=st.sampled_from([-3.0, 1e-4]))
def test_zero_one_test_knows_neither_scale_nor_offset_nor_batch(seed, scale):
    series = random_series(seed, (2, 3, 150))
    batch = time_series.zero_one_test(series, key=KEY, draws=7)
    assert batch.shape == (2, 3)
    np.testing.assert_allclose(time_series.zero_one_test(scale * series + 2, key=KEY, draws=7), batch, atol=1e-6)
    single = [[time_series.zero_one_test(row, key=KEY, draws=7) for row in rows] for rows in series]
    np.testing.assert_allclose(single, batch, rtol=0, atol=1e-12)


def test_a_constant_series_is_regular():
    series = np.stack([np.full(200, 0.1), logistic(4.0, 200, 0.3)])
    statistic = time_series.zero_one_test(series, key=KEY)
    assert statistic[0] == 0
    assert statistic[1] > 0.7


def test_relaxation_is_not_chaos():
    assert time_series.zero_one_test(np.exp(-0.01 * np.arange(1000)), key=KEY) < 0


# ---- correlation and spectrum


@given(seed=SEEDS, shape=SHAPES)
def test_autocorrelation_is_that_of_the_sums(seed, shape):
    series, time = random_series(seed, shape) + 1.0, shape[-1]
    deviations = series - series.mean(axis=-1, keepdims=True)
    for lags in (0, 3, time - 1):
        found = time_series.autocorrelation(series, lags)
        sums = [np.sum(deviations[..., : time - lag] * deviations[..., lag:], axis=-1) for lag in range(lags + 1)]
        np.testing.assert_allclose(found, np.stack(sums, axis=-1) / sums[0][..., None], rtol=0, atol=1e-12)


@given(seed=SEEDS, scale=st.sampled_from([-1e-200, 1e100]))
def test_autocorrelation_knows_no_scale(seed, scale):
    series = random_series(seed, 50)
    found = time_series.autocorrelation(scale * series, 9)
    np.testing.assert_allclose(found, time_series.autocorrelation(series, 9), rtol=0, atol=1e-12)


@given(seed=SEEDS, time=st.sampled_from([8, 9, 50]))
def test_amplitudes_are_those_of_the_cosines_in_a_series(seed, time):
    generator = np.random.default_rng(seed)
    steps, modes = np.arange(time), time // 2 + 1
    amplitudes, phases = generator.uniform(0.1, 2, modes), generator.uniform(0, 2 * np.pi, modes)
    # the first and, of an even number of steps, the last mode have no phase
    phases[0] = phases[-1] = 0
    series = sum(
        a * np.cos(2 * np.pi * mode * steps / time + phase)
        for mode, (a, phase) in enumerate(zip(amplitudes, phases, strict=True))
    )
    spectrum = time_series.amplitude_spectrum(np.stack([series, -2 * series]), ["orbit"])
    np.testing.assert_allclose(spectrum, [amplitudes, 2 * amplitudes], rtol=1e-10)
    np.testing.assert_allclose(spectrum.frequency, np.arange(modes) / time, rtol=1e-12)


# ---- periods


@given(periods=st.permutations([1, 2, 5, 6]), seed=SEEDS)
def test_the_period_of_repeated_values_is_found(periods, seed):
    series = np.stack([np.resize(random_series(seed, period), 61) for period in periods])
    np.testing.assert_array_equal(time_series.detect_period(series, 30), periods)
    np.testing.assert_array_equal(time_series.detect_period(series, 5), [p if p <= 5 else 0 for p in periods])
    jointly = np.sum(series, axis=0)
    assert time_series.detect_period(jointly, 30) == 30 == np.lcm.reduce(time_series.detect_period(series, 30))


def test_periods_of_the_logistic_map():
    orbits = np.stack([logistic(rate, 256, 0.3, transient=5000) for rate in (2.5, 3.2, 3.5, 3.55, 3.83, 4.0)])
    np.testing.assert_array_equal(time_series.detect_period(orbits, 100, 1e-6), [1, 2, 4, 8, 3, 0])


def test_slow_drift_is_no_period():
    drifting = 1e-4 * np.arange(100)
    assert time_series.detect_period(drifting, 20, tolerance=1e-3) == 0
    assert time_series.detect_period(drifting, 20, tolerance=1e-2) == 1
