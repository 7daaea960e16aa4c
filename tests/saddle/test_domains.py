"""Domains: coordinates and values are inverse, and steps have the length that the metric says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from theorykit.saddle import Between, Positive, PositiveDefinite, Real, Symmetric

from ..bpkr.cases import SEEDS, assert_close


def affine_invariant(value, change):
    white = np.linalg.solve(value, change)
    return np.sqrt(np.trace(white @ white))


DOMAINS = {
    "number": (Real(), (), lambda value, change: np.abs(change)),
    "matrix": (Real(), (2, 3), lambda value, change: np.linalg.norm(change)),
    "symmetric": (Symmetric(), (3, 3), lambda value, change: np.linalg.norm(change)),
    "positive": (Positive(), (), lambda value, change: np.abs(change) / value),
    "interval": (Between(-1, 2), (), lambda value, change: np.abs(change) * 3 / ((value + 1) * (2 - value))),
    "positive definite": (PositiveDefinite(), (3, 3), affine_invariant),
}


@pytest.mark.parametrize("name", DOMAINS)
@given(seed=SEEDS)
def test_coordinates_and_values_are_inverse(name, seed):
    domain, shape, _ = DOMAINS[name]
    coordinates = jnp.asarray(np.random.default_rng(seed).normal(size=domain.size(shape)))
    value = domain.value(coordinates, shape)
    assert value.shape == shape
    assert_close(domain.coordinates(value), coordinates, 1e-10)


@pytest.mark.parametrize("name", DOMAINS)
@given(seed=SEEDS)
def test_steps_have_the_length_of_the_metric(name, seed):
    domain, shape, length = DOMAINS[name]
    rng = np.random.default_rng(seed)
    coordinates, step = jnp.asarray(rng.normal(size=(2, domain.size(shape))))
    after = lambda t: domain.value(domain.moved(coordinates, t * step, shape), shape)  # noqa: E731
    value, change = jax.jvp(after, (0.0,), (1.0,))
    assert_close(value, domain.value(coordinates, shape), 1e-13)
    assert_close(length(np.asarray(value), np.asarray(change)), np.linalg.norm(step), 1e-8)
