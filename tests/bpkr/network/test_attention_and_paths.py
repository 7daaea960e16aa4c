"""Attention and path features: against Eqs. (3) and (7) written out, and with bad input."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr

from .. import cases
from ..cases import assert_close, explicit_branches, random_key_queries, refused
from ..problems import EXAMPLES, INPUT_FEATURES, TOKENS, random_inputs

ANY_CASE = st.one_of(cases.SHALLOW_OR_DEEP, cases.ANY_OF_THE_GRAMMAR)
ANY_READOUT = st.sampled_from(cases.READOUTS)


def explicit_attention(tokens, key_query):
    """Eq. (3) for one example and one head, one entry after the other."""
    weights = np.array([[math.exp(key @ key_query @ query) for query in tokens] for key in tokens])
    return weights / weights.sum(axis=0)


def explicit_path_features(architecture, inputs, attention, readout):
    """Eq. (7): one product of attention matrices for each path."""
    tokens = inputs.shape[1]
    read = {"first": np.eye(tokens)[0], "last": np.eye(tokens)[-1], "mean": np.full(tokens, 1 / tokens)}[readout]
    features = np.zeros((len(inputs), architecture.paths, inputs.shape[2]))
    for example, example_tokens in enumerate(inputs):
        left = iter(attention)
        mixings = [
            explicit_branches(layer, next(left)[example] if layer.heads else None, tokens)
            for layer in architecture.layers
        ]
        for index, path in enumerate(itertools.product(*mixings)):
            features[example, index] = np.linalg.multi_dot([np.eye(tokens), *path, read]) @ example_tokens
    return features * math.sqrt(architecture.prior_variances[0] / inputs.shape[2])


@given(case=cases.SHALLOW_OR_DEEP, seed=cases.SEEDS)
def test_attention_is_its_explicit_softmax(case, seed):
    rng = np.random.default_rng(seed)
    inputs, key_queries = random_inputs(rng), random_key_queries(case.heads, rng)
    for layer, products in zip(bpkr.attention(inputs, key_query=key_queries), key_queries, strict=True):
        explicit = [[explicit_attention(tokens, product) for product in products] for tokens in inputs]
        assert_close(layer, explicit, 1e-12)
    # large scores neither overflow nor lose their sum
    for layer in bpkr.attention(inputs, key_query=[1e4 * products for products in key_queries]):
        assert np.min(layer) >= 0
        np.testing.assert_allclose(np.sum(layer, axis=2), 1, rtol=1e-13)


@given(
    case=st.one_of(cases.SHALLOW_OR_DEEP, cases.ANY_OF_THE_GRAMMAR),
    seed=cases.SEEDS,
    readout=st.sampled_from(cases.READOUTS),
)
def test_path_features_are_their_explicit_sums(case, seed, readout):
    rng, architecture = np.random.default_rng(seed), case.architecture()
    inputs = random_inputs(rng)
    attention = bpkr.attention(inputs, key_query=random_key_queries(case.heads, rng))
    features = bpkr.path_features(inputs, attention, architecture, readout)
    assert features.shape == (EXAMPLES, architecture.paths, INPUT_FEATURES)
    explicit = explicit_path_features(architecture, inputs, list(map(np.asarray, attention)), readout)
    assert_close(features, explicit, 1e-12)


def test_a_network_without_attention_takes_none():
    inputs, architecture = random_inputs(np.random.default_rng(0)), cases.DEEP_LINEAR.architecture()
    features = bpkr.path_features(inputs, (), architecture)
    scale = math.sqrt(cases.DEEP_LINEAR.variances[0] / INPUT_FEATURES)
    assert_close(features, scale * inputs[:, -1:], 1e-13)
    assert bpkr.attention(inputs, key_query=()) == ()
    with refused("attention has 1 layer, but the architecture has 0 with heads"):
        bpkr.path_features(inputs, [np.ones((EXAMPLES, 1, TOKENS, TOKENS))], architecture)
