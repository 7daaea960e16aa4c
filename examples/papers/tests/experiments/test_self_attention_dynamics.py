"""Tests of small trajectories and orbit diagrams: known regimes, the map's own equation, and resuming."""

import os
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from papers import self_attention_dynamics as experiment
from theorykit import dmft, store
from theorykit.dmft import diagrams

SETTINGS = experiment.SelfAttentionDynamics(
    betas=(0.5, 1.28),
    transient=2000,
    recorded=4000,
    shown=500,
    diagram=experiment.Range(0.5, 1.5, 3, recorded=400, transient=2000),
    zoom=experiment.Range(1.27, 1.28, 3, recorded=400, transient=2000),
    phases=experiment.Phases(2, transient=200, recorded=100, measured=200),
    exponents=2,
)


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    return tmp_path_factory.mktemp("partial")


@pytest.fixture(scope="module")
def result(partial) -> xr.DataTree:
    with pytest.MonkeyPatch.context() as patched:
        # A second thread would compile the same functions at the same time.
        patched.setattr(os, "cpu_count", lambda: 1)
        return experiment.run(SETTINGS, partial)


@pytest.fixture
def computing_forbidden(monkeypatch):
    """Forbid the computation of single orbits and of diagrams."""

    def forbidden(what: str):
        def refuse(*args, **kwargs):
            raise AssertionError(f"{what} computed again")

        return refuse

    monkeypatch.setattr(experiment, "orbit", forbidden("an orbit is"))
    monkeypatch.setattr(diagrams, "_block", forbidden("a diagram is"))


@pytest.mark.slow
def test_a_hot_network_follows_the_positions_alone(result):
    orbit = result["trajectories"].to_dataset().sel(beta=0.5)
    assert orbit["regime"].item() == "periodic"
    assert orbit["period"].item() == 4
    assert orbit["dimension"].item() == 0
    assert abs(orbit["chaos"].item()) < 0.1
    driven = orbit["amplitude"].sel(frequency=[0.0, 0.25, 0.5])
    assert float(orbit["amplitude"].drop_sel(frequency=driven["frequency"]).max()) < 1e-9
    np.testing.assert_allclose(orbit["autocorrelation"].isel(lag=4), 1, atol=2e-3)


@pytest.mark.slow
def test_the_known_chaos_is_found(result):
    orbit = result["trajectories"].to_dataset().sel(beta=1.28)
    exponent, error = (orbit[name].sel(number=1).item() for name in ("exponent", "exponent_error"))
    assert exponent == pytest.approx(0.146, abs=4 * error)
    assert error < 0.02
    assert orbit["regime"].item() == "chaotic"
    assert orbit["period"].item() == 0
    assert 2 < orbit["dimension"].item() < 3
    assert orbit["chaos"].item() > 0.95
    assert float(orbit["autocorrelation"].isel(lag=slice(200, None)).max()) < 0.5


@pytest.mark.slow
def test_overlaps_follow_from_the_attentions_before_them(result):
    weights = dmft.published_weights().semantic[dmft.OUTPUT].astype(float)
    for beta in SETTINGS.betas:
        orbit = result["trajectories"].to_dataset().sel(beta=beta)
        fields = np.tanh(beta * weights.T @ orbit["attention"].values)  # Eq. (4)
        expected = 0.98 * weights @ fields / weights.shape[1]
        np.testing.assert_allclose(orbit["overlap"].values[:, 1:], expected[:, :-1], atol=1e-14)
        np.testing.assert_array_equal(np.diff(orbit["position"]) % 4, 1)


@pytest.mark.slow
def test_the_diagram_marks_what_the_trajectory_visits(result):
    marks = result["diagram"].to_dataset().sel(beta=0.5)
    overlaps = result["trajectories"].to_dataset().sel(beta=0.5)["overlap"]
    for pattern in overlaps["pattern"].values:
        visited = marks["level"].values[marks["visited"].sel(pattern=pattern).values == 1]
        levels = np.unique(np.rint((overlaps.sel(pattern=pattern).values + 1) * 1000)) / 1000 - 1
        np.testing.assert_allclose(visited, levels, atol=1e-12)
    assert marks["regime"].item() == "periodic"
    assert result["zoom"].to_dataset().sel(beta=1.28)["regime"].item() == "chaotic"


@pytest.mark.slow
def test_both_diagrams_are_over_evenly_spaced_betas(result):
    for name in ("diagram", "zoom"):
        over = getattr(SETTINGS, name)
        np.testing.assert_allclose(result[name]["beta"], np.linspace(over.lowest, over.highest, over.values))
        assert result[name].sizes["number"] == SETTINGS.exponents


@pytest.mark.slow
def test_a_second_run_reads_what_the_first_left(result, partial, computing_forbidden):
    again = experiment.run(SETTINGS, partial)
    for name in ("trajectories", "diagram", "zoom"):
        xr.testing.assert_identical(again[name].to_dataset(), result[name].to_dataset())


@pytest.mark.slow
def test_an_interrupted_run_computes_the_missing_orbit_alone(result, partial, monkeypatch, computing_forbidden):
    (partial / "trajectories" / "000001-000001.nc").unlink()
    computed = []

    def counted(settings, model, parameters, window):
        computed.append(float(parameters.beta[0]))
        return _orbit(settings, model, parameters, window)

    monkeypatch.setattr(experiment, "orbit", counted)
    again = experiment.run(SETTINGS, partial)
    assert computed == [1.28]
    xr.testing.assert_identical(again["trajectories"].to_dataset(), result["trajectories"].to_dataset())


_orbit = experiment.orbit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"betas": (0.5, 1.3)}, "trajectories, which differs in parameters.beta"),
        ({"shown": 400}, "trajectories, which differs in shown"),
        ({"zoom": replace(SETTINGS.zoom, recorded=500)}, "orbit diagram, which differs in settings.recorded"),
        ({"exponents": 3}, "orbit diagram, which differs in settings.exponents"),
    ],
)
def test_other_settings_do_not_resume_from_it(result, partial, computing_forbidden, changed, differs):
    there = {path: path.read_bytes() for path in partial.rglob("*.nc")}
    with pytest.raises(FileExistsError, match=f"holds another {differs}"):
        experiment.run(replace(SETTINGS, **changed), partial)
    assert there == {path: path.read_bytes() for path in partial.rglob("*.nc")}


@pytest.mark.slow
def test_the_reference_is_of_the_published_network_only(result):
    assert result["reference"].to_dataset()["exponent"].sel(beta=1.28).item() == 0.146
    assert not any(replace(SETTINGS, **{name: 2.0}).is_published for name in ("attention", "start"))
    assert not replace(SETTINGS, seed=2).is_published


@pytest.mark.slow
def test_one_file_holds_everything(result, tmp_path):
    store.write(result, tmp_path / "result.nc")
    read = store.read(tmp_path / "result.nc")
    for name in result.children:
        xr.testing.assert_identical(read[name].to_dataset(), result[name].to_dataset())
    assert '"betas":[0.5,1.28]' in read.attrs["settings"]


@pytest.mark.slow
def test_phases_are_over_both_inverse_temperatures(result):
    phases = result["phases"]
    np.testing.assert_allclose(phases["gamma"], [0, 300 / np.sqrt(3)])
    np.testing.assert_array_equal(phases["beta"], [0, 3])
    # At beta = 0 the semantic overlaps vanish.
    np.testing.assert_array_equal(phases["distinct"].sel(beta=0), 1)
    assert phases["regime_by_levels"].dims == phases["regime"].dims == phases["differs"].dims == ("gamma", "beta")
