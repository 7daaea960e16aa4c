"""Claims that two expressions agree: everywhere, but for a constant, row by row, at large width."""

from dataclasses import dataclass
from typing import Literal

from sympy import Expr, MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from .claim import Identity


@dataclass(frozen=True)
class Equal(Identity):
    """Both are the same, once every symbol of `definitions` has the value that it stands for."""

    definitions: tuple[tuple[Expr, Expr], ...] = ()

    def _sides(self, before, after, point):
        point = point.define(self.definitions)
        yield point(after), point(before)


@dataclass(frozen=True)
class EqualUpToConstant(Identity):
    """Both change by the same amount when `variables` change."""

    variables: tuple[Expr, ...]

    def _sides(self, before, after, point):
        other = point
        for variable in self.variables:
            other = other.draw(variable)
        yield other(after) - point(after), other(before) - point(before)


@dataclass(frozen=True)
class SumOverRows(Identity):
    """One side, a function of matrices, is the sum over `count` rows of the other, a function of one row as a column.

    `rows` pairs each column symbol with the matrix whose rows it stands for. `per_row` says which side is of one row.
    """

    rows: tuple[tuple[MatrixSymbol, MatrixExpr], ...]
    count: Expr
    per_row: Literal["before", "after"]

    def _sides(self, before, after, point):
        one_row, whole = (before, after) if self.per_row == "before" else (after, before)
        matrices = {column: point(matrix) for column, matrix in self.rows}
        of_rows = (
            point.where({column: matrix[[i]].T for column, matrix in matrices.items()})(one_row)
            for i in range(point.size(self.count))
        )
        yield point(whole), sum(of_rows)


@dataclass(frozen=True)
class LeadingOrder(Identity):
    """`after` is proportional to `width`, and what `before` has beyond it does not grow with the width."""

    width: Expr

    def _sides(self, before, after, point):
        wider = point.scaled(self.width, 7)
        yield point(before) - point(after), wider(before) - wider(after)
        yield wider(after), 7 * point(after)
