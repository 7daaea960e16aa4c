"""Networks of nonlinear units: what Gaussian equivalence preserves, and the posterior of their weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

from tests.marks import slow
from theorykit import bpkr
from theorykit.bpkr import Dense, sampling
from theorykit.bpkr.network.network import network_of_whitened, weight_shapes
from theorykit.bpkr.sampling.posteriors import WeightPosterior
from theorykit.theories import nested_kernels, units_with_mean

from ...bpkr.cases import assert_close, refused

TOKENS, FEATURES = 3, 4
RNG = np.random.default_rng(0)
INPUTS = jnp.asarray(RNG.normal(size=(5, TOKENS, FEATURES)))
HEADS = bpkr.Heads(key_query=[RNG.normal(size=(2, FEATURES, FEATURES)) / FEATURES])
NO_HEADS = bpkr.Heads(key_query=[])
NETWORKS = {
    "no layers": ((), "erf", {}),
    "attention": ((2,), "relu", {"outputs": 2}),
    "dense": ((Dense(), 2), "quadratic", {}),
    "every token": ((2,), "erf", {"read_tokens": TOKENS}),
    "several functions": ((Dense(activation="erf"), 2), "relu", {}),
    "its own function": ((), lambda h: h**3 / 3 - h, {}),
}


def network_and_data(name, width=4.0):
    layers, function, more = NETWORKS[name]
    variances = (1.2, 0.7, 1.5, 0.8)[: len(layers) + 2]
    architecture = bpkr.Architecture(layers, width, variances, temperature=0.3, embedding=function, **more)
    heads = HEADS if 2 in layers else NO_HEADS
    return architecture, heads, bpkr.path_features(INPUTS, heads(INPUTS), architecture)


@pytest.mark.quick("its own function")
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "several functions"])
def test_the_covariance_under_the_prior_is_the_kernel_at_any_width(name):
    architecture, heads, features = network_and_data(name)

    def outputs(key):
        return bpkr.sample_network(architecture, heads, input_features=FEATURES, key=key)(INPUTS).ravel()

    drawn = np.asarray(jax.jit(jax.vmap(outputs))(jax.random.split(jax.random.key(0), 20_000)))
    expected = np.asarray(bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), bpkr.gp_limit(architecture)))
    covariance, error = drawn.T @ drawn / len(drawn), np.std(drawn[:, :, None] * drawn[:, None], axis=0)
    assert np.max(np.abs(covariance - expected) / error) * np.sqrt(len(drawn)) < 5


@pytest.mark.parametrize("name", NETWORKS)
def test_the_sampler_evaluates_the_network_itself(name):
    architecture, heads, features = network_and_data(name)
    shapes, labels = weight_shapes(architecture, FEATURES), jnp.zeros((5, architecture.outputs))
    white = tuple(jnp.asarray(RNG.normal(size=shape)) for shape in shapes)
    network = network_of_whitened(architecture, white, heads)
    posterior = WeightPosterior(architecture.with_arrays(), features, labels, features[:2], shapes)
    assert_close(np.squeeze(posterior.outputs(white, features)), np.squeeze(network(INPUTS)), 1e-12)


def test_gibbs_and_sums_over_paths_are_refused():
    architecture, heads, features = network_and_data("no layers")
    data = bpkr.Data(features, np.ones(5))
    with refused("block Gibbs needs linear hidden units"):
        sampling.sample(architecture, data, sampler="gibbs", key=jax.random.key(0))
    network = bpkr.sample_network(architecture, heads, input_features=FEATURES, key=jax.random.key(0))
    with refused("outputs of nonlinear units are not a sum over paths"):
        network.path_outputs(features).sum(axis=1)


@pytest.mark.slow
def test_the_posterior_of_the_weights_is_that_of_importance_sampling():
    architecture, heads, features = network_and_data("no layers", width=3.0)
    labels = RNG.normal(size=5)

    def outputs(key):
        return bpkr.sample_network(architecture, heads, input_features=FEATURES, key=key)(INPUTS)

    drawn = np.asarray(jax.jit(jax.vmap(outputs))(jax.random.split(jax.random.key(1), 400_000)))
    logs = -np.sum((drawn - labels) ** 2, axis=1) / (2 * architecture.temperature)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    exact = weights @ drawn
    error = np.sqrt(np.sum(weights[:, None] ** 2 * (drawn - exact) ** 2, axis=0))
    data = bpkr.Data(features, labels, features)
    schedule = sampling.Schedule(chains=4, warmup=500, draws=2000)
    tree = sampling.sample(architecture, data, sampler="nuts", key=jax.random.key(0), schedule=schedule, progress=False)
    found = tree["posterior"]["sampled_output"].stack(draws=("chain", "draw"))
    errors = np.hypot(error, 3 * found.std("draws").values / np.sqrt(found.sizes["draws"]))
    assert np.all(np.abs(found.mean("draws").values - exact) < 5 * errors)


def test_networks_that_the_theories_do_not_cover_are_refused():
    with refused("the kernel of the function tanh(h) has no closed form"):
        nested_kernels.action(bpkr.Architecture((), 9.0, temperature=0.1, embedding=sympy.tanh))
    with refused("the nested form needs dense layers, one output and one token"):
        nested_kernels.action(bpkr.Architecture((2,), 9.0, temperature=0.1, embedding="erf"))
    with refused("architecture must have an embedding with a mean and linear layers above it"):
        units_with_mean.action(bpkr.Architecture((2,), 9.0, temperature=0.1, embedding="erf"))


@pytest.mark.slow
@pytest.mark.parametrize("function", ["relu", *slow([abs])])
@pytest.mark.parametrize("depth", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_both_forms_are_the_same_for_functions_that_are_homogeneous(function, depth):
    """Also where an example meets itself, at the correlation of one, where the angle has no derivative."""
    architecture = bpkr.Architecture((Dense(activation=function),) * depth, 20.0, temperature=0.3)
    inputs = np.random.default_rng(1).normal(size=(8, 1, 5))
    features, labels = bpkr.path_features(inputs, [], architecture), np.sign(inputs[:, 0, 0])
    problem = bpkr.Problem(architecture, bpkr.Data(features, labels))
    nested, plain = nested_kernels.solve(problem), bpkr.solve(problem)
    assert abs(nested.action - plain.action) < 1e-6 and np.all(np.isfinite(nested.hessian_eigenvalues))
    assert nested.converged or depth > 1
