"""Diagrams against orbits run one by one, continuation against neighbours, and attractors that coexist."""

import jax
import numpy as np
import pytest

from theorykit import dmft
from theorykit.dmft import diagrams
from theorykit.dynamics import regimes

from .networks import GAMMA, from_window, published, window

BETAS = np.array([0.5, 3.0, 1.28])
SHORT = diagrams.OrbitSettings(transient=2000, recorded=600, exponents=2, levels=401, width=0.02)


@pytest.fixture(scope="module")
def diagram():
    return diagrams.orbit_diagram(published(), dmft.Parameters(BETAS, GAMMA, 0.02), from_window(), SHORT)


@pytest.mark.slow
@pytest.mark.quick("1")
@pytest.mark.parametrize("orbit", range(len(BETAS)))
def test_marks_are_the_levels_that_an_orbit_visits(diagram, orbit):
    model, parameters = published(), dmft.Parameters(BETAS[orbit], GAMMA, 0.02)
    settled = dmft.discard_transient(
        model, parameters, dmft.state_from_window(model, parameters, window()), SHORT.transient
    )
    path = dmft.run(model, parameters, dmft.state_from_window(model, parameters, settled), steps=SHORT.recorded)
    spins = np.tanh(BETAS[orbit] * np.asarray(path.attention[:-1]) @ np.asarray(model.directions).T)
    overlap = 0.98 * spins @ np.asarray(model.moments[dmft.OUTPUT])
    if BETAS[orbit] == 1.28:  # chaotic: rounding parts the orbits, their extent stays
        assert abs(diagram["highest"][orbit, 0] - overlap[:, 0].max()) < 0.1
        return
    expected = np.zeros((3, SHORT.levels))
    for pattern in range(3):
        expected[pattern, np.rint((overlap[:, pattern] + 1) / 2 * (SHORT.levels - 1)).astype(int)] = 1
    np.testing.assert_array_equal(diagram["visited"][orbit], expected)
    np.testing.assert_allclose(diagram["lowest"][orbit], overlap.min(axis=0), atol=1e-10)
    np.testing.assert_allclose(diagram["highest"][orbit], overlap.max(axis=0), atol=1e-10)
    counts = [len(set(np.rint((overlap[:, pattern] + 1) / 2 * 5000))) for pattern in range(3)]
    np.testing.assert_array_equal(diagram["distinct"][orbit], counts)


def test_sections_are_the_levels_visited_near_the_plane(diagram):
    assert list(diagram["section"].values) == [f"{a} where {b} is zero" for a, b in ((1, 2), (1, 3), (2, 1), (3, 1))]
    inside = diagram["in_section"].sel(section="1 where 2 is zero").values
    whole = diagram["visited"].sel(pattern=1).values
    assert np.all(inside <= whole) and 0 < inside[2].sum() < whole[2].sum()


def test_exponents_and_regimes(diagram):
    np.testing.assert_allclose(diagram["exponent"][0], [-0.32735, -0.32738], atol=3e-3)
    # rounding decides which stretch of the chaotic orbit is seen
    assert diagram["exponent"][2, 0] > 0.04 and diagram["regime"].values[2] == "chaotic"
    assert diagram["regime"].values[0] == "periodic"
    assert np.all(diagram["exponent_error"] > 0) and np.isfinite(diagram["dimension"]).all()


def test_the_window_at_the_end_takes_the_orbit_up(diagram):
    model, parameters = published(), dmft.Parameters(0.5, GAMMA, 0.02)
    end = dmft.Window(diagram["window"].values[0], diagram.attrs["position"])
    path = dmft.run(model, parameters, dmft.state_from_window(model, parameters, end), steps=8)
    # the orbit has the period of the positions
    np.testing.assert_allclose(path.attention[:5], path.attention[4:], atol=1e-9)
    np.testing.assert_allclose(path.attention[4], end.attention[0], atol=1e-9)


@pytest.mark.slow
def test_a_phase_diagram_is_the_orbits_of_every_pair_with_both_regimes():
    model, gammas, betas = published(), np.array([GAMMA, 5.0]), np.array([0.5, 1.28, 1.4])
    settings = diagrams.OrbitSettings(transient=2000, recorded=3000, exponents=2)
    found = diagrams.phase_diagram(model, dmft.Parameters(betas, gammas[:, None], 0.02), from_window(), settings)
    assert found["regime"].dims == found["regime_by_levels"].dims == found["differs"].dims == ("gamma", "beta")
    assert found["regime_by_levels"].values[0].tolist() == ["periodic", "chaotic", "chaotic"]
    assert found["regime"].sel(beta=0.5).values.tolist() == ["periodic", "periodic"]
    again = regimes.differ(found["regime"].values, found["regime_by_levels"].values)
    np.testing.assert_array_equal(found["differs"], again)
    alone = diagrams.orbit_diagram(model, dmft.Parameters(betas, 5.0, 0.02), from_window(), settings)
    np.testing.assert_array_equal(found["distinct"].sel(gamma=5.0), alone["distinct"])


@pytest.mark.slow
def test_continuation_starts_each_value_where_its_neighbour_ended():
    model, betas = published(), np.array([1.1, 1.15, 1.2, 1.25])
    settings = diagrams.OrbitSettings(transient=100, recorded=40, exponents=0, levels=201)
    every = dmft.Parameters(betas, GAMMA, 0.02)
    found = diagrams.continuation_diagram(model, every, from_window(), settings, centre=2)
    at = window()
    for beta in (1.2, 1.15, 1.1):
        parameters = dmft.Parameters(beta, GAMMA, 0.02)
        at = dmft.discard_transient(model, parameters, dmft.state_from_window(model, parameters, at), 100)
    # `orbit_diagram` passes over one window
    parameters = dmft.Parameters(1.1, GAMMA, 0.02)
    path = dmft.run(model, parameters, dmft.state_from_window(model, parameters, at), steps=44)
    np.testing.assert_allclose(found["window"][0], path.window(model).attention, atol=1e-10)
    assert found.attrs["centre"] == 2


def test_continuation_goes_on_where_it_was_stopped(tmp_path):
    arguments = (published(), dmft.Parameters(np.linspace(1.1, 1.2, 3), GAMMA, 0.02), from_window())
    settings = diagrams.OrbitSettings(transient=100, recorded=40, exponents=0, levels=201)
    first = diagrams.continuation_diagram(*arguments, settings, folder=tmp_path)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nc")}
    again = diagrams.continuation_diagram(*arguments, settings, folder=tmp_path)
    assert kept and kept == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nc")}
    np.testing.assert_array_equal(first["visited"], again["visited"])


@pytest.mark.slow
def test_two_attractors_coexist_at_beta_1_27():
    windows = diagrams.nearby_windows(window(), 32, 1e-3, key=jax.random.key(0))
    settings = diagrams.OrbitSettings(transient=40_000, recorded=2000, exponents=2, levels=201)
    found = diagrams.coexisting_attractors(published(), dmft.Parameters(1.27, GAMMA, 0.02), windows, settings)
    assert found.sizes["basin"] == 2 and found["share"].sum() == pytest.approx(1)
    typical = found.isel(orbit=found["typical"].values)
    # extents and exponents of both are those of the note: 0.15 and -0.048, 0.17 and -0.003
    np.testing.assert_allclose(typical["highest"].sel(pattern=1), [0.146, 0.173], atol=0.002)
    np.testing.assert_allclose(typical["exponent"].sel(number=1), [-0.048, -0.003], atol=0.003)
    assert 0.5 < found["share"][0] < 0.95


KNOWN = {
    "quasi-periodic": [(1.6, 3.0), (2.0, 3.0), (2.4, 3.0), (2.8, 3.0), (1.6, 0.5)],
    "periodic": [(3.0, 5.0), (2.8, 8.0)],
    "chaotic": [(1.28, GAMMA)],
}


@pytest.mark.slow
def test_tori_and_cycles_are_not_chaos_though_they_visit_many_levels():
    """Points that the published rule calls chaotic; their exponents say otherwise."""
    points = np.array([point for points in KNOWN.values() for point in points])
    settings = diagrams.OrbitSettings(transient=20_000, recorded=20_000, exponents=2, sections=(), measured=100_000)
    parameters = dmft.Parameters(points[:, 0], points[:, 1], 0.02)
    found = diagrams.orbit_diagram(published(), parameters, from_window(), settings)
    expected = [regime for regime, points in KNOWN.items() for _ in points]
    assert found["regime"].values.tolist() == expected
    assert np.all(np.abs(found["exponent"][:5, 0]) < 5e-5) and np.all(found["exponent"][5:7, 0] < -0.05)
    by_levels = regimes.classify_by_levels(found["distinct"].sel(pattern=1).values)
    assert np.sum(regimes.differ(found["regime"].values, by_levels)) >= 4


def test_a_state_that_all_orbits_share_is_whole_though_there_are_as_many_orbits_as_slots():
    """Of 64 orbits in two blocks: the slots of a context of 64 are not taken for orbits."""
    weights = dmft.iid_weights(1, 12, 6, key=jax.random.key(0))
    model = dmft.self_attention_limit(weights, 64)
    state = dmft.token_start(model, dmft.Parameters(0.9, 3.0, 0.1), dmft.pattern_prompt(weights))
    assert diagrams._select_orbits(state, np.arange(32)).keys[0].shape == (64,)
