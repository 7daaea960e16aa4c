"""One pass over a training set of any size: its `FeatureStatistics`, batch by batch, here or on many workers.

Batches are added up by a few, on workers, and these sums in their order here, whatever computes them: so the result
does not depend on the executor or its number of workers, few sums travel, and only a bounded number of batches is held
at a time. Workers use NumPy alone.
"""

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np
from jax.typing import ArrayLike
from tqdm import tqdm

from ... import store
from ...arguments import checked_flag, checked_path, checked_whole_number, has_entries, shown
from ...workers import Workers, check_executor, run_in_order
from .batches import SUMS, Batch, add_moments, digest_of_batch, sum_batches
from .statistics import FeatureStatistics

_KIND = "pass over batches"
# raised whenever the sums of the same batches come to be other numbers
_VERSION = 2


@runtime_checkable
class Sliceable(Protocol):
    """An array in memory or on disk: NumPy, memory-mapped, an h5py dataset."""

    shape: tuple[int, ...]

    def __getitem__(self, key: slice) -> ArrayLike: ...


def statistics_of_batches(
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
    for processes they must be such as can be pickled.

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
    return _sum(batches, executor, batches_per_task, in_flight, checkpoint, progress)


def statistics_of_arrays(
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

    `features` (examples, paths, features) and `labels` (examples,), or (examples, outputs), may be NumPy arrays,
    `np.memmap`, `np.load(..., mmap_mode="r")`, or h5py datasets; `chunk` examples at a time are a batch, read by this
    process. The rest is as in `statistics_of_batches`, but that of arrays that are not in memory only the first and the
    last chunk that a checkpoint has done are read again and compared: those between must not have been changed.
    """
    shape, labels_shape = _shape("features", features), _shape("labels", labels)
    chunk = checked_whole_number("chunk", chunk, least=1)
    if not labels_shape or not shape or shape[0] != labels_shape[0] or shape[0] == 0:
        raise ValueError(f"features of shape {shape} and labels of shape {labels_shape} are not one for one")
    chunks = [_Chunk(features, labels, slice(start, start + chunk)) for start in range(0, shape[0], chunk)]
    return _sum(chunks, executor, batches_per_task, in_flight, checkpoint, progress)


def _shape(name: str, array: Any) -> tuple[int, ...]:
    shape = getattr(array, "shape", None)
    if not isinstance(shape, tuple) or not hasattr(array, "__getitem__"):
        raise TypeError(f"{name} must be an array that can be sliced, got {shown(array)}")
    return shape


@dataclass(frozen=True)
class _Chunk:
    """A batch of arrays that can be sliced, read when its turn comes."""

    features: Sliceable
    labels: Sliceable
    rows: slice

    def read(self) -> tuple[ArrayLike, ArrayLike]:
        return self.features[self.rows], self.labels[self.rows]

    @property
    def is_in_memory(self) -> bool:
        return all(type(array) is np.ndarray or isinstance(array, jax.Array) for array in (self.features, self.labels))


class _Done(NamedTuple):
    """The `total` of the batches that are done, the fields of `FeatureStatistics`, and the digest of each."""

    total: dict[str, Any] | None
    digests: tuple[bytes, ...]

    def after(self, moments: dict[str, Any], digests: tuple[bytes, ...]) -> "_Done":
        """With a few batches more."""
        total = moments if self.total is None else add_moments(len(self.digests), self.total, moments)
        return _Done(total, (*self.digests, *digests))

    def save(self, path: Path, settings: Mapping[str, str]) -> None:
        digests = np.frombuffer(b"".join(self.digests), dtype=np.uint8).reshape(len(self.digests), -1)
        store.write_arrays({**self.total, "digests": digests}, settings, path)


def _sum(
    batches: Iterable[Any],
    executor: Workers,
    batches_per_task: int,
    in_flight: int,
    checkpoint: Path | str | None,
    progress: bool,
) -> FeatureStatistics:
    checked_flag("progress", progress)
    check_executor(executor)
    checked_whole_number("in_flight", in_flight, least=1)
    checked_whole_number("batches_per_task", batches_per_task, least=1)
    path = None if checkpoint is None else checked_path("checkpoint", checkpoint)
    settings = store.settings_of("feature statistics", _VERSION, batches_per_task=batches_per_task)
    numbered = enumerate(batches)
    done = _Done(None, ()) if path is None else _resume(path, settings, numbered)
    saved, saved_at = len(done.digests), time.monotonic()
    total = length_hint(batches, saved) or None
    tasks = _tasks(numbered, batches_per_task, path is not None)
    with (
        closing(run_in_order(executor, sum_batches, tasks, in_flight)) as computed,
        tqdm(total=total, initial=saved, unit="batch", disable=not progress) as bar,
    ):
        try:
            for moments, digests in computed:
                done = done.after(moments, digests)
                bar.update(len(digests))
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
    numbered: Iterator[tuple[int, Any]], batches_per_task: int, with_digests: bool
) -> Iterator[tuple[int, list[Any], bool]]:
    """Arguments of `sum_batches`, read when their turn comes."""
    while group := list(itertools.islice(numbered, batches_per_task)):
        yield group[0][0], [_read(batch) for _, batch in group], with_digests


def _resume(path: Path, settings: Mapping[str, str], numbered: Iterator[tuple[int, Any]]) -> _Done:
    """What the checkpoint at `path` has, and `numbered` batches moved on past it."""
    arrays = store.read_arrays(path, _KIND, settings)
    if arrays is None:
        return _Done(None, ())
    digests = tuple(digest.tobytes() for digest in arrays["digests"])
    for number, digest in enumerate(digests):
        _, batch = next(numbered, (number, None))
        if batch is None:
            raise ValueError(f"{path} is a checkpoint of {len(digests)} batches, but there are only {number}")
        is_compared = batch.is_in_memory if isinstance(batch, _Chunk) else not callable(batch)
        if (is_compared or number in (0, len(digests) - 1)) and digest_of_batch(number, _read(batch)) != digest:
            raise ValueError(f"batch {number} is not what it was when the checkpoint {path} was written: other data")
    return _Done({**{name: arrays[name] for name in SUMS}, "paths": int(arrays["paths"])}, digests)


def _read(batch: Any) -> Any:
    return batch.read() if isinstance(batch, _Chunk) else batch
