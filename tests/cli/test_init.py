"""`theorykit init`: what it guesses is what a user would have written, and runs."""

import tomllib

import numpy as np
import pytest
import xarray as xr

from theorykit.cli.data import read_data
from theorykit.cli.init import configuration, guess

from .terminal import refused, run

DRAW = np.random.default_rng(0)
INPUTS, TEST = DRAW.normal(size=(30, 4, 5)), DRAW.normal(size=(6, 4, 5))
LENGTHS = DRAW.integers(1, 5, size=30)
ANIMALS = np.array(["cat", "dog", "eel"] * 10)
HEADS = {"W1": DRAW.normal(size=(2, 5, 5)), "W2": DRAW.normal(size=(3, 5, 5))}
MAPS = {"A1": np.full((30, 2, 4, 4), 0.25), "A1_test": np.full((6, 2, 4, 4), 0.25)}
FILES = {
    "heads": (
        {"inputs": INPUTS, **HEADS, "labels": ANIMALS, "test_inputs": TEST, "test_labels": ANIMALS[:6]},
        {
            "inputs": ["inputs"],
            "key_query": ["W1", "W2"],
            "labels": ["labels"],
            "test_inputs": ["test_inputs"],
            "test_labels": ["test_labels"],
        },
        "layers = [2, 3]",
    ),
    "names of scikit-learn, and no heads": (
        {"X_train": INPUTS, "y_train": DRAW.normal(size=30), "X_test": TEST, "y_test": DRAW.normal(size=6)},
        {"inputs": ["X_train"], "labels": ["y_train"], "test_inputs": ["X_test"], "test_labels": ["y_test"]},
        'layers = [{kind = "dense"}]',
    ),
    "recorded attention": (
        {"tokens": INPUTS, **MAPS, "target": np.arange(30) % 4, "tokens_test": TEST},
        {
            "inputs": ["tokens"],
            "attention": ["A1"],
            "labels": ["target"],
            "test_inputs": ["tokens_test"],
            "test_attention": ["A1_test"],
        },
        "layers = [2]",
    ),
    "queries and keys, and lengths": (
        {
            "x": INPUTS,
            "query_1": DRAW.normal(size=(2, 3, 5)),
            "key_1": DRAW.normal(size=(2, 3, 5)),
            "lengths": np.full(30, 4),
            "y": np.ones(30),
        },
        {"inputs": ["x"], "query": ["query_1"], "key": ["key_1"], "mask": ["lengths"], "labels": ["y"]},
        "layers = [2]",
    ),
    "lengths, and no heads": (
        {"x": INPUTS, "lengths": LENGTHS, "y": ANIMALS, "x_test": TEST, "lengths_test": LENGTHS[:6]},
        {
            "inputs": ["x"],
            "mask": ["lengths"],
            "labels": ["y"],
            "test_inputs": ["x_test"],
            "test_mask": ["lengths_test"],
        },
        'layers = [{kind = "dense"}]',
    ),
    "path features": (
        {"phi": INPUTS, "y": DRAW.normal(size=(30, 2)), "phi_test": TEST[:, :, :3]},
        {"features": ["phi"], "labels": ["y"]},
        "layers = [4]",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_guess_is_read_as_data(name, tmp_path, monkeypatch, capsys):
    arrays, roles, layers = FILES[name]
    assert guess(arrays) == roles
    np.savez(tmp_path / "mine.npz", **arrays)
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "init", "mine.npz")
    assert "then run: theorykit solve mine.toml" in capsys.readouterr().out
    assert layers in (tmp_path / "mine.toml").read_text()
    from theorykit.cli.config import read_config

    settings = read_config(tmp_path / "mine.toml")
    data = read_data(settings.data, settings.architecture.build(), tmp_path, infer_outputs=True)
    assert len(data.labels) == 30 and (data.test_features is None) == ("test_inputs" not in roles)
    assert (data.classes is not None) == (name in ("heads", "recorded attention", "lengths, and no heads"))
    if name == "lengths, and no heads":
        # Path features are divided by the root of the number of features.
        last, last_of_test = INPUTS[np.arange(30), LENGTHS - 1], TEST[np.arange(6), LENGTHS[:6] - 1]
        np.testing.assert_allclose(data.features[:, 0], last / 5**0.5, rtol=1e-14)
        np.testing.assert_allclose(data.test_features[:, 0], last_of_test / 5**0.5, rtol=1e-14)


def test_what_cannot_be_guessed_is_said_and_marked(tmp_path, monkeypatch, capsys):
    xr.Dataset({"table": (("row", "column"), np.ones((3, 2)))}).to_netcdf(tmp_path / "mine.nc", engine="h5netcdf")
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "init", "mine.nc", "--output", "other.toml")
    assert "not complete: no array looks like inputs" in capsys.readouterr().out
    text = (tmp_path / "other.toml").read_text()
    assert text.count("CHANGE") == 2 and '"table": float64, (3, 2), not used' in text
    tomllib.loads(text)


def test_a_configuration_of_the_user_is_never_replaced(tmp_path, monkeypatch):
    np.savez(tmp_path / "mine.npz", x=INPUTS, y=np.ones(30))
    monkeypatch.chdir(tmp_path)
    run(monkeypatch, "init", "mine.npz")
    assert "mine.toml exists" in refused(monkeypatch, "init", "mine.npz")
    run(monkeypatch, "init", "mine.npz", "--overwrite")
    (tmp_path / "mine.toml").write_text("# mine")
    for flags in ((), ("--overwrite",)):
        assert "mine.toml" in refused(monkeypatch, "init", "mine.npz", *flags)
    assert (tmp_path / "mine.toml").read_text() == "# mine"


def test_names_of_arrays_write_no_keys():
    hostile = 'x"\n[solver]\ntolerance = 1\n#'
    text, _ = configuration({hostile: INPUTS, "y": np.ones(30)}, hostile)
    read = tomllib.loads(text)
    assert read["data"]["inputs"] == read["data"]["file"] == hostile and "solver" not in read
