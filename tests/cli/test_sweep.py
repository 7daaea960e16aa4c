"""`theorykit sweep`: single solves over a grid, and extended grids."""

import re
import shutil

import numpy as np
import pytest
import xarray as xr

from theorykit import bpkr

from .terminal import CONFIG, refused, run

SWEEP = (
    CONFIG.replace("widths = [20, 15, 10]\n", "").replace("temperature = 0.2\n", "")
    + """
[sweep]
widths = [[20, 15, 10], 40]
temperatures = [0.2, 1]
"""
)


@pytest.mark.slow
def test_sweep_equals_single_solves_and_is_extended(folder, monkeypatch, capsys):
    (folder / "mine.toml").write_text(SWEEP)
    run(monkeypatch, "sweep", "mine.toml")
    printed = capsys.readouterr().out
    assert printed.startswith("test accuracy, with standard errors") and "20-15-10" in printed
    assert "T=0.2" in printed and "best T" in printed and "Highest evidence: width " in printed
    assert (folder / "mine-sweep.png").stat().st_size > 10_000
    swept = xr.load_dataset(folder / "mine-sweep.nc", engine="h5netcdf")
    assert swept["U_1"].dims == ("width", "temperature", "path_1", "other_path_1")
    (folder / "mine.toml").write_text(CONFIG)
    run(monkeypatch, "solve", "mine.toml")
    single, point = xr.load_dataset(folder / "mine.nc", engine="h5netcdf"), swept.sel(width="20-15-10", temperature=0.2)
    for name in ("U_1", "U_2", "mean", "variance", "action"):
        np.testing.assert_allclose(point[name], single[name], rtol=1e-7, atol=1e-9)
    assert point["test_accuracy"] == single["test_accuracy"]

    (folder / "mine.toml").write_text(SWEEP.replace("[0.2, 1]", "[0.2, 1, 2]"))
    assert "mine-sweep.nc exists" in refused(monkeypatch, "sweep", "mine.toml")
    solve, solved = bpkr.solve, []
    monkeypatch.setattr(bpkr, "solve", lambda *args, **kwargs: solved.append(1) or solve(*args, **kwargs))
    run(monkeypatch, "sweep", "mine.toml", "--overwrite")
    assert len(solved) == 2, "only the new temperature, at both widths"
    np.savez(folder / "data.npz", **{**np.load(folder / "data.npz"), "y": np.ones(14)})
    assert "holds another sweep" in refused(monkeypatch, "sweep", "mine.toml", "--overwrite")


@pytest.mark.slow
def test_the_infinite_width_is_solved_alone_and_stands_beside_a_finite_one(folder, monkeypatch, capsys):
    (folder / "mine.toml").write_text(CONFIG)
    run(monkeypatch, "solve", "mine.toml")
    assert "infinitely wide: " in capsys.readouterr().out
    beside = xr.load_dataset(folder / "mine.nc", engine="h5netcdf")
    (folder / "wide.toml").write_text(re.sub(r"widths = .*", "widths = inf", CONFIG).replace("mine.nc", "wide.nc"))
    run(monkeypatch, "solve", "wide.toml")
    assert capsys.readouterr().out.startswith("infinitely wide: a Gaussian process, log evidence ")
    alone = xr.load_dataset(folder / "wide.nc", engine="h5netcdf")
    for name in ("log_evidence", "mean", "variance", "test_error", "test_accuracy"):
        np.testing.assert_allclose(alone[name], beside[f"infinite_width_{name}"], err_msg=name)
    assert "action" not in alone and not np.allclose(beside["mean"], alone["mean"])


def test_classes_that_are_text_are_solved_for(folder, monkeypatch, capsys):
    arrays = dict(np.load(folder / "data.npz"))
    y, y_test = (np.where(arrays[name] > 0, "yes", "no") for name in ("y", "y_test"))
    np.savez(folder / "text.npz", **{**arrays, "y": y, "y_test": y_test})
    for name, more in (("mine", ""), ("text", "classes = true\n")):
        (folder / f"{name}.toml").write_text(CONFIG.replace("data.npz", "text.npz" if more else "data.npz") + more)
        run(monkeypatch, "solve", f"{name}.toml")
        assert "test log loss" in capsys.readouterr().out
    signs, classes = (xr.load_dataset(folder / f"{name}.nc", engine="h5netcdf") for name in ("mine", "text"))
    assert classes["class"].values.tolist() == ["no", "yes"]
    for name in ("U_1", "mean", "test_accuracy", "test_log_loss", "test_confusion"):
        np.testing.assert_array_equal(classes[name], signs[name], err_msg=name)
    (folder / "text.toml").write_text(CONFIG.replace("data.npz", "text.npz").replace("text.nc", "again.nc"))
    assert "set `classes = true`" in refused(monkeypatch, "solve", "text.toml", "--overwrite")


def test_a_sweep_of_one_kind_needs_no_test_data(folder, monkeypatch, capsys):
    text = CONFIG.replace('test_inputs = "x_test"\ntest_labels = "y_test"\n', "")
    (folder / "mine.toml").write_text(text + '[sweep]\nwidths = [10, 20]\nfile = "by-width.nc"\n')
    run(monkeypatch, "sweep", "mine.toml")
    assert capsys.readouterr().out.startswith("log evidence")
    swept = xr.load_dataset(folder / "by-width.nc", engine="h5netcdf")
    assert swept["temperature"].values.tolist() == [0.2] and swept["width"].values.tolist() == [10, 20, np.inf]
    assert (folder / "by-width.png").exists() and "best_temperature" not in swept


def test_a_sweep_of_which_every_point_fails_says_why(folder, monkeypatch):
    arrays = dict(np.load(folder / "data.npz"))
    np.savez(folder / "data.npz", **{**arrays, "x": np.ones_like(arrays["x"])})
    (folder / "mine.toml").write_text(SWEEP.replace("[0.2, 1]", "[0]"))
    with pytest.warns(bpkr.ConvergenceWarning, match="3 of 3 points"):
        assert "every point failed: temperature=0.0 needs" in refused(monkeypatch, "sweep", "mine.toml")
    assert not (folder / "mine-sweep.nc").exists()


@pytest.mark.slow
def test_a_sweep_by_several_processes_is_the_same(folder, monkeypatch):
    (folder / "mine.toml").write_text(SWEEP)
    run(monkeypatch, "sweep", "mine.toml")
    alone = xr.load_dataset(folder / "mine-sweep.nc", engine="h5netcdf")
    shutil.rmtree(folder / "mine-sweep")
    run(monkeypatch, "sweep", "mine.toml", "--overwrite", "--workers", "2")
    beside = xr.load_dataset(folder / "mine-sweep.nc", engine="h5netcdf")
    # linear algebra rounds by the number of its threads, which is that of a worker's cores
    xr.testing.assert_allclose(beside.drop_vars("seconds"), alone.drop_vars("seconds"), rtol=1e-9, atol=1e-9)
