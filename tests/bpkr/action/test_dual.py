"""The dual form, in second moments of the data: against the form in examples, its gradients, and a mistake in it."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr import Data, Problem, predict
from theorykit.bpkr.action import document
from theorykit.bpkr.data.statistics import FeatureStatistics
from theorykit.bpkr.evaluation.bound_action import bind
from theorykit.codegen import compile_expressions
from theorykit.symbolic import as_markdown
from theorykit.testing import random_order_parameters
from theorykit.testing.problems import feature_matrix

from .. import cases
from ..cases import Case, assert_close

CASES = (cases.TWO_LAYERS, cases.ALL_SKIPS, cases.OWN_KINDS, cases.DENSE_BETWEEN, cases.DEEP_LINEAR)
EXAMPLES, FEATURES, TEST_EXAMPLES = 60, 3, 4  # more examples than any case has features, but for one
some_cases = pytest.mark.parametrize("case", CASES[:3], ids=str)
ANY_CASE = st.integers(0, len(CASES) - 1)


def random_data(case: Case, seed: int):
    """An architecture, order parameters, and features and labels of many examples."""
    rng = np.random.default_rng(seed)
    architecture = case.architecture(temperature=float(10 ** rng.uniform(-2, 1)))
    shape = (architecture.paths, FEATURES)
    features = rng.normal(size=(EXAMPLES, *shape)) / np.sqrt(np.prod(shape))
    labels = rng.normal(size=(EXAMPLES, case.outputs)[: 1 if case.outputs == 1 else 2])
    test_features = rng.normal(size=(TEST_EXAMPLES, *shape)) / np.sqrt(np.prod(shape))
    return architecture, random_order_parameters(architecture, rng), features, labels, test_features


def explicit_statistics(features, labels) -> FeatureStatistics:
    flat, targets = features.reshape(len(features), -1), labels.reshape(len(labels), -1)
    square, paths = np.sum(targets**2), features.shape[1]
    return FeatureStatistics(flat.T @ flat, flat.T @ targets, square, len(features), paths)


@cache
def compiled(number: int):
    """Two jitted functions of a case, by its number.

    Of arrays by name, the dual energy, its gradients, and the values of `dual_slopes`; of U_1, T, Phi and y in
    order, the energy in examples and its gradients.
    """
    case = CASES[number]
    action = bpkr.derive(case.architecture())
    functions = bpkr.compile_action(action)
    symbols, sizes = action.symbols, {**case.architecture().head_counts(), "C": case.outputs}
    varied = (symbols.matrices[0], symbols.temperature, symbols.features, symbols.labels)
    in_examples = compile_expressions("energy", {"energy": action.energy}, symbols.completed(varied))

    @jax.jit
    def dual(values):
        energy = jax.value_and_grad(lambda values: functions.dual_energy.call_from({**values, **sizes})["energy"])
        return *energy(values), functions.dual_slopes.call_from({**values, **sizes})

    def primal(*values):
        named = {symbol.name: value for symbol, value in zip(varied, values, strict=True)}
        return in_examples.call_from({**named, **sizes})["energy"]

    return dual, jax.jit(jax.value_and_grad(primal, (0, 1, 2, 3)))


def dual_values(architecture, order_parameters, statistics):
    """The arrays among the dual form's arguments that it can be differentiated in."""
    bound = bind(architecture)
    values = {**bound.numbers(), **bound.point(order_parameters), **bound.moments(statistics)}
    by_name = {symbol.name: value for symbol, value in values.items()}
    return {name: jnp.asarray(by_name[name]) for name in ("U_1", "T", "M", "b", "y2", "P")}


def symmetric(matrix):
    return (matrix + matrix.T) / 2


@pytest.mark.slow
@given(number=ANY_CASE, seed=cases.SEEDS)
def test_energy_and_all_its_gradients_are_those_in_examples(number, seed):
    case = CASES[number]
    architecture, point, features, labels, _ = random_data(case, seed)
    values = dual_values(architecture, point, explicit_statistics(features, labels))
    dual, primal = compiled(number)
    energy, slopes, parts = dual(values)
    design, targets = jnp.asarray(feature_matrix(features, case.outputs)), jnp.asarray(labels.reshape(-1, 1))
    expected, (first, temperature, of_design, of_targets) = primal(values["U_1"], values["T"], design, targets)
    assert_close(energy, expected, 1e-9)
    assert_close(symmetric(slopes["U_1"]), symmetric(first), 1e-9)
    assert_close(slopes["T"], temperature, 1e-9)
    # two positive semidefinite parts of the gradient
    assert_close(parts["logdet_gradient"] - parts["minus_misfit_gradient"], symmetric(slopes["U_1"]), 1e-9)
    assert_close(parts["log_determinants"] + parts["misfit"], energy, 1e-12)
    for part in (parts["logdet_gradient"], parts["minus_misfit_gradient"]):
        eigenvalues = np.linalg.eigvalsh(symmetric(part))
        assert eigenvalues[0] > -1e-9 * eigenvalues[-1]
    # M, b and y2 are functions of Phi and y: by the chain rule
    assert_close(2 * design @ symmetric(slopes["M"]) + targets @ slopes["b"].T, of_design, 1e-8)
    assert_close(design @ slopes["b"] + 2 * slopes["y2"] * targets, of_targets, 1e-8)


def test_gradients_do_not_cancel_where_the_noise_is_small():
    """At a tiny temperature M - M (..)^-1 M has no digits left; here the slope goes to its limit."""
    _, point, features, labels, _ = random_data(cases.TWO_LAYERS, 3)
    statistics, limit = explicit_statistics(features, labels), FEATURES * np.linalg.inv(point.matrices[0])
    for temperature, tolerance in ((1e-9, 1e-5), (1e-12, 1e-8)):
        values = dual_values(cases.TWO_LAYERS.architecture(temperature), point, statistics)
        assert_close(compiled(0)[0](values)[2]["logdet_gradient"], limit, tolerance)


@some_cases
def test_predictions_are_those_from_examples(case):
    architecture, point, features, labels, test_features = random_data(case, 4)
    expected = bpkr.predict(bpkr.Problem(architecture, bpkr.Data(features, labels)), point, test_features)
    found = predict(Problem(architecture, Data(moments=explicit_statistics(features, labels))), point, test_features)
    assert found.mean.shape == expected.mean.shape and found.variance.shape == expected.variance.shape
    assert_close(found.mean, expected.mean, 1e-9)
    assert_close(found.variance, expected.variance, 1e-8)


def test_the_dual_form_can_be_read():
    text = as_markdown(document.dual_part(bpkr.derive(cases.TWO_OUTPUTS.architecture())))
    assert "10 steps were checked" in text and "all hold" in text and "y^{T} y" in text
    assert "None" not in text and "y_{2}" not in text


@pytest.mark.parametrize("rule", ["matrix determinant lemma", "Woodbury identity", "push-through identity", "rescaled"])
def test_a_wrong_step_is_found(rule):
    derivation = bpkr.derive(cases.ONE_LAYER.architecture()).dual.derivation
    wrong = tuple(replace(step, after=2 * step.after) if step.rule == rule else step for step in derivation.steps)
    failures = replace(derivation, steps=wrong).verify().failures
    assert failures and {failure.step.rule for failure in failures} == {rule}
