"""Sweeps on workers: the numbers of one process, also for classes of a script, and errors that say how to resume."""

import math
import os
import signal
import subprocess
import sys

import pytest
import xarray as xr

from tests.bpkr.sweeps import problems
from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr import sweeps
from theorykit.workers import local_workers

# Each process compiles what it computes, so take what needs no solve.
GRID = {"width": (math.inf,), "temperature": (0.5, 1.0), "progress": False}


def random_data(seed: int) -> bpkr.Data:
    """Return the training data alone, so that each process compiles no predictor."""
    whole = problems.random_data(seed)
    return bpkr.Data(whole.features, whole.labels)


def swept(**options) -> xr.Dataset:
    return sweeps.sweep(problems.ARCHITECTURE, random_data, seeds=range(2), **GRID, **options).drop_vars("seconds")


def die(*_) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class SecondTaskKills:
    """An executor whose second task kills its worker."""

    def __init__(self, pool):
        self.pool, self.submitted = pool, 0

    def submit(self, function, *arguments):
        self.submitted += 1
        return self.pool.submit(die if self.submitted == 2 else function, *arguments)


@pytest.mark.parametrize("workers", [1, *slow([2])])
def test_a_killed_worker_is_reported_and_others_resume(workers, tmp_path, compiled_as_by_workers):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    with local_workers(1, cores) as pool, pytest.raises(ConnectionError, match="with a folder, the same call resumes"):
        swept(executor=SecondTaskKills(pool), folder=tmp_path / "run")
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert finished, "the first seed was done before the worker was lost"
    with local_workers(workers, cores) as pool:
        found = swept(executor=pool, folder=tmp_path / "run")
    assert all(path.stat().st_mtime_ns == written for path, written in finished.items())
    xr.testing.assert_identical(found, swept())


@pytest.mark.parametrize("value", [3, "tcp://localhost"])
def test_another_value_is_refused(value):
    with pytest.raises(TypeError, match=r"executor must be a concurrent\.futures\.Executor or a dask Client"):
        swept(executor=value)


SCRIPT = """
import theorykit
theorykit.enable_float64()
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

if __name__ == "__main__":
    data = bpkr.Data(np.random.default_rng(0).normal(size=(6, 1, 3)), np.linspace(-1, 1, 6))
    kinds = [bpkr.Architecture((kind,), 20.0, temperature=0.3) for kind in (Mine(), bpkr.Dense())]
    options = {"width": (10,), "temperature": (0.3,), "progress": False}
    with local_workers(1) as executor:
        theirs, ours = (sweeps.sweep(kind, data, **options, executor=executor).action.item() for kind in kinds)
    print(abs(theirs - ours) < 1e-12)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_file", [True, False])
def test_classes_of_a_script_or_a_notebook_reach_workers(is_file, tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT)
    arguments = [str(tmp_path / "mine.py")] if is_file else ["-c", SCRIPT]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["True"], done.stderr
