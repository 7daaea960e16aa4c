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

from ..symbolic.averages import GaussianAverage, breaks, coefficients, exponential_factor, features, singularities
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
SCALAR_OPERATIONS = ("gaussian_mean", "adaptive_gaussian_mean", *SPECIAL_FUNCTIONS.values())
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


def average_operation(average: GaussianAverage) -> tuple[str, tuple[str, ...]]:
    """The operation that takes an average, and its operands: texts of functions of one number, and of numbers."""
    depth = _depth(average)
    name = NORMAL if depth == 1 else f"{NORMAL}_{depth}"
    own = NormalVariable(name)
    average = average.func(average.integrand.xreplace({average.variable: own}), own, *average.args[2:])
    rest, tilt = exponential_factor(average)
    kinks = [_zeros(each, own) for each in breaks(average)]
    if average.is_adaptive:
        kinks += [each for each in (_zeros(each, own) for each in singularities(average)) if each not in kinks]
        places = [_numbers(each) for each in features(rest, own)]
        optional = [_tuple(kinks), _tuple(places), _tilt(tilt, name)]
        operation, first = "adaptive_gaussian_mean", [print_scalar(average.side)]
    else:
        optional = [_tuple(kinks), _tilt(tilt, name)]
        operation, first = "gaussian_mean", [str(average.nodes)]
    while optional and optional[-1] in ("()", "None"):
        optional.pop()
    return operation, (f"lambda {name}: {print_scalar(rest)}", *first, *optional)


def _zeros(function: Expr, variable: Symbol) -> str:
    """The coefficients of a polynomial of degree one or two, or any other function."""
    polynomial = coefficients(function, variable)
    return _numbers(polynomial) if polynomial else f"lambda {variable.name}: {print_scalar(function)}"


def _numbers(polynomial: tuple[Expr, ...]) -> str:
    *lower, last = polynomial
    return _tuple(list(map(print_scalar, lower if last == 0 else polynomial)))


def _tilt(tilt: tuple[Expr, ...] | None, name: str) -> str:
    if tilt is None:
        return "None"
    exponent, *numbers = map(print_scalar, tilt)
    return _tuple([f"lambda {name}: {exponent}", *numbers])


def _tuple(texts: list[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


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
        operation, operands = average_operation(node)
        return f"{operation}({', '.join(operands)})"
