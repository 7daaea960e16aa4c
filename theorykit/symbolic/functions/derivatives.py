"""Derivatives of scalar functions by one argument: SymPy's, but for those that it has not or writes with a pole."""

from collections.abc import Callable, Mapping

from sympy import Expr, Heaviside, LambertW, Mod, S, ceiling, coth, csch, exp, floor, frac, sign, sinc
from sympy import jn as spherical_bessel

JUMPING = (Heaviside, Mod, ceiling, floor, frac, sign)
"""Functions that jump: their derivatives between the jumps are not those of averages of them."""

Rule = Callable[[Expr, int], Expr]


def _spherical_bessel(node: Expr, index: int) -> Expr:
    # SymPy's rule divides by the argument
    order, number = node.args
    return (order * spherical_bessel(order - 1, number) - (order + 1) * spherical_bessel(order + 1, number)) / (
        2 * order + 1
    )


def _first_of(expression: Callable[..., Expr]) -> Rule:
    return lambda node, index: expression(*node.args)


_RULES: Mapping[type, Rule] = {
    **dict.fromkeys((Heaviside, ceiling, floor, sign), lambda node, index: S.Zero),
    frac: lambda node, index: S.One,
    Mod: lambda node, index: S.One if index == 1 else -floor(node.args[0] / node.args[1]),
    coth: _first_of(lambda number: -(csch(number) ** 2)),
    sinc: _first_of(lambda number: -spherical_bessel(1, number)),
    spherical_bessel: _spherical_bessel,
    LambertW: _first_of(lambda number: exp(-LambertW(number)) / (1 + LambertW(number))),
}


def partial_derivative(node: Expr, index: int) -> Expr:
    """The derivative of a scalar function by its argument number `index`, counted from 1, between its jumps."""
    rule = _RULES.get(type(node))
    return node.fdiff(index) if rule is None else rule(node, index)
