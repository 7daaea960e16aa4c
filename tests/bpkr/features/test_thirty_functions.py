"""Kernels of thirty-four functions against thirty digits: what their stated errors cover."""

import json
import math
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from tests.marks import slow
from theorykit.bpkr.features.kernel_rules import WARNED, rule_over
from theorykit.bpkr.features.token_kernels import token_kernel, token_units
from theorykit.bpkr.specification.activations import as_activation

from .kernel_truth import CASES, FILE, POINTS

TRUTH = json.loads(FILE.read_text())
QUICK = ("cubic", "sin", "sign", "relu", "leaky", "h gauss")
# those whose users are warned, and one that is refused
ABOVE = {"silu": 1e-9, "sigmoid": 1e-9, "chirp": math.inf}
# rounding of the correlation of two vectors, where the kernel is steep in it
ROUNDING = 2e-13


@partial(jax.jit, static_argnums=(0, 1))
def kernel_between(activation, rule, one, other):
    """The kernel of two tokens and their mean squares."""
    none = jnp.zeros(0)
    here, there = (token_units((activation,), (rule,), none, token) for token in (one, other))
    between = token_kernel((activation,), (rule,), none, (one, here), (other, there))
    return between[0, 0], here[0].mean_square[0], there[0].mean_square[0]


def trials(name):
    """The true and the stated error at every point, both relative to the root of the mean squares."""
    activation = as_activation(CASES[name].function, "embedding")
    for (own, other, correlation), known in zip(POINTS, TRUTH[name], strict=True):
        try:
            rule, stated = rule_over(activation, [own, other])
        except ValueError:
            # a step 16 standard deviations off
            assert name == "step" and own == 1e-3
            continue
        one = jnp.array([[1.0, 0.0]]) * math.sqrt(own)
        two = jnp.array([[correlation, math.sqrt(1 - correlation**2)]]) * math.sqrt(other)
        found, *squares = map(float, kernel_between(activation, rule, one, two))
        size = math.sqrt(squares[0] * squares[1])
        yield (own, other, correlation), abs(found - float(known)) / (size or 1.0), stated


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", [*QUICK, *slow(each for each in CASES if each not in QUICK)])
def test_the_stated_error_of_a_kernel_covers_the_true_one(name):
    for point, true, stated in trials(name):
        assert true <= stated + ROUNDING, point
        assert stated <= ABOVE.get(name, WARNED), point
