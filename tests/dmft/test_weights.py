"""Weights, the classes of their columns, and the law that the mean field keeps of them."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import dmft
from theorykit.dmft.weights import ColumnLaw, distinct_columns

from .reference import cases

EVERY = [case for kind in ("trajectories", "lyapunov", "general_M") for case in cases(kind)]


def same(one: dmft.Weights, other: dmft.Weights) -> bool:
    return np.array_equal(one.semantic, other.semantic) and np.array_equal(one.positional, other.positional)


@pytest.mark.parametrize("case", EVERY, ids=repr)
def test_published_seeds_give_the_published_weights(case):
    about = case.about
    drawn = dmft.published_weights(
        about["seed"], about["M"], about["N_semantic"], about["P"], segments=about["num_segments"]
    )
    assert same(drawn, case.weights)


@pytest.mark.parametrize("case", cases("trajectories"), ids=repr)
def test_published_correlations(case):
    law = dmft.column_law(case.weights)
    pairs = np.einsum("fjm,jb->fbm", law.moments, law.directions)
    np.testing.assert_allclose(pairs, case["pair_corr"], atol=1e-15)
    if case.about["M"] == 3:
        quadruples = np.einsum("fjm,j->fm", law.moments, np.prod(law.directions, axis=1))
        np.testing.assert_allclose(quadruples, case["quad_corr"], atol=1e-15)


def average(law: ColumnLaw, attention: np.ndarray) -> np.ndarray:
    """<w^alpha tanh(w^o . A)>, `(families, patterns)`."""
    return np.einsum("fjm,j->fm", law.moments, np.tanh(law.directions @ attention))


@given(patterns=st.integers(1, 5), neurons=st.sampled_from((1, 3, 50)), seed=st.integers(0, 99))
def test_the_law_of_columns_is_the_mean_over_neurons(patterns, neurons, seed):
    weights = dmft.iid_weights(patterns, neurons, 2, key=jax.random.key(seed))
    attention = np.random.default_rng(seed).normal(size=patterns)
    tanh = np.tanh(attention @ weights.semantic[dmft.OUTPUT])
    expected = np.mean(weights.semantic * tanh, axis=-1)
    by_columns = dmft.column_law(weights)
    np.testing.assert_allclose(average(by_columns, attention), expected, atol=1e-14)  # Eq. (6)
    assert len(by_columns.directions) <= min(neurons, 2 ** (patterns - 1))


@pytest.mark.parametrize("segments", [1, 3, 7])
def test_segments_are_constant_and_as_long_as_each_other(segments):
    weights = dmft.segment_weights(2, 50, 3, segments=segments, key=jax.random.key(0))
    assert len(distinct_columns(weights)[1]) <= segments
    changes = np.any(np.diff(weights.semantic, axis=-1) != 0, axis=(0, 1))
    lengths = np.diff([0, *(np.flatnonzero(changes) + 1), 50])
    assert all(length >= 50 // segments for length in lengths)


def test_iid_weights_are_fair_and_independent():
    weights = dmft.iid_weights(3, 40_000, 2, key=jax.random.key(1))
    flat = weights.semantic.reshape(12, -1).astype(float)
    covariance = flat @ flat.T / flat.shape[1]
    assert np.abs(covariance - np.eye(12)).max() < 5 / np.sqrt(flat.shape[1])
    assert np.abs(flat.mean(axis=1)).max() < 5 / np.sqrt(flat.shape[1])


ONES = np.ones((4, 2, 5), dtype=int)


@pytest.mark.parametrize(
    "semantic, positional, message",
    [
        (ONES * 2, ONES, "must be \\+1 or -1, got 40 other values, such as 2"),
        (ONES, 0 * ONES, "positional weights must be \\+1 or -1"),
        (ONES[:, :0], ONES[:, :0], "must be \\(4, patterns, bits\\)"),
        (ONES[:3], ONES, "must be \\(4, patterns, bits\\)"),
        (ONES, ONES[:, :1], "semantic weights have 2 patterns, but positional weights have 1"),
    ],
)
def test_bad_weights_are_refused(semantic, positional, message):
    with pytest.raises(ValueError, match=message):
        dmft.Weights(semantic, positional)


def test_positions_that_the_bits_do_not_tell_apart_are_refused():
    with pytest.raises(ValueError, match="context=5 must be at most 4, the number of positions"):
        dmft.self_attention_limit(dmft.published_weights(position_bits=2), 5)
    one = np.ones((2, 6), dtype=int)
    with pytest.raises(ValueError, match="position_bits=6 must be less than the 6 columns"):
        dmft.weights_from_arrays(one, one, one, one, 6)


def test_more_positional_bits_than_semantic_signs_to_take_them_from_are_refused():
    """With segments the published program takes the last semantic signs: at most as many as there are neurons."""
    for position_bits in (0, 100, 200):
        with pytest.raises(ValueError, match="position_bits"):
            dmft.published_weights(position_bits=position_bits)
    assert dmft.published_weights(position_bits=99).position_bits == 99
    assert dmft.published_weights(position_bits=200, segments=None).position_bits == 200
