"""Scores of classes and of numbers in sweeps."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from theorykit import bpkr
from theorykit.bpkr import sweeps

RNG = np.random.default_rng(0)
NAMES = np.array(["cat", "cow", "dog"])
FEATURES, TEST_FEATURES = (RNG.normal(size=(count, 2, 20)) / 4 for count in (24, 30))
ONE, THREE = (bpkr.Architecture((2,), 20, temperature=0.1, outputs=outputs) for outputs in (1, 3))


def named(features):
    """Three classes by which of the first three features of the first path is the largest."""
    return NAMES[np.argmax(features[:, 0, :3], axis=1)]


DATA = bpkr.Data.of_classes(FEATURES, named(FEATURES), TEST_FEATURES, named(TEST_FEATURES))


@pytest.mark.slow
def test_a_sweep_scores_classes_by_their_names():
    result = sweeps.sweep(THREE, DATA, width=(20, np.inf), temperature=(0.1, 1.0), progress=False)
    truth = named(TEST_FEATURES)
    for point in (result.isel(width=i, temperature=j) for i in range(2) for j in range(2)):
        said = DATA.classes.decode(point["mean"].values)
        np.testing.assert_allclose(point["test_accuracy"], np.mean(said == truth))
        temperature, is_finite = point["temperature"].item(), np.isfinite(point["width"])
        at = sweeps.order_parameters_of(THREE, point) if is_finite else bpkr.gp_limit(THREE)
        prediction = bpkr.predict(bpkr.Problem(replace(THREE, temperature=temperature), DATA), at)
        np.testing.assert_allclose(point["variance"], prediction.variance)
        moments = prediction.mean, prediction.with_noise(temperature)
        losses = -DATA.classes.log_probability(truth, *moments)
        np.testing.assert_allclose(point["test_log_loss"], losses.mean(), rtol=1e-10)
        # Of correlated outputs, all probabilities together are normalised.
        probabilities = DATA.classes.probabilities(*moments)[np.arange(30), np.searchsorted(NAMES, truth)]
        np.testing.assert_allclose(losses.mean(), -np.log(probabilities).mean(), rtol=1e-5 if is_finite else 1e-10)
    assert result["class"].values.tolist() == NAMES.tolist()
    assert (result["test_accuracy"] > 1 / 3).all(), "chance is a third"
    assert "test_r_squared" not in result


def test_numbers_are_scored_by_the_variance_that_is_explained():
    labels, test_labels = FEATURES[:, 0, 0], TEST_FEATURES[:, 0, 0]
    data = bpkr.Data(FEATURES, labels, TEST_FEATURES, test_labels)
    result = sweeps.sweep(ONE, data, width=(20,), temperature=(0.1,), progress=False).squeeze()
    residual = np.mean((result["mean"] - test_labels) ** 2)
    np.testing.assert_allclose(result["test_r_squared"], 1 - residual / np.var(test_labels), rtol=1e-12)
    assert "test_accuracy" not in result


def test_numbers_of_classes_are_told_that_they_are_regressed():
    numbers = np.argmax(FEATURES[:, 0, :3], axis=1)
    data = bpkr.Data(FEATURES, numbers)
    with pytest.warns(bpkr.LabelsWarning, match="labels 0 to 2 of one output are treated as numbers") as told:
        bpkr.solve(ONE, bpkr.Data(FEATURES, pytest.importorskip("pandas").DataFrame({"class": numbers})))
    assert told[0].filename == __file__
    with pytest.warns(bpkr.LabelsWarning) as told:
        sweeps.sweep(ONE, data, width=(20, 30), temperature=(0.1,), progress=False)
    assert len(told) == 1
    for labels in (np.sign(numbers - 0.5), numbers + 1, numbers / 2, np.arange(24.0), DATA.labels[:, 0] * 0):
        with warnings.catch_warnings():
            warnings.simplefilter("error", bpkr.LabelsWarning)
            bpkr.solve(ONE, bpkr.Data(FEATURES, labels))
