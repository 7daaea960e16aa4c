"""Averages in generated code against the interpreter, which integrates otherwise, and against automatic derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import erf as erf_of
from sympy import Abs, Heaviside, Max, Symbol, Trace, cos, cosh, exp, log, sign, symbols, tanh

from tests.expressions import A, L, assert_close, generate, random_values
from theorykit.codegen import BATCH, compile_expressions, interpret, quadrature_error
from theorykit.codegen.quadrature.oracle import normal_mean
from theorykit.codegen.primitives import gaussian_mean
from theorykit.symbolic import GaussianAverage, LogDet, entrywise, gradient, log_cosh, with_nodes

z, w, h, b = symbols("z w h b", real=True)
AVERAGES = (
    GaussianAverage(log(cosh(b * z + h)), z),
    GaussianAverage(exp(h * z) * tanh(b * z) ** 2, z),
    GaussianAverage(z * GaussianAverage(tanh(b * z + h * w / 2), w) ** 2, z),
    b * GaussianAverage(GaussianAverage(cos(z), z) * cos(h * w), w) ** 2,
    log(GaussianAverage(exp(-(z**2) * b**2) * GaussianAverage(cosh(b * w), w), z)),
)
NUMBERS = st.floats(-0.7, 0.7)


def on_device(values):
    return {name: jnp.asarray(value) for name, value in values.items()}


def function_of(expression):
    return compile_expressions("average", {"value": expression}, (b, h))


@pytest.mark.parametrize("expression", AVERAGES, ids=str)
@given(field=NUMBERS, slope=NUMBERS)
def test_generated_code_gives_what_the_interpreter_gives(expression, field, slope):
    values = {"h": field, "b": slope}
    assert_close(function_of(expression)(**values)["value"], interpret(expression, values), 1e-9)


@pytest.mark.parametrize("expression", AVERAGES, ids=str)
@pytest.mark.parametrize("symbol", [b, h])
def test_symbolic_gradients_are_the_automatic_ones(expression, symbol):
    values, slope = {"h": 0.4, "b": -0.6}, gradient(expression, symbol)
    automatic = jax.grad(lambda at: function_of(expression)(**{**values, symbol.name: at})["value"])(
        values[symbol.name]
    )
    assert_close(function_of(slope)(**values)["value"], automatic, 1e-12)
    assert_close(interpret(slope, values), automatic, 1e-9)


def test_matrices_in_an_average_are_computed_once_before_it():
    average = GaussianAverage(log(cosh(z * Trace(A * L) / 5 + LogDet(A))), z)
    values = random_values((2, 3, 4), 0)
    expression = average**2 + GaussianAverage(average * tanh(w) * w, w)
    function = compile_expressions("average", {"value": expression}, (A, L))
    assert function.program.operation_counts() == {
        "cholesky": 1,
        "log_det": 1,
        "trace_of_product": 1,
        "gaussian_mean": 2,
    }
    assert_close(function.call_from(on_device(values))["value"], interpret(expression, values), 1e-8)
    for symbol in (A, L):
        slope = gradient(expression, symbol)
        assert_close(generate(slope)(values), interpret(slope, values), 1e-8)


def test_an_average_in_a_function_of_entries_is_taken_of_every_entry():
    function = entrywise(lambda entry: GaussianAverage(tanh(b * z + entry), z), L)
    values = {"L": random_values((2, 3, 4), 1)["L"], "b": 0.6, "H": 2.0}
    compiled = compile_expressions("average", {"value": function}, (L, b))
    expected = [[normal_mean(lambda points, at=at: np.tanh(0.6 * points + at)) for at in row] for row in values["L"]]
    assert_close(compiled.call_from(on_device(values))["value"], expected)
    assert_close(interpret(function, values), expected, 1e-13)


@pytest.mark.parametrize("name", ["z", "normal_of", "gaussian", "entry_of"])
def test_symbols_of_any_name_stand_beside_the_variable(name):
    symbol = Symbol(name, real=True)
    average = GaussianAverage(tanh(z + 1), z).xreplace({z: symbol}) * GaussianAverage(cos(b * z), z).subs(b, symbol)
    function = compile_expressions("average", {"value": average * symbol}, (symbol,))
    assert_close(function(**{name: 0.7})["value"], interpret(average * symbol, {name: 0.7}))


@pytest.mark.parametrize("name", ["normal", "normal_2", "gaussian_mean"])
def test_names_of_generated_averages_are_refused(name):
    with pytest.raises(ValueError, match=name):
        compile_expressions("average", {"value": Symbol(name)}, (Symbol(name),))


def test_what_depends_on_the_variable_and_is_a_matrix_is_refused_by_name():
    average = GaussianAverage(LogDet(exp(z) * A), z)
    with pytest.raises(NotImplementedError, match=r"LogDet\(exp\(z\)\*A\).*depends on z"):
        compile_expressions("average", {"value": average}, (A,))
    values = random_values((2, 3, 4), 2)
    assert_close(interpret(average, values), interpret(LogDet(A), values), 1e-12)


def test_averages_are_taken_over_a_batch():
    values = {"h": np.array([0.1, -0.5, 0.7]), "b": np.array([0.6, 0.2, -0.3])}
    function = compile_expressions("average", dict(enumerate_names(AVERAGES)), (b, h), BATCH)
    found = function(**{name: jnp.asarray(value) for name, value in values.items()})
    for name, expression in enumerate_names(AVERAGES):
        expected = [interpret(expression, {"h": x, "b": y}) for x, y in zip(values["h"], values["b"], strict=True)]
        assert_close(found[name], expected)


def enumerate_names(expressions):
    return [(f"value_{i}", expression) for i, expression in enumerate(expressions)]


@pytest.mark.parametrize("nodes", [1, 2, 8, 64, 128, 151, 512, 2000])
def test_the_quadrature_integrates_polynomials_exactly(nodes):
    moment = 1.0
    for power in range(0, min(2 * nodes, 16), 2):
        assert_close(gaussian_mean(lambda point, power=power: point**power, nodes), moment, 1e-12)
        moment *= power + 1


@pytest.mark.parametrize(
    ("integrand", "expected"),
    [
        (Abs(z - h), lambda: 0.6 * erf_of(0.6 / np.sqrt(2)) + np.sqrt(2 / np.pi) * np.exp(-0.18)),
        (Heaviside(h - z), lambda: (1 + erf_of(0.6 / np.sqrt(2))) / 2),
        (Max(z, h), lambda: 0.6 * (1 + erf_of(0.6 / np.sqrt(2))) / 2 + np.exp(-0.18) / np.sqrt(2 * np.pi)),
        (GaussianAverage(Abs(z - w), w), lambda: 2 / np.sqrt(np.pi)),
        (exp(z**2 / 4), lambda: np.sqrt(2)),
        (exp(3 * z), lambda: np.exp(4.5)),
    ],
    ids=lambda value: "" if callable(value) else str(value),
)
def test_the_interpreter_integrates_kinks_and_jumps(integrand, expected):
    assert_close(interpret(GaussianAverage(integrand, z), {"h": 0.6}), expected(), 3e-15)


def test_the_interpreter_finds_kinks_that_it_is_not_told_of():
    assert_close(normal_mean(lambda point: np.abs(point**2 - 2)), interpret_kink(), 1e-14)


def interpret_kink():
    root = np.sqrt(2)
    density = np.exp(-1) / np.sqrt(2 * np.pi)
    # E|z^2 - 2| = 1 - 2 + 2 E[(2 - z^2) 1(|z| < root)], and E[z^2 1(|z| < r)] = erf(r / root 2) - 2 r density(r)
    inside = erf_of(root / np.sqrt(2))
    return -1 + 2 * (2 * inside - (inside - 2 * root * density))


SMOOTH = (tanh(b * z + h) ** 2, log_cosh(2 * z + h), exp(z) * cos(h * z))
ROUGH = (log_cosh(20 * z + h), log_cosh(20 * (z - h)), Abs(z - h), Max(0, b * z + h), sign(z - h))


@pytest.mark.parametrize("nodes", [16, 64])
@pytest.mark.parametrize("integrand", SMOOTH + ROUGH, ids=str)
@given(field=st.floats(-2, 2))
@settings(max_examples=8)
def test_the_estimated_error_is_about_as_large_as_the_error(integrand, nodes, field):
    average, values = GaussianAverage(integrand, z, nodes), {"h": field, "b": 0.9}
    error = np.abs(function_of(average)(**values)["value"] - interpret(average, values))
    # across a kink the error changes its sign with the field, and its estimate does so at a field close by
    estimate = max(quadrature_error(average, {**values, "h": field + shift}) for shift in (-0.05, 0.0, 0.05))
    assert error <= 3 * estimate + 1e-13
    # no estimate is far above what the error is where it is largest
    assert estimate <= (4 / nodes**0.5 if integrand in ROUGH else 0.02)


def test_errors_are_estimated_of_matrices_and_of_averages_in_averages():
    expression = GaussianAverage(GaussianAverage(Abs(z - w), z), w) * A
    matrix = jnp.diag(jnp.array([1.0, 2.0]))
    error = quadrature_error(expression, {A: matrix})
    value = compile_expressions("f", {"value": expression}, (A,))(A=matrix)["value"]
    found = np.abs(value - 2 / np.sqrt(np.pi) * matrix)
    assert_close(error[0, 1], 0.0, 0.0)
    assert found[0, 0] / 3 < error[0, 0] < 3 * found[0, 0] and error[1, 1] == 2 * error[0, 0]
    assert quadrature_error(h**2, {"h": 2.0}) == 0


def test_more_nodes_make_the_error_smaller():
    values = {"h": 0.3, "b": 1.0}
    errors = [quadrature_error(with_nodes(AVERAGES[0], nodes), values) for nodes in (8, 32, 128)]
    assert errors[0] > 10 * errors[1] > 100 * errors[2]
