"""The command line as a new user meets it: what it prints, what it writes, and how it refuses."""

import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from theorykit import bpkr, cli, store
from theorykit.bpkr import Dense, Skip, sampling
from theorykit.bpkr.action import document
from theorykit.cli.derive import parse_layer
from theorykit.symbolic import as_latex, as_markdown

CONFIG = """
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
test_inputs = "x_test"
test_labels = "y_test"
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder, with data and a configuration."""
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(14, 4, 5))
    arrays = {
        "x": inputs,
        "y": np.sign(inputs[:, 0, 0]),
        "x_test": draw.normal(size=(6, 4, 5)),
        "y_test": np.ones(6),
        "W1": draw.normal(size=(2, 5, 5)),
        "W2": draw.normal(size=(1, 5, 5)),
    }
    np.savez(tmp_path / "data.npz", **arrays)
    (tmp_path / "mine.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(monkeypatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["theorykit", *arguments])
    cli.main()


def refused(monkeypatch, *arguments: str) -> str:
    with pytest.raises(SystemExit) as leaving:
        run(monkeypatch, *arguments)
    assert isinstance(leaving.value.code, str)
    return leaving.value.code


@pytest.mark.parametrize(("form", "rendered"), [("latex", as_latex), ("markdown", as_markdown)])
@pytest.mark.parametrize("layers", [("2", "3"), ("dense", "skip:2"), ("skip:dense", "1")])
def test_derive_prints_what_the_library_renders(form, rendered, layers, monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", *layers, "--format", form, "--outputs", "2")
    kinds = [parse_layer(layer) for layer in layers]
    architecture = bpkr.Architecture(kinds, widths=1, temperature=1.0, outputs=2)
    blocks = document.action_blocks(bpkr.derive(architecture), architecture)
    printed = capsys.readouterr().out
    assert printed.startswith(rendered(blocks).removesuffix("\\end{document}\n").rstrip())
    for heading in ("Closed forms", "Expansion about infinite width"):
        assert heading in printed


def test_derive_prints_the_source_that_runs(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "2", "3", "--format", "python")
    assert capsys.readouterr().out == bpkr.generate_source(
        bpkr.derive(bpkr.Architecture((2, 3), widths=1, temperature=1.0))
    )
    assert "steps" in refused(monkeypatch, "derive", "--layers", "2", "--format", "python", "--steps")


def test_derive_shows_and_verifies_every_step(monkeypatch, capsys):
    run(monkeypatch, "derive", "--layers", "skip:2", "--steps", "--finite-width", "--verify")
    printed = capsys.readouterr()
    action = bpkr.derive(bpkr.Architecture((bpkr.Skip(2),), widths=1, temperature=1.0))
    for derivation in (action.derivation, action.finite_width.derivation):
        assert all(f"{step.rule[0].upper()}{step.rule[1:]}" in printed.out for step in derivation.steps)
        assert f"{len(derivation.steps)} steps hold" in printed.err


@pytest.mark.parametrize("layer", ["relu", "skip", "skip:", "-1", "2.0"])
def test_derive_refuses_a_layer_that_it_does_not_know(layer, monkeypatch):
    assert repr(layer.removeprefix("skip:")) in refused(monkeypatch, "derive", "--layers", layer)


def test_derive_writes_a_file_once(folder, monkeypatch):
    arguments = ("derive", "--layers", "2", "--output", "action.md")
    run(monkeypatch, *arguments)
    before = (folder / "action.md").read_text()
    assert "action.md exists" in refused(monkeypatch, *arguments)
    run(monkeypatch, *arguments, "--overwrite")
    assert (folder / "action.md").read_text() == before


def test_derive_refuses_no_heads(monkeypatch):
    assert "0" in refused(monkeypatch, "derive", "--layers", "2", "0")


def test_solve_equals_the_library(folder, monkeypatch, capsys):
    run(monkeypatch, "solve", "mine.toml")
    printed = capsys.readouterr().out
    assert "converged" in printed and "head score 1" in printed and "test accuracy" in printed
    written = store.read(folder / "mine.nc").to_dataset()
    arrays = np.load(folder / "data.npz")
    architecture = bpkr.Architecture(layers=(2, 1), widths=(20, 15, 10), temperature=0.2)

    def features(x):
        return bpkr.path_features(x, bpkr.attention(x, key_query=[arrays["W1"], arrays["W2"]]), architecture, "mean")

    saddle = bpkr.solve(architecture, features(arrays["x"]), arrays["y"])
    test = features(arrays["x_test"])
    prediction = bpkr.predict(architecture, saddle.order_parameters, features(arrays["x"]), arrays["y"], test)
    np.testing.assert_allclose(written["U_1"], saddle.order_parameters.matrices[0], rtol=1e-9)
    np.testing.assert_allclose(written["mean"], prediction.mean, rtol=1e-9)
    np.testing.assert_allclose(written["variance"], prediction.variance, rtol=1e-9)
    assert list(written["path_1"].values) == ["11", "21"]


def test_solve_takes_any_layers_and_several_outputs(folder, monkeypatch, capsys):
    arrays = dict(np.load(folder / "data.npz"))
    labels, test_labels = (np.stack([arrays[name], -arrays[name]], axis=1) for name in ("y", "y_test"))
    np.savez(folder / "data.npz", **{**arrays, "y": labels, "y_test": test_labels})
    layers = '[{kind = "attention", heads = 2, skip = 0.7}, {kind = "dense"}, 1]'
    text = CONFIG.replace("layers = [2, 1]", f"layers = {layers}\noutputs = 2").replace("[20, 15, 10]", "20")
    (folder / "mine.toml").write_text(text)
    run(monkeypatch, "solve", "mine.toml")
    printed = capsys.readouterr().out
    assert "converged" in printed and "head score 1" in printed and "head score 2" not in printed
    written = store.read(folder / "mine.nc").to_dataset()
    architecture = bpkr.Architecture((Skip(2, 0.7), Dense(), 1), 20, temperature=0.2, outputs=2)

    def features(x):
        return bpkr.path_features(x, bpkr.attention(x, key_query=[arrays["W1"], arrays["W2"]]), architecture, "mean")

    saddle = bpkr.solve(architecture, features(arrays["x"]), labels)
    test = features(arrays["x_test"])
    prediction = bpkr.predict(architecture, saddle.order_parameters, features(arrays["x"]), labels, test)
    np.testing.assert_allclose(written["U_1"], saddle.order_parameters.matrices[0], rtol=1e-9)
    np.testing.assert_allclose(written["u"], saddle.order_parameters.readout, rtol=1e-9)
    np.testing.assert_allclose(written["mean"], prediction.mean, rtol=1e-9)
    assert written["mean"].dims == ("test_example", "output")
    assert list(written["path_1"].values) == ["0-1:1", "0-1:2", "1-1:1", "1-1:2", "2-1:1", "2-1:2"]


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
    one, other = (store.read(folder / f"{name}.nc").to_dataset() for name in ("features", "projections"))
    np.testing.assert_allclose(one["U_1"], other["U_1"], rtol=1e-9)
    assert "mean" not in one


def test_solve_keeps_an_existing_result(folder, monkeypatch):
    (folder / "mine.nc").write_text("precious")
    assert "mine.nc exists" in refused(monkeypatch, "solve", "mine.toml")
    assert (folder / "mine.nc").read_text() == "precious"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("temperature", "temprature", "temprature"),
        ("temperature = 0.2", "temperature = -1.0", "temperature"),
        ("widths = [20, 15, 10]", "widths = [20, 15]", "widths"),
        ("layers = [2, 1]", 'layers = "two"', "layers"),
        ("layers = [2, 1]", "heads = [2, 1]", "did you mean `layers`?"),
        ("layers = [2, 1]", 'layers = [2, {kind = "atention", heads = 1}]', "atention"),
        ("layers = [2, 1]", 'layers = [2, {kind = "attention", heads = 1, skipp = 0.7}]', "did you mean `skip`?"),
        ("layers = [2, 1]", 'layers = [2, {kind = "dense", heads = 1}]', "unknown field `heads`"),
        ("layers = [2, 1]", 'layers = [2, {kind = "attention"}]', "missing required field `heads`"),
        ("layers = [2, 1]", "layers = [2, {heads = 1}]", "a layer is a number of heads"),
        ("layers = [2, 1]", 'layers = [2, {kind = "attention", heads = 1, skip = 1.0}]', "equal widths"),
        ("layers = [2, 1]", "layers = []", "at least one layer"),
        ("temperature = 0.2", "temperature = 0.2\noutputs = 0", "outputs"),
        ("temperature = 0.2", "temperature = 0.2\noutputs = 2", "(examples, outputs)"),
        ("[data]", "[dta]", "dta"),
        ('readout = "mean"', 'readout = "middle"', "middle"),
        ('labels = "y"', 'labels = "z"', "'z'"),
        ('file = "data.npz"', 'file = "nowhere.npz"', "nowhere.npz"),
        ('file = "data.npz"', 'file = "mine.toml"', ".toml"),
        ('inputs = "x"', "", "inputs"),
        ('test_inputs = "x_test"', "", "test_labels"),
        ("[data]", "[data", "TOML"),
    ],
)
def test_a_mistaken_configuration_is_named(folder, monkeypatch, old, new, named):
    (folder / "mine.toml").write_text(CONFIG.replace(old, new, 1))
    message = refused(monkeypatch, "solve", "mine.toml")
    assert named in message
    assert not (folder / "mine.nc").exists()


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [("y_test", np.ones(5), "test_labels has 5"), ("x_test", np.full((6, 4, 5), np.nan), "not finite")],
)
def test_test_data_are_refused_before_the_solve(folder, monkeypatch, name, value, named):
    monkeypatch.setattr(bpkr, "solve", lambda *args, **kwargs: pytest.fail("solved before the data were checked"))
    np.savez(folder / "data.npz", **{**np.load(folder / "data.npz"), name: value})
    assert named in refused(monkeypatch, "solve", "mine.toml")


def test_an_unknown_key_comes_with_a_suggestion(folder, monkeypatch):
    (folder / "mine.toml").write_text(CONFIG.replace("temperature", "temprature"))
    assert "did you mean `temperature`?" in refused(monkeypatch, "solve", "mine.toml")


def test_a_missing_configuration_is_named(folder, monkeypatch):
    assert "nowhere.toml" in refused(monkeypatch, "solve", "nowhere.toml")


SWEEP = (
    CONFIG.replace("widths = [20, 15, 10]\n", "").replace("temperature = 0.2\n", "")
    + """
[sweep]
widths = [[20, 15, 10], 40]
temperatures = [0.2, 1]
"""
)


def test_sweep_equals_single_solves_and_is_extended(folder, monkeypatch, capsys):
    (folder / "mine.toml").write_text(SWEEP)
    run(monkeypatch, "sweep", "mine.toml")
    printed = capsys.readouterr().out
    assert (
        printed.startswith("test accuracy\n") and "20-15-10" in printed and "T=0.2" in printed and "best T" in printed
    )
    assert (folder / "mine-sweep.png").stat().st_size > 10_000
    swept = store.read(folder / "mine-sweep.nc").to_dataset()
    assert swept["U_1"].dims == ("width", "temperature", "path_1", "other_path_1")
    (folder / "mine.toml").write_text(CONFIG)
    run(monkeypatch, "solve", "mine.toml")
    single, point = store.read(folder / "mine.nc").to_dataset(), swept.sel(width="20-15-10", temperature=0.2)
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


def test_a_sweep_of_one_kind_needs_no_test_data(folder, monkeypatch, capsys):
    text = CONFIG.replace('test_inputs = "x_test"\ntest_labels = "y_test"\n', "")
    (folder / "mine.toml").write_text(text + '[sweep]\nwidths = [10, 20]\nfile = "by-width.nc"\n')
    run(monkeypatch, "sweep", "mine.toml")
    assert capsys.readouterr().out.startswith("log evidence\n")
    swept = store.read(folder / "by-width.nc").to_dataset()
    assert swept["temperature"].values.tolist() == [0.2] and swept["width"].values.tolist() == [10, 20]
    assert (folder / "by-width.png").exists() and "best_temperature" not in swept


def test_a_sweep_of_which_every_point_fails_says_why(folder, monkeypatch):
    arrays = dict(np.load(folder / "data.npz"))
    np.savez(folder / "data.npz", **{**arrays, "x": np.ones_like(arrays["x"])})
    (folder / "mine.toml").write_text(SWEEP.replace("[0.2, 1]", "[0]"))
    with pytest.warns(bpkr.ConvergenceWarning, match="2 of 2 points"):
        assert "every point failed: temperature=0 needs" in refused(monkeypatch, "sweep", "mine.toml")
    assert not (folder / "mine-sweep.nc").exists()


@pytest.mark.parametrize(
    ("command", "old", "new", "named"),
    [
        ("sweep", "temperatures", "temperaturs", "did you mean `temperatures`?"),
        ("sweep", "[sweep]", "[swep]", "did you mean `sweep`?"),
        ("sweep", "widths = [[20, 15, 10], 40]\ntemperatures = [0.2, 1]", "", "needs `widths` or `temperatures`"),
        ("sweep", "temperatures = [0.2, 1]", "", "missing the required field `temperature`"),
        ("sweep", "[0.2, 1]", "[0.2, -1]", "temperature"),
        ("sweep", "[0.2, 1]", "[]", "temperatures is empty"),
        ("sweep", "[20, 15, 10]", "[20, 15]", "widths"),
        ("sweep", SWEEP[SWEEP.index("[sweep]") :], "", "no table [sweep]"),
        ("solve", "", "", "missing the required field `widths`"),
    ],
)
def test_a_mistaken_sweep_is_named(folder, monkeypatch, command, old, new, named):
    (folder / "mine.toml").write_text(SWEEP.replace(old, new, 1))
    assert named in refused(monkeypatch, command, "mine.toml")
    assert not list(folder.glob("*.nc"))


COMPARE = """
[architecture]
layers = [2]
widths = 6
temperature = 0.2

[data]
file = "data.npz"
inputs = "x"
key_query = ["W1"]
readout = "mean"
labels = "y"
test_inputs = "x_test"
test_labels = "y_test"

[compare]
approaches = ["saddle", "exact", "gibbs"]
chains = 2
draws = 20
warmup = 20
"""


@pytest.fixture
def small(folder):
    """A user's folder, with few data and a configuration of a comparison."""
    arrays = dict(np.load(folder / "data.npz"))
    np.savez(folder / "data.npz", **{**arrays, "x": arrays["x"][:8], "y": arrays["y"][:8]})
    (folder / "mine.toml").write_text(COMPARE)
    return folder


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::theorykit.bpkr.sampling.MixingWarning")
def test_compare_writes_table_figure_and_data_and_goes_on_from_its_draws(small, monkeypatch, capsys):
    run(monkeypatch, "compare", "mine.toml")
    printed = capsys.readouterr().out
    assert printed.startswith("approach") and "accuracy" in printed and "wrote mine-comparison.png" in printed
    assert (small / "mine-comparison.png").stat().st_size > 10_000
    first = store.read(small / "mine-comparison.nc").to_dataset()
    assert first["approach"].values.tolist() == ["saddle", "exact", "gibbs"]
    assert first["U_1_deviation"].dims == ("approach", "path_1", "other_path_1")
    assert first["mean"].shape == (3, 6) and "draws" in first.attrs["settings"]
    (small / "solve.toml").write_text(COMPARE)
    run(monkeypatch, "solve", "solve.toml")
    single = store.read(small / "solve.nc").to_dataset()
    for name in ("U_1", "u", "mean", "variance"):
        np.testing.assert_allclose(first[name].sel(approach="saddle"), single[name], rtol=1e-7, atol=1e-9)

    assert "mine-comparison.nc exists" in refused(monkeypatch, "compare", "mine.toml")
    (small / "mine-comparison.nc").unlink()
    assert "mine-comparison.png exists" in refused(monkeypatch, "compare", "mine.toml")
    for sampler in ("exact", "gibbs"):
        assert (small / "mine-comparison" / sampler / "chains.npz").exists()
    (small / "mine.toml").write_text(COMPARE.replace("draws = 20", "draws = 19"))
    run(monkeypatch, "compare", "mine.toml", "--overwrite")
    again = store.read(small / "mine-comparison.nc").to_dataset()
    assert abs(again["U_1"] - first["U_1"]).sel(approach=["exact", "gibbs"]).max() > 0
    (small / "mine.toml").write_text(COMPARE + "seed = 1\n")
    assert "holds another run" in refused(monkeypatch, "compare", "mine.toml", "--overwrite")


def test_compare_takes_theory_alone_and_needs_no_table(small, monkeypatch, capsys):
    text = COMPARE.replace('test_inputs = "x_test"\ntest_labels = "y_test"\n', "")
    options = 'approaches = ["one_over_n", "saddle"]\nfile = "theory.nc"\n'
    (small / "mine.toml").write_text(text[: text.index("[compare]")] + f"[compare]\n{options}")
    run(monkeypatch, "compare", "mine.toml")
    assert "accuracy" not in capsys.readouterr().out
    written = store.read(small / "theory.nc").to_dataset()
    assert written["approach"].values.tolist() == ["one_over_n", "saddle"] and "U_1_deviation" not in written
    assert (small / "theory.png").exists() and not (small / "theory").exists()
    taken = {}
    monkeypatch.setattr(sampling, "compare", lambda *args, **options: taken.update(options) or written)
    (small / "mine.toml").write_text(text[: text.index("[compare]")])
    run(monkeypatch, "compare", "mine.toml")
    assert taken["approaches"] == ("saddle", "one_over_n", "exact", "gibbs")
    solver = {"tolerance": 1e-9, "max_steps": 1000}
    own = {name: {"schedule": sampling.DEFAULT_SCHEDULES[name]} for name in ("exact", "gibbs")}
    assert taken["options"] == {**own, "saddle": solver}


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("draws = 20", "draw = 20", "did you mean `draws`?"),
        ("[compare]", "[compar]", "did you mean `compare`?"),
        ("draws = 20", "draws = 0", "draws"),
        ("chains = 2", "chains = 1.5", "chains"),
        ('"gibbs"', '"gibs"', "unknown approach 'gibs'; did you mean 'gibbs'?"),
        ('"gibbs"', '"exact"', "each named once"),
        ('["saddle", "exact", "gibbs"]', "[]", "one or more"),
        ("draws = 20", 'file = "mine"', "end in .nc"),
    ],
)
def test_a_mistaken_comparison_is_named(small, monkeypatch, old, new, named):
    (small / "mine.toml").write_text(COMPARE.replace(old, new, 1))
    assert named in refused(monkeypatch, "compare", "mine.toml")
    assert not list(small.glob("*.nc")) and not (small / "mine-comparison").exists()


@pytest.mark.slow
def test_reproduce_writes_table_figures_and_data_and_refuses_a_second_time(tmp_path, monkeypatch, capsys):
    arguments = ("reproduce", "hidden-markov", "--widths", "50", "--seeds", "1", "--test-examples", "50")
    arguments = (*arguments, "--training-examples", "20", "--output", str(tmp_path / "out"))
    run(monkeypatch, *arguments)
    assert "max|U-I|" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["figure-2.png", "figure-5.png", "hidden-markov.nc"]
    assert "hidden-markov.nc exists" in refused(monkeypatch, *arguments)


def test_the_command_is_installed_and_asks_for_double_precision_itself():
    finished = subprocess.run(
        [sys.executable, "-m", "theorykit", "derive", "--layers", "2"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.startswith("# Action")
