"""Atoms for matrices made of blocks: blocks moved from beside to below one another, and principal blocks.

Stage 1 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function`. Joined blocks are SymPy's own
`BlockMatrix` and `BlockDiagMatrix`.
"""

from sympy import Identity, Integer, Tuple, ZeroMatrix, cancel, expand, sympify
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix, BlockMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr


class _Regrouped(MatrixExpr):
    """A matrix of k blocks in a row or a column, put into the other arrangement."""

    def __new__(cls, matrix, blocks):
        matrix, blocks = sympify(matrix), sympify(blocks)
        if blocks == 1:
            return matrix
        if isinstance(matrix, _Regrouped) and type(matrix) is not cls and matrix.blocks == blocks:
            return matrix.matrix
        return super().__new__(cls, matrix, blocks)

    @property
    def matrix(self):
        return self.args[0]

    @property
    def blocks(self):
        return self.args[1]

    def _entry(self, i, j, **kwargs):
        raise NotImplementedError("entries of blocks of symbolic size are not expanded")


class Stacked(_Regrouped):
    """`[A_1 | ... | A_k]` as `[A_1; ...; A_k]`: the k blocks of columns of a matrix, one below the other."""

    @property
    def shape(self):
        rows, columns = self.matrix.shape
        return (expand(rows * self.blocks), expand(cancel(columns / self.blocks)))


class SideBySide(_Regrouped):
    """`[A_1; ...; A_k]` as `[A_1 | ... | A_k]`: the k blocks of rows of a matrix, one beside the other."""

    @property
    def shape(self):
        rows, columns = self.matrix.shape
        return (expand(cancel(rows / self.blocks)), expand(columns * self.blocks))


class PrincipalBlock(MatrixExpr):
    """One of the two diagonal blocks, of `sizes` (n_0, n_1), of a square matrix."""

    def __new__(cls, matrix, sizes, index):
        matrix, sizes, index = sympify(matrix), Tuple(*sizes), Integer(index)
        if len(sizes) != 2 or index not in (0, 1):
            raise ValueError(f"PrincipalBlock takes two sizes and index 0 or 1, got {sizes} and {index}")
        size = expand(sizes[0] + sizes[1])
        if not matrix.is_Matrix or tuple(map(expand, matrix.shape)) != (size, size):
            raise ValueError(f"PrincipalBlock of sizes {sizes} needs a matrix of size {size}, got {matrix}")
        return super().__new__(cls, matrix, sizes, index)

    @property
    def matrix(self):
        return self.args[0]

    @property
    def sizes(self):
        return self.args[1]

    @property
    def index(self) -> int:
        return int(self.args[2])

    @property
    def shape(self):
        size = self.sizes[self.index]
        return (size, size)

    def _eval_transpose(self):
        return principal_block(self.matrix.T, self.sizes, self.index)

    def _entry(self, i, j, **kwargs):
        raise NotImplementedError("entries of a block of symbolic size are not expanded")


def principal_block(matrix, sizes, index):
    """`PrincipalBlock`, read off where the matrix is block diagonal already, or the identity."""
    if isinstance(matrix, BlockDiagMatrix) and [block.shape[0] for block in matrix.diag] == list(sizes):
        return matrix.diag[index]
    if isinstance(matrix, Identity):
        return Identity(sizes[index])
    return PrincipalBlock(matrix, sizes, index)


def embedded(block, sizes, index):
    """The matrix that is `block` in its diagonal block `index`, of `sizes` (n_0, n_1), and zero elsewhere."""
    zero = ZeroMatrix(sizes[1 - index], sizes[1 - index])
    return BlockDiagMatrix(*((block, zero) if index == 0 else (zero, block)))


def beside(*matrices):
    """`[A | B | ...]`; a single matrix as it is."""
    return matrices[0] if len(matrices) == 1 else BlockMatrix([list(matrices)])


def below(*matrices):
    """`[A; B; ...]`; a single matrix as it is."""
    return matrices[0] if len(matrices) == 1 else BlockMatrix([[matrix] for matrix in matrices])
