"""Averages over standard normal variables: what is bound and what is free, and their derivatives."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import Dummy, Max, Symbol, Trace, cos, cosh, diff, exp, log, symbols, tanh

from tests.expressions import A, L, assert_close
from theorykit.codegen import interpret
from theorykit.symbolic import (
    GaussianAverage,
    LogDet,
    gaussian_average,
    gradient,
    latex,
    log_normal_cdf,
    with_more_nodes,
    with_nodes,
)
from theorykit.symbolic.documents.mathml import mathml

z, w, h, b = symbols("z w h b", real=True)
VALUES = {"h": 0.3, "b": 0.8, "z": -0.4, "w": 0.7}
FIELD = GaussianAverage(tanh(b * z + h), z)
NESTED = GaussianAverage(w * GaussianAverage(tanh(b * z + h * w), z) ** 2, w)


def by_quadrature(function):
    """The mean over a standard normal number by a sum over a fine grid, exact for smooth functions."""
    points = np.linspace(-12, 12, 4001)
    density = np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
    return np.sum(function(points) * density) * (points[1] - points[0])


def test_the_variable_is_bound():
    assert FIELD.free_symbols == {b, h}
    assert NESTED.free_symbols == {b, h}
    assert FIELD.diff(z) == 0
    assert FIELD.subs(z, 2) == FIELD.xreplace({z: h}) == FIELD
    assert GaussianAverage(tanh(b * z + h), z) == FIELD
    assert FIELD.func(*FIELD.args) == FIELD
    assert pickle.loads(pickle.dumps(NESTED)) == NESTED


@pytest.mark.parametrize("substitute", [lambda e, new: e.xreplace({h: new}), lambda e, new: e.subs(h, new)])
@pytest.mark.parametrize("new", [z, z**2 + b, FIELD, FIELD.variable, FIELD.integrand], ids=str)
def test_what_is_put_in_is_not_taken_for_the_variable(substitute, new):
    put_in = substitute(FIELD, new)
    assert put_in.free_symbols == (FIELD.free_symbols - {h}) | new.free_symbols
    number = interpret(new.xreplace({FIELD.variable: z}), VALUES)
    expected = by_quadrature(lambda points: np.tanh(VALUES["b"] * points + number))
    assert_close(interpret(put_in.xreplace({FIELD.variable: z}), VALUES), expected, 1e-13)


def test_averages_of_averages_keep_their_variables_apart():
    twice = GaussianAverage(z * GaussianAverage(tanh(z + h), z), z)
    inner = by_quadrature(lambda points: np.tanh(points + VALUES["h"]))
    assert_close(interpret(twice, VALUES), 0 * inner, 1e-13)
    again = GaussianAverage(b * z + h, z).xreplace({h: FIELD, b: FIELD})
    assert_close(interpret(again, VALUES), interpret(FIELD, VALUES), 1e-13)
    assert len({symbol.name for symbol in twice.atoms(type(FIELD.variable))}) == 2


def test_any_symbol_is_a_variable():
    plain = Symbol("z")
    assert GaussianAverage(tanh(b * plain + h), plain) == FIELD
    assert GaussianAverage(abs(plain) ** 2, plain) == GaussianAverage(z**2, z)
    assert GaussianAverage(tanh(b * Dummy("z") + h), z).free_symbols > {b, h}


@pytest.mark.parametrize("average", [FIELD, NESTED, GaussianAverage(log(cosh(b * z) + exp(h * z)), z)], ids=str)
@pytest.mark.parametrize("symbol", [b, h])
def test_derivatives_are_those_of_differences(average, symbol):
    step, at = 1e-4, VALUES[symbol.name]
    ends = [interpret(average, {**VALUES, symbol.name: at + sign * step}) for sign in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * step)
    assert_close(interpret(gradient(average, symbol), VALUES), expected, 1e-6)
    assert gradient(average, symbol) == diff(average, symbol)


def test_the_gradient_goes_through_matrices_that_do_not_depend_on_the_variable():
    average = GaussianAverage(log(cosh(z * Trace(L) + LogDet(A))), z)
    values = {"L": np.array([[0.3, 0.1], [0.2, 0.5]]), "A": np.array([[2.0, 0.5], [0.5, 1.0]]), "H": 2}
    field = GaussianAverage(tanh(z * h + b), z)
    at = {"h": 0.8, "b": np.log(1.75)}
    assert_close(interpret(gradient(average, A), values), interpret(field, at) * np.linalg.inv(values["A"]), 1e-12)
    assert_close(
        interpret(gradient(average, L), values),
        interpret(GaussianAverage(z * field.integrand.xreplace({field.variable: z}), z), at) * np.eye(2),
        1e-12,
    )


def test_what_would_be_silently_wrong_is_refused():
    with pytest.raises(NotImplementedError, match=r"Trace\(z\*L\).*depends on z"):
        gradient(GaussianAverage(Trace(z * L) ** 2 * b, z), b)
    with pytest.raises(NotImplementedError, match=r"LogDet\(b\*A\).*gradient"):
        GaussianAverage(z * exp(LogDet(b * A)), z).diff(b)


@given(st.integers(1, 200))
def test_the_number_of_nodes_is_that_of_every_average(nodes):
    expression = h * NESTED + log(Trace(A) + FIELD**2)
    changed = with_nodes(expression, nodes)
    assert {average.nodes for average in changed.atoms(GaussianAverage)} == {nodes}
    assert with_nodes(changed, 64) == expression
    assert with_more_nodes(changed) == tuple(with_nodes(expression, 2 * nodes + odd) for odd in (0, 1))


def test_signs_are_known():
    positive = GaussianAverage(exp(-(z**2)), z)
    assert positive.is_positive and (-positive).is_negative and FIELD.is_real
    assert FIELD.is_positive is None and GaussianAverage(-cos(0) * exp(z), z).is_negative


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (FIELD, r"\left\langle \tanh{\left(b z + h \right)} \right\rangle_{z \sim \mathcal{N}(0, 1)}"),
        (
            FIELD.xreplace({h: z}),
            r"\left\langle \tanh{\left(b z' + z \right)} \right\rangle_{z' \sim \mathcal{N}(0, 1)}",
        ),
        (
            GaussianAverage(GaussianAverage(cos(z * w), z), w),
            r"\left\langle \left\langle \cos{\left(w z \right)} \right\rangle_{z \sim \mathcal{N}(0, 1)} "
            r"\right\rangle_{w \sim \mathcal{N}(0, 1)}",
        ),
    ],
)
def test_a_reader_sees_what_the_variable_is(expression, expected):
    assert latex(expression) == expected


@pytest.mark.parametrize(
    "function", [lambda e: e, lambda e: e**2 / 2, lambda e: abs(e) * gaussian_average(Max(z, h), z)]
)
@pytest.mark.parametrize("average", [FIELD, NESTED.xreplace({h: z}), log_normal_cdf(h)], ids=str)
def test_what_is_written_is_read_by_a_browser(average, function):
    text = "".join("".join(element.itertext()) for element in mathml(latex(function(average))))
    if average.has(GaussianAverage):
        assert "⟩" in text and "∼𝒩(0,1)" in text
