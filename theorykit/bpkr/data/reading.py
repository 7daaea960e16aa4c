"""Sum the second moments of a training set of any size batch by batch, in this process or on workers.

A task sums a few batches. This process adds the sums of the tasks in order, so results do not depend on the executor.
Workers do not import JAX. They read data on disk themselves, because pickled arrays would contain all values.
"""

import hashlib
import itertools
import os
import socket
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from operator import getitem, length_hint
from pathlib import Path
from typing import Any

import numpy as np

from ... import store
from ...extras import needed
from ...progress import Progress
from ...threads import threads_for
from ...workers import Workers, run_in_order

Sums = dict[str, Any]
"""The fields of `FeatureStatistics`."""

_SUMS = ("gram", "projection", "label_square", "examples")
_AXES = {"features": ("examples paths features",), "labels": ("examples", "examples outputs")}
_KIND = "pass over batches"
# Version of the checkpoints. Increase it whenever the sums of the same batches change.
_VERSION = 3
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True)
class Piece:
    """Rows that any process can read with `load`. Error messages name the data by `path`."""

    path: str
    load: Callable[[], Any]

    def read(self) -> Any:
        """Read the array. Errors name the file."""
        with _reading(self.path):
            return self.load()


@dataclass(frozen=True)
class Chunk:
    """A batch of rows of two arrays that can be sliced."""

    features: Any
    labels: Any
    rows: slice

    def sent(self) -> tuple[Any, Any]:
        """Return what to send to a worker: `Piece`s, or the rows themselves."""
        return rows_of(self.features, self.rows), rows_of(self.labels, self.rows)


@dataclass(frozen=True)
class File:
    """A batch in one file with both `variables`, or in two npy files, read `chunk` examples at a time."""

    paths: tuple[str, ...]
    variables: tuple[str, str]
    chunk: int

    def parts(self) -> Iterator[tuple[str, tuple[Piece, Piece]]]:
        """Yield each chunk with its name in messages. Read a chunk before you request the next one."""
        name = _name(0, self)
        with ExitStack() as stack:
            arrays = _opened(self.paths, self.variables, stack)
            examples = _check_shapes(name, *(shape for _, shape, _ in arrays))
            for start in range(0, examples, self.chunk):
                rows = slice(start, min(start + self.chunk, examples))
                part = f"{name}, from example {start} on" if start else name
                yield part, tuple(Piece(path, partial(load, rows)) for path, _, load in arrays)


def sum_batches(
    batches: Iterable[Any],
    grouping: Mapping[str, int],
    executor: Workers,
    in_flight: int,
    checkpoint: Path | None,
    progress: bool,
) -> Sums:
    """Sum over `batches`, which are pairs (features, labels), functions that return a pair, `Chunk`s or `File`s.

    The first number of `grouping` is the number of batches per task. All numbers of `grouping` affect the last digits,
    and must agree with the checkpoint.
    """
    settings = store.settings_of("feature statistics", _VERSION, **grouping)
    per_task, numbered = next(iter(grouping.values())), enumerate(batches)
    total, digests = (None, []) if checkpoint is None else _resume(checkpoint, settings, numbered, executor)
    saved, saved_at = len(digests), time.monotonic()

    def tasks() -> Iterator[tuple[int, list[Any], bool]]:
        while group := list(itertools.islice(numbered, per_task)):
            yield group[0][0], [_sent(batch) for _, batch in group], checkpoint is not None

    def save() -> None:
        by_row = np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(digests), -1)
        store.write_arrays({**total, "digests": by_row}, settings, checkpoint)

    count = length_hint(batches, saved) or None
    with (
        closing(run_in_order(executor, sum_task, tasks(), in_flight)) as computed,
        Progress("second moments", count, "batch", shown=progress, initial=saved) as report,
    ):
        try:
            for name, sums, more in computed:
                # Update both in one statement, because an interrupt in between would save a wrong checkpoint.
                total, digests = _added(name, total, sums), digests + more
                report.update(len(more))
                if checkpoint is not None and time.monotonic() - saved_at > store.CHECKPOINT_SECONDS:
                    save()
                    saved, saved_at = len(digests), time.monotonic()
        finally:
            if checkpoint is not None and len(digests) > saved:
                save()
    if total is None:
        raise ValueError("batches is empty: there must be at least one batch")
    return total


def _resume(
    path: Path, settings: Mapping[str, str], numbered: Iterator[tuple[int, Any]], executor: Workers
) -> tuple[Sums | None, list[bytes]]:
    """Return the sums in the checkpoint at `path` and the digest of each batch, and advance `numbered` past them.

    All batches in memory are compared with their digests, as are the first and last of the other batches.
    """
    arrays = store.read_arrays(path, _KIND, settings)
    if arrays is None:
        return None, []
    digests, again = [digest.tobytes() for digest in arrays["digests"]], []

    def compare(number: int, batch: Any, digest: bytes) -> None:
        if digest != digests[number]:
            raise ValueError(
                f"{_name(number, batch)} differs from the data for which the checkpoint {path} was written; pass the "
                "same data, or another checkpoint"
            )

    for number in range(len(digests)):
        _, batch = next(numbered, (number, None))
        if batch is None:
            raise ValueError(f"{path} is a checkpoint of {len(digests)} batches, but there are only {number}")
        is_in_memory = not (callable(batch) or isinstance(batch, File))
        if isinstance(batch, Chunk):
            is_in_memory = all(
                (type(array) is np.ndarray and _memory_map(array) is None) or _is_a("jax", "Array", array)
                for array in (batch.features, batch.labels)
            )
        if is_in_memory:
            compare(number, batch, digest_of_batch(number, _sent(batch)))
        elif number in (0, len(digests) - 1):
            again.append((number, _sent(batch)))
    # This process may not see the files of the workers.
    for task, digest in zip(again, run_in_order(executor, digest_of_batch, again, 2), strict=True):
        compare(*task, digest)
    return {**{name: arrays[name] for name in _SUMS}, "paths": int(arrays["paths"])}, digests


def _sent(batch: Any) -> Any:
    return batch.sent() if isinstance(batch, Chunk) else batch


def sum_task(first: int, batches: Sequence[Any], with_digests: bool) -> tuple[str, Sums, list[bytes]]:
    """Return the name of the first batch, whose number is `first`, the sums of all batches, and their digests."""
    total, digests = None, []
    for number, batch in enumerate(batches, first):
        sums, digest = sum_batch(number, batch, with_digests)
        total = _added(_name(number, batch), total, sums)
        digests.append(digest)
    return _name(first, batches[0]), total, digests


def sum_batch(number: int, batch: Any, with_digest: bool) -> tuple[Sums, bytes]:
    """Return the sums of batch `number`, and its `digest_of_batch`, which is empty unless `with_digest`."""
    total, digest = None, hashlib.sha256()
    for name, features, labels in _parts(number, batch):
        examples, paths, width = features.shape
        flat, targets = features.reshape(examples, paths * width), labels.reshape(examples, -1)
        # Search the sums for infinities and overflow, because they have fewer entries than the data.
        with np.errstate(all="ignore"), threads_for(len(flat)):
            sums = {"gram": flat.T @ flat, "projection": flat.T @ targets, "label_square": np.sum(targets**2)}
        if not all(np.all(np.isfinite(each)) for each in sums.values()):
            from ...checks import checked_array

            for kind, array in zip(_AXES, (features, labels), strict=True):
                checked_array(f"{name}: {kind}", array)
            largest = max(float(np.max(np.abs(array))) for array in (features, labels))
            raise ValueError(
                f"{name}: products of values as large as {largest:.3g} exceed the range of double precision; rescale "
                "them"
            )
        total = _added(name, total, {**sums, "examples": examples, "paths": paths})
        if with_digest:
            _update(digest, features, labels)
    return total, digest.digest() if with_digest else b""


def digest_of_batch(number: int, batch: Any) -> bytes:
    """Return a hash of the exact values of a batch, to recognise it when a pass resumes."""
    digest = hashlib.sha256()
    for _, features, labels in _parts(number, batch):
        _update(digest, features, labels)
    return digest.digest()


def _update(digest: Any, *arrays: np.ndarray) -> None:
    for array in arrays:
        digest.update(f"{array.shape} ".encode())
        digest.update(np.ascontiguousarray(array) + 0.0)  # makes -0.0 equal to 0


def _added(name: str, total: Sums | None, sums: Sums) -> Sums:
    """Return `total`, if any, plus the `sums` of batch `name`."""
    if total is None:
        return sums
    before, here = (
        (each["paths"], len(each["gram"]) // each["paths"], each["projection"].shape[1]) for each in (total, sums)
    )
    if before != here:
        raise ValueError(f"{name} has (paths, features, outputs) = {here}, but the batches before it have {before}")
    return {**{part: total[part] + sums[part] for part in _SUMS}, "paths": total["paths"]}


def _name(number: int, batch: Any) -> str:
    return " and ".join(batch.paths) if isinstance(batch, File) else f"batch {number}"


def _parts(number: int, batch: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name of every part of a batch, and its features and labels as float64 arrays of equal length."""
    if isinstance(batch, File):
        parts = batch.parts()
    else:
        parts = [(_name(number, batch), batch() if callable(batch) else batch)]
    for name, pair in parts:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(f"{name} must be a pair (features, labels), got {type(pair).__name__}")
        arrays = []
        for (kind, axes), value in zip(_AXES.items(), pair, strict=True):
            value = value.read() if isinstance(value, Piece) else value
            is_array = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
            if not is_array or value.dtype.kind not in "fiub":
                refuse_kernels(value, "Data.of_batches")
                # This imports JAX, which workers do not need otherwise.
                from ...checks import in_order_of_names, real_array

                value = in_order_of_names(f"{name}: {kind}", value, axes[np.ndim(value) == 2 and kind == "labels"])
                value = real_array(f"{name}: {kind}", value)
            # Rounding errors of linear algebra depend on the strides and alignment of arrays.
            arrays.append(np.require(value, np.float64, ["C", "A"]))
        _check_shapes(name, *(array.shape for array in arrays))
        yield name, *arrays


def _check_shapes(name: str, features: tuple[int, ...], labels: tuple[int, ...]) -> int:
    """Return the number of examples, if arrays of these shapes form a batch."""
    for (kind, layouts), shape in zip(_AXES.items(), (features, labels), strict=True):
        if len(shape) not in {len(axes.split()) for axes in layouts} or 0 in shape:
            wanted = " or ".join(f"({', '.join(axes.split())})" for axes in layouts)
            raise ValueError(f"{name}: {kind} must have shape {wanted} without zeros, got {shape}")
    if features[0] != labels[0]:
        raise ValueError(f"{name}: features has {features[0]} examples, but labels has {labels[0]}")
    return features[0]


def refuse_kernels(features: Any, function: str) -> None:
    """Raise `TypeError` for kernels between paths, as of nonlinear embeddings, which have no feature vectors."""
    # Compare the name of the class, because importing it would import JAX, which workers do not need.
    if type(features).__name__ == "ImplicitFeatures":
        raise TypeError(
            f"{function} takes path features, but these are kernels between paths: use bpkr.solve, or "
            "bpkr.features_of_kernels(bpkr.path_kernels(architecture, features))"
        )


def in_order(features: Any, labels: Any) -> tuple[Any, Any]:
    """Transpose arrays with named axes to the order of their layouts."""
    from ...checks import check_aligned, in_order_of_names

    check_aligned(features=features, labels=labels)
    of_labels = _AXES["labels"][getattr(labels, "ndim", 1) == 2]
    return in_order_of_names("features", features, *_AXES["features"]), in_order_of_names("labels", labels, of_labels)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Convert errors to an error that names the data at `path` and the process that cannot read them."""
    try:
        yield
    except (MemoryError, ImportError):
        raise
    except Exception as error:
        host = socket.gethostname()
        # If the path is not local, only the type of the error shows that the data are missing.
        is_missing = not os.path.exists(path) if os.path.isabs(path) else isinstance(error, FileNotFoundError)
        if is_missing:
            process = f"process {os.getpid()} on {host}"
            raise FileNotFoundError(f"{path} does not exist for {process}: every worker must see it") from error
        kind = PermissionError if isinstance(error, PermissionError) else ValueError
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise kind(f"{path} cannot be read on {host} ({reason}): it may be damaged, or have another format") from error


def rows_of(array: Any, rows: slice) -> Any:
    """Return a `Piece` if another process can read the rows of the array, and otherwise the rows themselves."""
    if isinstance(array, np.ndarray):
        view = array[rows]
        root = _memory_map(view)
        if root is None:
            return view
        # The `offset` of a view is that of its root, so compute the offset of the view from addresses.
        offset = root.offset + view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        path = os.path.abspath(root.filename)
        return Piece(path, partial(_read_mapped, path, view.dtype, view.shape, offset, view.strides))
    if _is_a("h5py", "Dataset", array) and array.file.mode == "r" and array.file.driver == "sec2" and array.name:
        path = os.path.abspath(array.file.filename)
        return Piece(path, partial(_read_hdf5, path, array.name, rows))
    if _is_a("zarr", "Array", array) and type(array.store).__name__ != "MemoryStore":
        return Piece(str(array.store_path).removeprefix("file://"), partial(getitem, array, rows))
    if not _is_a("xarray", "DataArray", array) and not _is_of_dask(array):
        return array[rows]
    array = array[rows]
    if _is_of_dask(array):
        import dask

        if "distributed" in sys.modules and sys.modules["distributed"].futures_of(array):
            # The array is in the memory of a cluster: compute it here, and send its rows.
            return np.asarray(array.compute())
        # Keep only the part of the graph that these rows need.
        (array,) = dask.optimize(array)
    return Piece(str(getattr(array, "encoding", {}).get("source", "the data")), partial(_computed, array))


def _computed(array: Any) -> np.ndarray:
    # Compute in this thread, because workers must not ask a cluster for more workers.
    return np.asarray(array.compute(scheduler="synchronous"))


def _is_a(module: str, kind: str, value: Any) -> bool:
    # If the library is not imported, `value` cannot be one of its objects.
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], kind, ()))


def _is_of_dask(array: Any) -> bool:
    graph = getattr(array, "__dask_graph__", None)
    return callable(graph) and graph() is not None


def _memory_map(array: Any) -> np.memmap | None:
    """Return the memory map, opened for reading, of which the array is a view."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and not isinstance(array.base, np.ndarray) and array.base is not None:
            return array if array.filename is not None and array.mode == "r" else None
        array = array.base
    return None


def _read_mapped(path: str, dtype: np.dtype, shape: tuple[int, ...], offset: int, strides: tuple[int, ...]) -> Any:
    return np.ndarray(shape, dtype, np.memmap(path, dtype=np.uint8, mode="r"), offset, strides)


def _read_hdf5(path: str, name: str, rows: slice) -> np.ndarray:
    import h5py

    with h5py.File(path, "r") as file:
        return file[name][rows]


# An array in a file: its name in messages, its shape, and a function that reads its rows, in order.
_Opened = tuple[str, tuple[int, ...], Callable[[slice], np.ndarray]]


def _opened(paths: tuple[str, ...], variables: tuple[str, str], stack: ExitStack) -> list[_Opened]:
    kinds = []
    for path in paths:
        start = b""
        with _reading(path):
            if not os.path.isdir(path):
                with open(path, "rb") as file:
                    start = file.read(8)
        is_npz = start.startswith(b"PK") and not path.endswith(".zip")
        kinds.append("npz" if is_npz else {b"\x93NUMPY": "npy", b"\x89HDF\r\n": "hdf5"}.get(start[:6], "other"))
    if len(paths) == 2:
        if other := [path for path, kind in zip(paths, kinds, strict=True) if kind != "npy"]:
            raise ValueError(f"{other[0]} is not an npy file: pass a pair of npy files, or one file with both arrays")
        # Map the file again for every part, to free the memory of earlier parts.
        mapped, found = partial(np.load, mmap_mode="r", allow_pickle=False), []
        for path in paths:
            with _reading(path):
                found.append((path, mapped(path).shape, lambda rows, path=path: np.array(mapped(path)[rows])))
        return found
    if kinds == ["npy"]:
        raise ValueError(f"{paths[0]} has one array: pass a pair of npy files (features, labels), or an npz file")
    return (_of_npz if kinds == ["npz"] else partial(_of_xarray, kind=kinds[0]))(paths[0], variables, stack)


def _of_npz(path: str, variables: tuple[str, str], stack: ExitStack) -> list[_Opened]:
    with _reading(path):
        archive = stack.enter_context(zipfile.ZipFile(path))
    members = {name.removesuffix(".npy"): name for name in archive.namelist()}
    _check_names(path, variables, members)
    return [_member(path, archive, members[name], stack) for name in variables]


def _member(path: str, archive: zipfile.ZipFile, member: str, stack: ExitStack) -> _Opened:
    """Open an array of an npz archive, and unpack only the part that is read."""
    with _reading(path):
        stream = stack.enter_context(archive.open(member))
        shape, by_columns, dtype = _HEADERS[np.lib.format.read_magic(stream)](stream)
        if dtype.hasobject:
            raise ValueError(f"{member} contains Python objects instead of numbers")
        if by_columns:
            whole = np.lib.format.read_array(stack.enter_context(archive.open(member)), allow_pickle=False)
            return path, shape, whole.__getitem__
    width = int(np.prod(shape[1:], dtype=np.int64))

    def load(rows: slice) -> np.ndarray:
        count = rows.stop - rows.start
        return np.frombuffer(stream.read(count * width * dtype.itemsize), dtype).reshape(count, *shape[1:])

    return path, shape, load


def _of_xarray(path: str, variables: tuple[str, str], stack: ExitStack, kind: str) -> list[_Opened]:
    import xarray as xr

    ending = os.path.splitext(path.rstrip("/"))[1]
    options: dict[str, Any] = {}
    if kind == "hdf5":
        needed("h5netcdf", f"reading {path}")
        # HDF5 files that are not netCDF have no dimension names.
        options = {"engine": "h5netcdf", "phony_dims": "access"}
    elif ending in (".zarr", ".zip"):
        needed("zarr", f"reading {path}")
        # xarray warns about stores without consolidated metadata, which local stores do not need.
        options = {"engine": "zarr", "consolidated": False} if ending == ".zarr" else {}
    with _reading(path):
        dataset = stack.enter_context(xr.open_dataset(path, cache=False, **options))
    _check_names(path, variables, dataset.variables)
    try:
        arrays = in_order(*(dataset[name] for name in variables))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return [(path, array.shape, lambda rows, array=array: _computed(array[rows])) for array in arrays]


def _check_names(path: str, variables: tuple[str, str], known: Any) -> None:
    for name in variables:
        if name not in known:
            raise ValueError(f"{path} has no array {name!r}; it has {', '.join(map(str, known))}: set `variables`")
