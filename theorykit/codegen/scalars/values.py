"""Values of scalar functions that `jax.numpy` has not, of arrays, without derivatives: those follow from symbols."""

from collections.abc import Callable
from math import factorial as factorial_of

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import digamma, lgamma
from jax.scipy import special
from jaxtyping import Array, Float

Numbers = Float[Array, "..."]


def log_cosh(x: Numbers) -> Numbers:
    """log cosh x."""
    size = jnp.abs(x)
    # log 2 cancels near zero, where the square of the hyperbolic sine is all that is left
    near = jnp.log1p(jnp.sinh(jnp.minimum(size, 1.0)) ** 2) / 2
    return jnp.where(size < 1.0, near, size + jnp.log1p(jnp.exp(-2 * size)) - jnp.log(2.0))


def log_normal_cdf(x: Numbers, order: int = 0) -> Numbers:
    """The derivative of this order of the log of the normal distribution function."""
    if order:
        return jax.jvp(lambda at: log_normal_cdf(at, order - 1), (x,), (jnp.ones_like(x),))[1]
    # far below, where both vanish, density over probability is t + 1 / (t + 2 / (t + 3 / ...)), t = -x
    below = jnp.where(x < -5.0, -x, 5.0)
    ratio = jax.lax.fori_loop(0, 60, lambda i, ratio: below + (60 - i) / ratio, below)
    tail = -(below**2) / 2 - jnp.log(jnp.sqrt(2 * jnp.pi) * ratio)
    near = jnp.where((x < -5.0) | (x > 0.0), 0.0, x)
    above = jnp.where(x < 0.0, 0.0, x)
    middle = jnp.log(special.erfc(-near / jnp.sqrt(2.0)) / 2)
    upper = jnp.log1p(-special.erfc(above / jnp.sqrt(2.0)) / 2)
    return jnp.where(x < -5.0, tail, jnp.where(x < 0.0, middle, upper))


def sech(x: Numbers) -> Numbers:
    """1 / cosh x, whose own exponentials overflow."""
    decay = jnp.exp(-jnp.abs(x))
    return 2 * decay / (1 + decay**2)


def csch(x: Numbers) -> Numbers:
    """1 / sinh x, whose own exponentials overflow."""
    size = jnp.abs(x)
    return jnp.sign(x) * 2 * jnp.exp(-size) / -jnp.expm1(-2 * size)


def acot(x: Numbers) -> Numbers:
    """The inverse of the cotangent in (-pi/2, pi/2]."""
    return jnp.where(x == 0, jnp.pi / 2, jnp.arctan(1 / jnp.where(x == 0, 1.0, x)))


def gamma(x: Numbers) -> Numbers:
    """The gamma function of a positive number."""
    return jnp.where(x > 0, special.gamma(jnp.where(x > 0, x, 1.0)), jnp.nan)


def loggamma(x: Numbers) -> Numbers:
    """The logarithm of the gamma function of a positive number."""
    return jnp.where(x > 0, lgamma(jnp.where(x > 0, x, 1.0)), jnp.nan)


def factorial(x: Numbers) -> Numbers:
    """The factorial of a number above -1."""
    return gamma(x + 1)


def binomial(n: Numbers, k: Numbers) -> Numbers:
    """n over k, for numbers with n, k and n - k above -1."""
    return jnp.exp(loggamma(n + 1) - loggamma(k + 1) - loggamma(n - k + 1))


def beta(x: Numbers, y: Numbers) -> Numbers:
    """The beta function of positive numbers."""
    return jnp.exp(loggamma(x) + loggamma(y) - loggamma(x + y))


def polygamma(n: int, x: Numbers) -> Numbers:
    """The derivative of order n + 1 of the logarithm of the gamma function of a positive number."""
    at = jnp.where(x > 0, x, 1.0)
    value = digamma(at) if n == 0 else (-1) ** (n + 1) * factorial_of(n) * special.zeta(n + 1.0, at)
    return jnp.where(x > 0, value, jnp.nan)


def erfi(x: Numbers) -> Numbers:
    """The imaginary error function."""
    return 2 / jnp.sqrt(jnp.pi) * jnp.exp(x**2) * special.dawsn(x)


def sinc(x: Numbers) -> Numbers:
    """sin(x) / x."""
    return spherical_jn(0, x)


def spherical_jn(n: int, x: Numbers) -> Numbers:
    """The spherical Bessel function of the first kind."""
    # the power series below n + 2, where its terms grow little; above it, the recurrence, which is stable there
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
    """The modified Bessel function of the first kind, of a whole order."""
    n, size = abs(n), jnp.abs(x)
    # the power series has terms of one sign; farther out, the trapezoidal rule of the integral over a period
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
    """The sum of a series from its first term and the ratios of each term to the one before."""

    def add(k, sums):
        term, total = sums
        term = term * ratio(k)
        return term, total + term

    return jax.lax.fori_loop(1, terms, add, (first, first))[1]


# nodes of the trapezoidal rule: the integrand has the width 1 / sqrt(x), and x is below 710, where exp overflows
_ANGLES = 160


def lambert_w(x: Numbers) -> Numbers:
    """The principal branch of the inverse of w exp(w), of a number from -1/e on."""
    from_branch = jnp.sqrt(jnp.maximum(0.0, 2 * (jnp.e * x + 1)))
    near_branch = -1 + from_branch - from_branch**2 / 3 + 11 / 72 * from_branch**3
    middle = jnp.log1p(jnp.maximum(x, -0.3))
    middle = middle * (1 - jnp.log1p(middle) / (2 + middle))
    w = jnp.where(x < -0.25, near_branch, middle)
    inner = jnp.where(x > 3, 0.0, x)
    near = jnp.where(x > 3, 0.0, w)

    def halley(_, w):
        # at the branch point both numerator and denominator vanish
        miss = w * jnp.exp(w) - inner
        slope = jnp.exp(w) * (w + 1)
        curved = slope - (w + 2) * miss / (2 * jnp.where(w == -1, 1.0, w + 1))
        return w - jnp.where((curved == 0) | (w == -1), 0.0, miss / jnp.where(curved == 0, 1.0, curved))

    near = jax.lax.fori_loop(0, 4, halley, near)
    logarithm = jnp.log(jnp.where(x > 3, x, 4.0))
    # Newton's method for w + log w = log x, in which nothing overflows
    newton = lambda _, w: w * (1 + logarithm - jnp.log(w)) / (1 + w)  # noqa: E731
    far = jax.lax.fori_loop(0, 5, newton, jnp.where(x > 3, w, 1.0))
    return jnp.where(x < -jnp.exp(-1.0), jnp.nan, jnp.where(x > 3, far, near))


def smoothed_ramp(a: Numbers, b: Numbers, n: int = 0, k: int = 0) -> Numbers:
    """b^k times the derivative of order n by a of the mean of max(a + b z, 0)."""
    size = jnp.abs(b)
    ratio = _quotient(a, size)
    if n == 0:
        return b**k * jnp.where(size > 0, size * _density(ratio) + a * special.ndtr(ratio), jnp.maximum(a, 0.0))
    if n == 1:
        return b**k * special.ndtr(ratio)
    # beyond 40 standard deviations the density is zero, whatever power of the slope stands beside it, and for zero
    # slope this is the derivative of the kink itself between its two sides
    inside = (jnp.abs(ratio) < 40) & (size > 0)
    near, width = jnp.where(inside, ratio, 0.0), jnp.where(inside, size, 1.0)
    polynomial = (-1) ** n * _hermite(n - 2, near)
    scaled = jnp.exp((k - n + 1) * jnp.log(width) - near**2 / 2) / jnp.sqrt(2 * jnp.pi)
    signed = jnp.sign(b) * polynomial if k % 2 else polynomial
    return jnp.where(inside & (signed != 0), jnp.where(signed == 0, 1.0, signed) * scaled, 0.0)


def smoothed_abs(a: Numbers, b: Numbers, n: int = 0, k: int = 0) -> Numbers:
    """b^k times the derivative of order n by a, at most 1, of the mean of |a + b z|."""
    size = jnp.abs(b)
    ratio = _quotient(a, size)
    mean_sign = special.erf(ratio / jnp.sqrt(2.0))
    return b**k * (2 * size * _density(ratio) + a * mean_sign if n == 0 else mean_sign)


def _quotient(a: Numbers, size: Numbers) -> Numbers:
    """a / |b|, infinite for zero slope, and zero for 0/0, half way between both signs."""
    quotient = a / jnp.where(size > 0, size, 1.0)
    at_zero = jnp.where(a == 0, 0.0, jnp.where(a > 0, jnp.inf, -jnp.inf))
    return jnp.where(size > 0, quotient, at_zero)


def _density(ratio: Numbers) -> Numbers:
    near = jnp.clip(ratio, -40.0, 40.0)
    return jnp.exp(-(near**2) / 2) / jnp.sqrt(2 * jnp.pi)


def _hermite(order: int, x: Numbers) -> Numbers:
    below, polynomial = jnp.zeros_like(x), jnp.ones_like(x)
    for k in range(order):
        below, polynomial = polynomial, x * polynomial - k * below
    return polynomial


def angle_between(c: Numbers, d: Numbers) -> Numbers:
    """atan2(c, |d|)."""
    return jnp.arctan2(c, jnp.abs(d))


def plane_monomial(c: Numbers, d: Numbers, i: int, j: int, s: int, m: int) -> Numbers:
    """c^i |d|^j sign(d)^s / r^(i + j + m), zero where r is."""
    radius = jnp.hypot(c, d)
    safe = jnp.where(radius > 0, radius, 1.0)
    value = (c / safe) ** i * (jnp.abs(d) / safe) ** j / safe**m
    return jnp.where(radius > 0, value * (jnp.sign(d) if s else 1.0), 0.0)
