"""Tests of the experiment of Fig. 2: labelled and complete result, resuming, the published findings, and figures."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from papers import hidden_markov as experiment
from papers.plots import hidden_markov as plots
from theorykit import bpkr, store
from theorykit.workers import local_workers

# The experiment takes half a minute.
pytestmark = pytest.mark.slow

SETTINGS = experiment.HiddenMarkov(widths=(10, 1000), seeds=2, test_examples=400, first_seed=1)


@pytest.fixture(scope="module")
def partial(tmp_path_factory):
    return tmp_path_factory.mktemp("partial")


@pytest.fixture(scope="module")
def result(partial) -> xr.DataTree:
    return experiment.run(SETTINGS, partial)


def test_narrow_beats_wide_and_wide_is_the_gaussian_process(result):
    dataset = result["default"].to_dataset()
    accuracy, limit = dataset["accuracy"].mean("seed"), dataset["gp_accuracy"].mean("seed")
    assert float(accuracy.sel(width=10)) > float(accuracy.sel(width=1000)) + 0.05
    assert abs(float(accuracy.sel(width=1000) - limit.sel(gp_paths="all paths"))) < 0.03
    assert float(limit.sel(gp_paths="good")) > float(limit.sel(gp_paths="all paths"))


def test_narrow_networks_use_the_good_paths_and_suppress_the_others(result):
    overlaps = result["default"].to_dataset()["U_1"].sel(width=10)
    good, denoising = overlaps.sel(path_1="11"), overlaps.sel(path_1="21")
    assert bool((good.sel(other_path_1="11") > 4).all())
    assert bool((good.sel(other_path_1="21") < 0).all())
    assert bool((denoising.sel(other_path_1="21") > 2).all())
    assert bool((overlaps.sel(path_1="12", other_path_1="12") < 1).all())


def test_every_solve_converged(result):
    for variant in experiment.VARIANTS:
        dataset = result[variant.name].to_dataset()
        assert bool((dataset["converged"] == 1).all())
        assert float(dataset["gradient_norm"].max()) < 1e-9


def test_noise_outside_the_signal_is_averaged_away_by_correlating_two_paths(result):
    for variant in ("noisy", "noisy_uniform"):
        dataset = result[variant].to_dataset()
        assert float(dataset["accuracy"].sel(width=10).mean()) > float(dataset["gp_accuracy"].mean("seed").max())
        assert bool((dataset["U_1"].sel(width=10, path_1="11", other_path_1="21") < 0).all())


def test_path_kernels_add_up_to_the_kernel(result):
    dataset = result["default"].to_dataset()
    eigenvalues = np.linalg.eigvalsh(
        np.einsum("ab,abpq->pq", dataset["U_1"].isel(seed=0).sel(width=10), dataset["path_kernel"])
    )
    np.testing.assert_allclose(
        eigenvalues[::-1], dataset["eigenvalue"].isel(seed=0).sel(width=10), rtol=1e-9, atol=1e-9
    )


def test_alignments_are_directions(result):
    dataset = result["default"].to_dataset()
    np.testing.assert_allclose((dataset["alignment"] ** 2).sum("component"), 1.0, rtol=1e-10)
    np.testing.assert_allclose((dataset["gp_alignment"] ** 2).sum("component"), 1.0, rtol=1e-10)


def test_seeds_may_run_side_by_side(result, tmp_path):
    with local_workers(2) as executor:
        shared = experiment.run(SETTINGS, tmp_path, executor=executor, progress=False)
    for variant in experiment.VARIANTS:
        one, other = (tree[variant.name].to_dataset().drop_vars("seconds") for tree in (shared, result))
        xr.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_an_interrupted_run_goes_on_with_what_is_there(result, partial, monkeypatch):
    (partial / "noisy-2.nc").unlink()
    solved = []
    monkeypatch.setattr(bpkr, "solve", lambda *args, **kwargs: solved.append(1) or _solve(*args, **kwargs))
    again = experiment.run(SETTINGS, partial)
    assert len(solved) == len(SETTINGS.widths)
    xr.testing.assert_identical(
        again["default"].to_dataset().drop_vars("seconds"), result["default"].to_dataset().drop_vars("seconds")
    )


_solve = bpkr.solve


def test_other_settings_do_not_resume_from_it(result, partial, tmp_path):
    warmer = replace(SETTINGS, temperature=1.0, widths=(10,), seeds=1)
    with pytest.raises(FileExistsError, match=r"holds another hidden Markov chains, which differs in settings\.widths"):
        experiment.run(warmer, partial)
    dataset = experiment.run(warmer, tmp_path)["default"].to_dataset()
    assert float(abs(dataset["U_1"].sel(width=10) - result["default"]["U_1"].sel(width=10).isel(seed=0)).max()) > 0.1


def test_the_file_holds_everything_the_figures_need(result, tmp_path):
    store.write(result, tmp_path / "result.nc")
    written = plots.draw_all(store.read(tmp_path / "result.nc"), tmp_path)
    assert [path.name for path in written] == ["figure-2.png", "figure-5.png"]
    assert all(path.stat().st_size > 50_000 for path in written)


def test_the_table_has_a_line_a_width_and_the_limits(result):
    text = plots.table(result)
    assert all(f"{width:6d}   0." in text for width in SETTINGS.widths)
    assert all(name in text for name in experiment.GP_PATHS)


def test_one_seed_is_enough_to_draw(result, tmp_path):
    single = result.isel(seed=[0])
    assert plots.draw_all(single, tmp_path)
    assert "+-" not in plots.table(single)
