"""Files of features and labels, read part by part by whoever adds them up."""

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...extras import needed
from .arrays_on_disk import computed, in_order, reading
from .batches import LAYOUTS, Source, check_lengths, check_shape

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class File(Source):
    """A batch in one file with both `variables`, or in two npy files; `chunk` examples at a time are in memory."""

    paths: tuple[str, ...]
    variables: tuple[str, str]
    chunk: int

    def called(self, number: int) -> str:
        return " and ".join(self.paths)

    def parts(self, name: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
        with ExitStack() as stack:
            arrays = _opened(self.paths, self.variables, stack)
            shapes = [array.shape for array in arrays]
            for kind, shape in zip(LAYOUTS, shapes, strict=True):
                check_shape(name, kind, shape)
            check_lengths(name, *shapes)
            for start in range(0, shapes[0][0], self.chunk):
                rows = slice(start, min(start + self.chunk, shapes[0][0]))
                part = f"{name}, from example {start} on" if start else name
                yield part, tuple(array.read(rows) for array in arrays)


@dataclass(frozen=True)
class _Opened:
    """An array of the file at `path`, and how its rows are read, from the first to the last."""

    path: str
    shape: tuple[int, ...]
    load: Callable[[slice], np.ndarray]

    def read(self, rows: slice) -> np.ndarray:
        with reading(self.path):
            return self.load(rows)


def _opened(paths: tuple[str, ...], variables: tuple[str, str], stack: ExitStack) -> list[_Opened]:
    """The features and the labels, of files that are open as long as `stack`."""
    kinds = [_kind(path) for path in paths]
    if len(paths) == 2:
        if other := [path for path, kind in zip(paths, kinds, strict=True) if kind != "npy"]:
            raise ValueError(f"{other[0]} is no npy file, of which pairs are made: give the file alone if it has both")
        return [_of_npy(path) for path in paths]
    if kinds == ["npy"]:
        raise ValueError(f"{paths[0]} holds one array: give the pair of npy files (features, labels), or one npz file")
    if kinds == ["npz"]:
        return _of_npz(paths[0], variables, stack)
    return _of_xarray(paths[0], kinds[0], variables, stack)


def _kind(path: str) -> str:
    """npy, npz, hdf5, folder, or other."""
    with reading(path):
        if os.path.isdir(path):
            return "folder"
        with open(path, "rb") as file:
            start = file.read(8)
    if start.startswith(b"PK") and not path.endswith(".zip"):
        return "npz"
    return {b"\x93NUMPY": "npy", b"\x89HDF\r\n": "hdf5"}.get(start[:6], "other")


def _of_npy(path: str) -> _Opened:
    def load(rows: slice) -> np.ndarray:
        # mapped anew for every part: what was read before need not stay in memory
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False)[rows])

    with reading(path):
        return _Opened(path, np.load(path, mmap_mode="r", allow_pickle=False).shape, load)


def _of_npz(path: str, variables: tuple[str, str], stack: ExitStack) -> list[_Opened]:
    with reading(path):
        archive = stack.enter_context(zipfile.ZipFile(path))
    members = {name.removesuffix(".npy"): name for name in archive.namelist()}
    _check_names(path, variables, members)
    return [_member(path, archive, members[name], stack) for name in variables]


def _member(path: str, archive: zipfile.ZipFile, member: str, stack: ExitStack) -> _Opened:
    """An array of an npz archive, which is read, and unpacked where it is compressed, no further than is asked for."""
    with reading(path):
        stream = stack.enter_context(archive.open(member))
        version = np.lib.format.read_magic(stream)
        shape, by_columns, dtype = _HEADERS[version](stream)
        if dtype.hasobject:
            raise ValueError(f"{member} is of Python objects, not of numbers")
        if by_columns:
            stream = stack.enter_context(archive.open(member))
            whole = np.lib.format.read_array(stream, allow_pickle=False)
            return _Opened(path, shape, lambda rows: whole[rows])
    width = int(np.prod(shape[1:], dtype=np.int64))

    def load(rows: slice) -> np.ndarray:
        count = rows.stop - rows.start
        return np.frombuffer(stream.read(count * width * dtype.itemsize), dtype).reshape(count, *shape[1:])

    return _Opened(path, shape, load)


def _of_xarray(path: str, kind: str, variables: tuple[str, str], stack: ExitStack) -> list[_Opened]:
    """Variables of a netCDF file, of an HDF5 file, or of a zarr store."""
    import xarray as xr

    if kind == "hdf5" or path.rstrip("/").endswith((".zarr", ".zip")):
        needed("h5netcdf" if kind == "hdf5" else "zarr", f"reading {path}")
    # HDF5 files that are not netCDF name no dimensions
    options = {"engine": "h5netcdf", "phony_dims": "access"} if kind == "hdf5" else {}
    if path.rstrip("/").endswith(".zarr"):
        # xarray warns of stores without consolidated metadata, which local ones do not need
        options = {"engine": "zarr", "consolidated": False}
    with reading(path):
        dataset = stack.enter_context(xr.open_dataset(path, cache=False, **options))
    _check_names(path, variables, dataset.variables)
    try:
        arrays = in_order(*(dataset[name] for name in variables))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return [_Opened(path, array.shape, lambda rows, array=array: computed(array[rows])) for array in arrays]


def _check_names(path: str, variables: tuple[str, str], known: Any) -> None:
    for name in variables:
        if name not in known:
            there = ", ".join(map(str, known)) or "none"
            raise ValueError(f"{path} has no array {name!r}; it has {there}: say which by `variables`")
