"""The interpreter, the oracle of the other tests, against NumPy written out by hand."""

import numpy as np
import pytest
import sympy as sp
from sympy.matrices.expressions.diagonal import DiagMatrix

from tests.expressions import SHAPES, A, B, F, H, L, N, P, R, W, X, assert_close, random_values, s, t, v, y
from theorykit.codegen import interpret
from theorykit.symbolic import Diagonal, GaussianAverage, Softmax, entrywise, quadratic_form, sum_of_entries
from theorykit.symbolic.atoms import LogDet, PartialTrace, PrincipalBlock, SideBySide, Stacked

z = sp.Symbol("z", real=True)


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
    (sp.MatMul(2, s, L, A), lambda V: 2 * V["s"] * V["L"] @ V["A"]),
    (X + W / 2 - s * sp.Identity(H * N), lambda V: V["X"] + V["W"] / 2 - V["s"] * np.eye(len(V["X"]))),
    (sp.MatPow(X, 3), lambda V: V["X"] @ V["X"] @ V["X"]),
    (sp.MatPow(A, -2), lambda V: np.linalg.inv(V["A"] @ V["A"])),
    (sp.Inverse(W), lambda V: np.linalg.inv(V["W"])),
    (sp.Trace(L) * R, lambda V: np.trace(V["L"]) * V["R"]),
    (sp.KroneckerProduct(L, R), lambda V: kronecker(V["L"], V["R"])),
    (sp.KroneckerProduct(F, L), lambda V: kronecker(V["F"], V["L"])),
    (sp.KroneckerProduct(L, R, A), lambda V: kronecker(V["L"], kronecker(V["R"], V["A"]))),
    (PartialTrace(X, (H, N), 0), lambda V: sum_over_outer(int(V["H"]), V["X"])),
    (PartialTrace(X, (H, N), 1), lambda V: sum_over_inner(int(V["N"]), V["X"])),
    (PartialTrace(X, (N, H), 0), lambda V: sum_over_outer(int(V["N"]), V["X"])),
    (Diagonal(X), lambda V: np.array([[V["X"][i, i]] for i in range(len(V["X"]))])),
    (sp.Trace(X), lambda V: np.sum(np.diag(V["X"]))),
    (LogDet(W), lambda V: np.sum(np.log(eigenvalues(V["W"])))),
    (quadratic_form(v, X), lambda V: np.sum(V["v"] * (V["X"] @ V["v"]))),
    (y * y.T, lambda V: np.outer(V["y"], V["y"])),
    (sp.ZeroMatrix(H, P), lambda V: np.zeros((int(V["H"]), int(V["P"])))),
    (s**2 / t + sp.sqrt(s) - sp.Rational(1, 3), lambda V: V["s"] ** 2 / V["t"] + V["s"] ** 0.5 - 1 / 3),
    (sp.log(s) * sp.exp(-t), lambda V: np.log(V["s"]) * np.exp(-V["t"])),
    (sp.Abs(s - 3), lambda V: abs(V["s"] - 3)),
    (sp.pi * s, lambda V: np.pi * V["s"]),
    (H * N * s, lambda V: V["H"] * V["N"] * V["s"]),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("expression", "by_hand"), NODES, ids=[str(node) for node, _ in NODES])
def test_every_node_is_evaluated_as_numpy_does(expression, by_hand, shape):
    values = random_values(shape, 11)
    assert_close(interpret(expression, values), by_hand(values), 1e-12)


def test_sizes_may_be_whole_numbers_and_wrong_values_are_named():
    assert_close(interpret(s * sp.Identity(H), {"H": 3, "s": 2.0}), 2 * np.eye(3), 0)
    with pytest.raises(ValueError, match="LogDet"):
        interpret(LogDet(A), {"A": np.diag([1.0, -1.0])})
    with pytest.raises(ValueError, match="for B"):
        interpret(sp.Trace(A) + sp.Trace(B), {"A": np.eye(2)})


OF_STACKS = [
    *(expression for expression, _ in NODES),
    sp.BlockMatrix([[L, sp.Identity(H)], [A, L.T]]),
    *(PrincipalBlock(X, (H, H * N - H), index) for index in (0, 1)),
    *(Stacked(X, H), SideBySide(X, H), Softmax(v), DiagMatrix(v), sum_of_entries(X)),
    entrywise(lambda x, z: sp.tanh(sp.Trace(L) * x) + z, X, W),
    entrywise(lambda x: sp.Max(x, s) * x, X),
    GaussianAverage(sp.tanh(sp.Trace(L) * z + sp.Trace(X)), z),
    entrywise(lambda x: GaussianAverage(sp.exp(-((x + z) ** 2)) * sp.Trace(L), z), X),
]


@pytest.mark.parametrize("expression", OF_STACKS, ids=str)
def test_a_stack_of_matrices_gives_a_stack_of_values(expression):
    several = [random_values((2, 3, 4), seed) | {"s": 0.8, "t": 1.3} for seed in range(3)]
    stack = {name: np.stack([each[name] for each in several]) for name in several[0]}
    stack = {name: values if values.ndim > 1 else values[0] for name, values in stack.items()}
    expected = np.stack([interpret(expression, each) for each in several])
    assert_close(np.broadcast_to(interpret(expression, stack), expected.shape), expected, 1e-11)
