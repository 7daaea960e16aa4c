"""Fluctuations about the saddle point against quadrature over the exact posterior, and with the right power of N.

The quadrature runs over the law in Bartlett coordinates, which shares neither expressions nor coordinates with the
corrections; of a few dimensions, so that its own error is nothing.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr import Skip
from theorykit.bpkr.order_parameters import from_positive

from ..cases import refused

WIDTHS = (80.0, 320.0)
EXAMPLES, TEST_EXAMPLES, INPUT_FEATURES = 5, 3, 4
NETWORKS = {"one head": (1,), "two heads": (2,), "skip": (Skip(1, 0.7),), "two layers": (1, 1)}
every_network = pytest.mark.parametrize("name", ["one head", *slow(("skip", "two layers"))])


def problem(name, width):
    architecture = bpkr.Architecture(NETWORKS[name], width, temperature=0.2)
    rng = np.random.default_rng(5)
    shape = (EXAMPLES + TEST_EXAMPLES, architecture.paths, INPUT_FEATURES)
    features = rng.normal(size=shape) / np.sqrt(architecture.paths * INPUT_FEATURES)
    return architecture, features[:EXAMPLES], 1.5 * rng.normal(size=EXAMPLES), features[EXAMPLES:]


def hermite_grid(dimension, nodes):
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.array(list(itertools.product(points, repeat=dimension)))
    log_weights = sum(np.log(w) for w in np.meshgrid(*[weights] * dimension, indexing="ij")).ravel()
    return jnp.asarray(grid), jnp.asarray(log_weights)


@functools.cache
def exact(name, width):
    """Posterior means of U_1, of mean and variance of the output, and the log evidence, by Gauss-Hermite quadrature."""
    architecture, features, labels, test_features = problem(name, width)
    law = bpkr.finite_width_law(architecture)
    energy = bpkr.Problem(architecture, bpkr.Data(features, labels)).energy

    def log_density(coordinates):
        first = law.order_parameters(coordinates).matrices[0]
        return law.log_prior(coordinates) - (energy.value(first) + EXAMPLES * jnp.log(2 * jnp.pi)) / 2

    centre = jnp.zeros(law.dimension).at[law.diagonal].set(from_positive(jnp.sqrt(width)))
    gradient, hessian = jax.jit(jax.grad(log_density)), jax.jit(jax.hessian(log_density))
    for _ in range(30):  # Newton's method to the mode
        centre = centre - jnp.linalg.solve(hessian(centre) - 1e-3 * jnp.eye(len(centre)), gradient(centre))
    root = np.linalg.cholesky(np.linalg.inv(-np.asarray(hessian(centre))))
    grid, log_weights = hermite_grid(len(centre), {2: 40, 3: 24}[len(centre)])

    def at(white):
        coordinates = centre + root @ white
        point = law.order_parameters(coordinates)
        prediction = bpkr.predict(bpkr.Problem(architecture, bpkr.Data(features, labels)), point, test_features)
        return log_density(coordinates) + white @ white / 2, (point.matrices[0], prediction.mean, prediction.variance)

    logs, values = jax.lax.map(jax.jit(at), grid, batch_size=500)
    logs = logs + log_weights
    weights = jax.nn.softmax(logs)
    first, mean, variance = (jnp.tensordot(weights, value, axes=1) for value in values)
    between = jnp.tensordot(weights, (values[1] - mean) ** 2, axes=1)
    spread = jnp.tensordot(weights, (values[0] - first) ** 2, axes=1)
    evidence = jax.nn.logsumexp(logs) + np.log(np.linalg.det(root))
    return {"U": first, "mean": mean, "variance": variance + between, "spread": spread, "evidence": evidence}


@functools.cache
@functools.partial(jax.jit, static_argnums=0)  # Widths may be traced.
def of_theory(name, width):
    architecture, features, labels, test_features = problem(name, width)
    whole = bpkr.Problem(architecture, bpkr.Data(features, labels))
    saddle = bpkr.solve(whole)
    found = bpkr.fluctuations(whole, saddle, test_features)

    def named(point, prediction, evidence):
        return {"U": point.matrices[0], "mean": prediction.mean, "variance": prediction.variance, "evidence": evidence}

    at_saddle = named(saddle.order_parameters, bpkr.predict(whole, saddle, test_features), saddle.log_evidence)
    corrected = named(found.mean, found.prediction, found.log_evidence)
    return at_saddle, {**corrected, "spread": found.deviation.matrices[0] ** 2}


def power(name, quantity, which):
    """The power of the width that the largest error falls with, and the error at the larger width."""
    errors = [
        float(np.max(np.abs(of_theory(name, width)[which][quantity] - exact(name, width)[quantity])))
        for width in WIDTHS
    ]
    return np.log(errors[1] / errors[0]) / np.log(WIDTHS[1] / WIDTHS[0]), errors[1]


# at a fixed number of examples the data move U by one over the width, and the saddle point knows that much
POWERS = {"U": -2, "mean": -1, "variance": -1, "evidence": -1}


@pytest.mark.slow
@every_network
@pytest.mark.parametrize("quantity", POWERS)
def test_corrections_gain_one_power_of_the_width(name, quantity):
    saddle_power, saddle_error = power(name, quantity, 0)
    corrected_power, corrected_error = power(name, quantity, 1)
    assert abs(saddle_power - POWERS[quantity]) < 0.25
    assert abs(corrected_power - (POWERS[quantity] - 1)) < 0.35
    assert corrected_error < saddle_error / 30


@pytest.mark.slow
@every_network
def test_the_spread_of_the_order_parameters(name):
    """Of order 1/N, and known but for 1/N^2."""
    corrected_power, error = power(name, "spread", 1)
    assert abs(corrected_power + 2) < 0.25
    assert error < 0.05 * np.max(exact(name, WIDTHS[-1])["spread"])


def test_points_that_are_no_minimum_and_singular_widths_are_refused():
    architecture, features, labels, _ = problem("two heads", 30.0)
    far = bpkr.OrderParameters((1e-3 * np.eye(2),), 1e3)
    for point in (far, bpkr.gp_limit(architecture)):
        with refused("not a minimum"):
            bpkr.fluctuations(bpkr.Problem(architecture, bpkr.Data(features, labels)), point)
    narrow, features, labels, _ = problem("two heads", 1.0)
    with refused("fewer units"):
        bpkr.fluctuations(bpkr.Problem(narrow, bpkr.Data(features, labels)), bpkr.gp_limit(narrow))
