"""The symbolic action: its parts, its saddle-point equations, its written forms."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given

from theorykit import bpkr
from theorykit.bpkr.evaluation.formulas import bind
from theorykit.codegen import compile_expressions, interpret

from ..cases import ANY_CASE, CASES, SEEDS, TWO_LAYERS, assert_close, random_problem
from ..problems import action_terms, symbol_values


@pytest.fixture(params=CASES, ids=lambda case: str(case.layers))
def action(request):
    return bpkr.derive(request.param.architecture())


@cache
def compiled_saddle_equations(heads):
    action = bpkr.derive(bpkr.Architecture(heads, 1, temperature=1))
    equations = {symbol.name: equation for symbol, equation in action.saddle_point_equations.items()}
    compiled = compile_expressions("saddle", equations, action.symbols.arguments)
    return jax.jit(compiled.call_from)


@jax.jit
def gradient_by_jax(architecture, order_parameters, features, labels):
    """[dS/dU_1, ..., dS/dU_L, dS/du], within symmetric matrices."""
    bound = bind(architecture)
    slope = jax.grad(lambda point: action_terms(bound, point, features, labels).total)(order_parameters)
    return [*((matrix + matrix.T) / 2 for matrix in slope.matrices), slope.readout]


def arrays(problem):
    return problem.architecture, problem.order_parameters, jnp.array(problem.features), jnp.array(problem.labels)


def arguments(problem):
    """The value of every symbol of the action, by name."""
    architecture, order_parameters, *data = arrays(problem)
    bound = bind(architecture)
    values = {**bound.numbers(), **bound.point(order_parameters), **bound.data(*data)}
    return {symbol.name: values[symbol] for symbol in bound.symbols.arguments}


@given(case=ANY_CASE, seed=SEEDS)
def test_the_compiled_symbolic_gradient_is_the_gradient_by_jax(case, seed):
    problem = random_problem(case, seed)
    symbolic = compiled_saddle_equations(case.heads)(arguments(problem))
    equations = bpkr.derive(problem.architecture).saddle_point_equations
    for (symbol, equation), slope in zip(equations.items(), gradient_by_jax(*arrays(problem)), strict=True):
        assert_close(symbolic[symbol.name], slope, 1e-9)
        assert_close(interpret(equation, symbol_values(problem)), slope, 1e-9)


def test_written_forms_are_balanced_rows_without_sympy_names(action):
    latex, markdown = action.render_latex(), action.render_markdown()
    rows = latex.split("\\label")[:-1]
    assert latex.count("{") == latex.count("}") and latex.count(" = ") >= len(rows)
    # terms, equations, solutions of all but the first equation, and the predictor
    depth = len(action.forms)
    assert len(rows) == (4 + depth) + (depth + 1) + depth + 2
    assert len(re.findall(r"\$\$(.+?)\$\$", markdown)) == len(rows) == len(set(re.findall(r"\\label\{(.*?)\}", latex)))
    for text in (latex, markdown):
        assert not re.search(r"sigma2|Trace|LogDet|Kronecker|Identity|Phi_test|\*\*|None", text)


@given(seed=SEEDS)
def test_the_shown_python_is_what_runs(seed):
    problem, namespace = random_problem(TWO_LAYERS, seed), {}
    exec(bpkr.generate_source(bpkr.derive(problem.architecture)), namespace)
    shown = namespace["action"](**arguments(problem))
    assert_close(shown["total"], problem.evaluate().total, 1e-13)
    assert_close(sum(value for name, value in shown.items() if name != "total"), shown["total"], 1e-12)
