"""Functions of hidden units: a function of one number, and what its values have for mean and covariance.

Hidden units of a wide layer are Gaussian under the prior, of covariance c; those after a function phi have the kernel
E[phi(g) phi(g')]. Source: Cho and Saul (2009), Williams (1998) for the closed forms, which follow here from the
function by `symbolic.gaussian_average`; a function without one is left to quadrature.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sympy import Basic, Expr, Max, Min, Pow, S, Symbol, asin, erf, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...arguments import checked_instance, checked_text, shown
from ...symbolic import gaussian_average, kernel_matrix

UNIT = Symbol("h", real=True)
OWN, BETWEEN, OTHER = Symbol("c_xx", positive=True), Symbol("c_xy", real=True), Symbol("c_yy", positive=True)
"""Covariance of a hidden unit's values: at one token, between two, and at the other."""

_NORMALS = Symbol("z", real=True), Symbol("z_other", real=True)


@dataclass(frozen=True, repr=False)
class Activation:
    """A function phi of hidden units, entry by entry; `as_activation` makes it.

    - `function`: phi(h), an expression in the symbol h that `UNIT` is.
    """

    name: str
    function: Expr

    def __post_init__(self):
        checked_text("name", self.name)
        checked_instance("function", self.function, Expr)

    def __repr__(self):
        return repr(self.name)

    @property
    def is_linear(self) -> bool:
        """Whether it is the identity."""
        return self.function == UNIT

    @property
    def kernel(self) -> Expr:
        """E[phi(g) phi(g')] of a Gaussian pair, in the symbols `OWN`, `BETWEEN` and `OTHER` of its covariance."""
        return _kernel(self.function)

    @property
    def mean(self) -> Expr:
        """E[phi(g)] of a Gaussian number, in the symbol `OWN` of its variance."""
        return _mean(self.function)

    @property
    def has_mean(self) -> bool:
        """Whether the mean is not zero."""
        return self.mean != 0


def kernel_of_covariance(activation: Activation, covariance: MatrixExpr) -> MatrixExpr:
    """E[phi(g_s) phi(g_t)] of Gaussian numbers g of this covariance."""

    def kernel(own: Expr, between: Expr, other: Expr) -> Expr:
        return activation.kernel.xreplace({OWN: own, BETWEEN: between, OTHER: other})

    return kernel_matrix(kernel, covariance)


@lru_cache
def _kernel(function: Expr) -> Expr:
    one, other = _NORMALS
    across = BETWEEN / sqrt(OWN) * one + sqrt(OTHER - BETWEEN**2 / OWN) * other
    product = function.subs(UNIT, sqrt(OWN) * one) * function.subs(UNIT, across)
    return _within_range(expand(gaussian_average(product, one, other)))


@lru_cache
def _mean(function: Expr) -> Expr:
    one, _ = _NORMALS
    return gaussian_average(function.subs(UNIT, sqrt(OWN) * one), one)


def _within_range(kernel: Expr) -> Expr:
    """The kernel with differences that are not negative cut off at zero, where rounding may carry them below."""

    def is_root_of_difference(node: Basic) -> bool:
        return isinstance(node, Pow) and node.exp == S.Half and node.base.is_Add and not node.base.is_nonnegative

    def cut_off(node: Pow) -> Expr:
        return sqrt(Max(0, node.base))

    cut = kernel.replace(is_root_of_difference, cut_off)
    return cut if cut == kernel else cut.replace(asin, lambda sine: asin(Max(-1, Min(1, sine))))


IDENTITY = Activation("identity", UNIT)
NAMED: Mapping[str, Activation] = {
    "identity": IDENTITY,
    "erf": Activation("erf", erf(UNIT)),
    "relu": Activation("relu", Max(UNIT, 0)),
    "quadratic": Activation("quadratic", UNIT**2),
}


def as_activation(value: Any, where: str = "activation") -> Activation:
    """The function that `value` names or is: a name, a SymPy function, or a callable that makes an expression.

    Errors call it `where`.
    """
    if isinstance(value, Activation):
        return value
    if isinstance(value, str):
        if value not in NAMED:
            raise ValueError(
                f"{where} must be one of {', '.join(map(repr, NAMED))}, or a function of SymPy, got {value!r}"
            )
        return NAMED[value]
    return _own(value, where)


def _own(value: Callable[[Expr], Expr] | Expr, where: str) -> Activation:
    expression = value
    if isinstance(value, Expr) and len(value.free_symbols) == 1:
        expression = value.xreplace({next(iter(value.free_symbols)): UNIT})
    elif callable(value):
        try:
            expression = value(UNIT)
        except Exception as error:
            raise ValueError(
                f"{where} must take an expression of SymPy to another, such as sympy.tanh: {error}"
            ) from error
    if not isinstance(expression, Expr) or getattr(expression, "is_Matrix", False):
        raise ValueError(
            f"{where} must be one of {', '.join(map(repr, NAMED))}, or a function of one number made of SymPy's, such "
            f"as sympy.tanh or lambda h: h**3, got {shown(value)}"
        )
    if expression.free_symbols != {UNIT}:
        raise ValueError(
            f"{where} must be a function of one number, got {expression}, of {expression.free_symbols or 'none'}"
        )
    for named in NAMED.values():
        if named.function == expression:
            return named
    return Activation(str(expression), expression)
