"""Write scalar expressions as Python text, and suggest replacements for expressions that are not covered."""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from functools import partial, reduce
from typing import Any

import sympy as sp
from sympy import Add, Expr, Max, Min, Mul, Pow, S, cosh, exp, log, sinh, tanh
from sympy.core.function import AppliedUndef
from sympy.core.numbers import ImaginaryUnit
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import And, BooleanFalse, BooleanTrue, Not, Or
from sympy.matrices.expressions.matexpr import MatrixElement
from sympy.printing.numpy import JaxPrinter

from ..checks import shown
from ..symbolic.atoms import NormalVariable
from ..symbolic.averages import GaussianAverage, breaks, coefficients, exponential_factor, features, singularities
from ..symbolic.envelopes import FunctionOfLoss
from ..symbolic.functions import LogCosh, WholeFunctionBase
from ..symbolic.numeric import NumericFunction
from ..symbolic.spectral_laws import SpectralAverage
from .functions import ROWS, TABLE

NORMAL = "normal"
"""Name of the variable of an averaged function, followed by a number in nested averages."""
SPECIAL = "special"
"""Name of the module of functions in generated code. They are its attributes, because a symbol may be called beta."""
SCALAR_OPERATIONS = ("gaussian_mean", "adaptive_gaussian_mean")
"""Operations of generated code that occur in formulas."""
NamedFunction = type[NumericFunction] | tuple[Any, ...]
"""A numeric function, or the class, the loss and the choice of a minimum of a `FunctionOfLoss`."""
# All integers up to this number are exact in float64.
_LARGEST_EXACT = 2**53
_ARITHMETIC = (Add, GaussianAverage, Max, Min, Mul, sp.Number, sp.NumberSymbol, Pow, SpectralAverage, sp.Symbol)
# Classes of the parts of a piecewise function.
_CASES = (And, BooleanFalse, BooleanTrue, ExprCondPair, Not, Or, sp.Piecewise, Relational, sp.Tuple)
# Exponential functions as sums: pairs of a factor and the sign of the exponent.
_EXPONENTIALS = {exp: ((S.One, 1),), cosh: ((S.Half, 1), (S.Half, -1)), sinh: ((S.Half, 1), (-S.Half, -1))}


def print_scalar(expression: Expr) -> str:
    """Write a scalar expression as Python text, with functions from `jnp`. Raises an error for unknown nodes."""
    if reason := refusal(expression):
        raise NotImplementedError(reason)
    return _ScalarPrinter().doprint(expression).replace("jax.numpy.", "jnp.")


def average_operation(average: Expr) -> tuple[str, tuple[str, ...]]:
    """Return the operation for an average, and the texts of its operands."""
    depth = _depth(average)
    name = NORMAL if depth == 1 else f"{NORMAL}_{depth}"
    own = NormalVariable(name)
    average = average.func(average.integrand.xreplace({average.variable: own}), own, *average.args[2:])
    rest, tilt = exponential_factor(average)

    def zeros(function: Expr) -> str:
        """Return the text of the coefficients of a polynomial of degree one or two, or of any other function."""
        polynomial = coefficients(function, own)
        return numbers(polynomial) if polynomial else f"lambda {name}: {print_scalar(function)}"

    def numbers(polynomial: tuple[Expr, ...]) -> str:
        *lower, last = polynomial
        return _tuple(map(print_scalar, lower if last == 0 else polynomial))

    kinks = list(map(zeros, breaks(average)))
    operation, first, near = "gaussian_mean", str(average.nodes), []
    if average.is_adaptive:
        operation, first = "adaptive_gaussian_mean", print_scalar(average.side)
        kinks += [each for each in map(zeros, singularities(average)) if each not in kinks]
        near = [_tuple(map(numbers, features(rest, own)))]
    exponent, *moments = map(print_scalar, tilt) if tilt else [""]
    optional = [_tuple(kinks), *near, _tuple([f"lambda {name}: {exponent}", *moments]) if tilt else "None"]
    while optional and optional[-1] in ("()", "None"):
        optional.pop()
    # Evaluate functions that occur several times in the integrand once.
    bound = {average.variable for average in rest.atoms(GaussianAverage)}
    counts = Counter(node for node in sp.preorder_traversal(rest) if isinstance(node, _SHARED))
    repeated = [node for node, count in counts.items() if count > 1 and not node.free_symbols & bound]
    shared, values = {}, []
    for i, node in enumerate(sorted(repeated, key=sp.count_ops)):
        values.append(print_scalar(node.xreplace(shared)))
        shared[node] = sp.Symbol(f"shared_{i}", real=True)
    text = print_scalar(rest.xreplace(shared))
    for symbol, value in zip(reversed(shared.values()), reversed(values), strict=True):
        text = f"(lambda {symbol}: {text})({value})"
    return operation, (f"lambda {name}: {text}", first, *optional)


def _tuple(texts: Iterable[str]) -> str:
    texts = list(texts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _depth(average: Expr) -> int:
    return 1 + max(map(_depth, average.integrand.atoms(GaussianAverage)), default=0)


# Nodes that generated code calls by the name of their function.
NAMED = (NumericFunction, FunctionOfLoss)
# Functions of many operations.
_SHARED = (*NAMED, WholeFunctionBase, sp.Piecewise)


def function_of(node: Expr) -> NamedFunction:
    """Return what distinguishes the function of a node in generated code: its class, and its loss if it has one."""
    return (type(node), *node.args[2:4]) if isinstance(node, FunctionOfLoss) else type(node)


def function_name(function: NamedFunction) -> str:
    """Return the name of a function in generated code."""
    if isinstance(function, tuple):
        kind, *loss = function
        return f"{kind.__name__}_{zlib.crc32(sp.srepr(loss).encode()):08x}"
    orders = function.orders if any(function.orders) else ()
    return "_".join(["function", function.own_name, *map(str, orders)])


def terms_of_exponentials(expression: Expr) -> list[tuple[Expr, Expr]] | None:
    """Write an expression with exponential or hyperbolic functions as at most 16 terms c exp(u), pairs (c, u)."""
    terms = []
    for term in Add.make_args(expression):
        pairs = [(S.One, S.Zero)]
        for factor in Mul.make_args(term):
            base, power = (factor.base, factor.exp) if isinstance(factor, Pow) else (factor, S.One)
            of_factor, repeats = [(factor, S.Zero)], 1
            if type(base) in _EXPONENTIALS and power in (1, 2, 3, 4):
                of_factor, repeats = [(d, sign * base.args[0]) for d, sign in _EXPONENTIALS[type(base)]], int(power)
            for _ in range(repeats):
                pairs = [(c * d, u + v) for c, u in pairs for d, v in of_factor]
        terms += pairs
    return terms if len(terms) <= 16 and any(exponent.free_symbols for _, exponent in terms) else None


def log_without_overflow(of: Expr) -> Expr | None:
    """Write the logarithm of a product of exponential functions, powers of cosh and other factors as a sum."""
    factors = {factor: factor.as_base_exp() for factor in Mul.make_args(of)}
    out, rest = S.Zero, S.One
    for factor, (base, power) in factors.items():
        if isinstance(factor, exp):
            out += factor.exp
        elif isinstance(base, cosh):
            out += power * LogCosh(base.args[0])
        else:
            rest *= factor
    return out + log(rest, evaluate=rest == 1) if out != 0 else None


def with_tanh(product: Expr) -> Expr:
    """Replace ratios of sinh(u) and cosh(u), which may be infinity over infinity, by tanh(u)."""
    powers = product.as_powers_dict()
    for base in list(powers):
        power = powers.get(cosh(base.args[0]), 0) if isinstance(base, sinh) else 0
        if powers[base].is_Integer and 0 < powers[base] <= -power:
            product = product * (tanh(base.args[0]) * cosh(base.args[0]) / base) ** powers[base]
    return product


def factors_of_exponentials(product: Expr) -> tuple[Expr, list[tuple[list[tuple[Expr, Expr]], int]]] | None:
    """Split a ratio of sums of exponentials into another factor, and the terms and the power of every sum.

    Returns None if it is no such ratio.
    """
    rest, found = S.One, []
    # The two exponentials of a hyperbolic sine cancel near zero.
    for factor in Mul.make_args(product.replace(sinh, lambda u: tanh(u) * cosh(u))):
        base, power = (factor.base, factor.exp) if isinstance(factor, Pow) else (factor, S.One)
        terms = terms_of_exponentials(base) if power.is_Integer and base.has(exp, cosh) else None
        if terms is None:
            rest *= factor
        else:
            found.append((terms, int(power)))
    powers = [power for _, power in found]
    return (rest, found) if powers and min(powers) < 0 < max(powers) else None


class _ScalarPrinter(JaxPrinter):
    def _print_log(self, expr):
        (of,) = expr.args
        if (found := log_without_overflow(of)) is not None:
            # Add parentheses, because the logarithm may be a factor.
            return f"({self._print(found)})"
        terms = terms_of_exponentials(of) if of.is_Add else None
        return f"jnp.log({self._print(of)})" if terms is None else f"{SPECIAL}.log_sum_exp{self._pairs(terms)}"

    def _pairs(self, terms):
        return _tuple(f"({self._print(factor)}, {self._print(exponent)})" for factor, exponent in terms)

    def _print(self, expr, **kwargs):
        row = None if isinstance(expr, log) else TABLE.get(type(expr))
        if row is None and not isinstance(expr, NAMED):
            return super()._print(expr, **kwargs)
        name = row.text if row else function_name(function_of(expr))
        name = f"{SPECIAL}.{name}" if row and row.text != "abs" and not row.text.startswith("jnp.") else name
        return f"{name}({', '.join(map(self._print, expr.numbers if isinstance(expr, FunctionOfLoss) else expr.args))})"

    def _print_Integer(self, expr):
        # JAX does not accept integers beyond 64 bits.
        return str(int(expr)) if abs(expr) <= _LARGEST_EXACT else repr(as_float(expr))

    def _print_Rational(self, expr):
        is_short = max(abs(expr.p), expr.q) <= _LARGEST_EXACT
        return f"{expr.p}/{expr.q}" if is_short else repr(as_float(expr))

    def _print_Float(self, expr):
        return repr(as_float(expr))

    def _print_Pow(self, expr, rational=False):
        if expr.exp == S.Half and isinstance(expr.base, Max) and S.Zero in expr.base.args:
            rest = Max(*(each for each in expr.base.args if each != 0))
            return f"{SPECIAL}.root_of_difference({', '.join(map(self._print, Add.make_args(rest)))})"
        # Integer exponents have derivatives without a pole at zero.
        if expr.exp.is_Float and float(expr.exp).is_integer():
            return super()._print_Pow(type(expr)(expr.base, int(expr.exp), evaluate=False), rational=rational)
        return super()._print_Pow(expr, rational=rational)

    def _print_asin(self, expr):
        (number,) = expr.args
        inner = number.args if isinstance(number, Max) and S.NegativeOne in number.args else ()
        correlation = next((each for each in inner if isinstance(each, Min) and S.One in each.args), None)
        if len(inner) != 2 or correlation is None:
            return f"jnp.arcsin({self._print(number)})"
        rest = Min(*(each for each in correlation.args if each != 1))
        return f"{SPECIAL}.arcsine_of_correlation({self._print(rest)})"

    def _print_Mul(self, expr):
        # The derivative of a large power in a denominator overflows too early, so use a negative power.
        steep = [f for f in expr.args if isinstance(f, Pow) and f.exp.is_negative and f.base.has(exp, cosh, sinh)]
        if not steep:
            return super()._print_Mul(expr)
        if (found := with_tanh(expr)) != expr:
            return self._print(found)
        if factors := factors_of_exponentials(expr):
            rest, of_exponentials = factors
            pairs = ", ".join(f"({self._pairs(terms)}, {power})" for terms, power in of_exponentials)
            text = f"{SPECIAL}.product_of_exponentials({pairs})"
            return text if rest == 1 else f"({self._print(rest)})*{text}"
        powers = (f"({self._print(f.base)})**({self._print(f.exp)})" for f in steep)
        rest = Mul(*(factor for factor in expr.args if factor not in steep))
        return "*".join([f"({self._print(rest)})", *powers])

    def _print_Piecewise(self, node):
        names = sorted({symbol.name for symbol in node.free_symbols})
        function = f"lambda {', '.join(names)}: "
        pieces = (f"({function}{self._print(is_so)}, {function}{self._print(value)})" for value, is_so in node.args)
        return f"{SPECIAL}.piecewise([{', '.join(names)}], {', '.join(pieces)})"

    def _print_Max(self, node):
        function = "jnp.maximum" if isinstance(node, Max) else "jnp.minimum"
        return reduce(lambda left, right: f"{function}({left}, {right})", map(self._print, node.args))

    _print_Min = _print_Max

    def _print_SpectralAverage(self, node):
        # Averages inside the function have other variables.
        own = sp.Symbol(f"eigenvalue_{len(node.function.expr.atoms(SpectralAverage))}")
        value = self._print(node.function.expr.xreplace({node.function.variables[0]: own}))
        rest = list(map(self._print, node.args[1:]))
        while rest[-1] == "0" and len(rest) > 2:
            rest.pop()
        return f"{SPECIAL}.spectral_average(lambda {own}: {value}, {', '.join(rest)})"

    def _print_GaussianAverage(self, node):
        operation, operands = average_operation(node)
        return f"{operation}({', '.join(operands)})"


def as_float(number: sp.Expr) -> float:
    """Convert a SymPy number to double precision, or raise `ValueError` if it over- or underflows."""
    try:
        value = number.p / number.q if isinstance(number, sp.Rational) else float(number)
    except OverflowError:
        value = math.inf
    if math.isinf(value) and not number.is_infinite:
        raise ValueError(f"the number {sp.Float(number, 6)} exceeds the range of double precision, 1.8e308")
    if value == 0 and not number.is_zero:
        raise ValueError(f"the number {sp.Float(number, 6)} is below the range of double precision, 4.9e-324")
    return value


def refusal(expression: sp.Basic) -> str | None:
    """Return why a scalar expression cannot be compiled and what to write instead, or None if it can be compiled."""
    for node in _written_nodes(expression):
        name, row = type(node).__name__, TABLE.get(type(node))
        if isinstance(node, (sp.Number, sp.NumberSymbol)):
            if not node.is_real:
                return f"{node} is not a real number: actions are finite and real"
            try:
                as_float(node)
            except ValueError as error:
                return str(error)
        elif row is not None:
            if len(node.args) > len(row.arguments):
                return f"{name} (in {shown(node)}) may have only {len(row.arguments)} arguments"
            for order in (node.args[i] for i in row.whole_numbers(node)):
                if not (order.is_Integer and abs(order) <= 64):
                    return f"{name} (in {shown(node)}) must have a whole order up to 64, got {order}"
        elif not isinstance(node, (*_ARITHMETIC, *_CASES, *NAMED)):
            return f"{name} (in {shown(node)}) is not covered: {_advice(node)}"
    return None


def _written_nodes(expression: sp.Basic) -> Iterator[sp.Basic]:
    """Yield the nodes that generated code contains, also inside the integrands of averages and inside losses."""
    yield expression
    arguments = expression.args
    if isinstance(expression, GaussianAverage):
        arguments = (expression.integrand,)
    elif isinstance(expression, SpectralAverage):
        arguments = (expression.function.expr, *expression.args[1:])
    elif isinstance(expression, FunctionOfLoss):
        arguments = (expression.loss.expr, *expression.numbers)
    for argument in arguments:
        yield from _written_nodes(argument)


def _advice(node: sp.Basic) -> str:
    name = type(node).__name__
    # SymPy may take minutes for integrals and infinite sums.
    is_short = isinstance(node, sp.Derivative) or (
        isinstance(node, (sp.Product, sp.Sum))
        and all(limit.is_Integer for limits in node.limits for limit in limits[1:])
    )
    if is_short and (done := _rewritten(node, node.doit)):
        return f"evaluate it with .doit(), which gives {shown(done)}"
    for kinds, advice in _ADVICE:
        if isinstance(node, kinds):
            return advice
    define = f"define it with symbolic.numeric_function({name!r}, f), where f is JAX code"
    if isinstance(node, AppliedUndef):
        return f"it has no definition; write an expression, or {define}"
    if not isinstance(node, sp.Function):
        return "write it with the functions on the documentation page about your own actions"
    for target in (exp, sp.gamma, sp.erf, sp.erfinv, log, sp.sqrt, sp.Piecewise):
        if written := _rewritten(node, partial(node.rewrite, target)):
            return f"write {shown(written)} instead"
    alike = get_close_matches(name, [row.kind.__name__ for row in ROWS if row.is_shown], n=1, cutoff=0.8)
    return define + (f"; the covered function with the most similar name is {alike[0]}" if alike else "")


# Suggested replacements by class.
_ADVICE = (
    (ImaginaryUnit, "actions are real"),
    ((sp.arg, sp.conjugate, sp.im, sp.re), "actions are real; declare its symbols with real=True"),
    (sp.DiracDelta, "it is not a function of numbers; symbolic.gaussian_average computes its averages if they exist"),
    (MatrixElement, "write symbolic.quadratic_form of unit columns, or use all entries with symbolic.entrywise"),
    (sp.Determinant, "write exp of symbolic.log_det"),
    (sp.Subs, "evaluate it with .doit()"),
    (sp.Derivative, "evaluate it, or define the function with symbolic.numeric_function"),
    (sp.Integral, "evaluate it, or take averages over normal variables with symbolic.gaussian_average"),
    (sp.Product, "evaluate it, or write the exponential of a sum of logarithms"),
    (sp.Sum, "evaluate it, or sum over the entries of matrices with symbolic.sum_of_entries"),
)


def _rewritten(node: sp.Expr, rewrite: Callable[[], sp.Expr]) -> sp.Expr | None:
    """Return the result of `rewrite` if it differs from the node and is covered."""
    try:
        written = rewrite()
    except Exception:
        # SymPy raises many kinds of errors for functions that it cannot rewrite.
        return None
    return written if written != node and refusal(written) is None else None
