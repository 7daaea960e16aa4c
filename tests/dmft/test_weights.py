"""Weights, the classes of their columns, and the law that the mean field keeps of them."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import dmft
from theorykit.dmft.weights import distinct_columns

from .reference import cases

EVERY = [case for kind in ("trajectories", "lyapunov", "general_M") for case in cases(kind)]


def same(one: dmft.Weights, other: dmft.Weights) -> bool:
    return np.array_equal(one.semantic, other.semantic) and np.array_equal(one.positional, other.positional)


@pytest.mark.parametrize("case", EVERY, ids=repr)
def test_published_seeds_give_the_published_weights(case):
    about = case.about
    drawn = dmft.Weights.published(
        about["seed"], about["M"], about["N_semantic"], about["P"], segments=about["num_segments"]
    )
    assert same(drawn, case.weights)


@pytest.mark.parametrize("case", cases("trajectories"), ids=repr)
def test_published_correlations_give_the_same_network(case):
    """Eq. (7): pairs, and for three patterns the products of all three output weights."""
    model, patterns = case.model, case.about["M"]
    pairs = np.einsum("fjm,jb->fbm", model.moments, model.directions)
    np.testing.assert_allclose(pairs, case["pair_corr"], atol=1e-15)
    correlations = {(b,): case["pair_corr"][:, b] for b in range(patterns)}
    if patterns == 3:
        correlations[0, 1, 2] = case["quad_corr"]
    same = dmft.self_attention_from_correlations(correlations, model.positional)
    parameters, attention = dmft.Parameters(1.3, 1.0, 0.1), np.linspace(-0.7, 0.5, patterns)
    expected = dmft.semantic_overlap(model, parameters, attention)
    np.testing.assert_allclose(dmft.semantic_overlap(same, parameters, attention), expected, atol=1e-14)


@given(patterns=st.integers(1, 5), neurons=st.sampled_from((1, 3, 50)), seed=st.integers(0, 99))
def test_the_law_of_columns_is_the_mean_over_neurons(patterns, neurons, seed):
    weights = dmft.Weights.iid(patterns, neurons, 2, key=jax.random.key(seed))
    attention = np.random.default_rng(seed).normal(size=patterns)
    tanh = np.tanh(attention @ weights.semantic[dmft.OUTPUT])
    model = dmft.self_attention_limit(weights, 4)
    found = np.einsum("fjm,j->fm", model.moments, np.tanh(model.directions @ attention))
    np.testing.assert_allclose(found, np.mean(weights.semantic * tanh, axis=-1), atol=1e-14)  # Eq. (6)
    assert len(model.directions) <= min(neurons, 2 ** (patterns - 1))


@pytest.mark.parametrize("segments", [1, 3, 7])
def test_segments_are_constant_and_as_long_as_each_other(segments):
    weights = dmft.Weights.iid(2, 50, 3, segments=segments, key=jax.random.key(0))
    assert len(distinct_columns(weights)[1]) <= segments
    changes = np.any(np.diff(weights.semantic, axis=-1) != 0, axis=(0, 1))
    lengths = np.diff([0, *(np.flatnonzero(changes) + 1), 50])
    assert all(length >= 50 // segments for length in lengths)
