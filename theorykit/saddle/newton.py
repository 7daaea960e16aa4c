"""Newton's method for minima and for stationary points of any index, as an Optimistix minimiser.

Solvers take an `AbstractSaddleProblem` as the `args` of `optimistix.minimise`.
"""

import abc
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from ..checks import checked_number, checked_whole_number
from .problem import AbstractSaddleProblem, Coordinates, Point, QuadraticModel, reach_of

# Name of the option that limits the steps of a minimisation, a number or an array.
MAX_STEPS = "max_steps"
# Relative change of the action that counts as rounding.
_ROUNDING = 1e-12
# Stop after this many steps without progress: further changes are rounding.
_PATIENCE = 6

# Minima: first and largest radius of the trust region, and the radius below which a
# shorter step is not expected to help.
_RADIUS, _WIDEST, _NARROWEST = 10.0, 1e8, 1e-8

# Min-max points: first and largest radius of the trust region.
_FIRST_RADIUS, _LARGEST_RADIUS = 1.0, 1e6
# The iteration is trapped if the radius falls below the first number, or after the
# second number of steps in which the gradient norm did not fall by this fraction.
_TRAP, _STALE, _PROGRESS = 1e-4, 30, 0.999
# Newton's method converges below this gradient norm, if rounding permits.
_CLOSE = 1e-6
# Relative errors of the predicted change of the gradient: from the first on, the step is
# rejected, and the radius aims at the second.
_REFUSED, _AIM = 0.5, 0.3


class Progress(eqx.Module):
    """Current point of a solver, and its counts.

    - `evaluations`, `curvatures`: numbers of evaluations of the action and of Hessians.
    - `best`, `lowest`: smallest gradient norm and lowest S so far.
    - `idle`: number of steps without progress.
    """

    point: Point
    evaluations: Int[Array, ""]
    curvatures: Int[Array, ""]
    best: Float[Array, ""]
    lowest: Float[Array, ""]
    idle: Int[Array, ""]

    @property
    def rounding(self) -> Float[Array, ""]:
        """Change of S that may be rounding."""
        return _ROUNDING * (jnp.abs(self.point.action) + self.point.magnitude)

    def accepts(self, point: Point) -> Bool[Array, ""]:
        """Return whether S does not rise at `point`, except by rounding."""
        first = self.evaluations == 0
        return first | (point.is_finite & (point.action <= self.point.action + self.rounding))

    def moved(self, point: Point, accepted: Bool[Array, ""], promising: Bool[Array, ""] | bool = False) -> "Progress":
        """Count an evaluation, and go to `point` if the step was `accepted`.

        `promising`: whether a shorter step should succeed after a rejected one.
        """
        # Between two points, rounding lowers S as often as it raises it.
        lower = point.action < self.lowest - _ROUNDING * jnp.abs(self.point.action)
        improved = jnp.where(accepted, (point.gradient_norm < self.best) | lower, promising)
        return Progress(
            point=jax.tree.map(partial(jnp.where, accepted), point, self.point),
            evaluations=self.evaluations + 1,
            curvatures=self.curvatures,
            best=jnp.where(accepted, jnp.fmin(self.best, point.gradient_norm), self.best),
            lowest=jnp.where(accepted, jnp.fmin(self.lowest, point.action), self.lowest),
            idle=jnp.where(improved, 0, self.idle + 1),
        )


class AbstractSaddleSolver(optx.AbstractMinimiser):
    """Minimiser of an `AbstractSaddleProblem`, its `args`. Its state has a `progress`.

    `atol` applies to the gradient norm per scale. `options[MAX_STEPS]`, if given, limits
    the steps.
    """

    atol: float = eqx.field(default=1e-9, converter=partial(checked_number, "atol", above=0.0))
    rtol: float = eqx.field(default=0.0, converter=partial(checked_number, "rtol", least=0.0))
    norm: Callable = optx.max_norm

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        # Start from an infinite action, so that the first evaluated point is accepted.
        shapes = eqx.filter_eval_shape(args.at, y)
        point = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.inf, leaf.dtype), shapes)
        none, most = jnp.array(0), jnp.array(jnp.inf)
        return self.start(args, y, Progress(point, none, none, most, most, none))

    @abc.abstractmethod
    def start(self, problem: AbstractSaddleProblem, coordinates: Coordinates, progress: Progress) -> Any:
        """Return the state before the first evaluation, which will be at `coordinates`."""

    def terminate(self, fn, y, args, options, state, tags):
        # Optimistix itself would compile again for every value of `max_steps`.
        out_of_steps = state.progress.evaluations >= options.get(MAX_STEPS, jnp.inf)
        has_left = (state.progress.evaluations > 0) & args.has_left(state.progress.point.coordinates)
        codes, stuck = optx.RESULTS, self._is_finished(state) | has_left
        done, failed = stuck | out_of_steps, ~self._is_found(state)
        failure = codes.where(stuck, codes.nonlinear_divergence, codes.nonlinear_max_steps_reached)
        return done, codes.where(done & failed, failure, codes.successful)

    def _is_found(self, state) -> Bool[Array, ""]:
        return state.progress.point.gradient_norm <= self.atol

    def _is_finished(self, state) -> Bool[Array, ""]:
        """Return whether the point is a solution, or further steps cannot improve it."""
        progress = state.progress
        stuck = (progress.idle >= _PATIENCE) | ~progress.point.is_finite
        return self._is_found(state) | ((progress.evaluations > 0) & stuck)

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        progress = state.progress
        stats = {"point": progress.point, "evaluations": progress.evaluations, "curvatures": progress.curvatures}
        if hasattr(state, "model"):
            stats["model"] = state.model
        return progress.point.coordinates, aux, stats


class _State(eqx.Module):
    """`along` has the components of the last step along the directions of the `model`.

    Since the last of the `restarts`, `lowest` is the smallest gradient norm, and `stale`
    the number of steps without a smaller one. `fresh`: no step was accepted.
    """

    progress: Progress
    proposal: Coordinates
    model: QuadraticModel
    along: Coordinates
    radius: Float[Array, ""]
    fresh: Bool[Array, ""]
    lowest: Float[Array, ""]
    stale: Int[Array, ""]
    restarts: Int[Array, ""]
    sweeping: Bool[Array, ""]
    sweeps: Any


class Newton(AbstractSaddleSolver):
    """Newton's method with exact curvature in a trust region.

    At index 0, a step is the minimum of the quadratic model within the region, and is
    accepted if S does not rise. At a larger index, S is maximised along the `index`
    lowest eigenvectors of the Hessian and minimised along all others, and a step is
    accepted if the model predicted the next gradient well. An iteration that is trapped,
    as where two eigenvalues cross, restarts from a random point, farther away every time.
    The problem must then have a method `slopes`, and its metric must be the identity.

    - `near`: if given, the next Newton step at a solution is at most `near` times the
      largest coordinate.

    Source: C. J. Cerjan, W. H. Miller, J. Chem. Phys. 75 (1981) 2800, for steps to
    min-max points. Their acceptance test is ours.
    """

    index: int = eqx.field(static=True, default=0)
    near: float | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        checked_whole_number("index", self.index, least=0)

    def start(self, problem, coordinates, progress):
        size, nothing, no = len(coordinates), jnp.zeros_like(coordinates), jnp.array(False)
        model = QuadraticModel(nothing, nothing, jnp.zeros((size, size)))
        radius = jnp.array(_FIRST_RADIUS if self.index else _RADIUS)
        counts = jnp.array(True), jnp.array(jnp.inf), jnp.array(0), jnp.array(0)
        return _State(progress, coordinates, model, nothing, radius, *counts, no, None)

    def sweep(
        self, problem: AbstractSaddleProblem, here: Point, accepted: Array, state: Any
    ) -> tuple[Bool[Array, ""], Coordinates, Any]:
        """Return whether another step replaces Newton's from `here`, its end, and the next `state.sweeps`."""
        return jnp.array(False), here.coordinates, state.sweeps

    def _is_found(self, state):
        found, point = super()._is_found(state), state.progress.point
        if self.near is None:
            return found
        return found & (state.model.newton_length() <= self.near * reach_of(point.coordinates))

    def step(self, fn, y, args, options, state, tags):
        return (self._to_index if self.index else self._down)(args, state)

    def _down(self, problem: AbstractSaddleProblem, state: _State):
        point, last, length = problem.at(state.proposal), state.progress, jnp.linalg.norm(state.along)
        accepted, expected = last.accepts(point), state.model.decrease(state.along)
        # The usual update of a trust region (Nocedal and Wright, Algorithm 4.1). If the
        # expected decrease is below rounding, it counts as reached.
        is_visible = expected > last.rounding
        lowered = jnp.where(is_visible, last.point.action - point.action, expected)
        wider = (lowered > 3 * expected / 4) & (length > 0.9 * state.radius)
        radius = jnp.where(wider, jnp.minimum(2 * state.radius, _WIDEST), state.radius)
        radius = jnp.where(~accepted | (lowered < expected / 4), length / 4, radius)
        radius = jnp.where(state.sweeping | (last.evaluations == 0), state.radius, radius)

        promising = (radius < state.radius) & (radius > _NARROWEST) & is_visible
        progress = last.moved(point, accepted, promising)
        here = progress.point
        sweeping, end, sweeps = self.sweep(problem, here, accepted, state)
        newton = ~sweeping | self._is_finished(replace(state, progress=progress))
        # After a failed step, the point and its model stay the same.
        renewed = newton & (accepted | state.sweeping)
        model = jax.lax.cond(renewed, lambda: QuadraticModel.of(problem.expansion(here)), lambda: state.model)
        along = model.towards(0, radius)
        ahead = jnp.where(newton, problem.moved(here.coordinates, model.directions @ along), end)
        progress = replace(progress, curvatures=progress.curvatures + jnp.where(renewed, 1, 0))
        state = replace(state, progress=progress, proposal=ahead, model=model, along=along, radius=radius)
        return here.coordinates, replace(state, sweeping=sweeping, sweeps=sweeps), None

    def _to_index(self, problem: AbstractSaddleProblem, state: _State):
        last, model, fresh, stale = state.progress, state.model, state.fresh, state.stale
        # Without the magnitude of S, XLA skips the evaluations that measure it.
        point = replace(problem.at(state.proposal), magnitude=jnp.array(0.0))
        length, change = jnp.linalg.norm(state.along), model.directions @ (model.curvatures * state.along)
        found, _ = problem.slopes(last.point.coordinates, model.directions @ state.along)
        off = jnp.linalg.norm(found - last.point.details - change)
        off = off / jnp.maximum(jnp.linalg.norm(change), jnp.finfo(change.dtype).tiny)
        off = jnp.where(fresh, 0.0, jnp.where(jnp.isfinite(off), off, jnp.inf))
        is_good = (off < _REFUSED) | (point.gradient_norm <= self.atol)
        accepted = (last.evaluations == 0) | (point.is_finite & is_good)
        # The error is proportional to the length of the step.
        fitting = length * jnp.clip(_AIM / jnp.maximum(off, _AIM / 4), 0.25, 2.0)
        keeps = fresh | (accepted & (off <= _AIM) & (length < 0.9 * state.radius))
        radius = jnp.where(keeps, state.radius, jnp.minimum(fitting, _LARGEST_RADIUS))

        lowest = jnp.where(fresh & accepted, point.gradient_norm, state.lowest)
        nearer = accepted & (fresh | (point.gradient_norm < _PROGRESS * lowest))
        stale, lowest = jnp.where(nearer, 0, stale + 1), jnp.where(nearer, point.gradient_norm, lowest)
        is_close = lowest <= _CLOSE
        trapped = ~is_close & ((stale >= _STALE) | (radius < _TRAP))
        # Rounding may keep the gradient above the tolerance close to a solution. Steps
        # without progress end the iteration only there.
        idle, curvatures = jnp.where(is_close, stale, 0), last.curvatures + jnp.where(accepted, 1, 0)
        progress = replace(last.moved(point, accepted), idle=idle, curvatures=curvatures)
        here, restarts = progress.point, state.restarts + jnp.where(trapped, 1, 0)
        model = jax.lax.cond(accepted, lambda: QuadraticModel.of(problem.expansion(here)), lambda: model)
        jump = jax.random.normal(jax.random.fold_in(jax.random.key(0), restarts), here.coordinates.shape, dtype=float)
        along = jnp.where(trapped, restarts * jump, model.towards(self.index, radius))
        ahead = problem.moved(here.coordinates, model.directions @ along)
        radius = jnp.where(trapped, _FIRST_RADIUS, radius)
        state = replace(state, progress=progress, proposal=ahead, model=model, along=along, radius=radius)
        counts = {"fresh": trapped, "lowest": lowest, "stale": stale, "restarts": restarts}
        return here.coordinates, replace(state, **counts), None
