"""Derivatives of solutions by the implicit function theorem, against differences of solutions."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval

from theorykit import bpkr

from ..bpkr.cases import DENSE_BETWEEN, SKIP_FIRST, TWO_LAYERS, TWO_OUTPUTS, assert_close, random_problem

STEP = 1e-4
CASES = {"attention": TWO_LAYERS, "dense": DENSE_BETWEEN, "skip": SKIP_FIRST, "two outputs": TWO_OUTPUTS}


def numbers_of(case):
    """Temperature, widths and prior variances, all of them positive, by their logarithms."""
    return jnp.log(jnp.array([0.3, *case.widths, *case.variances]))


def architecture_of(case, logarithms):
    temperature, *others = jnp.exp(logarithms)
    widths, variances = others[: len(case.widths)], others[len(case.widths) :]
    if case is SKIP_FIRST:  # one and the same width on both sides of a skip connection
        widths[1] = widths[0]
    return bpkr.Architecture(case.layers, widths, variances, temperature=temperature, outputs=case.outputs)


def observables(case, problem, logarithms):
    """All that a solution has: matrices, readout, action, entropy, energy, evidence; and a prediction from it."""
    architecture = architecture_of(case, logarithms)
    saddle = bpkr.solve(architecture, bpkr.Data(problem.features, problem.labels), tolerance=1e-11)
    point = saddle.order_parameters
    prediction = bpkr.predict(
        bpkr.Problem(architecture, bpkr.Data(problem.features, problem.labels)), point, problem.test_features
    )
    values = (*point.matrices, point.readout, saddle.action, saddle.entropy, saddle.energy, saddle.log_evidence)
    return jnp.concatenate([jnp.ravel(value) for value in (*values, prediction.mean, prediction.variance)])


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_derivatives_in_every_number_are_those_of_differences(name):
    case = CASES[name]
    problem, numbers = random_problem(case, 0), numbers_of(case)
    function = jax.jit(lambda at: observables(case, problem, at))
    by_jax = jax.jit(jax.jacfwd(function))(numbers)
    moved = jnp.eye(len(numbers)) * STEP
    for slope, change in zip(by_jax.T, moved, strict=True):
        difference = (function(numbers + change) - function(numbers - change)) / (2 * STEP)
        scale = np.max(np.abs(difference)) + 1e-3 * np.max(np.abs(by_jax))
        np.testing.assert_allclose(slope, difference, rtol=0, atol=1e-6 * scale)


@pytest.mark.slow
def test_reverse_mode_vmap_and_jit_agree_with_forward_mode():
    problem, numbers = random_problem(TWO_LAYERS, 1), numbers_of(TWO_LAYERS)

    def score(at):
        values = observables(TWO_LAYERS, problem, at)
        return jnp.sum(jnp.cos(jnp.arange(len(values))) * values)

    several = jnp.stack([numbers, numbers + 0.1])
    together = jax.jit(jax.vmap(jax.grad(score)))(several)
    forward = jax.jit(jax.jacfwd(score))
    for row, at in zip(together, several, strict=True):
        assert_close(row, forward(at), 1e-7)


@pytest.mark.slow
def test_the_gradient_of_the_log_evidence_solves_no_linear_system_with_the_hessian():
    problem, numbers = random_problem(TWO_LAYERS, 0), numbers_of(TWO_LAYERS)

    def solves(observable):
        """Whether the gradient of an observable needs a solution of lineax, by conjugate gradients."""

        def value(at):
            return observable(bpkr.solve(architecture_of(TWO_LAYERS, at), bpkr.Data(problem.features, problem.labels)))

        program = jax.make_jaxpr(jax.grad(value))(numbers).jaxpr
        needed, _ = partial_eval.dce_jaxpr(program, [True])
        return re.search(r"\blinear_solve\[", str(needed)) is not None

    assert solves(lambda saddle: saddle.order_parameters.matrices[0][0, 1])
    assert not solves(lambda saddle: saddle.log_evidence)


@pytest.mark.slow
def test_second_derivatives_of_an_order_parameter_and_of_the_log_evidence():
    problem, numbers = random_problem(TWO_LAYERS, 2), numbers_of(TWO_LAYERS)

    def observed(at):
        architecture = architecture_of(TWO_LAYERS, at)
        saddle = bpkr.solve(architecture, bpkr.Data(problem.features, problem.labels), tolerance=1e-11)
        return jnp.stack([saddle.order_parameters.matrices[0][0, 1], saddle.log_evidence])

    slope = jax.jit(jax.jacrev(observed))
    by_jax = jax.jit(jax.jacfwd(jax.jacrev(observed)))(numbers)
    moved = jnp.eye(len(numbers)) * STEP
    for at, change in enumerate(moved):
        difference = (slope(numbers + change) - slope(numbers - change)) / (2 * STEP)
        for found, expected in zip(by_jax[..., at], difference, strict=True):
            assert_close(found, expected, 1e-5)
