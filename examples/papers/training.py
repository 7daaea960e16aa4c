"""Train the finite network by Adam on the squared error, Tiberi et al., App. H."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from tqdm import trange

from theorykit import bpkr


class Training(NamedTuple):
    """Settings: fresh examples in every step, and selection by validation.

    Training ends early after `patience` validations without a new best accuracy.
    """

    steps: int = 1500
    batch: int = 128
    learning_rate: float = 2e-3
    validate_every: int = 100
    validation_examples: int = 1000
    patience: int = 10**9


def initial_network(architecture: bpkr.Architecture, head_dimension: int, features: int, *, key) -> bpkr.Network:
    """Draw a network from the prior, and queries and keys of variance 1 / features."""
    query_key, key_key, weights_key = jax.random.split(key, 3)
    scale = features**-0.5

    def projections(key):
        for heads, each in zip(architecture.heads, jax.random.split(key, depth), strict=True):
            yield scale * jax.random.normal(each, (heads, head_dimension, features))

    depth = len(architecture.heads)
    heads = bpkr.Heads(query=[*projections(query_key)], key=[*projections(key_key)])
    options = {"input_features": features, "readout": "mean", "key": weights_key}
    return bpkr.sample_network(architecture, heads, **options)


def train(
    network: bpkr.Network,
    training: Callable,
    validation: Callable,
    settings: Training,
    *,
    key,
    path: Path,
) -> tuple[bpkr.Network, xr.Dataset]:
    """Train all weights of `network`, including its queries and keys.

    Args:
        network: the network to start from.
        training, validation: `stream(examples, *, key)` draws `Examples`; a pytree.
        settings: number of steps and so on.
        key: JAX random key.
        path: file of the state at the last validation, from which training resumes.

    Returns:
        The network of highest validation accuracy, and the history over `step`.

    Raises:
        ValueError: the loss is not finite, or `path` has another training.
    """
    about = f"{settings} {jax.random.key_data(key)} {network.architecture}\n".encode()
    # Columns: step, loss since the last validation, validation error and accuracy
    history = np.full((-(-settings.steps // settings.validate_every), 4), np.nan)
    moments = optax.adam(0.0).init(_trained(network))
    best, first, rows = network, 1, 0
    if path.exists():
        with path.open("rb") as file:
            if (found := file.read(len(about))) != about:
                raise ValueError(f"{path} has another training: {found}, not {about}")
            state = network, moments, best, history
            network, moments, best, history = eqx.tree_deserialise_leaves(file, state)
        rows = int(np.isfinite(history[:, 0]).sum())
        first = int(history[rows - 1, 0]) + 1
    held_key = jax.random.fold_in(key, 0)
    held_out = validation(settings.validation_examples, key=held_key)
    losses, bar = [], trange(first, settings.steps + 1, desc="training", mininterval=1)
    for step in bar:
        past = history[:rows, 3]
        recent, before = past[-settings.patience :], past[: -settings.patience]
        if len(before) and recent.max() <= before.max():
            break
        number = jax.random.fold_in(key, step)
        how = settings.learning_rate, settings.batch, number
        network, moments, loss = _step(network, moments, training, *how)
        losses.append(loss)
        if step % settings.validate_every and step < settings.steps:
            continue
        loss, losses = float(np.mean(losses)), []
        if not np.isfinite(loss):
            raise ValueError(f"the training loss is {loss} before step {step}")
        error, accuracy = map(float, _validate(network, held_out))
        best = network if accuracy > max(past, default=-1.0) else best
        history[rows] = step, loss, error, accuracy
        rows += 1
        bar.set_postfix(loss=loss, accuracy=accuracy)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".part").open("wb") as file:
            file.write(about)
            eqx.tree_serialise_leaves(file, (network, moments, best, history))
        os.replace(path.with_suffix(".part"), path)
    names = ("loss", "validation_error", "validation_accuracy")
    columns = {name: ("step", history[:rows, i]) for i, name in enumerate(names, 1)}
    return best, xr.Dataset(columns, {"step": history[:rows, 0].astype(int)})


@eqx.filter_jit
def _step(network, moments, training, rate, batch: int, key):
    """Take one step of Adam on fresh examples."""
    examples, trained = training(batch, key=key), _trained(network)

    def loss(trained):
        outputs = _outputs(eqx.combine(trained, network), examples.inputs)
        return jnp.mean((outputs - examples.labels) ** 2)

    value, slope = jax.value_and_grad(loss)(trained)
    updates, moments = optax.adam(rate).update(slope, moments)
    # Adam's steps have one size for all weights. This suits values as well as queries
    # and keys if forward maps have no factor 1/sqrt(width), as in the paper. Here they
    # have it, so multiply steps of values by sqrt(width).
    scaled = [each * each.shape[1] ** 0.5 for each in _values(updates)]
    updates = eqx.tree_at(_values, updates, scaled)
    return eqx.apply_updates(network, updates), moments, value


@eqx.filter_jit
def _validate(network, examples):
    outputs = _outputs(network, examples.inputs)
    error = jnp.mean((outputs - examples.labels) ** 2)
    return error, jnp.mean(jnp.sign(outputs) == examples.labels, dtype=float)


def _outputs(network, inputs):
    """Sum over paths, because values do not depend on tokens."""
    attention, readout = network.heads(inputs), network.readout
    features = bpkr.path_features(inputs, attention, network.architecture, readout)
    return network.path_outputs(features).sum(axis=1)


def _values(network) -> list:
    return [network.embedding, *network.weights, network.readout_weights]


def _trained(network):
    """Select weights, queries and keys, but not the numbers of the architecture."""
    arrays = eqx.filter(network, eqx.is_array)
    none = jax.tree.map(lambda _: None, network.architecture)
    return eqx.tree_at(lambda each: each.architecture, arrays, none)
