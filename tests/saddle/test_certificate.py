"""The certificate: curvature on the manifold against differences along geodesics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr.order_parameters import displaced, gp_coordinates
from theorykit.bpkr.saddle.solvers import least_curvature, smallest_eigenvalue
from theorykit.saddle.problem import QuadraticModel

from ..bpkr.cases import ALL_SKIPS, DEEP_LINEAR, ONE_LAYER, SEEDS, SKIP_FIRST, TWO_LAYERS, assert_close, random_problem

SLOW = (TWO_LAYERS, ALL_SKIPS, DEEP_LINEAR)
CASES = (ONE_LAYER, SKIP_FIRST, *slow(SLOW))


def solved(problem, **options):
    return bpkr.solve(problem.architecture, bpkr.Data(problem.features, problem.labels), **options)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_curvature_is_that_of_the_action_along_displacements(case):
    problem = random_problem(case, 0)
    saddle = solved(problem, tolerance=1e-11)
    architecture, here = problem.architecture, saddle.order_parameters
    data = jnp.array(problem.features), jnp.array(problem.labels)

    def action(tangent):
        return bpkr.evaluate(bpkr.Problem(architecture, bpkr.Data(*data)), displaced(architecture, here, tangent)).total

    hessian = jax.jit(jax.hessian(action))(gp_coordinates(architecture))
    smallest = np.linalg.eigvalsh(hessian)[0] / max(architecture.widths)
    assert_close(saddle.min_hessian_eigenvalue, smallest, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("case", (SKIP_FIRST, TWO_LAYERS))
def test_the_estimate_agrees_with_the_exact_curvature(case):
    problem = random_problem(case, 3)
    of_problem = bpkr.Problem(problem.architecture, bpkr.Data(problem.features, problem.labels))
    saddle = bpkr.solve(of_problem, tolerance=1e-11)
    point = of_problem.at(of_problem.coordinates(saddle.order_parameters))
    exact = QuadraticModel.of(of_problem.expansion(point)).curvatures[0] / of_problem.scale
    estimate = least_curvature(of_problem, point)
    assert exact * (1 - 1e-9) <= estimate <= exact * 1.3


@given(seed=SEEDS, model_error=st.sampled_from((0.0, 0.3)))
def test_a_model_finds_soft_directions_in_few_products(seed, model_error):
    """Fifty curvatures between 1 and 10, one of 0.01: the stated residual holds an eigenvalue, here the smallest."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(50, 50)))
    curvatures = np.append(0.01, np.linspace(1, 10, 49))
    matrix = jnp.array(turn * curvatures @ turn.T)
    model = jnp.array(turn * (curvatures * np.exp(model_error * rng.normal(size=50))) @ turn.T)
    start = jnp.array(rng.normal(size=50))
    found = smallest_eigenvalue(lambda v: matrix @ v, lambda v: model @ v, start, products=10, tolerance=0.1)
    assert np.min(np.abs(curvatures - found.value)) <= found.residual
    assert 0.01 * (1 - 1e-9) <= found.value <= 0.0101
    assert found.products <= 8


@given(seed=SEEDS)
def test_a_model_that_knows_nothing_of_a_negative_curvature_does_not_hide_it(seed):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(50, 50)))
    curvatures = np.concatenate([[-0.5, 0.01], np.linspace(1, 10, 48)])
    seen = np.where(curvatures < 0, 2.0, curvatures)
    matrix, model = (jnp.array(turn * values @ turn.T) for values in (curvatures, seen))
    start = rng.normal(size=50)
    # a start that is orthogonal to the direction, one in some thousands, sees nothing of it
    assume(abs(turn[:, 0] @ start) > 1e-2)
    start = jnp.array(start)
    found = smallest_eigenvalue(lambda v: matrix @ v, lambda v: model @ v, start, products=16, tolerance=0.1)
    assert found.value < 0
