"""Atoms for matrices made of blocks: blocks moved from beside to below one another, and principal blocks.

Stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. Joined blocks are SymPy's own
`BlockMatrix` and `BlockDiagMatrix`.
"""

from collections.abc import Iterable
from functools import lru_cache

from sympy import Expr, Identity, Integer, Tuple, ZeroMatrix, cancel, expand
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_matrices, checked_matrix, checked_size, checked_sizes, checked_square, checked_whole_number
from .atoms import FunctionOfMatrix


class _Regrouped(FunctionOfMatrix):
    """A matrix of k blocks in a row or a column, put into the other arrangement."""

    def __new__(cls, matrix, blocks):
        matrix, blocks = checked_matrix("matrix", matrix), checked_size("blocks", blocks)
        if blocks == 1:
            return matrix
        if isinstance(matrix, _Regrouped) and type(matrix) is not cls and matrix.blocks == blocks:
            return matrix.matrix
        return super().__new__(cls, matrix, blocks)

    @property
    def blocks(self):
        return self.args[1]


class Stacked(_Regrouped):
    """`[A_1 | ... | A_k]` as `[A_1; ...; A_k]`: the k blocks of columns of a matrix, one below the other."""

    @property
    def shape(self):
        """k times the rows, and a k-th of the columns, of the matrix."""
        rows, columns = self.matrix.shape
        return (expand(rows * self.blocks), _divide(columns, self.blocks))


class SideBySide(_Regrouped):
    """`[A_1; ...; A_k]` as `[A_1 | ... | A_k]`: the k blocks of rows of a matrix, one beside the other."""

    @property
    def shape(self):
        """A k-th of the rows, and k times the columns, of the matrix."""
        rows, columns = self.matrix.shape
        return (_divide(rows, self.blocks), expand(columns * self.blocks))


@lru_cache
def _divide(size: Expr, blocks: Expr) -> Expr:
    return expand(cancel(size / blocks))


class PrincipalBlock(FunctionOfMatrix):
    """One of the two diagonal blocks, of `sizes` (n_0, n_1), of a square matrix."""

    def __new__(cls, matrix, sizes, index):
        matrix, sizes = checked_matrix("matrix", matrix), Tuple(*checked_sizes("sizes", sizes))
        index = Integer(checked_whole_number("index", index, least=0, most=1))
        size = expand(sizes[0] + sizes[1])
        if tuple(map(expand, matrix.shape)) != (size, size):
            raise ValueError(f"PrincipalBlock of sizes {sizes} needs a matrix of size {size}, got {matrix}")
        return super().__new__(cls, matrix, sizes, index)

    @property
    def sizes(self):
        """The sizes (n_0, n_1) of the two diagonal blocks."""
        return self.args[1]

    @property
    def index(self) -> int:
        """Which of the two it is, 0 or 1."""
        return int(self.args[2])

    @property
    def shape(self):
        """Square, of the size of the block."""
        size = self.sizes[self.index]
        return (size, size)

    def _eval_transpose(self):
        return principal_block(self.matrix.T, self.sizes, self.index)


def principal_block(matrix: MatrixExpr, sizes: Iterable[Expr | int], index: int) -> MatrixExpr:
    """`PrincipalBlock`, read off where the matrix is block diagonal already, or the identity."""
    sizes, index = checked_sizes("sizes", sizes), checked_whole_number("index", index, least=0, most=1)
    if isinstance(matrix, BlockDiagMatrix) and [block.shape[0] for block in matrix.diag] == list(sizes):
        return matrix.diag[index]
    if isinstance(matrix, Identity):
        return Identity(sizes[index])
    return PrincipalBlock(matrix, sizes, index)


def embed(block: MatrixExpr, sizes: Iterable[Expr | int], index: int) -> MatrixExpr:
    """The matrix that is `block` in its diagonal block `index`, of `sizes` (n_0, n_1), and zero elsewhere."""
    block, sizes = checked_square("block", block), checked_sizes("sizes", sizes)
    index = checked_whole_number("index", index, least=0, most=1)
    if expand(block.shape[0] - sizes[index]) != 0:
        raise ValueError(f"the block must be of sizes[{index}], {sizes[index]}, got one of shape {block.shape}")
    zero = ZeroMatrix(sizes[1 - index], sizes[1 - index])
    return BlockDiagMatrix(*((block, zero) if index == 0 else (zero, block)))


def beside(*matrices: MatrixExpr) -> MatrixExpr:
    """`[A | B | ...]`; a single matrix as it is."""
    matrices = checked_matrices("matrices", matrices)
    return matrices[0] if len(matrices) == 1 else BlockMatrix([list(matrices)])


def below(*matrices: MatrixExpr) -> MatrixExpr:
    """`[A; B; ...]`; a single matrix as it is."""
    matrices = checked_matrices("matrices", matrices)
    return matrices[0] if len(matrices) == 1 else BlockMatrix([[matrix] for matrix in matrices])
