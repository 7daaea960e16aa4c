"""The algebra keeps every value, and writes equal expressions alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import (
    Identity,
    Inverse,
    KroneckerProduct,
    MatMul,
    MatPow,
    MatrixSymbol,
    Rational,
    S,
    Trace,
    ZeroMatrix,
    expand,
    log,
)
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix

from tests.expressions import (
    SHAPES,
    A,
    B,
    F,
    H,
    L,
    N,
    P,
    R,
    W,
    X,
    assert_close,
    definite,
    matrices,
    random_numbers,
    random_values,
    s,
    scalars,
    square,
    square_sizes,
    t,
    v,
    y,
)
from theorykit.codegen import interpret
from theorykit.symbolic import (
    LogDet,
    PartialTrace,
    SideBySide,
    Stacked,
    algebra,
    as_number,
    expand_products,
    from_terms,
    inverse,
    kronecker,
    log_det,
    matrix_terms,
    normal,
    positive_definite,
    principal_block,
    quadratic_form,
    simplify_traces,
    trace,
    transpose,
)

KRON = KroneckerProduct(A, B)
DIAG = BlockDiagMatrix(A, W)
WHOLE = MatrixSymbol("whole", H + H * N, H + H * N)
one = positive_definite("one", 1)

# what the algebra has a rule for, each in a place where the rule applies
MATRICES = [
    (A + L) * (A - L),
    MatMul(s, MatMul(2, L + A, A), Identity(H)),
    KroneckerProduct(A + L, R - 2 * B),
    KroneckerProduct(2 * A, s * Identity(N)) * X,
    (KRON + W) * (X - KRON),
    Inverse(2 * s * W) * X,
    Inverse(KroneckerProduct(2 * A, B)) * X,
    PartialTrace(X + 2 * W, (H, N), 0) * R,
    Stacked(X * (v + 2 * v), 1) + X * v,
    Stacked(F * (X + 2 * W), H),
    SideBySide(X * (2 * X - W), N),
    (L * A + A).T * L,
    MatPow(X, 3) * W,
    L * ZeroMatrix(H, H) + A,
    (F * X + F * W).T * (F * X - F * W),
]
SCALARS = [
    Trace((A + L) * (A - L)),
    Trace(KroneckerProduct(A, Identity(N)) * X),
    Trace(KroneckerProduct(Identity(H), B) * X * W),
    Trace(X * KroneckerProduct(A, Identity(N)) * W * KroneckerProduct(Identity(H), R)),
    Trace(KroneckerProduct(A, B)) + Trace(Identity(H * N)),
    Trace(PartialTrace(X, (H, N), 0)) * Trace(PartialTrace(W * X, (H, N), 1)),
    Trace(A * PartialTrace(X * KroneckerProduct(L, R), (H, N), 1)),
    LogDet(KRON),
    LogDet(3 * s * KRON),
    LogDet(Inverse(KRON)),
    LogDet(KroneckerProduct(A, Identity(N))),
    LogDet(DIAG) + LogDet(s * Inverse(W)),
    LogDet(2 * A + s * A),
    LogDet(F * W * F.T + t * Identity(P)),
    Trace(DIAG * WHOLE),
    Trace(WHOLE * BlockDiagMatrix(L, X) * WHOLE * DIAG),
    quadratic_form(v, W + KRON) * s,
    log(2 * s * t) + Trace(2 * y * y.T) ** 2,
]


def of_every_symbol(shape, seed):
    values = random_values(shape, seed)
    size = int(values["H"] * (1 + values["N"]))
    whole = values["X"][:1, :1] + 0.3 * random_values((size, 1, 1), seed)["L"]
    return {**values, "whole": whole, "one": values["A"][:1, :1]}


def assert_same_value(after, before, values):
    assert_close(interpret(after, values), interpret(before, values), 1e-10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("expression", MATRICES, ids=str)
def test_every_rule_for_matrices_keeps_their_value(expression, shape):
    values = of_every_symbol(shape, 1)
    assert_same_value(expand_products(expression), expression, values)
    assert_same_value(transpose(expression), expression.T, values)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("expression", SCALARS, ids=str)
def test_every_rule_for_scalars_keeps_their_value(expression, shape):
    values = of_every_symbol(shape, 2)
    assert_same_value(normal(expression), expression, values)
    assert_same_value(simplify_traces(expression), expression, values)


@given(matrices(), random_numbers)
def test_expanding_keeps_the_value_of_any_matrix(expression, values):
    assert_same_value(expand_products(expression), expression, values)


@given(matrices(), random_numbers)
def test_transposing_keeps_the_value_of_any_matrix(expression, values):
    assert_close(interpret(transpose(expression), values), interpret(expression, values).T, 1e-10)


@given(scalars(), random_numbers)
def test_normal_and_reduced_keep_the_value_of_any_scalar(expression, values):
    assert_same_value(normal(expression), expression, values)
    assert_same_value(simplify_traces(expression), expression, values)


@given(square_sizes.flatmap(definite), random_numbers)
def test_the_inverse_has_the_value_of_the_inverse(expression, values):
    product = interpret(inverse(expression), values) @ interpret(expression, values)
    assert_close(product, interpret(Identity(expression.shape[0]), values), 1e-6)


@given(square(H), square(N), random_numbers)
def test_kronecker_products_keep_their_value_and_give_up_coefficients(left, right, values):
    product = kronecker(2 * left.doit(), s * right.doit())
    formed = np.kron(interpret(left, values), interpret(right, values))
    assert_close(interpret(product, values), 2 * values["s"] * formed, 1e-10)


@given(matrices())
def test_expanding_twice_is_expanding_once(expression):
    once = expand_products(expression)
    assert expand_products(once) == once


@given(scalars())
def test_the_normal_form_of_a_normal_form_is_itself(expression):
    once = normal(expression)
    assert normal(once) == once


@given(st.one_of(matrices(), scalars()))
def test_what_is_called_expanded_is_not_changed_by_expanding(expression):
    for node in expression.atoms(Trace, LogDet) | {expression}:
        if algebra._is_expanded(node):
            assert expand(node, log=True) == node


def test_what_can_be_expanded_is_not_called_expanded():
    for node in (
        s * (s + t),
        (s + t) ** 2,
        s ** (s + t),
        log(s * t),
        L * (A + L),
        s + log(t),
    ):
        assert not algebra._is_expanded(node)
    for node in (s * t, s**2 + t, L * A, Trace(L * A.I), LogDet(A + s * L), Inverse(A + L) * A):
        assert algebra._is_expanded(node)


def test_a_matrix_is_square_however_its_sizes_are_written():
    """As products of matrices beside a skip connection have them: one side multiplied out, the other not."""
    matrix = MatrixSymbol("G", H * N + H, H * (N + 1))
    assert trace(matrix) == Trace(matrix)
    column = MatrixSymbol("c", H * (N + 1), 1)
    assert quadratic_form(column, matrix) == Trace(column.T * matrix * column)


@given(square_sizes.flatmap(square))
def test_a_matrix_less_itself_has_no_terms(expression):
    assert matrix_terms(expression - expression) == []
    assert expand_products(expression - expression) == ZeroMatrix(*expression.shape)


@given(st.tuples(square(H), square(H)))
def test_products_cancel_however_they_are_bracketed(pair):
    left, right = pair
    assert matrix_terms((left + right) * A - left * A - right * A) == []


CANCELLING = [
    (A * Inverse(A), ()),
    (Inverse(A) * A, ()),
    (L * A * Inverse(A) * L.T, (L, L.T)),
    (Inverse(W) * KRON * Inverse(KRON) * W, ()),
    (KRON * KroneckerProduct(Inverse(A), Inverse(B)), ()),
    (Inverse(2 * A) * A * 2, ()),
    (DIAG * BlockDiagMatrix(Inverse(A), Inverse(W)), ()),
    (Inverse(Inverse(A)) * Inverse(A), ()),
]


@pytest.mark.parametrize(("expression", "factors"), CANCELLING, ids=str)
def test_a_matrix_beside_its_inverse_cancels(expression, factors):
    assert matrix_terms(expression) == [(1, factors)]


def test_zero_has_no_inverse_that_cancels():
    zero = BlockDiagMatrix(ZeroMatrix(H, H), A)
    assert matrix_terms(zero * zero) != [(1, ())]


EQUAL = [
    (Trace(A * L * A), Trace(L * A * A)),
    (Trace(A * L), Trace(L * A)),
    (quadratic_form(v, X * W), Trace(v * v.T * X * W)),
    (Trace((A + L) * A), Trace(A * A) + Trace(A * L)),
    (LogDet(2 * A), LogDet(A) + H * log(2)),
    (LogDet(KRON), N * LogDet(A) + H * LogDet(B)),
    (LogDet(Inverse(A)), -LogDet(A)),
    (LogDet(Identity(P)), S.Zero),
    (LogDet(W + KRON), LogDet(KRON + W)),
    (log(s * t), log(s) + log(t)),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=str)
def test_two_spellings_of_one_number_cancel(left, right):
    assert normal(left - right) == 0


REDUCED = [
    (Trace(KroneckerProduct(A, Identity(N)) * W), Trace(A * PartialTrace(W, (H, N), 1))),
    (Trace(W * KroneckerProduct(Identity(H), B)), Trace(PartialTrace(W, (H, N), 0) * B)),
    (Trace(KroneckerProduct(A, Identity(N))), N * Trace(A)),
    (Trace(PartialTrace(X, (H, N), 0)), Trace(X)),
    (Trace(DIAG), Trace(A) + Trace(W)),
    (
        Trace(DIAG * WHOLE),
        Trace(A * principal_block(WHOLE, (H, H * N), 0)) + Trace(W * principal_block(WHOLE, (H, H * N), 1)),
    ),
]


@pytest.mark.parametrize(("whole", "smaller"), REDUCED, ids=str)
def test_reduced_traces_are_those_of_smaller_matrices(whole, smaller):
    assert simplify_traces(whole - smaller) == 0


def test_terms_have_coefficients_apart_and_no_sums():
    terms = dict((factors, c) for c, factors in matrix_terms(2 * s * (A + L) * A - A * A))
    assert terms == {(A, A): 2 * s - 1, (L, A): 2 * s}


def test_terms_and_expressions_are_inverse_to_each_other():
    terms = [(2 * s, (A, L)), (S.One, ()), (-t, (L,))]
    assert sorted(matrix_terms(from_terms(terms, (H, H))), key=str) == sorted(terms, key=str)
    assert from_terms([], (H, N)) == ZeroMatrix(H, N)
    assert from_terms([(S.One, ())], (H, H)) == Identity(H)


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        (kronecker(Identity(H), Identity(N)), Identity(H * N)),
        (kronecker(2 * Identity(1), A), 2 * A),
        (kronecker(A, s * Identity(1)), s * A),
        (kronecker(A, PartialTrace(KroneckerProduct(L, one), (H, 1), 0)), Trace(KroneckerProduct(L, one)) * A),
    ],
    ids=str,
)
def test_kronecker_products_with_identities_and_numbers_are_none(product, expected):
    values = of_every_symbol((2, 3, 4), 3)
    assert not product.has(KroneckerProduct)
    assert_same_value(product, expected, values)


AS_NUMBERS = [
    Trace(one),
    3 * Trace(one * Inverse(one) * one) + s,
    LogDet(one),
    LogDet(2 * one),
    LogDet(A + KroneckerProduct(A, one)),
    Trace(KroneckerProduct(L, one) * A),
    Trace(Inverse(KroneckerProduct(A, one)) * L),
    quadratic_form(y, Inverse(F * W * F.T + Trace(one) * Identity(P))),
    LogDet(F * KroneckerProduct(W, one) * F.T + t * Identity(P)),
    Trace(one * PartialTrace(A, (H, 1), 0)),
    LogDet(2 * one + 3 * Identity(1)),
    Trace(Inverse(one + y.T * y) * one),
    H * LogDet(one) - LogDet(A),
]


@pytest.mark.parametrize("expression", AS_NUMBERS, ids=str)
def test_a_one_by_one_matrix_may_be_written_as_its_entry(expression):
    values = of_every_symbol((2, 3, 4), 4)
    number = as_number(expression, one, s)
    assert not number.has(one)
    assert_same_value(number, expression, {**values, "one": np.array([[values["s"]]])})


def test_as_number_leaves_alone_what_does_not_hold_the_matrix():
    assert as_number(Trace(A * L), one, s) == Trace(A * L)
    assert as_number(one, one, s) == s
    assert log_det(as_number(one, one, s)) == log(s)


def test_coefficients_of_inverses_are_inverted():
    assert inverse(Rational(1, 2) * A) == 2 * Inverse(A)
    assert inverse(Identity(H) / s) == s * Identity(H)
    assert inverse(inverse(KRON)) == KRON
