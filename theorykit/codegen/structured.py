"""Evaluate matrices by their structure: what JAX runs, and what the generated source says.

Inverses become Cholesky solves, which log-determinants of the same matrix share. Kronecker factors become reshapes,
and traces of products become contractions. No product is formed if its trace or its diagonal suffices.

The operations are functions of `algebra.operations`: `theorykit.codegen.primitives`, or a module with the same names.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import ClassVar

import sympy as sp
from sympy.core.numbers import ImaginaryUnit
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..symbolic.atoms import Diagonal, PartialTrace
from ..symbolic.matrix_functions import coefficient_and_factors, is_positive_definite
from .evaluate import Algebra, At, refuse

Factors = tuple[MatrixExpr, ...]


@lru_cache(maxsize=4096)
def check_definite(matrix: MatrixExpr) -> None:
    """Raise `NotImplementedError` if a matrix is not provably positive definite."""
    if not is_positive_definite(matrix):
        raise NotImplementedError(
            f"{matrix} is not provably positive definite, as solves, log-determinants and square roots require; "
            "declare its symbols with positive_definite(...), and the regulariser with positive=True; if it is "
            "positive definite only at the solution, use symbolic.assume_positive_definite(...)"
        )


def cholesky(matrix: MatrixExpr, at: At):
    """Factorise a matrix, once."""
    check_definite(matrix)
    return at.once(("cholesky", matrix), lambda: at.algebra.operations.cholesky(at(matrix)))


def apply(matrix: MatrixExpr, operand, at: At):
    """Return matrix @ operand, and use the structure of the matrix."""
    if isinstance(matrix, sp.Identity):
        return operand
    if isinstance(matrix, sp.Inverse):
        if isinstance(matrix.arg, sp.KroneckerProduct):
            inverses = sp.KroneckerProduct(*map(sp.Inverse, matrix.arg.args))
            return apply(inverses, operand, at)
        return at.algebra.operations.solve(cholesky(matrix.arg, at), operand)
    if isinstance(matrix, DiagMatrix):
        return at(matrix.args[0]) * operand
    if not (isinstance(matrix, sp.KroneckerProduct) and len(matrix.args) == 2):
        return at(matrix) @ operand
    left, right = matrix.args
    if not isinstance(right, sp.Identity):
        operand = at.algebra.operations.kron_right_matmul(at(right), operand)
    if not isinstance(left, sp.Identity):
        operand = at.algebra.operations.kron_left_matmul(at(left), operand)
    return operand


def chain(factors: Factors, at: At):
    """Return the product of factors, from the right to the left, and every partial product once.

    A product with an inner size of one is split there, and the product of a row is transposed.
    """
    return at.once(("product", factors), lambda: _chain(factors, at))


def _chain(factors: Factors, at: At):
    if len(factors) == 1:
        return at(factors[0])
    if split := _inner_size_one(factors):
        return chain(factors[:split], at) @ chain(factors[split:], at)
    if factors[0].shape[0] == 1 != factors[-1].shape[1]:
        return chain(_transposed(factors), at).T
    return apply(factors[0], chain(factors[1:], at), at)


def halves(factors: Factors, at: At):
    """Return X and Y such that X^T Y is the product of factors. The halves of a palindrome are the same matrix."""
    split = _inner_size_one(factors) or len(factors) // 2
    return chain(_transposed(factors[:split]), at), chain(factors[split:], at)


def _inner_size_one(factors: Factors) -> int:
    return next((i for i in range(1, len(factors)) if factors[i].shape[0] == 1), 0)


@lru_cache(maxsize=4096)
def _transposed(factors: Factors) -> Factors:
    return tuple(factor.T.doit() for factor in reversed(factors))


@lru_cache(maxsize=4096)
def _split(matrix: MatrixExpr) -> tuple[sp.Expr, Factors]:
    coefficient, factors = coefficient_and_factors(sp.MatMul(matrix))
    return coefficient, tuple(factors)


def factors_of_power(power: sp.MatPow) -> Factors:
    """Return the factors of a power. Raises `NotImplementedError` if its exponent is no whole number."""
    _, factors = _split(power)
    if power in factors and not isinstance(power, sp.Inverse):
        raise NotImplementedError(f"a power of a matrix must have a nonzero integer exponent, got {power}")
    return factors


def _scaled(coefficient: sp.Expr, value, at: At):
    return value if coefficient == 1 else at(coefficient) * value


def linear(matrix: MatrixExpr, at: At, whole: Callable, of_product: Callable):
    """Apply a linear map of a square matrix, such as the trace, without forming products.

    `whole` takes the matrix, and `of_product` takes X and Y if the matrix is X^T Y.
    """
    coefficient, factors = _split(matrix)
    is_one_solve = len(factors) == 2 and any(isinstance(factor, sp.Inverse) for factor in factors)
    if len(factors) == 1 or is_one_solve:
        return _scaled(coefficient, whole(chain(factors, at)), at)
    return _scaled(coefficient, of_product(*halves(factors, at)), at)


def _partial_trace(node, at):
    use, size = at.algebra.operations, at.size(node.traced_dimension)
    if node.traced == 0:
        maps = use.sum_of_blocks, use.sum_of_product_blocks
    else:
        maps = use.trace_of_blocks, use.trace_of_product_blocks
    whole, of_product = ((lambda *parts, map=map: map(*parts, size)) for map in maps)
    return linear(node.matrix, at, whole, of_product)


def _diagonal(node, at):
    if isinstance(node.matrix, sp.MatAdd):
        return reduce(lambda left, right: left + right, (at(Diagonal(term)) for term in node.matrix.args))
    use = at.algebra.operations
    return linear(node.matrix, at, use.diagonal, use.diagonal_of_product)


def _product(node, at):
    coefficient, factors = _split(node)
    return _scaled(coefficient, chain(factors, at), at)


class Structured(Algebra):
    """Rules that use the structure of matrices. Subclasses supply `xp` and `operations`."""

    rules: ClassVar = {
        sp.MatMul: _product,
        sp.MatPow: lambda node, at: chain(factors_of_power(node), at),
        sp.Inverse: lambda node, at: apply(node, at.xp.eye(at.size(node.shape[0])), at),
        PartialTrace: _partial_trace,
        Diagonal: _diagonal,
        # Operators on columns, such as a kernel that is never formed, have this attribute of arrays as well.
        sp.Transpose: lambda node, at: at(node.arg).T,
        ImaginaryUnit: lambda node, at: refuse(node),
    }

    @classmethod
    def log_det(cls, matrix, at):
        """Return the log-determinant of a matrix, by its Cholesky factor."""
        return cls.operations.log_det(cholesky(matrix, at))

    @classmethod
    def square_root(cls, matrix, at):
        """Return the positive definite square root of a matrix."""
        check_definite(matrix)
        return cls.operations.square_root(at(matrix))

    @classmethod
    def trace(cls, matrix, at):
        """Return the trace of a matrix."""
        return linear(matrix, at, cls.operations.trace, cls.operations.trace_of_product)

    @classmethod
    def kron(cls, left, right):
        """Return the Kronecker product."""
        return cls.operations.kron(left, right)

    @classmethod
    def entrywise(cls, function, *matrices):
        """Apply a function of numbers to the entries of matrices."""
        return cls.operations.entrywise(function, *matrices)

    @classmethod
    def joined(cls, blocks: Sequence, axis: int):
        """Concatenate matrices side by side (axis -1) or one below the other (axis -2)."""
        return cls.xp.concatenate(blocks, axis=axis)
