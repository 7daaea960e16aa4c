"""Gradients against automatic differentiation and finite differences, and where SymPy's own derivative is wrong."""

import numpy as np
import pytest
import sympy as sp
from sympy import sign

from tests.expressions import SYMBOLS, H, assert_close, generate, random_values
from theorykit.codegen import interpret
from theorykit.symbolic import Diagonal, GaussianAverage, gradient
from theorykit.symbolic.atoms import LogDet

A, B, W, L, R, X, F, y, v, s, t = SYMBOLS


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
