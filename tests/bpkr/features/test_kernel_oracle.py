"""Every form of a kernel is the derived one: its matrix, and the energy's gradient and curvature that use it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr.data.canonical import Examples
from theorykit.bpkr.evaluation.formulas import Energy, bind
from theorykit.bpkr.features.kernels import Kernel, kernel_between, kernel_diagonal, kernel_of
from theorykit.codegen import compile_expressions

from ..cases import (
    ALL_SKIPS,
    ANY_OF_THE_GRAMMAR,
    GRAMMAR,
    ONE_LAYER,
    TWO_OUTPUTS,
    assert_close,
    problems,
    random_problem,
)
from ..problems import action_terms


def kernels(problem):
    """The kernel of a problem from a table and from features."""
    features, outputs = jnp.asarray(problem.features), problem.architecture.outputs
    return kernel_of(features, outputs), Kernel(features, None, outputs)


def energies(problem):
    """The energy as it is solved, and with the examples as they are."""
    none, labels = jnp.zeros(()), jnp.asarray(problem.labels).reshape(-1, 1)
    bound = bind(problem.architecture)
    given = (Energy(bound, Examples(kernel, labels, none, none, none)) for kernel in kernels(problem))
    return bpkr.Problem(problem.architecture, bpkr.Data(problem.features, problem.labels)).energy, *given


@pytest.mark.parametrize("case", [*GRAMMAR[:4], *slow(GRAMMAR[4:])], ids=str)
def test_the_kernel_is_the_derived_one(case):
    problem = random_problem(case, 0)
    bound, first = bind(problem.architecture), problem.order_parameters.first
    symbols, data = bound.symbols, bound.data(jnp.asarray(problem.features), jnp.asarray(problem.labels))
    arguments = symbols.completed((symbols.first, symbols.features))
    derived = compile_expressions("kernel", {"kernel": bound.action.kernel}, arguments)
    expected = derived.call_from(bound.numbers() | {symbols.first: first} | data)["kernel"]
    for kernel in kernels(problem):
        assert_close(kernel.matrix(first), expected, 1e-13)
        assert_close(kernel_between(first, kernel.features[:2], kernel.features), expected[: 2 * kernel.outputs], 1e-13)
        assert_close(kernel_diagonal(first, kernel.features), np.diagonal(expected), 1e-13)
        assert_close(kernel.squares, np.sum(np.asarray(problem.features) ** 2, axis=2).T, 1e-13)


@eqx.filter_jit
def evaluated(energy, u1):
    return energy.at(u1), energy.value(u1), energy.bounded(energy.at(u1))


@pytest.mark.slow
@settings(max_examples=8)
@given(problem=problems(ANY_OF_THE_GRAMMAR))
def test_values_and_gradients_are_those_of_the_action(problem):
    data = jnp.array(problem.features), jnp.array(problem.labels)

    def energy(u1):
        matrices = (u1, *problem.order_parameters.matrices[1:])
        point = bpkr.OrderParameters(matrices, problem.order_parameters.readout)
        return action_terms(bind(problem.architecture), point, *data).energy

    u1 = problem.order_parameters.first
    value, slope = jax.value_and_grad(energy)(u1)
    for form in energies(problem):
        point, alone, bounded = evaluated(form, u1)
        for found in (point.value, alone):
            assert_close(found, value, 1e-12)
        assert_close(point.slope, (slope + slope.T) / 2, 1e-9)
        for part in (bounded.logdet_gradient, bounded.weight):
            assert np.linalg.eigvalsh(part)[0] > -1e-10 * np.max(np.abs(part))


def entries_to_matrix(entries, size):
    rows, columns = np.triu_indices(size)
    matrix = jnp.zeros((size, size)).at[rows, columns].set(entries)
    return matrix + matrix.T - jnp.diag(jnp.diagonal(matrix))


@eqx.filter_jit
def curvatures(form, u1):
    """The curvature, and the second derivative of the value."""
    entries = u1[np.triu_indices(len(u1))]
    by_jax = jax.hessian(lambda entries: form.value(entries_to_matrix(entries, len(u1))))(entries)
    return form.curvature(form.at(u1)), by_jax


@pytest.mark.parametrize("case", [ONE_LAYER, *slow((TWO_OUTPUTS, ALL_SKIPS))], ids=str)
def test_the_curvature_is_the_second_derivative(case):
    problem = random_problem(case, 1)
    for form in energies(problem):
        assert_close(*curvatures(form, problem.order_parameters.first), 1e-8)


def test_large_problems_are_not_stored_by_pairs_of_paths():
    kernel = jax.eval_shape(kernel_of, jnp.ones((600, 16, 192)))
    assert kernel.pairs is None
    cost, size = min(kernel.curvature_costs())
    evaluations = cost / (kernel.operations() + 600**3)
    assert 1 < evaluations < 10
    assert 4e7 < size < 2e8
