"""Kernels of functions: their stated errors cover the true ones.

The conditional mean E[f(y) | x] is known in closed form for functions with kinks, and for smooth functions the
trapezoidal rule is exact to rounding. Adaptive quadrature averages it over x.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy
import sympy
from scipy.special import ndtr
from sympy import Abs, Heaviside, Max, Min, S, Symbol, erf, exp, log, sign, sin, sqrt, tanh

from theorykit import bpkr
from theorykit.bpkr.features.implicit import KernelWarning, token_kernel, token_units
from theorykit.bpkr.features.pair_averages import rule_over
from theorykit.bpkr.specification.activations import as_activation

from ..cases import assert_close

h = Symbol("h", real=True)
NODES, STEP = np.linspace(-9, 9, 401, retstep=True)
WEIGHTS = np.exp(-(NODES**2) / 2) * STEP / np.sqrt(2 * np.pi)
# variances and correlation
POINTS = ((1.0, 1.0, 0.3), (1.0, 1.0, -0.6), (1.5, 1.5, 1 - 1e-4), (0.2, 3.0, 0.999), (1.0, 2.0, -1 + 1e-3))
# rounding of the correlation of two vectors, where the kernel is steep in it
ROUNDING = 2e-13


def ramp(mean, deviation, kink=0.0):
    """The mean of max(y - kink, 0)."""
    at = (mean - kink) / deviation
    return (mean - kink) * ndtr(at) + deviation * np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)


def bend(mean, deviation):
    """The mean of exp(min(y, 0)) - 1."""
    return np.exp(mean + deviation**2 / 2) * ndtr(-mean / deviation - deviation) - ndtr(-mean / deviation)


def ramp_squared(mean, deviation):
    at = mean / deviation
    return (mean**2 + deviation**2) * ndtr(at) + mean * deviation * np.exp(-(at**2) / 2) / np.sqrt(2 * np.pi)


# function, largest error that may be stated, kinks, conditional mean
SMOOTH = {
    each: (1e-10, (), None) for each in (tanh(h), sin(h), log(1 + exp(h)), h / (1 + exp(-h)), h**3 - h, exp(h / 4))
}
SMOOTH |= {each: (1e-10, (), None) for each in (1 / (1 + exp(-h)), h * (1 + erf(h / sqrt(2))) / 2, exp(-(h**2)))}
KINKS = {
    Max(h, h / 10): (1e-10, (0,), lambda m, s: m / 10 + 0.9 * ramp(m, s)),
    Abs(h): (1e-10, (0,), lambda m, s: 2 * ramp(m, s) - m),
    sign(h): (1e-10, (0,), lambda m, s: 2 * ndtr(m / s) - 1),
    Max(h, 0) ** 2: (2e-10, (0,), ramp_squared),
    Max(h, 0) + exp(Min(h, 0)) - 1: (1e-8, (0,), lambda m, s: ramp(m, s) + bend(m, s)),
    Max(-1, Min(1, h)): (1e-4, (-1, 1), lambda m, s: ramp(m, s, -1) - ramp(m, s, 1) - 1),
    Max(h - S.Half, 0): (1e-3, (0.5,), lambda m, s: ramp(m, s, 0.5)),
    Heaviside(h - S.Half): (1.0, (0.5,), lambda m, s: ndtr((m - 0.5) / s)),
}
CASES = SMOOTH | KINKS


def truth(function, kinks, conditional, own, other, correlation):
    value = sympy.lambdify(h, function)
    slope, deviation = correlation * np.sqrt(other), np.sqrt(other * (1 - correlation**2))
    conditional = conditional or (lambda mean, deviation: WEIGHTS @ value(mean + deviation * NODES))

    def integrand(z):
        return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * value(np.sqrt(own) * z) * conditional(slope * z, deviation)

    places = sorted({0.0, *(k / np.sqrt(own) for k in kinks), *(k / slope for k in kinks)})
    return scipy.integrate.quad(integrand, -12, 12, points=places, epsabs=1e-13, epsrel=1e-12, limit=500)[0]


@pytest.mark.quick(6)
@pytest.mark.parametrize("function", CASES, ids=str)
def test_the_stated_error_of_a_kernel_covers_the_true_one(function):
    allowed, *case = CASES[function]
    own, other, correlation = np.array(POINTS).T
    activations = (as_activation(function),)
    rule, stated = rule_over(*activations, [*own, *other])
    one = np.sqrt(own)[:, None] * np.array([1.0, 0.0])
    two = np.sqrt(other)[:, None] * np.stack([correlation, np.sqrt(1 - correlation**2)], axis=1)

    @jax.jit
    def kernels(one, two):
        here, there = (token_units(activations, (rule,), jnp.zeros(0), tokens) for tokens in (one, two))
        between, alone = (
            jnp.diagonal(token_kernel(activations, (rule,), jnp.zeros(0), (one, here), each))
            for each in ((two, there), (one, here))
        )
        return between, alone, here[0].mean_square, there[0].mean_square

    between, alone, *squares = map(np.asarray, kernels(one, two))
    expected = np.array([truth(function, *case, *point) for point in POINTS])
    assert np.all(np.abs(between - expected) <= (stated + ROUNDING) * np.sqrt(squares[0] * squares[1]))
    assert_close(alone, squares[0], 1e-14)
    assert stated <= allowed


def test_a_warning_states_the_error_of_a_kernel():
    inputs = np.random.default_rng(0).normal(size=(4, 1, 5))
    with pytest.warns(KernelWarning, match="a relative error of up to"):
        bpkr.path_features(inputs, [], bpkr.Architecture((), 9.0, temperature=0.2, embedding=Max(-1, Min(1, h))))


def test_derivatives_are_those_of_differences():
    activations = (as_activation(Max(-1, Min(1, h))),)
    tokens, change = np.random.default_rng(0).normal(size=(2, 3, 4)) / 2
    rules = (rule_over(*activations, np.sum(tokens**2, axis=1))[0],)

    @jax.jit
    def total(step):
        own = tokens + step * change
        units = token_units(activations, rules, jnp.zeros(0), own)
        return jnp.sum(token_kernel(activations, rules, jnp.zeros(0), (own, units), (own, units)))

    assert_close(jax.grad(total)(0.0), (total(1e-4) - total(-1e-4)) / 2e-4, 1e-5)
