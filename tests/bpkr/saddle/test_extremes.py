"""Solves at the limits of double precision and of the theory: errors, stated accuracy and diagnoses."""

import re
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from benchmarks import robustness
from theorykit import bpkr
from theorykit.saddle import ConvergenceWarning

from ..cases import assert_close, explicit_gain

FEATURES = np.random.default_rng(0).standard_normal((12, 4, 3))
LABELS = np.sign(np.random.default_rng(1).standard_normal(12))


def solved(labels=1.0, tolerance=1e-9, **numbers):
    given = {"widths": 30.0, "prior_variances": 1.0, "temperature": 0.1, **numbers}
    architecture = bpkr.Architecture((2, 2), **given)
    return bpkr.solve(architecture, bpkr.Data(FEATURES, labels * LABELS), tolerance=tolerance)


@pytest.mark.parametrize(
    ("extreme", "blamed"),
    (
        ({"labels": 1e200}, "labels of magnitude 1e+200"),
        ({"labels": 1e100}, "labels of magnitude 1e+100"),
        ({"temperature": 1e308}, "temperature of magnitude 1e+308"),
        ({"prior_variances": 1e-200}, "prior_variances of magnitude 1e-200"),
        ({"prior_variances": 1e200}, "prior_variances of magnitude 1e+200"),
    ),
)
def test_each_extreme_is_blamed_by_its_own_name(extreme, blamed):
    with pytest.raises(ValueError, match=re.escape(blamed)):
        solved(**extreme)


@pytest.mark.quick("numbers1", "numbers2")
@pytest.mark.parametrize("numbers", ({"temperature": 1e300}, {"prior_variances": 1e-50}, {"widths": 1e100}))
def test_what_double_precision_can_hold_is_solved(numbers):
    assert solved(**numbers).converged


SINGULAR = {
    "less than one unit": {"widths": 0.1},
    "opposite variances": {"prior_variances": (1e-6, 1e6, 1.0, 1.0)},
    "variances that cancel": {"prior_variances": (1.0, 1e6, 1e-6, 1.0)},
    "unequal widths": {"widths": (1.0, 1000.0, 3.0)},
    "interpolation": {"temperature": 0.0},
    "a tiny temperature": {"temperature": 1e-12},
    "a huge temperature": {"temperature": 1e4},
    "a huge width": {"widths": 2e5},
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", SINGULAR)
def test_extreme_numbers_and_data_are_solved_without_warnings(name):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(20, 4, 6)) / np.sqrt(24), rng.choice([-1.0, 1.0], size=20)
    architecture = bpkr.Architecture((2, 2), **{"widths": 10.0, "temperature": 0.1, **SINGULAR[name]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saddle = bpkr.solve(architecture, bpkr.Data(features, labels))
    assert saddle.converged and saddle.gradient_norm <= 1e-9 and saddle.min_hessian_eigenvalue > 0


@pytest.mark.slow
@pytest.mark.parametrize("factor", (0.0, 1e-150, 1.0))
def test_equal_paths_and_vanishing_features_are_solved(factor):
    paths = (factor * FEATURES)[:, [0, 0, 2, 2]]
    for labels in (LABELS, np.zeros(12), 1e6 * LABELS):
        saddle = bpkr.solve(bpkr.Architecture((2, 2), 10.0, temperature=0.1), bpkr.Data(paths, labels))
        assert saddle.converged and np.isfinite(saddle.action)


def test_singular_order_parameters_have_a_kernel_and_no_action():
    problem = bpkr.Problem(bpkr.Architecture((2, 2), 8.0, temperature=0.1), bpkr.Data(FEATURES, LABELS))
    singular = bpkr.OrderParameters((np.diag([1.0, 1.0, 1.0, 0.0]), np.eye(2)), 1.0)
    assert np.all(np.isfinite(bpkr.kernel(problem, singular)))
    with pytest.raises(ValueError, match="U_1 is not positive definite: smallest eigenvalue 0"):
        bpkr.evaluate(problem, singular)


@pytest.mark.parametrize("temperature", [0.0, 1e-20])
def test_equal_examples_need_a_temperature_whatever_rounding_does(temperature):
    """Rounding may leave the singular kernel a Cholesky factor."""
    for seed in range(20):
        features = np.random.default_rng(seed).normal(size=(5, 4, 6))
        features[4] = features[1]
        architecture = bpkr.Architecture((2, 2), 8.0, temperature=temperature)
        with pytest.raises(ValueError, match="needs an invertible kernel"):
            bpkr.Problem(architecture, bpkr.Data(features, LABELS[:5]))


@pytest.mark.slow
def test_a_problem_that_newtons_method_gave_up_is_solved():
    features = np.random.default_rng(0).standard_normal((40, 4, 20)) * 1e7
    labels = np.sign(np.random.default_rng(1).standard_normal(40))
    architecture = bpkr.Architecture((2, 2), (2, 260, 12), (1, 1, 0.003, 1), temperature=0.12)
    saddle = bpkr.solve(architecture, bpkr.Data(features, labels))
    assert saddle.converged, saddle.diagnosis
    assert_close(saddle.action, 3839.94136, 1e-8)
    assert saddle.stats["evaluations"] < 60


@eqx.filter_jit
def solved_at(temperatures, tolerance):
    def at(temperature):
        architecture = bpkr.Architecture((2, 2), 30.0, temperature=temperature)
        return bpkr.solve(architecture, bpkr.Data(FEATURES, LABELS), tolerance=tolerance, max_steps=4)

    return jax.vmap(at)(temperatures)


@pytest.mark.slow
def test_a_batch_tells_how_many_of_its_solves_failed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saddle = solved_at(jnp.array([100.0, 1e-3, 1e-4]), 1e-9)
    assert np.array_equal(saddle.converged, [True, False, False])
    assert saddle.failures == 2
    assert saddle.diagnosis.startswith("2 of 3 solves did not converge; [1]: gradient norm")


def exact_action(architecture, order_parameters, features, labels) -> mp.mpf:
    """S at these very order parameters, in 60 digits, every matrix formed."""
    number = lambda value: mp.mpf(float(value))  # noqa: E731
    matrix = lambda array: mp.matrix(np.asarray(array, dtype=float).tolist())  # noqa: E731

    def log_det(positive):
        factor = mp.cholesky(positive)
        return 2 * mp.fsum(mp.log(factor[i, i]) for i in range(factor.rows))

    outputs, paths = architecture.outputs, features.shape[1]
    exact = [[[number(x) for x in path] for path in example] for example in features]
    first, rows = matrix(order_parameters.matrices[0]), len(features) * outputs
    kernel = mp.matrix(rows, rows)
    for p, left in enumerate(exact):
        for q, right in enumerate(exact[: p + 1]):
            dots = [[mp.fdot(a, b) for b in right] for a in left]
            for c in range(outputs):
                for d in range(outputs):
                    pairs = [(a, b) for a in range(paths) for b in range(paths)]
                    value = mp.fsum(first[a * outputs + c, b * outputs + d] * dots[a][b] for a, b in pairs)
                    kernel[p * outputs + c, q * outputs + d] = kernel[q * outputs + d, p * outputs + c] = value
    for i in range(rows):
        kernel[i, i] += number(architecture.temperature)
    column = matrix(np.asarray(labels).reshape(-1, 1))
    total = log_det(kernel) + (column.T * mp.cholesky_solve(kernel, column))[0]
    outer = matrix(np.atleast_2d(order_parameters.readout))
    trace = mp.fsum(outer[i, i] for i in range(outer.rows))
    total += number(architecture.widths[-1]) * (trace / number(architecture.prior_variances[-1]) - log_det(outer))
    numbers = zip(architecture.layers, architecture.widths, architecture.prior_variances[1:], strict=False)
    for (layer, width, variance), array in reversed(list(zip(numbers, order_parameters.matrices, strict=True))):
        inner, size = matrix(array), outer.rows
        skipped = size if explicit_gain(layer) else 0
        starts, inverse = range(skipped, inner.rows, size), outer**-1
        blocks = [inner[start : start + size, start : start + size] for start in starts]
        trace = mp.fsum((inverse * block)[i, i] for block in blocks for i in range(size))
        schur = log_det(inner) - (log_det(outer) if skipped else 0)
        total += number(width) * (trace / number(variance) - schur + len(blocks) * log_det(outer))
        outer = inner
    return total


@pytest.mark.slow
def test_the_accuracy_that_is_stated_is_had():
    errors, stated = [], []
    with mp.workdps(60), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for seed in range(120):
            problem = robustness.problem(seed)
            if len(problem.labels) > 12:
                continue
            try:
                saddle = bpkr.solve(problem.architecture, bpkr.Data(problem.features, problem.labels))
            except ValueError:
                continue
            exact = exact_action(problem.architecture, saddle.order_parameters, problem.features, problem.labels)
            errors.append(float(abs(exact - mp.mpf(float(saddle.action)))))
            stated.append(float(saddle.action_error))
    errors, stated = np.array(errors), np.array(stated)
    assert len(errors) > 40
    assert np.all(errors <= stated), np.max(errors / stated)
    # and it is not overstated beyond what the signs of the errors leave open
    assert np.median(stated / np.maximum(errors, 1e-300)) < 1000


@pytest.mark.slow
def test_a_minimum_in_a_valley_is_found_by_continuation_in_the_temperature():
    """The valley is narrow and curved: labels of about 30 that few features explain, at a temperature of 1e-5."""
    valley = robustness.problem(1718)
    problem = bpkr.Problem(valley.architecture, bpkr.Data(valley.features, valley.labels))
    saddle = bpkr.solve(problem)
    assert saddle.converged, saddle.diagnosis
    assert saddle.stats["attempts"] == 2 and 150 < saddle.stats["steps"] <= 500
    again = bpkr.solve(problem, initial=saddle)
    assert again.stats["attempts"] == 1
    assert float(again.action) == pytest.approx(float(saddle.action), rel=1e-12)


@pytest.mark.parametrize(("widths", "least"), [((8, 9, 3), 2.0), ((3, 20, 20), 0.75), ((50, 1, 2), 0.5)])
def test_a_layer_of_fewer_units_than_paths_is_out_of_range(widths, least):
    found = solved(widths=widths, temperature=0.5)
    assert found.converged and np.isclose(found.stats["units_per_path"], least)
    said = f"a layer has {least:.2g} hidden units per partial path and output"
    assert (said in found.diagnosis) == (least < 1)
