"""Solvers of the action: all end in the same minimum, none raises the action, and each counts its work."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr.order_parameters import gp_coordinates, moved
from theorykit.saddle import ConvergenceWarning

from ..bpkr.cases import (
    SKIP_FIRST,
    THREE_LAYERS,
    TWO_LAYERS,
    TWO_OUTPUTS,
    assert_close,
    problems,
    random_problem,
    refused,
)


def solved(problem, **options):
    return bpkr.solve(problem.architecture, bpkr.Data(problem.features, problem.labels), **options)


@pytest.mark.slow
@settings(max_examples=5)
@given(problem=problems(st.sampled_from((TWO_LAYERS, TWO_OUTPUTS))))
def test_sweeps_and_newton_agree(problem):
    newton, swept = solved(problem), solved(problem, solver=bpkr.AcceleratedSweeps(), max_steps=2000)
    assert newton.converged and swept.converged
    assert_close(swept.action, newton.action, 1e-11)
    assert_close(swept.order_parameters.matrices[0], newton.order_parameters.matrices[0], 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", (bpkr.Newton(), bpkr.AcceleratedSweeps()))
def test_no_step_raises_the_action(solver):
    problem = random_problem(THREE_LAYERS, 1)
    saddle_problem = bpkr.Problem(problem.architecture, bpkr.Data(problem.features, problem.labels)).canonical
    start = gp_coordinates(problem.architecture)
    state = solver.init(None, start, saddle_problem, {}, None, None, frozenset())
    step = jax.jit(lambda y, state: solver.step(None, y, saddle_problem, {}, state, frozenset())[:2])
    y, actions = start, []
    for _ in range(12):
        y, state = step(y, state)
        actions.append(float(state.progress.point.action))
        assert_close(saddle_problem.action(y), actions[-1], 1e-12)
    assert np.all(np.diff(actions) <= 1e-11 * np.abs(actions[0]))
    assert int(state.progress.evaluations) == 12


@eqx.filter_jit
def expanded(saddle_problem, coordinates):
    """The expansion about a point, and gradient and Hessian of the action in a step from there."""

    def action(step):
        return saddle_problem.action(moved(saddle_problem.architecture, coordinates, step))

    expansion, no_step = saddle_problem.expansion(saddle_problem.at(coordinates)), jnp.zeros(len(coordinates))
    return expansion, jax.grad(action)(no_step), jax.hessian(action)(no_step)


@pytest.mark.slow
@pytest.mark.parametrize("case", (TWO_LAYERS, SKIP_FIRST))
def test_the_expansion_has_the_derivatives_of_the_action(case):
    for seed in range(3):
        problem = random_problem(case, seed)
        saddle_problem = bpkr.Problem(problem.architecture, bpkr.Data(problem.features, problem.labels)).canonical
        size = len(gp_coordinates(problem.architecture))
        somewhere = jnp.array(np.random.default_rng(seed).normal(size=size) * 0.3)
        expansion, gradient, hessian = expanded(saddle_problem, somewhere)
        assert_close(expansion.gradient, gradient, 1e-8)
        assert_close(expansion.hessian, hessian, 1e-8)


def test_straight_branches_cannot_be_swept():
    with refused("sweeps have no closed form with a skip connection; use Newton"):
        solved(random_problem(SKIP_FIRST, 0), solver=bpkr.AcceleratedSweeps())


def test_any_minimiser_ends_with_a_certificate():
    """For others see test_actions.py."""
    problem = random_problem(TWO_LAYERS, 0)
    other = solved(problem, solver=optx.LBFGS(rtol=1e-9, atol=1e-9), max_steps=5000)
    assert other.converged, other.diagnosis
    assert_close(other.order_parameters.matrices[0], solved(problem).order_parameters.matrices[0], 1e-9)


@pytest.mark.slow
def test_a_minimiser_content_with_less_is_not_believed():
    problem = random_problem(TWO_LAYERS, 0)
    limit = bpkr.gp_limit(problem.architecture)
    far = bpkr.OrderParameters(tuple(1e6 * matrix for matrix in limit.matrices), 1e-6 * limit.readout)
    with pytest.warns(ConvergenceWarning, match="its own tolerance"):
        loose = solved(problem, solver=optx.BFGS(rtol=1e9, atol=1e9), initial=far)
    assert not loose.converged
