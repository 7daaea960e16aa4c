"""Runs of every kind that saves results. Each is a separate process that tests kill and resume.

python -m tests.kills NAME FOLDER
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from papers import hidden_markov
from tests.bpkr.sampling.problems import problem
from tests.bpkr.sweeps.problems import random_data, swept
from tests.bpkr.training.test_gradient_descent import ARCHITECTURE, FEATURES, Direction
from tests.dmft.diagrams.networks import GAMMA, published
from theorykit import bpkr, dmft, store
from theorykit.bpkr import sampling
from theorykit.bpkr.training import TrainingSettings, initial_network, train
from theorykit.dmft import diagrams


def _sampled(sample: Callable[..., Any]) -> Callable[[Path], Any]:
    def run(folder: Path):
        store.CHECKPOINT_SECONDS = 0.0
        schedule = sampling.Schedule(chains=2, warmup=200, draws=600)
        architecture, features, labels, _ = problem()
        data = bpkr.Data(features, labels)
        tree = sample(architecture, data, key=jax.random.key(0), schedule=schedule, folder=folder, progress=False)
        return {name: values.values for name, values in tree["posterior"].data_vars.items()}

    return run


def trained(folder: Path):
    network = initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))
    data = Direction(jnp.arange(1.0, FEATURES + 1))
    settings = TrainingSettings(steps=400, batch=4, validate_every=4, validation_examples=20)
    options = {"key": jax.random.key(1), "settings": settings, "folder": folder, "progress": False}
    found = train(network, data, data, **options)
    leaves = jax.tree.leaves(found.network)
    return {**{str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)}, **_values(found.history)}


def _values(dataset) -> Mapping[str, np.ndarray]:
    return {str(name): values.values for name, values in dataset.data_vars.items()}


def sweeping(folder: Path):
    result = swept(random_data(0), folder)
    # where a solve started, and so its last bits, may differ
    return {name: np.round(values, 6) for name, values in _values(result[["U_1", "u", "mean"]]).items()}


def diagrammed(folder: Path):
    parameters = dmft.Parameters(np.linspace(0.5, 1.0, 96), GAMMA, 0.02)
    settings = diagrams.OrbitSettings(transient=400, recorded=200, exponents=0, levels=51)
    return _values(diagrams.orbit_diagram(published(), parameters, _start, settings, folder=folder))


def carried(folder: Path):
    settings = diagrams.OrbitSettings(transient=100, recorded=40, exponents=0, levels=51)
    arguments = (published(), dmft.Parameters(np.linspace(0.5, 1.0, 120), GAMMA, 0.02), _start, settings)
    return _values(diagrams.continuation_diagram(*arguments, folder=folder))


def _start(model, parameters):
    return dmft.state_from_window(model, parameters, dmft.Window(np.linspace(-0.5, 0.5, 12).reshape(4, 3), 1))


def summed(folder: Path):
    def batches():
        for number in range(300):
            draw = np.random.default_rng(number)
            yield draw.normal(size=(50, 4, 20)), draw.normal(size=50)

    folder.mkdir(parents=True, exist_ok=True)
    store.CHECKPOINT_SECONDS = 0.0
    found = bpkr.Data.of_batches(batches(), checkpoint=folder / "sums.npz").moments
    return {"gram": np.asarray(found.gram), "projection": np.asarray(found.projection)}


def reproduced(folder: Path):
    settings = hidden_markov.HiddenMarkov(widths=(30,), seeds=2, training_examples=10, test_examples=10)
    tree = hidden_markov.run(settings, folder)
    nodes = tree["default"].to_dataset(), tree["noisy"].to_dataset()
    return {f"{i} {name}": np.round(node[name].values, 6) for i, node in enumerate(nodes) for name in ("U_1", "action")}


RUNS: Mapping[str, Callable[[Path], Mapping[str, np.ndarray]]] = {
    "order parameters": _sampled(sampling.sample_order_parameters),
    "gibbs": _sampled(sampling.sample_weights_by_gibbs),
    "weights": _sampled(sampling.sample_weights),
    "training": trained,
    "sweep": sweeping,
    "orbits": diagrammed,
    "continuation": carried,
    "statistics": summed,
    "hidden Markov": reproduced,
}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    RUNS[sys.argv[1]](Path(sys.argv[2]))
