"""Every function that takes an executor: workers compute what one process does, bit for bit, and keep it alike."""

import ast
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

from papers import hidden_markov, one_shot, self_attention_dynamics
from papers.tests.experiments import test_one_shot, test_self_attention_dynamics
from tests.bpkr.sampling.problems import problem
from tests.bpkr.sweeps.problems import ARCHITECTURE, random_data
from tests.clusters import dask_client
from tests.dmft.diagrams.networks import GAMMA, from_window, published, window
from tests.marks import slow
from tests.test_shape import PACKAGE, public_functions
from theorykit import bpkr, dmft
from theorykit.bpkr import sampling, sweeps
from theorykit.bpkr.sampling.comparison import APPROACHES
from theorykit.dmft import diagrams

SETTINGS = diagrams.OrbitSettings(transient=52, recorded=40, exponents=2, levels=51)
BETAS = np.linspace(1.0, 3.0, 70)
LINE, PLANE = (dmft.Parameters(BETAS, gamma, 0.02) for gamma in (GAMMA, np.array([[3.0], [GAMMA]])))
SCHEDULE = sampling.Schedule(chains=3, warmup=20, draws=30)
QUIET = {"progress": False}


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(number)
    return draw.normal(size=(7, 2, 3)), draw.normal(size=7)


def summed(make: Callable, *arguments, folder: Path | None, **options) -> bpkr.FeatureStatistics:
    checkpoint = None if folder is None else folder / "sums.npz"
    return make(*arguments, checkpoint=checkpoint, **QUIET, **options).moments


def batches(**options) -> bpkr.FeatureStatistics:
    return summed(bpkr.Data.of_batches, [partial(batch, number) for number in range(11)], **options)


def arrays(**options) -> bpkr.FeatureStatistics:
    features, labels = (np.concatenate(parts) for parts in zip(*map(batch, range(9)), strict=True))
    return summed(bpkr.Data.of_arrays, features, labels, chunk=5, **options)


def files(**options) -> bpkr.FeatureStatistics:
    with tempfile.TemporaryDirectory() as place:
        paths = [Path(place) / f"{number}.npz" for number in range(5)]
        for number, path in enumerate(paths):
            np.savez(path, **dict(zip(("features", "labels"), batch(number), strict=True)))
        return summed(bpkr.Data.of_files, paths, chunk=3, **options)


def swept(**options) -> xr.Dataset:
    grid = {"widths": (20, 80, 300), "temperatures": (0.1, 0.5)}
    return sweeps.sweep(ARCHITECTURE, random_data(0), **grid, **QUIET, **options)


def swept_seeds(**options) -> xr.Dataset:
    grid = {"widths": (20, 80), "temperatures": (0.1, 0.5)}
    return sweeps.sweep_seeds(ARCHITECTURE, random_data, range(2), **grid, **QUIET, **options)


def posed() -> tuple[bpkr.Architecture, bpkr.Data]:
    architecture, *arrays = problem()
    return architecture, bpkr.Data(*arrays)


def minima(**options) -> list[Any]:
    found = bpkr.search(*posed(), key=jax.random.key(0), starts=3, **QUIET, **options)
    return [found.starts, found.failures, found.followed, *found.saddles]


def sampled(sample: Callable, **options) -> Any:
    return sample(*posed(), key=jax.random.key(0), schedule=SCHEDULE, **QUIET, **options)


def compared(**options) -> xr.Dataset:
    short = {name: {"schedule": SCHEDULE} for name in ("exact", "gibbs", "nuts")}
    every = {"approaches": APPROACHES, "options": short}
    return sampling.compare(*posed(), key=jax.random.key(0), **every, **QUIET, **options)


def diagram(function: Callable, parameters: dmft.Parameters, **options) -> xr.Dataset:
    return function(published(), parameters, from_window(), SETTINGS, **QUIET, **options)


def attracted(**options) -> xr.Dataset:
    windows = diagrams.nearby_windows(window(), 40, 1e-3, key=jax.random.key(0))
    parameters = dmft.Parameters(1.27, GAMMA, 0.02)
    return diagrams.coexisting_attractors(published(), parameters, windows, SETTINGS, **QUIET, **options)


def squares(numbers: np.ndarray) -> xr.Dataset:
    return xr.Dataset({"square": ("orbit", numbers**2)})


def in_blocks(**options) -> xr.Dataset:
    return diagrams.in_blocks(squares, 100, settings={"of": "squares"}, orbits_per_block=30, **QUIET, **options)


def in_folder(run: Callable, settings: Any, folder: Path | None, tmp_path_factory: Any, **options) -> xr.DataTree:
    return run(settings, tmp_path_factory.mktemp("kept") if folder is None else folder, **QUIET, **options)


FEW_CHAINS = hidden_markov.HiddenMarkov(widths=(10, 30), seeds=1, training_examples=10, test_examples=10)
RUNS: Mapping[str, Callable] = {
    "bpkr.sweeps.run.sweep": swept,
    "bpkr.sweeps.run.sweep_seeds": swept_seeds,
    "bpkr.saddle.minima.search": lambda folder, **options: minima(**options),
    "bpkr.data.data.Data.of_batches": batches,
    "bpkr.data.data.Data.of_arrays": arrays,
    "bpkr.data.data.Data.of_files": files,
    "bpkr.sampling.sample.sample_order_parameters": partial(sampled, sampling.sample_order_parameters),
    "bpkr.sampling.sample.sample_weights": partial(sampled, sampling.sample_weights),
    "bpkr.sampling.sample.sample_weights_by_gibbs": partial(sampled, sampling.sample_weights_by_gibbs),
    "bpkr.sampling.comparison.compare": compared,
    "dmft.diagrams.orbit_diagram": partial(diagram, diagrams.orbit_diagram, LINE),
    "dmft.diagrams.phase_diagram": partial(diagram, diagrams.phase_diagram, PLANE),
    "dmft.diagrams.continuation_diagram": partial(diagram, diagrams.continuation_diagram, LINE),
    "dmft.diagrams.coexisting_attractors": attracted,
    "dmft.diagrams.in_blocks": in_blocks,
    "papers.hidden_markov.run": partial(in_folder, hidden_markov.run, FEW_CHAINS),
    "papers.one_shot.stages.run": partial(in_folder, one_shot.run, test_one_shot.SETTINGS),
    "papers.self_attention_dynamics.run": partial(
        in_folder, self_attention_dynamics.run, test_self_attention_dynamics.SETTINGS
    ),
}
# stages of an experiment, called by its `run`
_STAGES = ("run_variant", "run_network", "check_network", "theory_of_heads")
_PARTS = {f"papers.one_shot.stages.{name}" for name in _STAGES}
# hands the executor of the user to one of these
_BELOW = {"bpkr.data.reading.sum_batches", "bpkr.sampling.chains.run_chains", "papers.one_shot.theory.theory_of_seed"}
_BELOW |= {f"papers.one_shot.comparison.{name}" for name in ("order_parameters", "check")}
QUICK = ("bpkr.data.data.Data.of_batches", "dmft.diagrams.in_blocks")
KEEP_NOTHING = ("bpkr.saddle.minima.search",)
# what a clock has said, or hangs on it
_TIMES = ("seconds", "warmup_seconds", "inference_seconds", "created_at", "settings")


@pytest.fixture(scope="module")
def client():
    with dask_client(2) as opened:
        yield opened


def taking_an_executor() -> Iterator[str]:
    examples = PACKAGE.parent / "examples"
    places = [(PACKAGE, PACKAGE), (examples, examples / "papers")]
    for root, path in [(root, path) for root, place in places for path in sorted(place.rglob("*.py"))]:
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for name, function, _ in public_functions(ast.parse(path.read_text()).body, module):
            if any(each.arg == "executor" for each in (*function.args.args, *function.args.kwonlyargs)):
                yield name


def test_every_function_that_takes_an_executor_is_tried():
    found = {name for name in taking_an_executor() if not name.startswith(("workers.", "store."))}
    assert found == set(RUNS) | _PARTS | _BELOW


def values(found: Any) -> dict[str, np.ndarray]:
    """All numbers of a result, by name, but for times."""
    if isinstance(found, xr.DataTree):
        by_node = {path: values(node.to_dataset()) for path, node in found.subtree_with_keys}
        return {f"{path} {name}": value for path, node in by_node.items() for name, value in node.items()}
    if isinstance(found, xr.Dataset):
        every = {**found.variables, **{f"attribute {name}": value for name, value in found.attrs.items()}}
        return {str(k): np.asarray(v) for k, v in every.items() if str(k).removeprefix("attribute ") not in _TIMES}
    return {str(path): np.asarray(leaf) for path, leaf in jax.tree.leaves_with_path(found)}


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert len(expected) > 0 and found.keys() == expected.keys()
    for entry, value in expected.items():
        np.testing.assert_array_equal(found[entry], value, err_msg=entry)


@pytest.mark.parametrize("name", slow(RUNS))
def test_workers_compute_and_keep_what_one_process_does(name, client, tmp_path, tmp_path_factory):
    jax.clear_caches()
    run = partial(RUNS[name], **({"tmp_path_factory": tmp_path_factory} if name.startswith("papers") else {}))
    with warnings.catch_warnings():
        # so few draws have not mixed
        warnings.simplefilter("ignore")
        alone = values(run(folder=None))
        shared = values(run(folder=tmp_path, executor=client))
        kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        again = values(run(folder=tmp_path))
    assert_same(shared, alone)
    assert_same(again, alone)
    assert bool(kept) == (name not in KEEP_NOTHING)
    assert kept == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}


# those of "papers" hand their executor to the others
IN_ONE_PROCESS = [name for name in RUNS if not name.startswith("papers")]


@pytest.mark.parametrize("name", [*QUICK, *slow(name for name in IN_ONE_PROCESS if name not in QUICK)])
def test_threads_compute_what_one_thread_does(name):
    """Tasks of threads are traced, not only run, at the same time."""
    jax.clear_caches()
    interval = sys.getswitchinterval()
    with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
        warnings.simplefilter("ignore")
        # so that what may come between two steps of another thread does
        sys.setswitchinterval(1e-6)
        try:
            beside = values(RUNS[name](folder=None, executor=pool))
        finally:
            sys.setswitchinterval(interval)
        alone = values(RUNS[name](folder=None))
    assert_same(beside, alone)
