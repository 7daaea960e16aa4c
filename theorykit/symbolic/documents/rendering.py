"""Render expressions as LaTeX. Our atoms write themselves; this printer corrects SymPy's output for SymPy's nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate

import sympy as sp
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.printing.latex import LatexPrinter

from ..atoms import LogDet, SquareRoot, checked_expression
from ..matrix_functions import SumOfEntries
from ..notation import PRODUCT, enclosed, escaped, operand, operator, power, value_at

# Prefix of variances: sigma2_1 is printed as sigma_1 squared.
_VARIANCE = "sigma2_"
# Suffix of symbols of test data: Phi_test is the Phi of test data.
_TEST = "_test"
# A name that is written as a formula: with LaTeX commands, such as \phi_1, or of letters with scripts and dashes.
_FORMULA = re.compile(r"[^$%&#~]*\\[A-Za-z][^$%&#~]*(?<!\\)|[^\W_](?:[\w{}^'+\-,.()=/]*[\w})'+\-])?(?<!_)")


class MatrixLatexPrinter(LatexPrinter):
    """SymPy's LaTeX printer with matrices of symbolic size, unambiguous brackets, and our names of symbols."""

    def _print_Symbol(self, expr, style="plain"):
        name = expr.name
        if expr in self._settings["symbol_names"]:
            return self._settings["symbol_names"][expr]
        if isinstance(expr, sp.Symbol) and name.startswith(_VARIANCE) and expr.is_positive:
            return f"{self._name(f'sigma_{name.removeprefix(_VARIANCE)}')}^{{2}}"
        if isinstance(expr, sp.MatrixSymbol) and name.endswith(_TEST):
            return f"{self._name(name.removesuffix(_TEST))}_{{*}}"
        return self._name(name)

    def _name(self, name):
        # Braces in a formula must match.
        depths = list(accumulate(({"{": 1, "}": -1}.get(character, 0) for character in name), initial=0))
        is_formula = _FORMULA.fullmatch(name) and depths[-1] == 0 <= min(depths)
        return self._deal_with_super_sub(name) if is_formula else rf"\text{{{escaped(name)}}}"

    def _print_Identity(self, expr):
        return rf"I_{{{self._print(expr.shape[0])}}}"

    def _print_OneMatrix(self, expr):
        rows, columns = map(self._print, expr.shape)
        return rf"\mathbf{{1}}_{{{rows} \times {columns}}}"

    def _print_Trace(self, expr):
        # Print the trace of a 1 x 1 product, such as y^T A y, without the trace.
        return self._print(expr.arg) if expr.arg.shape == (1, 1) else operator(self, "tr", expr.arg)

    def _print_DiagMatrix(self, expr):
        return rf"\operatorname{{diag}}{enclosed(self._print(expr.args[0]))}"

    def _print_ElementwiseApplyFunction(self, expr):
        return value_at(self, expr.function, self._print(expr.expr))

    def _print_Inverse(self, expr):
        if isinstance(expr.arg, SquareRoot):
            return f"{operand(self, expr.arg.matrix)}^{{-1/2}}"
        return self._print_MatPow(expr)

    def _print_MatAdd(self, expr):
        first, *rest = (self._print(term) for term in expr.args)
        signed = [f"- {text[1:].lstrip()}" if text.startswith("-") else f"+ {text}" for text in rest]
        return " ".join([first, *signed])

    def _print_MatMul(self, expr):
        coefficient, factors = expr.as_coeff_matrices()
        return self._coefficient(coefficient) + " ".join(map(self._factor, factors))

    def _factor(self, matrix):
        if isinstance(matrix, ElementwiseApplyFunction) and not matrix.function.expr.is_Function:
            return enclosed(self._print(matrix))
        return self.parenthesize(matrix, PRODUCT)

    def _coefficient(self, coefficient):
        if coefficient == 1:
            return ""
        if coefficient.could_extract_minus_sign():
            return f"- {self._coefficient(-coefficient)}"
        text = self._print(coefficient)
        ambiguous = coefficient.is_Add or coefficient.has(sp.Trace, LogDet, SumOfEntries)
        return f"{enclosed(text) if ambiguous else text} "

    def _needs_mul_brackets(self, expr, first=False, last=False):
        # Add brackets, because factors after a sum would be read as part of it.
        sums = isinstance(expr, SumOfEntries) and not last
        return sums or super()._needs_mul_brackets(expr, first=first, last=last)

    def _print_Pow(self, expr):
        if isinstance(expr.base, sp.Trace):
            return power(self._print(expr.base), self._print(expr.exp))
        return super()._print_Pow(expr)

    def _print_log(self, expr, exp=None):
        argument = self._print(expr.args[0])
        text = rf"\log {argument}" if expr.args[0].is_Symbol else rf"\log{enclosed(argument)}"
        return power(text, exp)


def latex(expression: sp.Expr, symbol_names: Mapping[sp.Expr, str] | None = None) -> str:
    """Return the LaTeX of `expression`. `symbol_names` are other names of symbols, in LaTeX."""
    return MatrixLatexPrinter({"symbol_names": dict(symbol_names or {})}).doprint(
        checked_expression("expression", expression)
    )
