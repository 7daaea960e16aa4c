"""A user's folders."""

import numpy as np
import pytest

from .terminal import COMPARE, CONFIG


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


@pytest.fixture
def small(folder):
    """A user's folder, with few data and a configuration of a comparison."""
    arrays = dict(np.load(folder / "data.npz"))
    np.savez(folder / "data.npz", **{**arrays, "x": arrays["x"][:8], "y": arrays["y"][:8]})
    (folder / "mine.toml").write_text(COMPARE)
    return folder
