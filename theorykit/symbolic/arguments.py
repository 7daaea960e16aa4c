"""What public functions admit as expressions of SymPy: symbols, scalars, matrices and sizes."""

import math
from collections.abc import Mapping
from typing import Any

from sympy import Expr, expand, sympify
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..arguments import checked_instance, checked_sequence, shown


def checked_expression(name: str, value: Any) -> Expr:
    """`value`, a scalar or matrix expression; a finite number of Python becomes one of SymPy."""
    if isinstance(value, Expr):
        return value
    # whole numbers of Python know no bounds
    is_float = isinstance(value, float) and math.isfinite(value)
    if is_float or (isinstance(value, int) and not isinstance(value, bool)):
        return sympify(value)
    raise TypeError(f"{name} must be an expression of SymPy, got {shown(value)}")


def checked_scalar(name: str, value: Any) -> Expr:
    """`value`, an expression that is no matrix."""
    expression = checked_expression(name, value)
    if expression.is_Matrix:
        raise ValueError(f"{name} must be a scalar expression, got one of shape {expression.shape}")
    return expression


def checked_matrix(name: str, value: Any) -> MatrixExpr:
    """`value`, a matrix expression."""
    if isinstance(value, MatrixExpr):
        return value
    raise TypeError(f"{name} must be a matrix expression of SymPy, got {shown(value)}")


def checked_square(name: str, value: Any) -> MatrixExpr:
    """`value`, a matrix expression with as many rows as columns."""
    if not are_equal_sizes(*checked_matrix(name, value).shape):
        raise ValueError(f"{name} must be a square matrix expression, got {shown(value)} of shape {value.shape}")
    return value


def are_equal_sizes(size: Expr, other: Expr) -> bool:
    """Whether two sizes are the same, however their products are written."""
    return size == other or expand(size - other) == 0


def checked_column(name: str, value: Any) -> MatrixExpr:
    """`value`, a matrix expression of one column."""
    if checked_matrix(name, value).shape[1] != 1:
        raise ValueError(f"{name} must be a column, got {shown(value)} of shape {value.shape}")
    return value


def checked_factors(name: str, values: Any) -> tuple[MatrixExpr, ...]:
    """`values`, matrix expressions, or none."""
    matrices = checked_sequence(name, values, "matrix expressions")
    return tuple(checked_matrix(f"{name}[{i}]", matrix) for i, matrix in enumerate(matrices))


def checked_matrices(name: str, values: Any) -> tuple[MatrixExpr, ...]:
    """`values`, at least one matrix expression."""
    if matrices := checked_factors(name, values):
        return matrices
    raise ValueError(f"{name} must be at least one matrix expression, got none")


def checked_size(name: str, value: Any) -> Expr:
    """`value`, a whole number above zero, or an expression that may be one."""
    size = checked_scalar(name, value)
    if size.is_integer is False or size.is_positive is False:
        raise ValueError(f"{name} must be a whole number above zero, got {shown(value)}")
    return size


def checked_sizes(name: str, values: Any) -> tuple[Expr, Expr]:
    """`values`, two sizes."""
    first, second = checked_sequence(name, values, "sizes", length=2)
    return checked_size(f"{name}[0]", first), checked_size(f"{name}[1]", second)


def checked_definitions(name: str, values: Any, what: str) -> Mapping[Expr, Any]:
    """`values`, a mapping of expressions to `what`."""
    for key in checked_instance(name, values, Mapping, f"expressions to {what}"):
        checked_instance(f"{name}, of {shown(key)},", key, Expr)
    return values
