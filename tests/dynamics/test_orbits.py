"""Orbits over parameters against orbits run one by one, levels, continuation, and escapes."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from theorykit import dmft, dynamics

from ..frozen import henon

GAMMA = 2.2 * 100 / np.sqrt(3)
WEIGHTS = dmft.Weights.published()
MODEL = dmft.SelfAttention.from_weights(WEIGHTS, 4)
START = np.array([0.1, 0.1])


def plain(height, transient, recorded, state=START):
    seen = []
    for _ in range(transient + recorded):
        state = np.array([1 - height * state[0] ** 2 + state[1], 0.3 * state[0]])
        seen.append(state)
    return np.array(seen[transient:])


def test_values_are_those_of_a_loop_in_numpy():
    heights = np.array([0.2, 0.5, 1.0])
    found = dynamics.orbits(henon, heights, START, transient=300, recorded=40, exponents=2)
    assert found["values"].dims == ("orbit", "step", "component")
    for orbit, height in enumerate(heights):
        expected = plain(height, 300, 40)
        np.testing.assert_allclose(found["values"][orbit], expected, atol=1e-9)
    np.testing.assert_array_equal(found["parameter"], heights)
    assert found["regime"].values.tolist() == ["periodic"] * 3
    # The determinant of the Jacobian is -0.3.
    np.testing.assert_allclose(found["exponent"].sum("number"), np.log(0.3), atol=1e-9)


def test_levels_are_the_visited_ones_and_nan_is_left_out():
    levels, heights = np.linspace(-1.5, 1.5, 301), np.array([0.9, 1.2])

    def section(state, height):
        return jnp.array([state[0], jnp.where(jnp.abs(state[1]) < 0.1, state[0], jnp.nan)])

    found = dynamics.orbits(henon, heights, START, transient=0, recorded=30, observe=section, levels=levels)
    for orbit, height in enumerate(heights):
        expected = plain(height, 0, 30)
        near = expected[np.abs(expected[:, 1]) < 0.1]
        for component, values in enumerate((expected[:, 0], near[:, 0])):
            marks = np.zeros(301)
            marks[np.rint((values + 1.5) / 0.01).astype(int)] = 1
            np.testing.assert_array_equal(found["visited"][orbit, component], marks)


def test_orbits_that_escape_or_are_regular_are_not_chaotic():
    found = dynamics.orbits(henon, np.array([0.5, 3.0]), START, recorded=40, exponents=2)
    assert found["regime"].values.tolist() == ["periodic", "escaped"]
    # Slopes of a linear map are finite.
    found = dynamics.orbits(lambda x, p: p * x, np.array([0.5, 1.5, 7.0]), START, recorded=40, exponents=2)
    assert found["regime"].values.tolist() == ["periodic", "escaped", "escaped"]
    # On tori of the standard map, perturbations grow like time, and exponents are zero.
    standard = lambda at, kick: jnp.cumsum(jnp.array([at[1] + kick * jnp.sin(at[0]), at[0]]))[::-1]  # noqa: E731
    start = lambda kick: jnp.array([np.pi + 3 * kick - 1.4, 0.0])  # noqa: E731
    for recorded in (40, 400, 4000):
        found = dynamics.orbits(standard, np.linspace(0.5, 0.9, 41), start, recorded=recorded, exponents=2)
        assert set(found["regime"].values) == {"undecided"}


def start_at(parameters):
    return MODEL.start(parameters, WEIGHTS.prompt(), "window")


def test_orbits_of_the_network_are_runs_of_their_own(tmp_path):
    """In several blocks, the last of which is filled up, and read back from a folder."""
    betas = np.linspace(0.5, 1.2, 260)
    asked = {"transient": 60, "recorded": 20, "observe": lambda state, _: state.attention[0], "folder": tmp_path}
    found = dynamics.orbits(MODEL, dmft.Parameters(betas, GAMMA, 0.02), start_at, **asked)
    np.testing.assert_array_equal(found["beta"], betas)
    for orbit in (0, 100, 259):
        parameters = dmft.Parameters(betas[orbit], GAMMA, 0.02)
        path = dmft.run(MODEL, start_at(parameters), parameters, steps=80)
        np.testing.assert_allclose(found["values"][orbit], path.attention[61:], atol=1e-9)
    assert len(list(tmp_path.glob("*.nc.gz"))) == 8
    again = dynamics.orbits(MODEL, dmft.Parameters(betas, GAMMA, 0.02), start_at, **asked)
    xr.testing.assert_identical(again, found)


def test_regimes_of_the_network():
    def observe(state, parameters):
        return MODEL.overlaps(parameters, state.attention[0])[dmft.OUTPUT]

    parameters = dmft.Parameters(np.array([0.5, 1.28]), GAMMA, 0.02)
    asked = {"transient": 4000, "recorded": 4000, "exponents": 2}
    found = dynamics.orbits(MODEL, parameters, start_at, observe=observe, levels=np.linspace(-1, 1, 401), **asked)
    assert found["regime"].values.tolist() == ["periodic", "chaotic"]
    np.testing.assert_allclose(found["exponent"][0], [-0.32735, -0.32738], atol=3e-3)
    counts = found["visited"].sum("level")
    assert np.all(counts[0] < 5) and np.all(counts[1] > 20)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="recorded=30 must be a multiple of 20"):
        dynamics.orbits(henon, np.array([1.0]), START, recorded=30, exponents=1)
    with pytest.raises(ValueError, match="exponents must be"):
        dynamics.orbits(henon, np.array([1.0]), START, recorded=40, exponents=3)
    with pytest.raises(ValueError, match="an entry per orbit"):
        dynamics.orbits(henon, 1.0, START)
    for levels in ([0.0], [0.0, 0.1, 1.0], [0.0, np.nan, 1.0], [1.0, 1.0]):
        with pytest.raises(ValueError, match="evenly spaced"):
            dynamics.orbits(henon, np.array([1.0]), START, levels=np.array(levels))
    for step, said in ((lambda x, _: [*x], "step maps start float64"), (lambda x, _: np.sin(x), "must be in JAX")):
        with pytest.raises((TypeError, ValueError), match=said):
            dynamics.orbits(step, np.array([1.0]), START)
    for start in (np.float32(0.5), 2):
        assert dynamics.advance(lambda x, r: r * x, start, np.float32(3), 2).dtype == float
        assert dynamics.lyapunov_spectrum(lambda x, r: r * x, start, np.float32(3), steps=20).errors < 1e-12
    with pytest.raises(ValueError, match="start is not finite in 1 entry"):
        dynamics.advance(henon, np.array([np.nan, 0.0]), 1.0, 5)
