"""Positive definiteness from form: what is claimed holds in numbers, and nothing is guessed."""

import numpy as np
import pytest
from hypothesis import given
from sympy import (
    Identity,
    Inverse,
    KroneckerProduct,
    MatMul,
    MatPow,
    MatrixSymbol,
    OneMatrix,
    Rational,
    Symbol,
    Trace,
    ZeroMatrix,
)
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix

from tests.expressions import SYMBOLS, H, N, P, definite, random_numbers, random_values, square, square_sizes
from theorykit.codegen import interpret
from theorykit.symbolic import Diagonal, SquareRoot, positive_definite, positive_semidefinite
from theorykit.symbolic.atoms import PartialTrace, PrincipalBlock, Stacked, embed
from theorykit.symbolic.matrix_functions import is_positive_definite, is_positive_semidefinite

A, B, W, L, R, X, F, y, v, s, t = SYMBOLS
real = Symbol("real", real=True)
SIZES = (H, H * N)
J = BlockDiagMatrix(A, W) + BlockDiagMatrix(Identity(H), W)
GRAM = positive_semidefinite("M", H)


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
    *(A, A.T, Identity(H), Inverse(A), Inverse(Inverse(A) + A), KroneckerProduct(A, Identity(N), B)),
    *(PartialTrace(KroneckerProduct(A, B), (H, N), 0), A + Identity(H), Rational(1, 2) * A, s * t * Inverse(A)),
    *(MatMul(s, MatMul(t, A)), F * W * F.T + t * Identity(P), F * F.T + t * Identity(P), X.T * X + W),
    *(y * y.T + Identity(P), X.T * F.T * (F * W * F.T + Identity(P)) * F * X + s * W, BlockDiagMatrix(A, W)),
    *(PrincipalBlock(J, SIZES, 0), PrincipalBlock(BlockDiagMatrix(A, W) + J, SIZES, 1), SquareRoot(2 * A)),
    Inverse(PrincipalBlock(J, SIZES, 1)) + KroneckerProduct(A, Identity(N)),
]


@pytest.mark.parametrize("expression", DEFINITE, ids=str)
def test_definite_by_form(expression):
    assert is_positive_definite(expression) and is_positive_semidefinite(expression)
    assert smallest_eigenvalue(interpret(expression, random_values((2, 3, 4), 0))) > 0


SEMIDEFINITE = [
    *(F * W * F.T, F * F.T, y * y.T, MatMul(2, X.T, X), L.T * A * L, L.T * L * L.T * L, A * L * L.T * A),
    *(F * X * W * X.T * F.T + y * y.T, X * KroneckerProduct(A, Identity(N)) * X.T, OneMatrix(H, H)),
    *(KroneckerProduct(OneMatrix(H, H), A), KroneckerProduct(X.T * X, A)),
]


@pytest.mark.parametrize("expression", SEMIDEFINITE, ids=str)
def test_semidefinite_by_form_but_not_provably_definite(expression):
    assert is_positive_semidefinite(expression) and not is_positive_definite(expression)
    assert is_positive_definite(expression + Identity(expression.shape[0]))
    assert smallest_eigenvalue(interpret(expression, random_values((2, 3, 4), 0))) > -1e-12


UNKNOWN = [
    *(L, MatrixSymbol("A", H, H), MatrixSymbol("K", 1, 1), A - Inverse(A), -A, A - Identity(H), real * A),
    *(Trace(L) * A, (1 - s) * A, A * L, L * A * L, A * Inverse(A + Identity(H)), L + L.T, MatPow(L, 2)),
    *(KroneckerProduct(A, L), KroneckerProduct(-A, R), PartialTrace(X, (H, N), 1), A + L.T * L - L * L.T),
    *(F * X * F.T + Identity(P), Inverse(L), -L.T * L, A + real * Identity(H), F * W * F.T - t * Identity(P)),
    *(X.T * W * X * W, X + W, v * y.T * F, A - L.T * L, Diagonal(A) * Diagonal(A).T - A, F, F * X),
    *(ZeroMatrix(H, H), BlockDiagMatrix(A, X), embed(A, SIZES, 0)),
    *(PrincipalBlock(BlockDiagMatrix(L, W), SIZES, 1), SquareRoot(L)),
    *(Stacked(MatrixSymbol("square", H, H**2), H), BlockDiagMatrix(A, -W)),
    *(KroneckerProduct(OneMatrix(H, H), L), OneMatrix(H, N)),
]


@pytest.mark.parametrize("expression", UNKNOWN, ids=str)
def test_what_is_not_provable_is_not_claimed(expression):
    assert not is_positive_definite(expression) and not is_positive_semidefinite(expression)


def test_definiteness_survives_substitution():
    assert is_positive_semidefinite(GRAM) and not is_positive_definite(GRAM)
    assert is_positive_definite(GRAM + s * Identity(H)) and is_positive_semidefinite(A + GRAM)
    assert is_positive_definite((A + s * Identity(H)).subs({H: 3, s: 2}))
    assert not is_positive_definite((A + s * Identity(H)).subs(s, -2))
    assert is_positive_definite(L.T * L + A.subs(A, positive_definite("C", H)))
