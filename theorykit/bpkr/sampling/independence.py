"""NUTS from NumPyro, and independence Metropolis with a proposal distribution fitted in warm-up.

Warm-up runs NUTS and fits a multivariate Student t distribution to its draws, then fits again to a chain of proposals
from the first fit. After warm-up the kernel is fixed: it makes proposals from the fit, which need no gradient, with
NUTS steps in between. NUTS steps are more frequent if the chain stays in one place for many proposals. If proposals are
hardly ever accepted, NUTS runs alone. The posterior of the order parameters has exponential or lighter tails, and the t
distribution has power-law tails, so proposals reach every region.

Let w be the ratio of the densities of posterior and proposals. A chain leaves a point of weight w after about w / E[w]
proposals. Hence the posterior mean of w, not the acceptance rate, sets the number of proposals per independent draw.

Sources: L. Tierney, "Markov chains for exploring posterior distributions", Ann. Statist. 22 (1994) 1701, for
independence chains; J. S. Liu, "Metropolized independent sampling with comparisons to rejection sampling and importance
sampling", Stat. Comput. 6 (1996) 113, for their convergence rates from the weights. The fits and decisions in warm-up
are ours.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...extras import Lazy
from .chains import AbstractSampler
from .settings import NoUTurn

numpyro = Lazy("numpyro", "the No-U-Turn sampler")

# Only one thread may trace, because all threads share NumPyro's handler stack and the attributes of a kernel.
_TRACING = threading.RLock()
# Fraction of warm-up at which burn-in ends and the first fit begins to collect draws.
_BURN_IN = 0.25
# Fraction of warm-up at which the first fit is made.
_FIT = 0.8
# Fraction of warm-up at which the second fit is made. The rest of warm-up measures how well its proposals work.
_REFIT = 0.9
# Proposals per batch. Proposals do not depend on the chain, so a batch is drawn at once.
_AT_A_TIME = 4
# With fewer draws per coordinate than this, there is no fit and there are no proposals.
_A_COORDINATE = 3
# Proposals after each NUTS step between the first fit and the end of warm-up.
_BESIDE = 64
# The number of proposals per draw is such that a chain at a point of mean weight stays there with this probability.
_STAYS = 0.1
# A draw has at most this many proposals.
_MOST = 16
# The covariance is shrunk as if it included this many draws of uncorrelated coordinates.
_UNCORRELATED = 5.0
# Degrees of freedom of the t distribution.
_FREEDOM = 30
# At least one in this many draws includes a NUTS step. If a chain would stay for more draws, there are no proposals.
_EVERY = 32
# If a draw needs r > 1 times _MOST proposals, one in _OFTEN / r draws includes a NUTS step.
_OFTEN = 4


class NoUTurnSampler(AbstractSampler):
    """NUTS on a posterior, with step size and mass matrix adapted in `warmup` steps."""

    lockstep: ClassVar[bool] = False

    posterior: eqx.Module
    kernel: Any = eqx.field(static=True)
    warmup: int = eqx.field(static=True)

    def __init__(self, posterior: eqx.Module, settings: NoUTurn, *, warmup: int):
        self.posterior, self.warmup = posterior, warmup
        self.kernel = _kernel(posterior.dimension, settings, warmup)

    def start(self, key: PRNGKeyArray) -> Any:
        start_key, chain_key = jax.random.split(key)
        initial = {"coordinates": self.posterior.start(start_key)}
        with _TRACING:
            return self.kernel.init(chain_key, self.warmup, initial, (self.posterior,), {})

    def step(self, state: Any) -> Any:
        with _TRACING:
            return self.kernel.sample(state, (self.posterior,), {})

    def record(self, state: Any) -> Mapping[str, Array]:
        return self.posterior.record(state.z["coordinates"])

    def stats(self, state: Any) -> Mapping[str, Array]:
        return {
            "lp": -state.potential_energy,
            "energy": state.energy,
            "diverging": state.diverging,
            "acceptance_rate": state.accept_prob,
            "n_steps": state.num_steps,
            "step_size": state.adapt_state.step_size,
        }


@lru_cache
def _kernel(dimension: int, settings: NoUTurn, warmup: int) -> Any:
    # All posteriors of this dimension share one object, because compiled code is cached per object.
    def model(posterior):
        support = numpyro.distributions.constraints.real_vector
        density = numpyro.distributions.ImproperUniform(support, (), (dimension,))
        coordinates = numpyro.sample("coordinates", density)
        numpyro.factor("log_density", posterior.log_density(coordinates))

    options = {"target_accept_prob": settings.target_accept, "max_tree_depth": settings.max_tree_depth}
    return numpyro.infer.NUTS(model, dense_mass=settings.mass_matrix == "dense", **options)


class Moments(eqx.Module):
    """Running mean and scatter of points. The scatter is the sum of outer products of deviations from the mean."""

    count: Int[Array, ""]
    mean: Float[Array, " coordinates"]
    scatter: Float[Array, "coordinates coordinates"]

    def with_points(self, points: Float[Array, "points coordinates"]) -> "Moments":
        """Add points by B. P. Welford's update, which has no differences of large sums."""
        count = self.count + len(points)
        before = points - self.mean
        mean = self.mean + jnp.sum(before, axis=0) / count
        return Moments(count, mean, self.scatter + before.T @ (points - mean))


class StudentLaw(eqx.Module):
    """A multivariate t distribution around `mean`, with the Cholesky `factor` of its scale."""

    mean: Float[Array, " coordinates"]
    factor: Float[Array, "coordinates coordinates"]

    @classmethod
    def fitted(cls, moments: Moments) -> "StudentLaw":
        """Fit the moments, with the covariance shrunk slightly towards its diagonal and then widened."""
        count, size = moments.count, len(moments.mean)
        covariance = moments.scatter / jnp.maximum(count - 1, 1)
        diagonal = jnp.diag(jnp.diagonal(covariance))
        shrunk = (count * covariance + _UNCORRELATED * diagonal) / (count + _UNCORRELATED)
        # The covariance of n draws in d dimensions is too small by a factor of 1 - 2 sqrt(d / n) in some direction.
        # Widening corrects half of this, because one direction that is too narrow is worse than many that are too wide.
        wider = 1 + jnp.sqrt(size / jnp.maximum(count, size)) / 2
        return cls(moments.mean, wider * jnp.linalg.cholesky(shrunk))

    def sample(self, key: PRNGKeyArray) -> Float[Array, " coordinates"]:
        """Return one draw."""
        of_direction, of_length = jax.random.split(key)
        normal = jax.random.normal(of_direction, self.mean.shape, dtype=jnp.float64)
        square = 2 * jax.random.gamma(of_length, _FREEDOM / 2, dtype=jnp.float64)
        return self.mean + self.factor @ normal * jnp.sqrt(_FREEDOM / square)

    def log_density(self, point: Float[Array, " coordinates"]) -> Float[Array, ""]:
        """Return the log density up to a constant."""
        white = solve_triangular(self.factor, point - self.mean, lower=True)
        return -(_FREEDOM + len(self.mean)) / 2 * jnp.log1p(white @ white / _FREEDOM)


class Trial(eqx.Module):
    """Logarithms of sums: of the weights of proposals, of their squares, and of the weights of NUTS draws."""

    proposed: Float[Array, ""]
    squared: Float[Array, ""]
    walked: Float[Array, ""]

    def with_proposals(self, weights: Float[Array, " proposals"]) -> "Trial":
        """Add proposals, given the logarithms of their weights."""
        proposed = jnp.logaddexp(self.proposed, logsumexp(weights))
        return Trial(proposed, jnp.logaddexp(self.squared, logsumexp(2 * weights)), self.walked)

    def with_walk(self, weight: Float[Array, ""]) -> "Trial":
        """Add a NUTS draw, given the logarithm of its weight."""
        return Trial(self.proposed, self.squared, jnp.logaddexp(self.walked, weight))

    def stay(self, steps: int) -> Float[Array, ""]:
        """Return for how many proposals a chain stays at a point of mean weight, after a trial of `steps`.

        The posterior mean of the weight is estimated from the weighted proposals and from the NUTS draws. Either may
        have missed a region, so the larger estimate is used.
        """
        mean = self.proposed - jnp.log(steps * _BESIDE)
        return jnp.exp(jnp.maximum(self.squared - self.proposed, self.walked - jnp.log(steps)) - mean)


class _State(eqx.Module):
    """A chain: the NUTS walk, the adaptation, and the position. Until the first fit, walk and chain coincide."""

    walk: Any
    key: Array
    steps: Int[Array, ""]
    moments: Moments
    proposals: StudentLaw
    trial: Trial
    coordinates: Float[Array, " coordinates"]
    density: Float[Array, ""]  # log density of the posterior at the coordinates
    rate: Float[Array, ""]  # mean acceptance probability of the last proposals


class IndependenceSampler(AbstractSampler):
    """NUTS in warm-up, then independent proposals with NUTS steps.

    On an accelerator all chains are one batch, so every step costs as much as a NUTS step.
    """

    lockstep: ClassVar[bool] = False

    no_u_turn: NoUTurnSampler

    def start(self, key: PRNGKeyArray) -> _State:
        of_walk, of_proposals = jax.random.split(key)
        walk, size = self.no_u_turn.start(of_walk), self.no_u_turn.posterior.dimension
        moments = Moments(jnp.array(0), jnp.zeros(size), jnp.zeros((size, size)))
        proposals, trial = StudentLaw(jnp.zeros(size), jnp.eye(size)), Trial(*(jnp.array(-jnp.inf) for _ in range(3)))
        here = (walk.z["coordinates"], -walk.potential_energy, jnp.zeros(()))
        return _State(walk, of_proposals, jnp.array(0), moments, proposals, trial, *here)

    def step(self, state: _State) -> _State:
        def of_proposals():
            return self._propose(state, self._proposals(state))

        state = jax.lax.cond(self._walks(state, state.steps), lambda: self._step_of_walk(state), of_proposals)
        return replace(state, steps=state.steps + 1)

    def _step_of_walk(self, state: _State) -> _State:
        """Take a NUTS step, and make proposals after it. Adapt to both in warm-up."""
        step, warmup, (burnt_in, fit, refit) = state.steps, self.no_u_turn.warmup, self._ends()

        def moved():
            """Move the walk to the position of the chain after proposals."""
            slope = jax.grad(self.no_u_turn.posterior.log_density)(state.coordinates)
            there = {"z": {"coordinates": state.coordinates}, "z_grad": {"coordinates": -slope}}
            return state.walk._replace(**there, potential_energy=-state.density)

        proposed = (step > warmup) & (self._proposals(state) > 0)
        walk = self.no_u_turn.step(jax.lax.cond(proposed, moved, lambda: state.walk))
        walked, density = walk.z["coordinates"], -walk.potential_energy
        learns_of_walk = (burnt_in <= step) & (step < fit)
        moments = jax.lax.cond(learns_of_walk, lambda: state.moments.with_points(walked[None]), lambda: state.moments)
        proposals = jax.lax.cond(
            (step == fit) | (step == refit), lambda: StudentLaw.fitted(moments), lambda: state.proposals
        )
        weight = density - proposals.log_density(walked)
        on_trial = (refit <= step) & (step < warmup)
        trial = jax.lax.cond(on_trial, lambda: state.trial.with_walk(weight), lambda: state.trial)
        # The positions of chain and walk differ only from the first fit to the end of warm-up.
        apart = (fit < step) & (step < warmup)
        here = jnp.where(apart, state.coordinates, walked), jnp.where(apart, state.density, density)
        enough = fit - burnt_in >= _A_COORDINATE * self.no_u_turn.posterior.dimension
        beside = jnp.where(fit <= step, _BESIDE if enough else 0, 0)
        state = replace(state, walk=walk, moments=moments, proposals=proposals, trial=trial)
        state = replace(state, coordinates=here[0], density=here[1])
        return self._propose(state, jnp.where(step < warmup, beside, self._proposals(state)))

    def record(self, state: _State) -> Mapping[str, Array]:
        return self.no_u_turn.posterior.record(state.coordinates)

    def stats(self, state: _State) -> Mapping[str, Array]:
        step = state.steps - 1
        of_proposals = {
            "energy": -state.density,
            "diverging": False,
            "acceptance_rate": state.rate,
            "n_steps": 0,
            "step_size": 0.0,
        }
        walked, of_walk = self._walks(state, step), self.no_u_turn.stats(state.walk)
        stats = {name: jnp.where(walked, of_walk[name], value) for name, value in of_proposals.items()}
        count = jnp.where(step >= self.no_u_turn.warmup, self._proposals(state), 0)
        return {**stats, "lp": state.density, "proposals": count}

    def _ends(self) -> tuple[int, ...]:
        """Return the steps of warm-up at which burn-in ends and at which the two fits are made."""
        return tuple(int(part * self.no_u_turn.warmup) for part in (_BURN_IN, _FIT, _REFIT))

    def _wanted(self, state: _State) -> Float[Array, ""]:
        """Return how many proposals make a nearly independent draw."""
        stay = state.trial.stay(max(self.no_u_turn.warmup - self._ends()[-1], 1))
        # `stay` is NaN if a fit fails, for example because a coordinate did not move.
        return -jnp.log(_STAYS) * jnp.nan_to_num(stay, nan=jnp.inf)

    def _proposals(self, state: _State) -> Int[Array, ""]:
        """Return the number of proposals per draw, a multiple of the batch."""
        wanted = self._wanted(state)
        count = _AT_A_TIME * jnp.ceil(jnp.minimum(wanted, _MOST) / _AT_A_TIME).astype(int)
        return jnp.where(wanted > _MOST * _EVERY, 0, count)

    def _walks(self, state: _State, step: Int[Array, ""]) -> Bool[Array, ""]:
        """Check whether the draw at `step` includes a NUTS step."""
        after, draws = step - self.no_u_turn.warmup, self._wanted(state) / _MOST
        every = jnp.where(draws <= 1, _EVERY, jnp.maximum(jnp.ceil(_OFTEN / draws), 1)).astype(int)
        return (after < 0) | (after % every == every - 1)

    def _propose(self, state: _State, count: Int[Array, ""]) -> _State:
        """Make `count` proposals and accept or reject each of them. In warm-up, adapt to them."""
        _, fit, refit = self._ends()
        fits = (fit <= state.steps) & (state.steps < refit)
        on_trial = (refit <= state.steps) & (state.steps < self.no_u_turn.warmup)

        def choose(here, proposed):
            # Metropolis-Hastings rule for an independent proposal.
            *there, chance = proposed
            rate = jnp.exp(jnp.minimum(there[2] - here[2], 0.0))
            here = tuple(jnp.where(chance < rate, new, old) for new, old in zip(there, here, strict=True))
            return here, (rate, here[0])

        def batch(_, carried):
            key, moments, trial, total, *here = carried
            key, of_proposals, of_choices = jax.random.split(key, 3)
            points = jax.vmap(state.proposals.sample)(jax.random.split(of_proposals, _AT_A_TIME))
            densities = self.no_u_turn.posterior.log_densities(points)
            weights = densities - jax.vmap(state.proposals.log_density)(points)
            # A proposal at which the density cannot be evaluated has the density NaN, and gets the weight zero.
            weights = jnp.where(jnp.isfinite(weights), weights, -jnp.inf)
            chances = jax.random.uniform(of_choices, (_AT_A_TIME,), dtype=jnp.float64)
            proposed = (points, densities, weights, chances)
            here, (rates, places) = jax.lax.scan(choose, tuple(here), proposed, unroll=True)
            moments = jax.lax.cond(fits, lambda: moments.with_points(places), lambda: moments)
            trial = jax.lax.cond(on_trial, lambda: trial.with_proposals(weights), lambda: trial)
            return key, moments, trial, total + jnp.sum(rates), *here

        weight = state.density - state.proposals.log_density(state.coordinates)
        begun = (state.key, state.moments, state.trial, jnp.zeros(()), state.coordinates, state.density, weight)
        ended = jax.lax.fori_loop(0, count // _AT_A_TIME, batch, begun)
        key, moments, trial, total, coordinates, density, _ = ended
        rate = jnp.where(count > 0, total / jnp.maximum(count, 1), state.rate)
        state = replace(state, key=key, moments=moments, trial=trial)
        return replace(state, coordinates=coordinates, density=density, rate=rate)
