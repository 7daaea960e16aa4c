"""Checkpoint files as mappings from names to arrays, which are loaded on access. Pickles are never read."""

import contextlib
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._compat import needed
from ..checks import checked_path, counted, first_line, shown
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text, verbatim

_INDEX = ".safetensors.index.json"
_SAVED = "model.safetensors"
_PART = re.compile(r"(?P<name>.*)-(?P<number>\d+)-of-(?P<count>\d+)\.safetensors")
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".bin.index.json")
_INSTEAD = (
    "pickles can run any code, so they are not read: if you trust it, load it in torch, and save the arrays with "
    "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"
)
# Types of the safetensors format that NumPy can represent. BF16 is read as float32.
_TYPES = ("F64", "F32", "F16", "BF16", "BOOL", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")
# Largest compression ratio of a large array. Trained weights hardly compress, so a larger ratio indicates a zip bomb.
_MOST_RATIO = 200
# Size in bytes up to which an array may have any compression ratio.
_ANY_RATIO_BYTES = 2**24
# Largest size of an index or a configuration. It is the limit of the safetensors format for headers.
_MOST_BYTES = 100_000_000


@dataclass(frozen=True, repr=False)
class Checkpoint(DisplayMixin, Mapping):
    """The arrays of a checkpoint file by name. Every access loads the array again.

    - `path`: the file.
    - `stored`: for every array, the file that contains it and its shape.
    """

    path: Path
    stored: Mapping[str, tuple[Path, tuple[int, ...]]]

    def __getitem__(self, name: str) -> np.ndarray:
        """Load an array with its type in the file. Arrays in bfloat16 are converted to float32."""
        if name not in self.stored:
            raise KeyError(f"{self.path} has no array {shown(name)}")
        file = self.stored[name][0]
        if file.suffix == ".npz":
            with _reading(file, "an npz archive"), np.load(file, allow_pickle=False) as archive:
                return archive[name]
        with _open_safetensors(file) as opened:
            kind = opened.get_slice(name).get_dtype()
            if kind not in _TYPES:
                raise _Refused(
                    f"{file} has {shown(name)} of type {shown(kind)}, which is not supported; save quantised models as "
                    "float32 or bfloat16"
                )
            array = opened.get_tensor(name)
        return array.astype(np.float32) if kind == "BF16" else array

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Checkpoint** {verbatim(self.path)}: {counted(len(self), 'array')}")
        if self.stored:
            rows = (
                (verbatim(name), " x ".join(map(str, shape)) or "number") for name, (_, shape) in self.stored.items()
            )
            yield Table(tuple(rows), ("array", "shape"))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the array `name` without loading the array."""
        if not isinstance(name, str) or name not in self.stored:
            raise ValueError(f"name must be one of the arrays in {self.path}, got {shown(name)}")
        return self.stored[name][1]


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Open a checkpoint file. Only headers are read, and an array is loaded when you access it by name.

    Args:
        path: a `.safetensors` or `.npz` file, the `.safetensors.index.json` of a checkpoint in several files, or a
            folder from `save_pretrained`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, has another format, or is a pickle, as written by `torch.save`.
        ImportError: safetensors is not installed, and the file is not `.npz`.
    """
    path = checked_path("path", path)
    if path.is_dir():
        whole = next((path / name for name in (_SAVED, f"model{_INDEX}") if (path / name).is_file()), None)
        if whole is None:
            names = sorted(each.name for each in path.iterdir())
            if any(name.startswith("adapter_") for name in names):
                raise ValueError(
                    f"{path} has an adapter without its model: merge the adapter into the model, and save the result"
                )
            if pickles := [name for name in names if name.endswith(_PICKLES)]:
                raise ValueError(f"{path} has {pickles[0]}, with the ending of a pickle, but no {_SAVED}; {_INSTEAD}")
            raise ValueError(f"{path} is a folder without {_SAVED} or its index: pass the checkpoint file in it")
        path = whole
    if path.name.endswith(_PICKLES):
        raise ValueError(f"{path} has the ending of a pickle; {_INSTEAD}")
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    if path.name.endswith(_INDEX) and path.is_file():
        places, parts = read_object(path, "the index of a checkpoint").get("weight_map"), {}
        if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
            raise ValueError(
                f"{path} is not the index of a checkpoint: it has no weight_map from names of arrays to files"
            )
        for file in sorted(set(places.values())):
            # Do not let an untrusted index choose files outside its folder.
            if Path(file).name != file or "\0" in file or not file.endswith(".safetensors"):
                raise ValueError(f"{path} names {shown(file)}, which is not a safetensors file in the same folder")
            part = path.parent / file
            if not part.is_file():
                raise FileNotFoundError(f"{path} names {part}, which does not exist")
            parts[file] = _safetensors_shapes(part)
        for name, file in places.items():
            if name not in parts[file]:
                raise ValueError(f"{path} maps {shown(name)} to {file}, which does not contain it")
        return Checkpoint(path, {name: (path.parent / file, parts[file][name]) for name, file in places.items()})
    shapes = {".npz": _npz_shapes, ".safetensors": _safetensors_shapes}.get(path.suffix)
    if shapes is None or not path.is_file():
        raise ValueError(f"{path} must be a file that ends in .safetensors, {_INDEX} or .npz")
    return Checkpoint(path, {name: (path, shape) for name, shape in shapes(path).items()})


def refuse_part(path: Path) -> None:
    """Raise `ValueError` if `path` is one part of a checkpoint in several files."""
    if (part := _PART.fullmatch(path.name)) and int(part["count"]) > 1:
        raise ValueError(
            f"{path} is part {int(part['number'])} of {int(part['count'])} of a checkpoint: pass "
            f"{part['name']}{_INDEX}, or the folder"
        )


def read_object(path: Path, what: str) -> dict[str, Any]:
    """Read the JSON object in a file, called `what` in errors. Duplicate keys raise an error."""

    def without_repetition(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
            raise ValueError(f"the key {shown(repeated)} occurs twice")
        return found

    damaged = f"{path} is damaged, or another file: {what}"
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{damaged} has {path.stat().st_size} bytes")
    try:
        found = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=without_repetition)
    except RecursionError:
        raise ValueError(f"{damaged} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{damaged} is not JSON ({first_line(error)[:120]})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{damaged} must be a JSON object, got {shown(found)}")
    return found


class _Refused(Exception):
    """An error in a file, with a message for the user."""


@contextlib.contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    # For damaged files, readers may raise any error.
    try:
        yield
    except _Refused as refused:
        raise ValueError(str(refused)) from None
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as {what} ({first_line(error)[:120]}): it may be damaged, or have another format"
        ) from error


@contextlib.contextmanager
def _open_safetensors(path: Path) -> Iterator[Any]:
    safe_open = needed("safetensors", str(path)).safe_open
    # Open the file again for every array: truncating a file that is mapped into memory would kill the process.
    with _reading(path, "a safetensors file"), safe_open(path, framework="numpy") as opened:
        yield opened


def _safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    with _open_safetensors(path) as opened:
        return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118


def _npz_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read shapes from headers, and compare them with sizes in the archive before memory is allocated."""
    shapes = {}
    with _reading(path, "an npz archive"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name, length = member.filename.removesuffix(".npy"), member.file_size
            has = f"{path} has {shown(name)}"
            if name == member.filename:
                raise _Refused(f"{has}, which is not a NumPy array: archives from torch.save contain pickles")
            # An archive can claim more compressed bytes than it has.
            compressed = min(member.compress_size, path.stat().st_size)
            if length > max(_ANY_RATIO_BYTES, _MOST_RATIO * compressed):
                raise _Refused(
                    f"{has}, which expands from {compressed} bytes to {length}: these are not trained weights"
                )
            with archive.open(member) as stream:
                is_first = np.lib.format.read_magic(stream) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(stream)
                header = stream.tell()
            if dtype.kind not in "fiub":
                raise _Refused(f"{has} of type {dtype}, which is not a real number of NumPy: save it as float32")
            if min(shape, default=0) < 0 or header + math.prod(shape) * dtype.itemsize != length:
                raise _Refused(f"{has} of {dtype} and shape {shape} in {length} bytes: it is damaged")
            if name in shapes:
                raise _Refused(f"{has} more than once")
            shapes[name] = shape
    return shapes
