"""The bivariate normal distribution function against polar coordinates in many digits, and against Plackett."""

import jax
import mpmath
import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sympy import Integer, Symbol

from tests.expressions import assert_close
from theorykit.codegen import compile_expressions, interpret
from theorykit.symbolic import gradient, log_normal_cdf
from theorykit.symbolic.documents.rendering import latex
from theorykit.theories.bivariate_normal import log_bivariate_normal_cdf

X, Y, Z = NUMBERS = [Symbol(name, real=True) for name in "xyz"]
NODE = log_bivariate_normal_cdf(X, Y, Z)
# limits far in both tails, limits that nearly cancel, and correlations near -1 and 1
LIMITS = (
    *((0.3, -1.2, 1 / 3), (-30.0, -37.5, -1 / 3), (-38.0, 38.0, 0.4), (12.0, -12.5, -0.999), (1e-4, -2e-4, -1 + 1e-9)),
    *((-9.0, -9.001, 1 - 1e-9), (3.0, 5.0, 0.9), (-2.0, 0.0, 1e-9)),
)


def compiled(expressions, **options):
    return compile_expressions("f", expressions, NUMBERS, **options)


at_limits = jax.jit(lambda h, k, r: compiled({"value": NODE})(x=h, y=k, z=r)["value"])


def log_orthant(h, k, r):
    """The logarithm of the bivariate normal distribution function, from the angle at which each point is seen.

    In polar coordinates about the corner (h, k), in variables in which the density is isotropic, the integral over the
    radius is 1 - b exp(b^2 / 2) Phi(-b) sqrt(2 pi) with the distance b along the ray.
    """
    s = mpmath.sqrt(1 - r**2)
    # the edges of the wedge leave the corner in directions whose angles with the x axis are these
    first, opening = -mpmath.pi / 2, mpmath.acos(-r)
    corner = mpmath.matrix([h, (k - r * h) / s])
    size = corner[0] ** 2 + corner[1] ** 2

    def of_ray(angle):
        along = corner[0] * mpmath.cos(first - angle) + corner[1] * mpmath.sin(first - angle)
        tail = mpmath.exp((along**2 - size) / 2) * mpmath.erfc(along / mpmath.sqrt(2)) * mpmath.sqrt(mpmath.pi / 2)
        return mpmath.exp(-size / 2) - along * tail

    towards = first - mpmath.atan2(-corner[1], -corner[0])
    widths = [4**i / (1 + mpmath.sqrt(size)) for i in range(-1, 4)]
    centres = (0, towards, towards + 2 * mpmath.pi, opening)
    places = [at + sign * width for at in centres for width in (0, *widths) for sign in (1, -1)]
    edges = [0, *sorted(at for at in set(places) if 0 < at < opening), opening]
    largest = max(map(of_ray, edges))
    integral = mpmath.quad(lambda angle: of_ray(angle) / largest, edges)
    return mpmath.log(largest * integral / (2 * mpmath.pi))


def log_by_plackett(h, k, r):
    """The probability is its limit max(0, Phi(h) - Phi(-k)) at correlation -1 plus an integral (Plackett, 1954).

    The integral is of the density at (h, k) over the correlation. With s = atanh r it is exp(-exponent), which is
    log-concave.
    """
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
    return np.logaddexp(strip, np.log(total / (2 * np.pi)) - (h**2 + k**2) / 4 - exponent(peak))


@pytest.mark.quick(2)
@pytest.mark.parametrize("point", LIMITS)
def test_values_and_slopes_are_those_of_many_digits(point):
    values, numbers = dict(zip("xyz", point, strict=True)), list(map(mpmath.mpf, point))
    slopes = {symbol.name: gradient(NODE, symbol) for symbol in NUMBERS}
    function = compiled({"value": NODE, **slopes})
    found, automatic = function(**values), jax.grad(lambda at: function(**at)["value"])(values)
    with mpmath.workdps(40):
        assert_close(found["value"], float(log_orthant(*numbers)), 1e-12)
    assert_close(interpret(NODE, values), found["value"], 1e-13)
    for name, slope in slopes.items():
        assert_close(found[name], automatic[name], 1e-11)
        assert_close(interpret(slope, values), automatic[name], 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("point", [(0.3, -1.2, 1 / 3), (-2.5, -1.0, -0.9)])
def test_derivatives(point):
    values = dict(zip("xyz", point, strict=True))
    slopes = {symbol.name: gradient(NODE, symbol) for symbol in NUMBERS}
    function = compiled(slopes)
    found = function(**values)
    with mpmath.workdps(40):
        for i, name in enumerate(values):
            numbers = list(map(mpmath.mpf, point))
            slope = mpmath.diff(lambda at, i=i, n=numbers: log_orthant(*n[:i], at, *n[i + 1 :]), numbers[i], h=1e-12)
            assert_close(found[name], float(slope), 1e-12)
    second = jax.jit(jax.jacfwd(lambda at: function(**at)))(values)
    for name, slope in slopes.items():
        for other in values:
            assert_close(second[name][other], interpret(gradient(slope, Symbol(other, real=True)), values), 1e-10)
            assert_close(second[name][other], second[other][name], 1e-10)


def test_symmetry_limits_domain_and_notation():
    for r in (-1 + 1e-12, -0.7, 1 / 3, 0.999):
        assert_close(at_limits(0.0, 0.0, r), np.log(np.arctan2(np.sqrt((1 - r) * (1 + r)), -r) / (2 * np.pi)), 1e-14)
        assert_close(at_limits(-7.0, 38.0, r), scipy.special.log_ndtr(-7.0), 1e-14)
    assert log_bivariate_normal_cdf(Y, X, Z) == NODE and NODE.is_negative
    assert log_bivariate_normal_cdf(X, Y, 0) == log_normal_cdf(X) + log_normal_cdf(Y)
    assert np.all(np.isnan([at_limits(0.0, 1.0, r) for r in (-1.0, 1.0, 1.5, np.nan)]))
    for r in (-1, Integer(1), 1.5):
        with pytest.raises(ValueError, match="between -1 and 1"):
            log_bivariate_normal_cdf(X, Y, r)
    assert latex(NODE) == r"\log\Phi_{2}\left(x, y; z\right)"
    limits = dict(zip("xyz", np.array(LIMITS[:3]).T, strict=True))
    assert_close(compiled({"value": NODE})(**limits)["value"], at_limits(*limits.values()), 1e-13)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(arrays(float, (64, 2), elements=st.floats(-38, 38)), arrays(float, 64, elements=st.floats(-1, 1, width=32)))
def test_agrees_with_plackett(limits, r):
    r = np.clip(r, -1 + 1e-12, 1 - 1e-12)
    h, k = limits.T
    found, swapped = at_limits(h, k, r), at_limits(k, h, r)
    with np.errstate(all="ignore"):
        expected = log_by_plackett(h, k, r)
    # Both are accurate to some rounding errors of h, k and the conditional limits.
    s = np.sqrt((1 - r) * (1 + r))
    slopes = [
        np.exp(scipy.special.log_ndtr((b - r * a) / s) - a**2 / 2 - expected) / np.sqrt(2 * np.pi)
        for a, b in ((h, k), (k, h))
    ]
    bound = 2e-16 * (100 + 4 * abs(expected) + 4 * (abs(h) + abs(k)) * sum(slopes))
    assert np.all(abs(found - expected) <= bound) and np.all(abs(found - swapped) <= bound)
