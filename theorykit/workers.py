"""Run tasks on an executor: threads, processes on this machine, or the workers of a dask cluster.

A task is a call of a module-level function. Results do not depend on the executor, because tasks are independent and
every worker computes in double precision with the same version of theorykit.
"""

import asyncio
import logging
import os
import pickle
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from multiprocessing import current_process, get_context, parent_process
from threading import Thread
from typing import Any

from . import __version__
from ._compat import enable_float64, needed

# A concurrent.futures.Executor, a dask.distributed.Client, or None to run in this process.
Workers = Any

# A forked worker inherits this id. A spawned worker imports the module and sets its own id.
_IMPORTED_BY = os.getpid()
_GO_ON = "; with a folder, the same call resumes"
# Seconds to wait for a scheduler's answer.
_PATIENCE = 10.0
# Number of times that dask retries a task whose worker was lost.
_RETRIES = 3
# JAX's threads do not survive a fork.
_FORKS = (
    "the executor forks its processes, which may hang once JAX has run; give it "
    'mp_context=multiprocessing.get_context("spawn")'
)


def check_executor(executor: Workers) -> None:
    """Raise `TypeError` if `executor` is not an executor, and `ValueError` if it forks this process."""
    if executor is not None and not callable(getattr(executor, "submit", None)):
        from .checks import shown

        raise TypeError(f"executor must be a concurrent.futures.Executor or a dask Client, got {shown(executor)}")
    # Only this private attribute shows how a pool starts. Without it, a task in a fork raises the error.
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(_FORKS)


def local_workers(count: int, cores: int = 1) -> ProcessPoolExecutor:
    """Create an executor with `count` processes on this machine, for use in a `with` statement.

    If the system supports it, each process is bound to `cores` cores. The last digits of results depend on `cores`, but
    not on `count`.
    """
    from .checks import checked_whole_number

    checked_whole_number("cores", cores, least=1)
    checked_whole_number("count", count, least=1)
    return _LocalWorkers(count, get_context("spawn"), _bind, (cores,))


class _LocalWorkers(ProcessPoolExecutor):
    """Processes that leave Ctrl-C to this process, which stops them at once."""

    def submit(self, *arguments: Any, **keywords: Any) -> Future:
        from .checks import require_working_directory

        require_working_directory("workers start in the working directory of this process")
        # A submitted task may start a worker, which inherits the blocked signal: it would end in a traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*arguments, **keywords)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, kind: type[BaseException] | None, *raised: Any) -> bool | None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            # `shutdown` waits for running tasks, which may take minutes.
            for process in list((self._processes or {}).values()):
                process.kill()
        return super().__exit__(kind, *raised)


def _end_with_parent() -> None:
    # A worker waits for tasks through a pipe that it also holds open, so it would outlive a parent that was killed.
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)


def _bind(cores: int) -> None:
    """Bind this process and its BLAS threads to the cores after the previous worker's cores."""
    from threadpoolctl import threadpool_limits

    Thread(target=_end_with_parent, daemon=True).start()

    # The name of a process ends in its number, counted by its parent.
    number = int(re.split("[-:]", current_process().name)[-1])
    if hasattr(os, "sched_setaffinity"):
        there = sorted(os.sched_getaffinity(0))
        own = {there[(number * cores + i) % len(there)] for i in range(cores)}
        os.sched_setaffinity(0, own)
        # BLAS uses all cores if a script imported it before this call.
        threadpool_limits(len(own))


@contextmanager
def open_executor(workers: int | None, scheduler: str | None) -> Iterator[Workers]:
    """Open an executor with `workers` local processes or for the dask cluster at `scheduler`, or None for neither."""
    if workers is not None and scheduler is not None:
        raise ValueError("pass --workers or --scheduler, not both: a cluster has its own workers")
    opened = nullcontext() if scheduler is None else _connect(scheduler)
    with opened if workers is None else local_workers(workers) as executor:
        yield executor


def _connect(address: str) -> Any:
    distributed = needed("distributed", "--scheduler")
    # The client's message about a lost scheduler is pages long.
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)

    async def greet() -> None:
        # The outer time limit is longer, because its error message is less specific.
        connecting = distributed.comm.connect(address, timeout=_PATIENCE)
        (await asyncio.wait_for(connecting, 1.1 * _PATIENCE)).abort()

    try:
        # Try a connection first, because `Client` would wait forever for a program that never answers.
        asyncio.run(greet())
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TypeError, ImportError) as error:
        said = " ".join(str(error).split()) or f"there was no valid answer within {_PATIENCE:g} s"
        raise ValueError(f"no dask scheduler answers at {address}: {said}") from None
    # Another program may send anything, for example a message size that exceeds the memory.
    except Exception:
        raise ValueError(f"no dask scheduler answers at {address}: another program uses this address") from None
    if not client.scheduler_info()["workers"]:
        client.close()
        raise ValueError(f"the dask scheduler at {address} has no workers; start some with dask worker {address}")
    return client


@contextmanager
def _naming_what_is_lost(executor: Workers) -> Iterator[None]:
    """Raise `ConnectionError` if the scheduler or a worker process was lost before all tasks were done."""
    try:
        yield
    except CancelledError:
        scheduler = getattr(getattr(executor, "scheduler", None), "address", None)
        lost = "the executor was shut down" if scheduler is None else f"the dask scheduler at {scheduler} was lost"
        raise ConnectionError(f"{lost} before all tasks were done{_GO_ON}") from None
    except BrokenExecutor as error:
        lost = "a worker process ended before its task was done; it may have run out of memory"
        raise ConnectionError(f"{lost}{_GO_ON}") from error


def run_tasks(
    executor: Workers, function: Callable[..., Any], tasks: Sequence[tuple], common: tuple = ()
) -> Iterator[tuple[int, Any]]:
    """Yield the index of every task and the result of `function(*common, *task)`, in the order of completion.

    Without an `executor`, tasks run in this process, in order. Dask retries a task at most three times if its worker
    was lost. If a task raises an error, the other tasks still run before the first error is raised.
    """
    if executor is None:
        for number, task in enumerate(tasks):
            yield number, _call(function, *common, *task)
        return
    submit = _submitter(executor, function, common)
    with _naming_what_is_lost(executor):
        numbers = {submit(task): number for number, task in enumerate(tasks)}
        failures = {}
        try:
            for future in as_completed(numbers):
                if (error := future.exception()) is None:
                    yield numbers[future], future.result()
                else:
                    failures[numbers[future]] = error
        finally:
            for future in numbers:
                future.cancel()
        if failures:
            first, done = min(failures), len(numbers) - len(failures)
            failures[first].add_note(f"in task {first} of {len(numbers)}; {done} other tasks were done")
            raise failures[first]


def _submitter(executor: Workers, function: Callable, common: tuple) -> Callable[[tuple], Future]:
    """Return a function that submits a task. The `common` arguments are sent to the executor only once, if possible."""
    check_executor(executor)
    whole: Any = Packed((function, common))
    # Only a dask Client has this method.
    if callable(getattr(executor, "get_executor", None)):
        options = {"pure": False, "retries": _RETRIES}
        with warnings.catch_warnings():
            # Send common arguments as a task, which dask recomputes if its worker is lost, unlike scattered data.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            whole = executor.submit(_hold, whole, **options)
        executor = executor.get_executor(**options)
    return lambda task: executor.submit(in_worker, __version__, whole, Packed(task))


def _hold(packed: "Packed") -> "Packed":
    return packed


class Packed:
    """Values that another process unpacks only after it has enabled float64, because JAX arrays would lose digits."""

    def __init__(self, values: tuple):
        self._values, self._bytes = values, None

    def __getstate__(self) -> bytes:
        # Pickle only once for all tasks.
        if self._bytes is None:
            # cloudpickle also sends the code of functions and classes from a script or notebook.
            import cloudpickle

            self._bytes = cloudpickle.dumps(self._values, protocol=pickle.HIGHEST_PROTOCOL)
        return self._bytes

    def __setstate__(self, state: bytes) -> None:
        self._values, self._bytes = None, state

    def unpack(self) -> tuple:
        """Return the values."""
        return pickle.loads(self._bytes) if self._values is None else self._values


def in_worker(version: str, common: "Packed", task: "Packed") -> Any:
    """Compute `function(*common, *task)` in float64, in a worker that has the same version and is not a fork."""
    if os.getpid() != _IMPORTED_BY:
        raise ValueError(_FORKS)
    if version != __version__:
        raise ValueError(f"the worker has theorykit {__version__}, but the task is from theorykit {version}")
    # A task may need only NumPy.
    enable_float64()
    function, arguments = common.unpack()
    return _call(function, *arguments, *task.unpack())


def _call(function: Callable, *arguments: Any) -> Any:
    """Call `function` under JAX's default settings, which are settings of a thread, if JAX is imported."""
    if "jax" not in sys.modules:
        return function(*arguments)
    from ._jit import usual_settings

    with usual_settings():
        return function(*arguments)
