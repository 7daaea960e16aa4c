"""Positive definiteness from form: what is claimed holds in numbers, and nothing is guessed."""

import numpy as np
import pytest
from hypothesis import given
from sympy import Identity, Inverse, KroneckerProduct, MatMul, MatPow, MatrixSymbol, Rational, Symbol, Trace, ZeroMatrix

from tests.expressions import A, B, F, H, L, N, P, R, W, X, definite, random_numbers, s, square, square_sizes, t, v, y
from theorykit.codegen import interpret
from theorykit.symbolic import Diagonal, positive_definite
from theorykit.symbolic.atoms import PartialTrace
from theorykit.symbolic.matrix_functions import is_positive_definite, is_positive_semidefinite

real = Symbol("real", real=True)


def smallest_eigenvalue(matrix):
    """In units of the largest."""
    assert np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-10 * np.abs(matrix).max())
    eigenvalues = np.linalg.eigvalsh(matrix)
    return eigenvalues[0] / max(abs(eigenvalues[-1]), 1e-300)


@given(square_sizes.flatmap(definite), random_numbers)
def test_definite_expressions_are_recognised_and_are_definite(expression, values):
    assert is_positive_definite(expression)
    assert smallest_eigenvalue(interpret(expression, values)) > 1e-12


@given(square_sizes.flatmap(square), random_numbers)
def test_what_is_claimed_of_any_expression_holds(expression, values):
    if is_positive_definite(expression):
        assert is_positive_semidefinite(expression)
        assert smallest_eigenvalue(interpret(expression, values)) > 1e-12
    elif is_positive_semidefinite(expression):
        assert smallest_eigenvalue(interpret(expression, values)) > -1e-12


DEFINITE = [
    A,
    A.T,
    Identity(H),
    Inverse(A),
    Inverse(Inverse(A) + A),
    KroneckerProduct(A, Identity(N), B),
    PartialTrace(KroneckerProduct(A, B), (H, N), 0),
    A + Identity(H),
    Rational(1, 2) * A,
    s * t * Inverse(A),
    MatMul(s, MatMul(t, A)),
    F * W * F.T + t * Identity(P),
    F * F.T + t * Identity(P),
    X.T * X + W,
    y * y.T + Identity(P),
    X.T * F.T * (F * W * F.T + Identity(P)) * F * X + s * W,
]


@pytest.mark.parametrize("expression", DEFINITE, ids=str)
def test_definite_by_form(expression):
    assert is_positive_definite(expression)
    assert is_positive_semidefinite(expression)


SEMIDEFINITE = [
    F * W * F.T,
    F * F.T,
    y * y.T,
    MatMul(2, X.T, X),
    L.T * A * L,
    L.T * L * L.T * L,
    A * L * L.T * A,
    F * X * W * X.T * F.T + y * y.T,
    X * KroneckerProduct(A, Identity(N)) * X.T,
]


@pytest.mark.parametrize("expression", SEMIDEFINITE, ids=str)
def test_semidefinite_by_form_but_not_provably_definite(expression):
    assert is_positive_semidefinite(expression)
    assert not is_positive_definite(expression)


UNKNOWN = [
    L,
    MatrixSymbol("A", H, H),
    MatrixSymbol("K", 1, 1),
    A - Inverse(A),
    -A,
    A - Identity(H),
    real * A,
    Trace(L) * A,
    (1 - s) * A,
    A * L,
    L * A * L,
    A * Inverse(A + Identity(H)),
    L + L.T,
    MatPow(L, 2),
    KroneckerProduct(A, L),
    KroneckerProduct(-A, R),
    PartialTrace(X, (H, N), 1),
    A + L.T * L - L * L.T,
    F * X * F.T + Identity(P),
    Inverse(L),
    -L.T * L,
    A + real * Identity(H),
    F * W * F.T - t * Identity(P),
    X.T * W * X * W,
    X + W,
    v * y.T * F,
    A - L.T * L,
    Diagonal(A) * Diagonal(A).T - A,
]


@pytest.mark.parametrize("expression", UNKNOWN, ids=str)
def test_what_is_not_provable_is_not_claimed(expression):
    assert not is_positive_definite(expression)
    assert not is_positive_semidefinite(expression)


def test_a_rectangular_matrix_is_nothing_of_the_kind():
    assert not is_positive_definite(F)
    assert not is_positive_semidefinite(F * X)
    assert not is_positive_definite(ZeroMatrix(H, H))


def test_definiteness_survives_substitution():
    assert is_positive_definite((A + s * Identity(H)).subs({H: 3, s: 2}))
    assert not is_positive_definite((A + s * Identity(H)).subs(s, -2))
    assert is_positive_definite(L.T * L + A.subs(A, positive_definite("C", H)))
