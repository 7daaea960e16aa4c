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

    `training` and `validation` draw `Examples`. Return the network of highest validation
    accuracy, and the history over `step`; they are read from `path` if it exists.
    """
    # Columns: step, loss since the last validation, validation error and accuracy
    history = np.full((-(-settings.steps // settings.validate_every), 4), np.nan)
    best = network
    if path.exists():
        best, history = eqx.tree_deserialise_leaves(path, (best, history))
        return best, _named(history)
    moments = optax.adam(0.0).init(_trained(network))
    held_key = jax.random.fold_in(key, 0)
    held_out = validation(settings.validation_examples, key=held_key)
    losses, rows = [], 0
    for step in trange(1, settings.steps + 1, desc="training", mininterval=1):
        number = jax.random.fold_in(key, step)
        how = settings.learning_rate, settings.batch, number
        network, moments, loss = _step(network, moments, training, *how)
        losses.append(loss)
        if step % settings.validate_every and step < settings.steps:
            continue
        loss, losses = float(np.mean(losses)), []
        if not np.isfinite(loss):
            raise ValueError(f"the training loss is {loss} before step {step}")
        history[rows] = step, loss, *map(float, _validate(network, held_out))
        highest = int(np.nanargmax(history[:, 3]))
        best = network if highest == rows else best
        rows += 1
        if rows - 1 - highest >= settings.patience:
            break
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    eqx.tree_serialise_leaves(part, (best, history))
    os.replace(part, path)
    return best, _named(history)


def _named(history: np.ndarray) -> xr.Dataset:
    step, *columns = history[np.isfinite(history[:, 0])].T
    names = ("loss", "validation_error", "validation_accuracy")
    columns = {name: ("step", each) for name, each in zip(names, columns, strict=True)}
    return xr.Dataset(columns, {"step": step.astype(int)})


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
