"""Functions phi of hidden units g, with E[phi(g)] and kernels E[phi(g) phi(g')] of Gaussian g.

Closed forms are from Cho and Saul (2009) and Williams (1998).
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float
from sympy import Expr, MatrixExpr, Max, Min, Pow, S, Symbol, asin, erf, expand, sqrt

from ...checks import shown
from ...codegen import compile_expressions
from ...symbolic import GaussianAverage, gaussian_average
from ...symbolic.matrix_functions import kernel_matrix

UNIT = Symbol("h", real=True)
OWN = Symbol("c_xx", positive=True)
OTHER = Symbol("c_yy", positive=True)
"""Variances of a hidden unit at two tokens."""
BETWEEN = Symbol("c_xy", real=True)
CORRELATION = Symbol("rho", real=True)

_NORMALS = Symbol("z", real=True), Symbol("z_other", real=True)


@dataclass(frozen=True, repr=False)
class Activation:
    """A function phi of hidden units, as an expression in the symbol `UNIT`."""

    name: str
    function: Expr = field(repr=False)

    def __repr__(self):
        return repr(self.name)

    def __reduce__(self):
        # A copy of `IDENTITY` is the same object, which `Dense` does not show.
        return as_activation, (self.function,)

    @property
    def is_linear(self) -> bool:
        return self.function == UNIT

    # Equal functions share the cached results below.
    @property
    @lru_cache  # noqa: B019
    def kernel_of_correlation(self) -> Expr | None:
        """The closed form in `OWN`, `CORRELATION` and `OTHER`, without cancellation; or None."""
        kernel = _exact_kernel(self.function)
        if kernel.has(GaussianAverage):
            return None
        kernel = kernel.subs(BETWEEN, CORRELATION * sqrt(OWN) * sqrt(OTHER))
        return kernel.replace(_is_root_of_sum, lambda root: Pow(sp.factor(root.base), root.exp))

    @property
    @lru_cache  # noqa: B019
    def mean(self) -> Expr:
        """E[phi(g)] of a Gaussian variable with variance `OWN`."""
        is_odd = expand(self.function + self.function.subs(UNIT, -UNIT)) == 0
        one, _ = _NORMALS
        return S.Zero if is_odd else gaussian_average(self.function.subs(UNIT, sqrt(OWN) * one), one)

    @property
    @lru_cache  # noqa: B019
    def slope(self) -> Expr:
        """E[phi'(g)] of a Gaussian variable with variance `OWN`, by Stein's lemma."""
        one, _ = _NORMALS
        return gaussian_average(self.function.subs(UNIT, sqrt(OWN) * one) * one / sqrt(OWN), one)


def apply_to(activation: Activation, hidden: Float[Array, "..."]) -> Float[Array, "..."]:
    return hidden if activation.is_linear else of_arrays(activation.function, UNIT)(hidden)


@lru_cache
def of_arrays(expression: Expr, *symbols: Symbol) -> Callable[..., Array]:
    compiled = compile_expressions("function", {"value": expression}, symbols)

    def of_numbers(*numbers):
        # Constants can be whole numbers.
        return 1.0 * jnp.asarray(compiled.call_from(dict(zip(symbols, numbers, strict=True)))["value"])

    return jnp.vectorize(of_numbers)


def kernel_of_covariance(activation: Activation, covariance: MatrixExpr, *, noise: bool = False) -> MatrixExpr:
    """Return E[phi(g_s) phi(g_t)] for Gaussian variables g with this covariance.

    For the `noise`, without the linear part E[phi'(g_s)] E[g_s g_t] E[phi'(g_t)].
    """
    # Rounding can make arguments of roots negative, and correlations exceed one.
    cut = _exact_kernel(activation.function).replace(
        lambda node: _is_root_of_sum(node) and node.exp > 0 and not node.base.is_nonnegative,
        lambda root: sqrt(Max(0, root.base)),
    )
    cut = cut.replace(
        lambda node: isinstance(node, asin) and not node.args[0].has(Max, Min),
        lambda sine: asin(Max(-1, Min(1, sine.args[0]))),
    )

    if noise:
        cut -= activation.slope * BETWEEN * activation.slope.subs(OWN, OTHER)

    def of_entries(*entries):
        return cut.xreplace(dict(zip((OWN, BETWEEN, OTHER), entries, strict=True)))

    return kernel_matrix(of_entries, covariance)


def _is_root_of_sum(node: sp.Basic) -> bool:
    return isinstance(node, Pow) and abs(node.exp) == S.Half and node.base.is_Add


@lru_cache
def _exact_kernel(function: Expr) -> Expr:
    one, other = _NORMALS
    across = BETWEEN / sqrt(OWN) * one + sqrt(OTHER - BETWEEN**2 / OWN) * other
    both = function.subs(UNIT, sqrt(OWN) * one) * function.subs(UNIT, across)
    return expand(gaussian_average(both, one, other))


IDENTITY = Activation("identity", UNIT)
NAMED: Mapping[str, Activation] = {
    "identity": IDENTITY,
    "erf": Activation("erf", erf(UNIT)),
    "relu": Activation("relu", Max(UNIT, 0)),
    "quadratic": Activation("quadratic", UNIT**2),
}


def as_activation(value: Any, where: str = "activation") -> Activation:
    """Return the `Activation` of a name, an expression in one symbol, or a function of a symbol."""
    if isinstance(value, Activation):
        return value
    if isinstance(value, str) and value in NAMED:
        return NAMED[value]
    expression = value
    if isinstance(value, Expr) and len(value.free_symbols) == 1:
        expression = value.xreplace(dict.fromkeys(value.free_symbols, UNIT))
    elif callable(value):
        with suppress(Exception):  # Functions that take no symbol raise any error.
            expression = value(UNIT)
    if not isinstance(expression, Expr) or expression.is_Matrix or expression.free_symbols != {UNIT}:
        known = f"one of {', '.join(map(repr, NAMED))}, or a SymPy function of one number"
        raise ValueError(f"{where} must be {known}, got {shown(value)}")
    named = [each for each in NAMED.values() if each.function == expression]
    return named[0] if named else Activation(str(expression), expression)
