"""Expressions as functions of mpmath, to as many digits as it works with."""

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
from sympy import Expr, Float, Function, Integer, Symbol, lambdify

from .numeric import NumericFunction
from .smoothed import AngleBetween, PlaneMonomial, SmoothedAbs, SmoothedRamp
from .whole import LogCosh, LogNormalCDF

_OWN = (SmoothedRamp, SmoothedAbs, AngleBetween, PlaneMonomial, LogCosh, LogNormalCDF, NumericFunction)


def many_digits(symbols: Symbol | Sequence[Symbol], expression: Expr) -> Callable[..., Any]:
    """The expression as a function of numbers of mpmath. A numeric function of a user's has the digits of float64."""
    evaluated = {}
    for kind in {each.func for each in expression.atoms(*_OWN)}:
        name = f"own_{len(evaluated)}"
        evaluated[name] = _evaluated(kind)
        expression = expression.replace(kind, Function(name))
    return lambdify(symbols, expression, [evaluated, "mpmath"])


def _evaluated(kind: Callable[..., Expr]) -> Callable[..., mpmath.mpf]:
    def value(*numbers: Any) -> mpmath.mpf:
        digits = mpmath.mp.dps
        exact = [Integer(int(each)) if each == int(each) else Float(each, digits) for each in numbers]
        return mpmath.mpmathify(kind(*exact).evalf(digits))

    return value
