"""Tasks in processes: numbers of one process, also with definitions of a script, and workers that end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import joblib
import numpy as np
import pytest
from joblib.externals.loky.process_executor import TerminatedWorkerError

from tests.test_resume import swept
from theorykit.runs import in_parallel


def end_first_worker(mark: Path, number: int) -> np.ndarray:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return jax.numpy.full(1, number / 3)


def test_a_killed_worker_is_reported_and_the_next_call_starts_another(tmp_path):
    def results():
        return dict(in_parallel(end_first_worker, [(tmp_path / "mark", number) for number in range(3)], n_jobs=2))

    with pytest.raises(TerminatedWorkerError):
        results()
    assert results() == {number: number / 3 for number in range(3)}, "also in float64"


def test_tasks_run_on_any_backend_of_joblib():
    with joblib.parallel_config("threading"):
        assert dict(in_parallel(pow, [(2, n) for n in range(5)], n_jobs=2)) == {n: 2**n for n in range(5)}
    for wrong in (0, "2", 1.5):
        with pytest.raises(ValueError, match=f"n_jobs must be a number .* got {wrong!r}"):
            list(in_parallel(pow, [(2, 3)], n_jobs=wrong))


@pytest.mark.slow
def test_a_sweep_runs_on_a_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        found = swept(tmp_path, n_jobs=2)
    expected = swept(tmp_path / "alone")
    np.testing.assert_allclose(found["action"], expected["action"], rtol=1e-12)


SCRIPT = """
import equinox as eqx, jax, jax.numpy as jnp, numpy as np
from sympy import Identity, sqrt
import theorykit
theorykit.enable_float64()
from theorykit import bpkr, symbolic
from theorykit.bpkr import sweeps
from theorykit.runs import in_parallel

class Mine(bpkr.AbstractLayer):
    heads: int = eqx.field(static=True)
    gain: float = 1.0

    def forward(self, layer):
        return layer.weights(1) * layer.hidden / sqrt(layer.width)

    def prior(self, layer):
        return layer.variance * Identity(1)

def bent(x):
    return curved(x) / sqrt(1 + x**2)

def twice(state, parameter):
    return parameter * step(state)

def step(state):
    return state**2 / 3

def work(layer, activation, map, state):
    layer = jax.tree.map(lambda leaf: 2 * leaf, layer)
    return layer.heads, layer.gain, str(activation), map(state, 2.0)

curved = symbolic.numeric_function("curved", lambda x: jnp.arctan(x))
tasks = [(Mine(heads=0), bpkr.Dense(activation=bent).activation.function, twice, jnp.full(2, 1 / 3))]
one, two = (dict(in_parallel(work, tasks, n_jobs))[0] for n_jobs in (1, 2))
assert one[:3] == two[:3] == (0, 2.0, one[2]) and "curved" in one[2] and np.array_equal(one[3], two[3])
rng = np.random.default_rng(0)
for layer in (Mine(heads=0), bpkr.Dense(activation=bent)):
    arch = bpkr.Architecture((layer,), 20.0, temperature=0.3)
    features = bpkr.path_features(rng.normal(size=(6, 2, 3)), (), arch, "last")
    grid = {"width": (10, 20), "temperature": (0.3,), "progress": False}
    data = bpkr.Data(features, np.linspace(-1, 1, 6))
    here, there = (sweeps.sweep(arch, data, **grid, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert here["converged"].all() and np.allclose(here["action"], there["action"], rtol=1e-12), there
print("same")
"""


@pytest.mark.slow
def test_definitions_of_a_script_reach_workers(tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-W", "ignore", str(tmp_path / "mine.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["same"], done.stderr
