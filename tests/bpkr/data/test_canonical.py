"""Canonical examples: rotated, in shared sizes, with the same energies and predictions."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr.data.canonical import shared_size
from theorykit.bpkr.saddle import solve

from ...marks import slow
from ..cases import assert_close
from ..problems import action_terms


@given(st.integers(1, 10**6))
def test_a_size_grows_by_less_than_a_sixteenth(size):
    shared = shared_size(size)
    assert size <= shared < max(size * 1.0625, size + 1)
    assert shared_size(shared) == shared


def problem(examples: int, features: int, temperature: float = 0.1, outputs: int = 1) -> bpkr.Problem:
    rng = np.random.default_rng(examples)
    labels = rng.normal(size=(examples, outputs))
    data = bpkr.Data(rng.normal(size=(examples, 4, features)), labels if outputs > 1 else labels[:, 0])
    return bpkr.Problem(bpkr.Architecture((2, 2), 10.0, temperature=temperature, outputs=outputs), data)


SIZES = {"fewer examples than features": (17, 17, 1), "more": (17, 2, 1), "several outputs": (17, 3, 2)}


@pytest.mark.parametrize(("examples", "features", "outputs"), SIZES.values(), ids=SIZES)
def test_energy_and_predictions_are_those_of_explicit_matrices(examples, features, outputs):
    here = problem(examples, features, outputs=outputs)
    kernel, labels = here.examples.kernel, here.examples.labels
    assert len(kernel.features) == shared_size(min(examples, 4 * features))
    point = bpkr.gp_limit(here.architecture)
    expected = action_terms(here.bound, point, here.data.features, here.data.labels).energy
    assert_close(here.energy.value(point.first), expected, 1e-13)
    assert len(labels) + float(here.examples.omitted) == here.data.labels.size
    test = np.random.default_rng(1).normal(size=(5, 4, features))
    found = bpkr.predict(here, point, test)
    both = np.concatenate([np.asarray(here.data.features), test])
    kernel = np.asarray(bpkr.kernel(bpkr.Problem(here.architecture, bpkr.Data(both)), point))
    rows = examples * outputs
    noisy = kernel[:rows, :rows] + 0.1 * np.eye(rows)
    solved = np.linalg.solve(noisy, np.column_stack([np.asarray(here.data.labels).ravel(), kernel[:rows, rows:]]))
    variance = np.diagonal(kernel[rows:, rows:] - kernel[rows:, :rows] @ solved[:, 1:])
    assert_close(found.mean.ravel(), kernel[rows:, :rows] @ solved[:, 0], 1e-11)
    assert_close(found.variance.ravel(), variance, 1e-11)


def test_rows_are_graded_and_dependent_examples_are_left_out():
    rng = np.random.default_rng(0)
    features = np.repeat(rng.normal(size=(6, 4, 3)), 2, axis=0)
    data = bpkr.Data(features, rng.normal(size=12))
    rows = np.asarray(bpkr.Problem(problem(6, 3).architecture, data).examples.kernel.features)
    flat = rows.reshape(len(rows), -1)
    norms = np.linalg.norm(flat, axis=1)
    assert np.all(norms[6:] == 0) and np.all(np.diff(norms[:6]) < 0)
    gram = flat @ flat.T
    assert np.max(np.abs(gram - np.diag(np.diagonal(gram)))) < 1e-13 * gram[0, 0]


def test_similar_sizes_share_a_program():
    bpkr.solve(problem(33, 33))
    before = solve._minimise.programs().misses
    bpkr.solve(problem(34, 34))
    assert solve._minimise.programs().misses == before
    bpkr.solve(problem(35, 33))
    assert solve._minimise.programs().misses == before + 1


def test_nothing_is_added_at_zero_temperature():
    here = problem(17, 17, temperature=0.0)
    assert here.examples.kernel.features.shape == (17, 4, 17) and here.examples.omitted == 0


@pytest.mark.parametrize("features", [17, *slow([2])])
def test_problems_of_constants_within_a_traced_function(features):
    here, test = problem(17, features), np.random.default_rng(1).normal(size=(5, 4, features))
    point = bpkr.gp_limit(here.architecture)

    @jax.jit
    def scaled(factor):
        return factor * bpkr.predict(here, point, test).mean, factor * bpkr.solve(here).action

    mean, action = scaled(2.0)
    np.testing.assert_allclose(mean, 2 * bpkr.predict(here, point, test).mean, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(action, 2 * bpkr.solve(here).action, rtol=1e-10)
