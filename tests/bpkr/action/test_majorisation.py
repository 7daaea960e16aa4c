"""The bound of the energy lies above it and touches it, and a sweep never raises the action."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from theorykit import bpkr
from theorykit.bpkr.order_parameters import from_order_parameters
from theorykit.codegen import interpret
from theorykit.symbolic import gradient

from .. import cases
from ..cases import assert_close, problems, random_problem
from ..problems import random_order_parameters, symbol_values

SWEPT = (cases.TWO_LAYERS, cases.THREE_LAYERS, cases.TWO_OUTPUTS, cases.DENSE_BETWEEN, cases.DEEP_LINEAR)
ANY_SWEPT = st.sampled_from(SWEPT)


def saddle_problem(problem):
    return bpkr.Problem(problem.architecture, bpkr.Data(problem.features, problem.labels)).canonical


@eqx.filter_jit
def energy_at(of_problem, first):
    return of_problem.energy.at(first)


@eqx.filter_jit
def bounded_energy(energy, first):
    return energy.bounded(energy.at(first))


@eqx.filter_jit
def after_a_sweep(of_problem, point, share=1.0):
    return of_problem.at(of_problem.majorise(point, share))


@eqx.filter_jit
def at(of_problem, order_parameters):
    return of_problem.at(from_order_parameters(of_problem.architecture, order_parameters))


def bound_values(problem):
    """The symbols of the majoriser taken at the problem's own U_1."""
    energy = saddle_problem(problem).energy
    bounded = bounded_energy(energy, problem.order_parameters.matrices[0])
    return {"Gplus": np.asarray(bounded.logdet_gradient), "W": np.asarray(bounded.weight)}


@pytest.mark.slow
@given(case=ANY_SWEPT, seed=cases.SEEDS)
def test_the_bound_touches_the_energy_and_lies_above_it(case, seed):
    problem, rng = random_problem(case, seed), np.random.default_rng(seed)
    majoriser, of_problem = bpkr.derive(problem.architecture).majoriser, saddle_problem(problem)
    at_bound = bound_values(problem)
    name = bpkr.derive(problem.architecture).symbols.matrices[0].name

    def excess(first):
        bound = interpret(majoriser.bound, {**symbol_values(problem), **at_bound, name: np.asarray(first)})
        return bound - float(energy_at(of_problem, jnp.asarray(first)).value)

    touching = excess(problem.order_parameters.matrices[0])
    for _ in range(3):
        other = random_order_parameters(problem.architecture, rng).matrices[0]
        assert excess(other) > touching - 1e-9 * (1 + abs(touching))
    equation = gradient(majoriser.bound, bpkr.derive(problem.architecture).symbols.matrices[0])
    slope = interpret(equation, {**symbol_values(problem), **at_bound})
    assert_close(slope, energy_at(of_problem, problem.order_parameters.matrices[0]).slope, 1e-8)


@pytest.mark.slow
@settings(max_examples=8)
@given(problem=problems(ANY_SWEPT))
def test_a_sweep_never_raises_the_action(problem):
    saddle = saddle_problem(problem)
    point = at(saddle, problem.order_parameters)
    for _ in range(4):
        after = after_a_sweep(saddle, point)
        assert after.action <= point.action + 1e-12 * abs(point.action)
        point = after
