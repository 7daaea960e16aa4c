"""Closed forms of Gaussian averages against quadrature, every row of the table, and what has none."""

import numpy as np
import pytest
from sympy import (
    Abs,
    Heaviside,
    I,
    MatrixSymbol,
    Max,
    Min,
    Rational,
    Symbol,
    Trace,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    pi,
    sign,
    sinh,
    sqrt,
    symbols,
    tanh,
)

from tests.expressions import assert_close
from tests.marks import slow
from theorykit.codegen import interpret
from theorykit.symbolic import GaussianAverage, gaussian_average, log_cosh
from theorykit.symbolic.gaussian_table import _PAIRS, _ROWS

x, y, z, a, b, c, d, p = symbols("x y z a b c d p", real=True)
VALUES = ({"a": 0.4, "b": -0.7, "c": 0.3, "d": 1.2, "p": -0.6}, {"a": -1.1, "b": 1.3, "c": 0.9, "d": -0.2, "p": 0.2})
FUNCTIONS = (*(kind for kind in _ROWS if kind is not Max), lambda argument: Max(argument, 0))
POWERS = (0, 1, 2, 5)
OF_ONE = [
    *(z**power * function(a + b * z) for function in FUNCTIONS for power in POWERS),
    *(c * z * exp(p * z**2 + d * z) * function(a + b * z) for function in FUNCTIONS),
    *(z**power * exp(a + b * z + p * z**2) for power in POWERS),
    (a + b * z) ** 3 * exp(c * z) ** 2,
    (a + b * z) ** 4 - c,
    Max(a + b * z, c + d * z),
    z * Min(a + b * z, c, evaluate=False),
    Max(0, z) * z + Min(z, 0) * a,
    erf(b * z) * erf(d * z),
    erf(b * z) ** 2 * exp(p * z**2),
    (exp(b * z) + z) ** 2,
    (1 + erf(a + b * z)) * (z - cosh(c)),
    cosh(a * (z + b)),
]
LINES = (b * x + c * y, d * y - a * x)
OF_TWO = [
    *(kind(LINES[0]) * kind(LINES[1]) * p for kind in _PAIRS if kind is not Max),
    Max(LINES[0], 0) * Max(LINES[1], 0),
    Max(0, x) * Max(0, b * x + c * y) + erf(x + y) ** 2,
    erf(a + b * x + c * y),
    x * Abs(a + b * x + c * y),
    exp(c * x * y / 3) * y**2,
    (a * x + b * y) ** 2 * cos(x - y),
]


@pytest.mark.parametrize("values", VALUES, ids=["first", "second"])
@pytest.mark.parametrize("integrand", OF_ONE, ids=str)
def test_every_row_is_what_quadrature_gives(integrand, values):
    closed = gaussian_average(integrand, z)
    assert not closed.has(GaussianAverage) and closed.free_symbols <= integrand.free_symbols - {z}
    assert_close(interpret(closed, values), interpret(GaussianAverage(integrand, z), values), 2e-13)


@pytest.mark.parametrize("values", [*slow(VALUES[:1]), *VALUES[1:]], ids=["first", "second"])
@pytest.mark.parametrize("integrand", OF_TWO, ids=str)
def test_every_row_of_two_variables_is_what_quadrature_gives(integrand, values):
    closed = gaussian_average(integrand, x, y)
    assert not closed.has(GaussianAverage)
    expected = interpret(GaussianAverage(GaussianAverage(integrand, x), y), values)
    assert_close(interpret(closed, values), expected, 1e-12)


def test_rows_are_as_they_are_written_in_books():
    assert gaussian_average(erf(a + b * z), z) == erf(a / sqrt(1 + 2 * b**2))
    assert gaussian_average(z**4 + Abs(z), z) == 3 + sqrt(2 / pi)
    assert gaussian_average(exp(b * z), z) == exp(b**2 / 2)
    assert gaussian_average(a * cos(b * z), z) == a * exp(-(b**2) / 2)
    assert gaussian_average(sign(x) * sign(x + y), x, y) == Rational(1, 2)
    assert gaussian_average(Heaviside(z), z) == Rational(1, 2)
    assert gaussian_average(exp(a * x * y), x, y) == 1 / sqrt(1 - a**2)
    assert gaussian_average(sinh(z) + tanh(a), z) == tanh(a)
    assert gaussian_average(erfc(z), z) == 1


def test_what_has_no_row_stays_an_average_and_the_rest_does_not():
    expression = gaussian_average((2 * a + z) * (z + b * tanh(z)), z, nodes=32)
    rest = GaussianAverage(2 * a * b * tanh(z) + b * z * tanh(z), z, 32)
    assert expression == 1 + b * GaussianAverage(2 * a * tanh(z) + z * tanh(z), z, 32) or expression == 1 + rest
    assert gaussian_average(3 * a * log_cosh(b * z), z) == 3 * a * GaussianAverage(log_cosh(b * z), z)
    nested = gaussian_average(tanh(a * x + y), x, y)
    assert nested == GaussianAverage(GaussianAverage(tanh(a * x + y), x), y)
    both = gaussian_average(y**2 * tanh(x) ** 2 + x * y, x, y)
    assert both == GaussianAverage(tanh(x) ** 2, x)
    product = gaussian_average(tanh(z) * erf(z), z)
    assert product == GaussianAverage(tanh(z) * erf(z), z)
    assert gaussian_average(Max(z, 1, a), z) == GaussianAverage(Max(z, 1, a), z)


def test_matrices_stand_where_numbers_do():
    matrix = MatrixSymbol("M", 2, 2)
    average = gaussian_average(erf(Trace(matrix) + z) * Trace(matrix) ** 2, z)
    assert average == Trace(matrix) ** 2 * erf(Trace(matrix) / sqrt(3))


def test_infinite_averages_are_refused():
    with pytest.raises(ValueError, match="infinite"):
        gaussian_average(a * exp(z**2 / 2 + z), z)
    with pytest.raises(ValueError, match="infinite"):
        gaussian_average(1 + z * exp(Symbol("k", positive=True) * z**2 + z**2), z)


@pytest.mark.parametrize("variables", [(), (x, x), (x, y, z)], ids=str)
def test_one_variable_or_two_are_averaged_over(variables):
    with pytest.raises(ValueError, match="variables"):
        gaussian_average(x * y, *variables)


def test_the_imaginary_unit_is_a_constant():
    assert_close(interpret(gaussian_average(exp(I * b * z), z), {"b": 0.7}), np.exp(-0.245), 1e-14)
