"""Checkpoint files that are damaged, of others, or made to do harm, by what is wrong with them."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from .files import FEATURES, case, safetensors, with_header

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


def two(first, second, content: bytes = bytes(16)) -> bytes:
    """Two arrays at these offsets."""
    return header(
        {
            name: {"dtype": "U8", "shape": [offsets[1] - offsets[0]], "data_offsets": offsets}
            for name, offsets in (("a", first), ("b", second))
        },
        content,
    )


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
    "empty": b"",
    "a header of 2^64 - 1 bytes": header(ONE, bytes(8), length=2**64 - 1),
    "a header longer than the file": header(ONE, bytes(8), length=500),
    "cut within the arrays": WHOLE[:-1],
    "more at the end": WHOLE + b"\0",
    "text": b"this is no checkpoint at all, but a page that says so\n",
    "a git-lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 440449768\n",
    "a pickle": pickle.dumps({"a": Harm()}),
    "not JSON": header(b"{'a': 1}" + bytes(2)),
    "a list": header([1, 2]),
    "nested deeply": header(b'{"a":' + 100_000 * b"[" + 100_000 * b"]" + b"}"),
    "a key twice": header(b'{"a": %b, "a": %b}' % (2 * (json.dumps(ONE["a"]).encode(),)), bytes(8)),
    "an unknown dtype": entry(dtype="F128"),
    "eight-bit floats": entry(dtype="F8_E4M3", shape=[8]),
    "a negative length": entry(shape=[-2]),
    "a shape whose product wraps around": entry(shape=[2**32, 2**32, 2]),
    "an empty shape of huge lengths": entry(b"", shape=[0, 2**62, 2**62], data_offsets=[0, 0]),
    "a hundred axes": entry(shape=[1] * 99 + [2]),
    "offsets beyond the file": entry(data_offsets=[800, 808]),
    "arrays that are the same bytes": two([0, 8], [0, 8], bytes(8)),
    "a gap between arrays": two([0, 6], [8, 16]),
    "a NaN among the weights": changed(query_weight=filled(np.nan)),
    "an infinity among the weights": changed(key_weight=filled(np.inf)),
    "a NaN among the biases": changed(query_bias=np.full(FEATURES, np.nan)),
    "weights that are integers": changed(query_weight=np.ones((FEATURES, FEATURES), np.int8)),
    "weights that are truth values": changed(query_weight=np.ones((FEATURES, FEATURES), bool)),
    "weights of one axis": changed(query_weight=np.ones(FEATURES)),
    "weights of three axes": changed(query_weight=np.ones((FEATURES, FEATURES, 1))),
    "weights of no features": changed(query_weight=np.ones((FEATURES, 0))),
    "fewer keys than queries": changed(key_weight=np.ones((FEATURES // 3, FEATURES))),
    "keys of other features": changed(key_weight=np.ones((FEATURES, FEATURES + 1))),
    "pruned heads": changed(
        **{f"{name}_weight": np.ones((4, FEATURES)) for name in ("query", "key")},
        **{f"{name}_bias": np.ones(4) for name in ("query", "key")},
    ),
    "names of several lines": safetensors({"a\nb": np.ones(2)}),
    "a name of a million characters": safetensors({1_000_000 * "a": np.ones(2)}),
    "a long name of several lines": safetensors({100 * "a\nb" + ".in_proj_weight": np.ones((4, FEATURES))}),
    "a long name behind which a bias is missing": safetensors({100 * "a\nb" + ".query_proj.weight": np.ones((6, 6))}),
    "biases of another length": changed(query_bias=np.ones(FEATURES + 1)),
    "no keys": changed(key_weight=None),
    "no bias of the keys": changed(key_bias=None),
    "no arrays": safetensors({}),
    "other arrays": safetensors({"a": np.ones(2)}),
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
    "empty": b"",
    "text": b"PK, but no archive",
    "cut to half": GOOD[: len(GOOD) // 2],
    "without members": archive({}),
    "a pickle": pickle.dumps({"a": Harm()}),
    "one array": npy(np.ones(3)),
    "an array of objects": saved(**ARRAYS, a=np.array([Harm(), None])),
    "a pickle as an array": archive({"a.npy": pickle.dumps(Harm())}),
    "a member that is no array": archive({"a/data.pkl": pickle.dumps(Harm()), "a/data/0": bytes(8)}),
    "text as an array": saved(a=np.array(["words"])),
    "complex numbers": saved(a=np.ones(2, complex)),
    "bfloat16 as NumPy sees it": archive({"a.npy": claimed("(4,)", bytes(8), "'|V2'")}),
    "an array of huge shape": archive({"a.npy": claimed("(10**6, 10**6)".replace("10**6", "1000000"))}),
    "an array of 2^70 entries": archive({"a.npy": claimed(f"({2**70},)")}),
    "an array of negative shape": archive({"a.npy": claimed("(-2,)")}),
    "an array shorter than its shape": archive({"a.npy": claimed("(3,)")}),
    "an empty member": archive({"a.npy": b""}),
    "an array twice": repeated(),
    "a name of several lines": archive({"a\nb.txt": b""}),
    "a bomb": archive({"a.npy": BOMB}, zipfile.ZIP_DEFLATED),
    "a NaN among the weights": saved(**{**ARRAYS, f"{QUERY}.weight": filled(np.nan)}),
    "a changed byte": GOOD.replace(ARRAYS[f"{QUERY}.weight"].tobytes()[:8], bytes(8)),
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


def file(name: str, content: bytes | None):
    def write(folder: Path) -> Path:
        if content is not None:
            (folder / name).write_bytes(content)
        return folder / name

    return write


def folder(name: str):
    def write(folder: Path) -> Path:
        (folder / name).mkdir()
        return folder / name

    return write


def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "model.safetensors")
    return folder / "model.safetensors"


OTHERS: Mapping[str, Callable[[Path], Path]] = {
    **{f"a file {name}": file(name, pickle.dumps(Harm())) for name in ("a.pt", "a.pth", "a.bin", "a.ckpt", "a.pkl")},
    "a file without an ending": file("model", WHOLE),
    "an array of NumPy": file("a.npy", npy(np.ones(3))),
    "an index of pickles": file("pytorch_model.bin.index.json", b"{}"),
    "no file": file("model.safetensors", None),
    "no archive": file("model.npz", None),
    "a folder": folder("model"),
    "a folder called as a file": folder("model.safetensors"),
    "a pipe": pipe,
    "an index that is empty": index(b""),
    "an index that is not JSON": index(b"{"),
    "an index without a map": index(b"{}"),
    "an index whose map is a list": index(["a"]),
    "an index of numbers": index({"a": 1}),
    "an index with a key twice": index(b'{"weight_map": {"a": "part.safetensors", "a": "part.safetensors"}}'),
    "an index of a missing part": index({"a": "missing.safetensors"}),
    "an index of a damaged part": index({"a": "damaged.safetensors"}),
    "an index of a file elsewhere": index({"a": "../part.safetensors"}),
    "an index of an absolute file": index({"a": "/etc/passwd.safetensors"}),
    "an index of a pickle": index({"a": "part.bin"}),
    "an index of an array that is not there": index({"another": "part.safetensors"}),
    "an empty config.json": beside(b""),
    "a config.json that is a list": beside([]),
    "a config.json of no heads": beside({"num_attention_heads": 0}),
    "a config.json of half a head": beside({"num_attention_heads": 1.5}),
    "a config.json of other heads": beside({"num_attention_heads": 4}),
    "a config.json of rotary positions": beside({"rope_theta": 10000.0}),
    "a config.json of newer rotary positions": beside({"rope_parameters": {"rope_theta": 10000.0}}),
    "a config.json of relative positions": beside({"position_embedding_type": "relative_key"}),
    "a config.json of shared keys": beside({"num_attention_heads": 3, "num_key_value_heads": 1}),
    "a config.json of linear biases": beside({"alibi": True}),
    "a config.json of pruned heads": beside({"pruned_heads": {"0": [1]}}),
    "a config.json of another model": beside({"model_type": "big_bird"}),
    "a config.json whose switch is a number": beside({"is_decoder": 3}),
}

MALFORMED: Mapping[str, Callable[[Path], Path]] = {
    **{f"safetensors: {name}": file("model.safetensors", content) for name, content in SAFETENSORS.items()},
    **{f"npz: {name}": file("model.npz", content) for name, content in NPZ.items()},
    **OTHERS,
}
