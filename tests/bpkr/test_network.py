"""The finite network: layer by layer and over paths, and its prior against the Gaussian-process limit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr

from .cases import (
    CASES,
    INPUT_FEATURES,
    READOUTS,
    SEEDS,
    SHALLOW_OR_DEEP,
    THREE_LAYERS,
    TWO_LAYERS,
    assert_close,
    random_inputs,
    random_key_queries,
)

NETWORKS = 400
SMALL = bpkr.Architecture((2, 2), (6.0, 5.0, 7.0), (1.3, 0.7, 1.6, 0.8), temperature=0.1)


def key_query_heads(heads, rng):
    return {"key_query": random_key_queries(heads, rng)}


def projection_heads(heads, rng):
    shapes = [(head, 3, INPUT_FEATURES) for head in heads]
    return {name: [rng.normal(size=shape) for shape in shapes] for name in ("query", "key")}


def sampled(architecture, parameters, seed, readout="last"):
    return bpkr.sample_network(
        architecture,
        bpkr.heads(**parameters),
        input_features=INPUT_FEATURES,
        readout=readout,
        key=jax.random.key(seed),
    )


def assert_mean_is(samples, expected, standard_errors=4.0):
    """The mean over axis 0 is `expected` to within four standard errors, entry by entry."""
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    assert np.max(np.abs(np.mean(samples, axis=0) - expected) / error) < standard_errors


@functools.cache
def prior_samples():
    """Outputs on a few inputs, and empirical order parameters, of many networks drawn from the prior."""
    rng = np.random.default_rng(3)
    inputs, parameters = jnp.array(random_inputs(rng)), key_query_heads(SMALL.heads, rng)
    features = bpkr.path_features(inputs, bpkr.attention(inputs, **parameters), SMALL)

    def draw(key):
        network = bpkr.sample_network(SMALL, bpkr.heads(**parameters), input_features=INPUT_FEATURES, key=key)
        return network(inputs), bpkr.empirical_order_parameters(network)

    outputs, order_parameters = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(5), NETWORKS))
    return features, outputs, order_parameters


@pytest.mark.parametrize("parameters", [key_query_heads, projection_heads])
@given(case=SHALLOW_OR_DEEP, seed=SEEDS, readout=st.sampled_from(READOUTS))
def test_the_sum_over_paths_is_the_network(parameters, case, seed, readout):
    rng, architecture = np.random.default_rng(seed), case.architecture()
    inputs, heads = jnp.array(random_inputs(rng)), parameters(case.heads, rng)
    network = sampled(architecture, heads, seed, readout)
    features = bpkr.path_features(inputs, bpkr.attention(inputs, **heads), architecture, readout)
    assert_close(bpkr.sum_over_paths(network, architecture, features), network(inputs), 1e-11)


@pytest.mark.parametrize("case", CASES)
def test_weights_have_the_shapes_of_the_architecture(case):
    rng = np.random.default_rng(0)
    network = sampled(case.architecture(), key_query_heads(case.heads, rng), 0)
    widths = [int(width) for width in case.widths]
    assert network.embedding.shape == (widths[0], INPUT_FEATURES)
    expected = list(zip(case.heads, widths[1:], widths[:-1], strict=True))
    assert [value.shape for value in network.values] == expected
    assert network.readout_vector.shape == (widths[-1],)


@pytest.mark.parametrize("case", CASES)
def test_path_weights_are_one_row_for_each_partial_path(case):
    architecture = case.architecture()
    network = sampled(architecture, key_query_heads(case.heads, np.random.default_rng(0)), 0)
    rows = (*architecture.order_parameter_sizes, 1)
    expected = [(row, int(width)) for row, width in zip(rows, case.widths, strict=True)]
    assert [weight.shape for weight in bpkr.path_weights(network)] == expected


def test_path_weights_follow_the_path_order():
    network = sampled(THREE_LAYERS.architecture(), key_query_heads(THREE_LAYERS.heads, np.random.default_rng(0)), 0)
    first = bpkr.path_weights(network)[0]
    for index, path in enumerate(THREE_LAYERS.architecture().path_heads()):
        weight = network.readout_vector
        for value, head in zip(reversed(network.values), reversed(path), strict=True):
            weight = weight @ value[head - 1] / np.sqrt(value.shape[1])
        assert_close(first[index], weight, 1e-13)


def test_empirical_order_parameters_are_overlaps_of_path_weights():
    network = sampled(TWO_LAYERS.architecture(), key_query_heads(TWO_LAYERS.heads, np.random.default_rng(0)), 0)
    measured = bpkr.empirical_order_parameters(network)
    *inner, outer = bpkr.path_weights(network)
    for matrix, weight in zip(measured.matrices, inner, strict=True):
        assert_close(matrix, sum(np.outer(unit, unit) for unit in weight.T) / weight.shape[1], 1e-13)
    assert_close(measured.readout, np.mean(outer**2), 1e-13)


@given(seed=SEEDS)
def test_the_output_is_the_same_function_of_every_example(seed):
    rng = np.random.default_rng(seed)
    inputs = jnp.array(random_inputs(rng))
    network = sampled(TWO_LAYERS.architecture(), key_query_heads(TWO_LAYERS.heads, rng), seed)
    assert_close(network(inputs[::-1]), network(inputs)[::-1], 1e-12)


def test_the_same_key_gives_the_same_network_and_another_another():
    parameters = key_query_heads(TWO_LAYERS.heads, np.random.default_rng(0))
    one, same, other = (sampled(TWO_LAYERS.architecture(), parameters, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, same)), strict=True))
    assert not np.array_equal(one.embedding, other.embedding)


def test_prior_mean_of_the_empirical_order_parameters_is_the_gp_limit():
    _, _, order_parameters = prior_samples()
    for samples, expected in zip(*map(jax.tree.leaves, (order_parameters, bpkr.gp_limit(SMALL))), strict=True):
        assert_mean_is(samples, expected)


def test_prior_covariance_of_the_output_is_the_gp_kernel():
    features, outputs, _ = prior_samples()
    assert_mean_is(outputs[:, :, None] * outputs[:, None, :], bpkr.kernel(SMALL, bpkr.gp_limit(SMALL), features))
    assert_mean_is(outputs, 0)


def test_prior_of_the_output_given_the_order_parameters_is_the_kernel():
    """Only the embedding is integrated: the covariance of the output is K at the sampled U_1, network by network."""
    features, outputs, order_parameters = prior_samples()
    kernels = jnp.einsum("nab,pai,qbi->npq", order_parameters.matrices[0], features, features)
    squares = jnp.einsum("np,npq,nq->n", outputs, jnp.linalg.inv(kernels), outputs)
    assert_mean_is(squares, outputs.shape[1])


def test_a_network_needs_whole_numbers_of_hidden_units():
    halves = bpkr.Architecture((2,), (4.0, 2.5), temperature=0.1)
    with pytest.raises(ValueError, match=r"whole numbers of hidden units.*2\.5"):
        sampled(halves, key_query_heads((2,), np.random.default_rng(0)), 0)


@pytest.mark.parametrize("shapes", [[1], [3], [2, 2], []])
def test_heads_that_do_not_fit_the_architecture_are_refused(shapes):
    architecture = bpkr.Architecture((2,), 4, temperature=0.1)
    parameters = key_query_heads(tuple(shapes), np.random.default_rng(0))
    with pytest.raises(ValueError, match="heads"):
        sampled(architecture, parameters, 0)
