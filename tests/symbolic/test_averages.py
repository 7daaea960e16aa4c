"""Averages over standard normal variables: what is bound and what is free, and their derivatives."""

import pickle

import numpy as np
import pytest
import sympy as sp
from sympy import sign

from tests.expressions import A, L, assert_close
from theorykit.codegen import interpret
from theorykit.symbolic import GaussianAverage, gaussian_average, gradient
from theorykit.symbolic.atoms import LogDet
from theorykit.symbolic.averages import with_nodes
from theorykit.symbolic.documents.rendering import latex

z, w, h, b = sp.symbols("z w h b", real=True)
VALUES = {"h": 0.3, "b": 0.8, "z": -0.4, "w": 0.7}
FIELD = GaussianAverage(sp.tanh(b * z + h), z)
NESTED = GaussianAverage(w * GaussianAverage(sp.tanh(b * z + h * w), z) ** 2, w)


def by_quadrature(function):
    """The mean over a standard normal number by a sum over a fine grid, exact for smooth functions."""
    points = np.linspace(-12, 12, 4001)
    density = np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)
    return np.sum(function(points) * density) * (points[1] - points[0])


def test_the_variable_is_bound():
    assert FIELD.free_symbols == {b, h}
    assert NESTED.free_symbols == {b, h}
    assert FIELD.diff(z) == FIELD.diff(FIELD.variable) == 0
    assert FIELD.subs(z, 2) == FIELD.xreplace({z: h}) == FIELD
    assert GaussianAverage(sp.tanh(b * z + h), z) == FIELD
    assert FIELD.func(*FIELD.args) == FIELD
    assert pickle.loads(pickle.dumps(NESTED)) == NESTED
    plain = sp.Symbol("z")
    assert GaussianAverage(sp.tanh(b * plain + h), plain) == FIELD
    assert GaussianAverage(sp.tanh(b * sp.Dummy("z") + h), z).free_symbols > {b, h}


@pytest.mark.parametrize("substitute", [lambda e, new: e.xreplace({h: new}), lambda e, new: e.subs(h, new)])
@pytest.mark.parametrize("new", [z, z**2 + b, FIELD, FIELD.variable, FIELD.integrand], ids=str)
def test_what_is_put_in_is_not_taken_for_the_variable(substitute, new):
    put_in = substitute(FIELD, new)
    assert put_in.free_symbols == (FIELD.free_symbols - {h}) | new.free_symbols
    number = interpret(new.xreplace({FIELD.variable: z}), VALUES)
    expected = by_quadrature(lambda points: np.tanh(VALUES["b"] * points + number))
    assert_close(interpret(put_in.xreplace({FIELD.variable: z}), VALUES), expected, 1e-13)


def test_averages_of_averages_keep_their_variables_apart():
    twice = GaussianAverage(z * GaussianAverage(sp.tanh(z + h), z), z)
    assert_close(interpret(twice, VALUES), 0.0, 1e-13)
    again = GaussianAverage(b * z + h, z).xreplace({h: FIELD, b: FIELD})
    assert_close(interpret(again, VALUES), interpret(FIELD, VALUES), 1e-13)
    assert len({symbol.name for symbol in twice.atoms(type(FIELD.variable))}) == 2


def test_the_gradient_goes_through_matrices_that_do_not_depend_on_the_variable():
    average = GaussianAverage(sp.log(sp.cosh(z * sp.Trace(L) + LogDet(A))), z)
    values = {"L": np.array([[0.3, 0.1], [0.2, 0.5]]), "A": np.array([[2.0, 0.5], [0.5, 1.0]]), "H": 2}
    field = GaussianAverage(sp.tanh(z * h + b), z)
    at = {"h": 0.8, "b": np.log(1.75)}
    assert_close(interpret(gradient(average, A), values), interpret(field, at) * np.linalg.inv(values["A"]), 1e-12)
    expected = GaussianAverage(z * field.integrand.xreplace({field.variable: z}), z)
    assert_close(interpret(gradient(average, L), values), interpret(expected, at) * np.eye(2), 1e-12)


def test_what_would_be_silently_wrong_is_refused():
    with pytest.raises(NotImplementedError, match=r"Trace\(z\*L\).*depends on z"):
        gradient(GaussianAverage(sp.Trace(z * L) ** 2 * b, z), b)
    with pytest.raises(NotImplementedError, match=r"LogDet\(b\*A\).*gradient"):
        GaussianAverage(z * sp.exp(LogDet(b * A)), z).diff(b)


def test_every_average_has_a_number_of_nodes_or_is_adaptive_or_a_bound():
    expression = h * NESTED + sp.log(sp.Trace(A) + FIELD**2)
    changed = with_nodes(expression, 17)
    assert {average.nodes for average in changed.atoms(GaussianAverage)} == {17} and with_nodes(
        changed, 64
    ) == expression
    adaptive = with_nodes(expression, "adaptive")
    assert adaptive == with_nodes(expression, sp.oo)
    assert {average.nodes for average in adaptive.atoms(GaussianAverage)} == {sp.oo}
    assert with_nodes(adaptive, 64) == expression
    upper = adaptive.replace(GaussianAverage, lambda *args: GaussianAverage(*args, 1))
    assert {average.side for average in upper.atoms(GaussianAverage)} == {1} and with_nodes(upper, 64) == expression
    # what is made of a bound is of the same rule
    assert {average.side for average in gradient(upper, b).atoms(GaussianAverage)} == {1}
    assert pickle.loads(pickle.dumps(upper)) == upper
    assert gaussian_average(sp.tanh(z + h), z, nodes="adaptive").nodes == sp.oo
    with pytest.raises(ValueError, match="adaptive"):
        with_nodes(expression, "exact")


def standard(number):
    return sp.exp(-(number**2) / 2) / sp.sqrt(2 * sp.pi)


# integrand, symbol, derivative of its mean
JUMPS = {
    "step": (sign(z - h) * sp.cos(b * z), h, -2 * sp.cos(b * h) * standard(h)),
    "slope of a step": (sp.Heaviside(b * z - h), b, h * standard(h / b) / b / sp.Abs(b)),
    "function of a step": (sp.exp(sign(z - h)), h, (sp.exp(-1) - sp.exp(1)) * standard(h)),
    "power of a step": (sp.tanh(b * sp.Heaviside(z - h)) ** 2, h, -(sp.tanh(b) ** 2) * standard(h)),
    "piecewise": (sp.Piecewise((z, z > h), (b, True)), h, (b - h) * standard(h)),
    "step that stands still": (sign(z - 1) * sp.tanh(h * z), b, 0),
    "two steps at one place": (sign(z - h) * sp.Heaviside(3 * z - 3 * h), h, -standard(h)),
    "kink": (sp.Abs(z - h), h, sp.erf(h / sp.sqrt(2))),
    "step in an average": (
        GaussianAverage(sign(w + b * z), w) * z,
        b,
        2 * standard(0) * (1 + b**2) ** -sp.Rational(3, 2),
    ),
    "step around an average": (GaussianAverage(sign(z - h) * sp.cos(w), w), h, -2 * sp.exp(-sp.S.Half) * standard(h)),
}


@pytest.mark.parametrize("name", JUMPS)
@pytest.mark.parametrize("plain", [False, True])
def test_the_derivative_of_a_mean_goes_through_jumps(name, plain):
    integrand, symbol, expected = JUMPS[name]
    names = {s: sp.Symbol(s.name) for s in (b, h)} if plain else {}
    average, symbol = GaussianAverage(integrand, z).xreplace(names), names.get(symbol, symbol)
    for slope in (average.diff(symbol), gradient(average, symbol)):
        assert not slope.has(sp.DiracDelta, sp.Derivative)
        found = slope.replace(GaussianAverage, lambda f, v, *_: gaussian_average(f, v))
        assert_close(interpret(found, VALUES), interpret(sp.sympify(expected), VALUES), 1e-12)


def test_a_delta_is_refused():
    with pytest.raises(ValueError, match="DiracDelta"):
        gaussian_average(sp.DiracDelta(b * z - h) * sp.tanh(z), z)


@pytest.mark.parametrize(
    "integrand", [1 / z**2, 1 / sp.Abs(z), 1 / (z - h), h / (2 * z + 1) ** 3, sp.exp(z**2), z * sp.exp(z**2 / 2 + z)]
)
def test_an_average_that_is_seen_to_be_infinite_is_refused(integrand):
    with pytest.raises(ValueError, match="infinite"):
        GaussianAverage(integrand, z)


def test_an_average_that_is_finite_is_not_refused():
    finite = (sp.sin(z) / z, 1 / sp.sqrt(sp.Abs(z)), sp.exp(z**2 / 3), sp.exp(z**2) / sp.cosh(z**2), 1 / (z**2 + 1))
    assert all(GaussianAverage(integrand, z).integrand.has(integrand.func) for integrand in finite)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (FIELD, r"\left\langle \tanh{\left(b z + h \right)} \right\rangle_{z \sim \mathcal{N}(0, 1)}"),
        (
            FIELD.xreplace({h: z}),
            r"\left\langle \tanh{\left(b z' + z \right)} \right\rangle_{z' \sim \mathcal{N}(0, 1)}",
        ),
        (
            GaussianAverage(GaussianAverage(sp.cos(z * w), z), w),
            r"\left\langle \left\langle \cos{\left(w z \right)} \right\rangle_{z \sim \mathcal{N}(0, 1)} "
            r"\right\rangle_{w \sim \mathcal{N}(0, 1)}",
        ),
    ],
)
def test_a_reader_sees_what_the_variable_is(expression, expected):
    assert latex(expression) == expected
