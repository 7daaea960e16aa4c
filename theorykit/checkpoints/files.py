"""Checkpoint files as mappings from names to arrays, which are loaded on access. Nothing is ever unpickled."""

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

from ..checks import checked_path, counted, first_line, shown
from ..extras import needed
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text

_INDEX = ".safetensors.index.json"
_SAVED = "model.safetensors"
_PART = re.compile(r"(?P<name>.*)-(?P<number>\d+)-of-(?P<count>\d+)\.safetensors")
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".bin.index.json")
_INSTEAD = (
    "pickles can run any code and are not read: load it where you trust it, and save the arrays by "
    "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"
)
# Types of the safetensors format that NumPy can represent; BF16 is read as float32.
_TYPES = ("F64", "F32", "F16", "BF16", "BOOL", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")
# Trained weights hardly compress. An array that shrinks by more than the ratio, and is large, is a zip bomb.
_MOST_RATIO, _ANY_RATIO_BYTES = 200, 2**24
# The longest header of a safetensors file also limits the size of an index or a configuration.
_MOST_BYTES = 100_000_000


@dataclass(frozen=True, repr=False)
class Checkpoint(DisplayMixin, Mapping):
    """The arrays of the checkpoint file `path` by name; every access loads the array again."""

    path: Path
    stored: Mapping[str, tuple[Path, tuple[int, ...]]]

    def __getitem__(self, name: str) -> np.ndarray:
        """Load the array `name` with its type in the file; bfloat16 as float32."""
        if name not in self.stored:
            raise KeyError(f"{self.path} has no array {shown(name)}")
        file = self.stored[name][0]
        if file.suffix == ".npz":
            with _reading(file, "an npz archive"), np.load(file, allow_pickle=False) as archive:
                return archive[name]
        with _open_safetensors(file) as opened:
            kind = opened.get_slice(name).get_dtype()
            if kind not in _TYPES:
                raise _Refused(f"{file} has {shown(name)} of type {shown(kind)}: is it quantised?")
            array = opened.get_tensor(name)
        return array.astype(np.float32) if kind == "BF16" else array

    def __contains__(self, name: object) -> bool:
        return name in self.stored

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Checkpoint** {self.path}: {counted(len(self), 'array')}")
        if self.stored:
            rows = ((name, " x ".join(map(str, shape)) or "number") for name, (_, shape) in self.stored.items())
            yield Table(tuple(rows), ("array", "shape"))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the array `name` without loading the array."""
        if not isinstance(name, str) or name not in self.stored:
            raise ValueError(f"name must be one of the arrays in {self.path}, got {shown(name)}")
        return self.stored[name][1]


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Open a checkpoint file: `.safetensors`, the `.safetensors.index.json` of a file in parts, or `.npz`.

    You can also pass a folder from `save_pretrained`. Only headers are read; an array is loaded when you access it by
    name.

    Raises:
        FileNotFoundError: there is no file.
        ValueError: the file is damaged, of another format, or a pickle, as `torch.save` writes it.
        ImportError: safetensors is not installed, and the file is not `.npz`.
    """
    path = checked_path("path", path)
    path = _in_folder(path) if path.is_dir() else path
    if path.name.endswith(_PICKLES):
        raise ValueError(f"{path} is a pickle by its ending; {_INSTEAD}")
    if not path.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    if path.name.endswith(_INDEX) and path.is_file():
        return Checkpoint(path, _in_parts(path))
    shapes = {".npz": _npz_shapes, ".safetensors": _safetensors_shapes}.get(path.suffix)
    if shapes is None or not path.is_file():
        raise ValueError(f"{path} is no file that ends in one of .safetensors, {_INDEX} and .npz")
    return Checkpoint(path, {name: (path, shape) for name, shape in shapes(path).items()})


def _in_folder(folder: Path) -> Path:
    for name in (_SAVED, f"model{_INDEX}"):
        if (folder / name).is_file():
            return folder / name
    names = sorted(path.name for path in folder.iterdir())
    if any(name.startswith("adapter_") for name in names):
        raise ValueError(f"{folder} has an adapter, and no model: merge it into its model, and save that")
    if pickles := [name for name in names if name.endswith(_PICKLES)]:
        raise ValueError(f"{folder} has {pickles[0]}, a pickle by its ending, and no {_SAVED}; {_INSTEAD}")
    raise ValueError(f"{folder} is a folder without {_SAVED} or its index: give the checkpoint in it")


def refuse_part(path: Path) -> None:
    """Raise `ValueError` if `path` is one part of a checkpoint in several files."""
    if (part := _PART.fullmatch(path.name)) and int(part["count"]) > 1:
        raise ValueError(
            f"{path} is part {int(part['number'])} of {int(part['count'])} of a checkpoint: give "
            f"{part['name']}{_INDEX}, or the folder"
        )


def _in_parts(path: Path) -> dict[str, tuple[Path, tuple[int, ...]]]:
    places = read_object(path, "the index of a checkpoint").get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise ValueError(f"{path} is no index of a checkpoint: it has no weight_map from names of arrays to files")
    parts = {}
    for file in sorted(set(places.values())):
        # Do not let an untrusted index choose files outside its folder.
        if Path(file).name != file or "\0" in file or not file.endswith(".safetensors"):
            raise ValueError(f"{path} names {shown(file)}, which is no safetensors file next to it")
        part = path.parent / file
        if not part.is_file():
            raise FileNotFoundError(f"{path} names {part}, which is not there")
        parts[file] = _safetensors_shapes(part)
    for name, file in places.items():
        if name not in parts[file]:
            raise ValueError(f"{path} says that {shown(name)} is in {file}, which does not have it")
    return {name: (path.parent / file, parts[file][name]) for name, file in places.items()}


def read_object(path: Path, what: str) -> dict[str, Any]:
    """Read the JSON object in the file `path`, called `what` in errors; refuse duplicate keys."""
    damaged = f"{path} is damaged, or another file: {what}"
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{damaged} has {path.stat().st_size} bytes")
    try:
        found = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_without_repetition)
    except RecursionError:
        raise ValueError(f"{damaged} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{damaged} is not JSON ({first_line(error)[:120]})") from None
    if not isinstance(found, dict):
        raise ValueError(f"{damaged} is no JSON object, but {shown(found)}")
    return found


def _without_repetition(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {shown(repeated)} is there twice")
    return found


class _Refused(Exception):
    """An error in a file, with a message for the user."""


@contextlib.contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    # Readers may raise anything for a damaged file.
    try:
        yield
    except _Refused as refused:
        raise ValueError(str(refused)) from None
    except Exception as error:
        raise ValueError(
            f"{path} cannot be read as {what} ({first_line(error)[:120]}): is it damaged, or another file?"
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
    """Read shapes from headers and compare them with sizes in the archive, so that loading needs no more memory."""
    shapes = {}
    with _reading(path, "an npz archive"), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name, length = member.filename.removesuffix(".npy"), member.file_size
            has = f"{path} has {shown(name)}"
            if name == member.filename:
                raise _Refused(f"{has}, which is no array of NumPy: an archive that torch.save wrote has pickles in it")
            # An archive can claim more compressed bytes than it has.
            compressed = min(member.compress_size, path.stat().st_size)
            if length > max(_ANY_RATIO_BYTES, _MOST_RATIO * compressed):
                raise _Refused(f"{has}, which unpacks from {compressed} bytes to {length}: these are no weights")
            with archive.open(member) as stream:
                is_first = np.lib.format.read_magic(stream) == (1, 0)
                read = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(stream)
                header = stream.tell()
            if dtype.kind not in "fiub":
                raise _Refused(f"{has} of type {dtype}, not of NumPy's real numbers: save it as float32")
            if min(shape, default=0) < 0 or header + math.prod(shape) * dtype.itemsize != length:
                raise _Refused(f"{has} of {dtype} and shape {shape} in {length} bytes: it is damaged")
            if name in shapes:
                raise _Refused(f"{has} more than once")
            shapes[name] = shape
    return shapes
