"""Write the table of scalar functions that actions may contain, from the table of the code generator."""

from sympy import Expr, Symbol

from theorykit.codegen.functions import ROWS, ScalarFunction
from theorykit.symbolic import latex
from theorykit.symbolic.functions import JUMPING, LogBivariateNormalCDF, LogCosh, LogNormalCDF, partial_derivative

_NUMBERS = tuple(Symbol(name, real=True) for name in "xyz")
_ORDER = Symbol("n", integer=True, nonnegative=True)
# Functions whose name differs from their class.
_CALLED = {
    LogBivariateNormalCDF: "log_bivariate_normal_cdf(x, y, z)",
    LogCosh: "log_cosh(x)",
    LogNormalCDF: "log_normal_cdf(x)",
}


def table() -> str:
    lines = ["| function | domain | derivatives |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(_line(row) for row in ROWS if row.is_shown)])


def _line(row: ScalarFunction) -> str:
    symbols = iter(_NUMBERS)
    # Users do not give the order of a derivative.
    arguments = [_ORDER if letter == "n" else next(symbols) for letter in row.arguments if row.kind is not LogNormalCDF]
    node = row.kind(*arguments) if arguments else LogNormalCDF(_NUMBERS[0])
    slopes = [partial_derivative(node, i + 1) for i, at in enumerate(node.args) if at in _NUMBERS]
    written = "jumps" if isinstance(node, JUMPING) else ", ".join(map(_formula, slopes))
    return f"| `{_CALLED.get(row.kind, node)}` | {row.domain or 'all numbers'} | {written} |"


def _formula(slope: Expr) -> str:
    # A bar would end the Markdown cell.
    return f"${latex(slope)}$".replace(r"\left|", r"\left\vert ").replace(r"\right|", r"\right\vert ")
