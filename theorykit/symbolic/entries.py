"""Functions of the entries of a column, written so that rules know them again."""

from collections.abc import Callable

from sympy import Expr, Lambda, OneMatrix, Trace
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..arguments import checked_function, shown
from .arguments import checked_column, checked_matrix, checked_scalar
from .bound_variables import EntryVariable

ENTRY = EntryVariable("x")


def entrywise(function: Callable[[Expr], Expr], matrix: MatrixExpr) -> MatrixExpr:
    """A function of numbers applied to every entry of a matrix; equal wherever both are."""
    checked_matrix("matrix", matrix)
    checked_function("function", function)
    try:
        value = checked_scalar("what the function returns", function(ENTRY))
    except TypeError as error:
        raise TypeError(f"function must take an expression to another, got {shown(function)}: {error}") from error
    return matrix.applyfunc(Lambda(ENTRY, value))


def sum_of_entries(function: Callable[[Expr], Expr], column: MatrixExpr) -> Expr:
    """The sum over a column's entries of a function of numbers, as the product of a row of ones with a column."""
    checked_column("column", column)
    return Trace(OneMatrix(1, column.shape[0]) * entrywise(function, column))
