"""Training of the finite network by Adam on its squared error, chosen by validation, kept as it goes; paper, App. H."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any, Protocol, get_args, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, PRNGKeyArray
from tqdm.auto import tqdm

from ... import bpkr, store
from ...checks import (
    checked_choice,
    checked_flag,
    checked_instance,
    checked_key,
    checked_path,
    checked_whole_number,
    shown,
)
from ...extras import Lazy
from ...precision import require_float64
from ...settings import usual_settings
from ...tasks.examples import Examples
from ..network.network import path_weights, read_paths, weight_shapes
from ..network.paths import readout_weights, unchecked_path_features
from .settings import TrainingSettings

optax = Lazy("optax", "training a network")

_CHECKPOINT = "training.npz"
# of numbers of features; more cannot be held
_LARGEST = 2**31
# raised whenever a step comes to make other numbers of the same arguments
_VERSION = 1
# what is known of every validation
_HISTORY = ("step", "loss", "validation_error", "validation_accuracy")


@runtime_checkable
class Stream(Protocol):
    """Labelled examples without end; a JAX pytree, such as `tasks.one_shot.Episodes`, whose arrays are its leaves."""

    def __call__(self, examples: int, *, key: PRNGKeyArray) -> Examples:
        """`examples` of them, at random."""
        ...


@dataclass(frozen=True)
class Trained:
    """What training found.

    - `network`: as it was when it did best in validation.
    - `history`: over `step`, the training `loss` since the validation before, `validation_error` (mean square) and
      `validation_accuracy` (how often the sign is right).
    """

    network: bpkr.Network
    history: xr.Dataset

    @property
    def best_step(self) -> int:
        """After how many steps the network did best in validation."""
        return int(self.history["validation_accuracy"].idxmax("step"))


def initial_network(
    architecture: bpkr.Architecture,
    head_dimension: int,
    input_features: int,
    *,
    readout: bpkr.Readout = "mean",
    key: PRNGKeyArray,
) -> bpkr.Network:
    """A network to train: weights drawn from their prior, queries and keys (heads, head_dimension, input_features)
    with independent normal entries of variance 1 / input_features.
    """
    checked_instance("architecture", architecture, bpkr.Architecture)
    head_dimension = checked_whole_number("head_dimension", head_dimension, least=1, most=_LARGEST)
    input_features = checked_whole_number("input_features", input_features, least=1, most=_LARGEST)
    checked_choice("readout", readout, get_args(bpkr.Readout))
    key = checked_key("key", key)
    query_key, key_key, weights_key = jax.random.split(key, 3)
    counts = [heads for heads in architecture.heads if heads]

    def projections(key):
        shapes = [(heads, head_dimension, input_features) for heads in counts]
        keys = jax.random.split(key, len(shapes))
        scale = input_features**-0.5
        return [scale * jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]

    heads = bpkr.heads(query=projections(query_key), key=projections(key_key))
    return bpkr.sample_network(architecture, heads, input_features=input_features, readout=readout, key=weights_key)


@usual_settings()
def train(
    architecture: bpkr.Architecture,
    network: bpkr.Network,
    training: Stream,
    validation: Stream,
    *,
    key: PRNGKeyArray,
    settings: TrainingSettings | None = None,
    folder: Path | str | None = None,
    progress: bool = True,
) -> Trained:
    """Train all weights of `network`, queries and keys too, on examples of `training`.

    `network`, such as `initial_network`, is of the `architecture`, whose temperature does not matter. The result is the
    network with the highest accuracy on examples of `validation`. With a `folder`, training that was stopped goes on
    from its last validation exactly as it would have; training with more `steps` or `patience` goes on from the last
    step.

    Raises `ValueError` where the loss stops being a number, where `folder` holds more steps than asked for or a damaged
    file, and for a network that is not of the architecture; `FileExistsError` where it holds training of another
    network, with other data or settings, saying what differs.
    """
    require_float64()
    _check_network(architecture, network)
    checked_instance("settings", settings, (TrainingSettings, NoneType))
    key = checked_key("key", key)
    checked_flag("progress", progress)
    for name, stream in (("training", training), ("validation", validation)):
        _check_stream(name, stream, network, key)
    settings = TrainingSettings() if settings is None else settings
    run = _Run(architecture, training, settings, key)
    path = None if folder is None else checked_path("folder", folder) / _CHECKPOINT
    described = _describe(run, network, validation)
    state = _State.first(network)
    kept = None if path is None else store.read_arrays(path, "training", described)
    if kept is not None:
        state = state.resume(kept)
    if state.step > settings.steps:
        raise ValueError(f"{path} is of {state.step} steps, more than steps={settings.steps}: choose another folder")
    if state.validations and state.stopped_improving(settings.patience, state.validations - 1):
        raise ValueError(
            f"{path} is of {state.step} steps, more than patience={settings.patience} allows: choose another folder"
        )
    held_out = validation(settings.validation_examples, key=jax.random.fold_in(key, 0))
    with tqdm(
        total=settings.steps, initial=state.step, desc="training", unit="step", disable=not progress, dynamic_ncols=True
    ) as bar:
        while state.step < settings.steps and not state.stopped_improving(settings.patience, state.validations):
            state = _until_validation(run, state, held_out, bar)
            if path is not None:
                store.write_arrays(state.arrays(), described, path)
    return Trained(state.best, xr.Dataset({name: ("step", column) for name, column in state.history.items()}))


def _check_network(architecture: bpkr.Architecture, network: bpkr.Network) -> None:
    """Raise unless `network` has the layers, widths and heads of the architecture."""
    checked_instance("architecture", architecture, bpkr.Architecture)
    checked_instance("network", network, bpkr.Network, "as initial_network makes them")
    layers = [jax.tree.structure(layers) for layers in (network.layers, architecture.layers)]
    needed = weight_shapes(architecture, network.embedding.shape[1])
    found = tuple(array.shape for array in _all_weights(network))
    if layers[0] != layers[1] or found != needed:
        raise ValueError(
            f"network is of another architecture: its layers are {network.layers} and its weights of shapes {found}, "
            f"those of the architecture {architecture.layers} and {needed}"
        )


def _check_stream(name: str, stream: Stream, network: bpkr.Network, key: PRNGKeyArray) -> None:
    """Raise unless `stream` makes examples for the network, of which no number is looked at."""
    if not callable(stream) or isinstance(stream, type):
        raise TypeError(
            f"{name} must be a stream of examples, such as tasks.one_shot.episodes makes, got {shown(stream)}"
        )
    examples = eqx.filter_eval_shape(lambda: stream(2, key=key))
    if not isinstance(examples, Examples):
        raise TypeError(f"{name} must return Examples when it is called, got {shown(examples)}")
    features, outputs = network.embedding.shape[1], len(network.readout_weights)
    labels = (2,) if outputs == 1 else (2, outputs)
    if examples.inputs.shape[::2] != (2, features) or examples.labels.shape != labels:
        raise ValueError(
            f"{name} makes inputs of shape {examples.inputs.shape} and labels of shape {examples.labels.shape} of 2 "
            f"examples, but the network needs (2, tokens, {features}) and {labels}"
        )


@dataclass(frozen=True)
class _Run:
    """What does not change during training."""

    architecture: bpkr.Architecture
    training: Stream
    settings: TrainingSettings
    key: PRNGKeyArray


@dataclass(frozen=True)
class _State:
    """Where training is: all that the rest of it depends on. `history` has a column for each of `_HISTORY`."""

    network: bpkr.Network
    moments: Any
    best: bpkr.Network
    history: Mapping[str, np.ndarray]

    @property
    def step(self) -> int:
        return int(max(self.history["step"], default=0))

    @property
    def validations(self) -> int:
        """How many there were."""
        return len(self.history["step"])

    def stopped_improving(self, patience: int | None, validations: int) -> bool:
        """Whether in so many `validations` the last `patience` were no better than the best before them."""
        if patience is None or validations <= patience:
            return False
        accuracies = self.history["validation_accuracy"][:validations]
        return bool(np.max(accuracies[-patience:]) <= np.max(accuracies[:-patience]))

    @classmethod
    def first(cls, network: bpkr.Network) -> "_State":
        history = {name: np.zeros(0, int if name == "step" else float) for name in _HISTORY}
        return cls(network, optax.adam(0.0).init(_trained_part(network)), network, history)

    def arrays(self) -> dict[str, np.ndarray]:
        return {**store.leaf_arrays((self.network, self.moments, self.best)), **self.history}

    def resume(self, arrays: Mapping[str, np.ndarray]) -> "_State":
        """The state that `arrays` were made of, of the same network."""
        trees = store.tree_like((self.network, self.moments, self.best), arrays)
        return _State(*trees, {name: arrays[name] for name in _HISTORY})


def _until_validation(run: _Run, state: _State, held_out: Examples, bar: tqdm) -> _State:
    """The steps up to the next validation, or the last, and that validation."""
    settings = run.settings
    end = min(state.step - state.step % settings.validate_every + settings.validate_every, settings.steps)
    network, moments, losses = state.network, state.moments, []
    rate = jnp.asarray(settings.learning_rate, dtype=jnp.float64)
    for step in range(state.step + 1, end + 1):
        key = jax.random.fold_in(run.key, step)
        network, moments, loss = _step(
            network, moments, run.architecture.with_arrays(), run.training, rate, settings.batch, key
        )
        losses.append(loss)
        bar.update()
    loss = float(np.mean(losses))
    if not np.isfinite(loss):
        raise ValueError(
            f"the training loss is {loss} before step {end}, with learning_rate={settings.learning_rate}: try a lower "
            "one; what was kept is of the last validation before"
        )
    error, accuracy = (float(value) for value in _validate(network, run.architecture.with_arrays(), held_out))
    bar.set_postfix(loss=f"{loss:.3f}", validation_accuracy=f"{accuracy:.3f}")
    is_best = accuracy > max(state.history["validation_accuracy"], default=-1.0)
    columns = zip(state.history.items(), (end, loss, error, accuracy), strict=True)
    history = {name: np.append(column, value) for (name, column), value in columns}
    return _State(network, moments, network if is_best else state.best, history)


@eqx.filter_jit
def _step(network, moments, architecture, training: Stream, rate, batch: int, key):
    """One step of Adam on fresh examples."""
    examples = training(batch, key=key)
    trained = _trained_part(network)

    def loss(trained):
        outputs = network_outputs(eqx.combine(trained, network), architecture, examples.inputs)
        return jnp.mean((outputs - examples.labels) ** 2)

    value, slope = jax.value_and_grad(loss)(trained)
    updates, moments = optax.adam(rate).update(slope, moments)
    scaled = jax.tree.map(jnp.multiply, updates, _standard_units(trained))
    return eqx.combine(optax.apply_updates(trained, scaled), network), moments, value


def _trained_part(network: bpkr.Network) -> bpkr.Network:
    """The weights, queries and keys; not the numbers of the layers' kinds and priors."""
    everything = jax.tree.map(lambda _: True, network)
    fixed = jax.tree.map(lambda _: False, (network.layers, network.variances))
    return eqx.filter(network, eqx.tree_at(lambda tree: (tree.layers, tree.variances), everything, fixed))


def _standard_units(trained: bpkr.Network) -> bpkr.Network:
    """By how much each weight exceeds what it is where no forward map divides by the root of the width.

    Adam's steps are of one size for all weights: it is in those units, usual in practice and the paper's, that one
    learning rate suits values as well as queries and keys.
    """
    ones = jax.tree.map(lambda _: jnp.asarray(1.0), trained)
    roots = [jnp.sqrt(jnp.asarray(float(weights.shape[1]))) for weights in _all_weights(trained)]
    return eqx.tree_at(_all_weights, ones, roots)


def _all_weights(network: bpkr.Network) -> list:
    return [network.embedding, *network.weights, network.readout_weights]


def network_outputs(
    network: bpkr.Network, architecture: bpkr.Architecture, inputs: Float[Array, "examples tokens features"]
) -> Float[Array, "examples *outputs"]:
    """What the network makes of `inputs`, by paths: the weights, which know of no tokens, are multiplied first.

    Nonlinear hidden units are no sum over paths, and are evaluated layer by layer.
    """
    attention, read = network.heads.unchecked(inputs), readout_weights(network.readout, inputs.shape[1])
    if not network.is_linear:
        return network.unchecked(inputs, attention, read)
    features = unchecked_path_features(inputs, attention, architecture, read)
    # what `bpkr.sum_over_paths` does, without its checks in every step
    embedding = network.embedding / jnp.sqrt(architecture.prior_variances[0])
    outputs = read_paths(path_weights(network)[0], embedding, features)
    return outputs[:, 0] if architecture.outputs == 1 else outputs


@eqx.filter_jit
def _validate(network, architecture, examples: Examples):
    outputs = network_outputs(network, architecture, examples.inputs)
    error = jnp.mean((outputs - examples.labels) ** 2)
    return error, jnp.mean(bpkr.sign_accuracy(outputs, examples.labels))


def _describe(run: _Run, network: bpkr.Network, validation: Stream) -> Mapping[str, str]:
    """What determines every step; how many there are, and what ends them, does not."""
    return store.settings_of(
        "training",
        _VERSION,
        architecture=run.architecture.with_arrays(),
        network=network,
        training=run.training,
        validation=validation,
        settings=replace(run.settings, steps=1, patience=None),
        key=run.key,
    )
