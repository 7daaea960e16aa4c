"""Atoms: the few expressions that SymPy lacks and a theory of random weights needs.

Stage 1 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function`. Everything here is plain
SymPy: immutable, hashable, substitutable. Stock SymPy nodes (`MatMul`, `Inverse`, `KroneckerProduct`, `Trace`, ...)
are used wherever they exist.
"""

from sympy import Expr, Integer, MatMul, MatrixSymbol, Trace, Tuple, expand, log, sympify
from sympy.matrices.expressions.matexpr import MatrixExpr


class PositiveSemidefiniteSymbol(MatrixSymbol):
    """A named symmetric positive semidefinite matrix: its transpose is itself."""

    def _eval_transpose(self):
        return self


class PositiveDefiniteSymbol(PositiveSemidefiniteSymbol):
    """A named symmetric positive definite matrix: it has a Cholesky factor."""


def positive_definite(name: str, size) -> PositiveDefiniteSymbol:
    """The symmetric positive definite `size x size` matrix symbol called `name`."""
    return PositiveDefiniteSymbol(name, size, size)


def positive_semidefinite(name: str, size) -> PositiveSemidefiniteSymbol:
    """The symmetric positive semidefinite `size x size` matrix symbol called `name`."""
    return PositiveSemidefiniteSymbol(name, size, size)


class LogDet(Expr):
    """log det of a positive definite matrix, kept whole.

    SymPy expands the determinant of a Kronecker product into a power, which overflows; this atom never does.
    """

    is_commutative = True
    is_real = True

    def __new__(cls, matrix):
        matrix = sympify(matrix)
        if not matrix.is_Matrix or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"LogDet needs a square matrix expression, got {matrix}")
        return super().__new__(cls, matrix)

    @property
    def matrix(self):
        return self.args[0]


class PartialTrace(MatrixExpr):
    r"""Trace over one of the two Kronecker factors of a square matrix.

    For X acting on R^{d_0} (x) R^{d_1}, `PartialTrace(X, (d_0, d_1), 0)` is the d_1 x d_1 sum of its diagonal blocks
    and `PartialTrace(X, (d_0, d_1), 1)` the d_0 x d_0 matrix of the traces of its blocks.
    """

    def __new__(cls, matrix, dimensions, traced):
        matrix, traced = sympify(matrix), Integer(traced)
        dimensions = Tuple(*dimensions)
        if len(dimensions) != 2 or traced not in (0, 1):
            raise ValueError(f"PartialTrace takes two factors and traces 0 or 1, got {dimensions} and {traced}")
        size = expand(dimensions[0] * dimensions[1])
        if not matrix.is_Matrix or tuple(map(expand, matrix.shape)) != (size, size):
            raise ValueError(f"PartialTrace over factors {dimensions} needs a matrix of size {size}, got {matrix}")
        return super().__new__(cls, matrix, dimensions, traced)

    @property
    def matrix(self):
        return self.args[0]

    @property
    def dimensions(self):
        return self.args[1]

    @property
    def traced(self) -> int:
        return int(self.args[2])

    @property
    def traced_dimension(self):
        return self.dimensions[self.traced]

    @property
    def shape(self):
        kept = self.dimensions[1 - self.traced]
        return (kept, kept)

    def _eval_transpose(self):
        return PartialTrace(self.matrix.T, self.dimensions, self.args[2])

    def _entry(self, i, j, **kwargs):
        raise NotImplementedError("entries of a partial trace of symbolic size are not expanded")


class _OfSquareMatrix(MatrixExpr):
    """A matrix that is a function of one square matrix."""

    def __new__(cls, matrix):
        matrix = sympify(matrix)
        if not matrix.is_Matrix or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"{cls.__name__} needs a square matrix expression, got {matrix}")
        return super().__new__(cls, matrix)

    @property
    def matrix(self):
        return self.args[0]


class Diagonal(_OfSquareMatrix):
    """The diagonal of a square matrix, as a column."""

    @property
    def shape(self):
        return (self.matrix.shape[0], Integer(1))

    def _entry(self, i, j, **kwargs):
        return self.matrix[i, i]


class SquareRoot(_OfSquareMatrix):
    """The positive definite square root of a positive definite matrix."""

    @property
    def shape(self):
        return self.matrix.shape

    def _eval_transpose(self):
        return self

    def _entry(self, i, j, **kwargs):
        raise NotImplementedError("entries of a square root are not expanded")


class Softmax(MatrixExpr):
    """exp(x_i) / sum_j exp(x_j) of a column x, kept whole: the exponentials alone overflow.

    An entry that is minus infinity has weight zero.
    """

    def __new__(cls, column):
        column = sympify(column)
        if not column.is_Matrix or column.shape[1] != 1:
            raise ValueError(f"Softmax needs a column, got {column}")
        return super().__new__(cls, column)

    @property
    def column(self):
        return self.args[0]

    @property
    def shape(self):
        return self.column.shape

    def _entry(self, i, j, **kwargs):
        raise NotImplementedError("entries of a softmax of symbolic size are not expanded")


def log_det(value):
    """log det of a positive definite matrix expression; of a positive scalar, its logarithm."""
    return LogDet(value) if getattr(value, "is_Matrix", False) else log(value)


def trace(matrix):
    """Trace with the scalar coefficient in front."""
    coefficient, factor = split_coefficient(matrix)
    return coefficient * Trace(factor)


def partial_trace(matrix, dimensions, traced):
    """`PartialTrace`, the scalar coefficient in front; the plain trace where the factor that is kept has size one."""
    if dimensions[1 - traced] == 1:
        return trace(matrix)
    coefficient, factor = split_coefficient(matrix)
    return coefficient * PartialTrace(factor, dimensions, traced)


def split_coefficient(matrix):
    """The scalar coefficient of a matrix expression, and the rest."""
    if isinstance(matrix, MatMul):
        coefficient, rest = matrix.as_coeff_mmul()
        return coefficient, rest.doit()
    return Integer(1), matrix


def quadratic_form(vector, matrix):
    """The scalar `vector^T matrix vector`, for a column `vector`, as the trace of a 1 x 1 product."""
    if vector.shape[1] != 1:
        raise ValueError(f"quadratic_form needs a column, got {vector} of shape {vector.shape}")
    return Trace(vector.T * matrix * vector)
