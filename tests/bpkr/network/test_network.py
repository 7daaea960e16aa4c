"""The finite network: layer by layer and over paths, and its prior against the Gaussian-process limit."""

import functools
import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr import Dense, Skip
from theorykit.bpkr.network.network import path_weights

from .. import cases
from ..cases import (
    Case,
    CorrelatedHeads,
    Pooling,
    TiedHeads,
    assert_close,
    explicit_branches,
    explicit_covariance,
    explicit_gain,
    random_key_queries,
)
from ..problems import EXAMPLES, INPUT_FEATURES, random_inputs

NETWORKS = 400
SMALL = Case((2, 2), (6.0, 5.0, 7.0), (1.3, 0.7, 1.6, 0.8))


def key_query_heads(heads, rng):
    return {"key_query": random_key_queries(heads, rng)}


def projection_heads(heads, rng):
    shapes = [(head, 3, INPUT_FEATURES) for head in heads]
    return {name: [rng.normal(size=shape) for shape in shapes] for name in ("query", "key")}


def sampled(architecture, parameters, seed, readout="last"):
    return bpkr.sample_network(
        architecture,
        bpkr.Heads(**parameters),
        input_features=INPUT_FEATURES,
        readout=readout,
        key=jax.random.key(seed),
    )


def assert_mean_is(samples, expected, standard_errors=4.0):
    """The mean over axis 0 is `expected` to within four standard errors, entry by entry."""
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    assert np.max(np.abs(np.mean(samples, axis=0) - expected) / error) < standard_errors


def branch_weights(layer, weights, width):
    """The matrix of each branch of a layer, its weight blocks divided by the square root of `width`."""
    straight = explicit_gain(layer) * np.eye(len(weights))
    blocks = np.split(np.asarray(weights), len(explicit_covariance(layer, 1.0)), axis=1)
    return [straight] * bool(explicit_gain(layer)) + [block / np.sqrt(width) for block in blocks]


def explicit_network(network, architecture, inputs, attention, readout):
    """Eqs. (1), (2) and (4), one example, layer and branch after the other."""
    tokens, outputs = inputs.shape[1], []
    read = {"first": np.eye(tokens)[0], "last": np.eye(tokens)[-1], "mean": np.full(tokens, 1 / tokens)}[readout]
    for example, example_tokens in enumerate(inputs):
        left, hidden = iter(attention), network.embedding @ example_tokens.T / np.sqrt(inputs.shape[2])
        for layer, weights in zip(architecture.layers, network.weights, strict=True):
            mixings = explicit_branches(layer, np.asarray(next(left)[example]) if layer.heads else None, tokens)
            branches = branch_weights(layer, weights, len(hidden))
            hidden = sum(block @ hidden @ mixing for block, mixing in zip(branches, mixings, strict=True))
        outputs.append(network.readout_weights @ hidden @ read / np.sqrt(len(hidden)))
    return np.array(outputs)[:, 0] if architecture.outputs == 1 else np.array(outputs)


@pytest.mark.slow
@settings(max_examples=4)
@given(
    case=st.one_of(cases.SHALLOW_OR_DEEP, cases.ANY_OF_THE_GRAMMAR),
    seed=cases.SEEDS,
    readout=st.sampled_from(cases.READOUTS),
)
def test_the_network_is_its_layers_one_after_the_other(case, seed, readout):
    rng, architecture = np.random.default_rng(seed), case.architecture()
    inputs, heads = jnp.array(random_inputs(rng)), key_query_heads(case.heads, rng)
    network, attention = sampled(architecture, heads, seed, readout), bpkr.attention(inputs, **heads)
    assert_close(network(inputs), explicit_network(network, architecture, inputs, attention, readout), 1e-12)


@pytest.mark.quick("projection_heads")
@pytest.mark.parametrize("parameters", [key_query_heads, projection_heads])
@settings(max_examples=4)
@given(
    case=st.one_of(cases.SHALLOW_OR_DEEP, cases.ANY_OF_THE_GRAMMAR),
    seed=cases.SEEDS,
    readout=st.sampled_from(cases.READOUTS),
)
def test_the_sum_over_paths_is_the_network(parameters, case, seed, readout):
    rng, architecture = np.random.default_rng(seed), case.architecture()
    inputs, heads = jnp.array(random_inputs(rng)), parameters([heads for heads in case.heads if heads], rng)
    network = sampled(architecture, heads, seed, readout)

    @jax.jit
    def both(inputs):
        features = bpkr.path_features(inputs, bpkr.attention(inputs, **heads), architecture, readout)
        return network(inputs), network.path_outputs(features)

    outputs, of_paths = both(inputs)
    assert outputs.shape == ((EXAMPLES,) if case.outputs == 1 else (EXAMPLES, case.outputs))
    assert_close(of_paths.sum(axis=1), outputs, 1e-11)


@pytest.mark.quick("case0", "case4", "case7")
@pytest.mark.parametrize("case", (cases.THREE_LAYERS, *cases.GRAMMAR))
def test_path_weights_follow_the_path_order(case):
    """Eq. (6), one path and one output after the other."""
    architecture = case.architecture()
    network = sampled(architecture, key_query_heads(case.heads, np.random.default_rng(0)), 0)
    branches = [branch_weights(layer, V, len(V)) for layer, V in zip(architecture.layers, network.weights, strict=True)]
    paths = itertools.product(itertools.product(*branches), network.readout_weights)
    for found, (blocks, weight) in zip(path_weights(network)[0], paths, strict=True):
        for block in reversed(blocks):
            weight = weight @ block
        assert_close(found, weight, 1e-13)


def prior_samples(case, networks, examples):
    """Path features, outputs (networks, examples x outputs) and empirical order parameters over the prior."""
    rng, architecture = np.random.default_rng(3), case.architecture()
    inputs, parameters = jnp.array(random_inputs(rng, examples=examples)), key_query_heads(case.heads, rng)
    features, heads = (
        bpkr.path_features(inputs, bpkr.attention(inputs, **parameters), architecture),
        bpkr.Heads(**parameters),
    )

    def draw(key):
        network = bpkr.sample_network(architecture, heads, input_features=INPUT_FEATURES, key=key)
        return network(inputs).ravel(), bpkr.empirical_order_parameters(network)

    keys = jax.random.split(jax.random.key(7), networks)
    return features, *jax.lax.map(draw, keys, batch_size=5_000)


@functools.cache
def samples_of_the_small_network():
    return prior_samples(SMALL, NETWORKS, 3)


def test_prior_of_the_output_given_the_order_parameters_is_the_kernel():
    """Only the embedding is integrated: the covariance of the output is K at the sampled U_1, network by network."""
    features, outputs, order_parameters = samples_of_the_small_network()
    kernels = jnp.einsum("nab,pai,qbi->npq", order_parameters.matrices[0], features, features)
    squares = jnp.einsum("np,npq,nq->n", outputs, jnp.linalg.inv(kernels), outputs)
    assert_mean_is(squares, outputs.shape[1])


NARROW = (
    Case((Skip(2, 0.7), Dense(), 2), (4.0, 4.0, 3.0, 5.0), (1.1, 0.8, 1.4, 0.9, 0.7)),
    Case((2, Skip(2, 1.2)), (4.0, 5.0, 5.0), (0.9, 1.3, 0.6, 1.4), outputs=2),
    Case(
        (Skip(CorrelatedHeads(cases.CORRELATED, 2), 0.5), Pooling(0.8), TiedHeads(2)),
        (4.0, 4.0, 4.0, 3.0),
        (1.0, 1.0, 1.2, 0.8, 1.3),
    ),
)


@pytest.mark.parametrize(
    ("case", "networks"),
    [
        (SMALL, NETWORKS),
        *(pytest.param(case, 20_000, marks=pytest.mark.slow) for case in NARROW),
        *(
            pytest.param(replace(case, widths=tuple(4.0 for _ in case.widths)), 100_000, marks=pytest.mark.slow)
            for case in cases.GRAMMAR
        ),
    ],
)
def test_the_prior_has_the_mean_and_the_covariance_of_the_gp_limit(case, networks):
    """At every width, not in the limit only."""
    drawn = samples_of_the_small_network() if case is SMALL else prior_samples(case, networks, 3)
    features, outputs, order_parameters = drawn
    limit = bpkr.gp_limit(case.architecture())
    for samples, expected in zip(*map(jax.tree.leaves, (order_parameters, limit)), strict=True):
        assert_mean_is(samples, expected)
    kernel = bpkr.kernel(bpkr.Problem(case.architecture(), bpkr.Data(features)), limit)
    assert_mean_is(outputs[:, :, None] * outputs[:, None, :], kernel)
    assert_mean_is(outputs, 0)
