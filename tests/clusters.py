"""Dask clusters on this machine, reached over TCP: started by the test process, or as a user starts them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import distributed

ROOT = Path(__file__).parents[1]
# Start one worker per core, bound to it: XLA uses every core of its process's affinity.
WORKERS = """
export OPENBLAS_NUM_THREADS=1 JAX_PLATFORMS=cpu
for core in $(python -c 'import os; print(*sorted(os.sched_getaffinity(0)))'); do
    taskset -c "$core" dask worker "$1" --nworkers 1 --nthreads 1 &
done
wait
"""
# Seconds for processes to start, long enough for a busy machine.
PATIENCE = 120


def environment(**more: str) -> Mapping[str, str]:
    """Return this process's environment, with this version of the package and the programs next to this Python.

    XLA's optimisations are off, to save compile time.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **more}


def cores(count: int) -> list[int]:
    """Return the first `count` cores that this process may use, or all if there are fewer."""
    return sorted(os.sched_getaffinity(0))[:count]


def bound(count: int) -> Callable[[], None]:
    """Return a function that binds a starting process to `count` cores."""
    chosen = cores(count)
    return lambda: os.sched_setaffinity(0, chosen)


@contextmanager
def dask_client(workers: int) -> Iterator[distributed.Client]:
    """Yield a client of a scheduler on this machine, with workers that have one thread each and use TCP."""
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, protocol="tcp", dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@contextmanager
def started(command: list[str], log: Path, count: int = 2, **more: str) -> Iterator[subprocess.Popen]:
    """Start a process in a new process group, and end the whole group afterwards."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=environment(**more), preexec_fn=bound(count), process_group=0
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(condition: Callable[[], bool], log: Path) -> None:
    """Wait until the condition holds; if it never does, fail with the end of the log."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(0.02)


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """Start `dask scheduler` on a free port of this machine, and yield its process and address."""
    told, log = folder / "scheduler.json", folder / "scheduler.log"
    told.unlink(missing_ok=True)
    options = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    with started(["dask", "scheduler", *options, "--scheduler-file", str(told)], log) as process:
        wait_for(told.exists, log)
        yield process, json.loads(told.read_text())["address"]


@contextmanager
def workers(address: str, folder: Path, count: int = 2, **more: str) -> Iterator[None]:
    """Start one worker per core, and wait until all have registered."""
    log = folder / "workers.log"
    with started(["sh", "-c", WORKERS, "workers", address], log, count, **more):
        wait_for(lambda: log.read_text().count("Registered to:") >= len(cores(count)), log)
        yield


@contextmanager
def pair(folder: Path, **more: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Start a scheduler with two workers."""
    with scheduler(folder) as (process, address), workers(address, folder, **more):
        yield process, address


def run_by_one_core(folder: Path, *command: str) -> subprocess.CompletedProcess:
    """Run Python on one core, as workers do, because rounding depends on the number of threads."""
    options = {"cwd": folder, "env": environment(), "preexec_fn": bound(1), "timeout": 500}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, **options)
