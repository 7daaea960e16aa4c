"""What scalar expressions may be made of, and what to write instead of the rest."""

import math
from collections.abc import Iterator
from difflib import get_close_matches

from sympy import (
    Add,
    Basic,
    Derivative,
    Determinant,
    DiracDelta,
    Expr,
    Float,
    Function,
    Integral,
    Max,
    Min,
    Mul,
    Number,
    NumberSymbol,
    Piecewise,
    Pow,
    Product,
    Rational,
    Subs,
    Sum,
    Symbol,
    Tuple,
    arg,
    conjugate,
    erf,
    erfinv,
    exp,
    gamma,
    im,
    log,
    re,
    sqrt,
)
from sympy.core.function import AppliedUndef
from sympy.core.numbers import ImaginaryUnit
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import And, BooleanFalse, BooleanTrue, Not, Or
from sympy.matrices.expressions.matexpr import MatrixElement

from ...checks import shown
from ...symbolic.averages import GaussianAverage
from ...symbolic.functions.numeric import NumericFunction
from .table import ROWS, TABLE

_ARITHMETIC = (Add, GaussianAverage, Max, Min, Mul, Number, NumberSymbol, NumericFunction, Pow, Symbol)
# parts of a function that is defined by cases
_CASES = (And, BooleanFalse, BooleanTrue, ExprCondPair, Not, Or, Piecewise, Relational, Tuple)
# functions that SymPy may write others by
_TARGETS = (exp, gamma, erf, erfinv, log, sqrt, Piecewise)


def as_float(number: Expr) -> float:
    """A number of SymPy in double precision; `ValueError` if it is too large for it, or too small."""
    try:
        value = number.p / number.q if isinstance(number, Rational) else float(number)
    except OverflowError:
        value = math.inf
    if math.isinf(value) and not number.is_infinite:
        raise ValueError(f"the number {Float(number, 6)} is beyond the range of double precision, 1.8e308")
    if value == 0 and not number.is_zero:
        raise ValueError(f"the number {Float(number, 6)} is zero in double precision, which ends at 4.9e-324")
    return value


def refusal(expression: Basic) -> str | None:
    """Why a scalar expression cannot be compiled, with what to write instead; None if it can."""
    return next(_refusals(expression), None)


def refusal_of_node(node: Basic) -> str | None:
    """Why this node of an expression cannot be compiled, whatever its arguments; None if it can."""
    if isinstance(node, (Number, NumberSymbol)):
        return _refusal_of_number(node)
    row = TABLE.get(type(node))
    if row is not None:
        return _refusal_of_order(node, row)
    if isinstance(node, (*_ARITHMETIC, *_CASES)):
        return None
    return f"{type(node).__name__} (in {shown(node)}) is not covered: {_advice(node)}"


def _refusals(expression: Basic) -> Iterator[str]:
    if reason := refusal_of_node(expression):
        yield reason
        return
    for argument in arguments_of(expression):
        yield from _refusals(argument)


def arguments_of(node: Basic) -> tuple[Basic, ...]:
    """The arguments that are written in generated code: of an average its integrand, and not its rule."""
    return (node.integrand,) if isinstance(node, GaussianAverage) else node.args


def _refusal_of_number(node: Expr) -> str | None:
    if not node.is_real:
        return f"{node} is no real number: actions are finite and real"
    if isinstance(node, Number):
        try:
            as_float(node)
        except ValueError as error:
            return str(error)
    return None


def _refusal_of_order(node: Expr, row) -> str | None:
    letters = row.arguments
    if len(node.args) > len(letters):
        return f"{type(node).__name__} (in {shown(node)}) is covered with {len(letters)} arguments only"
    for i in row.whole_numbers(node):
        order = node.args[i]
        if not (order.is_Integer and abs(order) <= 64):
            return f"{type(node).__name__} (in {shown(node)}) is covered for whole orders up to 64 only, got {order}"
    return None


def _advice(node: Basic) -> str:
    """What to write instead of a node that is not covered."""
    name = type(node).__name__
    if isinstance(node, AppliedUndef):
        return (
            f"it has no definition; write an expression, or define it with symbolic.numeric_function({name!r}, f), "
            "where f is JAX code"
        )
    if isinstance(node, ImaginaryUnit):
        return "actions are real"
    if isinstance(node, (arg, conjugate, im, re)):
        return "actions are real; declare its symbols with real=True"
    if isinstance(node, DiracDelta):
        return "it is no function of numbers; symbolic.gaussian_average takes its averages where they exist"
    if isinstance(node, MatrixElement):
        return "write symbolic.quadratic_form of unit columns, or a function of all entries with symbolic.entrywise"
    if isinstance(node, (Derivative, Integral, Product, Sum)):
        return _advice_on_unevaluated(node)
    if isinstance(node, Determinant):
        return "write exp of symbolic.log_det"
    if isinstance(node, Subs):
        return "carry it out with .doit()"
    if not isinstance(node, Function):
        return "write it with the functions that the page on own actions lists"
    if written := _rewritten(node):
        return f"write {shown(written)} instead"
    known = [row.kind.__name__ for row in ROWS if row.is_shown]
    alike = get_close_matches(name, known, n=1, cutoff=0.8)
    nearest = f"; the covered function of the nearest name is {alike[0]}" if alike else ""
    return f"define it with symbolic.numeric_function({name!r}, f), where f is JAX code{nearest}"


def _advice_on_unevaluated(node: Expr) -> str:
    # integrals and infinite sums may take SymPy minutes
    is_short = isinstance(node, Derivative) or all(
        limit.is_Integer for limits in getattr(node, "limits", ()) for limit in limits[1:]
    )
    try:
        done = node.doit() if is_short and not isinstance(node, Integral) else node
    except Exception:
        # SymPy fails at some of them with errors of many kinds
        done = node
    if done != node and refusal(done) is None:
        return f"carry it out with .doit(), which gives {shown(done)}"
    instead = {
        Derivative: "carry it out, or define the function with symbolic.numeric_function",
        Integral: "carry it out, or take averages over normal variables with symbolic.gaussian_average",
        Product: "carry it out, or write the exponential of a sum of logarithms",
        Sum: "carry it out, or sum over the entries of matrices with symbolic.sum_of_entries",
    }
    return next(text for kind, text in instead.items() if isinstance(node, kind))


def _rewritten(node: Expr) -> Expr | None:
    """The node by covered functions, if SymPy can write it so."""
    for target in _TARGETS:
        try:
            written = node.rewrite(target)
        except Exception:
            # of functions that it does not know SymPy raises errors of many kinds
            continue
        if written != node and refusal(written) is None:
            return written
    return None
