"""The atoms: shapes, transposes, what is kept whole, what is refused."""

import pytest
from hypothesis import given
from sympy import Identity, Inverse, KroneckerProduct, MatMul, MatrixSymbol, Symbol, Trace, log

from tests.expressions import A, B, H, L, N, R, W, X, assert_close, random_numbers, s, square, v
from theorykit.codegen import interpret
from theorykit.symbolic import (
    Diagonal,
    gradient,
    log_det,
    partial_trace,
    positive_definite,
    positive_semidefinite,
    quadratic_form,
    trace,
)
from theorykit.symbolic.atoms import LogDet, PartialTrace, PositiveDefiniteSymbol

FACTORS = (H, N)


def test_a_definite_symbol_keeps_its_name_and_kind():
    assert isinstance(A, PositiveDefiniteSymbol)
    assert A.shape == (H, H) and A.T == A and Inverse(A).T.doit() == Inverse(A) and (A * L).T.doit() == L.T * A
    assert A.subs(H, 2) == positive_definite("A", 2)
    assert MatrixSymbol("A", H, H) != A
    assert hash(A) == hash(positive_definite("A", H))


def test_a_semidefinite_symbol_is_symmetric_but_has_no_factor_of_its_own():
    gram = positive_semidefinite("M", H)
    assert gram == gram.T and gram.subs(H, 2) == positive_semidefinite("M", 2)
    assert gradient(trace(L * gram), gram) == L / 2 + L.T / 2


def test_atoms_have_their_shapes_and_parts_and_are_kept_whole():
    for traced, dimension in enumerate(FACTORS):
        atom = PartialTrace(X, FACTORS, traced)
        assert (atom.matrix, tuple(atom.dimensions), atom.traced) == (X, FACTORS, traced)
        assert atom.traced_dimension == dimension and atom.shape == (FACTORS[1 - traced],) * 2
        with pytest.raises(NotImplementedError, match="PartialTrace"):
            atom[0, 0]
    assert Diagonal(X).shape == (H * N, 1) and Diagonal(X)[1, 0] == X[1, 1]
    assert quadratic_form(v, X).arg.shape == (1, 1)
    whole = LogDet(KroneckerProduct(A, B))
    assert whole.doit() == whole and whole.is_real and whole.is_commutative


def test_atoms_are_substituted_into():
    assert LogDet(A).subs(A, Inverse(A)) == LogDet(Inverse(A))
    assert PartialTrace(X, FACTORS, 0).subs(X, W) == PartialTrace(W, FACTORS, 0)
    assert PartialTrace(X, FACTORS, 0).subs({H: 2, N: 3}) == PartialTrace(MatrixSymbol("X", 6, 6), (2, 3), 0)
    assert Diagonal(X).subs(X, W) == Diagonal(W)


@pytest.mark.parametrize("traced", [0, 1])
@given(square(H * N), random_numbers)
def test_the_transpose_of_a_partial_trace_is_that_of_the_transpose(traced, matrix, values):
    atom = PartialTrace(matrix, FACTORS, traced)
    assert_close(interpret(atom.T, values), interpret(atom, values).T, 1e-12)


@given(square(H), square(N), random_numbers)
def test_partial_traces_take_kronecker_products_apart(left, right, values):
    product = KroneckerProduct(left, right)
    for traced, expected in ((0, Trace(left) * right), (1, Trace(right) * left)):
        assert_close(interpret(PartialTrace(product, FACTORS, traced), values), interpret(expected, values))


def test_traces_are_written_in_their_simplest_form():
    assert partial_trace(2 * L, (H, 1), 0) == partial_trace(2 * L, (1, H), 1) == 2 * Trace(L)
    assert (log_det(s), log_det(A)) == (log(s), LogDet(A))
    assert trace(3 * s * X) == 3 * s * Trace(X)
    assert trace(Trace(L) * X) == Trace(L) * Trace(X)
    assert partial_trace(s * X, FACTORS, 0) == s * PartialTrace(X, FACTORS, 0)
    assert partial_trace(MatMul(-1, X, W), FACTORS, 1) == -PartialTrace(X * W, FACTORS, 1)


def test_factors_may_be_expressions_of_sizes():
    size = Symbol("k", integer=True, positive=True)
    matrix = MatrixSymbol("Z", size * H * N, size * H * N)
    assert PartialTrace(matrix, (size * H, N), 0).shape == (N, N)
    assert PartialTrace(KroneckerProduct(R, Identity(H)), (N, H), 1).shape == (N, N)
