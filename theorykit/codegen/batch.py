"""Compiled functions of a batch of small matrices.

A matrix is a grid of entries. An entry is the array of its values over the batch, with an axis of length one if all
values agree. XLA can then compile a whole function to a few vectorised loops. A dimension that is too long for a grid
becomes an axis of the entries, before the batch axes. Scalars are also arrays over the batch.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .jax_algebra import Jax

Entry = Float[Array, "*_"]
Grid = tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True)
class Matrix:
    """A batch of matrices.

    - `grid`: tuples of entries, one tuple per row.
    - `long_rows`: if True, the grid has one row, and the rows of the matrix are the first axis of its entries.
    - `long_columns`: if True, the grid has one column, and the columns are the first axis of its entries.
    """

    grid: Grid
    long_rows: bool = False
    long_columns: bool = False
    # NumPy leaves operations with matrices to this class.
    __array_ufunc__ = None

    def __add__(self, other):
        return entrywise(operator.add, self, other)

    __radd__ = __add__

    def __sub__(self, other):
        return entrywise(operator.sub, self, other)

    def __mul__(self, other):
        return entrywise(operator.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return entrywise(operator.truediv, self, other)

    def __matmul__(self, other):
        return matmul(self, other)

    @property
    def T(self) -> Matrix:
        """The transpose."""
        return Matrix(tuple(zip(*self.grid, strict=True)), self.long_columns, self.long_rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        entry = self.grid[0][0]
        rows = entry.shape[0] if self.long_rows else len(self.grid)
        return rows, entry.shape[0] if self.long_columns else len(self.grid[0])

    @property
    def column(self) -> tuple[Entry, ...]:
        """Entries of a matrix with one column."""
        return tuple(entry for (entry,) in self.grid)


def matrix(array: Float[Array, "n m *batch"]) -> Matrix:
    """Convert an array to a batch of matrices."""
    return Matrix(tuple(map(tuple, array)))


def column(entries: Sequence[Entry]) -> Matrix:
    """Make a matrix with one column."""
    return Matrix(tuple((entry,) for entry in entries))


def long_matrix(columns: Sequence[Float[Array, "n *batch"]]) -> Matrix:
    """Make a matrix from columns that have the rows as first axis."""
    return Matrix((tuple(columns),), long_rows=True)


def entrywise(function: Callable[..., Any], *operands: Matrix | Entry | float | int) -> Matrix:
    """Apply `function` to corresponding entries. A single row, a single column or a number applies to all entries."""
    matrices = [each for each in operands if isinstance(each, Matrix)]
    rows, columns = max(len(each.grid) for each in matrices), max(len(each.grid[0]) for each in matrices)

    def entry(of: Any, i: int, j: int) -> Any:
        if not isinstance(of, Matrix):
            return of
        row = of.grid[i if len(of.grid) > 1 else 0]
        return row[j if len(row) > 1 else 0]

    grid = tuple(
        tuple(function(*(entry(each, i, j) for each in operands)) for j in range(columns)) for i in range(rows)
    )
    return Matrix(grid, any(each.long_rows for each in matrices), any(each.long_columns for each in matrices))


def squares(matrix: Matrix) -> Entry:
    """Sum the squares of all entries of the grid."""
    return sum(entry**2 for row in matrix.grid for entry in row)


def length(matrix: Matrix) -> Entry:
    """Return the Frobenius norm of the grid."""
    return jnp.sqrt(squares(matrix))


def matmul(left: Matrix, right: Matrix) -> Matrix:
    """Return left @ right."""
    if left.long_rows and right.long_columns:
        raise NotImplementedError("a batch cannot have matrices with two long dimensions")
    columns = tuple(zip(*right.grid, strict=True))
    product = tuple(
        tuple(reduce(operator.add, (a * b for a, b in zip(row, column, strict=True))) for column in columns)
        for row in left.grid
    )
    found = Matrix(product, left.long_rows, right.long_columns)
    return entrywise(lambda entry: jnp.sum(entry, axis=0), found) if left.long_columns else found


class _Module:
    """`jax.numpy`, with the functions of matrices that rules use."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    @staticmethod
    def exp(value: Any) -> Any:
        """Return exp of a number or of each entry."""
        return entrywise(jnp.exp, value) if isinstance(value, Matrix) else jnp.exp(value)

    @staticmethod
    def max(matrix: Matrix, axis: int, keepdims: bool) -> Matrix:
        """Return the largest entry of a column."""
        return _reduced(matrix, jnp.max, jnp.maximum)

    @staticmethod
    def sum(matrix: Matrix, axis: int, keepdims: bool) -> Matrix:
        """Return the sum of the entries of a column."""
        return _reduced(matrix, jnp.sum, operator.add)


def _reduced(matrix: Matrix, over_axis: Callable, of_two: Callable) -> Matrix:
    columns = zip(*matrix.grid, strict=True)
    return Matrix((tuple(over_axis(c[0], axis=0) if matrix.long_rows else reduce(of_two, c) for c in columns),))


class Batch(Jax):
    """Evaluate functions of a batch of small matrices."""

    xp = _Module()
    operations = sys.modules[__name__]

    @staticmethod
    def stop_gradient(value: Any) -> Any:
        """Stop derivatives of each entry."""
        return entrywise(Jax.stop_gradient, value) if isinstance(value, Matrix) else Jax.stop_gradient(value)
