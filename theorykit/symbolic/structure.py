"""What is known of a matrix expression from its form alone: positive (semi)definite or not provably so.

The code generator asks here before it chooses a Cholesky factorisation; nothing is guessed.
"""

from sympy import Expr, Identity, Inverse, KroneckerProduct, MatAdd, MatMul, MatPow, OneMatrix, Trace, Transpose
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_matrix
from .atoms import PartialTrace, PositiveDefiniteSymbol, PositiveSemidefiniteSymbol, SquareRoot, SymmetricSymbol
from .blocks import PrincipalBlock
from .entries import KernelMatrix


def is_positive_definite(matrix: MatrixExpr) -> bool:
    """True if `matrix` is provably symmetric positive definite."""
    checked_matrix("matrix", matrix)
    if isinstance(matrix, (PositiveDefiniteSymbol, Identity)):
        return True
    if isinstance(matrix, (Inverse, Transpose)):
        return is_positive_definite(matrix.arg)
    if isinstance(matrix, KroneckerProduct):
        return all(is_positive_definite(factor) for factor in matrix.args)
    if isinstance(matrix, BlockDiagMatrix):
        return all(map(is_positive_definite, matrix.diag))
    if isinstance(matrix, (PartialTrace, PrincipalBlock, SquareRoot)):
        return is_positive_definite(matrix.matrix)
    if isinstance(matrix, MatAdd):
        return all(map(is_positive_semidefinite, matrix.args)) and any(map(is_positive_definite, matrix.args))
    if isinstance(matrix, MatMul):
        coefficient, factors = coefficient_and_factors(matrix)
        while len(factors) >= 3 and factors[0] == factors[-1].T and is_positive_definite(factors[0]):
            factors = factors[1:-1]
        return bool(coefficient.is_positive) and len(factors) == 1 and is_positive_definite(factors[0])
    return False


def is_positive_semidefinite(matrix: MatrixExpr) -> bool:
    """True if `matrix` is provably symmetric positive semidefinite: declared so, all ones, a kernel, or A^T X A."""
    checked_matrix("matrix", matrix)
    if isinstance(matrix, (PositiveSemidefiniteSymbol, KernelMatrix)) or is_positive_definite(matrix):
        return True
    if isinstance(matrix, OneMatrix):
        return matrix.shape[0] == matrix.shape[1]
    if isinstance(matrix, (KroneckerProduct, MatAdd)):
        return all(map(is_positive_semidefinite, matrix.args))
    if not isinstance(matrix, MatMul):
        return False
    coefficient, factors = coefficient_and_factors(matrix)
    if not coefficient.is_nonnegative:
        return False
    while len(factors) >= 2 and factors[0] == factors[-1].T:
        factors = factors[1:-1]
    return not factors or (len(factors) == 1 and is_positive_semidefinite(factors[0]))


def is_symmetric(matrix: MatrixExpr) -> bool:
    """True if `matrix` is provably symmetric: written as its own transpose is, or made of matrices that are."""
    checked_matrix("matrix", matrix)
    if isinstance(matrix, SymmetricSymbol) or is_positive_semidefinite(matrix):
        return True
    if isinstance(matrix, Inverse):
        return is_symmetric(matrix.arg)
    if isinstance(matrix, (BlockDiagMatrix, KroneckerProduct, MatAdd)) and all(map(is_symmetric, matrix.args)):
        return True
    return matrix.shape[0] == matrix.shape[1] and matrix.T.doit() == matrix.doit()


def coefficient_and_factors(product: MatMul) -> tuple[Expr, list[MatrixExpr]]:
    """The scalar coefficient and the matrix factors of a product, flattened; integer powers are repeated factors."""
    coefficient, matrices = product.as_coeff_matrices()
    factors = []
    for matrix in matrices:
        if isinstance(matrix, MatMul):
            inner_coefficient, inner = coefficient_and_factors(matrix)
            coefficient *= inner_coefficient
            factors.extend(inner)
        else:
            factors.extend(_repeat(matrix))
    return coefficient, factors


def _repeat(matrix: MatrixExpr) -> list[MatrixExpr]:
    if isinstance(matrix, Inverse) or not isinstance(matrix, MatPow) or not matrix.exp.is_Integer or matrix.exp == 0:
        return [matrix]
    return [matrix.base if matrix.exp > 0 else Inverse(matrix.base)] * abs(int(matrix.exp))


def is_scalar_trace(expression: Expr) -> bool:
    """True for the trace of a 1 x 1 matrix, which is a number written as a product, such as y^T A y."""
    return isinstance(expression, Trace) and expression.arg.shape == (1, 1)
