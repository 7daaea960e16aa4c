"""Kernels of thirty-four functions against thirty digits: what their stated errors cover."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import slow
from theorykit.bpkr.features.implicit import token_kernel, token_units
from theorykit.bpkr.features.pair_averages import WARNED, rule_over
from theorykit.bpkr.specification.activations import as_activation

from .kernel_truth import CASES, FILE, POINTS

TRUTH = json.loads(FILE.read_text())
QUICK = ("cubic", "sin", "sign", "relu", "leaky", "h gauss")
# the variances of all points, and of points with a smaller range, where smooth functions need no panels
RANGES = {"all": 1e3, "moderate": 5.0}
# the one function that is refused
ABOVE = {("chirp", "all"): math.inf}
# rounding of the correlation of two vectors, where the kernel is steep in it
ROUNDING = 2e-13
# the reference value of the chirp at (5, 5, -1) is off by this, as its mean square by the trapezoidal rule shows
OFF = {"chirp": 2e-12}


@jax.jit(static_argnums=(0, 1))
def kernel_between(activation, rule, one, other):
    """The kernel of pairs of tokens, and their mean squares."""
    none = jnp.zeros(0)
    here, there = (token_units((activation,), (rule,), none, tokens) for tokens in (one, other))
    between = token_kernel((activation,), (rule,), none, (one, here), (other, there))
    return jnp.diagonal(between), here[0].mean_square, there[0].mean_square


def errors(name, most):
    """The true errors at the points of a range, relative to the root of the mean squares, and the stated error."""
    activation = as_activation(CASES[name].function, "embedding")
    chosen = [i for i, (own, other, _) in enumerate(POINTS) if max(own, other) <= most]
    own, other, correlation = np.array(POINTS)[chosen].T
    rule, stated = rule_over(activation, [*own, *other])
    one = np.sqrt(own)[:, None] * np.array([1.0, 0.0])
    two = np.sqrt(other)[:, None] * np.stack([correlation, np.sqrt(1 - correlation**2)], axis=1)
    found, *squares = map(np.asarray, kernel_between(activation, rule, jnp.asarray(one), jnp.asarray(two)))
    size = np.sqrt(squares[0] * squares[1])
    return np.abs(found - np.array(TRUTH[name], dtype=float)[chosen]) / np.where(size > 0, size, 1.0), stated


@pytest.mark.quick(4)
@pytest.mark.parametrize("range_", RANGES)
@pytest.mark.parametrize("name", [*QUICK, *slow(each for each in CASES if each not in QUICK)])
def test_the_stated_error_of_a_kernel_covers_the_true_one(name, range_):
    true, stated = errors(name, RANGES[range_])
    assert np.all(true <= stated + OFF.get(name, ROUNDING))
    assert stated <= ABOVE.get((name, range_), WARNED)
