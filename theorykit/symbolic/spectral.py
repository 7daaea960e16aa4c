"""Functions of a symmetric matrix through its eigenvalues: their sum, and the matrix with the same eigenvectors."""

from collections.abc import Callable

from sympy import Expr, Identity, Lambda
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_function, checked_instance, checked_scalar, checked_square, shown
from .atoms import FunctionOfMatrix
from .bound_variables import EntryVariable, new_variable
from .structure import is_symmetric

_EIGENVALUE = EntryVariable("x")


def _checked(function: Lambda, matrix: MatrixExpr) -> tuple[Lambda, MatrixExpr]:
    checked_instance("function", function, Lambda)
    if len(function.variables) != 1:
        raise ValueError(f"function must be of one number, got {shown(function)}")
    checked_scalar("what function returns", function.expr)
    if not is_symmetric(checked_square("matrix", matrix)):
        raise ValueError(
            f"the matrix must be provably symmetric, got {matrix}; declare its symbols with symmetric(...), "
            "positive_semidefinite(...) or positive_definite(...)"
        )
    (variable,) = function.variables
    if isinstance(variable, EntryVariable):
        return function, matrix
    own = new_variable(EntryVariable, variable.name, function.expr)
    return Lambda(own, function.expr.xreplace({variable: own})), matrix


class EigenvalueSum(Expr):
    """sum_i f(l_i) over the eigenvalues l_i of a symmetric `matrix`, with their multiplicity.

    `function` f is a SymPy `Lambda` of one number.
    """

    is_commutative = True

    def __new__(cls, function, matrix):
        return super().__new__(cls, *_checked(function, matrix))

    @property
    def function(self):
        """The function of one number."""
        return self.args[0]

    @property
    def matrix(self):
        """The symmetric matrix."""
        return self.args[1]


class SpectralFunction(FunctionOfMatrix):
    """f(K) = V diag(f(l_1), ..., f(l_n)) V^T of a symmetric `matrix` K = V diag(l_1, ..., l_n) V^T.

    `function` f is a SymPy `Lambda` of one number.
    """

    def __new__(cls, function, matrix):
        return super().__new__(cls, *_checked(function, matrix))

    @property
    def function(self):
        """The function of one number."""
        return self.args[0]

    @property
    def matrix(self):
        """The symmetric matrix."""
        return self.args[1]

    @property
    def shape(self):
        """That of the matrix."""
        return self.matrix.shape

    def _eval_transpose(self):
        return self


def eigenvalue_sum(function: Callable[[Expr], Expr], matrix: MatrixExpr) -> Expr:
    """The sum of a function of numbers over the eigenvalues of a symmetric matrix.

    Raises `ValueError` where the matrix is not provably symmetric.

        >>> from theorykit.symbolic import eigenvalue_sum, gradient, symmetric
        >>> K = symmetric("K", 3)
        >>> gradient(eigenvalue_sum(lambda x: x**2, K), K)
        2*K
    """
    return EigenvalueSum(_function(function), matrix)


def spectral_function(function: Callable[[Expr], Expr], matrix: MatrixExpr) -> MatrixExpr:
    """The matrix with the eigenvectors of a symmetric matrix and with a function of its eigenvalues.

    The coefficient stands in front; a function that is constant, or the number itself, gives the identity or the
    matrix. Raises `ValueError` where the matrix is not provably symmetric.
    """
    checked = SpectralFunction(_function(function), matrix)
    return of_eigenvalues(checked.function.expr, _EIGENVALUE, matrix)


def of_eigenvalues(value: Expr, variable: EntryVariable, matrix: MatrixExpr) -> MatrixExpr:
    """The matrix of which `value`, a function of `variable`, is taken of the eigenvalues, in its simplest form."""
    coefficient, rest = value.as_independent(variable, as_Add=False)
    if rest == variable:
        return coefficient * matrix
    if not rest.has_free(variable):
        return value * Identity(matrix.shape[0])
    return coefficient * SpectralFunction(Lambda(variable, rest), matrix)


def _function(function: Callable[[Expr], Expr]) -> Lambda:
    checked_function("function", function)
    try:
        return Lambda(_EIGENVALUE, checked_scalar("what function returns", function(_EIGENVALUE)))
    except TypeError as error:
        raise TypeError(f"function must take an expression to another: {error}") from error
