"""Attention and path features: against Eqs. (3) and (7) written out, with masks and padding."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import bpkr

from .. import cases
from ..cases import (
    READOUTS,
    SEEDS,
    TWO_LAYERS,
    assert_close,
    explicit_branches,
    random_key_queries,
    random_projections,
    refused,
)
from ..problems import EXAMPLES, INPUT_FEATURES, TOKENS, random_inputs

ARCHITECTURE = TWO_LAYERS.architecture()
LENGTHS = np.array([4, 1, 3, 2, 4])


def explicit_scores(inputs, parameters):
    """The scores (examples, heads, keys, queries) of every layer."""
    found = []
    for query, key, *biases in zip(*parameters.values(), strict=True):
        of_query, of_key = (bias[:, None] for bias in biases)
        queries = inputs[:, None] @ query.swapaxes(1, 2) + of_query
        keys = inputs[:, None] @ key.swapaxes(1, 2) + of_key
        found.append(keys @ queries.swapaxes(2, 3) / np.sqrt(key.shape[1]))
    return found


KEYS, QUERIES = np.arange(TOKENS)[:, None], np.arange(TOKENS)[None, :]
CAUSAL = np.broadcast_to(KEYS <= QUERIES, (EXAMPLES, TOKENS, TOKENS))
REAL = np.arange(TOKENS) < LENGTHS[:, None]
AMONG_REAL = np.broadcast_to(REAL[:, :, None], (EXAMPLES, TOKENS, TOKENS))
NO_MASK = np.ones((1, 1, 1, TOKENS), dtype=bool)  # as in PyTorch
# the same mask in every form that it has
ADDED = np.where(CAUSAL, 0, -np.inf)[:1, None]
MASKS = {
    "none": [None, np.zeros((TOKENS, TOKENS))],
    "causal": ["causal", CAUSAL[:, None], CAUSAL[0], ADDED],
    "padding": [np.where(REAL, 0, -3e38)[:, None, :, None]],
    "both": [(CAUSAL & AMONG_REAL)[:, None]],
}
FORMS = {name: [{"mask": mask} for mask in masks] for name, masks in MASKS.items()}
FORMS["none"] += [{"mask": NO_MASK, "layout": "torch"}]
FORMS["padding"] += [{"real_tokens": real} for real in (LENGTHS, REAL, REAL.astype(int))]
FORMS["both"] += [{"mask": mask, "real_tokens": REAL} for mask in ("causal", CAUSAL[:1, None])]
ALLOWED = {"none": np.ones_like(CAUSAL), "causal": CAUSAL, "padding": AMONG_REAL, "both": CAUSAL & AMONG_REAL}


def softmax(scores):
    weights = np.exp(scores)
    return weights / weights.sum(axis=2, keepdims=True)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_mask_leaves_the_keys_that_it_allows(name):
    rng, allowed = np.random.default_rng(0), ALLOWED[name][:, None]
    inputs, parameters = random_inputs(rng), random_projections(TWO_LAYERS.heads, rng)
    for masks in FORMS[name]:
        normalised = bpkr.attention(inputs, **parameters, **masks)
        linear = bpkr.attention(inputs, **parameters, **masks, kind="linear")
        for layer, scores in enumerate(explicit_scores(inputs, parameters)):
            assert_close(normalised[layer], softmax(np.where(allowed, scores, -np.inf)), 1e-12)
            assert_close(linear[layer], np.where(allowed, scores, 0.0), 1e-12)


def test_a_mask_may_differ_from_head_to_head_and_be_added():
    rng = np.random.default_rng(0)
    inputs, key_query = random_inputs(rng), random_key_queries((2,), rng)
    slopes = np.array([0.5, 0.25])[None, :, None, None]
    added = -slopes * np.abs(KEYS - QUERIES)
    (found,) = bpkr.attention(inputs, key_query=key_query, mask=added)
    scores = np.einsum("psi,hij,ptj->phst", inputs, key_query[0], inputs)
    assert_close(found, softmax(scores + added), 1e-12)


@pytest.mark.slow
@settings(max_examples=4)
@given(seed=SEEDS, readout=st.sampled_from(READOUTS))
def test_the_masked_network_is_the_sum_over_its_paths(seed, readout):
    rng = np.random.default_rng(seed)
    inputs, real = jnp.array(random_inputs(rng)), np.flip(REAL, axis=1)
    heads = bpkr.Heads(**random_projections(TWO_LAYERS.heads, rng))
    options = {"input_features": INPUT_FEATURES, "readout": readout, "key": jax.random.key(seed)}
    network = bpkr.sample_network(ARCHITECTURE, heads, **options)
    attention = heads(inputs, "causal", real_tokens=real)
    features = bpkr.path_features(inputs, attention, ARCHITECTURE, readout, real_tokens=real)
    outputs = network.path_outputs(features).sum(axis=1)
    assert_close(network(inputs, "causal", real_tokens=real), outputs, 1e-12)
    alone = [inputs[[example], TOKENS - length :] for example, length in enumerate(LENGTHS)]
    # Together, since an output alone may be small by cancellation.
    assert_close(np.concatenate([network(each, "causal") for each in alone]), outputs, 1e-12)


def test_attention_that_is_shared_is_that_of_every_example():
    rng = np.random.default_rng(0)
    inputs = random_inputs(rng)
    shared = [rng.normal(size=(heads, TOKENS, TOKENS)) for heads in TWO_LAYERS.heads]
    copied = [np.broadcast_to(layer, (EXAMPLES, *layer.shape)) for layer in shared]
    expected = bpkr.path_features(inputs, copied, ARCHITECTURE)
    for maps in (shared, [shared[0], copied[1]]):
        assert_close(bpkr.path_features(inputs, maps, ARCHITECTURE), expected, 1e-13)
    jaxpr = jax.make_jaxpr(lambda maps: bpkr.path_features(inputs, maps, ARCHITECTURE))(shared)
    sizes = [var.aval.size for equation in jaxpr.eqns for var in equation.outvars]
    assert max(sizes) < copied[0].size


def test_transposed_attention_is_refused_unless_it_is_meant():
    rng = np.random.default_rng(0)
    inputs = random_inputs(rng)
    attention = bpkr.attention(inputs, key_query=random_key_queries(TWO_LAYERS.heads, rng))
    transposed = [attention[0], attention[1].swapaxes(2, 3)]
    with refused("attention[1] is transposed: it sums to one over queries"):
        bpkr.path_features(inputs, transposed, ARCHITECTURE)
    with refused("attention[0] is transposed"):
        bpkr.path_features(inputs, [layer[0].swapaxes(1, 2) for layer in attention], ARCHITECTURE)
    meant = bpkr.path_features(inputs, transposed, ARCHITECTURE, layout="keys-first")
    as_torch = [layer.swapaxes(2, 3) for layer in attention]
    found = bpkr.path_features(inputs, as_torch, ARCHITECTURE, layout="torch")
    np.testing.assert_array_equal(found, bpkr.path_features(inputs, attention, ARCHITECTURE))
    assert np.max(np.abs(meant - found)) > 1e-3
    with refused("attention[0] is transposed: it sums to one over queries; pass layout='keys-first'"):
        bpkr.path_features(inputs, attention, ARCHITECTURE, layout="torch")
    # Attention of padding is often zero.
    real = np.arange(TOKENS) < np.array([[TOKENS - 1], *[[TOKENS]] * (len(inputs) - 1)])
    heads = bpkr.Heads(**random_projections(TWO_LAYERS.heads, rng))
    padded = [np.where(real[:, None, None], each, 0.0).swapaxes(2, 3) for each in heads(inputs, real_tokens=real)]
    with refused("attention[0] is transposed"):
        bpkr.path_features(inputs, padded, ARCHITECTURE, real_tokens=real)


def attended_to(mask, **options):
    """Attention whose scores are the same, so that it is what the mask makes it."""
    inputs = np.zeros((EXAMPLES, TOKENS, INPUT_FEATURES))
    return bpkr.attention(inputs, key_query=[np.zeros((2, *[INPUT_FEATURES] * 2))], mask=mask, **options)[0]


def attended(mask, **options):
    return np.asarray(attended_to(mask, **options))


def test_masks_of_torch_have_queries_before_keys():
    causal, lowest = np.tri(TOKENS, dtype=bool), np.finfo(np.float32).min
    expected = attended("causal")
    additive = np.where(causal, 0.0, -np.inf)
    for mask in (causal, causal[None, None], additive, additive[None, None], np.where(causal, 0.0, lowest)[None, None]):
        np.testing.assert_array_equal(attended(mask, layout="torch"), expected)
        with refused("later tokens, but not to earlier ones"):
            attended(mask)
    # True marks what is forbidden, as in torch.nn.MultiheadAttention
    with refused("pass its inverse"):
        attended(~causal, layout="torch")
    # only the future, because it is meant
    with refused('layout="keys-first" if this is intended'):
        attended(causal.T, layout="torch")
    meant = attended(causal, layout="keys-first")
    np.testing.assert_array_equal(meant[0, 0] > 0, causal)
    compiled = jax.jit(attended_to)
    np.testing.assert_array_equal(compiled(additive.T), expected)
    with pytest.raises((ValueError, RuntimeError), match="later tokens, but not to earlier ones"):
        jax.block_until_ready(compiled(additive))


def test_masks_of_keys_alone_need_the_layout_of_their_library():
    expected = attended(None, real_tokens=LENGTHS)
    of_keys = np.where(REAL, 0.0, np.finfo(np.float32).min)[:, None, None, :]
    for mask in (of_keys, REAL[:, None, None, :]):
        np.testing.assert_array_equal(attended(mask, layout="torch"), expected)
        np.testing.assert_array_equal(attended(mask.swapaxes(2, 3)), expected)
        for wrong, layout in ((mask, None), (mask, "keys-first"), (mask.swapaxes(2, 3), "torch")):
            with refused("mask leaves a query without any key"):
                attended(wrong, layout=layout)


def test_padding_on_the_left_attends_to_itself():
    """No token that is real is before it, and its row of attention must be a softmax."""
    real = np.flip(REAL, axis=1)
    found = attended("causal", real_tokens=real)
    np.testing.assert_array_equal(found[1, :, :, :3], np.broadcast_to(np.eye(TOKENS)[:, :3], (2, TOKENS, 3)))
    np.testing.assert_allclose(found.sum(axis=2), 1, rtol=1e-15)


def explicit_path_features(architecture, inputs, attention, readout):
    """Eq. (7): one product of attention matrices for each path."""
    tokens = inputs.shape[1]
    read = {"first": np.eye(tokens)[0], "last": np.eye(tokens)[-1], "mean": np.full(tokens, 1 / tokens)}[readout]
    features = np.zeros((len(inputs), architecture.paths, inputs.shape[2]))
    for example, example_tokens in enumerate(inputs):
        left = (layer[example] for layer in attention)
        maps = [next(left) if layer.heads else None for layer in architecture.layers]
        mixings = [explicit_branches(*pair, tokens) for pair in zip(architecture.layers, maps, strict=True)]
        for index, path in enumerate(itertools.product(*mixings)):
            features[example, index] = np.linalg.multi_dot([np.eye(tokens), *path, read]) @ example_tokens
    return features * math.sqrt(architecture.prior_variances[0] / inputs.shape[2])


@given(case=st.one_of(cases.SHALLOW_OR_DEEP, cases.ANY_OF_THE_GRAMMAR), seed=SEEDS, readout=st.sampled_from(READOUTS))
def test_path_features_are_their_explicit_sums(case, seed, readout):
    rng, architecture = np.random.default_rng(seed), case.architecture()
    inputs = random_inputs(rng)
    attention = bpkr.attention(inputs, key_query=random_key_queries(case.heads, rng))
    features = bpkr.path_features(inputs, attention, architecture, readout)
    assert features.shape == (EXAMPLES, architecture.paths, INPUT_FEATURES)
    explicit = explicit_path_features(architecture, inputs, list(map(np.asarray, attention)), readout)
    assert_close(features, explicit, 1e-12)
