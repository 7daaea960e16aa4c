"""One pass over a training set of any size: its `FeatureStatistics`, batch by batch, here or on many workers.

Batches are added up by a few, on workers, and these sums in their order here, whatever computes them: so the result
does not depend on the executor or its number of workers, few sums travel, and only a bounded number of batches is held
at a time. What is on disk is read by the worker that adds it up. Workers use NumPy alone, and what reads their files.
"""

import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax.typing import ArrayLike
from tqdm.auto import tqdm

from ... import store
from ...checks import (
    checked_flag,
    checked_path,
    checked_sequence,
    checked_text,
    checked_whole_number,
    has_entries,
    shown,
)
from ...sharding import is_sharded
from ...workers import Workers, check_executor, run_in_order
from .arrays_on_disk import Pieces, in_order, is_in_memory, rows_of
from .batches import SUMS, Batch, PartialSum, Source, add_moments, digest_of_batch, name_of, refuse_kernels, sum_batches
from .files import File
from .statistics import FeatureStatistics

_KIND = "pass over batches"
# raised whenever the sums of the same batches come to be other numbers
_VERSION = 3


@runtime_checkable
class Sliceable(Protocol):
    """An array in memory or on disk: NumPy, memory-mapped, an h5py dataset, a DataArray."""

    shape: tuple[int, ...]

    def __getitem__(self, key: slice) -> ArrayLike: ...


def sum_batches_of(
    batches: Iterable[Batch],
    *,
    executor: Workers = None,
    batches_per_task: int = 4,
    in_flight: int = 4,
    checkpoint: Path | str | None = None,
    progress: bool = True,
) -> FeatureStatistics:
    """Statistics of a training set that comes as an iterable of (features, labels), or of functions that return these.

    Features of a batch are (examples, paths, features), as `path_features` returns them, and labels (examples,), or
    (examples, outputs); batches may differ in length. From raw inputs, with `heads` of keys and queries:

        def batches():
            for inputs, labels in loader:  # (examples, tokens, features), (examples,)
                yield path_features(inputs, attention(inputs, key_query=key_query), architecture), labels

    Functions are called by the worker, so that reading is done in parallel too: `[partial(load, i) for i in range(n)]`;
    for processes they must be such as can be pickled. For data in files there is `Data.of_files`.

    - `executor`: where the sums are computed, such as a thread pool, a process pool that spawns, or a dask `Client`; by
      default here.
    - `batches_per_task`: how many batches are added up where they are, before their sum travels. Other numbers add in
      another order, and the last digits may differ.
    - `in_flight`: the most tasks that are under way; at least the number of workers keeps all busy.
    - `checkpoint`: a file for the sums so far, written whole every 20 seconds and at the end. Where it exists, the pass
      goes on from there: batches that were done are iterated over, and every value of them compared with what it was.
      Of functions only the first and the last that were done are called again, and compared: the others must return
      what they did.
    - `progress`: show a bar.

    Raises `ValueError`, with the number of the batch counted from 0, for values that are not finite, shapes that do not
    fit, no batches at all, or a checkpoint of other batches; `TypeError`, with it too, for what is no array of numbers.
    """
    if not has_entries(batches) or isinstance(batches, (str, bytes, Mapping)):
        raise TypeError(f"batches must be an iterable of pairs (features, labels), got {shown(batches)}")
    return _sum(batches, {"batches_per_task": batches_per_task}, executor, in_flight, checkpoint, progress)


def sum_files(
    files: Iterable[Path | str | tuple[Path | str, Path | str]],
    *,
    variables: tuple[str, str] = ("features", "labels"),
    chunk: int = 4096,
    files_per_task: int = 1,
    executor: Workers = None,
    in_flight: int = 4,
    checkpoint: Path | str | None = None,
    progress: bool = True,
) -> FeatureStatistics:
    """Statistics of a training set in many files, each of which the worker opens that adds it up.

    A file has features (examples, paths, features) and labels (examples,), or (examples, outputs), as arrays that
    `variables` names: an npz archive, a netCDF or HDF5 file, or a zarr store (which takes the extra `zarr`) that
    `xarray.open_dataset` reads. In the latter, dimensions that are called examples, paths, features and outputs may be
    in any order. Or it is a pair of npy files, (path of the features, path of the labels).

    - `chunk`: how many examples of a file are in memory at a time. Other numbers add in another order.
    - `files_per_task`: how many files are added up where they are, before their sum travels; likewise.
    - `checkpoint`: a file for the sums so far, by which the pass goes on with the files that are not done. The first
      and the last of those that are done are read again, and compared.

    The rest is as in `Data.of_batches`. Every worker must see all files, under the same paths; if this process
    sees some of them, it must see all. Raises `FileNotFoundError` for one that is not there, and `ValueError`, which
    names the file, for one that is damaged, lacks an array, or has arrays that do not fit the others.
    """
    chunk = checked_whole_number("chunk", chunk, least=1)
    named = tuple(
        checked_text("each of variables", name) for name in checked_sequence("variables", variables, "names", 2)
    )
    sources = [
        File(_paths(number, each), named, chunk)
        for number, each in enumerate(checked_sequence("files", files, "paths"))
    ]
    if not sources:
        raise ValueError("files must name at least one file")
    _check_are_there([path for source in sources for path in source.paths], executor is None)
    grouping = {"files_per_task": files_per_task, "chunk": chunk}
    return _sum(sources, grouping, executor, in_flight, checkpoint, progress)


def sum_arrays(
    features: Sliceable,
    labels: Sliceable,
    *,
    chunk: int = 4096,
    executor: Workers = None,
    batches_per_task: int = 4,
    in_flight: int = 4,
    checkpoint: Path | str | None = None,
    progress: bool = True,
) -> FeatureStatistics:
    """Statistics of a training set in two arrays that can be sliced, also on disk.

    `features` (examples, paths, features) and `labels` (examples,), or (examples, outputs); `chunk` examples at a time
    are a batch. Who reads them depends on what the arrays are:

    - `np.load(..., mmap_mode="r")` and any view of it, `np.memmap`, and h5py datasets, if opened for reading: the
      worker, which opens their file anew. It must see the file under the same path.
    - xarray DataArrays and dask arrays that are not computed yet, and zarr arrays: the worker, likewise. Dimensions of
      a DataArray that are called examples, paths, features and outputs may be in any order.
    - All others, such as NumPy arrays, files that may still be written, and what a cluster has in memory: this process,
      which sends their rows.

    The rest is as in `Data.of_batches`, but that of arrays that are not in memory only the first and the last
    chunk that a checkpoint has done are read again and compared: those between must not have been changed. Raises
    `FileNotFoundError`, with the path and the host, for a worker that does not see a file.
    """
    refuse_kernels(features, "Data.of_arrays")
    features, labels = in_order(features, labels)
    shape, labels_shape = _shape("features", features), _shape("labels", labels)
    chunk = checked_whole_number("chunk", chunk, least=1)
    if not labels_shape or not shape or shape[0] != labels_shape[0] or shape[0] == 0:
        raise ValueError(f"features of shape {shape} and labels of shape {labels_shape} are not one for one")
    chunks = [_Chunk(features, labels, slice(start, start + chunk)) for start in range(0, shape[0], chunk)]
    return _sum(chunks, {"batches_per_task": batches_per_task}, executor, in_flight, checkpoint, progress)


def _shape(name: str, array: Any) -> tuple[int, ...]:
    shape = getattr(array, "shape", None)
    if not isinstance(shape, tuple) or not hasattr(array, "__getitem__"):
        raise TypeError(f"{name} must be an array that can be sliced, got {shown(array)}")
    if is_sharded(array):
        raise ValueError(f"{name} are sharded over devices, where bpkr.Data.of_devices sums them")
    return shape


def _paths(number: int, entry: Any) -> tuple[str, ...]:
    """The path of a file, or of a pair of files, as workers of any folder find it."""
    pair = entry if isinstance(entry, (tuple, list)) else (entry,)
    if len(pair) not in (1, 2):
        raise ValueError(f"files[{number}] must be a path or a pair (features, labels) of paths, got {shown(entry)}")
    return tuple(str(checked_path(f"files[{number}]", path).absolute()) for path in pair)


def _check_are_there(paths: Sequence[str], is_here: bool) -> None:
    """Raise `FileNotFoundError` for a missing file, unless none is there and others than this process may see them."""
    missing = [path for path in paths if not os.path.exists(path)]
    if missing and (is_here or len(missing) < len(paths)):
        more = f", and {len(missing) - 1} more are missing" if len(missing) > 1 else ""
        raise FileNotFoundError(f"there is no file {missing[0]}{more}, of {len(paths)}")


@dataclass(frozen=True)
class _Chunk:
    """A batch of two arrays, of which other processes are told no more than is needed."""

    features: Sliceable
    labels: Sliceable
    rows: slice

    def read(self) -> Pieces:
        return Pieces(rows_of(self.features, self.rows), rows_of(self.labels, self.rows))

    @property
    def is_in_memory(self) -> bool:
        return all(is_in_memory(array) or isinstance(array, jax.Array) for array in (self.features, self.labels))


class _Done(NamedTuple):
    """The `total` of the batches that are done, the fields of `FeatureStatistics`, and the digest of each."""

    total: dict[str, Any] | None
    digests: tuple[bytes, ...]

    def after(self, more: PartialSum) -> "_Done":
        """With a few batches more."""
        total = more.moments if self.total is None else add_moments(more.name, self.total, more.moments)
        return _Done(total, (*self.digests, *more.digests))

    def save(self, path: Path, settings: Mapping[str, str]) -> None:
        digests = np.frombuffer(b"".join(self.digests), dtype=np.uint8).reshape(len(self.digests), -1)
        store.write_arrays({**self.total, "digests": digests}, settings, path)


def _sum(
    batches: Iterable[Any],
    grouping: Mapping[str, int],
    executor: Workers,
    in_flight: int,
    checkpoint: Path | str | None,
    progress: bool,
) -> FeatureStatistics:
    """The statistics of `batches`, of which the first number of `grouping` are a task; all of it decides the digits."""
    checked_flag("progress", progress)
    check_executor(executor)
    checked_whole_number("in_flight", in_flight, least=1)
    per_task, *_ = (checked_whole_number(name, value, least=1) for name, value in grouping.items())
    path = None if checkpoint is None else checked_path("checkpoint", checkpoint)
    settings = store.settings_of("feature statistics", _VERSION, **grouping)
    numbered = enumerate(batches)
    done = _Done(None, ()) if path is None else _resume(path, settings, numbered, executor)
    saved, saved_at = len(done.digests), time.monotonic()
    total = length_hint(batches, saved) or None
    tasks = _tasks(numbered, per_task, path is not None)
    with (
        closing(run_in_order(executor, sum_batches, tasks, in_flight)) as computed,
        tqdm(total=total, initial=saved, unit="batch", disable=not progress) as bar,
    ):
        try:
            for more in computed:
                done = done.after(more)
                bar.update(len(more.digests))
                if path is not None and time.monotonic() - saved_at > store.CHECKPOINT_SECONDS:
                    done.save(path, settings)
                    saved, saved_at = len(done.digests), time.monotonic()
        finally:
            if path is not None and len(done.digests) > saved:
                done.save(path, settings)
    if done.total is None:
        raise ValueError("there are no batches")
    return FeatureStatistics(**done.total)


def _tasks(
    numbered: Iterator[tuple[int, Any]], per_task: int, with_digests: bool
) -> Iterator[tuple[int, list[Any], bool]]:
    """Arguments of `sum_batches`, read when their turn comes."""
    while group := list(itertools.islice(numbered, per_task)):
        yield group[0][0], [_read(batch) for _, batch in group], with_digests


def _resume(path: Path, settings: Mapping[str, str], numbered: Iterator[tuple[int, Any]], executor: Workers) -> _Done:
    """What the checkpoint at `path` has, and `numbered` batches moved on past it."""
    arrays = store.read_arrays(path, _KIND, settings)
    if arrays is None:
        return _Done(None, ())
    digests = tuple(digest.tobytes() for digest in arrays["digests"])
    last, read_again = len(digests) - 1, []
    for number, digest in enumerate(digests):
        _, batch = next(numbered, (number, None))
        if batch is None:
            raise ValueError(f"{path} is a checkpoint of {len(digests)} batches, but there are only {number}")
        if _is_in_memory(batch):
            _compare(path, number, batch, digest, digest_of_batch(number, _read(batch)))
        elif number in (0, last):
            read_again.append((number, _read(batch)))
    # this process need not see what workers read
    for (number, batch), found in zip(read_again, run_in_order(executor, digest_of_batch, read_again, 2), strict=True):
        _compare(path, number, batch, digests[number], found)
    return _Done({**{name: arrays[name] for name in SUMS}, "paths": int(arrays["paths"])}, digests)


def _compare(path: Path, number: int, batch: Any, before: bytes, now: bytes) -> None:
    if now != before:
        name = name_of(number, batch)
        raise ValueError(f"{name} is not what it was when the checkpoint {path} was written: other data")


def _is_in_memory(batch: Any) -> bool:
    return batch.is_in_memory if isinstance(batch, _Chunk) else not (callable(batch) or isinstance(batch, Source))


def _read(batch: Any) -> Any:
    return batch.read() if isinstance(batch, _Chunk) else batch
