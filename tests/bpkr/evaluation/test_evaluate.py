"""The compiled action against explicit sums, and its coordinates."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import bind
from theorykit.bpkr.order_parameters import from_order_parameters, gp_coordinates, to_order_parameters

from ..cases import (
    ANY_ACTION,
    SEEDS,
    TWO_LAYERS,
    assert_close,
    explicit_energy,
    explicit_entropies,
    explicit_kernel,
    problems,
    random_problem,
)
from ..problems import EXAMPLES, action_terms, random_order_parameters
from ..reference import optimal_readout

# Each of these architectures is compiled, so draw few of them; their numbers are cheap.
FEW = settings(max_examples=5)
coordinates_of, order_parameters_at = jax.jit(from_order_parameters), jax.jit(to_order_parameters)


@FEW
@given(problem=problems(ANY_ACTION))
def test_every_term_is_its_explicit_kronecker_form(problem):
    terms = problem.evaluate()
    entropies = explicit_entropies(problem.architecture, problem.order_parameters)
    assert_close(terms.entropies, entropies)
    assert_close(terms.energy, explicit_energy(problem))
    assert_close(terms.total, sum(entropies) + explicit_energy(problem))


@FEW
@given(problem=problems(ANY_ACTION))
def test_the_kernel_is_the_sum_over_pairs_of_paths(problem):
    arguments = bpkr.Problem(problem.architecture, bpkr.Data(problem.features)), problem.order_parameters
    own, cross = bpkr.kernel(*arguments), bpkr.kernel(*arguments, problem.test_features)
    assert_close(own, explicit_kernel(problem.order_parameters, problem.features, problem.features))
    assert_close(cross, explicit_kernel(problem.order_parameters, problem.features, problem.test_features))


@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1e-4, 1.0, 1e4, 1e8])
def test_the_optimal_readout_is_accurate_at_every_scale(scale):
    """With N_a = N_L = N, unit variances and U = s I_2: u = (sqrt(1 + 8 s) - 1) / 2 = 4 s / (sqrt(1 + 8 s) + 1)."""
    architecture = bpkr.Architecture((2,), 20.0, temperature=0.1)
    readout = optimal_readout(architecture, scale * np.eye(2))
    assert_close(readout, 4 * scale / (math.sqrt(1 + 8 * scale) + 1), 1e-12)


@given(seed=SEEDS)
def test_numbers_of_the_architecture_can_be_differentiated(seed):
    problem = random_problem(TWO_LAYERS, seed)
    data = problem.order_parameters, jnp.array(problem.features), jnp.array(problem.labels)
    slope = jax.grad(lambda architecture: action_terms(bind(architecture), *data).total)(problem.architecture)
    terms = problem.evaluate()
    per_width = np.array(terms.entropies) / TWO_LAYERS.widths
    assert_close(slope.widths, per_width)
    kernel = explicit_kernel(problem.order_parameters, problem.features, problem.features)
    inverse = np.linalg.inv(kernel + problem.architecture.temperature * np.eye(EXAMPLES))
    assert_close(slope.temperature, np.trace(inverse) - np.sum((inverse @ problem.labels) ** 2))
    assert slope.prior_variances[0] == 0  # it is in the features


@FEW
@given(case=ANY_ACTION, seed=SEEDS)
def test_coordinates_round_trip(case, seed):
    architecture, rng = case.architecture(), np.random.default_rng(seed)
    point = random_order_parameters(architecture, rng)
    back = order_parameters_at(architecture, coordinates_of(architecture, point))
    for ours, theirs in zip(*map(jax.tree.leaves, (back, point)), strict=True):
        assert_close(ours, theirs, 1e-12)
    coordinates = jnp.array(rng.normal(size=gp_coordinates(architecture).shape))
    again = coordinates_of(architecture, order_parameters_at(architecture, coordinates))
    assert_close(again, coordinates, 1e-7)  # the matrices of random coordinates are ill-conditioned
