"""Three samplers of one posterior agree, and NUTS draws from a known density."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import joblib
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, polygamma

from theorykit import bpkr
from theorykit.bpkr.network.network import network_of_whitened
from theorykit.bpkr.sampling import Schedule
from theorykit.bpkr.sampling.chains import run_chains
from theorykit.bpkr.sampling.posteriors import NoUTurn, split_weights
from theorykit.bpkr.sampling.sample import posterior_means, sampler_of

from ..cases import random_key_queries
from .problems import INPUT_FEATURES, NETWORKS, problem, quietly

SAMPLERS = {"exact": 2000, "gibbs": 4000, "nuts": 1000}


@functools.cache
def estimates(name, sampler):
    architecture, features, labels, test_features = problem(name, 0.1)
    schedule = Schedule(chains=2, warmup=300, draws=SAMPLERS[sampler])
    tree = quietly(sampler, architecture, features, labels, test_features, schedule=schedule)
    return posterior_means(tree)


def assert_within(ours, theirs, errors=4.5):
    """Every entry and prediction agrees within as many standard errors, and the errors are small."""
    for name in (str(name) for name in ours.data_vars if f"{name}_error" in ours):
        error = np.hypot(ours[f"{name}_error"], theirs[f"{name}_error"])
        assert np.all(np.abs(ours[name] - theirs[name]) <= errors * error + 1e-12), name
        assert float(error.max()) < 0.2 * float(np.abs(theirs[name]).max()), f"{name}: errors too large to tell"


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["gibbs", "nuts"])
@pytest.mark.parametrize("name", NETWORKS)
def test_samplers_of_the_weights_agree_with_the_exact_posterior(name, sampler):
    assert_within(estimates(name, sampler), estimates(name, "exact"))


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", NETWORKS)
def test_sampled_weights_are_those_of_the_network(name):
    """The output by paths is that of the Equinox network, layer by layer."""
    architecture, _, labels, _ = problem(name)
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(len(labels), 4, INPUT_FEATURES))
    heads = bpkr.Heads(key_query=random_key_queries(filter(None, architecture.heads), rng, INPUT_FEATURES))
    features = bpkr.path_features(inputs, heads(inputs), architecture)
    posterior = sampler_of("gibbs", bpkr.Problem(architecture, bpkr.Data(features, labels, features)), 0).posterior
    coordinates = posterior.start(jax.random.key(0))
    recorded = posterior.record(coordinates)
    network = network_of_whitened(architecture, split_weights(coordinates, posterior.shapes), heads)
    np.testing.assert_allclose(network(inputs), recorded["sampled_output"], rtol=1e-9, atol=1e-12)
    measured = bpkr.empirical_order_parameters(network)
    np.testing.assert_allclose(measured.matrices[0], recorded["U_1"], rtol=1e-9, atol=1e-12)


def test_blocks_drawn_at_zero_temperature_fit_the_labels():
    """With a skip connection, outputs are affine in the weights of a layer, not linear."""
    architecture, features, labels, _ = problem("skip", 1e-12)
    gibbs = sampler_of("gibbs", bpkr.Problem(architecture, bpkr.Data(features[:2], labels[:2])), 0)
    white, key = gibbs.start(jax.random.key(0), 0)
    for block in range(len(white)):
        drawn = (*white[:block], gibbs._drawn(white, block, key), *white[block + 1 :])
        outputs = gibbs.posterior.outputs(drawn, gibbs.posterior.features)
        np.testing.assert_allclose(outputs, gibbs.posterior.labels, atol=1e-4)


class LogGamma(eqx.Module):
    """Logarithms of independent gamma variables: skewed, with exponential tails to one side."""

    shapes: jax.Array

    def start(self, key, chain):
        return jax.random.normal(key, self.shapes.shape)

    def log_density(self, coordinates):
        return jnp.sum(self.shapes * coordinates - jnp.exp(coordinates))

    def record(self, coordinates):
        return {"x": coordinates}


def test_draws_of_nuts_have_the_density_and_do_not_depend_on_the_jobs():
    """The mean and the variance of log-gamma variables are polygamma functions."""
    shapes, schedule = np.array([2.0, 5.0, 20.0]), Schedule(chains=2, warmup=300, draws=1500)
    options = {"key": jax.random.key(0), "progress": False}
    posterior = LogGamma(jnp.asarray(shapes))

    def make():
        return NoUTurn(posterior, 0.8, schedule.warmup)

    found = run_chains(make, schedule, **options)
    np.testing.assert_allclose(found["lp"], jax.vmap(jax.vmap(posterior.log_density))(found["x"]), rtol=1e-12)
    values = found["x"].reshape(-1, 3)
    deviations = (values.mean(axis=0) - digamma(shapes)) / np.sqrt(polygamma(1, shapes) / len(values))
    assert np.max(np.abs(deviations)) < 6  # draws are a little correlated
    np.testing.assert_allclose(values.var(axis=0), polygamma(1, shapes), rtol=0.15)
    for column, shape in zip(values[::3].T, shapes, strict=True):
        assert stats.kstest(column, stats.loggamma(shape).cdf).pvalue > 1e-4
    with joblib.parallel_config("threading"):
        in_threads = run_chains(make, schedule, **options, n_jobs=2)
    np.testing.assert_array_equal(in_threads["x"], found["x"])
