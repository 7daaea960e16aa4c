"""Class labels: there and back, probabilities against sampling and closed forms, and labels that are none."""

import math

import mpmath
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.scipy.stats import norm

from theorykit import bpkr
from theorykit.bpkr.data.classes import log_largest

from ..cases import SEEDS

LABELS = {
    "text": np.array(["cat", "dog", "cat", "cow", "dog"]),
    "bytes": np.array([b"no", b"yes", b"no"]),
    "numbers": np.array([3, 7, 7, 3, 11]),
    "floats": [0.0, 1.0, 2.0, 1.0],
    "truth": np.array([True, False, False]),
    "a table": pd.DataFrame({"animal": ["cat", "dog", "cat"]}),
    "objects": np.array(["a", "b", "c"], dtype=object),
}


def find_classes(labels):
    return bpkr.Data.of_classes(None, labels).classes


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_from_the_outputs_that_stand_for_them(kind):
    labels = LABELS[kind]
    classes = find_classes(labels)
    outputs = classes.encode(labels)
    assert outputs.shape == ((len(labels),) if classes.outputs == 1 else (len(labels), len(classes.names)))
    assert classes.decode(outputs).tolist() == np.ravel(labels).tolist()
    assert set(np.unique(outputs)) <= {-1.0, 0.0, 1.0}


@given(seed=SEEDS)
def test_scores_are_those_counted_by_hand(seed):
    rng = np.random.default_rng(seed)
    labels, mean, variance = rng.choice(["x", "y"], size=30), rng.normal(size=30), rng.uniform(0.1, 2, size=30)
    scores = bpkr.Classes(("x", "y")).score(labels, mean, variance + 0.5)
    truth, found = labels == "y", mean > 0
    share = np.mean(truth == found)
    assert math.isclose(scores["accuracy"], share, abs_tol=1e-15)
    assert math.isclose(scores["accuracy_error"], math.sqrt(share * (1 - share) / 30), abs_tol=1e-15)
    losses = [
        -math.log(0.5 * math.erfc(-(1 if t else -1) * m / math.sqrt(2 * (v + 0.5))))
        for t, m, v in zip(truth, mean, variance, strict=True)
    ]
    assert math.isclose(scores["log_loss"], np.mean(losses), rel_tol=1e-10)
    assert math.isclose(scores["log_loss_error"], np.std(losses) / math.sqrt(30), rel_tol=1e-8)


def test_log_losses_of_tiny_probabilities_are_finite():
    exact = float(mpmath.log(mpmath.ncdf(-40)))
    classes, mean = bpkr.Classes((0, 1)), np.array([40.0])
    assert math.isclose(classes.log_probability([0], mean, np.ones(1))[0], exact, rel_tol=1e-12)
    pair = np.array([[0.0, 40.0 * math.sqrt(2)]])
    found = [log_largest(pair, np.ones((1, 2)), np.array([k]))[0] for k in range(2)]
    assert math.isclose(found[0], exact, rel_tol=1e-12) and -1e-15 < found[1] <= 0
    scores = classes.score([0, 1], np.full(2, 5.0), np.zeros(2))
    assert scores["accuracy"] == 0.5 and 1000 < scores["log_loss"] < np.inf


@given(seed=SEEDS, spread=st.sampled_from([0.0, 4.0, 30.0]))
def test_probabilities_of_two_outputs_are_the_closed_form(seed, spread):
    rng = np.random.default_rng(seed)
    mean, deviation = rng.normal(size=(6, 2)), 10 ** rng.uniform(-spread / 4, 0, size=(6, 2))
    ratio = (mean[:, 0] - mean[:, 1]) / np.hypot(*deviation.T)
    found = np.exp(log_largest(mean, deviation)[:, 0])
    np.testing.assert_allclose(found, norm.cdf(ratio), rtol=0, atol=1e-11)
    found = log_largest(30 * mean, deviation, np.zeros(6, dtype=int))
    np.testing.assert_allclose(found, norm.logcdf(30 * ratio), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_probabilities_of_three_outputs_are_those_of_thirty_digits():
    mean, deviation = [0.2, 0.0, -0.3], [1e-4, 1.0, 0.03]
    classes = bpkr.Classes((0, 1, 2))
    moments = np.array([mean]), np.square([deviation])
    found = classes.probabilities(*moments)[0]
    steps = [0.0, *(sign * 2.0**k for sign in (-1, 1) for k in range(14))]
    edges = sorted({m + s * t for m, s in zip(mean, deviation, strict=True) for t in steps})
    for k in range(3):
        terms = [(mean[j], deviation[j], mpmath.npdf if j == k else mpmath.ncdf) for j in range(3)]
        with mpmath.workdps(30):
            exact = mpmath.quad(lambda x, terms=terms: mpmath.fprod(f(x, m, s) for m, s, f in terms), edges)
            assert abs(float(found[k]) - exact) < 1e-11
            assert abs(float(classes.log_probability([k], *moments)[0]) - mpmath.log(exact)) < 1e-10


@pytest.mark.parametrize("count", [3, 6])
def test_probabilities_of_correlated_outputs_are_those_of_samples(count):
    rng, classes, size = np.random.default_rng(count), bpkr.Classes(tuple(range(count))), 200_000
    mean, root = rng.normal(size=(4, count)), rng.normal(size=(4, count, count))
    covariance = root @ root.swapaxes(1, 2) + 0.1 * np.eye(count)
    found = classes.probabilities(mean, covariance)
    for i in range(4):
        draws = rng.multivariate_normal(mean[i], covariance[i], size)
        counted = np.bincount(draws.argmax(axis=1), minlength=count) / size
        assert np.all(np.abs(found[i] - counted) < 5 * np.sqrt(found[i] / size) + 2e-4)
        alone = classes.log_probability([i % count], mean[i : i + 1], covariance[i : i + 1])
        assert math.isclose(math.exp(alone[0]), found[i, i % count], abs_tol=2e-4)
    given = covariance * np.eye(count), np.diagonal(covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(*(classes.probabilities(mean, each) for each in given), rtol=1e-12)


def test_probabilities_of_three_correlated_outputs_are_the_closed_form():
    classes, root = bpkr.Classes((0, 1, 2)), np.random.default_rng(0).normal(size=(20, 3, 3))
    for covariance in (root @ root.swapaxes(1, 2), root[:, :, :2] @ root[:, :, :2].swapaxes(1, 2)):
        away = np.array([[-1, 1, 0], [-1, 0, 1]])
        (one, between), (_, two) = np.moveaxis(away @ covariance @ away.T, 0, 2)
        exact = 0.25 + np.arcsin(np.clip(between / np.sqrt(one * two), -1, 1)) / (2 * np.pi)
        found = classes.probabilities(np.zeros((20, 3)), covariance)[:, 0]
        np.testing.assert_allclose(found, exact, rtol=0, atol=5e-4)


def test_missing_and_mixed_labels_are_no_classes():
    masked = np.ma.masked_array([0, 1, 2], [False, True, False])
    column = pd.array(["a", None, "b"], dtype="string")
    for labels in (["a", math.nan], [0, 1, math.inf], ["a", ["b"]], masked, list(column)):
        with pytest.raises(ValueError, match=r"labels\[[12]\] is"):
            find_classes(labels)
    for labels in (["1", 1, 2], ("a", b"a"), [True, 0]):
        with pytest.raises(TypeError, match="labels must be of one type"):
            find_classes(labels)
    # In floating point, to which NumPy converts them, the first two are equal.
    assert len(find_classes([2**63, 2**63 + 1, -1]).names) == 3
