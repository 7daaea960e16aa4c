"""Table of the scalar functions that expressions may contain, one row per function.

Derivatives come from `symbolic.functions.partial_derivative`, and LaTeX from the printer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

# Import these modules lazily, because few users need them.
import scipy
import sympy
from jax.scipy import special
from jaxtyping import Array

from ..symbolic.functions import AngleBetween, LogCosh, LogNormalCDF, PowerOfLength, SmoothedKink


@dataclass(frozen=True)
class ScalarFunction:
    """A row of the table, for one function.

    - `kind`: SymPy class of the function.
    - `jax`, `numpy`: the function in JAX, and in NumPy or SciPy.
    - `arguments`: one letter per argument: x for any number, n for a known whole number.
    - `domain`: its description in the documentation.
    - `by_jax`: whether JAX differentiates the function. Otherwise the SymPy class does.
    - `is_shown`: whether the documentation lists the function.
    """

    kind: type
    jax: Callable[..., Any]
    numpy: Callable[..., Any]
    arguments: str = "x"
    domain: str = ""
    by_jax: bool = False
    is_shown: bool = True

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


def smoothed_kink(a, b, n, s):
    """Return the n-th derivative in a of the mean of max(a + b z, 0) over a standard normal z; for s = 1, of |a + b z|.

    At zero slope b only the kink is left.
    """
    size = jnp.abs(b)
    at_zero = jnp.where(a == 0, 0.0, jnp.where(a > 0, jnp.inf, -jnp.inf))
    ratio = jnp.where(size > 0, a / jnp.where(size > 0, size, 1.0), at_zero)
    # Beyond 40 standard deviations the density is zero, even if it is divided by a power of the slope.
    inside = (jnp.abs(ratio) < 40) & (size > 0)
    near, width = jnp.where(inside, ratio, 0.0), jnp.where(inside, size, 1.0)
    if n < 2:
        share = special.erf(ratio / jnp.sqrt(2.0)) if s else special.ndtr(ratio)
        density = jnp.where(inside, jnp.exp(-(near**2) / 2), 0.0) / jnp.sqrt(2 * jnp.pi)
        return (1 + s) * size * density + a * share if n == 0 else share
    # Compute the Hermite polynomial for the weight of the normal density by its recurrence.
    below, polynomial = jnp.zeros_like(near), (-1) ** n * jnp.ones_like(near)
    for i in range(n - 2):
        below, polynomial = polynomial, near * polynomial - i * below
    scaled = jnp.exp((1 - n) * jnp.log(width) - near**2 / 2) / jnp.sqrt(2 * jnp.pi)
    # The power of a small slope may overflow, and zero times infinity is NaN.
    is_zero = ~inside | (polynomial == 0)
    return jnp.where(is_zero, 0.0, jnp.where(is_zero, 1.0, polynomial) * scaled)


def power_of_length(c, d, n):
    """Return the n-th power of the length of (c, d). For negative n it is zero near zero length."""
    length = jnp.hypot(c, d)
    # The fourth power of a smaller length overflows in second derivatives.
    is_long = length > (1e-70 if n < 0 else 0.0)
    return jnp.where(is_long, jnp.where(is_long, length, 1.0) ** n, 0.0)


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


# NumPy code of the functions.


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


def _scipy(name: str) -> Callable:
    # SciPy loads its modules on first use.
    return lambda *numbers: getattr(scipy.special, name)(*numbers)


def _smoothed_kink(a, b, n, s):
    a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
    size = np.abs(b)
    ratio = np.where((a == 0) & (size == 0), 0.0, a / size)
    density = scipy.stats.norm.pdf(ratio)
    if n < 2:
        share = scipy.special.erf(ratio / np.sqrt(2)) if s else scipy.special.ndtr(ratio)
        return (1 + s) * size * density + np.where(a == 0, 0.0, a * share) if n == 0 else share
    polynomial = scipy.special.eval_hermitenorm(n - 2, np.where(density > 0, ratio, 0.0))
    scaled = np.exp((1 - n) * np.log(np.where(size > 0, size, 1.0)) + scipy.stats.norm.logpdf(ratio))
    found = (-1) ** n * np.where(polynomial == 0, 0.0, polynomial * scaled)
    return np.where((density > 0) & (size > 0), found, 0.0)


def _power_of_length(c, d, n):
    squared = np.asarray(c * c + d * d, float)
    return np.where(squared > (1e-140 if n < 0 else 0.0), squared ** (n / 2), 0.0)


# SymPy class, JAX, NumPy, arguments and domain.
ROWS = (
    ScalarFunction(sympy.exp, _bounded(jnp.exp), np.exp, by_jax=True),
    ScalarFunction(sympy.log, jnp.log, np.log, "x", "x > 0", by_jax=True),
    # The derivative of JAX at zero is one.
    ScalarFunction(sympy.Abs, jnp.abs, np.abs),
    ScalarFunction(sympy.sign, jnp.sign, np.sign, by_jax=True),
    ScalarFunction(sympy.Heaviside, jnp.heaviside, np.heaviside, "xx", by_jax=True),
    ScalarFunction(sympy.sin, jnp.sin, np.sin, by_jax=True),
    ScalarFunction(sympy.cos, jnp.cos, np.cos, by_jax=True),
    ScalarFunction(sympy.tan, jnp.tan, np.tan, by_jax=True),
    ScalarFunction(sympy.asin, jnp.arcsin, np.arcsin, "x", "-1 <= x <= 1", by_jax=True),
    ScalarFunction(sympy.acos, jnp.arccos, np.arccos, "x", "-1 <= x <= 1", by_jax=True),
    ScalarFunction(sympy.atan, jnp.arctan, np.arctan, by_jax=True),
    ScalarFunction(sympy.atan2, jnp.arctan2, np.arctan2, "xx", by_jax=True),
    ScalarFunction(sympy.sinh, _bounded(jnp.sinh), np.sinh, by_jax=True),
    ScalarFunction(sympy.cosh, _bounded(jnp.cosh), np.cosh, by_jax=True),
    ScalarFunction(sympy.tanh, jnp.tanh, np.tanh, by_jax=True),
    ScalarFunction(sympy.asinh, jnp.arcsinh, np.arcsinh, by_jax=True),
    ScalarFunction(sympy.atanh, jnp.arctanh, np.arctanh, "x", "-1 < x < 1", by_jax=True),
    ScalarFunction(LogCosh, log_cosh, _log_cosh),
    ScalarFunction(sympy.erf, special.erf, _scipy("erf"), by_jax=True),
    ScalarFunction(sympy.erfc, special.erfc, _scipy("erfc"), by_jax=True),
    ScalarFunction(LogNormalCDF, log_normal_cdf, _log_normal_cdf, "xn"),
    ScalarFunction(SmoothedKink, smoothed_kink, _smoothed_kink, "xxnn", is_shown=False),
    ScalarFunction(AngleBetween, jnp.arctan2, np.arctan2, "xx", is_shown=False),
    ScalarFunction(PowerOfLength, power_of_length, _power_of_length, "xxn", is_shown=False),
)
"""All rows in the order of the documentation."""
TABLE: Mapping[type, ScalarFunction] = {row.kind: row for row in ROWS}
"""The row of each SymPy class."""
