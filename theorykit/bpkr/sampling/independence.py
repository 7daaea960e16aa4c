"""Independent proposals from a fit to warm-up, where they are accepted often enough: no gradient, no trajectory.

In warm-up NUTS runs, and a multivariate Student t law is given the mean and covariance of its draws, and then, anew,
those of a chain of proposals from that law. If such proposals are accepted often, they make the draws, by Metropolis
and Hastings' rule, which leaves the posterior exactly as it is, with a step of NUTS now and then; else NUTS goes on.
The t law's tails are powers, those of the posterior of the order parameters exponential or lighter: no region can be
missed for long. Proposals do not depend on where the chain is, and so are made some at a time.

Source: L. Tierney, "Markov chains for exploring posterior distributions", Ann. Statist. 22 (1994) 1701 (independence
chains); that they are fitted and chosen in warm-up, the chain after it being of one kind, is our own.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .chains import AbstractSampler
from .nuts import NoUTurnSampler
from .posterior import AbstractPosterior

# parts of warm-up: before the first fit, up to it, and up to the second; the rest is a trial
_BURN_IN, _FIT, _REFIT = 0.25, 0.8, 0.9
# proposals that are made at a time
_AT_A_TIME = 4
# proposals beside every step of NUTS between fit and end of warm-up
_BESIDE = 64
# a draw is the last of about so many proposals that none is accepted with this probability, and of so many at the most
_STAYS, _MOST = 0.1, 32
# of the fit: coordinates are taken to be uncorrelated in so many draws more
_UNCORRELATED = 5.0
# degrees of freedom of the t law
_FREEDOM = 30
# every so many draws is a step of NUTS, which leads on where proposals are accepted rarely
_EVERY = 32


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


class _State(eqx.Module):
    """A chain: its walk by NUTS, what is learnt, and where it is, which is where the walk is up to the first fit.

    `density`: log density of the posterior there. `rate`: how often the last proposals were accepted, in probability.
    `trial`: the sum of the rates of all steps on trial.
    """

    walk: Any
    key: Array
    steps: Int[Array, ""]
    moments: Moments
    proposals: StudentLaw
    trial: Float[Array, ""]
    coordinates: Float[Array, " coordinates"]
    density: Float[Array, ""]
    rate: Float[Array, ""]


class IndependenceSampler(AbstractSampler):
    """NUTS, and after warm-up independent proposals where they do.

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
        proposals, zero = StudentLaw(jnp.zeros(size), jnp.eye(size)), jnp.zeros(())
        here, density = walk.z["coordinates"], -walk.potential_energy
        return _State(walk, of_proposals, jnp.array(0), Moments.none(size), proposals, zero, here, density, zero)

    def step(self, state: _State) -> _State:
        proposed, walked = lambda: self._step_of_proposals(state), lambda: self._step_of_walk(state)
        state = jax.lax.cond(self._proposes(state, state.steps), proposed, walked)
        return eqx.tree_at(lambda s: s.steps, state, state.steps + 1)

    def _step_of_proposals(self, state: _State) -> _State:
        return self._propose(state, self._proposals(state), learns=False)

    def _step_of_walk(self, state: _State) -> _State:
        """A step of NUTS, and what there is to learn from it and from proposals beside it."""
        step, (burnt_in, fit, refit) = state.steps, self._ends
        walk = self.no_u_turn.step(self._walk_of(state))
        follows = (step <= fit) | (step >= self.no_u_turn.warmup)
        here = jnp.where(follows, walk.z["coordinates"], state.coordinates)
        density = jnp.where(follows, -walk.potential_energy, state.density)
        learns = (step >= burnt_in) & (step < fit)
        moments = jax.lax.cond(learns, lambda: state.moments.with_points(here[None]), lambda: state.moments)
        fits = (step == fit) | (step == refit)
        proposals = jax.lax.cond(fits, lambda: StudentLaw.fitted(moments), lambda: state.proposals)
        there = (walk, moments, proposals, here, density)
        state = eqx.tree_at(lambda s: (s.walk, s.moments, s.proposals, s.coordinates, s.density), state, there)
        beside = jnp.where((step >= fit) & (step < self.no_u_turn.warmup), _BESIDE, 0)
        state = self._propose(state, beside, learns=(step >= fit) & (step < refit))
        trial = state.trial + jnp.where((step >= refit) & (step < self.no_u_turn.warmup), state.rate, 0.0)
        return eqx.tree_at(lambda s: s.trial, state, trial)

    def record(self, state: _State) -> Mapping[str, Array]:
        return self.posterior.record(state.coordinates)

    def stats(self, state: _State) -> Mapping[str, Array]:
        proposed = self._proposes(state, state.steps - 1)
        of_proposals = {
            "lp": state.density,
            "energy": -state.density,
            "diverging": False,
            "acceptance_rate": state.rate,
            "n_steps": 0,
            "step_size": 0.0,
        }
        of_walk = self.no_u_turn.stats(state.walk)
        chosen = {name: jnp.where(proposed, of_proposals[name], value) for name, value in of_walk.items()}
        return {**chosen, "proposals": jnp.where(proposed, self._proposals(state), 0)}

    @property
    def _ends(self) -> tuple[int, ...]:
        """The steps of warm-up at which learning begins, and of the two fits."""
        return tuple(int(part * self.no_u_turn.warmup) for part in (_BURN_IN, _FIT, _REFIT))

    def _proposals(self, state: _State) -> Int[Array, ""]:
        """How many proposals one draw takes: a multiple of those made at a time."""
        steps = max(self.no_u_turn.warmup - self._ends[-1], 1)
        # there is no fit where a coordinate did not move in warm-up
        rate = jnp.clip(jnp.nan_to_num(state.trial) / steps, 1e-9, 1 - 1e-9)
        times = jnp.round(jnp.log(_STAYS) / jnp.log1p(-rate) / _AT_A_TIME)
        return _AT_A_TIME * jnp.maximum(times, 1).astype(int)

    def _proposes(self, state: _State, step: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the draw at a `step` is one of proposals."""
        after = step - self.no_u_turn.warmup
        return (after >= 0) & (after % _EVERY != _EVERY - 1) & (self._proposals(state) <= _MOST)

    def _walk_of(self, state: _State) -> Any:
        """The walk, taken to where the chain is after draws of proposals."""

        def moved():
            slope = jax.grad(self.posterior.log_density)(state.coordinates)
            there = {"z": {"coordinates": state.coordinates}, "z_grad": {"coordinates": -slope}}
            return state.walk._replace(**there, potential_energy=-state.density)

        return jax.lax.cond(self._proposes(state, state.steps - 1), moved, lambda: state.walk)

    def _propose(self, state: _State, count: Int[Array, ""], learns: Bool[Array, ""] | bool) -> _State:
        """So many proposals, each accepted or not; `moments` of where they lead are taken if the chain `learns`."""

        def some(_, carried):
            key, moments, total, *here = carried
            key, of_proposals, of_choices = jax.random.split(key, 3)
            proposed = self._weighed(state.proposals, of_proposals)
            chances = jax.random.uniform(of_choices, (_AT_A_TIME,), dtype=jnp.float64)
            here, (rates, points) = jax.lax.scan(_choose, tuple(here), (*proposed, chances), unroll=True)
            moments = jax.lax.cond(learns, lambda: moments.with_points(points), lambda: moments)
            return key, moments, total + jnp.sum(rates), *here

        weight = state.density - state.proposals.log_density(state.coordinates)
        begun = (state.key, state.moments, jnp.zeros(()), state.coordinates, state.density, weight)
        key, moments, total, *here, _ = jax.lax.fori_loop(0, count // _AT_A_TIME, some, begun)
        rate = jnp.where(count > 0, total / jnp.maximum(count, 1), state.rate)
        there = (key, moments, *here, rate)
        return eqx.tree_at(lambda s: (s.key, s.moments, s.coordinates, s.density, s.rate), state, there)

    def _weighed(self, proposals: StudentLaw, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """As many proposals as are made at a time, the posterior's log density there, and that less the proposals'."""
        points = jax.vmap(proposals.sample)(jax.random.split(key, _AT_A_TIME))
        densities = self.posterior.log_densities(points)
        return points, densities, densities - jax.vmap(proposals.log_density)(points)


def _choose(here, proposed):
    """Metropolis and Hastings' rule for an independent proposal: where the chain is then, and the chance it had."""
    *there, chance = proposed
    # a density of NaN, where the posterior cannot be evaluated, is of no proposal that is accepted
    rate = jnp.where(jnp.isfinite(there[1]), jnp.exp(jnp.minimum(there[2] - here[2], 0.0)), 0.0)
    here = tuple(jnp.where(chance < rate, new, old) for new, old in zip(there, here, strict=True))
    return here, (rate, here[0])
