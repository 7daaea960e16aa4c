"""The predictor: against Eqs. (9) and (30) written out, and in the limit of no noise."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr

from ..cases import (
    ANY_OF_THE_GRAMMAR,
    SEEDS,
    SHALLOW_OR_DEEP,
    TWO_LAYERS,
    assert_close,
    explicit_kernel,
    problems,
    random_problem,
    refused,
)
from ..problems import TEST_EXAMPLES


def explicit_prediction(problem):
    """Mean and covariance by an explicit inverse."""
    train, test = problem.features, problem.test_features
    pairs = (train, train), (train, test), (test, test)
    kernel, cross, prior = (explicit_kernel(problem.order_parameters, *pair) for pair in pairs)
    inverse = np.linalg.inv(kernel + problem.architecture.temperature * np.eye(len(kernel)))
    mean, covariance = cross.T @ inverse @ problem.labels.ravel(), prior - cross.T @ inverse @ cross
    own = np.einsum("mcmd->mcd", covariance.reshape((TEST_EXAMPLES, len(mean) // TEST_EXAMPLES) * 2))
    shape = (TEST_EXAMPLES, *problem.labels.shape[1:])
    return mean.reshape(shape), own.reshape(*shape, *shape[1:])


def prior_variance(problem):
    return np.diag(explicit_kernel(problem.order_parameters, problem.test_features, problem.test_features))


@given(problem=problems(st.one_of(SHALLOW_OR_DEEP, ANY_OF_THE_GRAMMAR)))
def test_predictions_are_the_explicit_formulas(problem):
    prediction, (mean, covariance) = problem.predict(), explicit_prediction(problem)
    assert prediction.mean.shape == prediction.variance.shape == (TEST_EXAMPLES, *problem.labels.shape[1:])
    assert_close(prediction.mean, mean)
    tolerance = {"rtol": 0, "atol": 1e-11 * np.max(prior_variance(problem))}
    np.testing.assert_allclose(prediction.covariance, covariance, **tolerance)
    variance = covariance if mean.ndim == 1 else np.diagonal(covariance, axis1=1, axis2=2)
    np.testing.assert_allclose(prediction.variance, variance, **tolerance)


@given(case=SHALLOW_OR_DEEP, seed=SEEDS)
def test_at_zero_temperature_the_network_interpolates(case, seed):
    problem = random_problem(case, seed).at_temperature(0.0)
    on_training_set = replace(problem, test_features=problem.features)
    prediction = on_training_set.predict()
    assert_close(prediction.mean, problem.labels, 1e-8)
    assert np.min(prediction.variance) >= 0  # zero but for rounding, which would often fall below
    assert np.max(prediction.variance) < 1e-9 * np.max(prior_variance(on_training_set))


def test_predictions_need_test_features():
    problem = random_problem(TWO_LAYERS, 0)
    data = bpkr.Data(problem.features, problem.labels)
    with refused("test_features must be given, because data has no test features"):
        bpkr.predict(bpkr.Problem(problem.architecture, data), problem.order_parameters)
