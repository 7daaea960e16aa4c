"""Arrays in npz archives of NumPy; the headers are checked before anything is unpacked, and nothing is unpickled."""

import math
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..checks import first_line, shown
from ..store.files import read_npz

# trained weights hardly compress; what shrinks this much, and is this large, is not worth the memory
_MOST_RATIO = 200
_ANY_RATIO = 2**24  # bytes


@dataclass(frozen=True)
class ArchivedArray:
    """One array `name` of the archive at `path`."""

    path: Path
    name: str
    shape: tuple[int, ...]

    def read(self) -> np.ndarray:
        """The array; the archive's checksum of it is compared."""
        return read_npz(self.path, [self.name])[self.name]


def find_arrays(path: Path) -> Mapping[str, ArchivedArray]:
    """The arrays of an npz archive by name, none of them unpacked.

    Raises `ValueError` for a file that is none, and for one in which something is no array of numbers, or would take
    far more memory than the file does.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = [_array(path, archive, member) for member in archive.infolist()]
    except _Refused as refused:
        raise ValueError(str(refused)) from None
    except Exception as error:  # whatever a damaged archive makes its reader raise
        raise ValueError(
            f"{path} cannot be read as an npz archive ({first_line(error)[:120]}): is it damaged, or another file?"
        ) from error
    repeated = [name for name, count in Counter(array.name for array in found).items() if count > 1]
    if repeated:
        raise ValueError(f"{path} has the array {shown(repeated[0])} more than once")
    return {array.name: array for array in found}


class _Refused(Exception):
    """What is wrong with an archive, said already."""


def _array(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> ArchivedArray:
    if not member.filename.endswith(".npy"):
        raise _Refused(
            f"{path} has {shown(member.filename)}, which is no array of NumPy: write the archive by numpy.savez; "
            "one that torch.save wrote has pickles in it, and is not read"
        )
    name = member.filename.removesuffix(".npy")
    # an archive can claim more compressed bytes than it has
    compressed = min(member.compress_size, path.stat().st_size)
    if member.file_size > max(_ANY_RATIO, _MOST_RATIO * compressed):
        raise _Refused(
            f"{path} has {shown(name)}, which unpacks from {compressed} bytes to {member.file_size}: these are no "
            "trained weights"
        )
    with archive.open(member) as stream:
        shape, dtype = _header(stream)
        header = stream.tell()
    if dtype.hasobject:
        raise _Refused(f"{path} has {shown(name)} of Python objects, not of numbers, which would have to be unpickled")
    if dtype.kind not in "fiub":
        raise _Refused(f"{path} has {shown(name)} of type {dtype}, not of NumPy's real numbers: save it as float32")
    if header + math.prod(shape) * dtype.itemsize != member.file_size:
        raise _Refused(f"{path} is damaged: {shown(name)} of {dtype} and shape {shape} is in {member.file_size} bytes")
    return ArchivedArray(path, name, shape)


def _header(stream: zipfile.ZipExtFile) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type of the array in a stream."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array is of the npy format's version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    if any(length < 0 for length in shape):
        raise ValueError(f"an array has the shape {shape}")
    return shape, dtype
