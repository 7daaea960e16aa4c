"""Scalar arithmetic: the nodes that generated code may contain besides matrix operations, and their Python text."""

from functools import reduce

from sympy import (
    Abs,
    Add,
    Expr,
    Heaviside,
    Max,
    Min,
    Mul,
    Number,
    NumberSymbol,
    Pow,
    Symbol,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    log,
    preorder_traversal,
    sign,
    sin,
    sinh,
    tan,
    tanh,
)
from sympy.printing.numpy import JaxPrinter

from ..symbolic.averages import GaussianAverage
from ..symbolic.bound_variables import NormalVariable
from ..symbolic.functions import LogCosh, LogNormalCDF

# SymPy function -> its name in NumPy and in jax.numpy
SCALAR_FUNCTIONS = {
    Abs: "abs",
    acos: "arccos",
    acosh: "arccosh",
    asin: "arcsin",
    asinh: "arcsinh",
    atan: "arctan",
    atanh: "arctanh",
    cos: "cos",
    cosh: "cosh",
    exp: "exp",
    log: "log",
    sign: "sign",
    sin: "sin",
    sinh: "sinh",
    tan: "tan",
    tanh: "tanh",
}
# SymPy function -> its name in the vocabulary, where `jax.numpy` has none
SPECIAL_FUNCTIONS = {LogCosh: "log_cosh", LogNormalCDF: "log_normal_cdf", erf: "erf", erfc: "erfc"}
# functions of the vocabulary that stand in formulas
SCALAR_OPERATIONS = ("gaussian_mean", *SPECIAL_FUNCTIONS.values())
# what the function in an average calls its variable, with a number where averages stand in averages
NORMAL = "normal"
_OF_SEVERAL = (Heaviside, Max, Min)
_ARITHMETIC = (Add, Mul, Number, NumberSymbol, Pow, Symbol)


def print_scalar(expression: Expr) -> str:
    """Python text of scalar arithmetic over named numbers, functions from `jnp`; an unknown node is an error."""
    for node in preorder_traversal(expression):
        if not isinstance(node, (*_ARITHMETIC, *SCALAR_FUNCTIONS, *SPECIAL_FUNCTIONS, *_OF_SEVERAL, GaussianAverage)):
            raise NotImplementedError(
                f"no lowering rule for {type(node).__name__} (in {expression}); add one to theorykit.codegen"
            )
    return _ScalarPrinter().doprint(expression).replace("jax.numpy.", "jnp.")


def average_operands(average: GaussianAverage) -> tuple[str, str]:
    """The operands of `gaussian_mean`: the text of a function of one number, and the number of nodes."""
    depth = _depth(average)
    name = NORMAL if depth == 1 else f"{NORMAL}_{depth}"
    integrand = average.integrand.xreplace({average.variable: NormalVariable(name)})
    return f"lambda {name}: {print_scalar(integrand)}", str(average.nodes)


def _depth(average: GaussianAverage) -> int:
    return 1 + max(map(_depth, average.integrand.atoms(GaussianAverage)), default=0)


class _ScalarPrinter(JaxPrinter):
    def _print_Function(self, node):
        if name := SPECIAL_FUNCTIONS.get(type(node)):
            return f"{name}({self._print(node.args[0])})"
        return super()._print_Function(node)

    _print_erf = _print_erfc = _print_Function

    def _print_Max(self, node):
        return reduce(lambda left, right: f"jnp.maximum({left}, {right})", map(self._print, node.args))

    def _print_Min(self, node):
        return reduce(lambda left, right: f"jnp.minimum({left}, {right})", map(self._print, node.args))

    def _print_GaussianAverage(self, node):
        return f"gaussian_mean({', '.join(average_operands(node))})"
