"""The first order in 1/N and the closed forms of single layers, against the solver and the equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import slow
from theorykit import bpkr
from theorykit.codegen import compile_expressions, interpret
from theorykit.derivation.claims import random_values

from ..cases import ALL_SKIPS, CASES, GRAMMAR, OWN_KINDS, READOUTS_OF_TOKENS, TWO_LAYERS, random_problem


def differences(architecture, problem):
    """How far the saddle point is from its first-order expansion, and from the limit of infinite width."""
    labels = 2 * problem.labels
    exact = bpkr.solve(architecture, bpkr.Data(problem.features, labels), tolerance=1e-11).order_parameters
    close = bpkr.first_order(bpkr.Problem(architecture, bpkr.Data(problem.features, labels)))
    limit = bpkr.gp_limit(architecture)

    def farthest(point):
        return max(np.max(np.abs(a - b)) for a, b in zip(*map(jax.tree.leaves, (exact, point)), strict=True))

    return farthest(close), farthest(limit)


QUICK = (ALL_SKIPS, OWN_KINDS)  # each is a compilation of the solver
SLOW = (TWO_LAYERS, *(case for case in GRAMMAR if case not in QUICK))


@pytest.mark.quick(1)
@pytest.mark.parametrize("case", [*QUICK, *slow(SLOW)], ids=str)
def test_the_error_of_first_order_falls_as_the_square_of_the_width(case):
    problem = random_problem(case, 0)
    errors, departures = [], []
    for scale in (100.0, 1000.0):
        widths = tuple(scale * width for width in case.widths)
        architecture = bpkr.Architecture(case.layers, widths, case.variances, temperature=0.3, outputs=case.outputs)
        error, departure = differences(architecture, problem)
        errors.append(error)
        departures.append(departure)
    assert 8 < departures[0] / departures[1] < 12
    assert 70 < errors[0] / errors[1] < 130
    assert errors[1] < 0.05 * departures[1]


@pytest.mark.quick(5)
@pytest.mark.parametrize("case", [*CASES, *GRAMMAR, *READOUTS_OF_TOKENS], ids=str)
def test_closed_forms_solve_their_equations_and_compile(case):
    architecture = case.architecture()
    action, numbers = bpkr.derive(architecture), architecture.layer_numbers()
    data = {symbol: 2 for symbol in action.symbols.labels.shape[0].free_symbols if symbol.name == "P"}
    sizes = {**{s: numbers[s.name] for s in action.symbols.sizes}, action.symbols.input_features: 2, **data}
    for symbol, solution in action.closed_forms.items():
        equation = action.saddle_point_equations[symbol]
        values = random_values([equation, solution, symbol], sizes, np.random.default_rng(0))
        point = interpret(solution, values)
        scale = np.max(np.abs(interpret(equation, values)))
        assert np.max(np.abs(interpret(equation, {**values, symbol.name: point}))) < 1e-9 * scale
        assert np.linalg.eigvalsh(np.atleast_2d(point))[0] > 0
        arguments = sorted({s for s in solution.free_symbols if not s.is_integer}, key=lambda s: s.name)
        compiled = compile_expressions("closed", {"value": solution}, action.symbols.completed(tuple(arguments)))
        arrays = {name: jnp.asarray(value) if np.ndim(value) else value for name, value in values.items()}
        np.testing.assert_allclose(compiled.call_from(arrays)["value"], point, rtol=1e-9, atol=1e-9)
