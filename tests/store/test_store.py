"""Results on disk: whole or not at all, never overwritten unasked, resumed only for the same settings."""

import jax
import numpy as np
import pytest
import xarray as xr

from theorykit import store

RESULT = xr.Dataset({"accuracy": ("width", np.array([0.9, 0.8]))}, coords={"width": [10, 100]})
SETTINGS = {"steps": "3", "data": "a"}


def test_a_result_comes_back_as_it_was_written_and_is_kept_unless_told_otherwise(tmp_path):
    path = tmp_path / "a" / "result.nc"
    with pytest.raises(FileNotFoundError, match=r"result\.nc"):
        store.read(path)
    store.write(RESULT, path)
    with pytest.raises(FileExistsError, match=r"result\.nc exists"):
        store.write(RESULT * 2, path)
    # a crash while it is written leaves the old file and no other
    with pytest.raises((TypeError, ValueError)):
        store.write(RESULT.assign_attrs(nothing=None), path, overwrite=True)
    assert [file.name for file in path.parent.iterdir()] == ["result.nc"]
    xr.testing.assert_identical(store.read(path).to_dataset(), RESULT)
    store.write(RESULT * 2, path, overwrite=True)
    xr.testing.assert_identical(store.read(path).to_dataset(), RESULT * 2)
    store.write_text("one", tmp_path / "a.md")
    with pytest.raises(FileExistsError):
        store.write_text("two", tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == "one"


def test_a_result_is_computed_once_for_the_same_settings(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return RESULT

    for _ in range(2):
        xr.testing.assert_identical(store.resume(tmp_path / "part.nc", SETTINGS, compute), RESULT)
    assert len(calls) == 1
    with pytest.raises(FileExistsError, match="holds another run, which differs in data: a there, b now"):
        store.resume(tmp_path / "part.nc", {**SETTINGS, "data": "b"}, compute)
    assert len(calls) == 1
    long = {**SETTINGS, **{f"value {i}": "x" * 100 for i in range(2000)}}  # longer than an attribute may be
    for _ in range(2):
        xr.testing.assert_identical(store.resume(tmp_path / "long.nc", long, compute), RESULT)
    assert len(calls) == 2


def test_the_leaves_of_a_tree_come_back_to_one_like_it_and_its_settings(tmp_path):
    tree, path = {"a": (np.arange(3), np.float64(2.5)), "b": np.array([[True]])}, tmp_path / "run.npz"
    assert store.read_arrays(path, "training", SETTINGS) is None
    store.write_arrays({**store.leaf_arrays(tree), "more": 3}, SETTINGS, path)
    arrays = store.read_arrays(path, "training", SETTINGS)
    found = store.tree_like(tree, arrays)
    assert arrays["more"] == 3 and jax.tree.structure(found) == jax.tree.structure(tree)
    assert all(np.array_equal(one, other) for one, other in zip(*map(jax.tree.leaves, (found, tree)), strict=True))
    with pytest.raises(ValueError, match=r"leaf 0 of arrays is .*but that of tree is"):
        store.tree_like({**tree, "a": (np.arange(4), np.float64(2.5))}, arrays)
    with pytest.raises(ValueError, match="must have the 4 leaves"):
        store.tree_like({**tree, "c": 1.0}, arrays)
    with pytest.raises(FileExistsError, match=r"another training, which differs in data: a there, b now"):
        store.read_arrays(path, "training", {**SETTINGS, "data": "b"})
