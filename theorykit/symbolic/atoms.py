"""Atoms: the few expressions that SymPy lacks and a theory of random weights needs.

Stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. Everything here is plain
SymPy: immutable, hashable, substitutable. Stock SymPy nodes (`MatMul`, `Inverse`, `KroneckerProduct`, `Trace`, ...)
are used wherever they exist.
"""

from collections.abc import Iterable

from sympy import Expr, Integer, MatMul, MatrixSymbol, Trace, Tuple, expand, log
from sympy.core.symbol import Str
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import (
    are_equal_sizes,
    checked_column,
    checked_expression,
    checked_matrix,
    checked_size,
    checked_sizes,
    checked_square,
    checked_text,
    checked_whole_number,
    shown,
)


class SymmetricSymbol(MatrixSymbol):
    """A named symmetric matrix: its transpose is itself."""

    def __new__(cls, name, n, m):
        # SymPy keeps the name as a node
        name = name if isinstance(name, Str) else checked_text("name", name)
        rows, columns = checked_size("n", n), checked_size("m", m)
        if not are_equal_sizes(rows, columns):
            raise ValueError(f"a symmetric matrix has as many rows as columns, got n={shown(n)} and m={shown(m)}")
        return super().__new__(cls, name, rows, columns)

    def _eval_transpose(self):
        return self


class PositiveSemidefiniteSymbol(SymmetricSymbol):
    """A named symmetric positive semidefinite matrix."""


class PositiveDefiniteSymbol(PositiveSemidefiniteSymbol):
    """A named symmetric positive definite matrix: it has a Cholesky factor."""


def symmetric(name: str, size: Expr | int) -> SymmetricSymbol:
    """The symmetric `size x size` matrix symbol called `name`, of no sign."""
    size = checked_size("size", size)
    return SymmetricSymbol(name, size, size)


def positive_definite(name: str, size: Expr | int) -> PositiveDefiniteSymbol:
    """The symmetric positive definite `size x size` matrix symbol called `name`."""
    size = checked_size("size", size)
    return PositiveDefiniteSymbol(name, size, size)


def positive_semidefinite(name: str, size: Expr | int) -> PositiveSemidefiniteSymbol:
    """The symmetric positive semidefinite `size x size` matrix symbol called `name`."""
    size = checked_size("size", size)
    return PositiveSemidefiniteSymbol(name, size, size)


class LogDet(Expr):
    """log det of a positive definite matrix, kept whole.

    SymPy expands the determinant of a Kronecker product into a power, which overflows; this atom never does.
    """

    is_commutative = True
    is_real = True

    def __new__(cls, matrix):
        return super().__new__(cls, checked_square("matrix", matrix))

    @property
    def matrix(self):
        """The matrix whose determinant it is."""
        return self.args[0]


class FunctionOfMatrix(MatrixExpr):
    """A matrix that is a function of its first argument, one of symbolic size: its entries are not expanded."""

    @property
    def matrix(self):
        """The first argument."""
        return self.args[0]

    def _entry(self, i, j, **kwargs):
        raise NotImplementedError(f"entries of a {type(self).__name__} of symbolic size are not expanded")


class PartialTrace(FunctionOfMatrix):
    r"""Trace over one of the two Kronecker factors of a square matrix.

    For X acting on R^{d_0} (x) R^{d_1}, `PartialTrace(X, (d_0, d_1), 0)` is the d_1 x d_1 sum of its diagonal blocks
    and `PartialTrace(X, (d_0, d_1), 1)` the d_0 x d_0 matrix of the traces of its blocks.
    """

    def __new__(cls, matrix, dimensions, traced):
        matrix, dimensions = checked_matrix("matrix", matrix), Tuple(*checked_sizes("dimensions", dimensions))
        traced = Integer(checked_whole_number("traced", traced, least=0, most=1))
        size = expand(dimensions[0] * dimensions[1])
        if tuple(map(expand, matrix.shape)) != (size, size):
            raise ValueError(f"PartialTrace of dimensions {dimensions} needs a matrix of size {size}, got {matrix}")
        return super().__new__(cls, matrix, dimensions, traced)

    @property
    def dimensions(self):
        """The dimensions (d_0, d_1) of the two factors."""
        return self.args[1]

    @property
    def traced(self) -> int:
        """The factor that is traced over, 0 or 1."""
        return int(self.args[2])

    @property
    def traced_dimension(self):
        """The dimension of the factor that is traced over."""
        return self.dimensions[self.traced]

    @property
    def shape(self):
        """Square, of the dimension of the factor that is left."""
        kept = self.dimensions[1 - self.traced]
        return (kept, kept)

    def _eval_transpose(self):
        return PartialTrace(self.matrix.T, self.dimensions, self.args[2])


class Diagonal(FunctionOfMatrix):
    """The diagonal of a square matrix, as a column."""

    def __new__(cls, matrix):
        return super().__new__(cls, checked_square("matrix", matrix))

    @property
    def shape(self):
        """One column, with the rows of the matrix."""
        return (self.matrix.shape[0], Integer(1))

    def _entry(self, i, j, **kwargs):
        return self.matrix[i, i]


class SquareRoot(FunctionOfMatrix):
    """The positive definite square root of a positive definite matrix."""

    def __new__(cls, matrix):
        return super().__new__(cls, checked_square("matrix", matrix))

    @property
    def shape(self):
        """That of the matrix."""
        return self.matrix.shape

    def _eval_transpose(self):
        return self


class Softmax(FunctionOfMatrix):
    """exp(x_i) / sum_j exp(x_j) of a column x, kept whole: the exponentials alone overflow.

    An entry that is minus infinity has weight zero.
    """

    def __new__(cls, column):
        return super().__new__(cls, checked_column("column", column))

    @property
    def column(self):
        """The column x."""
        return self.args[0]

    @property
    def shape(self):
        """That of the column."""
        return self.column.shape


def log_det(value: Expr) -> Expr:
    """log det of a positive definite matrix expression; of a positive scalar, its logarithm."""
    value = checked_expression("value", value)
    if value.is_Matrix:
        return LogDet(checked_square("value", value))
    if value.is_positive is False:
        raise ValueError(f"value must be above zero, got {value}")
    return log(value)


def trace(matrix: MatrixExpr) -> Expr:
    """Trace with the scalar coefficient in front."""
    coefficient, factor = split_coefficient(checked_square("matrix", matrix))
    return coefficient * Trace(factor)


def partial_trace(matrix: MatrixExpr, dimensions: Iterable[Expr | int], traced: int) -> Expr:
    """`PartialTrace`, the scalar coefficient in front; the plain trace where the factor that is kept has size one."""
    dimensions, traced = (
        checked_sizes("dimensions", dimensions),
        checked_whole_number("traced", traced, least=0, most=1),
    )
    if dimensions[1 - traced] == 1:
        return trace(matrix)
    coefficient, factor = split_coefficient(matrix)
    return coefficient * PartialTrace(factor, dimensions, traced)


def split_coefficient(matrix: MatrixExpr) -> tuple[Expr, MatrixExpr]:
    """The scalar coefficient of a matrix expression, and the rest."""
    checked_matrix("matrix", matrix)
    if isinstance(matrix, MatMul):
        coefficient, rest = matrix.as_coeff_mmul()
        return coefficient, rest.doit()
    return Integer(1), matrix


def quadratic_form(vector: MatrixExpr, matrix: MatrixExpr) -> Expr:
    """The scalar `vector^T matrix vector`, for a column `vector`, as the trace of a 1 x 1 product."""
    checked_column("vector", vector)
    if not are_equal_sizes(checked_square("matrix", matrix).shape[0], vector.shape[0]):
        raise ValueError(f"the matrix must have as many rows as the vector, {vector.shape[0]}, got {matrix.shape}")
    return Trace(vector.T * matrix * vector)
