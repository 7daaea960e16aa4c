"""Steps of Newton's method: factors that are multiplied, and the exact minimum of a quadratic model within a radius."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from theorykit.bpkr.order_parameters import from_order_parameters, gp_coordinates, moved, to_order_parameters
from theorykit.saddle.problem import Expansion, QuadraticModel

from ..bpkr.cases import ALL_SKIPS, SEEDS, SKIP_FIRST, TWO_LAYERS, TWO_OUTPUTS, assert_close
from ..marks import slow

SIZE = 4


@pytest.mark.parametrize("case", (ALL_SKIPS, *slow((TWO_LAYERS, TWO_OUTPUTS, SKIP_FIRST))))
def test_a_step_multiplies_the_factors_of_the_order_parameters(case):
    architecture = case.architecture()
    rng = np.random.default_rng(0)
    start, first, second = 0.5 * jnp.asarray(rng.standard_normal((3, len(gp_coordinates(architecture)))))
    no_step = jnp.zeros_like(start)
    assert_close(moved(architecture, start, no_step), start, 1e-14)
    # zero has unit factors: what is moved from there is the step itself
    assert_close(moved(architecture, no_step, first), first, 1e-14)
    # factors B are multiplied, and a product is associative; rectangles R + B r too
    once = moved(architecture, moved(architecture, start, first), second)
    assert_close(once, moved(architecture, start, moved(architecture, first, second)), 1e-12)
    there = to_order_parameters(architecture, once)
    assert_close(from_order_parameters(architecture, there), once, 1e-9)


def a_model(seed: int) -> tuple[QuadraticModel, np.ndarray, np.ndarray, np.ndarray]:
    """A model, and the gradient, Hessian and metric that it is of; the Hessian is of any sign."""
    rng = np.random.default_rng(seed)
    gradient, hessian, metric = rng.standard_normal(SIZE), *rng.standard_normal((2, SIZE, SIZE))
    hessian, metric = hessian + hessian.T, metric @ metric.T + 0.1 * np.eye(SIZE)
    expansion = Expansion(*map(jnp.asarray, (gradient, hessian, metric)))
    return QuadraticModel.of(expansion), gradient, hessian, metric


@given(seed=SEEDS, exponent=st.sampled_from((-3, -1, 0, 1, 3)))
def test_the_step_is_the_least_point_of_the_model_within_the_radius(seed, exponent):
    model, gradient, hessian, metric = a_model(seed)
    radius = 10.0**exponent
    along = model.towards(0, jnp.asarray(radius))
    step, length, lowered = map(np.asarray, (model.directions @ along, jnp.linalg.norm(along), model.decrease(along)))
    assert_close(np.sqrt(step @ metric @ step), length, 1e-9)
    assert length <= radius * (1 + 1e-9)
    assert_close(-(gradient @ step + step @ hessian @ step / 2), lowered, 1e-8)
    # no other point is lower, up to how well the radius is met
    factor = np.linalg.cholesky(metric)
    others = np.random.default_rng(seed).standard_normal((2000, SIZE))
    others *= radius * np.random.default_rng(1).random((2000, 1)) / np.linalg.norm(others, axis=1, keepdims=True)
    points = np.linalg.solve(factor.T, others.T).T
    values = points @ gradient + np.einsum("pi,ij,pj->p", points, hessian, points) / 2
    assert -lowered <= values.min() + 0.01 * abs(lowered)
