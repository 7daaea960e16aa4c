"""Python text of scalar expressions: arithmetic and the covered functions, over named numbers."""

from functools import reduce

from sympy import Expr
from sympy.printing.numpy import JaxPrinter

from ...symbolic.averages import GaussianAverage
from ...symbolic.bound_variables import NormalVariable
from ...symbolic.functions import NumericFunction
from .coverage import as_float, refusal
from .table import TABLE

NORMAL = "normal"
"""What the function in an average calls its variable, with a number where averages stand in averages."""
SPECIAL = "special"
"""The module of functions in generated code: one name, as symbols are called beta and gamma too."""
# a whole number up to this one is the same in float64
_LARGEST_EXACT = 2**53


def print_scalar(expression: Expr) -> str:
    """Python text of scalar arithmetic over named numbers, functions from `jnp`; an unknown node is an error."""
    if reason := refusal(expression):
        raise NotImplementedError(reason)
    return _ScalarPrinter().doprint(expression).replace("jax.numpy.", "jnp.")


def average_operands(average: GaussianAverage) -> tuple[str, str]:
    """The operands of `gaussian_mean`: the text of a function of one number, and the number of nodes."""
    depth = _depth(average)
    name = NORMAL if depth == 1 else f"{NORMAL}_{depth}"
    integrand = average.integrand.xreplace({average.variable: NormalVariable(name)})
    return f"lambda {name}: {print_scalar(integrand)}", str(average.nodes)


def _depth(average: GaussianAverage) -> int:
    return 1 + max(map(_depth, average.integrand.atoms(GaussianAverage)), default=0)


def function_name(function: type[NumericFunction]) -> str:
    """The name of a numeric function in generated code."""
    orders = function.orders if any(function.orders) else ()
    return "_".join(["function", function.own_name, *map(str, orders)])


class _ScalarPrinter(JaxPrinter):
    def _print(self, expr, **kwargs):
        if row := TABLE.get(type(expr)):
            name = f"{SPECIAL}.{row.text}" if row.is_special else row.text
            return f"{name}({self._arguments(expr)})"
        if isinstance(expr, NumericFunction):
            return f"{function_name(type(expr))}({self._arguments(expr)})"
        return super()._print(expr, **kwargs)

    def _arguments(self, node):
        return ", ".join(map(self._print, node.args))

    def _print_Integer(self, expr):
        # JAX takes no whole number beyond 64 bits
        return str(int(expr)) if abs(expr) <= _LARGEST_EXACT else repr(as_float(expr))

    def _print_Rational(self, expr):
        is_short = max(abs(expr.p), expr.q) <= _LARGEST_EXACT
        return f"{expr.p}/{expr.q}" if is_short else repr(as_float(expr))

    def _print_Float(self, expr):
        return repr(as_float(expr))

    def _print_Pow(self, expr, rational=False):
        # derivatives of whole powers have no pole at zero
        if expr.exp.is_Float and float(expr.exp).is_integer():
            return super()._print_Pow(type(expr)(expr.base, int(expr.exp), evaluate=False), rational=rational)
        return super()._print_Pow(expr, rational=rational)

    def _print_Piecewise(self, node):
        names = sorted({symbol.name for symbol in node.free_symbols})
        function = f"lambda {', '.join(names)}: "
        pieces = (f"({function}{self._print(is_so)}, {function}{self._print(value)})" for value, is_so in node.args)
        return f"{SPECIAL}.piecewise([{', '.join(names)}], {', '.join(pieces)})"

    def _print_Max(self, node):
        return reduce(lambda left, right: f"jnp.maximum({left}, {right})", map(self._print, node.args))

    def _print_Min(self, node):
        return reduce(lambda left, right: f"jnp.minimum({left}, {right})", map(self._print, node.args))

    def _print_GaussianAverage(self, node):
        return f"gaussian_mean({', '.join(average_operands(node))})"
