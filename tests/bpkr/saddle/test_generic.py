"""The action of the theory, minimised by what knows no theory: the same minima as by its own solver."""

import numpy as np
import pytest

from theorykit import bpkr, saddle

from ..cases import CASES, GRAMMAR, ONE_HEAD, TWO_LAYERS, TWO_OUTPUTS, assert_close, random_problem


def start_of(architecture, action):
    """The Gaussian-process limit, by symbol."""
    limit, symbols = bpkr.gp_limit(architecture), bpkr.derive(architecture).symbols
    values = dict(zip(symbols.order_parameters, (*limit.matrices, limit.readout), strict=True))
    return {symbol: values[symbol] for symbol in action.order_parameters}


def assert_same_minimum(architecture, features, labels):
    action = bpkr.derive(architecture).of_free_order_parameters
    values = bpkr.parameter_values(bpkr.Problem(architecture, bpkr.Data(features, labels)))
    own = bpkr.solve(architecture, bpkr.Data(features, labels), tolerance=1e-11)
    generic = saddle.minimise(action, values, initial=start_of(architecture, action), tolerance=1e-11)
    assert own.converged
    assert generic.converged, generic.diagnosis
    assert_close(generic.action, own.action, 1e-10)
    names = (symbol.name for symbol in bpkr.derive(architecture).symbols.order_parameters)
    found = dict(zip(names, (*own.order_parameters.matrices, own.order_parameters.readout), strict=True))
    for name, value in generic.order_parameters.items():
        assert_close(value, found[name], 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("case", (*CASES, *GRAMMAR, TWO_OUTPUTS, ONE_HEAD))
@pytest.mark.parametrize("seed", range(3))
def test_both_ways_lead_to_the_same_minimum_in_every_case(case, seed):
    problem = random_problem(case, seed)
    assert_same_minimum(problem.architecture, problem.features, problem.labels)


@pytest.mark.slow
def test_a_term_of_ones_own_is_added_to_the_action_of_the_theory():
    problem = random_problem(TWO_LAYERS, 1)
    action = bpkr.derive(problem.architecture).of_free_order_parameters
    values = bpkr.parameter_values(bpkr.Problem(problem.architecture, bpkr.Data(problem.features, problem.labels)))
    (*_, u) = action.order_parameters
    stiff = saddle.Action(action.expression + 1e6 * (u - 2) ** 2, action.order_parameters, action.parameters)
    solution = saddle.minimise(stiff, values, initial=start_of(problem.architecture, action))
    assert solution.converged
    assert_close(solution[u], 2.0, 1e-3)
    assert np.all(np.asarray(solution.hessian_eigenvalues) > 0)
