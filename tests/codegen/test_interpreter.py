"""The interpreter, the oracle of the other tests, against NumPy written out by hand."""

import numpy as np
import pytest
from sympy import (
    Abs,
    Determinant,
    Function,
    HadamardProduct,
    Identity,
    Inverse,
    KroneckerProduct,
    MatMul,
    MatPow,
    Rational,
    Symbol,
    Trace,
    ZeroMatrix,
    besselj,
    exp,
    log,
    pi,
    sqrt,
    zeta,
)

from tests.expressions import SHAPES, A, B, F, H, L, N, P, R, W, X, assert_close, random_values, s, t, v, y
from theorykit.codegen import interpret
from theorykit.symbolic import Diagonal, LogDet, PartialTrace, quadratic_form


def sum_over_outer(a, x):
    """Partial trace over the first factor of size `a`, index by index."""
    b = len(x) // a
    return np.array([[sum(x[h * b + i, h * b + j] for h in range(a)) for j in range(b)] for i in range(b)])


def sum_over_inner(b, x):
    """Partial trace over the second factor of size `b`, index by index."""
    a = len(x) // b
    return np.array([[sum(x[i * b + k, j * b + k] for k in range(b)) for j in range(a)] for i in range(a)])


def kronecker(left, right):
    """Index by index."""
    rows, columns = left.shape[0] * right.shape[0], left.shape[1] * right.shape[1]
    result = np.empty((rows, columns))
    for i, j in np.ndindex(rows, columns):
        (a, b), (c, d) = divmod(i, right.shape[0]), divmod(j, right.shape[1])
        result[i, j] = left[a, c] * right[b, d]
    return result


def eigenvalues(matrix):
    return np.linalg.eigvalsh(matrix)


NODES = [
    (X * W * X.T, lambda V: V["X"] @ V["W"] @ V["X"].T),
    (MatMul(2, s, L, A), lambda V: 2 * V["s"] * V["L"] @ V["A"]),
    (X + W / 2 - s * Identity(H * N), lambda V: V["X"] + V["W"] / 2 - V["s"] * np.eye(len(V["X"]))),
    (MatPow(X, 3), lambda V: V["X"] @ V["X"] @ V["X"]),
    (MatPow(A, -2), lambda V: np.linalg.inv(V["A"] @ V["A"])),
    (Inverse(W), lambda V: np.linalg.inv(V["W"])),
    (Trace(L) * R, lambda V: np.trace(V["L"]) * V["R"]),
    (KroneckerProduct(L, R), lambda V: kronecker(V["L"], V["R"])),
    (KroneckerProduct(F, L), lambda V: kronecker(V["F"], V["L"])),
    (KroneckerProduct(L, R, A), lambda V: kronecker(V["L"], kronecker(V["R"], V["A"]))),
    (PartialTrace(X, (H, N), 0), lambda V: sum_over_outer(int(V["H"]), V["X"])),
    (PartialTrace(X, (H, N), 1), lambda V: sum_over_inner(int(V["N"]), V["X"])),
    (PartialTrace(X, (N, H), 0), lambda V: sum_over_outer(int(V["N"]), V["X"])),
    (Diagonal(X), lambda V: np.array([[V["X"][i, i]] for i in range(len(V["X"]))])),
    (Trace(X), lambda V: np.sum(np.diag(V["X"]))),
    (LogDet(W), lambda V: np.sum(np.log(eigenvalues(V["W"])))),
    (quadratic_form(v, X), lambda V: np.sum(V["v"] * (V["X"] @ V["v"]))),
    (y * y.T, lambda V: np.outer(V["y"], V["y"])),
    (ZeroMatrix(H, P), lambda V: np.zeros((int(V["H"]), int(V["P"])))),
    (s**2 / t + sqrt(s) - Rational(1, 3), lambda V: V["s"] ** 2 / V["t"] + V["s"] ** 0.5 - 1 / 3),
    (log(s) * exp(-t), lambda V: np.log(V["s"]) * np.exp(-V["t"])),
    (Abs(s - 3), lambda V: abs(V["s"] - 3)),
    (pi * s, lambda V: np.pi * V["s"]),
    (H * N * s, lambda V: V["H"] * V["N"] * V["s"]),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("expression", "by_hand"), NODES, ids=[str(node) for node, _ in NODES])
def test_every_node_is_evaluated_as_numpy_does(expression, by_hand, shape):
    values = random_values(shape, 11)
    assert_close(interpret(expression, values), by_hand(values), 1e-12)


def test_sizes_may_be_whole_numbers():
    assert_close(interpret(s * Identity(H), {"H": 3, "s": 2.0}), 2 * np.eye(3), 0)


def test_log_det_of_a_matrix_with_negative_determinant_is_an_error():
    with pytest.raises(ValueError, match="LogDet"):
        interpret(LogDet(A), {"A": np.diag([1.0, -1.0])})


def test_a_missing_value_is_named():
    with pytest.raises(ValueError, match="for B"):
        interpret(Trace(A) + Trace(B), {"A": np.eye(2)})


WITHOUT_A_RULE = [
    (Determinant(A), "Determinant"),
    (HadamardProduct(A, L), "HadamardProduct"),
    (Trace(HadamardProduct(A, L)), "HadamardProduct"),
    (besselj(0, s), "besselj"),
    (zeta(s), "zeta"),
    (MatPow(A, Rational(1, 2)), "MatPow|power"),
    (MatPow(A, Symbol("k", integer=True)), "MatPow|power"),
    (Function("unheard_of")(s), "unheard_of"),
    (A[0, 1], "MatrixElement"),
]


@pytest.mark.parametrize(("expression", "name"), WITHOUT_A_RULE, ids=str)
def test_a_node_without_a_rule_is_named(expression, name):
    with pytest.raises(NotImplementedError, match=name):
        interpret(expression, random_values((2, 3, 4), 0))
