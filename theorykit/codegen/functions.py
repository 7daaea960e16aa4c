"""Table of the scalar functions that expressions may contain, one row per function.

Derivatives come from `symbolic.functions.partial_derivative`, and LaTeX from the printer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from math import factorial as factorial_of
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

# Import these modules lazily, because few users need them.
import scipy
import sympy
from jax.lax import digamma, lgamma
from jax.scipy import special
from jaxtyping import Array, Float

from ..symbolic.functions import (
    AngleBetween,
    LogCosh,
    Logistic,
    LogNormalCDF,
    PlaneMonomial,
    SmoothedAbs,
    SmoothedRamp,
)
from . import oracle

Numbers = Float[Array, "..."]


@dataclass(frozen=True)
class ScalarFunction:
    """A row of the table, for one function.

    - `kind`: SymPy class of the function.
    - `jax`: the function in JAX. Its name is also that in the source of generated functions.
    - `numpy`: the function in NumPy or SciPy, for the interpreter.
    - `arguments`: one letter per argument: x for any number, n for a known whole number.
    - `domain`: description of the domain in the documentation. The default is all real numbers.
    - `by_jax`: whether JAX differentiates the function. Otherwise its derivatives are those of the SymPy class.
    - `is_shown`: whether the documentation lists the function. Users do not write the other functions themselves.
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


# JAX code, without derivatives, for functions of arrays that `jax.numpy` lacks.


def log_cosh(x: Numbers) -> Numbers:
    """Return log cosh x."""
    size = jnp.abs(x)
    # Near zero log 2 would cancel, so use log cosh x = log(1 + sinh(x)^2) / 2.
    near = jnp.log1p(jnp.sinh(jnp.minimum(size, 1.0)) ** 2) / 2
    return jnp.where(size < 1.0, near, size + jnp.log1p(jnp.exp(-2 * size)) - jnp.log(2.0))


def log_normal_cdf(x: Numbers, order: int = 0) -> Numbers:
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


def sech(x: Numbers) -> Numbers:
    """Return 1 / cosh x without overflow of the exponentials."""
    decay = jnp.exp(-jnp.abs(x))
    return 2 * decay / (1 + decay**2)


def csch(x: Numbers) -> Numbers:
    """Return 1 / sinh x without overflow of the exponentials."""
    size = jnp.abs(x)
    return jnp.sign(x) * 2 * jnp.exp(-size) / -jnp.expm1(-2 * size)


def sec(x: Numbers) -> Numbers:
    """Return 1 / cos x."""
    return 1 / jnp.cos(x)


def csc(x: Numbers) -> Numbers:
    """Return 1 / sin x."""
    return 1 / jnp.sin(x)


def cot(x: Numbers) -> Numbers:
    """Return 1 / tan x."""
    return 1 / jnp.tan(x)


def coth(x: Numbers) -> Numbers:
    """Return 1 / tanh x."""
    return 1 / jnp.tanh(x)


def frac(x: Numbers) -> Numbers:
    """Return the fractional part of x."""
    return jnp.mod(x, 1.0)


def gamma(x: Numbers) -> Numbers:
    """Return the gamma function for x > 0."""
    return jnp.where(x > 0, special.gamma(jnp.where(x > 0, x, 1.0)), jnp.nan)


def loggamma(x: Numbers) -> Numbers:
    """Return the logarithm of the gamma function."""
    return jnp.where(x > 0, lgamma(jnp.where(x > 0, x, 1.0)), jnp.nan)


def factorial(x: Numbers) -> Numbers:
    """Return x! for x > -1."""
    return gamma(x + 1)


def polygamma(n: int, x: Numbers) -> Numbers:
    """Return the derivative of order n + 1 of the logarithm of the gamma function."""
    at = jnp.where(x > 0, x, 1.0)
    value = digamma(at) if n == 0 else (-1) ** (n + 1) * factorial_of(n) * special.zeta(n + 1.0, at)
    return jnp.where(x > 0, value, jnp.nan)


def smoothed_ramp(a: Numbers, b: Numbers, n: int = 0, k: int = 0) -> Numbers:
    """Return b^k times the n-th derivative with respect to a of the mean of max(a + b z, 0)."""
    size = jnp.abs(b)
    ratio = _quotient(a, size)
    if n == 0:
        return b**k * jnp.where(size > 0, size * _density(ratio) + a * special.ndtr(ratio), jnp.maximum(a, 0.0))
    if n == 1:
        return b**k * special.ndtr(ratio)
    # Beyond 40 standard deviations the density is zero, even if it is multiplied by a negative power of the slope. At
    # zero slope only the kink is left, and we set the derivative to zero.
    inside = (jnp.abs(ratio) < 40) & (size > 0)
    near, width = jnp.where(inside, ratio, 0.0), jnp.where(inside, size, 1.0)
    # Compute the Hermite polynomial for the weight of the normal density by its recurrence.
    below, polynomial = jnp.zeros_like(near), (-1) ** n * jnp.ones_like(near)
    for i in range(n - 2):
        below, polynomial = polynomial, near * polynomial - i * below
    scaled = jnp.exp((k - n + 1) * jnp.log(width) - near**2 / 2) / jnp.sqrt(2 * jnp.pi)
    signed = jnp.sign(b) * polynomial if k % 2 else polynomial
    return jnp.where(inside & (signed != 0), jnp.where(signed == 0, 1.0, signed) * scaled, 0.0)


def smoothed_abs(a: Numbers, b: Numbers, n: int = 0, k: int = 0) -> Numbers:
    """Return b^k times the n-th derivative with respect to a of the mean of |a + b z|, for n = 0 or 1."""
    size = jnp.abs(b)
    ratio = _quotient(a, size)
    mean_sign = special.erf(ratio / jnp.sqrt(2.0))
    return b**k * (2 * size * _density(ratio) + a * mean_sign if n == 0 else mean_sign)


def _quotient(a: Numbers, size: Numbers) -> Numbers:
    """Return a / |b|. It is infinite at zero slope b, and zero for 0/0."""
    quotient = a / jnp.where(size > 0, size, 1.0)
    at_zero = jnp.where(a == 0, 0.0, jnp.where(a > 0, jnp.inf, -jnp.inf))
    return jnp.where(size > 0, quotient, at_zero)


def _density(ratio: Numbers) -> Numbers:
    near = jnp.clip(ratio, -40.0, 40.0)
    return jnp.exp(-(near**2) / 2) / jnp.sqrt(2 * jnp.pi)


def angle_between(c: Numbers, d: Numbers) -> Numbers:
    """Return atan2(c, |d|)."""
    return jnp.arctan2(c, jnp.abs(d))


def plane_monomial(c: Numbers, d: Numbers, i: int, j: int, s: int, m: int) -> Numbers:
    """Return c^i |d|^j sign(d)^s / r^(i + j + m), and zero at r = 0."""
    radius = jnp.hypot(c, d)
    safe = jnp.where(radius > 0, radius, 1.0)
    value = (c / safe) ** i * (jnp.abs(d) / safe) ** j / safe**m
    return jnp.where(radius > 0, value * (jnp.sign(d) if s else 1.0), 0.0)


# Proximal points of losses. Their derivatives come from `symbolic.envelopes`.

ScalarCode = Callable[[Numbers], Numbers]

# Largest number of steps. Newton's method takes about five, and bisection of exponents about sixty more.
_MOST_STEPS = 100


def proximal_point(slope: ScalarCode, curvature: ScalarCode, omega: Numbers, variance: Numbers) -> Numbers:
    """Return the root x of x - omega + V loss'(x) for a convex loss, by Newton's method inside a bracket.

    The distance d of x from omega is the root of an increasing function, d - V |loss'|, between zero and V |loss'| at
    omega. A relative step keeps small distances accurate. If Newton's steps do not shrink, as on the steep side of an
    exponential function, the exponent of the bracket is bisected.
    """
    epsilon = float(jnp.finfo(jnp.float64).eps)
    first = slope(omega)
    side = -jnp.sign(first)
    most = jnp.minimum(variance * jnp.abs(first), oracle.FARTHEST)

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
        done = jnp.abs(moved - distance) <= 4 * epsilon * (moved + jnp.abs(omega))
        return number + 1, moved, low, high, jnp.abs(moved - distance), done

    zeros = jnp.zeros_like(most)
    start = inside(most / (1 + variance * curvature(omega)), zeros, most)
    state = (0, start, zeros, most, jnp.full_like(most, jnp.inf), jnp.isnan(most) | (most == 0))
    goes_on = lambda state: (state[0] < _MOST_STEPS) & ~jnp.all(state[-1])  # noqa: E731
    _, distance, *_ = jax.lax.while_loop(goes_on, improve, state)
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


def _of_positive(name: str, shift: float = 0.0) -> Callable:
    def value(x):
        return np.where(np.add(x, shift) > 0, getattr(scipy.special, name)(np.add(x, shift)), np.nan)

    return value


def _scipy(name: str) -> Callable:
    # SciPy loads its modules on first use.
    return lambda *numbers: getattr(scipy.special, name)(*numbers)


def _polygamma(n, x):
    if n == 0:
        return scipy.special.digamma(x)
    return (-1) ** (n + 1) * factorial_of(int(n)) * scipy.special.zeta(n + 1, x)


def _smoothed(of_ramp: bool) -> Callable:
    def value(a, b, n=0, k=0):
        a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
        size = np.abs(b)
        ratio = np.where((a == 0) & (size == 0), 0.0, a / size)
        density = scipy.stats.norm.pdf(ratio)
        share = scipy.special.ndtr(ratio) if of_ramp else scipy.special.erf(ratio / np.sqrt(2))
        if n == 0:
            return b**k * ((1 if of_ramp else 2) * size * density + np.where(a == 0, 0.0, a * share))
        if n == 1:
            return b**k * share
        m = int(n) - 2
        polynomial = scipy.special.eval_hermitenorm(m, np.where(density > 0, ratio, 0.0))
        power = int(k) - m - 1
        scaled = np.exp(power * np.log(np.where(size > 0, size, 1.0)) + scipy.stats.norm.logpdf(ratio))
        found = (-1) ** m * np.sign(b) ** (k % 2) * np.where(polynomial == 0, 0.0, polynomial * scaled)
        return np.where((density > 0) & (size > 0), found, 0.0)

    return value


def _plane_monomial(c, d, i, j, s, m):
    radius = np.hypot(c, d)
    angle = np.arctan2(c, np.abs(d))
    value = np.sin(angle) ** i * np.cos(angle) ** j * (np.sign(d) if s else 1.0) / radius**m
    return np.where(radius > 0, value, 0.0)


# SymPy class, JAX, NumPy, arguments and domain.
ROWS = (
    ScalarFunction(sympy.exp, _bounded(jnp.exp), np.exp, by_jax=True),
    ScalarFunction(sympy.log, jnp.log, np.log, "x", "x > 0", by_jax=True),
    ScalarFunction(sympy.Abs, jnp.abs, np.abs, by_jax=True),
    ScalarFunction(sympy.sign, jnp.sign, np.sign, by_jax=True),
    ScalarFunction(sympy.Heaviside, jnp.heaviside, np.heaviside, "xx", by_jax=True),
    ScalarFunction(sympy.floor, jnp.floor, np.floor, by_jax=True),
    ScalarFunction(sympy.ceiling, jnp.ceil, np.ceil, by_jax=True),
    ScalarFunction(sympy.frac, frac, lambda x: np.mod(x, 1.0), by_jax=True),
    ScalarFunction(sympy.Mod, jnp.mod, np.mod, "xx", "y > 0", by_jax=True),
    ScalarFunction(sympy.sin, jnp.sin, np.sin, by_jax=True),
    ScalarFunction(sympy.cos, jnp.cos, np.cos, by_jax=True),
    ScalarFunction(sympy.tan, jnp.tan, np.tan, by_jax=True),
    ScalarFunction(sympy.sec, sec, lambda x: 1 / np.cos(x), by_jax=True),
    ScalarFunction(sympy.csc, csc, lambda x: 1 / np.sin(x), "x", "x != 0", by_jax=True),
    ScalarFunction(sympy.cot, cot, lambda x: 1 / np.tan(x), "x", "x != 0", by_jax=True),
    ScalarFunction(sympy.asin, jnp.arcsin, np.arcsin, "x", "-1 <= x <= 1", by_jax=True),
    ScalarFunction(sympy.acos, jnp.arccos, np.arccos, "x", "-1 <= x <= 1", by_jax=True),
    ScalarFunction(sympy.atan, jnp.arctan, np.arctan, by_jax=True),
    ScalarFunction(sympy.atan2, jnp.arctan2, np.arctan2, "xx", by_jax=True),
    ScalarFunction(sympy.sinh, _bounded(jnp.sinh), np.sinh, by_jax=True),
    ScalarFunction(sympy.cosh, _bounded(jnp.cosh), np.cosh, by_jax=True),
    ScalarFunction(sympy.tanh, jnp.tanh, np.tanh, by_jax=True),
    ScalarFunction(sympy.sech, sech, lambda x: 1 / np.cosh(x)),
    ScalarFunction(sympy.csch, csch, lambda x: 1 / np.sinh(x), "x", "x != 0"),
    ScalarFunction(sympy.coth, coth, lambda x: 1 / np.tanh(x), "x", "x != 0", by_jax=True),
    ScalarFunction(sympy.asinh, jnp.arcsinh, np.arcsinh, by_jax=True),
    ScalarFunction(sympy.acosh, jnp.arccosh, np.arccosh, "x", "x >= 1", by_jax=True),
    ScalarFunction(sympy.atanh, jnp.arctanh, np.arctanh, "x", "-1 < x < 1", by_jax=True),
    ScalarFunction(LogCosh, log_cosh, _log_cosh),
    ScalarFunction(Logistic, jax.nn.sigmoid, _scipy("expit"), is_shown=False),
    ScalarFunction(sympy.erf, special.erf, _scipy("erf"), by_jax=True),
    ScalarFunction(sympy.erfc, special.erfc, _scipy("erfc"), by_jax=True),
    ScalarFunction(sympy.erfinv, special.erfinv, _scipy("erfinv"), "x", "-1 < x < 1"),
    ScalarFunction(LogNormalCDF, log_normal_cdf, _log_normal_cdf, "xn"),
    ScalarFunction(sympy.gamma, gamma, _of_positive("gamma"), "x", "x > 0"),
    ScalarFunction(sympy.loggamma, loggamma, _of_positive("gammaln"), "x", "x > 0"),
    ScalarFunction(sympy.polygamma, polygamma, _polygamma, "nx", "x > 0, n = 0, 1, ..."),
    ScalarFunction(sympy.factorial, factorial, _of_positive("gamma", 1.0), "x", "x > -1"),
    ScalarFunction(SmoothedRamp, smoothed_ramp, _smoothed(True), "xxnn", is_shown=False),
    ScalarFunction(SmoothedAbs, smoothed_abs, _smoothed(False), "xxnn", is_shown=False),
    ScalarFunction(AngleBetween, angle_between, lambda c, d: np.arctan2(c, np.abs(d)), "xx", is_shown=False),
    ScalarFunction(PlaneMonomial, plane_monomial, _plane_monomial, "xxnnnn", is_shown=False),
)
"""All rows in the order of the documentation."""
TABLE: Mapping[type, ScalarFunction] = {row.kind: row for row in ROWS}
"""The row of each SymPy class."""
