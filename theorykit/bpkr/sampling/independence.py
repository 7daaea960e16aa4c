"""Independent proposals from a fit to warm-up: no gradient, no trajectory.

In warm-up NUTS runs, and a multivariate Student t law is given the mean and covariance of its draws, and then, anew,
those of a chain of proposals from that law. After it, if a chain leaves every place soon by such proposals, they make
the draws, by Metropolis and Hastings' rule, which leaves the posterior exactly as it is, with a step of NUTS now and
then; the later it leaves some places, the more often NUTS steps between, since the one moves where the others are
refused, and these go far at once; and if proposals hardly ever lead on, NUTS is alone. The t law's tails are
powers, those of the posterior of the order parameters exponential or lighter: no region can be missed for long.
Proposals do not depend on where the chain is, and so are made some at a time.

How soon a chain leaves a place is known by its weight w there, the posterior's density over that of proposals: where w
is large, after about w / E[w] of them. How many make a draw that hardly depends on the one before is therefore told by
the mean of w over the posterior, not by how often proposals are accepted.

Sources: L. Tierney, "Markov chains for exploring posterior distributions", Ann. Statist. 22 (1994) 1701 (independence
chains); J. S. Liu, "Metropolized independent sampling with comparisons to rejection sampling and importance sampling",
Stat. Comput. 6 (1996) 113 (the rates at which they forget where they were, by their weights). That they are fitted and
chosen in warm-up, the chain after it being of one kind, is our own.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .chains import AbstractSampler
from .nuts import NoUTurnSampler
from .posterior import AbstractPosterior

# parts of warm-up: before the first fit, up to it, and up to the second; the rest is a trial
_BURN_IN, _FIT, _REFIT = 0.25, 0.8, 0.9
# proposals that are made at a time
_AT_A_TIME = 4
# a law is fitted to so many draws a coordinate, or there are no proposals
_A_COORDINATE = 3
# proposals beside every step of NUTS between fit and end of warm-up
_BESIDE = 64
# a draw is the last of so many proposals that the chain has not left a place of the mean weight with this probability,
# and of so many at the most
_STAYS, _MOST = 0.1, 16
# of the fit: coordinates are taken to be uncorrelated in so many draws more
_UNCORRELATED = 5.0
# degrees of freedom of the t law
_FREEDOM = 30
# every so many draws there is a step of NUTS in any case, and a chain that proposals leave where it is for longer than
# that goes without them
_EVERY = 32
# where it takes more proposals than a draw has, there is a step of NUTS every so many draws over that ratio
_OFTEN = 4


class Moments(eqx.Module):
    """Running mean and scatter of points: the sum of outer products of deviations from the mean."""

    count: Int[Array, ""]
    mean: Float[Array, " coordinates"]
    scatter: Float[Array, "coordinates coordinates"]

    @classmethod
    def none(cls, coordinates: int) -> "Moments":
        """Of no point yet."""
        return cls(jnp.array(0), jnp.zeros(coordinates), jnp.zeros((coordinates, coordinates)))

    def with_points(self, points: Float[Array, "points coordinates"]) -> "Moments":
        """With some more: B. P. Welford's update."""
        count = self.count + len(points)
        before = points - self.mean
        mean = self.mean + jnp.sum(before, axis=0) / count
        return Moments(count, mean, self.scatter + before.T @ (points - mean))


class StudentLaw(eqx.Module):
    """A multivariate t law around `mean`, with the Cholesky `factor` of its scale."""

    mean: Float[Array, " coordinates"]
    factor: Float[Array, "coordinates coordinates"]

    @classmethod
    def fitted(cls, moments: Moments) -> "StudentLaw":
        """With the moments' mean and covariance, shrunk a little towards its diagonal, and widened.

        The covariance of n draws in d dimensions is too small by 2 sqrt(d / n) in some direction, of which half is made
        up for: a direction too narrow is worse than many that are too wide.
        """
        count, size = moments.count, len(moments.mean)
        covariance = moments.scatter / jnp.maximum(count - 1, 1)
        alone = jnp.diag(jnp.diagonal(covariance))
        shrunk = (count * covariance + _UNCORRELATED * alone) / (count + _UNCORRELATED)
        wider = 1 + jnp.sqrt(size / jnp.maximum(count, size)) / 2
        return cls(moments.mean, wider * jnp.linalg.cholesky(shrunk))

    def sample(self, key: PRNGKeyArray) -> Float[Array, " coordinates"]:
        """One draw."""
        of_direction, of_length = jax.random.split(key)
        normal = jax.random.normal(of_direction, self.mean.shape, dtype=jnp.float64)
        square = 2 * jax.random.gamma(of_length, _FREEDOM / 2, dtype=jnp.float64)
        return self.mean + self.factor @ normal * jnp.sqrt(_FREEDOM / square)

    def log_density(self, point: Float[Array, " coordinates"]) -> Float[Array, ""]:
        """Up to a constant."""
        white = solve_triangular(self.factor, point - self.mean, lower=True)
        return -(_FREEDOM + len(self.mean)) / 2 * jnp.log1p(white @ white / _FREEDOM)


class Trial(eqx.Module):
    """Logarithms of sums of weights: over proposals, those and their squares, and over draws of NUTS."""

    proposed: Float[Array, ""]
    squared: Float[Array, ""]
    walked: Float[Array, ""]

    @classmethod
    def none(cls) -> "Trial":
        """Of no weight yet."""
        return cls(*(jnp.array(-jnp.inf) for _ in range(3)))

    def with_proposals(self, weights: Float[Array, " proposals"]) -> "Trial":
        """With logarithms of the weights at some proposals."""
        proposed = jnp.logaddexp(self.proposed, logsumexp(weights))
        return Trial(proposed, jnp.logaddexp(self.squared, logsumexp(2 * weights)), self.walked)

    def with_walk(self, weight: Float[Array, ""]) -> "Trial":
        """With the logarithm of the weight at a draw of NUTS."""
        return Trial(self.proposed, self.squared, jnp.logaddexp(self.walked, weight))

    def stay(self, steps: int) -> Float[Array, ""]:
        """How many proposals a chain stays at a place of the posterior's mean weight, by a number of steps on trial.

        The mean weight is that of the proposals, weighted, or that at draws of NUTS where it is larger: either sees
        what the other may have missed.
        """
        mean = self.proposed - jnp.log(steps * _BESIDE)
        return jnp.exp(jnp.maximum(self.squared - self.proposed, self.walked - jnp.log(steps)) - mean)


class _State(eqx.Module):
    """A chain: its walk by NUTS, what is learnt, and where it is, which is where the walk is up to the first fit.

    `density`: log density of the posterior there. `rate`: how often the last proposals were accepted, in probability.
    """

    walk: Any
    key: Array
    steps: Int[Array, ""]
    moments: Moments
    proposals: StudentLaw
    trial: Trial
    coordinates: Float[Array, " coordinates"]
    density: Float[Array, ""]
    rate: Float[Array, ""]


class IndependenceSampler(AbstractSampler):
    """NUTS, and after warm-up independent proposals, alone where few of them make a draw.

    On an accelerator, where chains are one batch, every step costs one of NUTS in any case.
    """

    lockstep: ClassVar[bool] = False

    no_u_turn: NoUTurnSampler

    @property
    def posterior(self) -> AbstractPosterior:
        """What is drawn from."""
        return self.no_u_turn.posterior

    def start(self, key: PRNGKeyArray) -> _State:
        of_walk, of_proposals = jax.random.split(key)
        walk, size = self.no_u_turn.start(of_walk), self.posterior.dimension
        proposals, learnt = StudentLaw(jnp.zeros(size), jnp.eye(size)), (jnp.array(0), Moments.none(size))
        here = (walk.z["coordinates"], -walk.potential_energy, jnp.zeros(()))
        return _State(walk, of_proposals, *learnt, proposals, Trial.none(), *here)

    def step(self, state: _State) -> _State:
        proposed, walked = lambda: self._step_of_proposals(state), lambda: self._step_of_walk(state)
        state = jax.lax.cond(self._walks(state, state.steps), walked, proposed)
        return replace(state, steps=state.steps + 1)

    def _step_of_proposals(self, state: _State) -> _State:
        return self._propose(state, self._proposals(state), learn=lambda learnt, points, weights: learnt)

    def _step_of_walk(self, state: _State) -> _State:
        """A step of NUTS and proposals after it, and in warm-up what there is to learn from both."""
        step, warmup, (burnt_in, fit, refit) = state.steps, self.no_u_turn.warmup, self._ends
        learns_of_walk = (burnt_in <= step) & (step < fit)
        learns_of_proposals = (fit <= step) & (step < refit)
        on_trial = (refit <= step) & (step < warmup)

        walk = self.no_u_turn.step(self._walk_of(state))
        walked, density = walk.z["coordinates"], -walk.potential_energy
        moments = _where(learns_of_walk, lambda: state.moments.with_points(walked[None]), state.moments)
        proposals = _where((step == fit) | (step == refit), lambda: StudentLaw.fitted(moments), state.proposals)
        trial = _where(on_trial, lambda: state.trial.with_walk(density - proposals.log_density(walked)), state.trial)
        # chain and walk are one but from the first fit to the end of warm-up
        apart = (fit < step) & (step < warmup)
        here = {
            "coordinates": jnp.where(apart, state.coordinates, walked),
            "density": jnp.where(apart, state.density, density),
        }
        state = replace(state, walk=walk, moments=moments, proposals=proposals, trial=trial, **here)

        def learn(learnt, points, weights):
            moments, trial = learnt
            moments = _where(learns_of_proposals, lambda: moments.with_points(points), moments)
            return moments, _where(on_trial, lambda: trial.with_proposals(weights), trial)

        enough = fit - burnt_in >= _A_COORDINATE * self.posterior.dimension
        beside = jnp.where(learns_of_proposals | on_trial, _BESIDE if enough else 0, 0)
        return self._propose(state, jnp.where(step < warmup, beside, self._proposals(state)), learn)

    def record(self, state: _State) -> Mapping[str, Array]:
        return self.posterior.record(state.coordinates)

    def stats(self, state: _State) -> Mapping[str, Array]:
        step = state.steps - 1
        walked = self._walks(state, step)
        of_proposals = {
            "energy": -state.density,
            "diverging": False,
            "acceptance_rate": state.rate,
            "n_steps": 0,
            "step_size": 0.0,
        }
        of_walk = self.no_u_turn.stats(state.walk)
        chosen = {name: jnp.where(walked, of_walk[name], value) for name, value in of_proposals.items()}
        count = jnp.where(step >= self.no_u_turn.warmup, self._proposals(state), 0)
        return {**chosen, "lp": state.density, "proposals": count}

    @property
    def _ends(self) -> tuple[int, ...]:
        """The steps of warm-up at which learning begins, and of the two fits."""
        return tuple(int(part * self.no_u_turn.warmup) for part in (_BURN_IN, _FIT, _REFIT))

    def _wanted(self, state: _State) -> Float[Array, ""]:
        """How many proposals make a draw that hardly depends on the one before."""
        stay = state.trial.stay(max(self.no_u_turn.warmup - self._ends[-1], 1))
        # there is no fit where a coordinate did not move in warm-up
        return -jnp.log(_STAYS) * jnp.nan_to_num(stay, nan=jnp.inf)

    def _proposals(self, state: _State) -> Int[Array, ""]:
        """How many proposals one draw takes: a multiple of those made at a time."""
        wanted = self._wanted(state)
        count = _AT_A_TIME * jnp.ceil(jnp.minimum(wanted, _MOST) / _AT_A_TIME).astype(int)
        return jnp.where(wanted > _MOST * _EVERY, 0, count)

    def _walks(self, state: _State, step: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether there is a step of NUTS in the draw at a `step`."""
        after, draws = step - self.no_u_turn.warmup, self._wanted(state) / _MOST
        every = jnp.where(draws <= 1, _EVERY, jnp.maximum(jnp.ceil(_OFTEN / draws), 1)).astype(int)
        return (after < 0) | (after % every == every - 1)

    def _walk_of(self, state: _State) -> Any:
        """The walk, taken to where the chain is after draws of proposals."""

        def moved():
            slope = jax.grad(self.posterior.log_density)(state.coordinates)
            there = {"z": {"coordinates": state.coordinates}, "z_grad": {"coordinates": -slope}}
            return state.walk._replace(**there, potential_energy=-state.density)

        proposed = (state.steps > self.no_u_turn.warmup) & (self._proposals(state) > 0)
        return jax.lax.cond(proposed, moved, lambda: state.walk)

    def _propose(self, state: _State, count: Int[Array, ""], learn: Callable) -> _State:
        """So many proposals, each accepted or not.

        `learn` gets moments and trial, where proposals lead, and the logarithms of their weights, and returns moments
        and trial.
        """

        def some(_, carried):
            key, learnt, total, *here = carried
            key, of_proposals, of_choices = jax.random.split(key, 3)
            proposed = self._weighed(state.proposals, of_proposals)
            chances = jax.random.uniform(of_choices, (_AT_A_TIME,), dtype=jnp.float64)
            here, (rates, points) = jax.lax.scan(_choose, tuple(here), (*proposed, chances), unroll=True)
            return key, learn(learnt, points, proposed[-1]), total + jnp.sum(rates), *here

        weight = state.density - state.proposals.log_density(state.coordinates)
        learnt = (state.moments, state.trial)
        begun = (state.key, learnt, jnp.zeros(()), state.coordinates, state.density, weight)
        ended = jax.lax.fori_loop(0, count // _AT_A_TIME, some, begun)
        key, (moments, trial), total, coordinates, density, _ = ended
        rate = jnp.where(count > 0, total / jnp.maximum(count, 1), state.rate)
        state = replace(state, key=key, moments=moments, trial=trial)
        return replace(state, coordinates=coordinates, density=density, rate=rate)

    def _weighed(self, proposals: StudentLaw, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """As many proposals as are made at a time, the posterior's log density there, and the weights' logarithms.

        A density of NaN, where the posterior cannot be evaluated, is of no weight.
        """
        points = jax.vmap(proposals.sample)(jax.random.split(key, _AT_A_TIME))
        densities = self.posterior.log_densities(points)
        weights = densities - jax.vmap(proposals.log_density)(points)
        return points, densities, jnp.where(jnp.isfinite(weights), weights, -jnp.inf)


def _choose(here, proposed):
    """Metropolis and Hastings' rule for an independent proposal: where the chain is then, and the chance it had."""
    *there, chance = proposed
    rate = jnp.exp(jnp.minimum(there[2] - here[2], 0.0))
    here = tuple(jnp.where(chance < rate, new, old) for new, old in zip(there, here, strict=True))
    return here, (rate, here[0])


def _where(condition: Bool[Array, ""], found: Callable[[], Any], other: Any) -> Any:
    """What is `found`, computed only where the condition is met."""
    return jax.lax.cond(condition, found, lambda: other)
