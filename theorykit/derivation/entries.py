"""Functions of the entries of a column, written so that rules know them again."""

from collections.abc import Callable

from sympy import Expr, Lambda, OneMatrix, Symbol, Trace, cosh, log
from sympy.matrices.expressions.matexpr import MatrixExpr

ENTRY = Symbol("x", real=True)


def entrywise(function: Callable[[Expr], Expr], matrix: MatrixExpr) -> MatrixExpr:
    """A function of numbers applied to every entry of a matrix; equal wherever both are."""
    return matrix.applyfunc(Lambda(ENTRY, function(ENTRY)))


def sum_of_entries(function: Callable[[Expr], Expr], column: MatrixExpr) -> Expr:
    """The sum over a column's entries of a function of numbers, as the product of a row of ones with a column."""
    return Trace(OneMatrix(1, column.shape[0]) * entrywise(function, column))


def log_cosh(number: Expr) -> Expr:
    """log cosh x, without the 2 of 2 cosh x: SymPy takes the logarithm of a product apart."""
    return log(cosh(number))
