"""Gradients against automatic differentiation and finite differences, and where SymPy's own derivative is wrong."""

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from sympy import sign

from tests.expressions import (
    SHAPES,
    SYMBOLS,
    H,
    N,
    P,
    assert_close,
    assert_gradient,
    generate,
    random_numbers,
    random_values,
    scalars,
)
from theorykit.codegen import interpret
from theorykit.symbolic import Diagonal, GaussianAverage, gradient, quadratic_form
from theorykit.symbolic.atoms import LogDet, PartialTrace

A, B, W, L, R, X, F, y, v, s, t = SYMBOLS


def symbols_of(expression):
    return [symbol for symbol in SYMBOLS if expression.has(symbol)]


@given(scalars().filter(symbols_of), st.data(), random_numbers, st.integers(0, 100))
def test_gradient_equals_jax_grad_and_finite_differences(expression, data, values, seed):
    assert_gradient(expression, data.draw(st.sampled_from(symbols_of(expression))), values, seed=seed)


PARTIAL = PartialTrace(W, (H, N), 1)
EVERY_RULE = [
    (sp.Trace(L * PartialTrace(X, (H, N), 1)), X),
    (sp.Trace(R * PartialTrace(X, (H, N), 0)), X),
    (sp.Trace(PartialTrace(X * W, (H, N), 0) * R.T), W),
    *((sp.Trace(sp.KroneckerProduct(L, R) * X), symbol) for symbol in (L, R)),
    *((LogDet(sp.KroneckerProduct(A, B) + W), symbol) for symbol in (A, B)),
    (LogDet(F * sp.KroneckerProduct(A, sp.Identity(N)) * F.T + t * sp.Identity(P)), A),
    *((quadratic_form(y, sp.Inverse(F * W * F.T + t * sp.Identity(P))), symbol) for symbol in (W, F, y, t)),
    (quadratic_form(v, X), v),
    (sp.Trace(sp.MatPow(L, 3)), L),
    (sp.Trace(sp.MatPow(A, -2)), A),
    (sp.Trace(X.T * X), X),
    (sp.Trace(L) ** 2 * LogDet(A) + sp.log(sp.Trace(A)) * sp.exp(-sp.Trace(L)), L),
    (s ** sp.Trace(L), L),
    (s ** (t * s), s),
    (sp.Trace(sp.Trace(L) * L * A), L),
    (LogDet(s * A + t**2 * sp.Identity(H)), t),
    (s * sp.Trace(A * L * PARTIAL), W),
    (sp.Trace(A * sp.Inverse(PARTIAL)), W),
    (LogDet(sp.Identity(H) + sp.Inverse(PARTIAL)), W),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("expression", "symbol"), EVERY_RULE, ids=str)
def test_every_rule_gives_the_gradient(expression, symbol, shape):
    assert_gradient(expression, symbol, random_values(shape, 1))


SILENT_FAILURES_OF_SYMPY = [
    (LogDet(L.T * L + sp.Identity(H)), L, 2 * L * sp.Inverse(L.T * L + sp.Identity(H))),
    (LogDet(A), A, sp.Inverse(A)),
    (sp.Trace(L) + sp.Trace(A * L), L, sp.Identity(H) + A),
    (3 * sp.Trace(L) - sp.Trace(L.T * L), L, 3 * sp.Identity(H) - 2 * L),
    (sp.log(sp.Trace(A)), A, sp.Identity(H) / sp.Trace(A)),
    (sp.exp(-sp.Trace(A * L)), L, -sp.exp(-sp.Trace(A * L)) * A),
    (sp.Trace(L) * sp.Trace(L), L, 2 * sp.Trace(L) * sp.Identity(H)),
]


@pytest.mark.parametrize(("expression", "symbol", "expected"), SILENT_FAILURES_OF_SYMPY, ids=str)
def test_gradient_is_right_where_sympy_is_silently_wrong(expression, symbol, expected):
    values = random_values((2, 3, 4), 3)
    result = interpret(gradient(expression, symbol), values)
    assert np.linalg.norm(result) > 0
    assert_close(result, interpret(expected, values), 1e-12)


def test_a_kronecker_factor_of_size_one_has_a_gradient():
    one = sp.MatrixSymbol("one", 1, 1)
    values = random_values((2, 3, 4), 4) | {"one": np.array([[0.7]])}
    for product in (sp.KroneckerProduct(one, A), sp.KroneckerProduct(A, one)):
        result = interpret(gradient(sp.Trace(product * L), one), values)
        assert_close(result, [[interpret(sp.Trace(A * L), values)]], 1e-12)


@pytest.mark.parametrize("symbol", [A, X, v], ids=str)
def test_a_zero_gradient_is_a_matrix_of_zeros(symbol):
    assert gradient(LogDet(X), X) == sp.Inverse(X).T and gradient(sp.Trace(A), s) == 0
    values, zero = random_values((2, 3, 4), 0), gradient(s**2, symbol)
    expected = np.zeros_like(values[symbol.name])
    assert_close(interpret(zero, values), expected)
    assert_close(generate(zero)(values), expected)


WITHOUT_A_RULE = [
    (sp.Determinant(A), A, "Determinant"),
    (sp.Trace(sp.HadamardProduct(A, L)), L, "HadamardProduct"),
    (A[0, 1] ** 2, A, "MatrixElement"),
    (sp.Trace(Diagonal(L) * Diagonal(A).T), L, "Diagonal"),
    (sp.Heaviside(s - 2), s, "Heaviside"),
    (sign(s * t - 2), s, "sign"),
    (GaussianAverage(sp.Heaviside(sp.tanh(t) * s - 2), t), s, "Heaviside"),
    (GaussianAverage(sp.Heaviside(s - 2) * sp.tanh(t), t), s, "Heaviside"),
    (sp.floor(s * t), s, "floor"),
    (sp.Trace(sp.MatPow(A, sp.Rational(1, 2))), A, "MatPow|powers"),
    (sp.Trace(sp.MatPow(A, sp.Symbol("k", integer=True))), A, "MatPow|powers"),
    (sp.Trace(sp.KroneckerProduct(A, B, A)), A, "KroneckerProduct"),
    (sp.Trace(sp.KroneckerProduct(F, F.T)), F, "KroneckerProduct"),
]


@pytest.mark.parametrize(("expression", "symbol", "name"), WITHOUT_A_RULE, ids=str)
def test_a_node_without_a_rule_is_named_and_never_zero(expression, symbol, name):
    with pytest.raises(NotImplementedError, match=name):
        gradient(expression, symbol)
