"""Closed forms of Gaussian averages against quadrature, every row of the table, and what has none."""

import numpy as np
import pytest
import sympy as sp

from tests.expressions import assert_close
from tests.marks import slow
from theorykit.codegen import interpret
from theorykit.symbolic import GaussianAverage, gaussian_average, log_cosh
from theorykit.symbolic.gaussian_table import _PAIRS, _ROWS

x, y, z, a, b, c, d, p = sp.symbols("x y z a b c d p", real=True)
VALUES = ({"a": 0.4, "b": -0.7, "c": 0.3, "d": 1.2, "p": -0.6}, {"a": -1.1, "b": 1.3, "c": 0.9, "d": -0.2, "p": 0.2})
FUNCTIONS = (*(kind for kind in _ROWS if kind is not sp.Max), lambda argument: sp.Max(argument, 0))
POWERS = (0, 1, 2, 5)
OF_ONE = [
    *(z**power * function(a + b * z) for function in FUNCTIONS for power in POWERS),
    *(c * z * sp.exp(p * z**2 + d * z) * function(a + b * z) for function in FUNCTIONS),
    *(z**power * sp.exp(a + b * z + p * z**2) for power in POWERS),
    *((a + b * z) ** 3 * sp.exp(c * z) ** 2, (a + b * z) ** 4 - c, sp.Max(a + b * z, c + d * z)),
    *(z * sp.Min(a + b * z, c, evaluate=False), sp.Max(0, z) * z + sp.Min(z, 0) * a),
    *(sp.erf(b * z) * sp.erf(d * z), sp.erf(b * z) ** 2 * sp.exp(p * z**2), (sp.exp(b * z) + z) ** 2),
    *((1 + sp.erf(a + b * z)) * (z - sp.cosh(c)), sp.cosh(a * (z + b))),
]
LINES = (b * x + c * y, d * y - a * x)
OF_TWO = [
    *(kind(LINES[0]) * kind(LINES[1]) * p for kind in _PAIRS if kind is not sp.Max),
    *(sp.Max(LINES[0], 0) * sp.Max(LINES[1], 0), sp.Max(0, x) * sp.Max(0, b * x + c * y) + sp.erf(x + y) ** 2),
    *(sp.erf(a + b * x + c * y), x * sp.Abs(a + b * x + c * y), sp.exp(c * x * y / 3) * y**2),
    (a * x + b * y) ** 2 * sp.cos(x - y),
]


@pytest.mark.parametrize("values", VALUES, ids=["first", "second"])
@pytest.mark.parametrize("integrand", OF_ONE, ids=str)
def test_every_row_is_what_quadrature_gives(integrand, values):
    closed = gaussian_average(integrand, z)
    assert not closed.has(GaussianAverage) and closed.free_symbols <= integrand.free_symbols - {z}
    assert_close(interpret(closed, values), interpret(GaussianAverage(integrand, z), values), 2e-13)


@pytest.mark.quick(1)
@pytest.mark.parametrize("values", [*slow(VALUES[:1]), *VALUES[1:]], ids=["first", "second"])
@pytest.mark.parametrize("integrand", OF_TWO, ids=str)
def test_every_row_of_two_variables_is_what_quadrature_gives(integrand, values):
    closed = gaussian_average(integrand, x, y)
    assert not closed.has(GaussianAverage)
    expected = interpret(GaussianAverage(GaussianAverage(integrand, x), y), values)
    assert_close(interpret(closed, values), expected, 1e-12)


def test_rows_are_as_they_are_written_in_books():
    assert gaussian_average(sp.erf(a + b * z), z) == sp.erf(a / sp.sqrt(1 + 2 * b**2))
    assert gaussian_average(z**4 + sp.Abs(z), z) == 3 + sp.sqrt(2 / sp.pi)
    assert gaussian_average(sp.exp(b * z), z) == sp.exp(b**2 / 2)
    assert gaussian_average(a * sp.cos(b * z), z) == a * sp.exp(-(b**2) / 2)
    assert gaussian_average(sp.sign(x) * sp.sign(x + y), x, y) == sp.Rational(1, 2)
    assert gaussian_average(sp.Heaviside(z), z) == sp.Rational(1, 2)
    assert gaussian_average(sp.exp(a * x * y), x, y) == 1 / sp.sqrt(1 - a**2)
    assert gaussian_average(sp.sinh(z) + sp.tanh(a), z) == sp.tanh(a)
    assert gaussian_average(sp.erfc(z), z) == 1


def test_what_has_no_row_stays_an_average_and_the_rest_does_not():
    expression = gaussian_average((2 * a + z) * (z + b * sp.tanh(z)), z, nodes=32)
    rest = GaussianAverage(2 * a * b * sp.tanh(z) + b * z * sp.tanh(z), z, 32)
    assert expression == 1 + b * GaussianAverage(2 * a * sp.tanh(z) + z * sp.tanh(z), z, 32) or expression == 1 + rest
    assert gaussian_average(3 * a * log_cosh(b * z), z) == 3 * a * GaussianAverage(log_cosh(b * z), z)
    nested = gaussian_average(sp.tanh(a * x + y), x, y)
    assert nested == GaussianAverage(GaussianAverage(sp.tanh(a * x + y), x), y)
    both = gaussian_average(y**2 * sp.tanh(x) ** 2 + x * y, x, y)
    assert both == GaussianAverage(sp.tanh(x) ** 2, x)
    product = gaussian_average(sp.tanh(z) * sp.erf(z), z)
    assert product == GaussianAverage(sp.tanh(z) * sp.erf(z), z)
    assert gaussian_average(sp.Max(z, 1, a), z) == GaussianAverage(sp.Max(z, 1, a), z)


def test_matrices_stand_where_numbers_do():
    matrix = sp.MatrixSymbol("M", 2, 2)
    average = gaussian_average(sp.erf(sp.Trace(matrix) + z) * sp.Trace(matrix) ** 2, z)
    assert average == sp.Trace(matrix) ** 2 * sp.erf(sp.Trace(matrix) / sp.sqrt(3))


def test_infinite_averages_are_refused():
    with pytest.raises(ValueError, match="infinite"):
        gaussian_average(a * sp.exp(z**2 / 2 + z), z)
    with pytest.raises(ValueError, match="infinite"):
        gaussian_average(1 + z * sp.exp(sp.Symbol("k", positive=True) * z**2 + z**2), z)


@pytest.mark.parametrize("variables", [(), (x, x), (x, y, z)], ids=str)
def test_one_variable_or_two_are_averaged_over(variables):
    with pytest.raises(ValueError, match="variables"):
        gaussian_average(x * y, *variables)


def test_the_imaginary_unit_is_a_constant():
    assert_close(interpret(gaussian_average(sp.exp(sp.I * b * z), z), {"b": 0.7}), np.exp(-0.245), 1e-14)
