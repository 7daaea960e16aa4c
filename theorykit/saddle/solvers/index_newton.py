"""Newton's method for stationary points of a stated signature: min-max points as well as minima.

Along the lowest eigenvectors of the Hessian, as many as the signature has negative directions, the action is maximised,
along all others minimised. There is no function that falls: a step is judged by how well the quadratic model foretold
the gradient after it.

Source: C. J. Cerjan, W. H. Miller, "On finding transition states", J. Chem. Phys. 75 (1981) 2800; the judgement of
steps is our own.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, Int

from ..problem import Coordinates, Point
from .minimisers import (
    AbstractSaddleSolver,
    Progress,
    checked_atol,
    checked_near,
    checked_rtol,
    is_newton_step_near,
)
from .quadratic_model import QuadraticModel

# radius of the trust region at first, where the iteration is trapped, and at most, in the metric of the domains
_RADIUS, _NARROWEST, _WIDEST = 1.0, 1e-4, 1e6
# a gradient norm from which on Newton's method converges, if rounding lets it
_NEAR = 1e-6
# the iteration is trapped if in so many steps the gradient norm has not fallen below this part of the least before
_STALE, _PROGRESS = 30, 0.999
# error of the foretold change of the gradient, relative to that change: steps beyond the first are refused, after those
# beyond the second the next is shorter, after those below the last it may be longer
_REFUSED, _POOR, _GOOD = 0.5, 0.25, 0.1


class _Leg(eqx.Module):
    """The iteration since its start, or since its last kick.

    `best` is the least gradient norm, and `stale` counts the steps since it last fell. `fresh`: no step was taken yet.
    """

    fresh: Bool[Array, ""]
    best: Float[Array, ""]
    stale: Int[Array, ""]

    def after(self, point: Point, accepted: Bool[Array, ""]) -> "_Leg":
        """The leg with one more evaluation."""
        best = jnp.where(self.fresh & accepted, point.gradient_norm, self.best)
        nearer = accepted & (self.fresh | (point.gradient_norm < _PROGRESS * best))
        stale = jnp.where(nearer, 0, self.stale + 1)
        return _Leg(jnp.array(False), jnp.where(nearer, point.gradient_norm, best), stale)

    def is_trapped(self, radius: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether steps lead nowhere, far from a solution."""
        return ~(self.best <= _NEAR) & ((self.stale >= _STALE) | (radius < _NARROWEST))


class _State(eqx.Module):
    progress: Progress
    proposal: Coordinates
    step: Coordinates
    foretold: Coordinates
    model: QuadraticModel
    radius: Float[Array, ""]
    length: Float[Array, ""]
    leg: _Leg
    kicks: Int[Array, ""]


class IndexNewton(AbstractSaddleSolver):
    """Newton's method towards a stationary point whose Hessian has `index` negative eigenvalues.

    `atol` is on the gradient norm per scale. The problem must have `slope_after`, and a metric that is the identity.
    Where steps become so short that the iteration is trapped, as where two eigenvalues of the Hessian cross, it goes on
    from a random point, farther off every time; so it ends at a stationary point, or after `options[MAX_STEPS]` steps.
    """

    index: int = eqx.field(static=True, default=0)
    near: float | None = eqx.field(static=True, default=None, converter=checked_near)
    atol: float = eqx.field(default=1e-9, converter=checked_atol)
    rtol: float = eqx.field(default=0.0, converter=checked_rtol)
    norm: Callable = optx.max_norm

    def start(self, problem, coordinates, progress):
        size = len(coordinates)
        nothing = jnp.zeros(size)
        model = QuadraticModel(nothing, nothing, jnp.zeros((size, size)))
        leg = _Leg(jnp.array(True), jnp.array(jnp.inf), jnp.array(0))
        radius, zero, none = jnp.array(_RADIUS), jnp.array(0.0), jnp.array(0)
        return _State(progress, coordinates, nothing, nothing, model, radius, zero, leg, none)

    def step(self, fn, y, args, options, state, tags):
        problem, first = args, state.progress.evaluations == 0
        point = problem.at(state.proposal)
        error = jnp.where(state.leg.fresh, 0.0, self._error(problem, y, point, state))
        accepted = first | (point.is_finite & ((error < _REFUSED) | (point.gradient_norm <= self.atol)))
        radius, leg = self._radius(state, error, accepted), state.leg.after(point, accepted)
        trapped = leg.is_trapped(radius)
        progress = state.progress.moved(point, accepted)
        # near a solution that rounding keeps from the tolerance, steps without progress end the iteration
        progress = eqx.tree_at(lambda p: p.idle, progress, jnp.where(leg.best <= _NEAR, leg.stale, 0))
        here = progress.point
        model = jax.lax.cond(accepted, lambda: QuadraticModel.of(problem.expansion(here)), lambda: state.model)
        progress = eqx.tree_at(lambda p: p.curvatures, progress, progress.curvatures + jnp.where(accepted, 1, 0))
        along, length = model.towards_index(self.index, radius)
        kicks = state.kicks + jnp.where(trapped, 1, 0)
        step = jnp.where(trapped, _kick(kicks, len(y)), model.directions @ along)
        foretold = here.details + model.directions @ (model.curvatures * along)
        ahead, radius = problem.moved(here.coordinates, step), jnp.where(trapped, _RADIUS, radius)
        leg = eqx.tree_at(lambda leg: leg.fresh, leg, trapped)
        return here.coordinates, _State(progress, ahead, step, foretold, model, radius, length, leg, kicks), None

    def _radius(self, state: _State, error: Array, accepted: Array) -> Float[Array, ""]:
        """Wider after a step of full length that led where it was to lead, narrower after one that did not."""
        longer = (error < _GOOD) & (state.length > 0.9 * state.radius)
        radius = jnp.where(longer, jnp.minimum(2 * state.radius, _WIDEST), state.radius)
        radius = jnp.where(accepted & (error <= _POOR), radius, state.length / 4)
        return jnp.where(state.leg.fresh, state.radius, radius)

    def _error(self, problem, start: Coordinates, point, state: _State) -> Float[Array, ""]:
        """How far the gradient after the step is from what the model foretold, per change that it foretold."""
        found = problem.slope_after(start, state.step)
        change = jnp.linalg.norm(state.foretold - state.progress.point.details)
        error = jnp.linalg.norm(found - state.foretold) / jnp.maximum(change, jnp.finfo(change.dtype).tiny)
        return jnp.where(jnp.isfinite(error), error, jnp.inf)

    def is_near(self, state):
        return is_newton_step_near(self.near, state)

    def evidence(self, state):
        return {"model": state.model}


def _kick(number: Array, size: int) -> Coordinates:
    """A random step, `number` times the length of the first."""
    return number * jax.random.normal(jax.random.fold_in(jax.random.key(0), number), (size,), dtype=float)
