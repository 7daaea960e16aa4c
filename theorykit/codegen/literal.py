"""The algebra of the oracle: NumPy arrays, every node evaluated as it is written, by LU and SciPy.

Values may be stacks: matrices have the axes of a stack first, and scalars have only these axes.
"""

import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import scipy
import sympy as sp

from ..checks import checked_instance, shown
from ..symbolic.averages import GaussianAverage
from ..symbolic.envelopes import FunctionOfLoss
from ..symbolic.numeric import NumericFunction, compiled
from .evaluate import Algebra, At
from .oracle import mean_of_average, value_of_loss


def _piecewise(node, at):
    # A case may be undefined where its condition does not hold.
    left, result = True, np.nan
    for value, condition in node.args:
        holds = np.logical_and(left, at(condition))
        if np.any(holds):
            with np.errstate(all="ignore"):
                result = np.where(holds, at(value), result)
        left = np.logical_and(left, np.logical_not(holds))
    return result[()]


def _product(node, at):
    matrices = [at(factor) for factor in node.args if factor.is_Matrix]
    scale = reduce(operator.mul, (at(factor) for factor in node.args if not factor.is_Matrix), 1.0)
    return np.expand_dims(scale, (-2, -1)) * reduce(operator.matmul, matrices)


def _power(node, at):
    if not node.exp.is_Integer:
        raise NotImplementedError(f"a power of a matrix must have an integer exponent, got MatPow {node}")
    return np.linalg.matrix_power(at(node.base), int(node.exp))


class Numpy(Algebra):
    """Evaluate in NumPy. Shares no algorithm with `Jax`."""

    rules: ClassVar = {
        sp.Piecewise: _piecewise,
        sp.MatMul: _product,
        sp.MatPow: _power,
        FunctionOfLoss: value_of_loss,
        GaussianAverage: mean_of_average,
        NumericFunction: lambda node, at: np.asarray(compiled(type(node))(*map(at, node.args)))[()],
    }

    @staticmethod
    def function(row, node, at):
        """Evaluate a scalar function by its NumPy code."""
        whole = row.whole_numbers(node)
        numbers = [int(each) if i in whole else at(each) for i, each in enumerate(node.args)]
        with np.errstate(all="ignore"):
            return row.numpy(*numbers)

    @staticmethod
    def entrywise(function, *matrices):
        """Apply a function of numbers. The axes of stacks come last, as in scalars."""
        entries = [np.moveaxis(matrix, (-2, -1), (0, 1)) for matrix in matrices]
        values = np.broadcast_arrays(function(*entries), *entries)[0].astype(float)
        return np.moveaxis(values, (0, 1), (-2, -1))

    @staticmethod
    def joined(blocks, axis):
        """Concatenate matrices, or stacks of them."""
        batch = np.broadcast_shapes(*(block.shape[:-2] for block in blocks))
        return np.concatenate([np.broadcast_to(block, batch + block.shape[-2:]) for block in blocks], axis)

    @staticmethod
    def log_det(matrix, at):
        """Return the log-determinant by LU."""
        with np.errstate(invalid="ignore"):
            sign, value = np.linalg.slogdet(at(matrix))
        if np.any(sign <= 0):
            raise ValueError(f"LogDet needs a matrix with a positive determinant, got {matrix}")
        return value

    @staticmethod
    def square_root(matrix, at):
        """Return the square root by its Schur form."""
        return scipy.linalg.sqrtm(at(matrix))

    @staticmethod
    def assumed_definite(matrix):
        """Return the matrix, or NaN if it is not positive definite."""
        return np.where(np.linalg.eigvalsh(matrix)[..., :1, None] > 0, matrix, np.nan)

    @staticmethod
    def trace(matrix, at):
        """Return the trace."""
        return np.trace(at(matrix), axis1=-2, axis2=-1)

    @staticmethod
    def kron(left, right):
        """Return the Kronecker product."""
        product = left[..., :, None, :, None] * right[..., None, :, None, :]
        return product.reshape(*product.shape[:-4], -1, left.shape[-1] * right.shape[-1])


def interpret(expression: sp.Expr, values: Mapping[str, Any]) -> Any:
    """Evaluate an expression in NumPy, every node as it is written. This is the oracle of compiled functions.

    Args:
        expression: a scalar or matrix expression.
        values: values of its symbols and sizes by name. Matrices are 2-d arrays, or stacks of them along the first
            axes. The value is then a stack, too.

    Raises:
        ValueError: a symbol has no value.
        NotImplementedError: there is no rule for a part of the expression.
    """
    if not isinstance(expression, sp.Basic):
        raise TypeError(f"expression must be a SymPy expression, got {shown(expression)}")
    return At(checked_instance("values", values, Mapping, "numbers and arrays by name"), Numpy)(expression)
