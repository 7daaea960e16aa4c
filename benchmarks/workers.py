"""Measure parallel runs: speed-up, identical results, the cost of a lost worker, and the overhead per task.

    python benchmarks/workers.py [--output FOLDER] [--only NAME ...] [--kills NUMBER] [--quick]

Workers are dask workers with one thread each. They are bound to the cores in turn and reached over TCP. The cases are:

- `times`: four jobs with 1, 2 and 4 workers. The jobs are a grid of 7 widths, 10 temperatures and 5 seeds, an orbit
  diagram of 1000 values, 8 chains of a sampler, and 200 batches of data. Records the seconds of the first run, in which
  workers compile, and of the second, the parallel efficiency, and whether all results are bit-for-bit equal.
- `kills`: each job with 2 workers, repeated; each time SIGKILL ends one worker at a random moment. Records the seconds
  and whether the result is the same.
- `overhead`: seconds per task that computes nothing, and per byte sent with it.
- `sizes`: a sweep of 8 widths for several numbers of examples, in this process and with two workers, to see when two
  workers are faster.

Writes workers.json into FOLDER (benchmarks/results by default). Cases that are not run again keep their results.
`benchmarks/many_workers.py` simulates clusters larger than this machine.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import theorykit
from theorykit import bpkr, dmft
from theorykit.bpkr import sampling, sweeps
from theorykit.dmft.diagrams import OrbitSettings, orbit_diagram
from theorykit.workers import run_tasks

sys.path.insert(0, str(Path(__file__).parent))
import problems

CORES = sorted(os.sched_getaffinity(0))
COUNTS = (1, 2, 4)
EXAMPLES = (10, 30, 100, 300, 1000)
# Variables of results that hold measured times, which differ between runs.
_TIMES = ("seconds", "warmup_seconds")


@contextmanager
def dask_client(workers: int) -> Iterator[Any]:
    """Yield a client of a scheduler with `workers` workers, each a process bound to one core and reached over TCP."""
    import distributed

    dask = [sys.executable, "-m", "distributed.cli.dask_worker"]
    scheduler = {"n_workers": 0, "protocol": "tcp", "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**scheduler) as cluster, distributed.Client(cluster) as client:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # Workers get this folder on their path too, because tasks import modules from it.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
        options = ["--nthreads", "1", "--no-dashboard", "--memory-limit", "0"]
        started = [
            subprocess.Popen(
                ["taskset", "-c", str(CORES[number % len(CORES)]), *dask, cluster.scheduler_address, *options],
                env=environment,
                **quiet,
            )
            for number in range(workers)
        ]
        try:
            client.wait_for_workers(workers, timeout=60)
            yield client
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait()


def data_of_seed(seed: int) -> bpkr.Data:
    """Draw 120 examples of 4 paths."""
    return bpkr.Data(*problems.random_features(120, 4, 60, seed))


def batch(rows: int, columns: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw a batch of the form that a file would hold."""
    draw = np.random.default_rng(number)
    return draw.normal(size=(rows, 2, columns // 2)), draw.normal(size=rows)


def grid(small: bool, executor: Any) -> Any:
    """Solve 7 widths x 10 temperatures x 5 seeds: 35 tasks."""
    widths, temperatures, seeds = (10, 20, 40, 80, 160, 320, 640), np.geomspace(0.05, 2.0, 10).tolist(), range(5)
    if small:
        widths, temperatures, seeds = widths[:2], temperatures[:2], range(2)
    options = {"widths": widths, "temperatures": temperatures, "executor": executor, "progress": False}
    architecture = bpkr.Architecture((2, 2), 1.0, temperature=1.0)
    return sweeps.sweep_seeds(architecture, data_of_seed, seeds, **options)


def diagram(small: bool, executor: Any) -> Any:
    """Compute an orbit diagram of 1000 values of beta: 8 tasks."""
    model = dmft.self_attention_limit(dmft.published_weights(), 4)
    parameters = dmft.Parameters(np.linspace(0.5, 3.0, 100 if small else 1000), dmft.attention_gain(2.2, 100, 3), 0.02)
    settings = OrbitSettings(transient=2000, recorded=200 if small else 5000, exponents=2, levels=201)
    start = partial(dmft.state_from_window, window=dmft.Window(np.linspace(-0.5, 0.5, 12).reshape(4, 3), 1))
    return orbit_diagram(model, parameters, start, settings, executor=executor, progress=False)


def chains(small: bool, executor: Any) -> Any:
    """Draw 8 chains of the exact posterior: 8 tasks."""
    architecture = bpkr.Architecture((2, 2), 20.0, temperature=0.1)
    schedule = sampling.Schedule(8, 20, 20) if small else sampling.Schedule(8, 300, 700)
    options = {"key": jax.random.key(0), "schedule": schedule, "executor": executor, "progress": False}
    return sampling.sample_order_parameters(architecture, data_of_seed(0), **options)["posterior"].to_dataset()


def batches(small: bool, executor: Any) -> Any:
    """Add up 200 batches of 4000 examples and 400 columns: 50 tasks."""
    rows = 100 if small else 4000
    made = [partial(batch, rows, 400, number) for number in range(20 if small else 200)]
    return bpkr.Data.of_batches(made, executor=executor, in_flight=16, progress=False).moments


JOBS: Mapping[str, Callable[[bool, Any], Any]] = {
    "grid": grid,
    "orbit diagram": diagram,
    "chains": chains,
    "batches": batches,
}


def digest(result: Any) -> str:
    """Hash a result; equal hashes mean bit-for-bit equal numbers."""
    found = hashlib.sha256()
    if isinstance(result, xr.Dataset):
        arrays = [result[name].values for name in sorted(map(str, result.variables)) if name not in _TIMES]
    else:
        arrays = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
    for array in arrays:
        found.update(str(array.tolist()).encode() if array.dtype.kind in "OUT" else array.tobytes())
    return found.hexdigest()[:16]


def timed(job: Callable[[bool, Any], Any], small: bool, executor: Any) -> tuple[float, str]:
    """Run a job; return its seconds and the digest of its result."""
    began = time.perf_counter()
    result = job(small, executor)
    return time.perf_counter() - began, digest(result)


def measure_times(small: bool, _kills: int) -> list[dict]:
    rows = []
    for name, job in JOBS.items():
        alone = None
        for count in COUNTS:
            with dask_client(count) as client:
                first, of_first = timed(job, small, client)
                second, of_second = timed(job, small, client)
            alone = alone or (second, of_second)
            rows.append(
                {
                    "job": name,
                    "workers": count,
                    "first_seconds": first,
                    "seconds": second,
                    "efficiency": alone[0] / second / min(count, len(CORES)),
                    "identical": of_first == of_second == alone[1],
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


def measure_kills(small: bool, kills: int) -> list[dict]:
    rows, draw = [], random.Random(0)
    for name, job in JOBS.items():
        with dask_client(2) as client:
            timed(job, small, client)
            usual, wanted = timed(job, small, client)
            for _ in range(kills):
                # Wait for the worker that replaces the last killed one; it compiles again.
                client.wait_for_workers(2, timeout=60)
                moment = draw.uniform(0, usual)
                # The scheduler may not yet have noticed that the last worker is gone.
                victim = draw.choice(list(client.run(os.getpid, on_error="ignore").values()))
                killer = threading.Timer(moment, os.kill, (victim, signal.SIGKILL))
                killer.start()
                seconds, found = timed(job, small, client)
                killer.join()
                row = {"job": name, "undisturbed": usual, "killed_after": moment, "seconds": seconds}
                rows.append({**row, "identical": found == wanted})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def nothing(_common: Any, _task: int) -> None:
    """Compute nothing, as a task."""


def measure_overhead(small: bool, _kills: int) -> list[dict]:
    rows, tasks = [], [(number,) for number in range(100 if small else 2000)]
    for count in COUNTS:
        with dask_client(count) as client:
            list(run_tasks(client, nothing, tasks[:20], (None,)))
            began = time.perf_counter()
            list(run_tasks(client, nothing, tasks, (None,)))
            a_task = (time.perf_counter() - began) / len(tasks)
            began = time.perf_counter()
            list(run_tasks(client, nothing, tasks[:1], (None,)))
            one = time.perf_counter() - began
            common = np.zeros(10**6 if small else 10**8, dtype=np.uint8)
            began = time.perf_counter()
            list(run_tasks(client, nothing, tasks[:count], (common,)))
            a_byte = (time.perf_counter() - began) / common.nbytes / count
        rows.append({"workers": count, "seconds_a_task": a_task, "seconds_of_one": one, "seconds_a_byte": a_byte})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def measure_sizes(small: bool, _kills: int) -> list[dict]:
    rows = []
    with dask_client(2) as client:
        for examples in EXAMPLES[:2] if small else EXAMPLES:
            data = bpkr.Data(*problems.random_features(examples, 4, 60))
            architecture = bpkr.Architecture((2, 2), 1.0, temperature=1.0)
            grid = {"widths": (10, 20, 40, 80, 160, 320, 640, 1280), "temperatures": (0.1,), "progress": False}
            run = partial(sweeps.sweep, architecture, data, **grid)
            seconds = {}
            for name, executor in (("here", None), ("by two", client)):
                run(executor=executor)
                began = time.perf_counter()
                solved = run(executor=executor)
                seconds[name] = time.perf_counter() - began
            of_solve = float(solved["seconds"].median())
            row = {"examples": examples, "seconds_of_a_solve": of_solve, "here": seconds["here"]}
            rows.append({**row, "by_two_workers": seconds["by two"], "ratio": seconds["here"] / seconds["by two"]})
            print(json.dumps(rows[-1]), flush=True)
    return rows


CASES = {"times": measure_times, "kills": measure_kills, "overhead": measure_overhead, "sizes": measure_sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES), help="run only these cases")
    parser.add_argument("--kills", type=int, default=10, help="number of killed workers per job")
    parser.add_argument("--quick", action="store_true", help="run small jobs to test the script")
    arguments = parser.parse_args()
    theorykit.enable_float64()
    # Warnings are expected: chains with so few draws do not mix, and data are sent with the first task.
    warnings.simplefilter("ignore")
    output = Path(tempfile.mkdtemp()) if arguments.quick else arguments.output
    output.mkdir(parents=True, exist_ok=True)
    path = output / "workers.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in arguments.only:
        print(name, flush=True)
        results[name] = {"cores": len(CORES), "rows": CASES[name](arguments.quick, arguments.kills)}
        path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
