"""Matrices of a kernel: functions of two Gaussian numbers averaged, entry by entry of their covariance."""

from collections.abc import Callable

from sympy import Expr, Lambda, OneMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..arguments import checked_function, checked_instance, shown
from .arguments import checked_scalar, checked_square
from .atoms import Diagonal, FunctionOfMatrix
from .bound_variables import EntryVariable
from .entries import Entrywise, entrywise


class KernelMatrix(FunctionOfMatrix):
    """k(C_ii, C_ij, C_jj), a kernel of each two of the Gaussian numbers whose covariance is the matrix C.

    `function` k is a SymPy `Lambda` of three numbers. It must be E[f(g_i) f(g_j)] for some f, and `matrix` a
    covariance, which is not checked: the result is taken to be positive semidefinite.
    """

    def __new__(cls, function, matrix):
        checked_instance("function", function, Lambda)
        if len(function.variables) != 3:
            raise ValueError(f"function must be of three numbers, got {shown(function)}")
        checked_scalar("what function returns", function.expr)
        checked_square("matrix", matrix)
        # with variables of the names that Entrywise gives them
        own = Entrywise(function, matrix, matrix, matrix).function
        return super().__new__(cls, own, matrix)

    @property
    def function(self):
        """The kernel, a function of three numbers."""
        return self.args[0]

    @property
    def matrix(self):
        """The covariance."""
        return self.args[1]

    @property
    def shape(self):
        """That of the covariance."""
        return self.matrix.shape

    @property
    def entries(self) -> MatrixExpr:
        """The same as a function of the entries of three matrices."""
        own = Diagonal(self.matrix) * OneMatrix(1, self.matrix.shape[0])
        return entrywise(self.function, own, self.matrix, own.T)

    def _eval_transpose(self):
        return self


def kernel_matrix(function: Callable[[Expr, Expr, Expr], Expr], matrix: MatrixExpr) -> MatrixExpr:
    """`KernelMatrix` of a function that takes C_ii, C_ij and C_jj; the covariance C itself where that is C_ij."""
    checked_function("function", function)
    own, between, other = map(EntryVariable, "xyz")
    value = checked_scalar("what function returns", function(own, between, other))
    return matrix if value == between else KernelMatrix(Lambda((own, between, other), value), matrix)
