"""Independent proposals: their law, the posterior that they leave as it is, and where NUTS goes on instead."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, polygamma

from theorykit.bpkr.sampling import NoUTurn, Schedule
from theorykit.bpkr.sampling.chains import run_chains
from theorykit.bpkr.sampling.independence import (
    _BESIDE,
    IndependenceSampler,
    Moments,
    NoUTurnSampler,
    StudentLaw,
    Trial,
)

SHAPES = (2.0, 5.0, 20.0)
NO_TRIAL = Trial(*(jnp.array(-jnp.inf) for _ in range(3)))


class LogGamma(eqx.Module):
    """Logarithms of independent gamma variables: skewed, with exponential tails to one side."""

    dimension: ClassVar[int] = len(SHAPES)

    def start(self, key):
        return jax.random.normal(key, (self.dimension,), dtype=jnp.float64)

    def log_density(self, coordinates):
        return jnp.sum(jnp.asarray(SHAPES) * coordinates - jnp.exp(coordinates))

    def log_densities(self, points):
        return jax.lax.map(self.log_density, points)

    def record(self, coordinates):
        return {"x": coordinates}


class Ridges(LogGamma):
    """Curved ridges in ten dimensions: `along` and `across` less its square are independent and Gaussian."""

    dimension: ClassVar[int] = 10
    width: float = 0.05

    def log_density(self, coordinates):
        along, across = coordinates[:5], coordinates[5:]
        return -jnp.sum(along**2) / 2 - jnp.sum((across - along**2) ** 2) / (2 * self.width**2)


def drawn(posterior, warmup, draws=1500):
    """Draws of two chains, whose `lp` is the posterior's density of each."""

    def make():
        return IndependenceSampler(NoUTurnSampler(posterior, NoUTurn(), warmup=warmup))

    schedule = Schedule(chains=2, warmup=warmup, draws=draws)
    found = run_chains(make, schedule, key=jax.random.key(0), settings={"sampler": "test"}, progress=False)
    density = jax.vmap(jax.vmap(posterior.log_density))(jnp.asarray(found.record["x"]))
    np.testing.assert_allclose(found.stats["lp"], density, rtol=1e-12, atol=1e-10)
    return found


def test_moments_are_those_of_the_points():
    points, moments = (
        np.random.default_rng(0).normal(size=(40, 3)),
        Moments(jnp.array(0), jnp.zeros(3), jnp.zeros((3, 3))),
    )
    for some in np.split(points, [1, 4, 11]):
        moments = moments.with_points(jnp.asarray(some))
    np.testing.assert_allclose(moments.mean, points.mean(axis=0), atol=1e-13)
    np.testing.assert_allclose(moments.scatter / 39, np.cov(points.T), atol=1e-13)


@pytest.mark.slow
def test_the_student_law_is_that_of_scipy():
    rng = np.random.default_rng(0)
    factor, mean = np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3), rng.normal(size=3)
    law = StudentLaw(jnp.asarray(mean), jnp.asarray(factor))
    reference = stats.multivariate_t(mean, factor @ factor.T, df=30)
    points = rng.normal(size=(5, 3))
    ours = np.array([law.log_density(jnp.asarray(point)) for point in points])
    np.testing.assert_allclose(ours - ours[0], reference.logpdf(points) - reference.logpdf(points)[0], atol=1e-12)
    samples = np.asarray(jax.vmap(law.sample)(jax.random.split(jax.random.key(0), 20_000)))
    # the squared distance over the dimension follows an F law
    white = np.linalg.solve(factor, (samples - mean).T)
    assert stats.kstest(np.sum(white**2, axis=0) / 3, stats.f(3, 30).cdf).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("seen", ("by proposals", "by NUTS"))
def test_a_chain_stays_as_long_as_weights_tell(seen):
    """The mean weight over the posterior is that over proposals, weighted by it."""
    rng, steps = np.random.default_rng(0), 3
    weights = rng.gamma(2.0, size=(steps, _BESIDE))
    mean = np.sum(weights**2) / np.sum(weights) * (2 if seen == "by NUTS" else 0.5)
    trial = NO_TRIAL
    for some in weights:
        trial = trial.with_proposals(jnp.log(some)).with_walk(jnp.log(mean))
    expected = max(np.sum(weights**2) / np.sum(weights), mean) / weights.mean()
    np.testing.assert_allclose(trial.stay(steps), expected, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("weights", (np.full(_BESIDE, -np.inf), np.full(_BESIDE, np.nan)))
def test_no_proposal_is_taken_where_none_has_weight(weights):
    trial = NO_TRIAL.with_proposals(jnp.asarray(weights)).with_walk(jnp.array(0.0))
    assert not np.isfinite(trial.stay(1))


def test_draws_are_of_the_posterior():
    """The mean and the variance of log-gamma variables are polygamma functions."""
    found = drawn(LogGamma(), 300)
    assert np.all(found.stats["proposals"] > 0) and 0.9 < np.mean(found.stats["n_steps"] == 0) < 1
    values = found.record["x"].reshape(-1, len(SHAPES))
    shapes = np.asarray(SHAPES)
    deviations = (values.mean(axis=0) - digamma(shapes)) / np.sqrt(polygamma(1, shapes) / len(values))
    assert np.max(np.abs(deviations)) < 6  # draws are a little correlated
    np.testing.assert_allclose(values.var(axis=0), polygamma(1, shapes), rtol=0.15)
    for column, shape in zip(values[::3].T, SHAPES, strict=True):
        assert stats.kstest(column, stats.loggamma(shape).cdf).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("posterior", "warmup"), [(LogGamma(), 0), pytest.param(LogGamma(), 5, marks=pytest.mark.slow), (Ridges(), 100)]
)
def test_with_hardly_any_warmup_or_accepted_proposals_nuts_goes_on(posterior, warmup):
    found = drawn(posterior, warmup, draws=40)
    assert np.all(found.stats["proposals"] == 0) and np.all(found.stats["n_steps"] > 0)


@pytest.mark.slow
def test_where_proposals_are_accepted_rarely_nuts_steps_often_between():
    posterior = Ridges(width=2.0)
    found = drawn(posterior, 300)
    assert np.all(found.stats["proposals"] > 0) and np.mean(found.stats["n_steps"] > 0) > 0.2
    along, across = np.split(found.record["x"][:, ::3].reshape(-1, 10), 2, axis=1)
    for column in (*along.T, *(across - along**2).T / posterior.width):
        assert stats.kstest(column, stats.norm().cdf).pvalue > 1e-4


class Meeting(LogGamma):
    """A density that waits, while it is traced, for another thread that traces it, half a second at most."""

    others: ClassVar[threading.Barrier] = threading.Barrier(2)

    def log_density(self, coordinates):
        with contextlib.suppress(threading.BrokenBarrierError):
            self.others.wait(0.5)
        return super().log_density(coordinates)


@pytest.mark.slow
def test_threads_may_trace_a_sampler_at_the_same_time():
    """NumPyro has one stack of handlers for all threads."""
    sampler = NoUTurnSampler(Meeting(), NoUTurn(), warmup=3)
    keys = jax.random.split(jax.random.key(0), 2)
    with ThreadPoolExecutor(2) as pool:
        states = list(pool.map(lambda key: sampler.step(sampler.start(key)), keys))
    assert all(jnp.all(jnp.isfinite(state.z["coordinates"])) for state in states)
