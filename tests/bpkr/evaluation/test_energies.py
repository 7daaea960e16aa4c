"""Every way to store the data has the same energy, gradient and curvature: those of the action itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr.data.statistics import summed
from theorykit.bpkr.evaluation.action_terms import action_terms
from theorykit.bpkr.evaluation.bound_action import bind
from theorykit.bpkr.evaluation.contractions import pairs
from theorykit.bpkr.evaluation.energies import DualEnergy, KernelEnergy, energy_of

from ..cases import ALL_SKIPS, ANY_OF_THE_GRAMMAR, ONE_LAYER, SEEDS, TWO_OUTPUTS, assert_close, problems, random_problem


def forms(problem):
    """The energy of a problem in every form."""
    architecture, u1 = problem.architecture, problem.order_parameters.matrices[0]
    features = jnp.array(problem.features)
    small = energy_of(bind(architecture), bpkr.Data(features, jnp.array(problem.labels)))
    assert small.path_kernels is not None
    dense = KernelEnergy(bind(architecture), small.labels, features)
    dual = DualEnergy(bind(architecture), summed(features, jnp.array(problem.labels)))
    return u1, (small, dense, dual)


@eqx.filter_jit
def evaluated(form, u1):
    return form.at(u1), form.value(u1)


@eqx.filter_jit
def curvatures(form, u1):
    """The curvature, and the second derivative of the value."""
    entries = u1[pairs(len(u1))]
    by_jax = jax.hessian(lambda entries: form.value(entries_to_matrix(entries, len(u1))))(entries)
    return form.curvature(form.at(u1)), by_jax


def entries_to_matrix(entries, size):
    rows, columns = pairs(size)
    matrix = jnp.zeros((size, size)).at[rows, columns].set(entries)
    return matrix + matrix.T - jnp.diag(jnp.diagonal(matrix))


@pytest.mark.slow
@settings(max_examples=8)
@given(problem=problems(ANY_OF_THE_GRAMMAR))
def test_values_and_gradients_are_those_of_the_action(problem):
    data = jnp.array(problem.features), jnp.array(problem.labels)

    def energy(u1):
        matrices = (u1, *problem.order_parameters.matrices[1:])
        point = bpkr.OrderParameters(matrices, problem.order_parameters.readout)
        return action_terms(bind(problem.architecture), point, *data).energy

    u1, energies = forms(problem)
    value, slope = jax.value_and_grad(energy)(u1)
    for form in energies:
        point, alone = evaluated(form, u1)
        assert_close(point.value, value, 1e-12)
        assert_close(alone, value, 1e-12)
        assert_close(point.slope, (slope + slope.T) / 2, 1e-9)
        for part in (point.logdet_gradient, point.minus_misfit_gradient):
            assert np.linalg.eigvalsh(part)[0] > -1e-10 * np.max(np.abs(part))


@pytest.mark.slow
@settings(max_examples=5)
@given(case=st.sampled_from((ONE_LAYER, TWO_OUTPUTS, ALL_SKIPS)), seed=SEEDS)
def test_the_curvature_is_the_second_derivative(case, seed):
    u1, energies = forms(random_problem(case, seed))
    for form in energies:
        assert_close(*curvatures(form, u1), 1e-8)


@pytest.mark.slow
@settings(max_examples=5)
@given(case=st.sampled_from((ONE_LAYER, TWO_OUTPUTS, ALL_SKIPS)), seed=SEEDS)
def test_contractions_do_the_work_of_generated_expressions(case, seed):
    problem = random_problem(case, seed)
    u1, (tabulated, dense, dual) = forms(problem)
    bound = tabulated.bound
    data = bound.data(jnp.array(problem.features), jnp.array(problem.labels))
    given = bound.numbers() | bound.point(problem.order_parameters) | data
    derived = bound.compiled.training_kernel.call_from(given)["kernel"]
    for form in (tabulated, dense):
        assert_close(form.kernel(u1), derived, 1e-12)
    by_kernels = tabulated.curvature(tabulated.at(u1))
    for form in (dense, dual):
        assert_close(form.curvature(form.at(u1)), by_kernels, 1e-8)


def test_large_problems_are_not_stored_by_pairs_of_paths():
    architecture = bpkr.Architecture((4, 4), 10.0, temperature=0.1)
    energy = jax.eval_shape(energy_of, bind(architecture), bpkr.Data(jnp.ones((600, 16, 192)), jnp.ones(600)))
    assert energy.path_kernels is None
    evaluations, size = energy.curvature_cost()
    assert 1 < evaluations < 10
    assert 4e7 < size < 2e8


def test_more_examples_than_features_are_stored_by_their_moments():
    architecture = bpkr.Architecture((2,), 10.0, temperature=0.1)
    energy = jax.eval_shape(energy_of, bind(architecture), bpkr.Data(jnp.ones((50, 2, 6)), jnp.ones(50)))
    assert isinstance(energy, DualEnergy)
