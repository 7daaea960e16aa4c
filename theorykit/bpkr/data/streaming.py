"""One pass over a training set of any size: its `FeatureStatistics`, batch by batch, here or on many workers.

Batches are cut and added up in one order whatever computes them, so the result does not depend on the executor or its
number of workers, and only a bounded number of batches is held at a time. Workers use NumPy alone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jax.typing import ArrayLike
from tqdm import tqdm

from ...arguments import checked_flag, checked_function, checked_path, checked_whole_number, has_entries, shown
from ...workers import refuse_forks
from .batches import BatchSums, batch_digest, batch_sums, loaded_digest, loaded_sums
from .checkpoint import Progress, load_progress, save_progress
from .statistics import FeatureStatistics

# what is to be done for a batch, as `Executor.submit` takes it; reading the batch waits until this is called
_Job = Callable[[], tuple[Any, ...]]
# by which function a batch is known again that another has summed
_DIGEST = {batch_sums: batch_digest, loaded_sums: loaded_digest}


@runtime_checkable
class Sliceable(Protocol):
    """An array in memory or on disk: NumPy, memory-mapped, an h5py dataset."""

    shape: tuple[int, ...]

    def __getitem__(self, key: slice) -> ArrayLike: ...


def statistics_of_batches(
    batches: Iterable[tuple[ArrayLike, ArrayLike]],
    *,
    executor: Executor | None = None,
    in_flight: int = 8,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 16,
    progress: bool = False,
) -> FeatureStatistics:
    """Statistics of a training set that comes as an iterable of (features, labels).

    Features of a batch are (examples, paths, features), as `path_features` returns them, and labels (examples,), or
    (examples, outputs); batches may differ in length. From raw inputs, with `heads` of keys and queries:

        def batches():
            for inputs, labels in loader:  # (examples, tokens, features), (examples,)
                yield path_features(inputs, attention(inputs, key_query=key_query), architecture), labels

    - `executor`: where the sums are computed, such as a thread pool, a process pool that spawns, or dask's
      `Client.get_executor()`; by default here.
    - `in_flight`: the most batches that are read ahead of their sums; at least the number of workers keeps all busy.
    - `checkpoint`: a file for the sums so far, written whole every `checkpoint_every` batches and at the end. Where it
      exists, the pass goes on from there: batches that were done are iterated over, and every value of them compared
      with what it was.
    - `progress`: show a bar.

    Raises `ValueError`, with the number of the batch counted from 0, for values that are not finite, shapes that do not
    fit, no batches at all, or a checkpoint of something else.
    """
    if not has_entries(batches) or isinstance(batches, (str, bytes, Mapping)):
        raise TypeError(f"batches must be an iterable of pairs (features, labels), got {shown(batches)}")
    jobs = (_job_of_batch(number, batch) for number, batch in enumerate(batches))
    run = _Run("batches", None, True, executor, in_flight, checkpoint, checkpoint_every, progress)
    return _accumulated(jobs, run)


def statistics_of_arrays(
    features: Sliceable,
    labels: Sliceable,
    *,
    chunk: int = 4096,
    executor: Executor | None = None,
    in_flight: int = 8,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 16,
    progress: bool = False,
) -> FeatureStatistics:
    """Statistics of a training set in two arrays that can be sliced, also on disk.

    `features` (examples, paths, features) and `labels` (examples,), or (examples, outputs), may be NumPy arrays,
    `np.memmap`, `np.load(..., mmap_mode="r")`, or h5py datasets; `chunk` examples at a time are read, by this process.
    The rest is as in `statistics_of_batches`, but that of arrays that are not in memory only the first and the last
    chunk that a checkpoint has done are read again and compared: those between must not have been changed.
    """
    shape, labels_shape = _shape("features", features), _shape("labels", labels)
    checked_whole_number("chunk", chunk)
    if not labels_shape or not shape or shape[0] != labels_shape[0] or shape[0] == 0:
        raise ValueError(f"features of shape {shape} and labels of shape {labels_shape} are not one for one")
    if chunk < 1:
        raise ValueError(f"chunk must be a positive number of examples, got {chunk}")
    starts = range(0, shape[0], chunk)
    jobs = (_job_of_slice(number, features, labels, slice(start, start + chunk)) for number, start in enumerate(starts))
    described = f"arrays of shapes {shape}, {labels_shape} in chunks of {chunk}"
    in_memory = all(type(array) is np.ndarray or isinstance(array, jax.Array) for array in (features, labels))
    run = _Run(described, len(starts), in_memory, executor, in_flight, checkpoint, checkpoint_every, progress)
    return _accumulated(jobs, run)


def statistics_of_loader(
    load: Callable[[int], tuple[ArrayLike, ArrayLike]],
    batches: int,
    *,
    executor: Executor | None = None,
    in_flight: int = 8,
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 16,
    progress: bool = False,
) -> FeatureStatistics:
    """Statistics of a training set of which `load(number)` reads or makes a batch, for numbers from 0 to `batches` - 1.

    The worker calls `load`, which for processes must be a function that can be pickled, so reading is done in parallel
    too, and batches that a checkpoint has done are not read again, but for the first and the last, which are compared:
    `load` must return for the others what it did. The rest is as in `statistics_of_batches`.
    """
    checked_function("load", load)
    checked_whole_number("batches", batches)
    if batches < 1:
        raise ValueError(f"there are no batches: batches={batches}")
    jobs = (_job_of_loader(load, number) for number in range(batches))
    described = f"{batches} batches of a loader"
    run = _Run(described, batches, False, executor, in_flight, checkpoint, checkpoint_every, progress)
    return _accumulated(jobs, run)


def _shape(name: str, array: Any) -> tuple[int, ...]:
    shape = getattr(array, "shape", None)
    if not isinstance(shape, tuple) or not hasattr(array, "__getitem__"):
        raise TypeError(f"{name} must be an array that can be sliced, got {shown(array)}")
    return shape


def _job_of_batch(number: int, batch) -> _Job:
    return lambda: (batch_sums, number, batch)


def _job_of_slice(number: int, features: Sliceable, labels: Sliceable, part: slice) -> _Job:
    return lambda: (batch_sums, number, (features[part], labels[part]))


def _job_of_loader(load, number: int) -> _Job:
    return lambda: (loaded_sums, number, load)


@dataclass(frozen=True)
class _Run:
    """A pass over `total` batches, where that is known, of the kind that `described` says; the rest is as it is public.

    `reads_again`: whether all batches that a checkpoint has done are compared, and not the first and the last alone.
    """

    described: str
    total: int | None
    reads_again: bool
    executor: Executor | None
    in_flight: int
    checkpoint: Path | str | None
    checkpoint_every: int
    progress: bool

    def __post_init__(self):
        checked_flag("progress", self.progress)
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise TypeError(f"executor must be a concurrent.futures.Executor, got {shown(self.executor)}")
        for name in ("in_flight", "checkpoint_every"):
            number = checked_whole_number(name, getattr(self, name))
            if number < 1:
                raise ValueError(f"{name} must be a positive number of batches, got {number}")
        if self.checkpoint is not None:
            checked_path("checkpoint", self.checkpoint)

    @property
    def path(self) -> Path | None:
        return None if self.checkpoint is None else checked_path("checkpoint", self.checkpoint)


def _accumulated(jobs: Iterator[_Job], run: _Run) -> FeatureStatistics:
    path = run.path
    done = _resumed(jobs, path, run)
    with (
        closing(_in_order(jobs, run)) as computed,
        tqdm(total=run.total, initial=done.batches, unit="batch", disable=not run.progress) as bar,
    ):
        for sums in computed:
            done = done.after(sums)
            bar.update()
            if path is not None and done.batches % run.checkpoint_every == 0:
                save_progress(path, run.described, done)
    if done.total is None:
        raise ValueError("there are no batches")
    if path is not None:
        save_progress(path, run.described, done)
    names = ("gram", "projection", "label_square", "examples", "paths")
    return FeatureStatistics(**{name: getattr(done.total, name) for name in names})


def _resumed(jobs: Iterator[_Job], path: Path | None, run: _Run) -> Progress:
    """What the checkpoint at `path` has, and `jobs` moved on past it."""
    if path is None or not path.exists():
        return Progress()
    done = load_progress(path, run.described)
    for number in range(done.batches):
        job = next(jobs, None)
        if job is None:
            raise ValueError(f"{path} is a checkpoint of {done.batches} batches, but there are only {number}")
        if run.reads_again or number in (0, done.batches - 1):
            function, *arguments = job()
            done.check(number, _DIGEST[function](*arguments), path)
    return done


def _in_order(jobs: Iterable[_Job], run: _Run) -> Iterator[BatchSums]:
    """The sums of every batch, in the batches' order; at most `in_flight` of them under way."""
    executor, digested = run.executor, run.checkpoint is not None
    if executor is None:
        for job in jobs:
            function, *arguments = job()
            yield function(*arguments, digested)
        return
    refuse_forks(executor)
    waiting: deque[Future] = deque()
    try:
        for job in jobs:
            waiting.append(executor.submit(*job(), digested))
            if len(waiting) == run.in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
