"""The fixed-point map of an action, read off its saddle-point equations.

Replica theories iterate their equations: every order parameter is set to what one of the equations says it is, such as
q <- E[tanh^2(beta (sqrt(q) z + h))], and an overlap to what the equation of its conjugate says. The map keeps overlaps
where they are meaningful, from far away too, and so makes good starts for Newton's method.
"""

from collections.abc import Mapping

import numpy as np
from scipy.optimize import linear_sum_assignment
from sympy import Add, Expr, Symbol

# costs of assigning an equation to an order parameter: the equation is solved for it; it also occurs elsewhere in the
# equation; its coefficient depends on order parameters
_SOLVED, _IMPLICIT, _VARYING, _NONE = 0, 1, 3, 1000


def fixed_point_map(equations: Mapping[Symbol, Expr]) -> Mapping[Symbol, Expr] | None:
    """Return for each order parameter the expression that it is set to, or None if the equations have no such form.

    Each equation c x + r = 0 gives -r / c to one order parameter x, with c free of order parameters where possible.

    Args:
        equations: for each order parameter the derivative of the action, which vanishes.
    """
    symbols = tuple(equations)
    choices = [[_update(equation, symbol, symbols) for symbol in symbols] for equation in equations.values()]
    costs = np.array([[cost for cost, _ in row] for row in choices])
    rows, columns = linear_sum_assignment(costs)
    if np.any(costs[rows, columns] >= _NONE):
        return None
    updates = {symbols[column]: choices[row][column][1] for row, column in zip(rows, columns, strict=True)}
    return {symbol: updates[symbol] for symbol in symbols}


def _update(equation: Expr, symbol: Symbol, symbols: tuple[Symbol, ...]) -> tuple[int, Expr | None]:
    """The cost of solving an equation for `symbol`, and what it is set to."""
    linear, others = [], []
    for term in Add.make_args(equation):
        power = term.as_powers_dict().get(symbol, 0)
        coefficient = term / symbol if power == 1 else None
        (others if coefficient is None or coefficient.has(symbol) else linear).append(term)
    if not linear:
        return _varying(equation, symbol)
    coefficient = Add(*(term / symbol for term in linear))
    rest = Add(*others)
    if coefficient.has(*symbols):
        return _VARYING, -rest / coefficient
    return (_IMPLICIT if rest.has(symbol) else _SOLVED), -rest / coefficient


def _varying(equation: Expr, symbol: Symbol) -> tuple[int, Expr | None]:
    """The same of a term x c(x), as q / (1 - q)^2 is."""
    for term in Add.make_args(equation):
        if term.as_powers_dict().get(symbol, 0) == 1:
            return _VARYING + 1, -(equation - term) * symbol / term
    return _NONE, None
