"""Claims that two expressions agree: everywhere, but for a constant, row by row, at large width."""

from dataclasses import dataclass
from typing import Literal

from sympy import Expr, MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...codegen import interpret
from .claim import Claim, define, difference, draw, worst


@dataclass(frozen=True)
class Equal(Claim):
    """Both are the same, once every symbol of `definitions` has the value that it stands for."""

    definitions: tuple[tuple[Expr, Expr], ...] = ()

    def _error(self, before, after, values, rng):
        values = define(values, self.definitions)
        return difference(interpret(after, values), interpret(before, values))


@dataclass(frozen=True)
class EqualUpToConstant(Claim):
    """Both change by the same amount when `variables` change."""

    variables: tuple[Expr, ...]

    def _error(self, before, after, values, rng):
        other = values
        for variable in self.variables:
            other = draw(variable, other, rng)
        changes = [interpret(side, other) - interpret(side, values) for side in (before, after)]
        return difference(changes[1], changes[0])


@dataclass(frozen=True)
class SumOverRows(Claim):
    """One side, a function of matrices, is the sum over `count` rows of the other, a function of one row as a column.

    `rows` pairs each column symbol with the matrix whose rows it stands for. `per_row` says which side is of one row.
    """

    rows: tuple[tuple[MatrixSymbol, MatrixExpr], ...]
    count: Expr
    per_row: Literal["before", "after"]

    def _error(self, before, after, values, rng):
        one_row, whole = (before, after) if self.per_row == "before" else (after, before)
        matrices = {column.name: interpret(matrix, values) for column, matrix in self.rows}
        count = round(interpret(self.count, values))
        total = sum(
            interpret(one_row, {**values, **{name: matrix[[i]].T for name, matrix in matrices.items()}})
            for i in range(count)
        )
        return difference(interpret(whole, values), total)


@dataclass(frozen=True)
class LeadingOrder(Claim):
    """`after` is proportional to `width`, and what `before` has beyond it does not grow with the width."""

    width: Expr

    def _error(self, before, after, values, rng):
        wider = {**values, self.width.name: 7.0 * values[self.width.name]}
        rest = [interpret(before, point) - interpret(after, point) for point in (values, wider)]
        proportional = difference(interpret(after, wider), 7.0 * interpret(after, values))
        return worst(difference(*rest), proportional)
