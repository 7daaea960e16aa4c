"""Scalar functions of generated code: far out, and their derivatives of first and second order."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from sympy import Integer, Max, Min, Symbol, acos, asin, atanh, erf, erfc, sqrt

from tests.expressions import assert_close
from theorykit.codegen import BATCH, MATRICES, compile_expressions, interpret
from theorykit.symbolic import gradient, latex, log_cosh, log_normal_cdf

X = Symbol("x", real=True)
FUNCTIONS = {
    log_cosh: lambda x: mpmath.log(mpmath.cosh(x)),
    log_normal_cdf: lambda x: mpmath.log(mpmath.ncdf(x)),
    erf: mpmath.erf,
    erfc: mpmath.erfc,
    lambda x: asin(x / 40): lambda x: mpmath.asin(x / 40),
    lambda x: acos(x / 40): lambda x: mpmath.acos(x / 40),
    lambda x: atanh(x / 40): lambda x: mpmath.atanh(x / 40),
    lambda x: sqrt(x**2 + 1): lambda x: mpmath.sqrt(x**2 + 1),
}
POINTS = (-30.0, -5.5, -1.0, 0.0, 1e-9, 0.3, 2.0, 8.0, 30.0)


def compiled(expression, vocabulary=MATRICES):
    function = compile_expressions("function", {"value": expression}, (X,), vocabulary)
    return lambda x: function(x=x)["value"]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: str(function(X)))
def test_values_and_derivatives_are_those_of_many_digits(function):
    expression, exact = function(X), FUNCTIONS[function]
    slope, curvature = gradient(expression, X), gradient(gradient(expression, X), X)
    automatic = (compiled(expression), jax.grad(compiled(expression)), jax.grad(jax.grad(compiled(expression))))
    with mpmath.workdps(50):
        for point in POINTS:
            for order, (written, generated) in enumerate(zip((expression, slope, curvature), automatic, strict=True)):
                expected = float(mpmath.diff(exact, mpmath.mpf(point), order))
                # as a formula the curvature of a tail is a difference of large numbers
                tolerance = 1e-13 if point > -10 else 1e-9
                assert_close(generated(point), expected, 1e-13)
                assert_close(compiled(written)(point), expected, tolerance)
                assert_close(interpret(written, {"x": point}), expected, tolerance)


@pytest.mark.parametrize("point", [-1e3, 1e3, -1e8, 1e8])
def test_far_out_nothing_overflows(point):
    even, tail = compiled(log_cosh(X)), compiled(log_normal_cdf(X))
    assert_close(even(point), abs(point) - np.log(2), 1e-15)
    assert (jax.grad(even)(point), jax.grad(jax.grad(even))(point)) == (np.sign(point), 0)
    leading = -(point**2) / 2 - np.log(-point * np.sqrt(2 * np.pi)) if point < 0 else 0.0
    assert_close(tail(point), leading, 1e-9)
    if abs(point) < 1e4:
        slope = interpret(gradient(log_normal_cdf(X), X), {"x": point})
        assert_close(slope, -point if point < 0 else 0.0, 1e-5)


def test_functions_know_their_symmetries_and_signs():
    assert log_cosh(-X) == log_cosh(X) and log_cosh(Integer(0)) == 0
    assert log_cosh(X).is_nonnegative and log_normal_cdf(X).is_negative
    assert log_cosh(X).rewrite("log").func.__name__ == "log"


def test_largest_and_smallest():
    y = Symbol("y", real=True)
    for point, other in ((0.3, -2.0), (-0.7, 1.5)):
        values = {"x": point, "y": other}
        for vocabulary in (MATRICES, BATCH):
            both = compile_expressions("f", {"max": Max(X, y, 0), "min": X * Min(X, y)}, (X, y), vocabulary)(**values)
            assert both == {"max": max(point, other, 0), "min": point * min(point, other)}
        assert interpret(Max(X, y, 0), values) == max(point, other, 0)
        slope = gradient(X * Max(X, y), X)
        assert interpret(slope, values) == compile_expressions("f", {"d": slope}, (X, y))(**values)["d"]
        assert interpret(slope, values) == (2 * point if point > other else other)


def test_how_functions_are_written():
    assert latex(log_normal_cdf(X)) == r"\log\Phi\left(x\right)"
    assert latex(log_normal_cdf(X) ** 2) == r"\left(\log\Phi\left(x\right)\right)^{2}"
    assert latex(log_cosh(X)) == r"\log\left(\cosh{\left(x \right)}\right)"


def test_a_batch_has_the_same_functions():
    points = jnp.array([-2.0, 0.1, 3.0])
    for function in FUNCTIONS:
        expected = [interpret(function(X), {"x": float(point)}) for point in points]
        assert_close(compiled(function(X), BATCH)(points), expected, 1e-12)
