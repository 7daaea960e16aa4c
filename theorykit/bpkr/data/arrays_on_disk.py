"""Rows of arrays that are on disk or lazy: another process is sent where they are, and reads them itself.

NumPy and h5py send arrays of files by their values, or not at all; xarray, dask and zarr send by reference already.
"""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np

from ...checks import check_aligned, in_order_of_names
from .batches import LAYOUTS, Source


@dataclass(frozen=True)
class Piece:
    """Rows that `load` reads, in whatever process; `path` is what messages call the data."""

    path: str
    load: Callable[[], Any]

    def read(self) -> Any:
        """The array, read now; an error names the file."""
        with reading(self.path):
            return self.load()


@dataclass(frozen=True)
class Pieces(Source):
    """A batch of features and labels, each an array or a `Piece`."""

    features: Any
    labels: Any

    def parts(self, name: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
        pair = (self.features, self.labels)
        yield name, tuple(each.read() if isinstance(each, Piece) else each for each in pair)


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Within it, errors of whatever reads the data at `path` become one that names it, and who cannot read it."""
    try:
        yield
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        host = socket.gethostname()
        # what has no path on this machine is known by its error alone
        is_missing = not os.path.exists(path) if os.path.isabs(path) else isinstance(error, FileNotFoundError)
        if is_missing:
            raise FileNotFoundError(
                f"{path} is not there as process {os.getpid()} on {host} sees it: every worker must see the "
                "data, under the same path"
            ) from error
        if isinstance(error, PermissionError):
            raise PermissionError(f"{path} may not be read by process {os.getpid()} on {host}") from error
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ValueError(f"{path} cannot be read on {host} ({reason}): is it damaged, or another file?") from error


def rows_of(array: Any, rows: slice) -> Any:
    """Rows of an array: a `Piece` where another process can read them, and else the rows themselves."""
    if isinstance(array, np.ndarray):
        view = array[rows]
        return view if (file := _mapped_file(view)) is None else Piece(file, _View(view))
    if _is_a("h5py", "Dataset", array):
        is_reopened = array.file.mode == "r" and array.file.driver == "sec2" and array.name
        return Piece(os.path.abspath(array.file.filename), _Stored(array, rows)) if is_reopened else array[rows]
    if _is_a("zarr", "Array", array):
        is_reopened = type(array.store).__name__ != "MemoryStore"
        return Piece(_zarr_path(array), partial(getitem, array, rows)) if is_reopened else array[rows]
    if is_lazy(array):
        return _lazy_rows(array[rows])
    return array[rows]


def is_in_memory(array: Any) -> bool:
    """True of a NumPy array whose values are in no file."""
    return type(array) is np.ndarray and _mapped_file(array) is None


def is_lazy(array: Any) -> bool:
    """True of an xarray DataArray and of a dask array, which are read when they are computed."""
    return _is_a("xarray", "DataArray", array) or _is_of_dask(array)


def computed(array: Any) -> np.ndarray:
    """The values of a DataArray or dask array, by this thread: workers are not to ask a cluster for more workers."""
    return np.asarray(array.compute(scheduler="synchronous"))


def in_order(features: Any, labels: Any) -> tuple[Any, Any]:
    """Features and labels with named axes in the order of `LAYOUTS`; see `in_order_of_names`."""
    check_aligned(features=features, labels=labels)
    layouts = (LAYOUTS["features"][0], LAYOUTS["labels"][getattr(labels, "ndim", 1) == 2])
    named = zip(LAYOUTS, (features, labels), layouts, strict=True)
    features, labels = (in_order_of_names(name, array, axes.replace(",", "")) for name, array, axes in named)
    return features, labels


def _is_a(module: str, kind: str, value: Any) -> bool:
    # whoever has a value of a library has imported it
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], kind, ()))


def _is_of_dask(array: Any) -> bool:
    graph = getattr(array, "__dask_graph__", None)
    return callable(graph) and graph() is not None


def _lazy_rows(array: Any) -> Any:
    if _is_of_dask(array):
        import dask

        if "distributed" in sys.modules and sys.modules["distributed"].futures_of(array):
            # in the memory of a cluster
            return np.asarray(array.compute())
        # with no more of its graph than these rows need
        (array,) = dask.optimize(array)
    source = getattr(array, "encoding", {}).get("source", "the data")
    return Piece(str(source), partial(computed, array))


def _zarr_path(array: Any) -> str:
    return str(array.store_path).removeprefix("file://")


def _mapped_file(array: np.ndarray) -> str | None:
    """The file whose memory map an array is a view of, if it was opened for reading."""
    root = _root(array)
    return None if root is None or root.filename is None or root.mode != "r" else os.path.abspath(root.filename)


def _root(array: Any) -> np.memmap | None:
    """The memory map that an array is a view of."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and not isinstance(array.base, np.ndarray) and array.base is not None:
            return array
        array = array.base
    return None


@dataclass(frozen=True)
class _View:
    """Reads a view of a memory map; in another process, of one of its own."""

    view: np.ndarray

    def __call__(self) -> np.ndarray:
        return self.view

    def __reduce__(self) -> tuple[Callable, tuple]:
        view, root = self.view, _root(self.view)
        # the offset of a view is not in its attribute of that name, which is its root's
        offset = root.offset + view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return partial, (_map, _mapped_file(view), view.dtype, view.shape, offset, view.strides)


def _map(path: str, dtype: np.dtype, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> np.ndarray:
    content = np.memmap(path, dtype=np.uint8, mode="r")
    return np.ndarray(shape, dtype, buffer=content, offset=offset, strides=strides)


@dataclass(frozen=True)
class _Stored:
    """Reads rows of an HDF5 dataset; in another process, of the file opened anew."""

    dataset: Any
    rows: slice

    def __call__(self) -> np.ndarray:
        return self.dataset[self.rows]

    def __reduce__(self) -> tuple[Callable, tuple]:
        path = os.path.abspath(self.dataset.file.filename)
        return partial, (_read_hdf5, path, self.dataset.name, self.rows)


def _read_hdf5(path: str, name: str, rows: slice) -> np.ndarray:
    import h5py

    with h5py.File(Path(path), "r") as file:
        return file[name][rows]
