"""What scalar expressions may be made of, and what to write instead of the rest."""

import math
from collections.abc import Iterator
from difflib import get_close_matches

import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.core.numbers import ImaginaryUnit
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import And, BooleanFalse, BooleanTrue, Not, Or
from sympy.matrices.expressions.matexpr import MatrixElement

from ...checks import shown
from ...symbolic.averages import GaussianAverage
from ...symbolic.numeric import NumericFunction
from .table import ROWS, TABLE

_ARITHMETIC = (
    sp.Add,
    GaussianAverage,
    sp.Max,
    sp.Min,
    sp.Mul,
    sp.Number,
    sp.NumberSymbol,
    NumericFunction,
    sp.Pow,
    sp.Symbol,
)
# parts of a function that is defined by cases
_CASES = (And, BooleanFalse, BooleanTrue, ExprCondPair, Not, Or, sp.Piecewise, Relational, sp.Tuple)
# functions that SymPy may write others by
_TARGETS = (sp.exp, sp.gamma, sp.erf, sp.erfinv, sp.log, sp.sqrt, sp.Piecewise)


def as_float(number: sp.Expr) -> float:
    """A number of SymPy in double precision; `ValueError` if it is too large for it, or too small."""
    try:
        value = number.p / number.q if isinstance(number, sp.Rational) else float(number)
    except OverflowError:
        value = math.inf
    if math.isinf(value) and not number.is_infinite:
        raise ValueError(f"the number {sp.Float(number, 6)} is beyond the range of double precision, 1.8e308")
    if value == 0 and not number.is_zero:
        raise ValueError(f"the number {sp.Float(number, 6)} is zero in double precision, which ends at 4.9e-324")
    return value


def refusal(expression: sp.Basic) -> str | None:
    """Why a scalar expression cannot be compiled, with what to write instead; None if it can."""
    return next(filter(None, map(refusal_of_node, written_nodes(expression))), None)


def refusal_of_node(node: sp.Basic) -> str | None:
    """Why this node of an expression cannot be compiled, whatever its arguments; None if it can."""
    if isinstance(node, (sp.Number, sp.NumberSymbol)):
        if not node.is_real:
            return f"{node} is no real number: actions are finite and real"
        try:
            as_float(node)
        except ValueError as error:
            return str(error)
        return None
    name, row = type(node).__name__, TABLE.get(type(node))
    if row is not None:
        if len(node.args) > len(row.arguments):
            return f"{name} (in {shown(node)}) is covered with {len(row.arguments)} arguments only"
        for order in (node.args[i] for i in row.whole_numbers(node)):
            if not (order.is_Integer and abs(order) <= 64):
                return f"{name} (in {shown(node)}) is covered for whole orders up to 64 only, got {order}"
        return None
    if isinstance(node, (*_ARITHMETIC, *_CASES)):
        return None
    return f"{name} (in {shown(node)}) is not covered: {_advice(node)}"


def written_nodes(expression: sp.Basic) -> Iterator[sp.Basic]:
    """The nodes of an expression that are written in generated code: of an average its integrand, and not its rule."""
    yield expression
    for argument in (expression.integrand,) if isinstance(expression, GaussianAverage) else expression.args:
        yield from written_nodes(argument)


def _advice(node: sp.Basic) -> str:
    """What to write instead of a node that is not covered."""
    name = type(node).__name__
    if isinstance(node, AppliedUndef):
        return (
            f"it has no definition; write an expression, or define it with symbolic.numeric_function({name!r}, f), "
            "where f is JAX code"
        )
    if isinstance(node, ImaginaryUnit):
        return "actions are real"
    if isinstance(node, (sp.arg, sp.conjugate, sp.im, sp.re)):
        return "actions are real; declare its symbols with real=True"
    if isinstance(node, sp.DiracDelta):
        return "it is no function of numbers; symbolic.gaussian_average takes its averages where they exist"
    if isinstance(node, MatrixElement):
        return "write symbolic.quadratic_form of unit columns, or a function of all entries with symbolic.entrywise"
    if isinstance(node, (sp.Derivative, sp.Integral, sp.Product, sp.Sum)):
        return _advice_on_unevaluated(node)
    if isinstance(node, sp.Determinant):
        return "write exp of symbolic.log_det"
    if isinstance(node, sp.Subs):
        return "carry it out with .doit()"
    if not isinstance(node, sp.Function):
        return "write it with the functions that the page on own actions lists"
    if written := _rewritten(node):
        return f"write {shown(written)} instead"
    known = [row.kind.__name__ for row in ROWS if row.is_shown]
    alike = get_close_matches(name, known, n=1, cutoff=0.8)
    nearest = f"; the covered function of the nearest name is {alike[0]}" if alike else ""
    return f"define it with symbolic.numeric_function({name!r}, f), where f is JAX code{nearest}"


def _advice_on_unevaluated(node: sp.Expr) -> str:
    # integrals and infinite sums may take SymPy minutes
    is_short = isinstance(node, sp.Derivative) or all(
        limit.is_Integer for limits in getattr(node, "limits", ()) for limit in limits[1:]
    )
    try:
        done = node.doit() if is_short and not isinstance(node, sp.Integral) else node
    except Exception:
        # SymPy fails at some of them with errors of many kinds
        done = node
    if done != node and refusal(done) is None:
        return f"carry it out with .doit(), which gives {shown(done)}"
    instead = {
        sp.Derivative: "carry it out, or define the function with symbolic.numeric_function",
        sp.Integral: "carry it out, or take averages over normal variables with symbolic.gaussian_average",
        sp.Product: "carry it out, or write the exponential of a sum of logarithms",
        sp.Sum: "carry it out, or sum over the entries of matrices with symbolic.sum_of_entries",
    }
    return next(text for kind, text in instead.items() if isinstance(node, kind))


def _rewritten(node: sp.Expr) -> sp.Expr | None:
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
