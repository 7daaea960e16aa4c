"""The algebra keeps every value, and writes equal expressions alike."""

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix

from tests.expressions import SYMBOLS, H, N, P, assert_close, random_values, square
from theorykit.codegen import interpret
from theorykit.symbolic import inverse, kronecker, normal, positive_definite, quadratic_form, trace
from theorykit.symbolic.algebra import (
    as_number,
    expand_products,
    fold_asinh,
    from_terms,
    matrix_terms,
    simplify_traces,
    square_root,
)
from theorykit.symbolic.atoms import LogDet, PartialTrace, SquareRoot, principal_block

A, B, W, L, R, X, F, y, v, s, t = SYMBOLS

KRON = sp.KroneckerProduct(A, B)
DIAG = BlockDiagMatrix(A, W)
WHOLE = sp.MatrixSymbol("whole", H + H * N, H + H * N)
one = positive_definite("one", 1)


def of_every_symbol(shape, seed):
    values = random_values(shape, seed)
    size = int(values["H"] * (1 + values["N"]))
    whole = values["X"][:1, :1] + 0.3 * random_values((size, 1, 1), seed)["L"]
    return {**values, "whole": whole, "one": values["A"][:1, :1]}


def assert_same_value(after, before, values):
    assert_close(interpret(after, values), interpret(before, values), 1e-10)


def test_a_matrix_is_square_however_its_sizes_are_written():
    """As products of matrices beside a skip connection have them: one side multiplied out, the other not."""
    matrix = sp.MatrixSymbol("G", H * N + H, H * (N + 1))
    assert trace(matrix) == sp.Trace(matrix)
    column = sp.MatrixSymbol("c", H * (N + 1), 1)
    assert quadratic_form(column, matrix) == sp.Trace(column.T * matrix * column)


@given(st.tuples(square(H), square(H)))
def test_products_cancel_however_they_are_bracketed(pair):
    left, right = pair
    assert matrix_terms((left + right) * A - left * A - right * A) == ()


CANCELLING = [
    (A * sp.Inverse(A), ()),
    (sp.Inverse(A) * A, ()),
    (L * A * sp.Inverse(A) * L.T, (L, L.T)),
    (sp.Inverse(W) * KRON * sp.Inverse(KRON) * W, ()),
    (KRON * sp.KroneckerProduct(sp.Inverse(A), sp.Inverse(B)), ()),
    (sp.Inverse(2 * A) * A * 2, ()),
    (DIAG * BlockDiagMatrix(sp.Inverse(A), sp.Inverse(W)), ()),
    (sp.Inverse(sp.Inverse(A)) * sp.Inverse(A), ()),
]


@pytest.mark.parametrize(("expression", "factors"), CANCELLING, ids=str)
def test_a_matrix_beside_its_inverse_cancels(expression, factors):
    assert matrix_terms(expression) == ((1, factors),)


def test_zero_has_no_inverse_that_cancels():
    zero = BlockDiagMatrix(sp.ZeroMatrix(H, H), A)
    assert matrix_terms(zero * zero) != ((1, ()),)


EQUAL = [
    (sp.Trace(A * L * A), sp.Trace(L * A * A)),
    (sp.Trace(A * L), sp.Trace(L * A)),
    (quadratic_form(v, X * W), sp.Trace(v * v.T * X * W)),
    (sp.Trace((A + L) * A), sp.Trace(A * A) + sp.Trace(A * L)),
    (LogDet(2 * A), LogDet(A) + H * sp.log(2)),
    (LogDet(KRON), N * LogDet(A) + H * LogDet(B)),
    (LogDet(sp.Inverse(A)), -LogDet(A)),
    (LogDet(sp.Identity(P)), sp.S.Zero),
    (LogDet(W + KRON), LogDet(KRON + W)),
    (sp.log(s * t), sp.log(s) + sp.log(t)),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=str)
def test_two_spellings_of_one_number_cancel(left, right):
    assert normal(left - right) == 0


REDUCED = [
    (sp.Trace(sp.KroneckerProduct(A, sp.Identity(N)) * W), sp.Trace(A * PartialTrace(W, (H, N), 1))),
    (sp.Trace(W * sp.KroneckerProduct(sp.Identity(H), B)), sp.Trace(PartialTrace(W, (H, N), 0) * B)),
    (sp.Trace(sp.KroneckerProduct(A, sp.Identity(N))), N * sp.Trace(A)),
    (sp.Trace(PartialTrace(X, (H, N), 0)), sp.Trace(X)),
    (sp.Trace(DIAG), sp.Trace(A) + sp.Trace(W)),
    (
        sp.Trace(DIAG * WHOLE),
        sp.Trace(A * principal_block(WHOLE, (H, H * N), 0)) + sp.Trace(W * principal_block(WHOLE, (H, H * N), 1)),
    ),
]


@pytest.mark.parametrize(("whole", "smaller"), REDUCED, ids=str)
def test_reduced_traces_are_those_of_smaller_matrices(whole, smaller):
    assert simplify_traces(whole - smaller) == 0


def test_terms_and_expressions_are_inverse_to_each_other():
    assert dict((factors, c) for c, factors in matrix_terms(2 * s * (A + L) * A - A * A)) == {
        (A, A): 2 * s - 1,
        (L, A): 2 * s,
    }
    assert expand_products(X * W - X * W) == sp.ZeroMatrix(H * N, H * N)
    terms = [(2 * s, (A, L)), (sp.S.One, ()), (-t, (L,))]
    assert sorted(matrix_terms(from_terms(terms, (H, H))), key=str) == sorted(terms, key=str)
    assert from_terms([], (H, N)) == sp.ZeroMatrix(H, N)
    assert from_terms([(sp.S.One, ())], (H, H)) == sp.Identity(H)


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        (kronecker(sp.Identity(H), sp.Identity(N)), sp.Identity(H * N)),
        (kronecker(2 * sp.Identity(1), A), 2 * A),
        (kronecker(A, s * sp.Identity(1)), s * A),
        (kronecker(A, PartialTrace(sp.KroneckerProduct(L, one), (H, 1), 0)), sp.Trace(sp.KroneckerProduct(L, one)) * A),
    ],
    ids=str,
)
def test_kronecker_products_with_identities_and_numbers_are_none(product, expected):
    values = of_every_symbol((2, 3, 4), 3)
    assert not product.has(sp.KroneckerProduct)
    assert_same_value(product, expected, values)


AS_NUMBERS = [
    *(sp.Trace(one), 3 * sp.Trace(one * sp.Inverse(one) * one) + s, LogDet(one), LogDet(2 * one)),
    *(LogDet(A + sp.KroneckerProduct(A, one)), sp.Trace(sp.KroneckerProduct(L, one) * A)),
    sp.Trace(sp.Inverse(sp.KroneckerProduct(A, one)) * L),
    quadratic_form(y, sp.Inverse(F * W * F.T + sp.Trace(one) * sp.Identity(P))),
    LogDet(F * sp.KroneckerProduct(W, one) * F.T + t * sp.Identity(P)),
    *(sp.Trace(one * PartialTrace(A, (H, 1), 0)), LogDet(2 * one + 3 * sp.Identity(1))),
    *(sp.Trace(sp.Inverse(one + y.T * y) * one), H * LogDet(one) - LogDet(A)),
]


@pytest.mark.parametrize("expression", AS_NUMBERS, ids=str)
def test_a_one_by_one_matrix_may_be_written_as_its_entry(expression):
    values = of_every_symbol((2, 3, 4), 4)
    number = as_number(expression, one, s)
    assert as_number(one, one, s) == s and as_number(sp.Trace(A * L), one, s) == sp.Trace(A * L)
    assert not number.has(one)
    assert_same_value(number, expression, {**values, "one": np.array([[values["s"]]])})


def test_coefficients_of_inverses_are_inverted():
    assert inverse(sp.Rational(1, 2) * A) == 2 * sp.Inverse(A)
    assert inverse(sp.Identity(H) / s) == s * sp.Identity(H)
    assert inverse(inverse(KRON)) == KRON


@pytest.mark.parametrize(
    ("matrix", "folded"),
    [
        (4 / (s * t) * sp.Identity(H), 2 / sp.sqrt(s * t) * sp.Identity(H)),
        (s * sp.Inverse(A), sp.sqrt(s) * sp.Inverse(SquareRoot(A))),
        (sp.KroneckerProduct(sp.Identity(N), sp.Inverse(A)), None),
        (A + s * sp.Identity(H), SquareRoot(A + s * sp.Identity(H))),
    ],
    ids=str,
)
def test_roots_are_folded(matrix, folded):
    found, values = square_root(matrix), random_values((2, 3, 2), 0)
    assert folded is None or found == folded
    assert_close(interpret(found, values), interpret(SquareRoot(matrix), values))
    assert_close(interpret(found * found, values), interpret(matrix, values))
    assert matrix.is_MatAdd or not inverse(found).has(sp.Inverse)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_inverse_sine_in_an_exponent_is_a_root(sign):
    a, c, b = s, sp.Trace(A * A), sign * (t - 2 * s)
    root = sp.sqrt(c / a) * sp.exp(-sp.asinh(b / (2 * sp.sqrt(a * c))))
    values = random_values((2, 3, 2), 0)
    u = interpret(fold_asinh(root), values)
    assert not fold_asinh(root).has(sp.asinh, sp.exp) and fold_asinh(s * t) == s * t
    assert_close(u, interpret(root, values))
    assert_close(interpret(a, values) * u**2 + interpret(b, values) * u, interpret(c, values))
