"""The finite network: its sum over paths, and its prior against the Gaussian-process limit."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import bpkr

from .. import cases
from ..cases import Case, assert_close, random_key_queries, random_projections
from ..problems import EXAMPLES, INPUT_FEATURES, random_inputs

SMALL = Case((2, 2), (6.0, 5.0, 7.0), (1.3, 0.7, 1.6, 0.8))


def key_query_heads(heads, rng):
    return {"key_query": random_key_queries(heads, rng)}


def sampled(architecture, parameters, seed, readout="last"):
    options = {"input_features": INPUT_FEATURES, "readout": readout, "key": jax.random.key(seed)}
    return bpkr.sample_network(architecture, bpkr.Heads(**parameters), **options)


def assert_mean_is(samples, expected, standard_errors=4.0):
    """The mean over axis 0 is `expected` to within four standard errors, entry by entry."""
    error = np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))
    assert np.max(np.abs(np.mean(samples, axis=0) - expected) / error) < standard_errors


@pytest.mark.quick("random_projections")
@pytest.mark.parametrize("parameters", [key_query_heads, random_projections])
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


def prior_samples(case, networks, examples):
    """Path features, outputs (networks, examples x outputs) and empirical order parameters over the prior."""
    rng, architecture = np.random.default_rng(3), case.architecture()
    inputs, parameters = jnp.array(random_inputs(rng, examples=examples)), key_query_heads(case.heads, rng)
    features = bpkr.path_features(inputs, bpkr.attention(inputs, **parameters), architecture)
    heads = bpkr.Heads(**parameters)

    def draw(key):
        network = bpkr.sample_network(architecture, heads, input_features=INPUT_FEATURES, key=key)
        return network(inputs).ravel(), bpkr.empirical_order_parameters(network)

    keys = jax.random.split(jax.random.key(7), networks)
    return features, *jax.lax.map(draw, keys, batch_size=5_000)


NARROW = [(replace(case, widths=(4.0,) * len(case.widths)), 100_000) for case in cases.GRAMMAR]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("case", "networks"), [(SMALL, 400), *NARROW])
def test_the_prior_has_the_mean_and_the_covariance_of_the_gp_limit(case, networks):
    """At every width, not in the limit only."""
    features, outputs, order_parameters = prior_samples(case, networks, 3)
    limit = bpkr.gp_limit(case.architecture())
    for samples, expected in zip(*map(jax.tree.leaves, (order_parameters, limit)), strict=True):
        assert_mean_is(samples, expected)
    kernel = bpkr.kernel(bpkr.Problem(case.architecture(), bpkr.Data(features)), limit)
    assert_mean_is(outputs[:, :, None] * outputs[:, None, :], kernel)
    assert_mean_is(outputs, 0)
