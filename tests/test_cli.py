"""The command line: what it prints and writes is what the library computes."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from theorykit import bpkr, cli
from theorykit.bpkr import Dense, Skip, sweeps
from theorykit.bpkr.action import document
from theorykit.saddle import ConvergenceWarning
from theorykit.symbolic.documents import as_latex, as_markdown

SETTINGS = """
[architecture]
layers = [2, 1]
widths = [20, 15, 10]
temperature = 0.2

[data]
file = "data.npz"
inputs = "x"
key_query = ["W1", "W2"]
readout = "mean"
labels = "y"

[data.test]
inputs = "x_test"
labels = "y_test"
"""
SWEEP = """
[sweep]
widths = [[20, 15, 10], 40, inf]
temperatures = [0.2, 1]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder, with data and settings."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(14, 4, 5))
    arrays = {"x": inputs, "y": np.sign(inputs[:, 0, 0]), "x_test": rng.normal(size=(6, 4, 5)), "y_test": np.ones(6)}
    arrays |= {"W1": rng.normal(size=(2, 5, 5)), "W2": rng.normal(size=(1, 5, 5))}
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "mine.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command, and return what it prints."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["theorykit", *arguments])
        cli.main()
        return capsys.readouterr().out

    return run


def refused(run, *arguments: str) -> str:
    with pytest.raises(SystemExit) as leaving:
        run(*arguments)
    return str(leaving.value.code)


def written(path) -> xr.Dataset:
    return xr.load_dataset(path, engine="h5netcdf")


# ---- derive


def derived(*layers, **structure) -> bpkr.Action:
    return bpkr.derive(bpkr.Architecture(layers, 1, temperature=1.0, **structure))


@pytest.mark.quick(2)
@pytest.mark.parametrize("form", ["latex", "markdown"])
@pytest.mark.parametrize(
    ("words", "layers"), [(["2", "3"], (2, 3)), (["dense", "skip=0.7:2"], (Dense(), Skip(2, 0.7)))]
)
def test_derive_prints_what_the_library_renders(form, words, layers, run):
    blocks = list(document.blocks(derived(*layers, outputs=2), "title", "action"))
    expected = as_latex(blocks) if form == "latex" else as_markdown(blocks)
    assert run("derive", "--layers", *words, "--format", form, "--outputs", "2") == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "layers", "structure"),
    [
        (("none", "--embedding", "erf", "--read-tokens", "2"), (), {"embedding": "erf", "read_tokens": 2}),
        (("dense:erf", "2", "--embedding", "erf"), (Dense(activation="erf"), 2), {"embedding": "erf"}),
    ],
)
def test_derive_prints_the_ansatz_of_nonlinear_networks(arguments, layers, structure, run):
    action, printed = derived(*layers, **structure), run("derive", "--layers", *arguments, "--steps")
    assert len(action.ansatz) == 1 + bool(layers)
    assert all(assumption in printed for assumption in action.ansatz)
    assert printed.count(". Gaussian equivalence**.") == len(action.ansatz)


@pytest.mark.parametrize(("form", "name"), [("latex", "action.tex"), ("markdown", "new/action.md")])
def test_derive_writes_a_file_once(form, name, folder, run):
    arguments = ("derive", "--layers", "2", "--format", form, "--output", name)
    run(*arguments)
    text = (folder / name).read_text()
    assert f"{name} exists" in refused(run, *arguments)
    run(*arguments, "--overwrite")
    assert (folder / name).read_text() == text


def test_derive_prints_source_steps_and_fragments(run):
    assert run("derive", "--layers", "2", "3", "--format", "python") == bpkr.generate_source(derived(2, 3))
    printed, action = run("derive", "--layers", "skip:2", "--steps", "--finite-width"), derived(Skip(2))
    for derivation in (action.derivation, action.finite_width.derivation):
        assert all(f"{step.rule[0].upper()}{step.rule[1:]}" in printed for step in derivation.steps)
    printed = run("derive", "--layers", "2", "--format", "fragment")
    assert printed.startswith(r"\section*") and "documentclass" not in printed and r"\label{eq:S}" in printed
    assert "in the mean-field parameterisation" in run("derive", "--layers", "2", "--richness", "--infinite-width")
    assert "--infinite-width needs --richness" in refused(run, "derive", "--layers", "2", "--infinite-width")
    for words, said in {("two",): "like 2", ("none", "2"): "got 'none'", ("skip=x:3",): "layer 'skip=x:3'"}.items():
        assert said in refused(run, "derive", "--layers", *words)


# ---- solve and sweep


def test_solve_equals_the_library(folder, run):
    printed = run("solve", "mine.toml")
    assert "converged" in printed and "log_evidence" in printed and "test_accuracy" in printed
    found, arrays = written("mine.nc").isel(width=0, temperature=0), np.load("data.npz")
    architecture = bpkr.Architecture((2, 1), (20, 15, 10), temperature=0.2)

    def features(x):
        return bpkr.path_features(x, bpkr.attention(x, key_query=[arrays["W1"], arrays["W2"]]), architecture, "mean")

    problem = bpkr.Problem(architecture, bpkr.Data(features(arrays["x"]), arrays["y"]))
    saddle = bpkr.solve(problem)
    prediction = bpkr.predict(problem, saddle.order_parameters, features(arrays["x_test"]))
    np.testing.assert_allclose(found["U_1"], saddle.order_parameters.matrices[0], rtol=1e-9)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(found[name], getattr(prediction, name), rtol=1e-9)


def test_a_finished_result_is_shown_again_and_others_are_kept(folder, run, monkeypatch):
    first = run("solve", "mine.toml")
    content = (folder / "mine.nc").read_bytes()
    monkeypatch.setattr(sweeps, "sweep", lambda *_, **__: pytest.fail("computed again"))
    assert run("solve", "mine.toml") == first.replace("wrote mine.nc", "mine.nc is finished")
    for arrays in ({**np.load("data.npz"), "y": np.ones(14)}, {**np.load("data.npz"), "more": 0.0}):
        np.savez("data.npz", **arrays)
        assert "mine.nc has other settings or data" in refused(run, "solve", "mine.toml")
    assert (folder / "mine.nc").read_bytes() == content


@pytest.mark.slow
def test_a_sweep_equals_single_solves_and_resumes_with_more_values(folder, run, monkeypatch):
    (folder / "mine.toml").write_text(SETTINGS + SWEEP)
    printed = run("sweep", "mine.toml", "--folder", "kept")
    assert "test_accuracy" in printed and "20-15-10" in printed
    assert (folder / "mine-sweep.png").stat().st_size > 10_000
    swept = written("mine-sweep.nc")
    assert swept["U_1"].dims == ("width", "temperature", "path_1", "other_path_1")
    scores = swept["test_accuracy"].sel(width="40").to_series()
    equal = ", ".join(map(str, scores.index[scores == scores.max()]))
    assert f"width 40: best temperature by test_accuracy: {equal}\n" in printed
    run("solve", "mine.toml")
    single, point = written("mine.nc").squeeze(), swept.sel(width="20-15-10", temperature=0.2)
    for name in ("U_1", "U_2", "mean", "variance", "action", "test_accuracy"):
        np.testing.assert_allclose(point[name], single[name], rtol=1e-7, atol=1e-9)

    assert "mine-sweep.nc is finished" in run("sweep", "mine.toml", "--folder", "kept")
    (folder / "mine.toml").write_text(SETTINGS + SWEEP.replace("[0.2, 1]", "[0.2, 3]"))
    assert "has other settings or data" in refused(run, "sweep", "mine.toml", "--folder", "kept")
    (folder / "mine.toml").write_text(SETTINGS + SWEEP.replace("[0.2, 1]", "[0.2, 1, 2]"))
    solve, solved = bpkr.solve, []
    monkeypatch.setattr(bpkr, "solve", lambda *args, **kwargs: solved.append(1) or solve(*args, **kwargs))
    assert "6 of 9 points were read from kept" in run("sweep", "mine.toml", "--folder", "kept")
    assert len(solved) == 2, "only the new temperature, at both finite widths"
    run("sweep", "mine.toml", "--n-jobs", "2", "--output", "parallel.nc")
    for name in ("U_1", "log_evidence", "mean", "test_accuracy"):
        expected = written("mine-sweep.nc")[name]
        np.testing.assert_allclose(written("parallel.nc")[name], expected, rtol=1e-7, atol=1e-9)


def test_a_sweep_needs_no_test_data(folder, run):
    text = SETTINGS.partition("[data.test]")[0]
    (folder / "mine.toml").write_text(text + "[sweep]\nwidths = [10, inf]\n")
    assert "log_evidence" in run("sweep", "mine.toml", "--output", "by-width.nc")
    swept = written("by-width.nc")
    assert swept["temperature"].values.tolist() == [0.2] and swept["width"].values.tolist() == [10, np.inf]
    assert (folder / "by-width.png").exists()


def test_classes_that_are_text_equal_signs(folder, run):
    arrays = dict(np.load("data.npz"))
    names = {name: np.where(arrays[name] > 0, "yes", "no") for name in ("y", "y_test")}
    np.savez("text.npz", **{**arrays, **names})
    text = SETTINGS.replace("data.npz", "text.npz")
    (folder / "text.toml").write_text(text)
    for name in ("mine", "text"):
        assert "test_log_loss" in run("solve", f"{name}.toml")
    signs, classes = written("mine.nc"), written("text.nc")
    assert classes["class"].values.tolist() == ["no", "yes"]
    for name in ("U_1", "mean", "test_accuracy", "test_log_loss"):
        np.testing.assert_array_equal(classes[name], signs[name], err_msg=name)
    (folder / "text.toml").write_text(text.replace('inputs = "x"', 'inputs = "y"'))
    assert "inputs must be an array of real numbers" in refused(run, "solve", "text.toml", "--overwrite")


def test_a_sweep_whose_points_all_fail_gives_the_reason(folder, run):
    np.savez("data.npz", **{**np.load("data.npz"), "x": np.ones((14, 4, 5))})
    (folder / "mine.toml").write_text(SETTINGS + SWEEP.replace("[0.2, 1]", "[0]"))
    with pytest.warns(ConvergenceWarning, match="3 of 3 points"):
        assert "every point failed: temperature=0.0 needs" in refused(run, "sweep", "mine.toml")
    assert not (folder / "mine-sweep.nc").exists()


# ---- data


def tables(**changes) -> cli.Data:
    return cli.Data(**{"file": "data.npz", "inputs": "x", "labels": "y", **changes})


def test_heads_masks_and_maps_are_those_of_the_library(tmp_path):
    rng, architecture = np.random.default_rng(0), bpkr.Architecture((2, 1), 10, temperature=0.2)
    x, lengths = rng.normal(size=(6, 4, 3)), np.array([4, 3, 2, 1, 4, 3])
    heads = {name: [rng.normal(size=(count, 2, 3)) for count in (2, 1)] for name in ("query", "key")}
    heads["query_bias"] = [rng.normal(size=(count, 2)) for count in (2, 1)]
    names = {key: tuple(f"{key}{i}" for i in range(2)) for key in heads}
    attention = {mask: bpkr.attention(x, mask=mask, real_tokens=lengths, **heads) for mask in (None, "causal")}
    arrays = {f"{key}{i}": layer for key, layers in heads.items() for i, layer in enumerate(layers)}
    arrays |= {"x": x, "y": np.ones(6), "lengths": lengths, "triangle": np.tri(4, dtype=bool)}
    arrays |= {f"A{i}": np.swapaxes(layer, 2, 3) for i, layer in enumerate(attention[None])}
    np.savez(tmp_path / "data.npz", **arrays)
    features = {
        mask: bpkr.path_features(x, maps, architecture, "mean", real_tokens=lengths) for mask, maps in attention.items()
    }
    given = {None: {"attention": ("A0", "A1"), "layout": "torch"}, "causal": {"mask": "causal", **names}}
    for mask, options in given.items():
        given = tables(real_tokens="lengths", readout="mean", **options)
        np.testing.assert_array_equal(cli.read_data(given, tmp_path, architecture).features, features[mask])
    given = tables(mask="triangle", layout="torch", real_tokens="lengths", readout="mean", **names)
    np.testing.assert_array_equal(cli.read_data(given, tmp_path, architecture).features, features["causal"])


def test_netcdf_and_path_features_are_read(tmp_path):
    rng, architecture = np.random.default_rng(0), bpkr.Architecture((2,), 10, temperature=0.2)
    phi, y = rng.normal(size=(6, 2, 3)), rng.normal(size=6)
    data = xr.Dataset({"phi": (("example", "path", "feature"), phi), "y": ("example", y)})
    data.to_netcdf(tmp_path / "phi.nc", engine="h5netcdf")
    part = cli.Examples(features="phi", labels="y")
    given = cli.Data(file="phi.nc", features="phi", labels="y", test=part)
    found = cli.read_data(given, tmp_path, architecture)
    for part in (found.features, found.test_features):
        np.testing.assert_array_equal(part, phi)
    np.testing.assert_array_equal(found.test_labels, y)
    given = cli.Data(file="phi.nc", features="psi", labels="y")
    with pytest.raises(ValueError, match=r"phi\.nc has no array 'psi'; it has phi, y"):
        cli.read_data(given, tmp_path, architecture)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('inputs = "x"\n', "", "give either `features` or `inputs`"),
        ('labels = "y"\n', 'attention = ["A"]\n', "only one of `features`, `attention` and heads"),
        ('key_query = ["W1", "W2"]', 'mask = "causal"', "`mask` needs heads"),
        ("temperature = 0.2", "temperatur = 0.2", "field `temperatur` - at `$.architecture`; use layers, widths"),
        ("[data]", "[date]", "unknown field `date`; use architecture, data"),
        ("temperature = 0.2", "", "needs widths and a temperature"),
        ('"data.npz"', '"other.npz"', "other.npz"),
        ('"data.npz"', '"mine.toml"', "mine.toml: Unable"),
        ("[data]\n", '[data]\nreal_tokens = "y"\n', "`real_tokens` of both [data] and [data.test]"),
        ("temperature = 0.2", 'temperature = "0.2"', "temperature"),
        ("[2, 1]", "[2, 1", "mine.toml: "),
        ('"mean"', '"middle"', "readout must be"),
        ('"y"', '"z"', "data.npz has no array 'z'"),
    ],
)
def test_mistakes_in_settings_are_one_line(old, new, message, folder, run):
    (folder / "mine.toml").write_text(SETTINGS.replace(old, new, 1))
    said = refused(run, "solve", "mine.toml")
    assert message in said and "\n" not in said


@pytest.mark.parametrize("arguments", [["slove", "mine.toml"], ["solve"], ["solve", "mine.toml", "--overwirte"]])
def test_mistakes_on_the_command_line_have_exit_code_2(arguments, run):
    assert refused(run, *arguments) == "2"


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_no_library_that_computes(option):
    command = [sys.executable, "-X", "importtime", "-m", "theorykit", option]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "xarray", "matplotlib", "scipy"}
    assert "theorykit" in finished.stdout
