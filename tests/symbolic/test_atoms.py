"""The atoms: shapes, transposes, what is kept whole, what is refused."""

import pytest
from sympy import Inverse, KroneckerProduct, MatMul, MatrixSymbol, Trace, log

from tests.expressions import A, B, H, L, N, W, X, s, v
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


def test_traces_are_written_in_their_simplest_form():
    assert partial_trace(2 * L, (H, 1), 0) == partial_trace(2 * L, (1, H), 1) == 2 * Trace(L)
    assert (log_det(s), log_det(A)) == (log(s), LogDet(A))
    assert trace(3 * s * X) == 3 * s * Trace(X)
    assert trace(Trace(L) * X) == Trace(L) * Trace(X)
    assert partial_trace(s * X, FACTORS, 0) == s * PartialTrace(X, FACTORS, 0)
    assert partial_trace(MatMul(-1, X, W), FACTORS, 1) == -PartialTrace(X * W, FACTORS, 1)
