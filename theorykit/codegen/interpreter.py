"""A slow, literal evaluation of the same expressions in NumPy: the oracle for generated code.

Every node is evaluated as written (Kronecker products formed, inverses by an LU solve, log-determinants by LU), so it
shares no algorithm with the lowering, and only the names of the scalar functions.
"""

from collections.abc import Mapping

import numpy as np
from sympy import (
    Add,
    Expr,
    Identity,
    Inverse,
    KroneckerProduct,
    MatAdd,
    MatMul,
    MatPow,
    MatrixSymbol,
    Mul,
    Number,
    NumberSymbol,
    Pow,
    Symbol,
    Trace,
    Transpose,
    ZeroMatrix,
)

from ..symbolic.atoms import Diagonal, LogDet, PartialTrace
from .scalars import SCALAR_FUNCTIONS


def interpret(expression: Expr, values: Mapping[str, np.ndarray | float | int]) -> np.ndarray | float | int:
    """Evaluate `expression` with the symbols' values by name; sizes must be given too. Matrices are 2-d arrays."""
    for node_type, rule in _RULES:
        if isinstance(expression, node_type):
            return rule(expression, lambda node: interpret(node, values), values)
    raise NotImplementedError(f"the interpreter has no rule for {type(expression).__name__} (in {expression})")


def _lookup(node, at, values):
    return values[node.name]


def _product(node, at, values):
    result = 1.0
    for factor in map(at, node.args):
        result = result @ factor if np.ndim(result) and np.ndim(factor) else result * factor
    return result


def _inverse(node, at, values):
    matrix = at(node.arg)
    return np.linalg.solve(matrix, np.eye(len(matrix)))


def _matrix_power(node, at, values):
    if not node.exp.is_Integer:
        raise NotImplementedError(f"the interpreter takes integer powers of a matrix only, got MatPow {node}")
    return np.linalg.matrix_power(at(node.base), int(node.exp))


def _kronecker(node, at, values):
    result = np.eye(1)
    for factor in node.args:
        result = np.kron(result, at(factor))
    return result


def _partial_trace(node, at, values):
    outer, inner = (int(at(dimension)) for dimension in node.dimensions)
    matrix = at(node.matrix)
    spans = [slice(a * inner, (a + 1) * inner) for a in range(outer)]
    blocks = [[matrix[rows, columns] for columns in spans] for rows in spans]
    if node.traced == 0:
        return sum(blocks[h][h] for h in range(outer))
    return np.array([[np.trace(block) for block in row] for row in blocks])


def _log_det(node, at, values):
    sign, value = np.linalg.slogdet(at(node.matrix))
    if sign <= 0:
        raise ValueError(f"LogDet of a matrix with non-positive determinant: {node.matrix}")
    return value


def _function(node, at, values):
    return getattr(np, SCALAR_FUNCTIONS[type(node)])(*map(at, node.args))


# First match wins, and the matrix nodes derive from the scalar ones.
_RULES = (
    ((Symbol, MatrixSymbol), _lookup),
    ((Number, NumberSymbol), lambda node, at, values: float(node)),
    (Identity, lambda node, at, values: np.eye(int(at(node.shape[0])))),
    (ZeroMatrix, lambda node, at, values: np.zeros([int(at(side)) for side in node.shape])),
    (Inverse, _inverse),
    (MatPow, _matrix_power),
    (Transpose, lambda node, at, values: at(node.arg).T),
    ((MatMul, Mul), _product),
    ((MatAdd, Add), lambda node, at, values: sum(map(at, node.args))),
    (KroneckerProduct, _kronecker),
    (PartialTrace, _partial_trace),
    (Diagonal, lambda node, at, values: np.diag(at(node.matrix))[:, None]),
    (Trace, lambda node, at, values: np.trace(at(node.arg))),
    (LogDet, _log_det),
    (Pow, lambda node, at, values: at(node.base) ** at(node.exp)),
    (tuple(SCALAR_FUNCTIONS), _function),
)
