"""Minimisers of an action, as Optimistix minimisers that know its structure.

They minimise the action of an `AbstractSaddleProblem`, which Optimistix hands them as `args`.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from ...checks import checked_function, checked_number, checked_whole_number
from ..problem import AbstractSaddleProblem, Coordinates, Point
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
# of the convex part of the data's term, what combined sweeps bound to begin with: where they are to converge, and
# before Newton's method; found quickest on many problems
_SHARE, _NEWTON_SHARE = 0.25, 0.8
# change of a coordinate by a sweep from which on Newton's method is quicker
_NEAR = 0.04


class Progress(eqx.Module):
    """The present point of a solver, and counts of its evaluations and steps.

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

        `promising`: whether a shorter step should do better than one that is not.
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


def chosen(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """`yes` where `condition` holds, else `no`; leaf by leaf of two trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


checked_atol, checked_rtol = partial(checked_number, "atol", above=0.0), partial(checked_number, "rtol", least=0.0)


def checked_near(near: float | None) -> float | None:
    """`near` of a solver as it came, or an error."""
    return None if near is None else checked_number("near", near, above=0.0)


def is_newton_step_near(near: float | None, state) -> Bool[Array, ""] | bool:
    """Whether the next Newton step of the state's model is at most `near` times the largest coordinate."""
    return near is None or state.model.newton_length() <= near * state.progress.point.reach


class AbstractSaddleSolver(optx.AbstractMinimiser):
    """A minimiser that takes a `AbstractSaddleProblem` as `args`; its state has a `progress`.

    `atol` is on the gradient norm in the affine-invariant metric, per largest width. `options[MAX_STEPS]`, if given,
    bounds the steps. The end point is also a solution only if `is_near` says so of the solver's state.
    """

    def is_near(self, state) -> Bool[Array, ""] | bool:
        """Whether the stationary point is near in the order parameters too, not only by the gradient."""
        return True

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
        # Optimistix compiles anew for every other `max_steps` of its own
        out_of_steps = state.progress.evaluations >= options.get(MAX_STEPS, jnp.inf)
        has_left = (state.progress.evaluations > 0) & args.has_left(state.progress.point.coordinates)
        stuck = self._is_finished(state) | has_left
        done, failed = stuck | out_of_steps, ~self._is_found(state)
        failure = optx.RESULTS.where(stuck, optx.RESULTS.nonlinear_divergence, optx.RESULTS.nonlinear_max_steps_reached)
        return done, optx.RESULTS.where(done & failed, failure, optx.RESULTS.successful)

    def _is_found(self, state) -> Bool[Array, ""]:
        return (state.progress.point.gradient_norm <= self.atol) & self.is_near(state)

    def _is_finished(self, state) -> Bool[Array, ""]:
        """Whether the point is a solution, or no further step will make it one."""
        progress = state.progress
        stuck = (progress.idle >= _PATIENCE) | ~progress.point.is_finite
        return self._is_found(state) | ((progress.evaluations > 0) & stuck)

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        progress = state.progress
        counts = {"evaluations": progress.evaluations, "curvatures": progress.curvatures}
        return progress.point.coordinates, aux, {"point": progress.point, **counts, **self.evidence(state)}

    def evidence(self, state) -> dict[str, Any]:
        """What the solver knows of the end point beside its gradient."""
        return {}


class _Sweeps(eqx.Module):
    """Majorise-minimise sweeps, combined by Anderson acceleration; `share` as `AbstractSaddleProblem.swept` takes it.

    Where a combination raised the action, the plain sweep takes its place, memory is dropped, and the share doubled.
    `plain`: whether the last one was plain, so that rounding alone can have made it fail.
    """

    share: Float[Array, ""]
    memory: AndersonMemory
    plain: Bool[Array, ""]

    @classmethod
    def combined(cls, share: float, memory: int, coordinates: int) -> "_Sweeps":
        """None made yet; with no memory sweeps are not combined, and bound all."""
        return cls(jnp.array(share if memory else 1.0), AndersonMemory.empty(memory, coordinates), jnp.array(False))

    def ahead(
        self, problem: AbstractSaddleProblem, here: Point, accepted: Bool[Array, ""]
    ) -> tuple[Coordinates, Coordinates, "_Sweeps"]:
        """Where a sweep from `here` ends, where to go instead, and the sweeps with this one in memory.

        `accepted`: whether `here` is where the sweep before led.
        """
        share = jnp.where(accepted, self.share, jnp.minimum(2 * self.share, 1.0))
        swept = problem.swept(here, jnp.where(accepted, share, 1.0))
        # where so little is bounded that nothing is least, the end of a sweep is not finite, and will be refused
        combines = accepted & jnp.all(jnp.isfinite(swept))
        ahead, memory = self.memory.next_point(here.coordinates, jnp.where(combines, swept, here.coordinates))
        nothing = jax.tree.map(jnp.zeros_like, memory)
        return swept, jnp.where(combines, ahead, swept), _Sweeps(share, chosen(combines, memory, nothing), ~accepted)


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
    """Newton's method with exact curvature in a trust region, and majorise-minimise sweeps where they do better.

    Steps are measured in the affine-invariant metric at each point, and the model's minimum within the region is found
    exactly, so that negative eigenvalues of the Hessian lead away from saddle points. Sweeps, combined as in
    `AcceleratedSweeps`, show how near the minimum is: there are some to begin with and after a step that failed. If
    a skip connection leaves no closed form to sweep by, the region alone shrinks. The Hessian is formed at the end
    point too, as evidence. `near`: how short the next Newton step must be for the point to count as found, if at all.
    """

    near: float | None = eqx.field(static=True, default=None, converter=checked_near)
    atol: float = eqx.field(default=1e-9, converter=checked_atol)
    rtol: float = eqx.field(default=0.0, converter=checked_rtol)
    norm: Callable = optx.max_norm

    def start(self, problem, coordinates, progress):
        left, size = jnp.array(_FIRST_SWEEPS if problem.has_sweeps else 0), len(coordinates)
        model, zero = QuadraticModel(coordinates, coordinates, jnp.zeros((size, size))), jnp.array(0.0)
        sweeps = _Sweeps.combined(_NEWTON_SHARE, _FIRST_SWEEPS, size)
        return _NewtonState(progress, coordinates, model, jnp.array(_RADIUS), zero, zero, left, sweeps)

    def step(self, fn, y, args, options, state, tags):
        problem = args
        point = problem.at(state.proposal)
        accepted = state.progress.accepts(point)
        radius = self._radius(state, point, accepted)
        promising = (radius < state.radius) & (radius > _NARROWEST) & (state.lowered > state.progress.rounding)
        progress = state.progress.moved(point, accepted, promising)
        here = progress.point
        left, swept, sweeps = self._sweeps(problem, state, here, accepted)
        newton = (left == 0) | self._is_finished(eqx.tree_at(lambda s: s.progress, state, progress))
        # a step that failed leaves the point where it was, and its model
        renewed = newton & (accepted | (state.left > 0))
        model = jax.lax.cond(renewed, lambda: QuadraticModel.of(problem.expansion(here)), lambda: state.model)
        step, length, lowered = model.least_within(radius)
        ahead = jnp.where(newton, problem.moved(here.coordinates, step), swept)
        progress = eqx.tree_at(lambda p: p.curvatures, progress, progress.curvatures + jnp.where(renewed, 1, 0))
        return here.coordinates, _NewtonState(progress, ahead, model, radius, length, lowered, left, sweeps), None

    def _radius(self, state: _NewtonState, point: Point, accepted) -> Float[Array, ""]:
        """Wider after a step of full length that did what its model said, narrower after one that did not."""
        lowered = state.progress.point.action - point.action
        # where both are rounding, the model is believed
        lowered = jnp.where(state.lowered > state.progress.rounding, lowered, state.lowered)
        narrower, as_said = lowered < state.lowered / 4, lowered > 3 * state.lowered / 4
        wider = as_said & (state.length > 0.9 * state.radius)
        radius = jnp.where(~accepted | narrower, state.length / 4, jnp.where(wider, 2 * state.radius, state.radius))
        was_newton = (state.left == 0) & (state.progress.evaluations > 0)
        return jnp.where(was_newton, jnp.minimum(radius, _WIDEST), state.radius)

    def _sweeps(self, problem: AbstractSaddleProblem, state: _NewtonState, here: Point, accepted):
        """How many sweeps are to come, where the next leads, and the sweeps; none where the minimum is near."""
        if not problem.has_sweeps:
            return state.left, here.coordinates, state.sweeps
        started, sweeping = state.progress.evaluations > 0, state.left > 0
        left = jnp.where(accepted & started, jnp.maximum(state.left - 1, 0), state.left)
        failed = jnp.where(sweeping, jnp.where(state.sweeps.plain, 0, left), _SWEEPS)
        left = jnp.where(accepted, left, failed)
        swept, ahead, sweeps = jax.lax.cond(
            left > 0,
            lambda: state.sweeps.ahead(problem, here, accepted),
            lambda: (here.coordinates, here.coordinates, state.sweeps),
        )
        near = accepted & (jnp.max(jnp.abs(swept - here.coordinates)) < _NEAR)
        return jnp.where(near, 0, left), ahead, sweeps

    def is_near(self, state):
        return is_newton_step_near(self.near, state)

    def evidence(self, state):
        return {"model": state.model}


class _SweepState(eqx.Module):
    progress: Progress
    proposal: Coordinates
    sweeps: _Sweeps


class AcceleratedSweeps(AbstractSaddleSolver):
    """Majorise-minimise sweeps with Anderson acceleration: no curvature is ever formed, for very many paths.

    `memory` is how many sweeps are combined; 0 is the plain sweep, which never raises the action and converges
    linearly. Sweeps that are combined bound a part of the data's term only, see `AbstractSaddleProblem.swept`. A
    combination that raises the action is dropped for the plain sweep, and the memory with it.
    """

    memory: int = eqx.field(static=True, default=10)
    atol: float = eqx.field(default=1e-9, converter=checked_atol)
    rtol: float = eqx.field(default=0.0, converter=checked_rtol)
    norm: Callable = optx.max_norm

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
        progress = state.progress.moved(point, accepted)
        _, ahead, sweeps = state.sweeps.ahead(args, progress.point, accepted)
        return progress.point.coordinates, _SweepState(progress, ahead, sweeps), None
