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
