"""Train the finite network by Adam on the squared error, with selection by validation and with checkpoints; App. H."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float, PRNGKeyArray

from theorykit import bpkr
from theorykit._jit import usual_settings
from theorykit.bpkr.network.attention import readout_weights, unchecked_path_features
from theorykit.bpkr.network.network import path_weights, read_paths
from theorykit.checks import Positive, check_fields, checked_whole_number
from theorykit.runs import Folder, bar, tree_dataset, tree_from

from .tasks import Examples

# Part of the settings of a run. Increase it whenever training steps change for the same arguments.
_VERSION = 2
# Columns of the history, with one entry per validation.
_HISTORY = ("step", "loss", "validation_error", "validation_accuracy")
# The number of each step is folded into a random key, for which JAX uses 32 bits.
_Number = Annotated[int, partial(checked_whole_number, least=1, most=2**32 - 1)]


@dataclass(frozen=True)
class TrainingSettings:
    """Adam on the mean squared error, with fresh examples in every step.

    - `steps`: number of gradient steps.
    - `batch`: number of examples per step.
    - `learning_rate`: Adam's learning rate for queries and keys, and for values divided by the root of the width.
    - `validate_every`: number of steps between two validations.
    - `validation_examples`: number of validation examples, which are the same in every validation.
    - `patience`: training stops early after this many validations in a row without a new best accuracy.
    """

    steps: _Number = 1500
    batch: _Number = 128
    learning_rate: Positive = 2e-3
    validate_every: _Number = 100
    validation_examples: _Number = 1000
    patience: _Number | None = None

    def __post_init__(self):
        check_fields(self)


@dataclass(frozen=True)
class Trained:
    """The result of `train`."""

    network: bpkr.Network
    history: xr.Dataset

    @property
    def best_step(self) -> int:
        """The step with the best validation accuracy."""
        return int(self.history["validation_accuracy"].idxmax("step"))


def initial_network(
    architecture: bpkr.Architecture,
    head_dimension: int,
    input_features: int,
    *,
    readout: bpkr.Readout = "mean",
    key: PRNGKeyArray,
) -> bpkr.Network:
    """Draw a network to train, with weights from their prior.

    Args:
        architecture: layers, widths and prior variances.
        head_dimension: number of rows of each query and key matrix.
        input_features: number of features of a token. Entries of queries and keys have variance 1 / input_features.
        readout: the token that is read.
        key: JAX random key.
    """
    query_key, key_key, weights_key = jax.random.split(key, 3)
    shapes = [(heads, head_dimension, input_features) for heads in architecture.heads if heads]

    def projections(key):
        keys = jax.random.split(key, len(shapes))
        scale = input_features**-0.5
        return [scale * jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]

    heads = bpkr.Heads(query=projections(query_key), key=projections(key_key))
    return bpkr.sample_network(architecture, heads, input_features=input_features, readout=readout, key=weights_key)


@usual_settings()
def train(
    network: bpkr.Network,
    training: Any,
    validation: Any,
    *,
    key: PRNGKeyArray,
    settings: TrainingSettings | None = None,
    folder: Path | None = None,
    progress: bool = True,
) -> Trained:
    """Train all weights of `network`, including queries and keys, on fresh examples in every step.

    Args:
        network: the network to start from, such as the result of `initial_network`.
        training: a stream, which is a function `stream(examples, *, key)` that returns the requested number of random
            `Examples`. It must be a JAX pytree whose arrays are leaves.
        validation: a stream for validation examples.
        key: JAX random key.
        settings: number of steps and other settings.
        folder: stopped training resumes exactly from its last validation. Training with more `steps` or `patience`
            resumes from the last step.
        progress: show a bar.

    Returns:
        An object with the `network` of highest validation accuracy, after `best_step` steps, and the `history` over
        `step`: mean training `loss` since the last validation, `validation_error` (mean square) and
        `validation_accuracy` (of signs).
    """
    settings = TrainingSettings() if settings is None else settings
    place = Folder.of(
        folder,
        "training",
        _VERSION,
        network=network,
        training=training,
        validation=validation,
        # Leave out `steps` and `patience`, because steps do not depend on when training ends.
        settings=replace(settings, steps=1, patience=None),
        key=key,
    )
    # Training depends on the network, Adam's moments, the best network and the history.
    state = (network, optax.adam(0.0).init(_trained_part(network)), network)
    history = {name: np.zeros(0, int if name == "step" else float) for name in _HISTORY}
    if (kept := place.read("training")) is not None:
        state, history = tree_from(kept, state), {name: kept[name].values for name in _HISTORY}
    step, accuracies = int(max(history["step"], default=0)), history["validation_accuracy"]
    if step > settings.steps:
        raise ValueError(f"{folder} has {step} steps, more than steps={settings.steps}; use another folder")
    if _stopped_improving(accuracies[:-1], settings.patience):
        allowed = f"patience={settings.patience} allows"
        raise ValueError(f"{folder} has {step} steps, more than {allowed}; use another folder")
    held_out = validation(settings.validation_examples, key=jax.random.fold_in(key, 0))
    rate = jnp.asarray(settings.learning_rate, dtype=jnp.float64)
    with bar("training", settings.steps, "step", shown=progress, done=step) as report:
        while step < settings.steps and not _stopped_improving(history["validation_accuracy"], settings.patience):
            # Train up to the next validation or the last step.
            end = min(step - step % settings.validate_every + settings.validate_every, settings.steps)
            (network, moments, best), losses = state, []
            for number in range(step + 1, end + 1):
                step_key = jax.random.fold_in(key, number)
                network, moments, loss = _step(network, moments, training, rate, settings.batch, step_key)
                losses.append(loss)
                report.update()
            loss = float(np.mean(losses))
            if not np.isfinite(loss):
                rate = f"learning_rate={settings.learning_rate}"
                raise ValueError(
                    f"the training loss is {loss} before step {end}, with {rate}; use a lower learning rate"
                )
            error, accuracy = (float(value) for value in _validate(network, held_out))
            report.set_postfix(loss=loss, validation_accuracy=accuracy, refresh=False)
            is_best = accuracy > max(history["validation_accuracy"], default=-1.0)
            step, state = end, (network, moments, network if is_best else best)
            columns = zip(history.items(), (end, loss, error, accuracy), strict=True)
            history = {name: np.append(column, value) for (name, column), value in columns}
            columns = {name: ("validation", column) for name, column in history.items()}
            place.write("training", tree_dataset(state).assign(columns))
    return Trained(state[2], xr.Dataset({name: ("step", column) for name, column in history.items()}))


def _stopped_improving(accuracies: np.ndarray, patience: int | None) -> bool:
    if patience is None or len(accuracies) <= patience:
        return False
    return bool(np.max(accuracies[-patience:]) <= np.max(accuracies[:-patience]))


@eqx.filter_jit
def _step(network, moments, training, rate, batch: int, key):
    """Take one step of Adam on fresh examples."""
    examples = training(batch, key=key)
    trained = _trained_part(network)

    def loss(trained):
        outputs = _outputs(eqx.combine(trained, network), examples.inputs)
        return jnp.mean((outputs - examples.labels) ** 2)

    value, slope = jax.value_and_grad(loss)(trained)
    updates, moments = optax.adam(rate).update(slope, moments)
    # Adam's steps have the same size for all weights. A single learning rate suits values as well as queries and keys
    # only if forward maps have no factor 1/sqrt(width), as in the paper and in common practice. Here they have this
    # factor, so multiply steps of values by sqrt(width).
    ones = jax.tree.map(lambda _: jnp.asarray(1.0), trained)
    roots = [jnp.sqrt(jnp.asarray(float(weights.shape[1]))) for weights in _all_weights(trained)]
    scaled = jax.tree.map(jnp.multiply, updates, eqx.tree_at(_all_weights, ones, roots))
    return eqx.combine(optax.apply_updates(trained, scaled), network), moments, value


@eqx.filter_jit
def _validate(network, examples: Examples):
    outputs = _outputs(network, examples.inputs)
    error = jnp.mean((outputs - examples.labels) ** 2)
    return error, jnp.mean(jnp.sign(outputs) == examples.labels, dtype=float)


def _trained_part(network: bpkr.Network) -> bpkr.Network:
    """Select weights, queries and keys, but not the numbers of the architecture."""
    everything, fixed = jax.tree.map(lambda _: True, network), jax.tree.map(lambda _: False, network.architecture)
    return eqx.filter(network, eqx.tree_at(lambda tree: tree.architecture, everything, fixed))


def _all_weights(network: bpkr.Network) -> list:
    return [network.embedding, *network.weights, network.readout_weights]


def _outputs(network: bpkr.Network, inputs: Float[Array, "examples tokens features"]) -> Array:
    """Return the outputs as a sum over paths. Weights do not depend on tokens, so they are multiplied first.

    Networks with nonlinear hidden units are not a sum over paths, and are evaluated layer by layer.
    """
    architecture, attention = network.architecture, network.heads.unchecked(inputs)
    read = readout_weights(network.readout, inputs.shape[1])
    if not architecture.is_linear:
        return network.unchecked(inputs, attention, read)
    features = unchecked_path_features(inputs, attention, architecture, read)
    # This is the sum of `path_outputs`, without its checks, which would run in every step.
    embedding = network.embedding / jnp.sqrt(architecture.prior_variances[0])
    outputs = read_paths(path_weights(network)[0], embedding, features) / architecture.root_power
    return outputs[:, 0] if architecture.outputs == 1 else outputs


def label_network(network: bpkr.Network) -> xr.Dataset:
    """Label every weight: `embedding`, `values_l` and `readout`, and `query_l` and `key_l` of each layer with heads.

    Parameters of layers are left out, because they belong to the architecture.
    """
    arrays = {
        "embedding": (("unit_1", "feature"), network.embedding),
        "readout": (("output", f"unit_{len(network.weights) + 1}"), network.readout_weights),
    }
    for layer, weights in enumerate(network.weights, 1):
        arrays[f"values_{layer}"] = ((f"unit_{layer + 1}", f"head_unit_{layer}"), weights)
    for name, layers in (("query", network.heads.query), ("key", network.heads.key)):
        for layer, values in enumerate(layers, 1):
            arrays[f"{name}_{layer}"] = (f"head_{layer}", f"head_feature_{layer}", "feature"), values
    labelled = {name: (dimensions, np.asarray(values)) for name, (dimensions, values) in arrays.items()}
    return xr.Dataset(labelled, attrs={"readout": network.readout})
