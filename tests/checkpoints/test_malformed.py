"""Malformed files are refused in one line that names the file; nothing is unpickled, and no memory is asked for."""

import io
import json
import os
import pickle
import struct
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from theorykit.checkpoints import read_checkpoint, read_heads

from .files import FEATURES, HEADS, case, safetensors, with_header, write

UNPICKLED: list[str] = []
ARRAYS = case("bert").arrays
QUERY = "encoder.layer.0.attention.self.query"
WHOLE = safetensors(ARRAYS)
ONE = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
# compresses to a thousandth of its length
BOMB_LENGTH = 2**26


class Harm:
    """What says so when it is unpickled."""

    def __reduce__(self):
        return UNPICKLED.append, ("unpickled",)


def header(value, content: bytes = b"", **more) -> bytes:
    return with_header(value if isinstance(value, bytes) else json.dumps(value).encode(), content, **more)


def entry(content: bytes = bytes(8), **changed) -> bytes:
    """One array in a file, of which something is changed."""
    return header({"a": {**ONE["a"], **changed}}, content)


def changed(**arrays) -> bytes:
    """A whole checkpoint in which arrays of the first layer are others; None leaves one out."""
    made = {**ARRAYS, **{f"{QUERY.rpartition('.')[0]}.{name.replace('_', '.')}": a for name, a in arrays.items()}}
    return safetensors({name: array for name, array in made.items() if array is not None})


def filled(value: float) -> np.ndarray:
    array = np.ones((FEATURES, FEATURES))
    array[2, 3] = value
    return array


# the safetensors package has tests of its format; here is what would do harm if it were read otherwise
SAFETENSORS: Mapping[str, bytes] = {
    "a header of 2^64 - 1 bytes": header(ONE, bytes(8), length=2**64 - 1),
    "text": b"this is no checkpoint at all, but a page that says so\n",
    "a pickle": pickle.dumps({"a": Harm()}),
    "eight-bit floats": entry(dtype="F8_E4M3", shape=[8]),
    "a shape whose product wraps around": entry(shape=[2**32, 2**32, 2]),
    "a NaN among the weights": changed(query_weight=filled(np.nan)),
    "a NaN among the biases": changed(query_bias=np.full(FEATURES, np.nan)),
    "weights that are integers": changed(query_weight=np.ones((FEATURES, FEATURES), np.int8)),
    "weights of one axis": changed(query_weight=np.ones(FEATURES)),
    "fewer keys than queries": changed(key_weight=np.ones((FEATURES // 3, FEATURES))),
    "pruned heads": changed(
        **{f"{name}_weight": np.ones((4, FEATURES)) for name in ("query", "key")},
        **{f"{name}_bias": np.ones(4) for name in ("query", "key")},
    ),
    "a name of a million characters": safetensors({1_000_000 * "a": np.ones(2)}),
    "a long name of several lines": safetensors({100 * "a\nb" + ".in_proj_weight": np.ones((4, FEATURES))}),
    "a long name behind which a bias is missing": safetensors({100 * "a\nb" + ".query_proj.weight": np.ones((6, 6))}),
    "no keys": changed(key_weight=None),
    "no bias of the keys": changed(key_bias=None),
    "no arrays": safetensors({}),
}


def npy(array=None, head: str | None = None, content: bytes = b"") -> bytes:
    """An array as NumPy writes it, or one with a header of the caller's."""
    if head is not None:
        text = head.encode().ljust(117) + b"\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    return stream.getvalue()


def claimed(shape: str, content: bytes = bytes(16), kind: str = "'<f8'") -> bytes:
    return npy(head=f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}", content=content)


def archive(members: Mapping[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", how) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


def repeated() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in ("a.npy", "b.npy"):
            file.writestr(name, npy(np.ones(2)))
    return stream.getvalue().replace(b"b.npy", b"a.npy")


def saved(**arrays) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


GOOD = saved(**ARRAYS)
BOMB = npy(head=f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({BOMB_LENGTH // 8},), }}") + bytes(BOMB_LENGTH)
NPZ: Mapping[str, bytes] = {
    "text": b"PK, but no archive",
    "a pickle": pickle.dumps({"a": Harm()}),
    "an array of objects": saved(**ARRAYS, a=np.array([Harm(), None])),
    "a pickle as an array": archive({"a.npy": pickle.dumps(Harm())}),
    "a member that is no array": archive({"a/data.pkl": pickle.dumps(Harm()), "a/data/0": bytes(8)}),
    "complex numbers": saved(a=np.ones(2, complex)),
    "bfloat16 as NumPy sees it": archive({"a.npy": claimed("(4,)", bytes(8), "'|V2'")}),
    "an array of huge shape": archive({"a.npy": claimed("(10**6, 10**6)".replace("10**6", "1000000"))}),
    "an array shorter than its shape": archive({"a.npy": claimed("(3,)")}),
    "an array twice": repeated(),
    "a name of several lines": archive({"a\nb.txt": b""}),
    "a bomb": archive({"a.npy": BOMB}, zipfile.ZIP_DEFLATED),
    "a NaN among the weights": saved(**{**ARRAYS, f"{QUERY}.weight": filled(np.nan)}),
}


def index(places, **more):
    """A checkpoint in parts whose index says where they are."""

    def write(folder: Path) -> Path:
        (folder / "part.safetensors").write_bytes(WHOLE)
        (folder / "damaged.safetensors").write_bytes(WHOLE[:-1])
        path = folder / "model.safetensors.index.json"
        path.write_bytes(places if isinstance(places, bytes) else json.dumps({"weight_map": places, **more}).encode())
        return path

    return write


def beside(settings):
    """A checkpoint beside a config.json."""

    def write(folder: Path) -> Path:
        (folder / "model.safetensors").write_bytes(WHOLE)
        content = settings if isinstance(settings, bytes) else json.dumps(settings).encode()
        (folder / "config.json").write_bytes(content)
        return folder / "model.safetensors"

    return write


def made(name: str, make: Callable[[Path], object]):
    """A file of this name, made somehow."""

    def write(folder: Path) -> Path:
        make(folder / name)
        return folder / name

    return write


def file(name: str, content: bytes):
    return made(name, lambda path: path.write_bytes(content))


OTHERS: Mapping[str, Callable[[Path], Path]] = {
    **{f"a file {name}": file(name, pickle.dumps(Harm())) for name in ("a.pt", "a.pth", "a.bin", "a.ckpt", "a.pkl")},
    "a file without an ending": file("model", WHOLE),
    "an index of pickles": file("pytorch_model.bin.index.json", b"{}"),
    "no file": made("model.safetensors", str),
    "a folder": made("model", Path.mkdir),
    "a pipe": made("model.safetensors", os.mkfifo),
    "an index without a map": index(b"{}"),
    "an index of numbers": index({"a": 1}),
    "an index with a key twice": index(b'{"weight_map": {"a": "part.safetensors", "a": "part.safetensors"}}'),
    "an index of a missing part": index({"a": "missing.safetensors"}),
    "an index of a damaged part": index({"a": "damaged.safetensors"}),
    "an index of a file elsewhere": index({"a": "../part.safetensors"}),
    "an index of a pickle": index({"a": "part.bin"}),
    "an index of an array that is not there": index({"another": "part.safetensors"}),
    "a config.json that is a list": beside([]),
    "a config.json of no heads": beside({"num_attention_heads": 0}),
    "a config.json of other heads": beside({"num_attention_heads": 4}),
    "a config.json whose switch is a number": beside({"is_decoder": 3}),
}

MALFORMED: Mapping[str, Callable[[Path], Path]] = {
    **{f"safetensors: {name}": file("model.safetensors", content) for name, content in SAFETENSORS.items()},
    **{f"npz: {name}": file("model.npz", content) for name, content in NPZ.items()},
    **OTHERS,
}
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
