"""The saddle point: stationary, minimal, known at large width, and honest about failure."""

import math
import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr.order_parameters import from_order_parameters, to_order_parameters
from theorykit.codegen import interpret
from theorykit.saddle import ConvergenceWarning

from ...marks import slow
from ..cases import (
    ALL_SKIPS,
    ANY_OF_THE_GRAMMAR,
    OWN_KINDS,
    SEEDS,
    SKIP_FIRST,
    Case,
    assert_close,
    problems,
    random_problem,
)
from ..problems import random_order_parameters, symbol_values
from ..reference import optimal_readout

SQUARE = Case((2, 2), (40.0, 25.0, 60.0), (0.9, 1.3, 0.6, 1.7))
TOLERANCE = 1e-9


def solved(problem, **options):
    return bpkr.solve(problem.architecture, bpkr.Data(problem.features, problem.labels), **options)


def succeeded(saddle):
    return bool(saddle.result == optx.RESULTS.successful)


def hard_problem():
    """Labels a hundred times too large for a network of one unit a layer without noise."""
    problem = random_problem(SQUARE, 1)
    architecture = bpkr.Architecture(SQUARE.heads, 1.0, temperature=1e-6)
    return replace(problem, architecture=architecture, labels=100 * problem.labels)


def interpreted_gradient_norm(problem):
    """|C^T (dS/dU) C| over all free order parameters U = C C^T, per largest width, from the symbolic gradient."""
    equations, values = bpkr.derive(problem.architecture).saddle_point_equations, symbol_values(problem)
    slopes = [np.atleast_2d(interpret(equation, values)) for equation in equations.values()]
    factors = [np.linalg.cholesky(np.atleast_2d(values[symbol.name])) for symbol in equations]
    squares = [np.sum((factor.T @ slope @ factor) ** 2) for factor, slope in zip(factors, slopes, strict=True)]
    return math.sqrt(sum(squares)) / max(problem.architecture.widths)


@pytest.mark.slow
@settings(max_examples=8)
@given(problem=problems(ANY_OF_THE_GRAMMAR))
def test_gradient_norm_of_any_layers_is_that_of_the_free_order_parameters(problem):
    data = bpkr.Data(jnp.array(problem.features), jnp.array(problem.labels))
    bound = bpkr.Problem(problem.architecture, data)
    norm = bound.at(bound.coordinates(problem.order_parameters)).gradient_norm
    assert_close(norm, interpreted_gradient_norm(problem), 1e-8)


def other_order_parameters(problem, saddle, rng):
    """Those of the problem, those of infinite width, and random ones at growing distances from the saddle point."""
    architecture = problem.architecture
    at_saddle = from_order_parameters(architecture, saddle.order_parameters)
    others = [problem.order_parameters, bpkr.gp_limit(architecture)]
    for distance in (1e-3, 1e-1, 1.0):
        others.append(to_order_parameters(architecture, at_saddle + distance * rng.normal(size=at_saddle.shape)))
    return others


def assert_is_the_minimum(problem, rng):
    """Stationary, lower than all others, with the values of the point itself, and found from elsewhere."""
    saddle = solved(problem)
    assert succeeded(saddle) and saddle.gradient_norm <= TOLERANCE
    found = replace(problem, order_parameters=saddle.order_parameters)
    assert interpreted_gradient_norm(found) < 2 * TOLERANCE
    terms = found.evaluate()
    assert_close([saddle.action, saddle.entropy, saddle.energy], [terms.total, terms.entropy, terms.energy], 1e-12)
    for other in other_order_parameters(problem, saddle, rng):
        assert replace(problem, order_parameters=other).evaluate().total > saddle.action
    for initial in (saddle.order_parameters, random_order_parameters(problem.architecture, rng)):
        again = solved(problem, initial=initial)
        for ours, theirs in zip(*map(jax.tree.leaves, (again.order_parameters, found.order_parameters)), strict=True):
            assert_close(ours, theirs, 1e-6)
        assert_close(again.action, saddle.action, 1e-11)
    return saddle


@pytest.mark.parametrize("case", (SKIP_FIRST, *slow((ALL_SKIPS, OWN_KINDS))))
def test_any_layers_have_a_saddle_point_of_least_action(case):
    assert_is_the_minimum(random_problem(case, 0), np.random.default_rng(0))


@given(seed=SEEDS)
def test_every_problem_has_a_saddle_point_of_least_action(seed):
    problem = random_problem(SQUARE, seed)
    found = assert_is_the_minimum(problem, np.random.default_rng(seed)).order_parameters
    assert_close(found.readout, optimal_readout(problem.architecture, found.matrices[-1]), 1e-8)


@settings(max_examples=15)
@example(seed=14, width=1.0, labels=1e4)  # the minimiser gives up
@given(seed=SEEDS, width=st.sampled_from([1.0, 3.0, 1e3]), labels=st.sampled_from([1.0, 1e2, 1e4]))
def test_success_means_a_gradient_norm_within_the_tolerance(seed, width, labels):
    problem = random_problem(SQUARE, seed)
    architecture = bpkr.Architecture(SQUARE.heads, width, temperature=1e-3)
    problem = replace(problem, architecture=architecture, labels=labels * problem.labels)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        saddle = solved(problem)
    assert succeeded(saddle) == bool(saddle.gradient_norm <= TOLERANCE)
    assert succeeded(saddle) != any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    if succeeded(saddle):
        found = replace(problem, order_parameters=saddle.order_parameters)
        assert interpreted_gradient_norm(found) < 2 * TOLERANCE


def test_too_few_steps_are_reported():
    problem = hard_problem()
    with pytest.warns(ConvergenceWarning, match=r"gradient norm .* exceeds the tolerance 1e-09 after 1 step"):
        saddle = solved(problem, max_steps=1)
    assert not succeeded(saddle)
    assert saddle.gradient_norm > TOLERANCE
    with pytest.raises(RuntimeError):
        solved(problem, max_steps=1, throw=True)
    with pytest.raises(TypeError, match="throw must be of type bool"):
        solved(problem, throw="no")
    assert succeeded(solved(problem, throw=True))


@pytest.mark.slow
@pytest.mark.parametrize("evaluations", [8, 0])
def test_other_minimisers_are_polished_with_and_without_a_hessian(evaluations, monkeypatch):
    problem = random_problem(SQUARE, 0)
    monkeypatch.setattr("theorykit.bpkr.evaluation.problem._CURVATURE_EVALUATIONS", evaluations)
    bound = bpkr.Problem(problem.architecture, bpkr.Data(problem.features, problem.labels))
    assert bound.forms_curvature == bool(evaluations)
    found = bpkr.solve(bound, solver=optx.BFGS(rtol=1e-3, atol=1e-3))
    assert succeeded(found)
    assert_close(found.action, solved(problem).action, 1e-11)
