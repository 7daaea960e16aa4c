"""Batches of examples are an equivalent set of few examples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr

from ..cases import SEEDS, assert_close

EXAMPLES, PATHS, FEATURES = 50, 4, 3


def random_data(seed: int, *outputs: int):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(EXAMPLES, PATHS, FEATURES)), rng.normal(size=(EXAMPLES, *outputs))


CUTS = st.lists(st.integers(1, EXAMPLES - 1), max_size=4, unique=True)


@given(seed=SEEDS, cuts=CUTS, outputs=st.sampled_from([(), (1,), (3,)]))
def test_second_moments_are_those_of_all_examples(seed, cuts, outputs):
    arrays = random_data(seed, *outputs)
    found = bpkr.Data.of_batches(zip(*(np.split(array, sorted(cuts)) for array in arrays), strict=True))
    both = (found.features, found.labels), arrays
    ours, theirs = (np.hstack([array.reshape(len(array), -1) for array in each]) for each in both)
    assert_close(ours.T @ ours, theirs.T @ theirs, 1e-12)
    assert found.labels.shape[1:] == arrays[1].shape[1:] and len(ours) == ours.shape[1]
    assert found.examples == EXAMPLES


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("temperature", [0.1, 1e-10])
def test_batches_have_the_action_and_the_predictions_of_the_examples(outputs, temperature):
    features, labels = random_data(1, *[outputs] * (outputs > 1))
    tested = np.random.default_rng(2).normal(size=(7, PATHS, FEATURES))
    architecture = bpkr.Architecture((2, 2), 10.0, temperature=temperature, outputs=outputs)
    given = bpkr.Data.of_batches([(features, labels)], tested), bpkr.Data(features, labels, tested)
    few, every = (bpkr.Problem(architecture, data) for data in given)
    point = bpkr.gp_limit(architecture)
    assert_close(bpkr.evaluate(few, point).total, bpkr.evaluate(every, point).total, 1e-13)
    ours, theirs = (bpkr.predict(each, point) for each in (few, every))
    assert_close(ours.mean, theirs.mean, 1e-11)
    np.testing.assert_allclose(ours.variance, theirs.variance, rtol=1e-11, atol=1e-12)
    if temperature == 0.1:
        assert_close(bpkr.solve(few).log_evidence, bpkr.solve(every).log_evidence, 1e-10)


def test_batches_need_a_temperature_and_have_no_training_kernel():
    data = bpkr.Data.of_batches([random_data(5)])
    with pytest.raises(ValueError, match="needs an invertible kernel"):
        bpkr.Problem(bpkr.Architecture((2, 2), 10.0, temperature=0.0), data)
    problem = bpkr.Problem(bpkr.Architecture((2, 2), 10.0, temperature=0.1), data)
    with pytest.raises(ValueError, match="kernel needs training features"):
        bpkr.kernel(problem, bpkr.gp_limit(problem.architecture))
