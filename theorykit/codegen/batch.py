"""Operations of generated code on a batch of small matrices.

A matrix is a grid of entries. An entry is the array of its values over the batch, with an axis of length one if all
values agree. XLA can then compile a whole program to a few vectorised loops. A dimension that is too long for a grid
becomes an axis of the entries, before the batch axes. Scalars are also arrays over the batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add as plus

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

# Scalars are arrays over the batch, so these functions of numbers apply to them unchanged.
from .gaussian_means import adaptive_gaussian_mean, adaptive_gaussian_means, gaussian_mean  # noqa: F401

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


def add(*matrices: Matrix) -> Matrix:
    """Add matrices."""
    rows = zip(*(each.grid for each in matrices), strict=True)
    total = tuple(tuple(reduce(plus, found) for found in zip(*row, strict=True)) for row in rows)
    return replace(matrices[0], grid=total)


def scale(by: Entry | float | int, matrix: Matrix) -> Matrix:
    """Multiply `matrix` by the scalar `by`."""
    return entrywise(lambda entry: by * entry, matrix)


def entrywise(function: Callable[..., Entry | float | int], *matrices: Matrix) -> Matrix:
    """Apply `function` to corresponding entries."""
    rows = zip(*(matrix.grid for matrix in matrices), strict=True)
    return replace(matrices[0], grid=tuple(tuple(map(function, *row)) for row in rows))


def squares(matrix: Matrix) -> Entry:
    """Sum the squares of all entries of the grid."""
    return sum(entry**2 for row in matrix.grid for entry in row)


def length(matrix: Matrix) -> Entry:
    """Return the Frobenius norm of the grid."""
    return jnp.sqrt(squares(matrix))


def transpose(matrix: Matrix) -> Matrix:
    """Transpose a matrix."""
    return Matrix(tuple(zip(*matrix.grid, strict=True)), matrix.long_columns, matrix.long_rows)


def matmul(left: Matrix, right: Matrix) -> Matrix:
    """Return left @ right."""
    if left.long_rows and right.long_columns:
        raise NotImplementedError("a batch cannot have matrices with two long dimensions")
    columns = tuple(zip(*right.grid, strict=True))
    product = tuple(
        tuple(reduce(plus, (a * b for a, b in zip(row, column, strict=True))) for column in columns)
        for row in left.grid
    )
    found = Matrix(product, left.long_rows, right.long_columns)
    return entrywise(lambda entry: jnp.sum(entry, axis=0), found) if left.long_columns else found


def scale_rows(by: Matrix, matrix: Matrix) -> Matrix:
    """Return diag(by) matrix, for a column `by`."""
    rows = zip(by.column, matrix.grid, strict=True)
    return replace(matrix, grid=tuple(tuple(factor * entry for entry in row) for factor, row in rows))


def softmax(of: Matrix) -> Matrix:
    """Return the softmax of a column."""
    # Stop gradients of the shift, on which the result does not depend. Otherwise the derivative would be 0/0 if fused
    # code rounds scores differently.
    if of.long_rows:
        ((scores,),) = of.grid
        weights = jnp.exp(scores - stop_gradient(jnp.max(scores, axis=0)))
        return replace(of, grid=((weights / jnp.sum(weights, axis=0),),))
    largest = stop_gradient(reduce(jnp.maximum, of.column))
    weights = tuple(jnp.exp(entry - largest) for entry in of.column)
    total = reduce(plus, weights)
    return column([weight / total for weight in weights])
