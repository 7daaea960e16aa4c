"""Second moments are data: sums over batches, and an equivalent set of few examples."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr

from ..cases import SEEDS, assert_close

EXAMPLES, PATHS, FEATURES = 50, 4, 3


def random_data(seed: int = 0, outputs: int | None = None):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(EXAMPLES, PATHS, FEATURES))
    return features, rng.normal(size=(EXAMPLES,) if outputs is None else (EXAMPLES, outputs))


@given(
    seed=SEEDS,
    cuts=st.lists(st.integers(1, EXAMPLES - 1), max_size=4, unique=True),
    outputs=st.sampled_from([None, 1, 3]),
)
def test_sums_over_batches_are_sums_over_all_examples(seed, cuts, outputs):
    features, labels = random_data(seed, outputs)
    parts = zip(np.split(features, sorted(cuts)), np.split(labels, sorted(cuts)), strict=True)
    found = sum(map(bpkr.Moments.of, parts))
    flat, targets = features.reshape(EXAMPLES, -1), labels.reshape(EXAMPLES, -1)
    expected = {"gram": flat.T @ flat, "projection": flat.T @ targets, "label_square": np.sum(targets**2)}
    for name, value in expected.items():
        assert_close(getattr(found, name), value, 1e-12)
    assert found.examples == EXAMPLES and found.paths == PATHS


@pytest.mark.parametrize("dtype", [np.float32, np.int16, bool])
def test_other_types_of_numbers_are_summed_in_double_precision(dtype):
    features, labels = (np.round(5 * array).astype(dtype) for array in random_data())
    found, exact = (bpkr.Moments.of((a, b)) for a, b in ((features, labels), (features * 1.0, labels * 1.0)))
    np.testing.assert_array_equal(found.gram, exact.gram)


@pytest.mark.parametrize("outputs", [1, 2])
def test_moments_have_the_action_and_the_predictions_of_the_examples(outputs):
    features, labels = random_data(1, outputs)
    labels = labels[:, 0] if outputs == 1 else labels
    tested = np.random.default_rng(2).normal(size=(7, PATHS, FEATURES))
    architecture = bpkr.Architecture((2, 2), 10.0, temperature=0.1, outputs=outputs)
    of_moments = bpkr.Data.of_moments(bpkr.Moments.of((features, labels)), tested)
    assert len(of_moments.features) == PATHS * FEATURES + 1
    few, all_examples = (bpkr.Problem(architecture, data) for data in (of_moments, bpkr.Data(features, labels, tested)))
    point = bpkr.gp_limit(architecture)
    assert_close(bpkr.evaluate(few, point).total, bpkr.evaluate(all_examples, point).total, 1e-12)
    ours, theirs = (bpkr.predict(each, point) for each in (few, all_examples))
    assert_close(ours.mean, theirs.mean, 1e-11)
    assert_close(ours.variance, theirs.variance, 1e-11)
    assert_close(bpkr.solve(few).log_evidence, bpkr.solve(all_examples).log_evidence, 1e-10)


def test_the_stated_accuracy_of_moments_at_small_temperatures():
    """Numbers below 1e-8 of the largest are rounding: at T = 1e-10 features are more accurate by many digits."""
    features, labels = random_data(3)
    errors = []
    for temperature in (1e-2, 1e-10):
        architecture = bpkr.Architecture((2, 2), 10.0, temperature=temperature)
        data = bpkr.Data.of_moments(bpkr.Moments.of((features, labels))), bpkr.Data(features, labels)
        few, exact = (bpkr.evaluate(bpkr.Problem(architecture, each), bpkr.gp_limit(architecture)) for each in data)
        errors.append(float(abs(few.energy - exact.energy) / abs(exact.energy)))
    assert errors[0] < 1e-13 and errors[1] < 1e-11


def test_moments_over_batches_of_dask_arrays():
    dask_array = pytest.importorskip("dask.array")
    features, labels = random_data(4)
    batches = (
        (block.compute(), labels[10 * i : 10 * i + 10])
        for i, block in enumerate(dask_array.from_array(features, chunks=(10, PATHS, FEATURES)).blocks)
    )
    found = sum(map(bpkr.Moments.of, batches))
    assert_close(found.gram, bpkr.Moments.of((features, labels)).gram, 1e-13)


def test_moments_need_a_positive_temperature_and_have_no_training_kernel():
    features, labels = random_data(5)
    data = bpkr.Data.of_moments(bpkr.Moments.of((features, labels)))
    with pytest.raises(ValueError, match="positive temperature"):
        bpkr.Problem(bpkr.Architecture((2, 2), 10.0, temperature=0.0), data)
    problem = bpkr.Problem(bpkr.Architecture((2, 2), 10.0, temperature=0.1), data)
    with pytest.raises(ValueError, match="kernel needs training features"):
        bpkr.kernel(problem, bpkr.gp_limit(problem.architecture))
    assert jnp.isfinite(bpkr.solve(problem).action)
