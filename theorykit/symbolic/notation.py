"""LaTeX of our atoms: what their methods `_latex(printer)` have in common. `printer` may be ours or SymPy's."""

from collections.abc import Mapping

import sympy as sp
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE

_INDICES = "ijklmnpqrs"
_SPECIAL = {
    **{each: f"\\{each}" for each in "{}$%&#_"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
}


def escaped(text: str) -> str:
    """Escape the special characters of LaTeX in a text."""
    return "".join(_SPECIAL.get(each, each) for each in text)


def enclosed(text: str) -> str:
    """Put brackets around a formula."""
    return rf"\left({text}\right)"


def power(text: str, exponent: str | None) -> str:
    """Raise a formula to a power, if there is one. SymPy passes exponents of functions as text."""
    return text if exponent is None else f"{enclosed(text)}^{{{exponent}}}"


def operand(printer: LatexPrinter, matrix: sp.MatrixExpr) -> str:
    """Write the operand of an operator such as tr, in brackets unless it is a symbol."""
    text = printer._print(matrix)
    return text if getattr(matrix, "printed", matrix).is_symbol else enclosed(text)


def operator(printer: LatexPrinter, name: str, matrix: sp.MatrixExpr, below: sp.Expr | None = None) -> str:
    """Write an operator in front of its matrix."""
    subscript = "" if below is None else f"_{{{printer._print(below)}}}"
    return rf"\operatorname{{{name}}}{subscript} {operand(printer, matrix)}"


def with_names(printer: LatexPrinter, expression: sp.Expr, names: Mapping[sp.Expr, str]) -> str:
    """Write an expression in which these symbols have other names."""
    settings = printer._settings
    before = settings["symbol_names"]
    settings["symbol_names"] = {**before, **names}
    try:
        return printer._print(expression)
    finally:
        settings["symbol_names"] = before


def value_at(printer: LatexPrinter, function: sp.Lambda, *arguments: str) -> str:
    """Write the value of a function of these arguments."""
    return with_names(printer, function.expr, dict(zip(function.variables, arguments, strict=True)))


def unused(printer: LatexPrinter, name: str, expression: sp.Expr) -> str:
    """Append dashes to the name of a bound variable until no free symbol has this name."""
    others = set(map(printer._print, expression.free_symbols))
    while name in others:
        name += "'"
    return name


def indices(printer: LatexPrinter, matrix: sp.MatrixExpr) -> str:
    """Return index letters that no symbol in the matrix uses: one for a column or a row, otherwise two."""
    taken = set(map(printer._print, matrix.free_symbols))
    letters = [letter for letter in _INDICES if letter not in taken]
    return " ".join(letters[: 1 if 1 in matrix.shape else 2])


def entry(printer: LatexPrinter, matrix: sp.MatrixExpr, at: str) -> str:
    """Write the entry of a matrix at some indices. In a function of entries, the arguments get the indices."""
    matrices = (matrix.expr,) if isinstance(matrix, ElementwiseApplyFunction) else getattr(matrix, "matrices", ())
    if matrices:
        return value_at(printer, matrix.function, *(entry(printer, each, at) for each in matrices))
    text = printer._print(matrix)
    is_letter = matrix.is_symbol and not set("_^") & set(text)
    return rf"{text if is_letter else enclosed(text)}_{{{at}}}"


PRODUCT = PRECEDENCE["Mul"]
"""Precedence of operators in front of their operand, which need brackets in products and powers."""

SCALAR = PRODUCT + 1
"""Precedence of such operators whose result is a number. They need brackets in powers only."""
