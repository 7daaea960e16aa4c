"""Render expressions as LaTeX and as Unicode, with partial traces in operator notation.

SymPy's own `latex` and `pretty`, and hence notebooks, use these printers for expressions with our atoms or names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import sympy as sp
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.pretty.pretty import PrettyPrinter
from sympy.printing.pretty.stringpict import prettyForm
from sympy.printing.printer import Printer

from ...checks import Expression, checked_arguments
from ..atoms import LogDet, PartialTrace, SideBySide, SquareRoot, Stacked
from ..functions import AngleBetween
from ..matrix_functions import AssumedPositiveDefinite, Entrywise, SumOfEntries

_INDICES = "ijklmnpqrs"


def _prefix(name: str, subscript: str = "") -> Callable[[Any, sp.Expr], Any]:
    """Make the printing rule for an operator in front of its matrix."""
    return lambda printer, expr: printer._operator(name, getattr(expr, subscript, None), expr.matrix)


class _Rules:
    """Rules of both printers."""

    _print_LogDet = _prefix("log det")
    _print_Diagonal = _prefix("diag")
    _print_PartialTrace = _prefix("tr", "traced_dimension")
    _print_Stacked = _prefix("stack", "blocks")
    _print_SideBySide = _prefix("row", "blocks")

    def _operand(self, matrix):
        matrix = matrix.matrix if isinstance(matrix, AssumedPositiveDefinite) else matrix
        text = self._print(matrix)
        return text if isinstance(matrix, sp.MatrixSymbol) else self._enclosed(text)

    def _print_Trace(self, expr):
        # Print the trace of a 1 x 1 product, such as y^T A y, without the trace.
        return self._print(expr.arg) if expr.arg.shape == (1, 1) else self._operator("tr", None, expr.arg)

    def _print_WholeFunctionBase(self, expr, exp=None):
        closed_form = sp.asin if isinstance(expr, AngleBetween) else expr.closed_form
        return self._raised(self._print(expr.rewrite(closed_form)), exp)

    def _print_AssumedPositiveDefinite(self, expr):
        return self._print(expr.matrix)

    def _matrix_factor(self, matrix):
        matrix = matrix.matrix if isinstance(matrix, AssumedPositiveDefinite) else matrix
        text = self._print(matrix)
        compound = isinstance(
            matrix, (sp.KroneckerProduct, sp.MatAdd, sp.MatMul, PartialTrace, SideBySide, Stacked)
        )
        if isinstance(matrix, ElementwiseApplyFunction):
            compound = not matrix.function.expr.is_Function
        return self._enclosed(text) if compound else text

    def _print_SquareRoot(self, expr):
        return self._root(expr.matrix, "1/2")

    def _print_Inverse(self, expr):
        root = expr.arg
        return self._root(root.matrix, "-1/2") if isinstance(root, SquareRoot) else self._print_MatPow(expr)

    def _print_Symbol(self, expr, *style, **styles):
        if expr not in self._settings.get("symbol_names", ()):
            if _is_variance(expr):
                return self._with_above(sp.Symbol(f"sigma_{expr.name.removeprefix(_VARIANCE)}"), "2")
            if _is_of_test_data(expr):
                return self._with_below(sp.Symbol(expr.name.removesuffix(_TEST)), "*")
        return super()._print_Symbol(expr, *style, **styles)


# Prefix of variances: sigma2_1 is printed as sigma_1 squared.
_VARIANCE = "sigma2_"
# Suffix of symbols of test data: Phi_test is the Phi of test data.
_TEST = "_test"


def _is_variance(node: Any) -> bool:
    return isinstance(node, sp.Symbol) and node.name.startswith(_VARIANCE) and node.is_positive is True


def _is_of_test_data(node: Any) -> bool:
    return isinstance(node, sp.MatrixSymbol) and node.name.endswith(_TEST)


def _power(text: str, exp: str | None) -> str:
    return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


class MatrixLatexPrinter(_Rules, LatexPrinter):
    """SymPy's LaTeX printer with rules for our atoms and for matrices of symbolic size."""

    def _print_Identity(self, expr):
        return rf"I_{{{self._print(expr.shape[0])}}}"

    def _operator(self, name, subscript, matrix):
        name = r"\log\det" if name == "log det" else rf"\operatorname{{{name}}}"
        below = "" if subscript is None else f"_{{{self._print(subscript)}}}"
        return f"{name}{below} {self._operand(matrix)}"

    def _with_above(self, symbol, text):
        return f"{self._print(symbol)}^{{{text}}}"

    def _with_below(self, symbol, text):
        return f"{self._print(symbol)}_{{{text}}}"

    def _print_PrincipalBlock(self, expr):
        return rf"\left[{self._print(expr.matrix)}\right]_{{{expr.index}{expr.index}}}"

    def _root(self, matrix, power):
        return f"{self._operand(matrix)}^{{{power}}}"

    def _print_OneMatrix(self, expr):
        rows, columns = map(self._print, expr.shape)
        return rf"\mathbf{{1}}_{{{rows} \times {columns}}}"

    def _print_DiagMatrix(self, expr):
        return rf"\operatorname{{diag}}{self._parenthesise(expr.args[0])}"

    def _print_Softmax(self, expr):
        return rf"\operatorname{{softmax}}{self._parenthesise(expr.column)}"

    def _print_ElementwiseApplyFunction(self, expr):
        return self._named(expr.function, self._print(expr.expr))

    def _named(self, function, *names):
        """Print the value of a function with these names for its variables."""
        named = dict(zip(function.variables, names, strict=True))
        return MatrixLatexPrinter({"symbol_names": self._settings["symbol_names"] | named}).doprint(function.expr)

    def _unused(self, name, expr):
        """Append dashes to the name of a bound variable until no free symbol has this name."""
        others = set(map(self._print, expr.free_symbols))
        while name in others:
            name += "'"
        return name

    def _print_GaussianAverage(self, expr):
        name = self._unused(self._print(expr.variable), expr)
        named = latex(expr.integrand, {**self._settings["symbol_names"], expr.variable: name})
        return rf"\left\langle {named} \right\rangle_{{{name} \sim \mathcal{{N}}(0, 1)}}"

    def _print_Entrywise(self, expr):
        indices = self._indices(expr)
        return rf"\left[{self._entry_of(expr, indices)}\right]_{{{indices}}}"

    def _print_KernelMatrix(self, expr):
        row, column = self._indices(expr.matrix).split()
        places = (row + row, row + column, column + column)
        text = self._named(expr.function, *(f"{self._parenthesise(expr.matrix)}_{{{place}}}" for place in places))
        return rf"\left[{text}\right]_{{{row} {column}}}"

    def _print_SumOfEntries(self, expr):
        indices = self._indices(expr.matrix)
        entry = self._entry_of(expr.matrix, indices)
        is_sum = isinstance(expr.matrix, (ElementwiseApplyFunction, Entrywise)) and expr.matrix.function.expr.is_Add
        return rf"\sum_{{{indices}}} " + (rf"\left({entry}\right)" if is_sum else entry)

    def _needs_mul_brackets(self, expr, first=False, last=False):
        # Add brackets, because factors after a sum would be read as part of it.
        sums = isinstance(expr, SumOfEntries) and not last
        return sums or super()._needs_mul_brackets(expr, first=first, last=last)

    def _indices(self, matrix):
        """Return index letters that no symbol in the matrix uses: one for a column or a row, otherwise two."""
        taken = {self._print(symbol) for symbol in matrix.free_symbols}
        letters = [letter for letter in _INDICES if letter not in taken]
        return " ".join(letters[: 1 if 1 in matrix.shape else 2])

    def _entry_of(self, matrix, indices):
        """Print a matrix with the given indices. In a function of entries, the arguments get the indices."""
        if isinstance(matrix, (ElementwiseApplyFunction, Entrywise)):
            matrices = matrix.matrices if isinstance(matrix, Entrywise) else (matrix.expr,)
            return self._named(matrix.function, *(self._entry_of(each, indices) for each in matrices))
        text = self._print(matrix)
        is_letter = isinstance(matrix, sp.MatrixSymbol) and not set("_^") & set(text)
        return rf"{text}_{{{indices}}}" if is_letter else rf"\left({text}\right)_{{{indices}}}"

    def _parenthesise(self, matrix):
        return self._enclosed(self._print(matrix))

    def _print_MatAdd(self, expr):
        first, *rest = (self._print(term) for term in expr.args)
        signed = [f"- {text[1:].lstrip()}" if text.startswith("-") else f"+ {text}" for text in rest]
        return " ".join([first, *signed])

    def _print_MatMul(self, expr):
        coefficient, factors = expr.as_coeff_matrices()
        return self._coefficient(coefficient) + " ".join(map(self._matrix_factor, factors))

    def _coefficient(self, coefficient):
        if coefficient == 1:
            return ""
        if coefficient.could_extract_minus_sign():
            return f"- {self._coefficient(-coefficient)}"
        text = self._print(coefficient)
        ambiguous = coefficient.is_Add or coefficient.has(sp.Trace, LogDet, SumOfEntries)
        return rf"\left({text}\right) " if ambiguous else f"{text} "

    def _print_KroneckerProduct(self, expr):
        return r" \otimes ".join(map(self._matrix_factor, expr.args))

    def _print_Pow(self, expr):
        if isinstance(expr.base, (LogDet, SumOfEntries, sp.Trace)):
            return _power(self._print(expr.base), self._print(expr.exp))
        return super()._print_Pow(expr)

    def _print_Mul(self, expr):
        """Print square roots of several factors under one root. SymPy splits them for positive symbols."""
        roots = [factor for factor in expr.args if factor.is_Pow and abs(factor.exp) == sp.Rational(1, 2)]
        if len(roots) < 2:
            return super()._print_Mul(expr)
        rest = sp.Mul(*(factor for factor in expr.args if factor not in roots), evaluate=False)
        root = rf"\sqrt{{{self._print(sp.Mul(*(factor**2 for factor in roots)))}}}"
        return root if rest == 1 else f"{self.parenthesize(rest, PRECEDENCE['Mul'])} {root}"

    def _print_log(self, expr, exp=None):
        argument = self._print(expr.args[0])
        text = rf"\log {argument}" if expr.args[0].is_Symbol else rf"\log\left({argument}\right)"
        return _power(text, exp)

    def _print_LogNormalCDF(self, expr, exp=None):
        name = r"\log\Phi" if expr.order == 0 else rf"\left(\log\Phi\right)^{{({expr.order})}}"
        return _power(f"{name}{self._parenthesise(expr.args[0])}", exp)

    def _print_MoreauEnvelope(self, expr, exp=None):
        return _power(self._minimum(r"\min", expr), exp)

    def _print_ProximalPoint(self, expr, exp=None):
        return _power(self._minimum(r"\operatorname{argmin}", expr), exp)

    def _minimum(self, head, expr):
        name = self._unused("x", expr)
        omega, variance, *values = (
            self._print(number) if number.is_Atom else self._parenthesise(number) for number in expr.numbers
        )
        loss = self._named(expr.loss, name, *values)
        square = rf"\frac{{\left({name} - {omega}\right)^{{2}}}}{{2 {variance}}}"
        return rf"{head}_{{{name}}}\left[{square} + {loss}\right]"

    _raised = staticmethod(_power)

    def _enclosed(self, text):
        return rf"\left({text}\right)"


class MatrixPrettyPrinter(_Rules, PrettyPrinter):
    """SymPy's printer for terminals with rules for our atoms."""

    def _raised(self, text, exp):
        return text

    def _enclosed(self, text, brackets="()"):
        return prettyForm(*text.parens(*brackets), binding=prettyForm.ATOM)

    def _print_MatAdd(self, expr):
        first, *rest = map(self._print, expr.args)
        return prettyForm.__add__(first, *rest)

    def _print_MatMul(self, expr):
        coefficient, factors = expr.as_coeff_matrices()
        product = prettyForm.__mul__(*map(self._matrix_factor, factors))
        is_negative = not coefficient.is_Add and coefficient.could_extract_minus_sign()
        if abs(coefficient) != 1:
            number = self._print(-coefficient if is_negative else coefficient)
            product = prettyForm.__mul__(self._enclosed(number) if coefficient.is_Add else number, product)
        return prettyForm(*product.left("-"), binding=prettyForm.NEG) if is_negative else product

    def _operator(self, name, subscript, matrix):
        name = prettyForm(name)
        if subscript is not None:
            name = _lowered(name, self._print(subscript))
        return prettyForm(*name.right(" ", self._operand(matrix)), binding=prettyForm.MUL)

    def _with_above(self, symbol, text):
        above = "²" if self._use_unicode else f"^{text}"
        return prettyForm(f"{self._print(symbol)}{above}", binding=prettyForm.POW)

    def _with_below(self, symbol, text):
        return prettyForm(f"{self._print(symbol)}_{text}")

    def _root(self, matrix, power):
        return self._operand(matrix) ** prettyForm(power)

    def _print_PrincipalBlock(self, expr):
        return _lowered(self._enclosed(self._print(expr.matrix), "[]"), f"{expr.index}{expr.index}")

    def _print_DiagMatrix(self, expr):
        return self._operator("diag", None, expr.args[0])

    def _print_Softmax(self, expr):
        return prettyForm(*prettyForm("softmax").right(self._enclosed(self._print(expr.column))))

    def _print_SumOfEntries(self, expr):
        return self._operator("sum", None, expr.matrix)

    def _print_GaussianAverage(self, expr):
        head = _lowered(prettyForm("E"), self._print(expr.variable))
        return prettyForm(*head.right(self._enclosed(self._print(expr.integrand), "[]")), binding=prettyForm.FUNC)

    def _print_Entrywise(self, expr):
        return self._enclosed(self._of(expr.function, *expr.matrices), "[]")

    def _print_ElementwiseApplyFunction(self, expr):
        return self._enclosed(self._of(expr.function, expr.expr), "[]")

    def _print_KernelMatrix(self, expr):
        name = sp.sstr(expr.matrix) if isinstance(expr.matrix, sp.MatrixSymbol) else f"({sp.sstr(expr.matrix)})"
        return self._enclosed(self._of(expr.function, *(f"{name}_{place}" for place in ("ii", "ij", "jj"))), "[]")

    def _print_LogNormalCDF(self, expr):
        order = f"^({expr.order})" if expr.order else ""
        return prettyForm(*prettyForm(f"(log Φ){order}").right(self._enclosed(self._print(expr.args[0]))))

    def _of(self, function, *names):
        """Print the value of a function with these names for its variables."""
        texts = [name if isinstance(name, str) else str(self._print(name)) for name in names]
        # Use the plain name if the printed name has several lines.
        named = [sp.Symbol(sp.sstr(name) if "\n" in text else text) for name, text in zip(names, texts, strict=True)]
        return self._print(function.expr.xreplace(dict(zip(function.variables, named, strict=True))))


def _lowered(text: prettyForm, below: prettyForm | str) -> prettyForm:
    """Put the subscript `below` at the lower right of `text`."""
    return prettyForm(*text.right(prettyForm("\n".join([" ", *str(below).splitlines()]))))


def _serves_sympy(theirs: type[Printer], ours: type[Printer]) -> None:
    """Make SymPy's printer use our printer for expressions that contain our atoms or names."""
    doprint = theirs.doprint

    @wraps(doprint)
    def doprint_or_ours(self, expression):
        for node in sp.preorder_traversal(expression) if type(self) is theirs else ():
            if type(node).__module__.startswith(_SYMBOLIC) or _is_variance(node) or _is_of_test_data(node):
                made = ours()
                vars(made).update(vars(self))
                return made.doprint(expression)
        return doprint(self, expression)

    theirs.doprint = doprint_or_ours


_SYMBOLIC = __name__.rpartition(".documents")[0]
_serves_sympy(LatexPrinter, MatrixLatexPrinter)
_serves_sympy(PrettyPrinter, MatrixPrettyPrinter)


@checked_arguments
def latex(expression: Expression, symbol_names: Mapping[sp.Expr, str] | None = None) -> str:
    """Return the LaTeX of `expression`. `symbol_names` are LaTeX names of symbols that should have another name.

    Example:
        >>> from theorykit.symbolic import latex, positive_definite
        >>> K = positive_definite("K", 3)
        >>> latex(K.inv(), {K: "K_0"})
        'K_0^{-1}'
    """
    return MatrixLatexPrinter({"symbol_names": dict(symbol_names or {})}).doprint(expression)


def fold(expression: sp.Expr, definitions: Mapping[sp.Expr, sp.Expr]) -> sp.Expr:
    """Replace every value of `definitions` (symbol -> value) in `expression` by its symbol."""
    return expression.xreplace({value: symbol for symbol, value in definitions.items()})
