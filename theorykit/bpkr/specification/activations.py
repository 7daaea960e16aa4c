"""Functions phi of hidden units g, with E[phi(g)] and kernels E[phi(g) phi(g')] of Gaussian g.

Closed forms are from Cho and Saul (2009) and Williams (1998).
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import sympy as sp
from jaxtyping import Array, Float
from sympy import Add, Expr, Max, Min, Mul, Pow, S, Symbol, asin, erf, exp, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import shown
from ...codegen import compile_expressions
from ...codegen.compiled import CompiledFunction
from ...symbolic import GaussianAverage, gaussian_average
from ...symbolic.matrix_functions import kernel_matrix

UNIT = Symbol("h", real=True)
OWN, OTHER = Symbol("c_xx", positive=True), Symbol("c_yy", positive=True)
"""Variances of a hidden unit at two tokens."""
BETWEEN = Symbol("c_xy", real=True)
CORRELATION = Symbol("rho", real=True)

_NORMALS = Symbol("z", real=True), Symbol("z_other", real=True)


@dataclass(frozen=True, repr=False)
class Activation:
    """A function phi of hidden units, as an expression in the symbol `UNIT`."""

    name: str
    function: Expr

    def __repr__(self):
        return repr(self.name)

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
    if activation.is_linear:
        return hidden
    compiled = _compiled(activation)

    def of_unit(unit):
        return jnp.asarray(compiled.call_from({UNIT: unit})["value"])

    return jax.vmap(of_unit)(hidden.ravel()).reshape(hidden.shape)


@lru_cache
def _compiled(activation: Activation) -> CompiledFunction:
    return compile_expressions("function", {"value": activation.function}, (UNIT,))


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

    symbols = OWN, BETWEEN, OTHER
    if noise:
        cut -= activation.slope * BETWEEN * activation.slope.subs(OWN, OTHER)

    def of_entries(*entries):
        return cut.xreplace(dict(zip(symbols, entries, strict=True)))

    return kernel_matrix(of_entries, covariance)


def _is_root_of_sum(node: sp.Basic) -> bool:
    return isinstance(node, Pow) and abs(node.exp) == S.Half and node.base.is_Add


@lru_cache
def _exact_kernel(function: Expr) -> Expr:
    terms, (one, other) = _exponential_terms(function), _NORMALS
    if terms is not None:
        return _kernel_of_exponentials(terms)
    across = BETWEEN / sqrt(OWN) * one + sqrt(OTHER - BETWEEN**2 / OWN) * other
    both = function.subs(UNIT, sqrt(OWN) * one) * function.subs(UNIT, across)
    return expand(gaussian_average(both, one, other))


def _exponential_terms(function: Expr) -> list[tuple[Expr, int, Expr, Expr]] | None:
    """Return (c, m, a, b) of terms c h^m exp(a h^2 + b h), with b possibly imaginary.

    None if there are other terms.
    """
    kinds, terms = (exp, sp.sin, sp.cos, sp.sinh, sp.cosh), []
    if not function.has(*kinds) or function.atoms(sp.Function) - function.atoms(*kinds):
        return None
    for term in Add.make_args(expand(function.rewrite(exp))):
        factors = Mul.make_args(term)
        exponent = expand(Add(*(each.args[0] for each in factors if isinstance(each, exp))))
        square, slope, constant = (exponent.coeff(UNIT, power) for power in (2, 1, 0))
        others = Mul(*(each for each in factors if not isinstance(each, exp)))
        outer, power = others.as_coeff_exponent(UNIT)
        rest = expand(exponent - square * UNIT**2 - slope * UNIT - constant)
        if rest != 0 or not square.is_real or outer.has(UNIT):
            return None
        if not power.is_nonnegative or not power.is_integer:
            return None
        terms.append((outer * exp(constant), int(power), square, slope))
    return terms


def _kernel_of_exponentials(terms: list[tuple[Expr, int, Expr, Expr]]) -> Expr:
    """Return the kernel of a function with these `_exponential_terms`.

    The mean of exp(b x + d y) is exp((b, d) C (b, d)^T / 2). A factor exp(a x^2 + c y^2)
    changes C. Powers of x and y are derivatives with respect to b and d.
    """
    (b, d), total = (Symbol("b_x"), Symbol("b_y")), S.Zero
    for (left, m, x_square, x_slope), (right, n, y_square, y_slope) in product(terms, terms):
        rest = OWN * OTHER - BETWEEN**2
        determinant = 1 - 2 * x_square * OWN - 2 * y_square * OTHER
        determinant += 4 * x_square * y_square * rest
        one, other = OWN - 2 * y_square * rest, OTHER - 2 * x_square * rest
        exponent = (b**2 * one + 2 * b * d * BETWEEN + d**2 * other) / (2 * determinant)
        moment = sp.simplify(sp.diff(exp(exponent), b, m, d, n) / exp(exponent))
        at = {b: x_slope, d: y_slope}
        power = exponent.subs(at)
        power = expand(power) if determinant == 1 else power
        total += left * right * expand(moment.subs(at)) * exp(power) / sqrt(determinant)
    if total.has(sp.I):
        total = sum((sp.re(term) for term in Add.make_args(expand(total, power_exp=False))), S.Zero)
    return total


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
