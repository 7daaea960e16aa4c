"""Minimisers of the action, as Optimistix minimisers that know its structure.

Part of stage 4 of `Architecture -> derive -> symbolic Action -> codegen -> compiled function -> solve -> predict`. They
minimise the action of a `SaddleProblem`, which Optimistix hands them as `args`; `solve` does.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from ..arguments import checked_function, checked_number, checked_whole_number
from .coordinates import Coordinates
from .problem import Expansion, Point, SaddleProblem

# relative change of the action that is rounding
_ROUNDING = 1e-12
# steps without any progress after which rounding is all that is left
_PATIENCE = 6
# largest change of a coordinate in a Newton step; they are logarithmic, or in units of the prior's deviation
_LONGEST = 4.0
# of the largest eigenvalue, added to all others after a Newton step that failed; ten times more after each other
_DAMPING = 1e-3
# sweeps before a Newton step is tried, at the start and after one that failed
_SWEEPS = 2
# change of a coordinate by a sweep from which on Newton's method is quicker
_NEAR = 0.04


class Progress(eqx.Module):
    """Where a solver stands, and what it has spent.

    `idle` counts steps since the gradient norm was last at its least, `best`, or the action fell beyond rounding.
    """

    point: Point
    evaluations: Int[Array, ""]
    curvatures: Int[Array, ""]
    best: Float[Array, ""]
    idle: Int[Array, ""]

    @classmethod
    def nowhere(cls, problem: SaddleProblem, coordinates: Coordinates) -> "Progress":
        """Before the first evaluation: any point is better."""
        shapes = eqx.filter_eval_shape(problem.at, coordinates)
        point = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.inf, leaf.dtype), shapes)
        return cls(point, jnp.array(0), jnp.array(0), jnp.array(jnp.inf), jnp.array(0))

    def accepts(self, point: Point) -> Bool[Array, ""]:
        """Whether S does not rise at `point`, but for rounding."""
        here = self.point
        slack = _ROUNDING * (jnp.abs(here.action) + here.energy.magnitude)
        first = self.evaluations == 0
        return first | (point.is_finite & (point.action <= here.action + slack))

    def moved(self, point: Point, accepted: Bool[Array, ""]) -> "Progress":
        """After the evaluation of `point`, which replaces the present one if it is `accepted`."""
        lower = point.action < self.point.action - _ROUNDING * jnp.abs(self.point.action)
        improved = accepted & ((point.gradient_norm < self.best) | lower)
        return Progress(
            point=chosen(accepted, point, self.point),
            evaluations=self.evaluations + 1,
            curvatures=self.curvatures,
            best=jnp.where(accepted, jnp.fmin(self.best, point.gradient_norm), self.best),
            idle=jnp.where(improved, 0, self.idle + 1),
        )


def chosen(condition: Bool[Array, ""], yes: Any, no: Any) -> Any:
    """One of two trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


class AbstractSaddleSolver(optx.AbstractMinimiser):
    """A minimiser that takes a `SaddleProblem` as `args`; its state has a `progress`.

    `atol` is on the gradient norm in the affine-invariant metric, per largest width.
    """

    def __check_init__(self):
        checked_number("atol", self.atol, above=0.0)
        checked_number("rtol", self.rtol, least=0.0)
        checked_function("norm", self.norm)

    def terminate(self, fn, y, args, options, state, tags):
        point, started = state.progress.point, state.progress.evaluations > 0
        converged = point.gradient_norm <= self.atol
        stuck = started & ((state.progress.idle >= _PATIENCE) | ~point.is_finite)
        done = converged | stuck
        failed = done & ~converged
        return done, optx.RESULTS.where(failed, optx.RESULTS.nonlinear_divergence, optx.RESULTS.successful)

    def postprocess(self, fn, y, aux, args, options, state, tags, result):
        progress = state.progress
        counts = {"evaluations": progress.evaluations, "curvatures": progress.curvatures}
        return progress.point.coordinates, aux, {"point": progress.point, **counts, **self.evidence(state)}

    def evidence(self, state) -> dict[str, Any]:
        """What the solver knows of the end point beside its gradient."""
        return {}


class _NewtonState(eqx.Module):
    progress: Progress
    proposal: Coordinates
    expansion: Expansion
    sweeps: Int[Array, ""]
    damping: Float[Array, ""]


class Newton(AbstractSaddleSolver):
    """Majorise-minimise sweeps to begin with and where Newton's method fails; Newton's method with exact curvature.

    A sweep never raises the action, and shows how near the minimum is; where a straight branch leaves no closed form to
    sweep by, damping alone shortens Newton steps that fail. Negative eigenvalues of the Hessian count as positive: that
    leads away from saddle points. The Hessian is formed at the end point too, as evidence.
    """

    atol: float = 1e-9
    rtol: float = 0.0
    norm: Callable = optx.max_norm

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        sweeps = jnp.array(_SWEEPS if args.has_sweeps else 0)
        square = jnp.zeros((len(y), len(y)))
        return _NewtonState(Progress.nowhere(args, y), y, Expansion(y, square, square), sweeps, jnp.array(0.0))

    def step(self, fn, y, args, options, state, tags):
        problem = args
        point = problem.at(state.proposal)
        accepted = state.progress.accepts(point)
        progress = state.progress.moved(point, accepted)
        here = progress.point
        damping = self._damping(state, accepted)
        sweeps, swept = self._sweeps(problem, state, here, accepted, damping)
        newton = (sweeps == 0) | (here.gradient_norm <= self.atol)
        expansion, ahead = jax.lax.cond(
            newton, lambda: self._newton(problem, here, damping), lambda: (state.expansion, swept)
        )
        progress = eqx.tree_at(lambda p: p.curvatures, progress, progress.curvatures + jnp.where(newton, 1, 0))
        return here.coordinates, _NewtonState(progress, ahead, expansion, sweeps, damping), None

    def _damping(self, state: _NewtonState, accepted):
        """Ten times more after a Newton step that failed, ten times less after one that did not."""
        kept = jnp.where(state.sweeps > 0, state.damping, state.damping / 10)
        damping = jnp.where(accepted, kept, 10 * state.damping + _DAMPING)
        return jnp.where(damping < _DAMPING, 0.0, damping)

    def _sweeps(self, problem: SaddleProblem, state: _NewtonState, here: Point, accepted, damping):
        """How many sweeps are to come, and where the next leads; none where the minimum is seen to be near."""
        if not problem.has_sweeps:
            return state.sweeps, here.coordinates
        started = state.progress.evaluations > 0
        left = jnp.where(accepted & started, jnp.maximum(state.sweeps - 1, 0), state.sweeps)
        left = jnp.where(accepted, left, jnp.where(state.sweeps > 0, 0, _SWEEPS))
        swept = jax.lax.cond(left > 0, lambda: problem.swept(here), lambda: here.coordinates)
        # not where a Newton step has failed of late
        near = accepted & (damping == 0) & (jnp.max(jnp.abs(swept - here.coordinates)) < _NEAR)
        return jnp.where(near, 0, left), swept

    def evidence(self, state):
        return {"expansion": state.expansion}

    def _newton(self, problem: SaddleProblem, here: Point, damping):
        """The action to second order, and the Newton step; away from negative curvature, and not too far at once."""
        expansion = problem.expansion(here)
        eigenvalues, vectors = jnp.linalg.eigh(expansion.hessian)
        size = jnp.abs(eigenvalues)
        scale = jnp.max(size)
        safe = jnp.maximum(size, 1e-12 * scale) + damping * scale
        step = vectors @ ((vectors.T @ expansion.gradient) / safe)
        length = jnp.max(jnp.abs(step))
        return expansion, here.coordinates - step * jnp.minimum(1.0, _LONGEST / length)


class _SweepState(eqx.Module):
    progress: Progress
    proposal: Coordinates
    swept: Coordinates
    points: Float[Array, "memory coordinates"]
    changes: Float[Array, "memory coordinates"]
    filled: Int[Array, ""]


class AcceleratedSweeps(AbstractSaddleSolver):
    """Majorise-minimise sweeps with Anderson acceleration: no curvature is ever formed, for very many paths.

    `memory` is how many sweeps are combined; 0 is the plain sweep, which never raises the action and converges
    linearly. A combination that raises the action is dropped for the sweep, and the memory with it.
    """

    memory: int = eqx.field(static=True, default=10)
    atol: float = 1e-9
    rtol: float = 0.0
    norm: Callable = optx.max_norm

    def __check_init__(self):
        checked_whole_number("memory", self.memory, least=0)

    def init(self, fn, y, args, options, f_struct, aux_struct, tags):
        if not args.has_sweeps:
            raise ValueError(
                "a straight branch leaves no closed form to sweep by; use Newton, or a minimiser of Optimistix"
            )
        empty = jnp.zeros((self.memory, len(y)))
        return _SweepState(Progress.nowhere(args, y), y, y, empty, empty, jnp.array(0))

    def step(self, fn, y, args, options, state, tags):
        problem = args
        point = problem.at(state.proposal)
        accepted = state.progress.accepts(point)
        progress = state.progress.moved(point, accepted)
        here = progress.point.coordinates
        swept = jnp.where(accepted, problem.swept(progress.point), state.swept)
        # after a combination that failed: the sweep that it was to better
        filled = jnp.where(accepted, state.filled, 0)
        change = swept - here
        proposal = swept - self._correction(state, filled, here, change)
        points = jnp.roll(state.points, 1, axis=0).at[:1].set(here)
        changes = jnp.roll(state.changes, 1, axis=0).at[:1].set(change)
        filled = jnp.minimum(filled + 1, self.memory)
        return here, _SweepState(progress, proposal, swept, points, changes, filled), None

    def _correction(self, state: _SweepState, filled, here, change):
        used = (jnp.arange(self.memory) < filled)[:, None]
        of_changes = jnp.where(used, change - state.changes, 0.0)
        of_points = jnp.where(used, here - state.points, 0.0)
        weights, *_ = jnp.linalg.lstsq(of_changes.T, change, rcond=1e-10)
        return weights @ (of_points + of_changes)
