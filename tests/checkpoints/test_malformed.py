"""Malformed files are refused in one line that names the file; nothing is unpickled, and no memory is asked for."""

import sys
import tracemalloc

import numpy as np
import pytest

from theorykit.checkpoints import read_checkpoint, read_heads

from .files import HEADS, case, safetensors, write
from .malformed import BOMB_LENGTH, MALFORMED, UNPICKLED

FLIPS = 200


def assert_refused(path, **options):
    with pytest.raises((ValueError, FileNotFoundError, TypeError)) as caught:
        read_heads(path, **{"layer": 0, "heads": HEADS, **options})
    message = str(caught.value)
    # of a checkpoint in several files, one of these
    assert str(path.parent) in message and "\n" not in message and len(message) < 1000, message
    return message


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_file_is_refused_in_a_line_that_names_it(name, tmp_path):
    path = MALFORMED[name](tmp_path)
    read_heads(case("bert").arrays, layer=0, heads=HEADS)  # what JAX keeps is allocated
    tracemalloc.start()
    try:
        assert_refused(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < BOMB_LENGTH / 4
    assert not UNPICKLED


def test_a_file_cut_anywhere_is_refused(tmp_path):
    whole = safetensors(case("bert").arrays)
    path = tmp_path / "model.safetensors"
    for length in np.random.default_rng(0).integers(0, len(whole), FLIPS):
        path.write_bytes(whole[:length])
        assert_refused(path)


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_a_file_changed_anywhere_is_refused_in_a_line_or_read(ending, tmp_path):
    path = write(tmp_path / f"model{ending}", case("bert").arrays)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    places = (rng.integers(0, 8 * length, FLIPS) for length in (len(whole), 2000))
    for place in np.concatenate([*places]):
        changed = bytearray(whole)
        changed[place // 8] ^= 1 << int(place % 8)
        path.write_bytes(changed)
        try:
            for array in read_checkpoint(path).values():
                assert isinstance(array, np.ndarray)
        except (ValueError, TypeError) as error:
            assert str(path) in str(error) and "\n" not in str(error), error


def test_a_file_that_is_cut_after_its_header_was_read_is_refused(tmp_path):
    path = write(tmp_path / "model.safetensors", case("bert").arrays)
    checkpoint = read_checkpoint(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="cannot be read as a safetensors file"):
        list(checkpoint.values())


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_only_what_is_asked_for_is_loaded(ending, tmp_path):
    large = {"large": np.random.default_rng(0).standard_normal(2**20), "small": np.ones(3)}
    path = write(tmp_path / f"model{ending}", large)
    tracemalloc.start()
    try:
        checkpoint = read_checkpoint(path)
        assert "large" in checkpoint and checkpoint.shape("large") == (2**20,)
        if ending == ".safetensors":
            np.testing.assert_array_equal(checkpoint["small"], large["small"])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2**20
    np.testing.assert_array_equal(checkpoint["large"], large["large"])


def test_without_safetensors_the_error_names_it_and_archives_are_read(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(
        ImportError, match=r"needs safetensors, which is not installed: .* pip install -e '\.\[checkpoints\]'"
    ):
        read_checkpoint(write(tmp_path / "model.safetensors", {"a": np.ones(2)}))
    np.testing.assert_array_equal(read_checkpoint(write(tmp_path / "model.npz", {"a": np.ones(2)}))["a"], np.ones(2))
