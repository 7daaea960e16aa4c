"""Work handed to executors: threads, processes of this machine, or the workers of a dask cluster.

A task is a call of a module's function. What comes out does not depend on who computes it: tasks know nothing of each
other, and every worker computes in double precision with the version of theorykit that hands the work over.
"""

import asyncio
import logging
import os
import pickle
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Any

from . import __version__
from .precision import enable_float64
from .progress import Heard, Tell, listen

# a concurrent.futures.Executor, a dask.distributed.Client, or None: no worker but this process. Dask is imported by
# whoever made the client
Workers = Any

# a worker process that imported this module itself is no fork of one that did
_IMPORTED_BY = os.getpid()
# seconds that a scheduler may take to answer
_PATIENCE = 10.0
# how often dask runs a task again that failed by its worker's fault
_RETRIES = 3


def check_executor(executor: Workers) -> None:
    """Raise `TypeError` for what takes no work, and `ValueError` for an executor that forks this process.

    JAX has threads here, which forks of the process would lack. Where nothing tells how an executor starts its
    processes, a task in a fork raises it.
    """
    if executor is not None and not callable(getattr(executor, "submit", None)):
        from .checks import shown

        raise TypeError(f"executor must be a concurrent.futures.Executor or a dask Client, got {shown(executor)}")
    # the only sign of how a pool starts its processes
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "the executor forks its processes, which may hang once JAX has run; give it "
            'mp_context=multiprocessing.get_context("spawn")'
        )


def local_workers(count: int, cores: int = 1) -> ProcessPoolExecutor:
    """An executor of `count` processes on this machine, each bound to so many `cores` of its own where the system can.

    To be used in a `with` statement. XLA takes as many threads as it has cores, and asks nothing else; linear algebra
    rounds by the number of its threads, so that results depend on `cores` in their last digits, and not on `count`.
    """
    from .checks import checked_whole_number

    context = get_context("spawn")
    number = context.Value("i", 0)
    checked_whole_number("cores", cores, least=1)
    return ProcessPoolExecutor(
        checked_whole_number("count", count, least=1), mp_context=context, initializer=_bind, initargs=(number, cores)
    )


@contextmanager
def open_executor(workers: int | None, scheduler: str | None) -> Iterator[Workers]:
    """What does the work where a user has asked for so many processes of this machine, or for a cluster by its address.

    None where for neither. `ValueError` where for both, or where no scheduler with workers answers within ten seconds.
    """
    if workers is not None and scheduler is not None:
        raise ValueError("give --workers or --scheduler, not both: a cluster has workers of its own")
    if workers is not None:
        with local_workers(workers) as executor:
            yield executor
    elif scheduler is not None:
        with _connect(scheduler) as client:
            yield client
    else:
        yield None


def _connect(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(
            "--scheduler needs dask: install it in this environment, with pip install 'theorykit[cluster]'"
        ) from None
    # what it says of a lost scheduler is pages long
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    try:
        asyncio.run(_greet(address))
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TypeError, ImportError) as error:
        said = " ".join(str(error).split()) or f"nothing that dask understands came within {_PATIENCE:g} s"
        raise ValueError(f"no dask scheduler answers at {address}: {said}") from None
    # what other programs send there cannot be foreseen: sizes of arrays beyond all memory, for one
    except Exception:
        raise ValueError(f"no dask scheduler answers at {address}: another program does") from None
    if not client.scheduler_info()["workers"]:
        client.close()
        raise ValueError(f"the dask scheduler at {address} has no workers; start some: dask worker {address}")
    return client


async def _greet(address: str) -> None:
    """Raise an error unless dask answers there. `Client` would wait for ever for a program that says nothing."""
    from distributed.comm import connect

    # the longer, for its error says less
    comm = await asyncio.wait_for(connect(address, timeout=_PATIENCE), 1.1 * _PATIENCE)
    comm.abort()


@contextmanager
def _naming_what_is_lost(executor: Workers) -> Iterator[None]:
    """Within it, work that was lost raises a `ConnectionError`: cancelled, as by dask when its scheduler is gone, or
    that of a process that has ended.
    """
    try:
        yield
    except CancelledError:
        scheduler = getattr(getattr(executor, "scheduler", None), "address", None)
        lost = "the executor was shut down" if scheduler is None else f"the dask scheduler at {scheduler} was lost"
        raise ConnectionError(f"{lost} before the work was done; with a folder, the same call goes on") from None
    except BrokenExecutor as error:
        lost = "a worker process ended before its work was done, as where memory does not suffice"
        raise ConnectionError(f"{lost}; with a folder, the same call goes on") from error


def _bind(started: Any, cores: int) -> None:
    """Bind this process to cores of those that it may use, the next after those of the processes before it.

    Its linear algebra, too: what a script imports at its top is here before, and has counted all cores.
    """
    from threadpoolctl import threadpool_limits

    with started.get_lock():
        number, started.value = started.value, started.value + 1
    if hasattr(os, "sched_setaffinity"):
        there = sorted(os.sched_getaffinity(0))
        chosen = {there[(number * cores + i) % len(there)] for i in range(cores)}
        os.sched_setaffinity(0, chosen)
        threadpool_limits(len(chosen))


def run_tasks(
    executor: Workers,
    function: Callable[..., Any],
    tasks: Sequence[tuple],
    common: tuple = (),
    heard: Heard | None = None,
) -> Iterator[tuple[int, Any]]:
    """The number, from 0 on, and the result of `function(*common, *task)` of every task, each when it has ended.

    Without an `executor` they run here, in their order. Dask has `common` sent once, and runs a task anew, three times
    at most, whose worker was lost. Where tasks raise, the others run to their end before the first error is raised,
    which then says how many did.

    Where there is `heard`, functions are given `tell`, too, which they call with how many of their steps are done, and
    `heard` is called with the number of the task, and that.
    """
    if executor is None:
        for number, task in enumerate(tasks):
            yield number, function(*common, *task, **({} if heard is None else {"tell": partial(heard, number)}))
        return
    submit = _submitter(executor, function, common)
    telling = nullcontext(lambda _: None) if heard is None else listen(executor, heard)
    with _naming_what_is_lost(executor), telling as tell:
        yield from _results([submit(task, tell(number)) for number, task in enumerate(tasks)])


def _results(futures: Sequence[Future]) -> Iterator[tuple[int, Any]]:
    """The number and the result of each, when it is there; the first error when all have ended."""
    numbers, failures = {future: number for number, future in enumerate(futures)}, {}
    try:
        for future in as_completed(futures):
            if future.exception() is None:
                yield numbers[future], future.result()
            else:
                failures[numbers[future]] = future.exception()
    finally:
        for future in futures:
            future.cancel()
    if failures:
        first = failures[min(failures)]
        first.add_note(f"in task {min(failures)} of {len(futures)}; {len(futures) - len(failures)} others were done")
        raise first


def run_in_order(
    executor: Workers, function: Callable[..., Any], tasks: Iterable[tuple], under_way: int
) -> Iterator[Any]:
    """The result of `function(*task)` of every task, in their order; so many are asked for ahead at most."""
    if executor is None:
        yield from (function(*task) for task in tasks)
        return
    submit, waiting = _submitter(executor, function, ()), deque[Future]()
    try:
        with _naming_what_is_lost(executor):
            for task in tasks:
                waiting.append(submit(task))
                if len(waiting) == under_way:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _submitter(executor: Workers, function: Callable, common: tuple) -> Callable[..., Future]:
    """What has a task done by `executor`, which is told once what all tasks have in common, if it can be."""
    check_executor(executor)
    whole: Any = _Packed((function, common))
    # a dask Client
    if callable(getattr(executor, "get_executor", None)):
        options = {"pure": False, "retries": _RETRIES}
        with warnings.catch_warnings():
            # what tasks have in common is a task, too: unlike scattered data it is made again when its worker is lost
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            whole = executor.submit(_hold, whole, **options)
        executor = executor.get_executor(**options)
    return lambda task, tell=None: executor.submit(in_worker, __version__, whole, _Packed(task), tell)


def _hold(packed: "_Packed") -> "_Packed":
    return packed


class _Packed:
    """Values that another process unpacks when it is told to, not before: arrays of JAX lose half of their digits in a
    process that has not been told to compute in float64. Within one process they are the values themselves.
    """

    def __init__(self, values: tuple):
        self._values, self._bytes = values, None

    def __getstate__(self) -> bytes:
        # once, however many tasks it goes with
        if self._bytes is None:
            self._bytes = _dump(self._values)
        return self._bytes

    def __setstate__(self, state: bytes) -> None:
        self._values, self._bytes = None, state

    def unpack(self) -> tuple:
        return pickle.loads(self._bytes) if self._values is None else self._values


def _dump(values: tuple) -> bytes:
    # what is of a script or a notebook, or of no module, goes with its code
    import cloudpickle

    return cloudpickle.dumps(values, protocol=pickle.HIGHEST_PROTOCOL)


def in_worker(version: str, common: "_Packed", task: "_Packed", tell: Tell | None = None) -> Any:
    """`function(*common, *task)` in a process that may compute it: the same version, no fork, in float64."""
    if os.getpid() != _IMPORTED_BY:
        raise ValueError(
            "the executor forks its processes, which may hang once JAX has run: have it spawn them, or use dask"
        )
    if version != __version__:
        raise ValueError(f"the worker has theorykit {__version__}, and the work is of theorykit {version}")
    if "jax" in sys.modules:
        enable_float64()
    else:
        # not imported for a task that needs no more than NumPy
        os.environ["JAX_ENABLE_X64"] = "1"
    function, arguments = common.unpack()
    return function(*arguments, *task.unpack(), **({} if tell is None else {"tell": tell}))
