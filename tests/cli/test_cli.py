"""The command line as a new user meets it: what it prints, what it writes, and how it refuses."""

import pkgutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pytest
import xarray as xr

from tests.marks import slow
from theorykit import __version__, bpkr, cli, store
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
    written = store.read(folder / "mine.nc").to_dataset()

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
    store.write(xr.Dataset({"precious": 1.0}), folder / "mine.nc")
    assert "mine.nc exists" in refused(monkeypatch, "solve", "mine.toml")
    assert "precious" in store.read(folder / "mine.nc").to_dataset()


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
    one, other = (store.read(folder / f"{name}.nc").to_dataset() for name in ("features", "projections"))
    np.testing.assert_allclose(one["U_1"], other["U_1"], rtol=1e-9)
    assert "mean" not in one


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("temperature", "temprature", "did you mean `temperature`?"),
        ("temperature = 0.2", "temperature = -1.0", "[architecture] `temperature` must be a number of at least 0"),
        ("widths = [20, 15, 10]", "widths = -3", "toml: [architecture] `widths` must be a number above 0, got -3"),
        ("widths = [20, 15, 10]", "widths = [20, 15, 0]", "`widths[2]` must be a number above 0, got 0"),
        ("widths = [20, 15, 10]", "widths = [20, 15]", "widths"),
        ("layers = [2, 1]", 'layers = "two"', '[architecture] `layers` must be a list, got "two"'),
        ("layers = [2, 1]", "layers = [2, 3]", "layers=(2, 3) of the architecture are the numbers of heads"),
        ("layers = [2, 1]", "heads = [2, 1]", "did you mean `layers`?"),
        ("layers = [2, 1]", 'layers = [2, {kind = "atention", heads = 1}]', "atention"),
        ("layers = [2, 1]", 'layers = [2, {kind = "attention", heads = 1, skipp = 0.7}]', "did you mean `skip`?"),
        (
            "layers = [2, 1]",
            'layers = [2, {kind = "dense", heads = 1}]',
            "no key `heads`; there are kind, skip, activation",
        ),
        ("layers = [2, 1]", 'layers = [2, {kind = "attention"}]', "`layers[1]` needs the key `heads`"),
        ("layers = [2, 1]", "layers = [2, {heads = 1}]", "a layer is a number of heads"),
        ("layers = [2, 1]", 'layers = [2, {kind = "attention", heads = 1, skip = 1.0}]', "equal widths"),
        ("layers = [2, 1]", 'layers = [2, {kind = "dense", activation = "erf"}]', "directly above it"),
        ("temperature = 0.2", 'temperature = 0.2\nembedding = "gelu"', "embedding must be one of"),
        ("temperature = 0.2", "temperature = 0.2\noutputs = 0", "outputs"),
        ("temperature = 0.2", "temperature = 0.2\noutputs = 2", "(examples, outputs)"),
        ("[data]", "[dta]", "the file has no table `dta`; did you mean `data`?"),
        ('readout = "mean"', 'readout = "middle"', '"first", "last", "mean", "all", got "middle"'),
        ("layers = [2, 1]", "layers = 2", "`layers` must be a list, got 2; write [2], in brackets"),
        ("temperature = 0.2", 'temperature = "0.2"', 'a number, got "0.2"; write 0.2, without quotes'),
        ("temperature = 0.2", "temperature = .2", "(at line 5, column 15): temperature = .2"),
        ('labels = "y"', "labels = 1", '`labels` must be text, got 1; write "1", in quotes'),
        ('key_query = ["W1", "W2"]', 'key_query = ["W1", 2]', '`key_query[1]` must be text, got 2; write "2"'),
        ("[data]", "[solver]\nmax_steps = 0\n[data]", "`max_steps` must be a whole number of at least 1, got 0"),
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


@pytest.mark.slow
def test_the_command_is_installed_and_asks_for_double_precision_itself():
    finished = subprocess.run(
        [sys.executable, "-m", "theorykit", "derive", "--layers", "2"], capture_output=True, text=True, check=True
    )
    assert finished.stdout.startswith("# Action")


@pytest.mark.parametrize("command", cli._COMMANDS.values(), ids=cli._COMMANDS)
def test_a_summary_is_the_first_line_of_the_documentation(command):
    assert pkgutil.resolve_name(command.function).__doc__.splitlines()[0] == command.summary


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, ""),
        (["--version"], 0, ""),
        ([], 2, "theorykit: no command is given; `theorykit --help` lists them"),
        (["slove", "mine.toml"], 2, "theorykit: no command `slove`; did you mean `solve`?"),
        (["solve", "--overwirte", "mine.toml"], 2, "solve: no option `--overwirte`; did you mean `--overwrite`?"),
        (["derive", "--outptus=2"], 2, "derive: no option `--outptus`; did you mean `--outputs`?"),
        (["sweep", "mine.toml", "--no-such-thing"], 2, "`theorykit sweep --help` lists them"),
        (["compare"], 2, "PATH"),
        (["derive", "--layers"], 2, "derive: `--layers` needs one value or more"),
        (["derive", "--layers", "--steps"], 2, "derive: `--layers` needs one value or more"),
        (["solve", "typo.toml"], 1, "typo.toml: [architecture] has no key `temprature`; did you mean `temperature`?"),
        (["solve", "text.toml"], 1, '`temperature` must be a number, got "0.2"; write 0.2, without quotes'),
        (["sweep", "elsewhere.toml"], 1, "elsewhere.toml: [data] `file`: no data file nowhere.npz"),
        (["compare", "approach.toml"], 1, 'got "gibs"; did you mean "gibbs"?'),
        (["solve", "nowhere.toml"], 1, "no configuration file nowhere.toml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_help_and_mistakes_import_no_library_that_computes(arguments, code, said, folder):
    for name, old, new in (
        *(
            ("typo", "temperature", "temprature"),
            ("text", "= 0.2", '= "0.2"'),
            ("elsewhere", "data.npz", "nowhere.npz"),
        ),
        ("approach", "[data]", '[compare]\napproaches = ["gibs"]\n[data]'),
    ):
        (folder / f"{name}.toml").write_text(CONFIG.replace(old, new))
    command = [sys.executable, "-X", "importtime", "-m", "theorykit", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True)
    imported = {line.split("|")[-1].strip().split(".")[0] for line in finished.stderr.splitlines()}
    assert "theorykit" in imported and not imported & {"jax", "sympy", "xarray", "matplotlib", "scipy"}
    assert said in finished.stderr and finished.returncode == code
    if arguments == ["--version"]:
        assert finished.stdout == f"theorykit {__version__}\n"


def test_options_of_nested_settings_are_known():
    @dataclass
    class Inner:
        highest: float = 1.0

    @dataclass
    class Settings:
        first_seed: int = 0
        zoom: Inner = field(default_factory=Inner)

    def command(settings: Annotated[Settings, "of tyro"], overwrite: bool = False): ...

    command.__annotations__["settings"].__origin__.__annotations__["zoom"] = Inner
    known = cli._options(command)
    assert {"--first-seed", "--zoom.highest", "--overwrite", "--no-overwrite", "--help"} <= set(known)
    assert "--settings" not in known and "--zoom" not in known


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
    assert "3 classes with coding one-hot need 3 outputs" in refused(monkeypatch, "solve", "mine.toml")


@pytest.mark.parametrize("removed", ["", 'test_inputs = "x_test"\ntest_labels = "y_test"'])
def test_a_mistaken_mask_is_blamed(removed, folder, monkeypatch):
    (folder / "mine.toml").write_text(CONFIG.replace(removed, "") + 'mask = ["casual"]\n')
    message = refused(monkeypatch, "solve", "mine.toml")
    assert "`mask`" in message and 'did you mean "causal"?' in message
