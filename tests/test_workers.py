"""Work handed to executors: every kind of worker computes the same, and a lost one costs nothing but time."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import jax
import jax.numpy as jnp
import pytest
import xarray as xr

from tests.bpkr.sweeps.problems import ARCHITECTURE, random_data, swept
from tests.clusters import dask_client
from theorykit.bpkr import sweeps
from theorykit.workers import Packed, check_executor, in_worker, local_workers, run_tasks

SMALL = {"widths": (20, 80, 300), "temperatures": (0.1, 0.5)}


@pytest.fixture(scope="module")
def client():
    with dask_client(2) as found:
        yield found


@pytest.fixture(scope="module")
def processes():
    with local_workers(2) as pool:
        yield pool


@pytest.fixture(params=["threads", "processes", "client"])
def executor(request):
    if request.param != "threads":
        yield request.getfixturevalue(request.param)
        return
    with ThreadPoolExecutor(2) as pool:
        yield pool


def power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise ArithmeticError(f"{exponent} is negative")
    return base**exponent


def third(values: jax.Array) -> float:
    """In the precision of the worker, of an array that came to it."""
    return float(jnp.sum(values) / 3)


def kill_once(folder: str, number: int) -> int:
    """Ends its own process the first time that it is called with a number."""
    try:
        os.mkdir(f"{folder}/{number}")
    except FileExistsError:
        return number**2
    os.kill(os.getpid(), signal.SIGKILL)
    return -1


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.quick("threads")
def test_every_task_is_done_once_whoever_does_it(executor):
    tasks = [(exponent,) for exponent in range(7)]
    assert dict(run_tasks(executor, power, tasks, (3,))) == {number: 3**number for number in range(7)}
    assert list(run_tasks(None, power, tasks, (3,))) == [(number, 3**number) for number in range(7)]
    assert list(run_tasks(executor, power, [])) == []


def test_where_a_task_raises_the_others_are_done_first(executor):
    found = {}
    with pytest.raises(ArithmeticError, match="-1 is negative") as raised:
        for number, result in run_tasks(executor, power, [(2,), (-1,), (3,), (-2,)], (3,)):
            found[number] = result
    assert found == {0: 9, 2: 27}
    assert raised.value.__notes__ == ["in task 1 of 4; 2 other tasks were done"]


def test_every_worker_computes_in_double_precision(executor):
    values = jnp.array([1.0, 1e-12])
    assert dict(run_tasks(executor, third, [(values,)])) == {0: third(values)}
    assert dict(run_tasks(executor, third, [()], (values,))) == {0: third(values)}


def test_a_worker_of_another_version_says_so():
    with pytest.raises(ValueError, match=r"the worker has theorykit \S+, but the task is from theorykit 0\.0\.0"):
        in_worker("0.0.0", Packed((power, (3,))), Packed((2,)))


class Wrapped(Executor):
    """An executor that does not say how it starts its processes."""

    def __init__(self, inner: Executor):
        self._inner = inner

    def submit(self, function, /, *arguments, **options):
        return self._inner.submit(function, *arguments, **options)


def test_executors_that_fork_are_refused_however_they_are_wrapped():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        with pytest.raises(ValueError, match="spawn"):
            check_executor(pool)
        with warnings.catch_warnings(), pytest.raises(ValueError, match="forks its processes"):
            # of forks beside threads, by Python and by JAX
            warnings.simplefilter("ignore")
            list(run_tasks(Wrapped(pool), power, [(2,)], (3,)))


@pytest.mark.parametrize("value", [3, "tcp://localhost", object()], ids=["number", "address", "object"])
def test_what_takes_no_work_is_refused(value):
    with pytest.raises(TypeError, match=r"executor must be a concurrent\.futures\.Executor or a dask Client"):
        swept(random_data(0), **SMALL, executor=value)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
def test_local_workers_have_cores_of_their_own():
    here = os.sched_getaffinity(0)
    for count, cores in ((2, 1), (1, 1000)):
        with local_workers(count, cores) as pool:
            bound = [future.result() for future in [pool.submit(os.sched_getaffinity, 0) for _ in range(20)]]
        assert all(each <= here and len(each) == min(cores, len(here)) for each in bound)
    assert os.sched_getaffinity(0) == here


# what a script does at its top, before a worker that it starts is bound
BOUND_LATE = """
import multiprocessing, sys
import scipy.linalg
from threadpoolctl import threadpool_info
from theorykit.workers import _bind
multiprocessing.current_process().name = "SpawnProcess-1:2"
_bind(int(sys.argv[1]))
print(*(each["num_threads"] for each in threadpool_info()))
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no process to cores")
@pytest.mark.parametrize("cores", (1, 1000))
def test_linear_algebra_of_local_workers_has_their_cores_alone(cores):
    """Threads of OpenBLAS, loaded before, would wait for one another where there are more of them than cores."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "7"}
    command = [sys.executable, "-c", BOUND_LATE, str(cores)]
    said = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()
    assert said and set(map(int, said)) == {min(cores, len(os.sched_getaffinity(0)))}


INTERRUPTED = """
import signal, time
from theorykit.workers import local_workers
# Shells start programs in the background with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with local_workers(2) as pool:
    if {started}:
        pool.submit(int).result()
    waiting = [pool.submit(time.sleep, 10**6) for _ in range(5)]
    print(*pool._processes, flush=True)
    waiting[0].result()
"""


@pytest.mark.parametrize("started", [True, False])
def test_an_interruption_stops_local_workers_without_a_word_from_them(started):
    """The terminal sends Ctrl-C to all of these processes, also while they start."""
    command = [sys.executable, "-c", INTERRUPTED.format(started=started)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, start_new_session=True)
    workers = [int(number) for number in process.stdout.readline().split()]
    os.killpg(process.pid, signal.SIGINT)
    try:
        said = process.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert said.count("Traceback") == 1 and said.endswith("\nKeyboardInterrupt\n")
    assert len(workers) == 2
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


@pytest.mark.parametrize("started", [True, False])
def test_workers_of_a_process_that_was_killed_end(started):
    command = [sys.executable, "-c", INTERRUPTED.format(started=started)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes, start_new_session=True)
    workers = process.stdout.readline().split()
    process.kill()
    try:
        # The pipes stay open until every process that inherited them has ended.
        process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert len(workers) == 2


def without_times(result: xr.Dataset) -> xr.Dataset:
    return result.drop_vars("seconds")


NOTEBOOK = """
import sys, theorykit
theorykit.enable_float64()
sys.modules["dask"] = sys.modules["distributed"] = None  # which bring cloudpickle
import numpy as np
from sympy import Identity, sqrt
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.workers import local_workers

class Mine(bpkr.AbstractLayer):
    heads = 0

    def forward(self, layer):
        return layer.weights(1) * layer.hidden / sqrt(layer.width)

    def prior(self, layer):
        return layer.variance * Identity(1)

data = bpkr.Data(np.random.default_rng(0).normal(size=(6, 1, 3)), np.linspace(-1, 1, 6))
kinds = [bpkr.Architecture((kind,), 20.0, temperature=0.3) for kind in (Mine(), bpkr.Dense())]
options = {"widths": (10,), "temperatures": (0.3,), "progress": False}
with local_workers(1) as executor:
    theirs, ours = (sweeps.sweep(kind, data, **options, executor=executor).action.item() for kind in kinds)
print(abs(theirs - ours) < 1e-12)
"""


@pytest.mark.slow
def test_classes_of_a_notebook_reach_worker_processes():
    """A program that is in no file, whose classes no other process can import."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", NOTEBOOK], capture_output=True, text=True)
    assert done.stdout.split() == ["True"], done.stderr


@pytest.mark.slow
def test_a_pool_whose_process_dies_says_what_to_do():
    with local_workers(1) as pool, pytest.raises(ConnectionError, match="with a folder, the same call resumes"):
        list(run_tasks(pool, die, [()]))


@pytest.mark.slow
def test_a_process_that_dies_is_replaced(tmp_path):
    with dask_client(2) as client:
        found = dict(run_tasks(client, kill_once, [(number,) for number in range(3)], (str(tmp_path),)))
    assert found == {0: 0, 1: 1, 2: 4}


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1.0, 2.0, 3.0, 5.0, 8.0])
def test_a_sweep_that_loses_a_worker_loses_nothing(tmp_path, seconds, compiled_as_by_workers):
    def solve(**options) -> xr.Dataset:
        return sweeps.sweep_seeds(ARCHITECTURE, random_data, range(3), **SMALL, progress=False, **options)

    alone = solve()
    with dask_client(2) as client, ThreadPoolExecutor(1) as beside:
        found = beside.submit(solve, executor=client, folder=tmp_path)
        time.sleep(seconds)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        xr.testing.assert_identical(without_times(found.result()), without_times(alone))


@pytest.mark.slow
def test_workers_of_a_process_in_a_deleted_folder_are_refused(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with local_workers(1) as executor, pytest.raises(FileNotFoundError, match="the working directory was deleted"):
        list(run_tasks(executor, max, [(1, 2)]))
