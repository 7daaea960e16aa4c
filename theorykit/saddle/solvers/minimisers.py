"""Minimisers of an action, as Optimistix minimisers that know its structure.

They minimise the action of an `AbstractSaddleProblem`, which Optimistix hands them as `args`, or make it stationary.
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

from ...checks import checked_function, checked_number, checked_whole_number
from ..problem import AbstractSaddleProblem, Coordinates, Point, reach_of
from .anderson import AndersonMemory
from .quadratic_model import QuadraticModel

# the option of a minimisation that bounds its steps, a number or an array
MAX_STEPS = "max_steps"
# relative change of the action that is rounding
_ROUNDING = 1e-12
# steps without any progress after which rounding is all that is left
_PATIENCE = 6
# radius of the trust region at first and at most, in the affine-invariant metric: relative changes of order parameters
_RADIUS, _NARROWEST, _WIDEST = 10.0, 1e-8, 1e8
# sweeps before a Newton step is tried, at the start and after one that failed
_FIRST_SWEEPS, _SWEEPS = 4, 2
# fraction of the convex part of the data's term that combined sweeps bound to begin with: if they are to converge, and
# before Newton's method; the quickest on many problems
_SHARE, _NEWTON_SHARE = 0.25, 0.8
# change of a coordinate by a sweep below which Newton's method is quicker
_NEAR = 0.04
# for min-max points: radius at first, where the iteration is trapped, and at most
_FIRST_RADIUS, _TRAP, _LARGEST_RADIUS = 1.0, 1e-4, 1e6
# a gradient norm below which Newton's method converges, if rounding lets it
_CLOSE = 1e-6
# the iteration is trapped if in so many steps the gradient norm has not fallen below this part of the least before
_STALE, _PROGRESS = 30, 0.999
# error of the predicted change of the gradient, relative to that change: steps beyond the first are refused, after
# those beyond the second the next is shorter, after those below the last it may be longer
_REFUSED, _POOR, _GOOD = 0.5, 0.25, 0.1


def chosen(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """`yes` where `condition` holds, else `no`; leaf by leaf of two trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


class Progress(eqx.Module):
    """The present point of a solver, and its counts.

    `idle` counts steps since the gradient norm was last at its least, `best`, or the action fell beyond rounding.
    """

    point: Point
    evaluations: Int[Array, ""]
    curvatures: Int[Array, ""]
    best: Float[Array, ""]
    idle: Int[Array, ""]

    @property
    def rounding(self) -> Float[Array, ""]:
        """A change of S that may be rounding."""
        return _ROUNDING * (jnp.abs(self.point.action) + self.point.magnitude)

    def accepts(self, point: Point) -> Bool[Array, ""]:
        """Whether S does not rise at `point`, but for rounding."""
        first = self.evaluations == 0
        return first | (point.is_finite & (point.action <= self.point.action + self.rounding))

    def moved(self, point: Point, accepted: Bool[Array, ""], promising: Bool[Array, ""] | bool = False) -> "Progress":
        """After the evaluation of `point`, which replaces the present one if it is `accepted`.

        `promising`: whether a shorter step should do better than one that is not accepted.
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
    """A minimiser that takes an `AbstractSaddleProblem` as `args`; its state has a `progress`.

    `atol` is on the gradient norm in the affine-invariant metric, per scale. `options[MAX_STEPS]`, if given, bounds the
    steps. The end point of a solver with a `near` counts as found only if the next Newton step is at most `near` times
    the largest coordinate.
    """

    atol: float = eqx.field(default=1e-9, converter=partial(checked_number, "atol", above=0.0))
    rtol: float = eqx.field(default=0.0, converter=partial(checked_number, "rtol", least=0.0))
    norm: Callable = optx.max_norm

    def __check_init__(self):
        checked_function("norm", self.norm)

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        # before the first evaluation: any point is better
        shapes = eqx.filter_eval_shape(args.at, y)
        point = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.inf, leaf.dtype), shapes)
        return self.start(args, y, Progress(point, jnp.array(0), jnp.array(0), jnp.array(jnp.inf), jnp.array(0)))

    @abc.abstractmethod
    def start(self, problem: AbstractSaddleProblem, coordinates: Coordinates, progress: Progress) -> Any:
        """The state before the first evaluation, which is to be at `coordinates`."""

    def terminate(self, fn, y, args, options, state, tags):
        # Optimistix compiles again for every other `max_steps` that it is given itself
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
        """Whether the point is a solution, or no further step will make it one."""
        progress = state.progress
        stuck = (progress.idle >= _PATIENCE) | ~progress.point.is_finite
        return self._is_found(state) | ((progress.evaluations > 0) & stuck)

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        progress = state.progress
        stats = {"point": progress.point, "evaluations": progress.evaluations, "curvatures": progress.curvatures}
        if hasattr(state, "model"):
            stats["model"] = state.model
        return progress.point.coordinates, aux, stats


def end_of(problem: AbstractSaddleProblem, found: optx.Solution) -> dict[str, Any]:
    """The `point` at which a minimiser of Optimistix ended and, of those above, counts and the `model` there."""
    if "point" in found.stats:
        return found.stats
    return {"point": problem.at(found.value), "evaluations": jnp.array(0), "curvatures": jnp.array(0)}


class _Sweeps(eqx.Module):
    """Majorise-minimise sweeps that bound a `share`, combined by Anderson acceleration.

    If a combination raised the action, the plain sweep takes its place, memory is dropped, and the share doubled.
    `plain`: whether the last sweep was plain, so that only rounding can have made it fail.
    """

    share: Float[Array, ""]
    memory: AndersonMemory
    plain: Bool[Array, ""]

    @classmethod
    def combined(cls, share: float, memory: int, coordinates: int) -> "_Sweeps":
        # without memory sweeps are not combined, and bound all
        return cls(jnp.array(share if memory else 1.0), AndersonMemory.empty(memory, coordinates), jnp.array(False))

    def after(self, accepted: Bool[Array, ""]) -> tuple["_Sweeps", Array]:
        """The sweeps after a point that was `accepted` or not, and the share that the next one bounds."""
        share = jnp.where(accepted, self.share, jnp.minimum(2 * self.share, 1.0))
        return _Sweeps(share, self.memory, ~accepted), jnp.where(accepted, share, 1.0)

    def ahead(self, here: Point, swept: Coordinates) -> tuple[Coordinates, "_Sweeps"]:
        """The point to go to in place of `swept`, the end of a sweep from `here`; and the sweeps with it in memory."""
        # if so little is bounded that there is no minimum, the end of a sweep is not finite, and will be refused
        combines = ~self.plain & jnp.all(jnp.isfinite(swept))
        ahead, memory = self.memory.next_point(here.coordinates, jnp.where(combines, swept, here.coordinates))
        nothing = jax.tree.map(jnp.zeros_like, memory)
        return jnp.where(combines, ahead, swept), replace(self, memory=chosen(combines, memory, nothing))


class _NewtonState(eqx.Module):
    progress: Progress
    proposal: Coordinates
    model: QuadraticModel
    radius: Float[Array, ""]
    length: Float[Array, ""]
    lowered: Float[Array, ""]
    left: Int[Array, ""]
    sweeps: _Sweeps


class Newton(AbstractSaddleSolver):
    """Newton's method with exact curvature in a trust region, and majorise-minimise sweeps if they do better.

    The model's minimum within the region is found exactly, so that negative eigenvalues of the Hessian lead away from
    saddle points. There are sweeps, combined as in `AcceleratedSweeps`, to begin with and after a step that failed. If
    a skip connection leaves no closed form to sweep by, the region alone shrinks. The Hessian is formed at the end
    point too, as evidence. `near`: how short the next Newton step must be for the point to count as found, if at all.
    """

    near: float | None = eqx.field(static=True, default=None, converter=_checked_near)

    def start(self, problem, coordinates, progress):
        left, size = jnp.array(_FIRST_SWEEPS if problem.has_sweeps else 0), len(coordinates)
        model, zero = QuadraticModel(coordinates, coordinates, jnp.zeros((size, size))), jnp.array(0.0)
        sweeps = _Sweeps.combined(_NEWTON_SHARE, _FIRST_SWEEPS, size)
        return _NewtonState(progress, coordinates, model, jnp.array(_RADIUS), zero, zero, left, sweeps)

    def step(self, fn, y, args, options, state, tags):
        problem = args
        point = problem.at(state.proposal)
        accepted = state.progress.accepts(point)
        # wider after a step of full length that did what its model predicted, narrower after one that did not; if both
        # changes are rounding, the model is believed
        lowered = state.progress.point.action - point.action
        lowered = jnp.where(state.lowered > state.progress.rounding, lowered, state.lowered)
        narrower, as_predicted = lowered < state.lowered / 4, lowered > 3 * state.lowered / 4
        wider = as_predicted & (state.length > 0.9 * state.radius)
        radius = jnp.where(~accepted | narrower, state.length / 4, jnp.where(wider, 2 * state.radius, state.radius))
        was_newton = (state.left == 0) & (state.progress.evaluations > 0)
        radius = jnp.where(was_newton, jnp.minimum(radius, _WIDEST), state.radius)

        promising = (radius < state.radius) & (radius > _NARROWEST) & (state.lowered > state.progress.rounding)
        progress = state.progress.moved(point, accepted, promising)
        here = progress.point
        left, swept, sweeps = state.left, here.coordinates, state.sweeps
        if problem.has_sweeps:
            started, sweeping = state.progress.evaluations > 0, state.left > 0
            failed = jnp.where(sweeping, jnp.where(sweeps.plain, 0, left), _SWEEPS)
            left = jnp.where(accepted, jnp.where(started, jnp.maximum(left - 1, 0), left), failed)

            def sweep():
                sweeps, share = state.sweeps.after(accepted)
                end = problem.majorise_minimise(here, share)
                return end, *sweeps.ahead(here, end)

            # none if the minimum is near
            end, swept, sweeps = jax.lax.cond(
                left > 0, sweep, lambda: (here.coordinates, here.coordinates, state.sweeps)
            )
            near = accepted & (jnp.max(jnp.abs(end - here.coordinates)) < _NEAR)
            left = jnp.where(near, 0, left)
        newton = (left == 0) | self._is_finished(replace(state, progress=progress))
        # a step that failed leaves the point where it was, and its model
        renewed = newton & (accepted | (state.left > 0))
        model = jax.lax.cond(renewed, lambda: QuadraticModel.of(problem.expansion(here)), lambda: state.model)
        step, length, lowered = model.least_within(radius)
        ahead = jnp.where(newton, problem.moved(here.coordinates, step), swept)
        progress = replace(progress, curvatures=progress.curvatures + jnp.where(renewed, 1, 0))
        return here.coordinates, _NewtonState(progress, ahead, model, radius, length, lowered, left, sweeps), None


class _SweepState(eqx.Module):
    progress: Progress
    proposal: Coordinates
    sweeps: _Sweeps


class AcceleratedSweeps(AbstractSaddleSolver):
    """Majorise-minimise sweeps with Anderson acceleration: no curvature is ever formed, for very many paths.

    `memory` sweeps are combined; 0 is the plain sweep, which never raises the action and converges linearly. A
    combination that raises the action is dropped for the plain sweep, and the memory with it.
    """

    memory: int = eqx.field(static=True, default=10)

    def __check_init__(self):
        checked_whole_number("memory", self.memory, least=0)

    def start(self, problem, coordinates, progress):
        if not problem.has_sweeps:
            raise ValueError(
                "a skip connection leaves no closed form to sweep by; use Newton, or a minimiser of Optimistix"
            )
        return _SweepState(progress, coordinates, _Sweeps.combined(_SHARE, self.memory, len(coordinates)))

    def step(self, fn, y, args, options, state, tags):
        point = args.at(state.proposal)
        accepted = state.progress.accepts(point)
        progress, (sweeps, share) = state.progress.moved(point, accepted), state.sweeps.after(accepted)
        here = progress.point
        ahead, sweeps = sweeps.ahead(here, args.majorise_minimise(here, share))
        return here.coordinates, _SweepState(progress, ahead, sweeps), None


class _IndexState(eqx.Module):
    """Since the last kick: `fresh` if no step was taken yet, the `best` gradient norm, steps `stale`."""

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

    The action is maximised along as many of the lowest eigenvectors of the Hessian, and minimised along all others. A
    step is judged by how well the quadratic model predicted the gradient after it. If steps become so short that the
    iteration is trapped, as at a crossing of two eigenvalues, it restarts from a random point, farther away every time,
    so that it ends at a stationary point, or after `options[MAX_STEPS]` steps. The problem
    must have `slopes`, and a metric that is the identity.

    Source: C. J. Cerjan, W. H. Miller, "On finding transition states", J. Chem. Phys. 75 (1981) 2800; the judgement of
    steps is our own.
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
        point = problem.at(state.proposal)
        # how far the gradient is from the prediction, per change that was predicted
        change = jnp.linalg.norm(state.predicted - state.progress.point.details)
        error = jnp.linalg.norm(problem.slopes(y, state.step)[0] - state.predicted)
        error = error / jnp.maximum(change, jnp.finfo(change.dtype).tiny)
        error = jnp.where(state.fresh, 0.0, jnp.where(jnp.isfinite(error), error, jnp.inf))
        first = state.progress.evaluations == 0
        accepted = first | (point.is_finite & ((error < _REFUSED) | (point.gradient_norm <= self.atol)))
        longer = (error < _GOOD) & (state.length > 0.9 * state.radius)
        radius = jnp.where(longer, jnp.minimum(2 * state.radius, _LARGEST_RADIUS), state.radius)
        radius = jnp.where(accepted & (error <= _POOR), radius, state.length / 4)
        radius = jnp.where(state.fresh, state.radius, radius)

        best = jnp.where(state.fresh & accepted, point.gradient_norm, state.best)
        nearer = accepted & (state.fresh | (point.gradient_norm < _PROGRESS * best))
        stale, best = jnp.where(nearer, 0, state.stale + 1), jnp.where(nearer, point.gradient_norm, best)
        trapped = ~(best <= _CLOSE) & ((stale >= _STALE) | (radius < _TRAP))
        progress = state.progress.moved(point, accepted)
        # close to a solution that rounding keeps from the tolerance, steps without progress end the iteration
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
