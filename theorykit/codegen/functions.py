"""Table of the scalar functions that expressions may contain, one row per function.

Derivatives come from the SymPy classes, and LaTeX from the printer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import scipy  # It loads its modules on first use.
import sympy
from jax.scipy import special
from jaxtyping import Array

from ..symbolic.functions import LogCosh, LogNormalCDF


@dataclass(frozen=True)
class ScalarFunction:
    """A row of the table, for one function.

    - `kind`: SymPy class of the function.
    - `jax`, `numpy`: the function in JAX, and in NumPy or SciPy.
    - `arguments`: one letter per argument: x for any number, n for a known whole number.
    - `by_jax`: whether JAX differentiates the function. Otherwise the SymPy class does.
    """

    kind: type
    jax: Callable[..., Any]
    numpy: Callable[..., Any]
    arguments: str = "x"
    by_jax: bool = False

    def whole_numbers(self, node: sympy.Expr) -> tuple[int, ...]:
        """Return the positions of whole-number arguments."""
        return tuple(i for i, letter in enumerate(self.arguments[: len(node.args)]) if letter == "n")


# The derivatives of exp, cosh and sinh are set to zero beyond this number. Otherwise the derivative of 1/(1 + exp x)
# would be zero times infinity if exp x, or exp x times the derivative of x, overflows.
_LARGEST_EXPONENT = 690.0


def _bounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    @wraps(function)
    def value(number):
        inside = jnp.clip(number, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        beyond = jnp.abs(number) > _LARGEST_EXPONENT
        return jnp.where(beyond, function(jax.lax.stop_gradient(number)), function(inside))

    return value


# JAX code, without derivatives, for functions of arrays that JAX lacks. It is pasted into sources, and may use `jax`,
# `jnp` and `special`.


def log_cosh(x):
    """Return log cosh x."""
    size = jnp.abs(x)
    # Near zero log 2 would cancel, so use log cosh x = log(1 + sinh(x)^2) / 2.
    near = jnp.log1p(jnp.sinh(jnp.minimum(size, 1.0)) ** 2) / 2
    return jnp.where(size < 1.0, near, size + jnp.log1p(jnp.exp(-2 * size)) - jnp.log(2.0))


def log_normal_cdf(x, order=0):
    """Return the derivative of this order of the log of the normal cumulative distribution function."""
    if order:
        return jax.jvp(lambda at: log_normal_cdf(at, order - 1), (x,), (jnp.ones_like(x),))[1]
    # Far below zero both density and probability underflow. Their ratio is t + 1 / (t + 2 / (t + 3 / ...)), t = -x.
    below = jnp.where(x < -5.0, -x, 5.0)
    ratio = jax.lax.fori_loop(0, 60, lambda i, ratio: below + (60 - i) / ratio, below)
    tail = -(below**2) / 2 - jnp.log(jnp.sqrt(2 * jnp.pi) * ratio)
    near = jnp.where((x < -5.0) | (x > 0.0), 0.0, x)
    above = jnp.where(x < 0.0, 0.0, x)
    middle = jnp.log(special.erfc(-near / jnp.sqrt(2.0)) / 2)
    upper = jnp.log1p(-special.erfc(above / jnp.sqrt(2.0)) / 2)
    return jnp.where(x < -5.0, tail, jnp.where(x < 0.0, middle, upper))


# Proximal points of losses. Their derivatives come from `symbolic.envelopes`.

# Distance that replaces an infinite one, if the slope of a loss overflows.
FARTHEST = 1e300
# Largest number of steps. Newton's method takes about five, and bisection of exponents about sixty more.
_MOST_STEPS = 100


def proximal_point(slope: Callable, curvature: Callable, omega: Array, variance: Array) -> Array:
    """Return the root x of x - omega + V loss'(x) for a convex loss, by Newton's method inside a bracket.

    The distance d of x from omega is the root of an increasing function, d - V |loss'|, between zero and V |loss'| at
    omega. A relative step keeps small distances accurate. If Newton's steps do not shrink, as on the steep side of an
    exponential function, the exponent of the bracket is bisected.
    """
    first = slope(omega)
    side = -jnp.sign(first)
    most = jnp.minimum(variance * jnp.abs(first), FARTHEST)

    def middle(low, high):
        start = jnp.maximum(low, 1e-3 * jnp.minimum(high, 1.0))
        return jnp.where(high < 4 * low, (low + high) / 2, jnp.sqrt(start) * jnp.sqrt(high))

    def inside(proposed, low, high, is_good=True):
        return jnp.where((proposed >= low) & (proposed <= high) & is_good, proposed, middle(low, high))

    def improve(state):
        number, distance, low, high, last, _ = state
        at = omega + side * distance
        residual = distance + side * variance * slope(at)
        # Rounding may make the residual of an overflowing slope NaN, which is on the far side.
        is_below = residual < 0
        low, high = jnp.where(is_below, distance, low), jnp.where(is_below, high, distance)
        step = residual / (1 + variance * curvature(at))
        moved = inside(distance - step, low, high, jnp.abs(step) <= last / 2)
        moved = jnp.where(residual == 0, distance, moved)
        done = jnp.abs(moved - distance) <= 4 * np.finfo(float).eps * (moved + jnp.abs(omega))
        return number + 1, moved, low, high, jnp.abs(moved - distance), done

    zeros = jnp.zeros_like(most)
    start = inside(most / (1 + variance * curvature(omega)), zeros, most)
    state = (0, start, zeros, most, jnp.full_like(most, jnp.inf), jnp.isnan(most) | (most == 0))
    _, distance, *_ = jax.lax.while_loop(lambda state: (state[0] < _MOST_STEPS) & ~jnp.all(state[-1]), improve, state)
    return jnp.where(variance >= 0, omega + side * distance, jnp.nan)


def _log_cosh(x):
    # Numbers may be complex, because an action may be evaluated where a square root is not real.
    right = np.where(np.real(x) < 0, np.negative(x), x)
    return right + np.log1p(np.exp(-2 * right)) - np.log(2)


def _log_normal_cdf(x, order=0):
    if order == 0:
        return scipy.special.log_ndtr(x)
    if order == 1:
        return np.sqrt(2 / np.pi) / scipy.special.erfcx(-np.asarray(x) / np.sqrt(2))

    def derivative(x):
        with mpmath.workdps(40 + 15 * order):
            exact = LogNormalCDF(sympy.Float(x, mpmath.mp.dps), sympy.Integer(int(order)))
            return float(exact.rewrite(sympy.log).evalf(20))

    return np.vectorize(derivative, otypes=[float])(x)


ROWS = (
    ScalarFunction(sympy.exp, _bounded(jnp.exp), np.exp, by_jax=True),
    ScalarFunction(sympy.log, jnp.log, np.log, by_jax=True),
    # The derivative of JAX at zero is one.
    ScalarFunction(sympy.Abs, jnp.abs, np.abs),
    ScalarFunction(sympy.sign, jnp.sign, np.sign, by_jax=True),
    ScalarFunction(sympy.Heaviside, jnp.heaviside, np.heaviside, "xx", by_jax=True),
    ScalarFunction(sympy.sin, jnp.sin, np.sin, by_jax=True),
    ScalarFunction(sympy.cos, jnp.cos, np.cos, by_jax=True),
    ScalarFunction(sympy.tan, jnp.tan, np.tan, by_jax=True),
    ScalarFunction(sympy.asin, jnp.arcsin, np.arcsin, by_jax=True),
    ScalarFunction(sympy.acos, jnp.arccos, np.arccos, by_jax=True),
    ScalarFunction(sympy.atan, jnp.arctan, np.arctan, by_jax=True),
    ScalarFunction(sympy.atan2, jnp.arctan2, np.arctan2, "xx", by_jax=True),
    ScalarFunction(sympy.sinh, _bounded(jnp.sinh), np.sinh, by_jax=True),
    ScalarFunction(sympy.cosh, _bounded(jnp.cosh), np.cosh, by_jax=True),
    ScalarFunction(sympy.tanh, jnp.tanh, np.tanh, by_jax=True),
    ScalarFunction(sympy.asinh, jnp.arcsinh, np.arcsinh, by_jax=True),
    ScalarFunction(sympy.atanh, jnp.arctanh, np.arctanh, by_jax=True),
    ScalarFunction(LogCosh, log_cosh, _log_cosh),
    ScalarFunction(sympy.erf, special.erf, lambda x: scipy.special.erf(x), by_jax=True),
    ScalarFunction(sympy.erfc, special.erfc, lambda x: scipy.special.erfc(x), by_jax=True),
    ScalarFunction(LogNormalCDF, log_normal_cdf, _log_normal_cdf, "xn"),
)
TABLE: Mapping[type, ScalarFunction] = {row.kind: row for row in ROWS}
"""The row of each SymPy class."""
