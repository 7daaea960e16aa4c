"""Attention and path features: against Eqs. (3) and (7) written out, under permuted heads, and with bad input."""

import itertools
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.testing import random_inputs
from theorykit.testing.problems import EXAMPLES, INPUT_FEATURES, TOKENS

from ..cases import (
    ANY_OF_THE_GRAMMAR,
    DEEP_LINEAR,
    READOUTS,
    SEEDS,
    SHALLOW_OR_DEEP,
    TWO_LAYERS,
    assert_close,
    changed,
    explicit_branches,
    permuted_paths,
    random_key_queries,
    random_permutation,
    refused,
)

ANY_READOUT = st.sampled_from(READOUTS)
G = 7


def random_queries_and_keys(heads, rng):
    shapes = [(head, G, INPUT_FEATURES) for head in heads]
    return [rng.normal(size=shape) for shape in shapes], [rng.normal(size=shape) for shape in shapes]


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


@given(case=SHALLOW_OR_DEEP, seed=SEEDS)
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


@given(case=SHALLOW_OR_DEEP, seed=SEEDS)
def test_queries_and_keys_are_the_same_as_their_scaled_product(case, seed):
    rng = np.random.default_rng(seed)
    inputs = random_inputs(rng)
    queries, keys = random_queries_and_keys(case.heads, rng)
    products = [np.einsum("hgi,hgj->hij", key, query) / math.sqrt(G) for query, key in zip(queries, keys, strict=True)]
    from_matrices = bpkr.attention(inputs, query=queries, key=keys)
    for ours, theirs in zip(from_matrices, bpkr.attention(inputs, key_query=products), strict=True):
        assert_close(ours, theirs, 1e-11)


@given(case=st.one_of(SHALLOW_OR_DEEP, ANY_OF_THE_GRAMMAR), seed=SEEDS, readout=ANY_READOUT)
def test_path_features_are_their_explicit_sums(case, seed, readout):
    rng, architecture = np.random.default_rng(seed), case.architecture()
    inputs = random_inputs(rng)
    attention = bpkr.attention(inputs, key_query=random_key_queries(case.heads, rng))
    features = bpkr.path_features(inputs, attention, architecture, readout)
    assert features.shape == (EXAMPLES, architecture.paths, INPUT_FEATURES)
    explicit = explicit_path_features(architecture, inputs, list(map(np.asarray, attention)), readout)
    assert_close(features, explicit, 1e-12)


@given(case=SHALLOW_OR_DEEP, seed=SEEDS, readout=ANY_READOUT)
def test_permuting_heads_permutes_paths(case, seed, readout):
    rng, architecture = np.random.default_rng(seed), case.architecture()
    inputs, key_queries = random_inputs(rng), random_key_queries(case.heads, rng)
    layer, permutation = random_permutation(architecture, rng)
    permuted = [products[permutation] if i == layer else products for i, products in enumerate(key_queries)]
    before, after = (
        bpkr.path_features(inputs, bpkr.attention(inputs, key_query=heads), architecture, readout)
        for heads in (key_queries, permuted)
    )
    assert_close(after, before[:, permuted_paths(case.heads, layer, permutation)], 1e-13)


def test_a_network_without_attention_takes_none():
    inputs, architecture = random_inputs(np.random.default_rng(0)), DEEP_LINEAR.architecture()
    features = bpkr.path_features(inputs, (), architecture)
    scale = math.sqrt(DEEP_LINEAR.variances[0] / INPUT_FEATURES)
    assert_close(features, scale * inputs[:, -1:], 1e-13)
    assert bpkr.attention(inputs, key_query=()) == ()
    with refused("attention has 1 layers, but 0 layers have heads"):
        bpkr.path_features(inputs, [np.ones((EXAMPLES, 1, TOKENS, TOKENS))], architecture)


@given(seed=SEEDS)
def test_the_mean_readout_is_the_mean_over_tokens(seed):
    """Reversing the tokens exchanges first and last, and leaves the mean: attention knows no positions."""
    rng, architecture = np.random.default_rng(seed), TWO_LAYERS.architecture()
    inputs, key_queries = random_inputs(rng), random_key_queries(TWO_LAYERS.heads, rng)

    def features(tokens, readout):
        return bpkr.path_features(tokens, bpkr.attention(tokens, key_query=key_queries), architecture, readout)

    backwards = inputs[:, ::-1]
    assert_close(features(backwards, "first"), features(inputs, "last"), 1e-12)
    assert_close(features(backwards, "mean"), features(inputs, "mean"), 1e-12)


def test_the_last_token_is_read_unless_told_otherwise():
    rng, architecture = np.random.default_rng(0), TWO_LAYERS.architecture()
    inputs = random_inputs(rng)
    attention = bpkr.attention(inputs, key_query=random_key_queries(TWO_LAYERS.heads, rng))
    default = bpkr.path_features(inputs, attention, architecture)
    np.testing.assert_array_equal(default, bpkr.path_features(inputs, attention, architecture, "last"))


def test_heads_come_as_products_or_as_queries_and_keys():
    matrices = [np.ones((2, 3, INPUT_FEATURES))]
    for arguments in ({}, {"query": matrices}, {"key": matrices}, {"key_query": matrices, "query": matrices}):
        with refused("give either key_query=[...], or both query=[...] and key=[...]"):
            bpkr.heads(**arguments)
        with refused("give either key_query=[...], or both query=[...] and key=[...]"):
            bpkr.attention(np.ones((1, TOKENS, INPUT_FEATURES)), **arguments)


def test_heads_must_have_their_shapes():
    for arguments, message in (
        (
            {"key_query": [np.ones((2, 3, 4))]},
            "key_query[0] must have shape (heads, features, features), got (2, 3, 4)",
        ),
        ({"key_query": [np.ones((3, 3))]}, "key_query[0] must have shape (heads, features, features), got (3, 3)"),
        ({"key_query": [np.ones((0, 3, 3))]}, "key_query[0] has zero heads"),
        ({"key_query": [changed(np.ones((2, 3, 3)), (1, 0, 2), np.nan)]}, "key_query[0] has 1 entries"),
        ({"query": [np.ones((2, 3, 4))], "key": []}, "key has 0 layers, query has 1"),
        ({"query": [np.ones((2, 3, 4))], "key": [np.ones((2, 5, 4))]}, "key[0] must have shape (2, 3, 4), as query[0]"),
    ):
        with refused(message):
            bpkr.heads(**arguments)


def test_inputs_must_fit_heads_and_architecture():
    rng = np.random.default_rng(0)
    inputs, heads = random_inputs(rng), random_key_queries(TWO_LAYERS.heads, rng)
    attention = bpkr.attention(inputs, key_query=heads)
    with refused(f"heads for {INPUT_FEATURES} features do not fit inputs of shape (5, 4, 3)"):
        bpkr.attention(inputs[:, :, :3], key_query=heads)
    with refused("inputs has 1 entries that are not finite, the first nan at index (0, 1, 2)"):
        bpkr.attention(changed(inputs, (0, 1, 2), np.nan), key_query=heads)
    with refused("attention has 1 layers, but 2 layers have heads, (3, 2)"):
        bpkr.path_features(inputs, attention[:1], TWO_LAYERS.architecture())
    with refused(
        "attention[0] must have shape (5, 3, 3, 3), or (3, 3, 3) if it is that of all examples, got (5, 3, 4, 4)"
    ):
        bpkr.path_features(inputs[:, :3], attention, TWO_LAYERS.architecture())
    with refused(
        "attention[1] must have shape (5, 2, 4, 4), or (2, 4, 4) if it is that of all examples, got (5, 1, 4, 4)"
    ):
        bpkr.path_features(inputs, [attention[0], attention[1][:, :1]], TWO_LAYERS.architecture())
