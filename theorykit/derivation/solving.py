"""Solve equations of one unknown, and eliminate order parameters from actions at their saddle points."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from sympy import Dummy, Expr, Identity, Interval, MatrixSymbol, Reals, S, Symbol, ZeroMatrix, lambdify
from sympy.matrices.expressions.matexpr import MatrixExpr
from sympy.solvers import solve as solve_by_sympy

from ..symbolic import GaussianAverage, SquareRoot, gradient, inverse, normal, sum_of
from ..symbolic.algebra import expand_products, from_terms, matrix_terms, square_root
from ..symbolic.atoms import hold, matrix_scalars, split_coefficient
from ..symbolic.matrix_functions import AssumedPositiveDefinite
from . import claims
from .step import Step

Ranges = Mapping[Symbol, Interval]
"""Intervals of numbers. All other numbers are any real numbers."""

# Number of random points at which it is tested whether a solution is in its range.
_TRIES = 200
# Largest imaginary part, relative to the absolute value, of a real number after rounding.
_REAL = 1e-12


class RuleError(ValueError):
    """An equation has no solution of the supported form."""


def solve_for(equation: Expr, variable: Symbol | MatrixSymbol, ranges: Ranges = MappingProxyType({})) -> Expr:
    """Solve `equation` = 0 for a variable.

    Args:
        equation: an equation for a number, or a matrix in which a matrix variable occurs once, alone or in an inverse.
        variable: the variable.
        ranges: ranges of numbers. Solutions outside them, for random values of all other symbols, are discarded.

    Raises:
        RuleError: if there is no solution of this form, or more than one.
    """
    if isinstance(variable, Symbol):
        # SymPy solves for a symbol with the assumptions that follow from its range.
        held, back = hold((node for node in _opaque(equation) if not node.has(variable)), real=True)
        within = ranges.get(variable, Reals)
        sign = {"positive": True} if within.inf >= 0 else {"negative": True} if within.sup <= 0 else {}
        unknown = Dummy(variable.name, real=True, **sign)
        rest = equation.xreplace({**held, variable: unknown})
        if any(node.has(unknown) for node in _opaque(rest)):
            raise RuleError(f"{variable} occurs in a function of a matrix, or in an average")
        try:
            found = solve_by_sympy(rest, unknown)
        except NotImplementedError as error:
            raise RuleError(f"SymPy finds no solution of {equation} = 0 for {variable}") from error
        if len(found) > 1:
            found = [each for each in found if _is_ever_within(each, within, ranges)]
        if len(found) != 1:
            many = f"{len(found)} solutions, {', '.join(map(str, found))}" if found else "no solution"
            raise RuleError(f"{equation} = 0 has {many} for {variable} between {within.inf} and {within.sup}")
        return found[0].xreplace(back)
    # If L f(X) R + rest = 0, then f(X) = -L^-1 rest R^-1. Here f is the identity, or the inverse of X or of a sum.
    terms = matrix_terms(equation)
    holding = [term for term in terms if any(factor.has(variable) for factor in term[1])]
    if len(holding) != 1:
        raise RuleError(f"{variable} occurs in {len(holding)} terms of {equation}, but must occur in one")
    ((coefficient, factors),) = holding
    rest = [(-c / coefficient, other) for c, other in terms if (c, other) != holding[0]]
    position = next(i for i, factor in enumerate(factors) if factor.has(variable))
    held, left, right = factors[position], factors[:position], factors[position + 1 :]
    sides = [(c, (*map(inverse, reversed(left)), *other, *map(inverse, reversed(right)))) for c, other in rest]
    value = expand_products(from_terms(sides, held.shape))
    if held == variable:
        return value
    inside = inverse(held)
    inside = inside.matrix if isinstance(inside, AssumedPositiveDefinite) else inside
    if not inside.is_MatAdd and inside != variable:
        raise RuleError(f"cannot solve {held} = {value} for {variable}")
    value = expand_products(inverse(value))
    beyond = [(-c, factors) for c, factors in matrix_terms(inside) if factors != (variable,)]
    if any(factor.has(variable) for _, factors in beyond for factor in factors):
        raise RuleError(f"{variable} must occur once and alone in {inside}")
    return sum_of([value, from_terms(beyond, value.shape)])


def eliminate(before: Expr, variable: Symbol | MatrixSymbol, ranges: Ranges = MappingProxyType({}), **record) -> Step:
    """Return the step that integrates over `variable` at its saddle point, the zero of the gradient.

    Raises:
        RuleError: if the gradient has no zero of a supported form, or more than one.
    """
    solution = solve_for(gradient(before, variable), variable, ranges)
    after, claim = _with_value(before, {variable: solution}), claims.Stationary(variable, solution)
    return Step("eliminated at its saddle point", before, after, claim, definitions=((variable, solution),), **record)


def eliminate_constrained(
    before: Expr,
    multiplier: Symbol | MatrixSymbol,
    variable: Symbol | MatrixSymbol,
    ranges: Ranges = MappingProxyType({}),
    **record,
) -> Step:
    """Return the step that integrates over `multiplier`, in which `before` is linear, and substitutes `variable`."""
    slope = gradient(before, multiplier)
    if slope.has(multiplier):
        raise RuleError(f"the action must be linear in {multiplier}, but its gradient is {slope}")
    value = solve_for(slope, variable, ranges)
    zero = ZeroMatrix(*multiplier.shape) if isinstance(multiplier, MatrixSymbol) else S.Zero
    after = _with_value(before, {multiplier: zero, variable: value})
    claim = claims.Stationary(variable, value, multiplier)
    return Step("eliminated by its constraint", before, after, claim, definitions=((variable, value),), **record)


def riccati(equation: MatrixExpr, variable: MatrixSymbol, **record) -> Step:
    """Solve X G X = X A X - c X - W for G = 0: X = A^{-1/2} (c + (c^2 + 4 A^{1/2} W A^{1/2})^{1/2}) A^{-1/2} / 2."""
    quadratic, linear, rest = [], S.Zero, []
    for coefficient, factors in matrix_terms(variable * equation * variable):
        if factors == (variable,):
            linear -= coefficient
        elif factors[0] == factors[-1] == variable and not any(f.has(variable) for f in factors[1:-1]):
            quadratic.append(from_terms([(coefficient, factors[1:-1])], variable.shape))
        elif not any(factor.has(variable) for factor in factors):
            rest.append(from_terms([(-coefficient, factors)], variable.shape))
        else:
            raise RuleError(f"{equation} = 0 is not a Riccati equation of {variable}: it contains the term {factors}")
    if not quadratic or not rest:
        raise RuleError(f"{equation} = 0 is not a Riccati equation of {variable}")
    root = square_root(sum_of(quadratic))
    inner = linear**2 * Identity(variable.shape[0]) + 4 * expand_products(root * sum_of(rest) * root)
    middle = linear * Identity(variable.shape[0]) + SquareRoot(inner)
    coefficient, factor = split_coefficient(inverse(root))
    after = coefficient**2 / 2 * (middle if isinstance(factor, Identity) else factor * middle * factor)
    return Step("Riccati equation solved", equation, after, claims.Solves(variable, positive_definite=True), **record)


def _with_value(before: Expr, values: Mapping[Expr, Expr]) -> Expr:
    # An expression of numbers is not expanded, because large terms of an expansion may cancel.
    after = before.xreplace(values)
    return normal(after) if any(symbol.is_Matrix for symbol in values) else after


def _opaque(expression: Expr) -> list[Expr]:
    """Return the outermost scalars that contain matrices, and Gaussian averages."""
    return [*matrix_scalars(expression), *expression.atoms(GaussianAverage)]


def _is_ever_within(value: Expr, within: Interval, ranges: Ranges) -> bool:
    """Return whether a value is in an interval for any of many random values of its symbols."""
    symbols, rng = sorted(value.free_symbols, key=str), np.random.default_rng(0)
    compute = lambdify(symbols, value, "numpy")
    low, high = float(within.inf), float(within.sup)
    for _ in range(_TRIES):
        at = compute(*(_number(symbol, ranges.get(symbol, Reals), rng) for symbol in symbols))
        if abs(at.imag) <= _REAL * abs(at) and low < at.real < high:
            return True
    return False


def _number(symbol: Symbol, within: Interval, rng: np.random.Generator) -> complex:
    """Draw a number from its range. It is complex, so that roots of negative numbers exist."""
    low, high, length = float(within.inf), float(within.sup), np.exp(2 * rng.normal())
    low = max(low, 0.0) if symbol.is_positive else low
    if np.isfinite(low):
        return complex(rng.uniform(low, high) if np.isfinite(high) else low + length)
    return complex(high - length if np.isfinite(high) else 2 * rng.normal())
