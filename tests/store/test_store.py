"""Results on disk: whole or not at all, never overwritten unasked, resumed only for the same settings."""

import jax
import numpy as np
import pytest
import xarray as xr

from theorykit import store

RESULT = xr.Dataset({"accuracy": ("width", np.array([0.9, 0.8]))}, coords={"width": [10, 100]})


def test_a_result_comes_back_as_it_was_written(tmp_path):
    store.write(RESULT, tmp_path / "a" / "result.nc")
    xr.testing.assert_identical(store.read(tmp_path / "a" / "result.nc").to_dataset(), RESULT)


def test_an_existing_file_is_kept_unless_told_otherwise(tmp_path):
    path = tmp_path / "result.nc"
    store.write(RESULT, path)
    with pytest.raises(FileExistsError, match=r"result\.nc exists"):
        store.write(RESULT * 2, path)
    xr.testing.assert_identical(store.read(path).to_dataset(), RESULT)
    store.write(RESULT * 2, path, overwrite=True)
    xr.testing.assert_identical(store.read(path).to_dataset(), RESULT * 2)


def test_a_crash_while_writing_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "result.nc"
    store.write(RESULT, path)
    unwritable = RESULT.assign_attrs(nothing=None)
    with pytest.raises((TypeError, ValueError)):
        store.write(unwritable, path, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["result.nc"]
    xr.testing.assert_identical(store.read(path).to_dataset(), RESULT)


def test_a_missing_result_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.nc"):
        store.read(tmp_path / "nowhere.nc")


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


def test_the_leaves_of_a_tree_come_back_to_one_like_it(tmp_path):
    tree = {"a": (np.arange(3), np.float64(2.5)), "b": np.array([[True]])}
    store.write_arrays({**store.leaf_arrays(tree), "more": 3}, SETTINGS, tmp_path / "run.npz")
    arrays = store.read_arrays(tmp_path / "run.npz", "training", SETTINGS)
    found = store.tree_like(tree, arrays)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    assert all(np.array_equal(one, other) for one, other in zip(*map(jax.tree.leaves, (found, tree)), strict=True))
    with pytest.raises(ValueError, match=r"leaf 0 of arrays is .*of tree it is"):
        store.tree_like({**tree, "a": (np.arange(4), np.float64(2.5))}, arrays)
    with pytest.raises(ValueError, match="fewer than 4 leaves"):
        store.tree_like({**tree, "c": 1.0}, arrays)


def test_text_follows_the_same_rules(tmp_path):
    store.write_text("one", tmp_path / "a.md")
    with pytest.raises(FileExistsError):
        store.write_text("two", tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == "one"


SETTINGS = {"steps": "3", "data": "a"}
ARRAYS = {"weights": np.arange(6.0).reshape(2, 3), "step": np.array(4)}


def test_a_checkpoint_comes_back_to_the_settings_that_it_is_of(tmp_path):
    path = tmp_path / "run.npz"
    assert store.read_arrays(path, "training", SETTINGS) is None
    store.write_arrays(ARRAYS, SETTINGS, path)
    found = store.read_arrays(path, "training", SETTINGS)
    assert set(found) == set(ARRAYS)
    assert all(np.array_equal(found[name], ARRAYS[name]) for name in ARRAYS)


def test_a_checkpoint_of_other_settings_is_refused_with_what_differs(tmp_path):
    path = tmp_path / "run.npz"
    store.write_arrays(ARRAYS, SETTINGS, path)
    with pytest.raises(FileExistsError, match=r"another training, which differs in data: a there, b now"):
        store.read_arrays(path, "training", {**SETTINGS, "data": "b"})
    assert store.read_arrays(path, "training", SETTINGS) is not None


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_broken_checkpoint_is_named(tmp_path, content):
    path = tmp_path / "run.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.npz is not a checkpoint of a training"):
        store.read_arrays(path, "training", SETTINGS)


def test_half_a_checkpoint_is_named(tmp_path):
    path = tmp_path / "run.npz"
    store.write_arrays(ARRAYS, SETTINGS, path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"run\.npz is not a checkpoint"):
        store.read_arrays(path, "training", SETTINGS)
