"""Attention and path features: against Eqs. (3) and (7) written out, and with bad input."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.testing import random_inputs
from theorykit.testing.problems import EXAMPLES, INPUT_FEATURES, TOKENS

from .. import cases
from ..cases import assert_close, changed, explicit_branches, random_key_queries, refused

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


QUERY = [np.ones((2, 3, 4))]
WRONG_HEADS = {
    "nothing": ({}, "give either key_query=[...], or both query=[...] and key=[...]"),
    "queries alone": ({"query": QUERY}, "give either key_query=[...], or both query=[...] and key=[...]"),
    "both": ({"key_query": QUERY, "query": QUERY, "key": QUERY}, "give either key_query=[...], or both"),
    "a bias of products": ({"key_query": QUERY, "key_bias": QUERY}, "with or without query_bias and key_bias"),
    "not square": ({"key_query": QUERY}, "key_query[0] must have shape (heads, features, features), got (2, 3, 4)"),
    "no heads": ({"key_query": [np.ones((0, 3, 3))]}, "key_query[0] has zero heads"),
    "NaN": ({"key_query": [changed(np.ones((2, 3, 3)), (1, 0, 2), np.nan)]}, "key_query[0] is not finite in 1 entry"),
    "no keys": ({"query": QUERY, "key": []}, "key must have the shapes [(2, 3, 4)], to fit query, got []"),
    "other keys": ({"query": QUERY, "key": [np.ones((2, 5, 4))]}, "key must have the shapes [(2, 3, 4)], to fit query"),
    "short": (
        {"query": QUERY, "key": QUERY, "key_bias": [np.ones(3)]},
        "key_bias[0] must have shape (heads, G)",
    ),
    "other biases": (
        {"query": QUERY, "key": QUERY, "query_bias": [np.ones((2, 2))]},
        "query_bias must have the shapes [(2, 3)], to fit query, got [(2, 2)]",
    ),
}


@pytest.mark.parametrize("name", WRONG_HEADS)
def test_heads_that_do_not_fit_each_other_are_refused(name):
    arguments, message = WRONG_HEADS[name]
    for call in (bpkr.heads, partial(bpkr.attention, np.ones((1, TOKENS, INPUT_FEATURES)))):
        with refused(message):
            call(**arguments)


def test_inputs_must_fit_heads_and_architecture():
    rng, architecture = np.random.default_rng(0), cases.TWO_LAYERS.architecture()
    inputs, heads = random_inputs(rng), random_key_queries(cases.TWO_LAYERS.heads, rng)
    attention = bpkr.attention(inputs, key_query=heads)
    with refused(f"heads for {INPUT_FEATURES} features do not fit inputs of shape (5, 4, 3)"):
        bpkr.attention(inputs[:, :, :3], key_query=heads)
    with refused("inputs is not finite in 1 entry, the first nan at index (0, 1, 2)"):
        bpkr.attention(changed(inputs, (0, 1, 2), np.nan), key_query=heads)
    with refused("attention[0] must have shape (5, 3, 3, 3), or (3, 3, 3) if it is the same for all examples"):
        bpkr.path_features(inputs[:, :3], attention, architecture)
    with refused("attention[1] must have shape (5, 2, 4, 4), or (2, 4, 4) if it is the same for all examples"):
        bpkr.path_features(inputs, [attention[0], attention[1][:, :1]], architecture)
