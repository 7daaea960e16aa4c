"""Scalar functions of generated code: the table of what is covered, and their text."""

from .coverage import arguments_of, as_float, refusal, refusal_of_node
from .printing import NORMAL, SPECIAL, average_operation, function_name, print_scalar
from .table import ROWS, TABLE, ScalarFunction

SCALAR_OPERATIONS = ("gaussian_mean", "adaptive_gaussian_mean")
"""Operations of generated code that stand in formulas."""

__all__ = [
    "NORMAL",
    "ROWS",
    "SCALAR_OPERATIONS",
    "SPECIAL",
    "TABLE",
    "ScalarFunction",
    "arguments_of",
    "as_float",
    "average_operation",
    "function_name",
    "print_scalar",
    "refusal",
    "refusal_of_node",
]
