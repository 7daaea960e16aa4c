"""Dask clusters on this machine that are reached by TCP: of one process's making, or started as a user starts them."""

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
CLUSTERS = ROOT / "examples" / "clusters"
# seconds for processes to start, on a machine that does much else
PATIENCE = 120


def environment(**more: str) -> Mapping[str, str]:
    """That of this process, with this version of the package and the programs beside this Python.

    All compile in the way that takes least time.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1", **more}


def cores(count: int) -> list[int]:
    """The first `count` cores that this process may use, or all if there are fewer."""
    return sorted(os.sched_getaffinity(0))[:count]


def bound(count: int) -> Callable[[], None]:
    """What binds a process that is being started to so many cores."""
    chosen = cores(count)
    return lambda: os.sched_setaffinity(0, chosen)


@contextmanager
def dask_client(workers: int) -> Iterator[distributed.Client]:
    """A scheduler on this machine and workers that reach it by TCP, one thread each."""
    cluster = distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, protocol="tcp", dashboard_address=":0", silence_logs=50
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@contextmanager
def started(command: list[str], log: Path, count: int = 2, **more: str) -> Iterator[subprocess.Popen]:
    """A process, and those that it starts, in a group of their own that is ended with all of them."""
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
    """Wait until it holds; `AssertionError` with the end of the log where it does not."""
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, log.read_text()[-2000:]
        time.sleep(0.02)


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """The process and the address of `dask scheduler` on a free port of this machine."""
    told, log = folder / "scheduler.json", folder / "scheduler.log"
    told.unlink(missing_ok=True)
    options = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
    with started(["dask", "scheduler", *options, "--scheduler-file", str(told)], log) as process:
        wait_for(told.exists, log)
        yield process, json.loads(told.read_text())["address"]


@contextmanager
def workers(address: str, folder: Path, count: int = 2, **more: str) -> Iterator[None]:
    """Workers on as many cores, by the script that users have; they have come when this begins."""
    log = folder / "workers.log"
    with started(["sh", str(CLUSTERS / "cpu_workers.sh"), address], log, count, **more):
        wait_for(lambda: log.read_text().count("Registered to:") >= len(cores(count)), log)
        yield


@contextmanager
def pair(folder: Path, **more: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A scheduler with two workers."""
    with scheduler(folder) as (process, address), workers(address, folder, **more):
        yield process, address


def run_by_one_core(folder: Path, *command: str) -> subprocess.CompletedProcess:
    """Python with these arguments. As every worker has one core, and rounding goes by the number of threads."""
    options = {"cwd": folder, "env": environment(), "preexec_fn": bound(1), "timeout": 500}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, **options)
