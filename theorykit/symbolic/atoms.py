"""Atoms: the few expressions that a theory of random weights needs and that SymPy lacks.

All atoms are SymPy expressions: immutable, hashable, and open to substitution. An atom has the methods `value(at)`, its
value in the algebra of `at`; `pullback(cotangent)`, pairs of an argument and its part of the gradient; `is_definite`, a
proof that it is positive definite if the matrices are for which `proof` succeeds; and `_latex(printer)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, count
from operator import add, mul
from typing import Any

import sympy as sp
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_instance, checked_sequence, checked_whole_number, shown
from .notation import PRODUCT, SCALAR, enclosed, operand, operator


def checked_expression(name: str, value: Any) -> sp.Expr:
    """Require an expression. A finite Python number becomes a SymPy number."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and -math.inf < value < math.inf:
        return sp.sympify(value)
    return checked_instance(name, value, sp.Expr)


def checked_scalar(name: str, value: Any) -> sp.Expr:
    """Require a scalar. A product of matrices with one entry, such as x^T K x, becomes its trace."""
    value = checked_expression(name, value)
    if value.is_Matrix and value.shape != (1, 1):
        raise ValueError(f"{name} must be a scalar expression, got one of shape {value.shape}")
    return sp.Trace(value) if value.is_Matrix else value


def checked_matrix(name: str, value: Any) -> MatrixExpr:
    return checked_instance(name, value, MatrixExpr, "a SymPy matrix expression")


def checked_square(name: str, value: Any) -> MatrixExpr:
    if not are_equal_sizes(*checked_matrix(name, value).shape):
        raise ValueError(f"{name} must be a square matrix expression, got {shown(value)} of shape {value.shape}")
    return value


def checked_matrices(name: str, values: Any) -> tuple[MatrixExpr, ...]:
    values = checked_sequence(name, values, "matrix expressions")
    if not values:
        raise ValueError(f"{name} must have at least one matrix expression, got none")
    return tuple(checked_matrix(f"{name}[{i}]", each) for i, each in enumerate(values))


def checked_size(name: str, value: Any) -> sp.Expr:
    """Require a positive integer, or an expression that may be one."""
    size = checked_scalar(name, value)
    if size.is_integer is False or size.is_positive is False:
        raise ValueError(f"{name} must be a whole number above zero, got {shown(value)}")
    return size


def are_equal_sizes(size: sp.Expr | int, other: sp.Expr | int) -> bool:
    """Return whether two sizes are equal, however their products are written."""
    return size == other or sp.expand(size - other) == 0


class SymmetricSymbol(sp.MatrixSymbol):
    """Named symmetric matrix, equal to its transpose."""

    def _eval_transpose(self):
        return self


class PositiveSemidefiniteSymbol(SymmetricSymbol):
    """Named symmetric positive semidefinite matrix."""

    is_semidefinite = True


class PositiveDefiniteSymbol(PositiveSemidefiniteSymbol):
    """Named symmetric positive definite matrix, which has a Cholesky factor."""

    def is_definite(self, proof):
        return True


def symmetric(name: str, size: sp.Expr | int) -> SymmetricSymbol:
    """Return a symmetric `size x size` matrix symbol that may be indefinite."""
    return SymmetricSymbol(name, size, size)


def positive_definite(name: str, size: sp.Expr | int) -> PositiveDefiniteSymbol:
    """Return a symmetric positive definite `size x size` matrix symbol."""
    return PositiveDefiniteSymbol(name, size, size)


def positive_semidefinite(name: str, size: sp.Expr | int) -> PositiveSemidefiniteSymbol:
    """Return a symmetric positive semidefinite `size x size` matrix symbol."""
    return PositiveSemidefiniteSymbol(name, size, size)


class BoundVariable(sp.Symbol):
    """Real variable that has no meaning outside the expression that binds it.

    It never equals a symbol created elsewhere, even one of the same name.
    """

    def __new__(cls, name, **assumptions):
        # SymPy passes assumptions when it makes a copy. Ignore them, because the variable is always real.
        return super().__new__(cls, name, real=True)

    @classmethod
    def class_key(cls):
        """Sort by name, like any symbol."""
        return sp.Symbol.class_key()

    def __getnewargs_ex__(self):
        return ((self.name,), {})


class NormalVariable(BoundVariable):
    """Standard normal variable of a Gaussian average."""


class EntryVariable(BoundVariable):
    """Variable of a function of matrix entries."""


def new_variable(kind: type[BoundVariable], name: str, expression: sp.Expr) -> BoundVariable:
    """Return a variable of this name. If the name occurs in `expression`, append a number."""
    taken = {symbol.name for symbol in expression.atoms(kind)}
    names = chain([name], (f"{name}_{number}" for number in count(1)))
    return kind(next(each for each in names if each not in taken))


def matrix_scalars(expression: sp.Basic) -> Iterator[sp.Expr]:
    """Yield the outermost scalars in a scalar expression that contain matrices, such as traces."""
    if any(getattr(argument, "is_Matrix", False) for argument in expression.args):
        yield expression
    else:
        for argument in expression.args:
            yield from matrix_scalars(argument)


def hold(nodes: Iterable[sp.Basic], **assumptions: bool) -> tuple[dict[sp.Basic, sp.Dummy], dict[sp.Dummy, sp.Basic]]:
    """Create a symbol for each node. Return the replacement of nodes by symbols, and its inverse."""
    held = {node: sp.Dummy(**assumptions) for node in nodes}
    return held, {symbol: node for node, symbol in held.items()}


def with_value(expression: sp.Expr, variable: BoundVariable, value: sp.Expr) -> sp.Expr:
    """Substitute a value for the variable, but not for variables of the same name that are bound inside a matrix."""
    held, back = hold(node for node in matrix_scalars(expression) if variable not in node.free_symbols)
    return expression.xreplace(held).xreplace({variable: value}).xreplace(back)


def check_matrices_are_fixed(expression: sp.Expr) -> None:
    """Raise `NotImplementedError` if a matrix in a scalar expression depends on a variable bound outside it."""
    for node in matrix_scalars(expression):
        for variable in bound_outside(node):
            raise NotImplementedError(
                f"{node} contains a matrix that depends on {variable}, the variable of an average or of a function"
            )


def bound_outside(expression: sp.Expr) -> list[BoundVariable]:
    """Return the variables that an enclosing expression binds, in order of their names."""
    found = (symbol for symbol in expression.free_symbols if isinstance(symbol, BoundVariable))
    return sorted(found, key=lambda symbol: symbol.name)


class LogDet(sp.Expr):
    """log det of a positive definite matrix, kept unexpanded.

    SymPy expands the determinant of a Kronecker product into a power, which overflows.
    """

    is_commutative = True
    is_real = True
    matrix = property(lambda self: self.args[0])

    def value(self, at):
        return at.algebra.log_det(self.matrix, at)

    def pullback(self, cotangent):
        return [(self.matrix, cotangent * sp.Inverse(self.matrix).T)]

    precedence = SCALAR

    def _latex(self, printer):
        return rf"\log\det {operand(printer, self.matrix)}"


class FunctionOfMatrix(MatrixExpr):
    """Matrix-valued function of its first argument. Its entries are not expanded."""

    matrix = property(lambda self: self.args[0])
    shape = property(lambda self: self.matrix.shape)

    def __new__(cls, matrix):
        return super().__new__(cls, checked_square("matrix", matrix))

    def _entry(self, i, j, **kwargs):
        raise NotImplementedError(f"entries of a {type(self).__name__} have no symbolic form")


class _PartOfTwo(FunctionOfMatrix):
    """Part of a square matrix that has one row per entry of a product, or a sum, of two spaces of given sizes."""

    sizes = property(lambda self: self.args[1])

    def __new__(cls, matrix, sizes, part):
        checked_matrix("matrix", matrix)
        sizes = checked_sequence(cls.names[0], sizes, "sizes", length=2)
        sizes = sp.Tuple(*(checked_size(f"{cls.names[0]}[{i}]", size) for i, size in enumerate(sizes)))
        part = checked_whole_number(cls.names[1], part, least=0, most=1)
        size = sp.expand(cls.whole(*sizes))
        if tuple(map(sp.expand, matrix.shape)) != (size, size):
            raise ValueError(f"{cls.__name__} of sizes {sizes} needs a {size} x {size} matrix, got {matrix.shape}")
        return MatrixExpr.__new__(cls, matrix, sizes, sp.Integer(part))

    def is_definite(self, proof):
        return proof(self.matrix)


class PartialTrace(_PartOfTwo):
    """Trace over one of the two Kronecker factors of a square matrix; see `partial_trace`."""

    dimensions = _PartOfTwo.sizes
    names, whole = ("dimensions", "traced"), staticmethod(mul)
    traced = property(lambda self: int(self.args[2]))
    traced_dimension = property(lambda self: self.dimensions[self.traced])
    shape = property(lambda self: (self.dimensions[1 - self.traced],) * 2)

    def _eval_transpose(self):
        return PartialTrace(self.matrix.T, self.dimensions, self.args[2])

    def value(self, at):
        outer, inner = map(at.size, self.dimensions)
        matrix = at(self.matrix)
        blocks = at.xp.reshape(matrix, (*matrix.shape[:-2], outer, inner, outer, inner))
        return at.xp.einsum("...hahb->...ab" if self.traced == 0 else "...aibi->...ab", blocks)

    def pullback(self, cotangent):
        coefficient, rest = split_coefficient(cotangent.doit())
        identity = sp.Identity(self.traced_dimension)
        pair = (identity, rest) if self.traced == 0 else (rest, identity)
        return [(self.matrix, coefficient * sp.KroneckerProduct(*pair))]

    precedence = PRODUCT

    def _latex(self, printer):
        return operator(printer, "tr", self.matrix, self.traced_dimension)


class PrincipalBlock(_PartOfTwo):
    """One of the two diagonal blocks of a square matrix. The blocks have `sizes` (n_0, n_1)."""

    names, whole = ("sizes", "index"), staticmethod(add)
    index = property(lambda self: int(self.args[2]))
    shape = property(lambda self: (self.sizes[self.index],) * 2)

    def _eval_transpose(self):
        return principal_block(self.matrix.T, self.sizes, self.index)

    def value(self, at):
        split = at.size(self.sizes[0])
        kept = slice(None, split) if self.index == 0 else slice(split, None)
        return at(self.matrix)[..., kept, kept]

    def pullback(self, cotangent):
        return [(self.matrix, embed(cotangent, self.sizes, self.index))]

    def _latex(self, printer):
        return rf"\left[{printer._print(self.matrix)}\right]_{{{self.index}{self.index}}}"


class Diagonal(FunctionOfMatrix):
    """Diagonal of a square matrix, as a column."""

    shape = property(lambda self: (self.matrix.shape[0], sp.Integer(1)))

    def _entry(self, i, j, **kwargs):
        return self.matrix[i, i]

    def value(self, at):
        return at.xp.diagonal(at(self.matrix), 0, -2, -1)[..., None]

    def _latex(self, printer):
        return operator(printer, "diag", self.matrix)


class SquareRoot(FunctionOfMatrix):
    """Positive definite square root of a positive definite matrix."""

    def _eval_transpose(self):
        return self

    def value(self, at):
        return at.algebra.square_root(self.matrix, at)

    def is_definite(self, proof):
        return proof(self.matrix)

    def _latex(self, printer):
        return f"{operand(printer, self.matrix)}^{{1/2}}"


class Softmax(FunctionOfMatrix):
    """exp(x_i) / sum_j exp(x_j) of a column x. It is zero where x is minus infinity."""

    column = property(lambda self: self.args[0])

    def __new__(cls, column):
        if checked_matrix("column", column).shape[1] != 1:
            raise ValueError(f"column must have one column, got {shown(column)} of shape {column.shape}")
        return MatrixExpr.__new__(cls, column)

    def value(self, at):
        # The result does not depend on the largest entry, so neither do derivatives.
        column = at(self.column)
        largest = at.algebra.stop_gradient(at.xp.max(column, axis=-2, keepdims=True))
        weights = at.xp.exp(column - largest)
        return weights / at.xp.sum(weights, axis=-2, keepdims=True)

    def pullback(self, cotangent):
        return [(self.column, DiagMatrix(self) * cotangent - self * (self.T * cotangent))]

    def _latex(self, printer):
        return rf"\operatorname{{softmax}}{enclosed(printer._print(self.column))}"


class _Regrouped(FunctionOfMatrix):
    """Matrix of k blocks that are rearranged from axis `split` to axis `joined`, of which -2 counts rows."""

    blocks = property(lambda self: self.args[1])

    def __new__(cls, matrix, blocks):
        matrix, blocks = checked_matrix("matrix", matrix), checked_size("blocks", blocks)
        if blocks == 1:
            return matrix
        if isinstance(matrix, _Regrouped) and type(matrix) is not cls and matrix.blocks == blocks:
            return matrix.matrix
        return MatrixExpr.__new__(cls, matrix, blocks)

    @property
    def shape(self):
        shape = list(self.matrix.shape)
        shape[self.joined] = sp.expand(shape[self.joined] * self.blocks)
        shape[self.split] = _divide(shape[self.split], self.blocks)
        return tuple(shape)

    def value(self, at):
        return at.algebra.joined(at.xp.split(at(self.matrix), at.size(self.blocks), axis=self.split), self.joined)

    def pullback(self, cotangent):
        return [(self.matrix, (SideBySide if type(self) is Stacked else Stacked)(cotangent, self.blocks))]

    precedence = PRODUCT

    def _latex(self, printer):
        return operator(printer, self.notation, self.matrix, self.blocks)


class Stacked(_Regrouped):
    """The matrix `[A_1 | ... | A_k]` rearranged as `[A_1; ...; A_k]`."""

    notation, split, joined = "stack", -1, -2


class SideBySide(_Regrouped):
    """The matrix `[A_1; ...; A_k]` rearranged as `[A_1 | ... | A_k]`."""

    notation, split, joined = "row", -2, -1


@lru_cache
def _divide(size: sp.Expr, blocks: sp.Expr) -> sp.Expr:
    return sp.expand(sp.cancel(size / blocks))


def principal_block(matrix: MatrixExpr, sizes: Iterable[sp.Expr | int], index: int) -> MatrixExpr:
    """Return `PrincipalBlock`, simplified if the matrix is block diagonal or the identity."""
    if isinstance(matrix, BlockDiagMatrix) and [block.shape[0] for block in matrix.diag] == list(sizes):
        return matrix.diag[index]
    if isinstance(matrix, sp.Identity):
        return sp.Identity(sizes[index])
    return PrincipalBlock(matrix, sizes, index)


def embed(block: MatrixExpr, sizes: Iterable[sp.Expr | int], index: int) -> MatrixExpr:
    """Return the matrix that equals `block` in its diagonal block `index` and is zero elsewhere."""
    zero = sp.ZeroMatrix(sizes[1 - index], sizes[1 - index])
    return BlockDiagMatrix(*((block, zero) if index == 0 else (zero, block)))


def beside(*matrices: MatrixExpr) -> MatrixExpr:
    """Return `[A | B | ...]`, or a single matrix unchanged."""
    return matrices[0] if len(matrices) == 1 else BlockMatrix([list(matrices)])


def below(*matrices: MatrixExpr) -> MatrixExpr:
    """Return `[A; B; ...]`, or a single matrix unchanged."""
    return matrices[0] if len(matrices) == 1 else BlockMatrix([[matrix] for matrix in matrices])


def log_det(value: sp.Expr) -> sp.Expr:
    """Return log det of a positive definite matrix expression, or the logarithm of a positive scalar.

    Raises:
        ValueError: If the matrix is not square, or the scalar is known not to be positive.
    """
    value = checked_expression("value", value)
    if value.is_Matrix:
        return LogDet(checked_square("value", value))
    if value.is_positive is False:
        raise ValueError(f"value must be positive, got {value}")
    return sp.log(value)


def trace(matrix: MatrixExpr) -> sp.Expr:
    """Return the trace of a square matrix, with its scalar coefficient in front."""
    coefficient, factor = split_coefficient(checked_square("matrix", matrix))
    return coefficient * sp.Trace(factor)


def partial_trace(matrix: MatrixExpr, dimensions: Iterable[sp.Expr | int], traced: int) -> sp.Expr:
    """Return the trace of a square matrix X, acting on R^{d_0} (x) R^{d_1}, over one factor of this product.

    `dimensions` are (d_0, d_1). If `traced` is 0, the result is the d_1 x d_1 sum of the diagonal blocks of X. If it is
    1, the result is the d_0 x d_0 matrix of the traces of its blocks. A 1 x 1 result becomes a scalar.
    """
    coefficient, factor = split_coefficient(checked_square("matrix", matrix))
    found = PartialTrace(factor, dimensions, traced)
    return coefficient * (sp.Trace(factor) if found.dimensions[1 - found.traced] == 1 else found)


def split_coefficient(matrix: MatrixExpr) -> tuple[sp.Expr, MatrixExpr]:
    """Split a matrix expression into its scalar coefficient and the rest."""
    if isinstance(matrix, sp.MatMul):
        coefficient, rest = matrix.as_coeff_mmul()
        return coefficient, rest.doit()
    return sp.Integer(1), matrix


def quadratic_form(vector: MatrixExpr, matrix: MatrixExpr) -> sp.Expr:
    """Return the scalar `vector^T matrix vector`, for a column `vector`, as the trace of a 1 x 1 product."""
    rows = checked_square("matrix", matrix).shape[0]
    if checked_matrix("vector", vector).shape[1] != 1 or not are_equal_sizes(vector.shape[0], rows):
        raise ValueError(f"vector must be a column of {rows} rows, as the matrix has, got shape {vector.shape}")
    return sp.Trace(vector.T * matrix * vector)
