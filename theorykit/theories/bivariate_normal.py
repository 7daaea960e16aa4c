"""The distribution function of two standard normal variables, as a numeric function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import scipy
import sympy as sp
from jaxtyping import Array, Float
from sympy import Expr, exp, pi, sqrt

from ..symbolic.atoms import checked_scalar
from ..symbolic.functions import LogNormalCDF
from ..symbolic.numeric import NumericFunction

Numbers = Float[Array, "..."]

# The normal density at 8.6 standard deviations, relative to its peak, is below the
# rounding error.
_REACH = 8.6
# Fit (1 + 2 x) exp(x^2 / 2) Phi(-x) on x > 0 by a polynomial in (x - 5) / (x + 5), to a
# few rounding errors.
_PLACES = np.polynomial.chebyshev.chebpts1(64)
_FITTED = (1 + 10 * (1 + _PLACES) / (1 - _PLACES)) / 2
_FITTED = _FITTED * scipy.special.erfcx(5 * (1 + _PLACES) / (1 - _PLACES) / np.sqrt(2))
_TAIL = np.polynomial.chebyshev.cheb2poly(np.polynomial.chebyshev.chebfit(_PLACES, _FITTED, 22))


def _gauss_legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on (0, 1)."""
    points, weights = np.polynomial.legendre.leggauss(count)
    return (points + 1) / 2, weights / 2


def _scaled_tail(x: Numbers) -> Numbers:
    """Return exp(x^2 / 2) Phi(-|x|). JAX's own erfcx is slower, and zero at some x."""
    size = jnp.minimum(jnp.abs(x), 1e300)
    at, value = (size - 5) / (size + 5), 0.0
    for coefficient in _TAIL[::-1]:
        value = value * at + coefficient
    return value / (1 + 2 * size)


def _log_probability(h: Numbers, k: Numbers, r: Numbers) -> Numbers:
    # Given x, y < k has probability Phi(u) with u = (k - r x) / s, a step of width s at
    # x = k / r. `strip` is the probability of x < h and u > 0, for a sharp step, and
    # `layer` the signed correction by Phi(-|u|). With z = (x - r k) / s, the density
    # times Phi(-|u|) is a normal density in z times the scaled tail at |s k - r z|,
    # which varies on the scale 1, so a fixed rule keeps its relative accuracy.
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
    points, weights = map(jnp.asarray, _gauss_legendre(22))

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
    points, weights = (each.reshape(-1, *(1 for _ in h.shape)) for each in _gauss_legendre(10))
    density = jnp.sum(weights * jnp.exp((top**2 - (upper - gap * points) ** 2) / 2), axis=0) / np.sqrt(2 * np.pi)
    strip = jnp.where(is_narrow, gap * density, strip)

    largest = jnp.where(strip > 0, jnp.maximum(-(top**2) / 2, log_scale), log_scale)
    share = jnp.where(strip > 0, strip * jnp.exp(-(top**2) / 2 - largest), 0.0)
    value = largest + jnp.log(share + layer * jnp.exp(log_scale - largest))
    return jnp.where(is_inside, value, jnp.nan)


class LogBivariateNormalCDF(NumericFunction):
    """The function of limits h and k, and the correlation r."""

    nargs = 3
    implementation = staticmethod(_log_probability)

    @classmethod
    def eval(cls, h, k, r):
        """Order the limits, and split off the case without correlation."""
        if r.is_number and (abs(r) >= 1) == True:  # noqa: E712
            raise ValueError(f"a correlation must be between -1 and 1, got {r}")
        if r.is_zero:
            return LogNormalCDF(h) + LogNormalCDF(k)
        return None if sp.default_sort_key(h) <= sp.default_sort_key(k) else cls(k, h, r)

    def fdiff(self, argindex=1):
        """Differentiate by the normal density and distribution of one variable."""
        h, k, r = self.args
        # 1 - r**2 loses digits at |r| close to one.
        square = (1 - r) * (1 + r)
        if argindex == 3:
            # Plackett (1954): the derivative of the probability is the density at (h,
            # k).
            return exp(-((h - r * k) ** 2) / (2 * square) - k**2 / 2 - self) / (2 * pi * sqrt(square))
        at, other = (h, k) if argindex == 1 else (k, h)
        return exp(LogNormalCDF((other - r * at) / sqrt(square)) - at**2 / 2 - self) / sqrt(2 * pi)

    def _eval_is_negative(self):
        return self._eval_is_real()

    def _notation(self, printer):
        h, k, r = map(printer._print, self.args)
        return r"\log\Phi_{2}", rf"\left({h}, {k}; {r}\right)"


def log_bivariate_normal_cdf(h: Expr | float | int, k: Expr | float | int, correlation: Expr | float | int) -> Expr:
    """Return the logarithm of the probability that x < h and y < k, for standard normal x and y.

    The relative error of the probability is a few rounding errors of the arguments,
    also in the tails.

    Args:
        h, k: upper limits.
        correlation: correlation of x and y. Values outside (-1, 1) give NaN.

    Raises:
        ValueError: the correlation is known to be outside (-1, 1).

    Example:
        >>> import theorykit
        >>> from theorykit.theories import log_bivariate_normal_cdf
        >>> theorykit.enable_float64()
        >>> log_bivariate_normal_cdf(-30, -30, 0.5).evalf(8)
        -607.69046
    """
    given = {"h": h, "k": k, "correlation": correlation}
    return LogBivariateNormalCDF(*(checked_scalar(*each) for each in given.items()))
