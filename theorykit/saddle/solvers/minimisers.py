"""Optimistix minimisers that use the structure of an action.

They minimise the action of an `AbstractSaddleProblem`, which Optimistix passes as `args`, or make it stationary.
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

from ...checks import checked_function, checked_number
from ..problem import AbstractSaddleProblem, Coordinates, Point, reach_of
from .quadratic_model import QuadraticModel

# Name of the option that limits the steps of a minimisation, a number or an array.
MAX_STEPS = "max_steps"
# Relative change of the action that counts as rounding.
_ROUNDING = 1e-12
# Stop after this many steps without progress: further changes are rounding.
_PATIENCE = 6
# Initial radius of the trust region, in the affine-invariant metric (relative changes).
_RADIUS = 10.0
# Below this radius, a shorter step is not expected to help, and rejected steps count as no progress.
_NARROWEST = 1e-8
# Largest radius of the trust region.
_WIDEST = 1e8
# Initial radius of the trust region for min-max points.
_FIRST_RADIUS = 1.0
# The iteration towards a min-max point is trapped if the radius falls below this.
_TRAP = 1e-4
# Largest radius of the trust region for min-max points.
_LARGEST_RADIUS = 1e6
# Newton's method converges below this gradient norm, if rounding permits.
_CLOSE = 1e-6
# The iteration towards a min-max point is also trapped after this many steps without progress.
_STALE = 30
# Progress means that the gradient norm falls below this fraction of its previous minimum.
_PROGRESS = 0.999
# Reject a step if the error of the predicted change of the gradient, relative to that change, is at least this.
_REFUSED = 0.5
# The radius of the trust region aims at steps with this relative error.
_AIM = 0.3


def chosen(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """Select `yes` if `condition` holds and `no` otherwise, leaf by leaf of two trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


class Progress(eqx.Module):
    """Current point of a solver, and its counts.

    - `point`: the current point.
    - `evaluations`, `curvatures`: numbers of evaluations of the action and of Hessians.
    - `best`: smallest gradient norm so far.
    - `idle`: number of steps since `best` was reached, or since the action last fell by more than rounding.
    """

    point: Point
    evaluations: Int[Array, ""]
    curvatures: Int[Array, ""]
    best: Float[Array, ""]
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
        """Update after the evaluation of `point`.

        Args:
            point: The evaluated point.
            accepted: Whether it becomes the current point.
            promising: Whether a shorter step is expected to do better if the point is rejected.
        """
        lower = point.action < self.point.action - _ROUNDING * jnp.abs(self.point.action)
        improved = jnp.where(accepted, (point.gradient_norm < self.best) | lower, promising)
        return Progress(
            point=chosen(accepted, point, self.point),
            evaluations=self.evaluations + 1,
            curvatures=self.curvatures,
            best=jnp.where(accepted, jnp.fmin(self.best, point.gradient_norm), self.best),
            idle=jnp.where(improved, 0, self.idle + 1),
        )


def _checked_near(near: float | None) -> float | None:
    return None if near is None else checked_number("near", near, above=0.0)


class AbstractSaddleSolver(optx.AbstractMinimiser):
    """Minimiser that takes an `AbstractSaddleProblem` as `args`. Its state has a `progress`.

    `atol` applies to the gradient norm in the affine-invariant metric, per scale. `options[MAX_STEPS]`, if given,
    limits the steps. If a solver has the attribute `near`, its end point counts as found only if the next Newton step
    is at most `near` times the largest coordinate.
    """

    atol: float = eqx.field(default=1e-9, converter=partial(checked_number, "atol", above=0.0))
    rtol: float = eqx.field(default=0.0, converter=partial(checked_number, "rtol", least=0.0))
    norm: Callable = optx.max_norm

    def __check_init__(self):
        checked_function("norm", self.norm)

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        # Start from an infinite action, so that the first evaluated point is accepted.
        shapes = eqx.filter_eval_shape(args.at, y)
        point = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.inf, leaf.dtype), shapes)
        return self.start(args, y, Progress(point, jnp.array(0), jnp.array(0), jnp.array(jnp.inf), jnp.array(0)))

    @abc.abstractmethod
    def start(self, problem: AbstractSaddleProblem, coordinates: Coordinates, progress: Progress) -> Any:
        """Return the state before the first evaluation, which will be at `coordinates`."""

    def terminate(self, fn, y, args, options, state, tags):
        # Count steps here. Optimistix itself would recompile for every value of `max_steps`.
        out_of_steps = state.progress.evaluations >= options.get(MAX_STEPS, jnp.inf)
        has_left = (state.progress.evaluations > 0) & args.has_left(state.progress.point.coordinates)
        stuck = self._is_finished(state) | has_left
        done, failed = stuck | out_of_steps, ~self._is_found(state)
        failure = optx.RESULTS.where(stuck, optx.RESULTS.nonlinear_divergence, optx.RESULTS.nonlinear_max_steps_reached)
        return done, optx.RESULTS.where(done & failed, failure, optx.RESULTS.successful)

    def _is_found(self, state) -> Bool[Array, ""]:
        point = state.progress.point
        is_found = point.gradient_norm <= self.atol
        if getattr(self, "near", None) is None:
            return is_found
        return is_found & (state.model.newton_length() <= self.near * reach_of(point.coordinates))

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


class _NewtonState(eqx.Module):
    progress: Progress
    proposal: Coordinates
    model: QuadraticModel
    radius: Float[Array, ""]
    length: Float[Array, ""]
    lowered: Float[Array, ""]
    sweeping: Bool[Array, ""]
    sweeps: Any


class Newton(AbstractSaddleSolver):
    """Newton's method with exact curvature in a trust region.

    The minimum of the quadratic model within the region is found exactly, so negative eigenvalues of the Hessian lead
    away from saddle points. The Hessian is also formed at the end point, as evidence. A subclass may take other steps
    at times, see `swept`.

    - `atol`: tolerance on the gradient norm per scale, in the affine-invariant metric.
    - `near`: if given, the point counts as found only if the next Newton step is at most `near` times the largest
      coordinate.
    """

    near: float | None = eqx.field(static=True, default=None, converter=_checked_near)

    def start(self, problem, coordinates, progress):
        size, zero, no = len(coordinates), jnp.array(0.0), jnp.array(False)
        model = QuadraticModel(coordinates, coordinates, jnp.zeros((size, size)))
        return _NewtonState(progress, coordinates, model, jnp.array(_RADIUS), zero, zero, no, None)

    def swept(
        self, problem: AbstractSaddleProblem, here: Point, accepted: Array, state: Any
    ) -> tuple[Bool[Array, ""], Coordinates, Any]:
        """Return whether another step replaces Newton's from `here`, its end, and the next `state.sweeps`."""
        return jnp.array(False), here.coordinates, state.sweeps

    def step(self, fn, y, args, options, state, tags):
        problem = args
        point = problem.at(state.proposal)
        accepted = state.progress.accepts(point)
        # The usual update of a trust region (Nocedal and Wright, Algorithm 4.1). Widen the region if a step of full
        # length lowered S by at least 3/4 of the predicted decrease. Narrow it if the step was rejected or achieved
        # less than 1/4. If the predicted decrease is below rounding, the ratio is noise, and the prediction counts as
        # correct.
        lowered = state.progress.point.action - point.action
        lowered = jnp.where(state.lowered > state.progress.rounding, lowered, state.lowered)
        narrower, as_predicted = lowered < state.lowered / 4, lowered > 3 * state.lowered / 4
        wider = as_predicted & (state.length > 0.9 * state.radius)
        radius = jnp.where(~accepted | narrower, state.length / 4, jnp.where(wider, 2 * state.radius, state.radius))
        was_newton = ~state.sweeping & (state.progress.evaluations > 0)
        radius = jnp.where(was_newton, jnp.minimum(radius, _WIDEST), state.radius)

        promising = (radius < state.radius) & (radius > _NARROWEST) & (state.lowered > state.progress.rounding)
        progress = state.progress.moved(point, accepted, promising)
        here = progress.point
        sweeping, swept, sweeps = self.swept(problem, here, accepted, state)
        newton = ~sweeping | self._is_finished(replace(state, progress=progress))
        # After a failed step, the point and its model stay the same.
        renewed = newton & (accepted | state.sweeping)
        model = jax.lax.cond(renewed, lambda: QuadraticModel.of(problem.expansion(here)), lambda: state.model)
        step, length, lowered = model.least_within(radius)
        ahead = jnp.where(newton, problem.moved(here.coordinates, step), swept)
        progress = replace(progress, curvatures=progress.curvatures + jnp.where(renewed, 1, 0))
        state = _NewtonState(progress, ahead, model, radius, length, lowered, sweeping, sweeps)
        return here.coordinates, state, None


class _IndexState(eqx.Module):
    """State since the last kick: `fresh` before its first step, `best` gradient norm, and number of `stale` steps."""

    progress: Progress
    proposal: Coordinates
    step: Coordinates
    predicted: Coordinates
    model: QuadraticModel
    radius: Float[Array, ""]
    length: Float[Array, ""]
    fresh: Bool[Array, ""]
    best: Float[Array, ""]
    stale: Int[Array, ""]
    kicks: Int[Array, ""]


class IndexNewton(AbstractSaddleSolver):
    """Newton's method towards a stationary point whose Hessian has `index` negative eigenvalues.

    The action is maximised along the `index` lowest eigenvectors of the Hessian, and minimised along all others. A step
    is accepted if the quadratic model predicted the next gradient well. If steps become so short that the iteration is
    trapped, as at a crossing of two eigenvalues, it restarts from a random point, which is farther away every time. The
    iteration ends at a stationary point, or after `options[MAX_STEPS]` steps. The problem must have a method `slopes`,
    and its metric must be the identity.

    Source: C. J. Cerjan, W. H. Miller, "On finding transition states", J. Chem. Phys. 75 (1981) 2800. The acceptance
    test for steps is ours.
    """

    index: int = eqx.field(static=True, default=0)
    near: float | None = eqx.field(static=True, default=None, converter=_checked_near)

    def start(self, problem, coordinates, progress):
        size, nothing, zero = len(coordinates), jnp.zeros_like(coordinates), jnp.array(0.0)
        model = QuadraticModel(nothing, nothing, jnp.zeros((size, size)))
        counts = jnp.array(True), jnp.array(jnp.inf), jnp.array(0), jnp.array(0)
        return _IndexState(progress, coordinates, nothing, nothing, model, jnp.array(_FIRST_RADIUS), zero, *counts)

    def step(self, fn, y, args, options, state, tags):
        problem = args
        # The magnitude of S is not needed here. Without it, XLA skips the evaluations that measure it.
        point = replace(problem.at(state.proposal), magnitude=jnp.array(0.0))
        # Error of the predicted gradient, relative to the predicted change of the gradient.
        change = jnp.linalg.norm(state.predicted - state.progress.point.details)
        error = jnp.linalg.norm(problem.slopes(y, state.step)[0] - state.predicted)
        error = error / jnp.maximum(change, jnp.finfo(change.dtype).tiny)
        error = jnp.where(state.fresh, 0.0, jnp.where(jnp.isfinite(error), error, jnp.inf))
        first = state.progress.evaluations == 0
        accepted = first | (point.is_finite & ((error < _REFUSED) | (point.gradient_norm <= self.atol)))
        # The error is proportional to the length of the step.
        fitting = state.length * jnp.clip(_AIM / jnp.maximum(error, _AIM / 4), 0.25, 2.0)
        keeps = state.fresh | (accepted & (error <= _AIM) & (state.length < 0.9 * state.radius))
        radius = jnp.where(keeps, state.radius, jnp.minimum(fitting, _LARGEST_RADIUS))

        best = jnp.where(state.fresh & accepted, point.gradient_norm, state.best)
        nearer = accepted & (state.fresh | (point.gradient_norm < _PROGRESS * best))
        stale, best = jnp.where(nearer, 0, state.stale + 1), jnp.where(nearer, point.gradient_norm, best)
        trapped = ~(best <= _CLOSE) & ((stale >= _STALE) | (radius < _TRAP))
        progress = state.progress.moved(point, accepted)
        # Rounding may keep the gradient above the tolerance close to a solution. There, count steps without progress,
        # which end the iteration.
        idle, curvatures = jnp.where(best <= _CLOSE, stale, 0), progress.curvatures + jnp.where(accepted, 1, 0)
        progress, here = replace(progress, idle=idle, curvatures=curvatures), progress.point
        model = jax.lax.cond(accepted, lambda: QuadraticModel.of(problem.expansion(here)), lambda: state.model)
        along, length = model.towards_index(self.index, radius)
        kicks = state.kicks + jnp.where(trapped, 1, 0)
        kick = jax.random.normal(jax.random.fold_in(jax.random.key(0), kicks), y.shape, dtype=float)
        step = jnp.where(trapped, kicks * kick, model.directions @ along)
        predicted = here.details + model.directions @ (model.curvatures * along)
        ahead, radius = problem.moved(here.coordinates, step), jnp.where(trapped, _FIRST_RADIUS, radius)
        counts = trapped, best, stale, kicks
        return here.coordinates, _IndexState(progress, ahead, step, predicted, model, radius, length, *counts), None
