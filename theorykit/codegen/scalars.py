"""Scalar arithmetic: the nodes that generated code may contain besides matrix operations, and their Python text."""

from sympy import (
    Abs,
    Add,
    Expr,
    Mul,
    Number,
    NumberSymbol,
    Pow,
    Symbol,
    acosh,
    asinh,
    atan,
    cos,
    cosh,
    exp,
    log,
    preorder_traversal,
    sin,
    sinh,
    tan,
    tanh,
)
from sympy.printing.numpy import JaxPrinter

# SymPy function -> its name in NumPy and in jax.numpy
SCALAR_FUNCTIONS = {
    Abs: "abs",
    acosh: "arccosh",
    asinh: "arcsinh",
    atan: "arctan",
    cos: "cos",
    cosh: "cosh",
    exp: "exp",
    log: "log",
    sin: "sin",
    sinh: "sinh",
    tan: "tan",
    tanh: "tanh",
}
_ARITHMETIC = (Add, Mul, Number, NumberSymbol, Pow, Symbol)


def print_scalar(expression: Expr) -> str:
    """Python text of scalar arithmetic over named numbers, functions from `jnp`; an unknown node is an error."""
    for node in preorder_traversal(expression):
        if not isinstance(node, (*_ARITHMETIC, *SCALAR_FUNCTIONS)):
            raise NotImplementedError(
                f"no lowering rule for {type(node).__name__} (in {expression}); add one to theorykit.codegen"
            )
    return JaxPrinter().doprint(expression).replace("jax.numpy.", "jnp.")
