"""Table of the scalar functions that expressions may contain, one row per function.

A row contains the SymPy class, its text and JAX code in generated code, and NumPy code for the interpreter. Derivatives
come from `symbolic.functions.partial_derivative`, and LaTeX from the printer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
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

from ..symbolic import spectral_laws as laws
from ..symbolic.functions import (
    AngleBetween,
    LogBivariateNormalCDF,
    LogCosh,
    Logistic,
    LogNormalCDF,
    PlaneMonomial,
    SmoothedAbs,
    SmoothedRamp,
)
from . import oracle
from .quadrature import gauss_legendre
from .spectral_laws import cube_of_density, log_energy, log_potential, spectral_density, stieltjes_transform

Numbers = Float[Array, "..."]


@dataclass(frozen=True)
class ScalarFunction:
    """A row of the table, for one function.

    - `kind`: SymPy class of the function.
    - `text`: name of the function in generated code, from `jnp` or from `theorykit.codegen.special`.
    - `numpy`: the function in NumPy.
    - `arguments`: one letter per argument: x for any number, n for a known whole number, and p for a number of which a
      zero is known when code is generated.
    - `domain`: description of the domain in the documentation. The default is all real numbers.
    - `jax`: JAX code with correct derivatives, or None.
    - `value`: JAX code whose derivatives are those of the SymPy class, or None.
    - `is_shown`: whether the documentation lists the function. Users do not write the other functions themselves.
    """

    kind: type
    text: str
    numpy: Callable[..., Any]
    arguments: str = "x"
    domain: str = ""
    value: Callable[..., Any] | None = None
    is_shown: bool = True
    jax: Callable[..., Any] | None = None

    def whole_numbers(self, node: sympy.Expr) -> tuple[int, ...]:
        """Return the positions of whole-number arguments."""
        return tuple(i for i, letter in enumerate(self.arguments[: len(node.args)]) if letter == "n")


# The derivatives of exp, cosh and sinh are set to zero beyond this number. Otherwise the derivative of 1/(1 + exp x)
# would be zero times infinity if exp x, or exp x times the derivative of x, overflows.
_LARGEST_EXPONENT = 690.0


def _bounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
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


def log_bivariate_normal_cdf(h: Numbers, k: Numbers, r: Numbers) -> Numbers:
    """Return the log of the probability that x < h and y < k, for standard normal x and y with correlation r."""
    # Given x, the probability of y < k is Phi(u) with u = (k - r x) / s, a step of width s at x = k / r. Below, `strip`
    # is the probability of x < h and u > 0, as if the step were sharp, and `layer` the signed correction by Phi(-|u|).
    # With z = (x - r k) / s, the density times Phi(-|u|) is a normal density in z times the scaled tail at |u| =
    # |s k - r z|. It varies on the scale 1 at all correlations, so a fixed rule keeps its relative accuracy.
    h, k, r = jnp.broadcast_arrays(h, k, r)
    is_inside = jnp.abs(r) < 1
    r = jnp.where(is_inside, r, 0.0)
    s = jnp.sqrt((1 - r) * (1 + r))
    step = jnp.where(r == 0, jnp.where(k < 0, -jnp.inf, jnp.inf), k / jnp.where(r == 0, 1.0, r))

    end = (h - r * k) / s
    peak = jnp.minimum(end, 0.0)
    low, high = peak - _REACH**2 / (jnp.sqrt(peak**2 + _REACH**2) - peak), jnp.minimum(end, _REACH)
    inner = jnp.sort(jnp.stack([jnp.clip(s * step, low, high), jnp.clip(0.0, low, high)]), axis=0)
    left = jnp.concatenate([low[None], inner])
    width = jnp.concatenate([inner, high[None]]) - left
    points, weights = map(jnp.asarray, gauss_legendre(22))

    def add(node, total):
        z = left + width * points[node]
        return total + weights[node] * jnp.exp((peak**2 - z**2) / 2) * _scaled_tail(s * k - r * z)

    total = jax.lax.fori_loop(0, len(points), add, jnp.zeros_like(left))
    is_below = s * k - r * (left + width / 2) < 0
    layer = s / np.sqrt(2 * np.pi) * jnp.sum(jnp.where(is_below, width, -width) * total, axis=0)
    log_scale = -(k**2 + peak**2) / 2

    upper = jnp.where(r < 0, h, jnp.minimum(h, step))
    lower = jnp.where(r < 0, jnp.minimum(h, step), -jnp.inf)
    gap = jnp.where(r < 0, jnp.maximum((r * h - k) / jnp.where(r < 0, r, 1.0), 0.0), jnp.inf)
    upper, lower = jnp.where(lower > 0, -lower, upper), jnp.where(lower > 0, -upper, lower)
    top = jnp.minimum(upper, 0.0)
    tails = _scaled_tail(jnp.stack([upper, lower]))
    below = jnp.where(upper > 0, 1 - tails[0] * jnp.exp(-(upper**2) / 2), tails[0])
    strip = below - tails[1] * jnp.exp((top**2 - lower**2) / 2)
    # The difference of the two tails cancels in a narrow strip.
    is_narrow = gap * (1 - top) < 1
    gap = jnp.where(is_narrow, gap, 0.0)
    points, weights = (each.reshape(-1, *(1 for _ in h.shape)) for each in gauss_legendre(10))
    density = jnp.sum(weights * jnp.exp((top**2 - (upper - gap * points) ** 2) / 2), axis=0) / np.sqrt(2 * np.pi)
    strip = jnp.where(is_narrow, gap * density, strip)

    largest = jnp.where(strip > 0, jnp.maximum(-(top**2) / 2, log_scale), log_scale)
    share = jnp.where(strip > 0, strip * jnp.exp(-(top**2) / 2 - largest), 0.0)
    value = largest + jnp.log(share + layer * jnp.exp(log_scale - largest))
    return jnp.where(is_inside, value, jnp.nan)


# The normal density at 8.6 standard deviations, relative to its peak, is below the rounding error.
_REACH = 8.6


@cache
def _tail_polynomial() -> np.ndarray:
    """Fit (1 + 2 x) exp(x^2 / 2) Phi(-x) on x > 0 by a polynomial in (x - 5) / (x + 5), to a few rounding errors."""
    points = np.polynomial.chebyshev.chebpts1(64)
    x = 5 * (1 + points) / (1 - points)
    fitted = np.polynomial.chebyshev.chebfit(points, (1 + 2 * x) * scipy.special.erfcx(x / np.sqrt(2)) / 2, 22)
    return np.polynomial.chebyshev.cheb2poly(fitted)


def _scaled_tail(x: Numbers) -> Numbers:
    """Return exp(x^2 / 2) Phi(-|x|). JAX's own erfcx is slower, and zero at some x."""
    size = jnp.minimum(jnp.abs(x), 1e300)
    at, value = (size - 5) / (size + 5), 0.0
    for coefficient in _tail_polynomial()[::-1]:
        value = value * at + coefficient
    return value / (1 + 2 * size)


def sech(x: Numbers) -> Numbers:
    """Return 1 / cosh x without overflow of the exponentials."""
    decay = jnp.exp(-jnp.abs(x))
    return 2 * decay / (1 + decay**2)


def csch(x: Numbers) -> Numbers:
    """Return 1 / sinh x without overflow of the exponentials."""
    size = jnp.abs(x)
    return jnp.sign(x) * 2 * jnp.exp(-size) / -jnp.expm1(-2 * size)


def acot(x: Numbers) -> Numbers:
    """Return the inverse cotangent in (-pi/2, pi/2]."""
    return jnp.where(x == 0, jnp.pi / 2, jnp.arctan(1 / jnp.where(x == 0, 1.0, x)))


def gamma(x: Numbers) -> Numbers:
    """Return the gamma function for x > 0."""
    return jnp.where(x > 0, special.gamma(jnp.where(x > 0, x, 1.0)), jnp.nan)


def loggamma(x: Numbers) -> Numbers:
    """Return the logarithm of the gamma function."""
    return jnp.where(x > 0, lgamma(jnp.where(x > 0, x, 1.0)), jnp.nan)


def factorial(x: Numbers) -> Numbers:
    """Return x! for x > -1."""
    return gamma(x + 1)


def binomial(n: Numbers, k: Numbers) -> Numbers:
    """Return the binomial coefficient n over k."""
    return jnp.exp(loggamma(n + 1) - loggamma(k + 1) - loggamma(n - k + 1))


def beta(x: Numbers, y: Numbers) -> Numbers:
    """Return the beta function."""
    return jnp.exp(loggamma(x) + loggamma(y) - loggamma(x + y))


def polygamma(n: int, x: Numbers) -> Numbers:
    """Return the derivative of order n + 1 of the logarithm of the gamma function."""
    at = jnp.where(x > 0, x, 1.0)
    value = digamma(at) if n == 0 else (-1) ** (n + 1) * factorial_of(n) * special.zeta(n + 1.0, at)
    return jnp.where(x > 0, value, jnp.nan)


def erfi(x: Numbers) -> Numbers:
    """Return the imaginary error function."""
    return 2 / jnp.sqrt(jnp.pi) * jnp.exp(x**2) * special.dawsn(x)


def sinc(x: Numbers) -> Numbers:
    """Return sin(x) / x."""
    return spherical_jn(0, x)


def spherical_jn(n: int, x: Numbers) -> Numbers:
    """Return the spherical Bessel function of the first kind."""
    # For |x| < n + 2 use the power series, whose terms grow little. For larger |x| use the recurrence, which is stable
    # there.
    far = jnp.abs(x) > n + 2
    small = jnp.where(far, 1.0, x)
    first = small**n / float(np.prod(np.arange(1.0, 2 * n + 2, 2)))
    series = _series(first, lambda k: -(small**2) / 2 / (k * (2 * (n + k) + 1)), 16 + 2 * n)
    large = jnp.where(far, x, 1.0 + n)
    current, following = jnp.sin(large) / large, jnp.sin(large) / large**2 - jnp.cos(large) / large
    for k in range(1, n + 1):
        current, following = following, (2 * k + 1) / large * following - current
    return jnp.where(far, current, series)


def bessel_i(n: int, x: Numbers) -> Numbers:
    """Return the modified Bessel function of the first kind of integer order."""
    n, size = abs(n), jnp.abs(x)
    # The power series has terms of one sign. For large x use the trapezoidal rule for the integral over a period.
    far = size > 20
    small = jnp.where(far, 0.0, size / 2)
    series = _series(small**n / factorial_of(n), lambda k: small**2 / (k * (k + n)), 48)
    large = jnp.where(far, size, 20.0)
    angles = np.pi * (np.arange(_ANGLES) + 0.5) / _ANGLES
    weights = np.cos(n * angles) / _ANGLES
    shrunk = jnp.exp(-2 * large[..., None] * np.sin(angles / 2) ** 2) @ weights
    value = jnp.where(far, jnp.exp(large) * shrunk, series)
    return jnp.where(x < 0, (-1) ** n * value, value)


def _series(first: Numbers, ratio: Callable[[Array], Numbers], terms: int) -> Numbers:
    """Sum a series from its first term and the ratios of successive terms."""

    def add(k, sums):
        term, total = sums
        term = term * ratio(k)
        return term, total + term

    return jax.lax.fori_loop(1, terms, add, (first, first))[1]


# Number of nodes of the trapezoidal rule. It resolves the width 1 / sqrt(x) of the integrand for x < 710. For larger
# x, exp overflows.
_ANGLES = 160


def lambert_w(x: Numbers) -> Numbers:
    """Return the principal branch of the inverse of w exp(w), for x >= -1/e."""
    from_branch = jnp.sqrt(jnp.maximum(0.0, 2 * (jnp.e * x + 1)))
    near_branch = -1 + from_branch - from_branch**2 / 3 + 11 / 72 * from_branch**3
    middle = jnp.log1p(jnp.maximum(x, -0.3))
    middle = middle * (1 - jnp.log1p(middle) / (2 + middle))
    w = jnp.where(x < -0.25, near_branch, middle)
    inner = jnp.where(x > 3, 0.0, x)
    near = jnp.where(x > 3, 0.0, w)

    def halley(_, w):
        # At the branch point both numerator and denominator vanish, so make no step.
        miss = w * jnp.exp(w) - inner
        slope = jnp.exp(w) * (w + 1)
        curved = slope - (w + 2) * miss / (2 * jnp.where(w == -1, 1.0, w + 1))
        return w - jnp.where((curved == 0) | (w == -1), 0.0, miss / jnp.where(curved == 0, 1.0, curved))

    near = jax.lax.fori_loop(0, 4, halley, near)
    logarithm = jnp.log(jnp.where(x > 3, x, 4.0))
    # For large x use Newton's method for w + log w = log x, which does not overflow.
    newton = lambda _, w: w * (1 + logarithm - jnp.log(w)) / (1 + w)  # noqa: E731
    far = jax.lax.fori_loop(0, 5, newton, jnp.where(x > 3, w, 1.0))
    return jnp.where(x < -jnp.exp(-1.0), jnp.nan, jnp.where(x > 3, far, near))


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


def _quiet(function: Callable) -> Callable:
    def value(*numbers):
        with np.errstate(all="ignore"):
            return function(*numbers)

    return value


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


@_quiet
def _log_bivariate_normal_cdf(h, k, r):
    # By Plackett (1954), the probability is its limit max(0, Phi(h) - Phi(-k)) at correlation -1 plus the integral of
    # the density at (h, k) over the correlation. With s = atanh r the density is exp(-exponent), and log-concave.
    h, k, r = np.broadcast_arrays(*(np.asarray(each, float) for each in (h, k, r)))
    plus, minus, end = (h + k) ** 2, (h - k) ** 2, np.arctanh(r)

    def exponent(s):
        return (plus * np.exp(-2 * s) + minus * np.exp(2 * s)) / 8 + np.logaddexp(s, -s) - np.log(2)

    def last(below, above, condition):
        for _ in range(90):
            middle = (below + above) / 2
            holds = condition(middle)
            below, above = np.where(holds, middle, below), np.where(holds, above, middle)
        return above

    peak = last(end - 400, end, lambda s: (minus * np.exp(2 * s) - plus * np.exp(-2 * s)) / 4 + np.tanh(s) < 0)
    # Beyond these points the density is below rounding.
    left = last(peak - 42, peak, lambda s: exponent(s) > exponent(peak) + 40)
    right = last(peak, end, lambda s: exponent(s) < exponent(peak) + 40)
    nodes, weights = (each.reshape(-1, *(1 for _ in h.shape)) for each in np.polynomial.legendre.leggauss(24))
    total = 0.0
    for first, width in ((left, (peak - left) / 16), (peak, (right - peak) / 16)):
        for panel in range(16):
            s = first + width * (panel + (nodes + 1) / 2)
            total = total + width / 2 * np.sum(weights * np.exp(exponent(peak) - exponent(s)), axis=0)
    low, high = np.minimum(h, k), np.maximum(h, k)
    first, second = scipy.special.log_ndtr(low), scipy.special.log_ndtr(-high)
    wide = first + np.log(-np.expm1(second - first))
    # The difference of the two tails cancels in a narrow strip from -high to low.
    gap = low + high
    within = weights / 2 * np.exp((low**2 - (low - gap * (nodes + 1) / 2) ** 2) / 2)
    narrow = np.log(gap * np.sum(within, axis=0) / np.sqrt(2 * np.pi)) - low**2 / 2
    strip = np.where(gap > 0, np.where(gap * (1 + high) < 1, narrow, wide), -np.inf)
    found = np.logaddexp(strip, np.log(total / (2 * np.pi)) - (h**2 + k**2) / 4 - exponent(peak))
    return np.where(np.abs(r) < 1, found, np.nan)


def _of_positive(function: Callable, shift: float = 0.0) -> Callable:
    return _quiet(lambda x: np.where(np.add(x, shift) > 0, function(np.add(x, shift)), np.nan))


def _spherical_bessel(n, x):
    # SciPy implements this function only for positive numbers.
    return scipy.special.spherical_jn(int(n), np.abs(x)) * np.where(np.less(x, 0), (-1.0) ** int(n), 1.0)


def _polygamma(n, x):
    if n == 0:
        return scipy.special.digamma(x)
    return (-1) ** (n + 1) * factorial_of(int(n)) * scipy.special.zeta(n + 1, x)


def _smoothed(of_ramp: bool) -> Callable:
    @_quiet
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


@_quiet
def _plane_monomial(c, d, i, j, s, m):
    radius = np.hypot(c, d)
    angle = np.arctan2(c, np.abs(d))
    value = np.sin(angle) ** i * np.cos(angle) ** j * (np.sign(d) if s else 1.0) / radius**m
    return np.where(radius > 0, value, 0.0)


def _lambert_w(x):
    found = scipy.special.lambertw(x)
    return np.where(np.abs(found.imag) > 0, np.nan, found.real)


def _of_law(kind: type) -> Callable:
    """Evaluate a function of a spectral law from the roots of its polynomial."""
    return np.vectorize(partial(oracle.of_law, kind), otypes=[float])


def _jnp(kind: type, name: str, domain: str = "") -> ScalarFunction:
    """Make the row of a function that has the same name in NumPy and `jax.numpy`, and correct derivatives there."""
    return ScalarFunction(kind, f"jnp.{name}", getattr(np, name), domain=domain, jax=getattr(jnp, name))


def _both(kind: type, function: Callable, arguments: str = "x", domain: str = "") -> ScalarFunction:
    """Make the row of a function with the same code in NumPy and JAX. `function` takes the module first."""
    numpy = _quiet(lambda *numbers: function(np, *numbers))
    return ScalarFunction(kind, kind.__name__, numpy, arguments, domain, lambda *numbers: function(jnp, *numbers))


def _own(kind: type, value: Callable, numpy: Callable, arguments: str = "x", domain: str = "", **options: Any):
    """Make the row of a function with JAX code from this module or JAX, and symbolic derivatives."""
    return ScalarFunction(kind, value.__name__, numpy, arguments, domain, value, **options)


ROWS = (
    ScalarFunction(sympy.exp, "jnp.exp", _quiet(np.exp), jax=_bounded(jnp.exp)),
    _jnp(sympy.log, "log", "x > 0"),
    _jnp(sympy.Abs, "abs"),
    _jnp(sympy.sign, "sign"),
    ScalarFunction(sympy.Heaviside, "jnp.heaviside", np.heaviside, "xx", jax=jnp.heaviside),
    _jnp(sympy.floor, "floor"),
    _jnp(sympy.ceiling, "ceil"),
    _both(sympy.frac, lambda np, x: np.mod(x, 1.0)),
    _both(sympy.Mod, lambda np, x, y: np.mod(x, y), "xx", "y > 0"),
    _jnp(sympy.sin, "sin"),
    _jnp(sympy.cos, "cos"),
    _jnp(sympy.tan, "tan"),
    _both(sympy.sec, lambda np, x: 1 / np.cos(x)),
    _both(sympy.csc, lambda np, x: 1 / np.sin(x), domain="x != 0"),
    _both(sympy.cot, lambda np, x: 1 / np.tan(x), domain="x != 0"),
    _jnp(sympy.asin, "arcsin", "-1 <= x <= 1"),
    _jnp(sympy.acos, "arccos", "-1 <= x <= 1"),
    _jnp(sympy.atan, "arctan"),
    _own(sympy.acot, acot, _quiet(lambda x: np.where(x == 0, np.pi / 2, np.arctan(np.divide(1.0, x))))),
    _both(sympy.asec, lambda np, x: np.arccos(np.divide(1.0, x)), domain="x <= -1 or x >= 1"),
    _both(sympy.acsc, lambda np, x: np.arcsin(np.divide(1.0, x)), domain="x <= -1 or x >= 1"),
    _both(sympy.atan2, lambda np, y, x: np.arctan2(y, x), "xx"),
    ScalarFunction(sympy.sinh, "jnp.sinh", _quiet(np.sinh), jax=_bounded(jnp.sinh)),
    ScalarFunction(sympy.cosh, "jnp.cosh", _quiet(np.cosh), jax=_bounded(jnp.cosh)),
    _jnp(sympy.tanh, "tanh"),
    _own(sympy.sech, sech, _quiet(lambda x: 1 / np.cosh(x))),
    _own(sympy.csch, csch, _quiet(lambda x: 1 / np.sinh(x)), domain="x != 0"),
    _both(sympy.coth, lambda np, x: 1 / np.tanh(x), domain="x != 0"),
    _jnp(sympy.asinh, "arcsinh"),
    _jnp(sympy.acosh, "arccosh", "x >= 1"),
    _jnp(sympy.atanh, "arctanh", "-1 < x < 1"),
    _both(sympy.asech, lambda np, x: np.arccosh(np.divide(1.0, x)), domain="0 < x <= 1"),
    _both(sympy.acsch, lambda np, x: np.arcsinh(np.divide(1.0, x)), domain="x != 0"),
    _both(sympy.acoth, lambda np, x: np.arctanh(np.divide(1.0, x)), domain="x < -1 or x > 1"),
    _own(LogCosh, log_cosh, _log_cosh),
    _own(Logistic, jax.nn.sigmoid, scipy.special.expit, is_shown=False),
    ScalarFunction(sympy.erf, "erf", lambda x: scipy.special.erf(x), jax=special.erf),
    ScalarFunction(sympy.erfc, "erfc", lambda x: scipy.special.erfc(x), jax=special.erfc),
    _own(sympy.erfi, erfi, lambda x: scipy.special.erfi(x)),
    _own(sympy.erfinv, special.erfinv, lambda x: scipy.special.erfinv(x), domain="-1 < x < 1"),
    _own(LogNormalCDF, log_normal_cdf, _log_normal_cdf, "xn"),
    _own(LogBivariateNormalCDF, log_bivariate_normal_cdf, _log_bivariate_normal_cdf, "xxx", "-1 < z < 1"),
    _own(sympy.gamma, gamma, _of_positive(lambda x: scipy.special.gamma(x)), domain="x > 0"),
    _own(sympy.loggamma, loggamma, _of_positive(lambda x: scipy.special.gammaln(x)), domain="x > 0"),
    _own(sympy.polygamma, polygamma, _polygamma, "nx", "x > 0, n = 0, 1, ..."),
    _own(sympy.factorial, factorial, _of_positive(lambda x: scipy.special.gamma(x), 1.0), domain="x > -1"),
    _own(sympy.binomial, binomial, lambda n, k: scipy.special.binom(n, k), "xx", "x, y, x - y > -1"),
    _own(sympy.beta, beta, lambda x, y: scipy.special.beta(x, y), "xx", "x, y > 0"),
    _own(sympy.Ei, special.expi, lambda x: scipy.special.expi(x), domain="x != 0"),
    _own(sympy.sinc, sinc, lambda x: np.sinc(np.divide(x, np.pi))),
    _own(sympy.jn, spherical_jn, _spherical_bessel, "nx", "n = 0, 1, ..."),
    _own(sympy.besseli, bessel_i, lambda n, x: scipy.special.iv(n, x), "nx", "n whole"),
    _own(sympy.LambertW, lambert_w, _lambert_w, domain="x >= -1/e"),
    _own(SmoothedRamp, smoothed_ramp, _smoothed(True), "xxnn", is_shown=False),
    _own(SmoothedAbs, smoothed_abs, _smoothed(False), "xxnn", is_shown=False),
    _own(AngleBetween, angle_between, lambda c, d: np.arctan2(c, np.abs(d)), "xx", is_shown=False),
    _own(PlaneMonomial, plane_monomial, _plane_monomial, "xxnnnn", is_shown=False),
    _own(laws.StieltjesTransform, stieltjes_transform, _of_law(laws.StieltjesTransform), "xpp", is_shown=False),
    _own(laws.LogPotential, log_potential, _of_law(laws.LogPotential), "xpp", is_shown=False),
    _own(laws.SpectralDensity, spectral_density, _of_law(laws.SpectralDensity), "xxxnnn", is_shown=False),
    _own(laws.CubeOfDensity, cube_of_density, _of_law(laws.CubeOfDensity), "xxnn", is_shown=False),
    _own(laws.LogEnergy, log_energy, _of_law(laws.LogEnergy), "xxn", is_shown=False),
)
"""All rows in the order of the documentation."""
TABLE: Mapping[type, ScalarFunction] = {row.kind: row for row in ROWS}
"""The row of each SymPy class."""
