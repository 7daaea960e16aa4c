"""Arrays in the safetensors format, https://github.com/huggingface/safetensors: a JSON header, then the arrays' bytes.

A file is the length of its header (8 bytes, little-endian), the header, and a buffer. The header has for every array
its type, its shape, and where its bytes are in the buffer, which the arrays fill without overlap or gap.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import shown
from .json_objects import MOST_BYTES, parse_object

_LENGTH = 8  # bytes that say how long the header is
_METADATA = "__metadata__"
# bytes are little-endian and rows come first; NumPy has no bfloat16, the upper half of a float32
_STORED = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "<u1"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1"},
}
_MOST_AXES = 32
_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class SafetensorsArray:
    """Where one array is: `name` in the file at `path`, of the format's type `kind`, `size` bytes at `start`."""

    path: Path
    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    size: int

    def read(self) -> np.ndarray:
        """The array, in the type that it is stored in; bfloat16 as float32, which has all its values."""
        if self.kind not in _STORED:
            raise ValueError(
                f"{self.path} has {shown(self.name)} of type {shown(self.kind)}, which is none of "
                f"{', '.join(_STORED)}: is it quantised?"
            )
        with self.path.open("rb") as file:
            file.seek(self.start)
            content = file.read(self.size)
        if len(content) != self.size:
            raise ValueError(
                f"{self.path} was cut short after its header had been read: {shown(self.name)} is not all there"
            )
        stored = np.frombuffer(content, _STORED[self.kind])
        if self.kind == "BF16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        elif self.kind == "BOOL":
            stored = stored != 0
        return stored.reshape(self.shape)


def find_arrays(path: Path) -> Mapping[str, SafetensorsArray]:
    """The arrays of a safetensors file by name, none of them loaded. `ValueError` for a file that breaks the format."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        length = int.from_bytes(file.read(_LENGTH), "little")
        if size < _LENGTH or length > min(size - _LENGTH, MOST_BYTES):
            claimed = f", but its header should have {length}" if size >= _LENGTH else ""
            raise ValueError(f"{path} is no whole safetensors file: it has {size} bytes{claimed}; was it cut short?")
        header = parse_object(file.read(length), path, "its safetensors header")
    start = _LENGTH + length
    entries = {name: entry for name, entry in header.items() if name != _METADATA}
    found = {name: _array(path, name, entry, start) for name, entry in entries.items()}
    _check_filled(path, found, start, size)
    return found


def _array(path: Path, name: str, entry: Any, start: int) -> SafetensorsArray:
    """What the header says of one array, if it can be so."""
    where = f"{path} is damaged: its header has {shown(name)}"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{where} as {shown(entry)}, which is not its dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str):
        raise ValueError(f"{where} of type {shown(kind)}, which is no text")
    if not _is_counts(shape) or len(shape) > _MOST_AXES:
        raise ValueError(f"{where} of shape {shown(shape)}")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{where} at {shown(offsets)}, which are not two offsets, begin and end")
    size = offsets[1] - offsets[0]
    # a type that is not read may have any size; it does not matter unless it is asked for
    expected = math.prod(shape) * np.dtype(_STORED[kind]).itemsize if kind in _STORED else size
    if math.prod(max(length, 1) for length in shape) > _LARGEST or size != expected:
        raise ValueError(f"{where} of type {shown(kind)} and shape {shown(shape)} in {size} bytes")
    return SafetensorsArray(path, name, kind, tuple(shape), start + offsets[0], size)


def _is_counts(value: Any) -> bool:
    # the truth values of JSON are whole numbers to Python
    return isinstance(value, list) and all(type(each) is int and 0 <= each <= _LARGEST for each in value)


def _check_filled(path: Path, arrays: Mapping[str, SafetensorsArray], start: int, end: int) -> None:
    """Raise `ValueError` unless the arrays fill the bytes from `start` to `end` exactly."""
    at = start
    for array in sorted(arrays.values(), key=lambda array: (array.start, array.size)):
        if array.start != at:
            fault = "overlaps the array before it" if array.start < at else "leaves a gap before it"
            raise ValueError(
                f"{path} is damaged: {shown(array.name)} {fault}, at byte {array.start - start} of the arrays"
            )
        at += array.size
    if at != end:
        fault = "was it cut short?" if at > end else "what is the rest?"
        raise ValueError(f"{path} is damaged: its arrays take {at - start} bytes, and it has {end - start}; {fault}")
