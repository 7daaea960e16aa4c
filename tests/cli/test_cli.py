"""The command line: what it prints and what it writes."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr import Dense, Skip

from .terminal import CONFIG, refused, run

LAYERS = '[{kind = "attention", heads = 2, skip = 0.7}, {kind = "dense"}, 1]\noutputs = 2'
NETWORKS = {
    "heads": (bpkr.Architecture((2, 1), (20, 15, 10), temperature=0.2), {}, ["11", "21"]),
    "any layers, several outputs": (
        bpkr.Architecture((Skip(2, 0.7), Dense(), 1), 20, temperature=0.2, outputs=2),
        {"[2, 1]": LAYERS, "[20, 15, 10]": "20"},
        ["0-1:1", "0-1:2", "1-1:1", "1-1:2", "2-1:1", "2-1:2"],
    ),
}


@pytest.mark.parametrize("network", ["heads", *slow(["any layers, several outputs"])])
def test_solve_equals_the_library(network, folder, monkeypatch, capsys):
    architecture, changes, paths = NETWORKS[network]
    arrays, text = dict(np.load(folder / "data.npz")), CONFIG
    if architecture.outputs > 1:
        arrays |= {name: np.stack([arrays[name], -arrays[name]], axis=1) for name in ("y", "y_test")}
        np.savez(folder / "data.npz", **arrays)
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "mine.toml").write_text(text)
    run(monkeypatch, "solve", "mine.toml")
    printed = capsys.readouterr().out
    assert "converged" in printed and "head score 1" in printed and "test accuracy" in printed
    written = xr.load_dataset(folder / "mine.nc", engine="h5netcdf")

    def features(x):
        return bpkr.path_features(x, bpkr.attention(x, key_query=[arrays["W1"], arrays["W2"]]), architecture, "mean")

    saddle = bpkr.solve(architecture, bpkr.Data(features(arrays["x"]), arrays["y"]))
    test = features(arrays["x_test"])
    prediction = bpkr.predict(
        bpkr.Problem(architecture, bpkr.Data(features(arrays["x"]), arrays["y"])), saddle.order_parameters, test
    )
    np.testing.assert_allclose(written["U_1"], saddle.order_parameters.matrices[0], rtol=1e-9)
    np.testing.assert_allclose(written["u"], saddle.order_parameters.readout, rtol=1e-9)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(written[name], getattr(prediction, name), rtol=1e-9)
    assert list(written["path_1"].values) == paths
    if network != "heads":
        assert "head score 2" not in printed, "the dense layer has no heads"


def test_solve_keeps_an_existing_result(folder, monkeypatch):
    xr.Dataset({"precious": 1.0}).to_netcdf(folder / "mine.nc", engine="h5netcdf")
    assert "mine.nc exists" in refused(monkeypatch, "solve", "mine.toml")
    assert "precious" in xr.load_dataset(folder / "mine.nc", engine="h5netcdf")


@pytest.mark.slow
def test_solve_needs_no_heads_where_no_layer_has_any(folder, monkeypatch, capsys):
    text = CONFIG.replace("layers = [2, 1]", 'layers = [{kind = "dense"}, {kind = "dense", skip = 1.0}]')
    text = text.replace('key_query = ["W1", "W2"]\n', "").replace("[20, 15, 10]", "[20, 15, 15]")
    (folder / "mine.toml").write_text(text)
    run(monkeypatch, "solve", "mine.toml")
    assert "head score" not in capsys.readouterr().out
    (folder / "other.toml").write_text(text.replace('readout = "mean"', 'readout = "mean"\nkey_query = ["W1"]'))
    assert "0 layers have heads" in refused(monkeypatch, "solve", "other.toml")


def test_data_may_be_netcdf_with_path_features_or_queries_and_keys(folder, monkeypatch):
    arrays = np.load(folder / "data.npz")
    architecture = bpkr.Architecture(layers=(2, 1), widths=(20, 15, 10), temperature=0.2)
    draw = np.random.default_rng(1)
    parameters = {name: [draw.normal(size=(heads, 3, 5)) for heads in (2, 1)] for name in ("query", "key")}
    attention = bpkr.attention(arrays["x"], **parameters)
    features = np.asarray(bpkr.path_features(arrays["x"], attention, architecture, "mean"))
    axes = ("example", "path", "feature")
    xr.Dataset({"phi": (axes, features), "y": ("example", arrays["y"])}).to_netcdf("phi.nc", engine="h5netcdf")
    named = {f"{name}_{i}": layer for name, layers in parameters.items() for i, layer in enumerate(layers)}
    np.savez("projections.npz", x=arrays["x"], y=arrays["y"], **named)
    head, _ = CONFIG.split("[data]")
    projections = (
        'inputs = "x"\nquery = ["query_0", "query_1"]\nkey = ["key_0", "key_1"]\nreadout = "mean"\nlabels = "y"'
    )
    (folder / "features.toml").write_text(f'{head}[data]\nfile = "phi.nc"\nfeatures = "phi"\nlabels = "y"')
    (folder / "projections.toml").write_text(f'{head}[data]\nfile = "projections.npz"\n{projections}')
    for name in ("features", "projections"):
        run(monkeypatch, "solve", f"{name}.toml")
    one, other = (xr.load_dataset(folder / f"{name}.nc", engine="h5netcdf") for name in ("features", "projections"))
    np.testing.assert_allclose(one["U_1"], other["U_1"], rtol=1e-9)
    assert "mean" not in one


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_no_library_that_computes(option):
    command = [sys.executable, "-X", "importtime", "-m", "theorykit", option]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "xarray", "matplotlib", "scipy"}
    assert "theorykit" in finished.stdout


@pytest.mark.slow
def test_the_command_is_installed_and_asks_for_double_precision_itself():
    finished = subprocess.run(
        [sys.executable, "-m", "theorykit", "derive", "--layers", "2"], capture_output=True, text=True, check=True
    )
    assert finished.stdout.startswith("# Action")


def test_classes_need_no_outputs(folder, monkeypatch):
    monkeypatch.setattr(bpkr, "solve", lambda problem, **_: pytest.fail(f"outputs={problem.architecture.outputs}"))
    arrays = dict(np.load(folder / "data.npz"))
    arrays |= {name: np.array(["cat", "dog", "eel"] * 5)[: len(arrays[name])] for name in ("y", "y_test")}
    np.savez(folder / "data.npz", **arrays)
    text = CONFIG + "classes = true\n"
    (folder / "mine.toml").write_text(text)
    with pytest.raises(pytest.fail.Exception, match="outputs=3"):
        run(monkeypatch, "solve", "mine.toml")
    (folder / "mine.toml").write_text(text.replace("[data]", "outputs = 2\n[data]"))
    assert "labels must have shape (14, 2) for outputs=2, got (14, 3)" in refused(monkeypatch, "solve", "mine.toml")
