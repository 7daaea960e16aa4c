"""Cycles of a smooth map, stable or not: their multipliers, branches and bifurcations.

The map is `step(state, parameter) -> state`, any function that JAX can differentiate, with a
state of shape (state,). Pass the same function again, so that it is compiled once.

All points of a cycle are unknowns (multiple shooting), so that the equations are as well
conditioned as one step of the map.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import xarray as xr
from jaxtyping import Array, Complex, Float

from .._compat import require_float64
from .._jit import jit
from ..checks import checked_array, checked_instance, checked_number, checked_whole_number, refuse_traced
from ..curve import System, trace
from ..curve.system import BRANCH_POINT, SINGULAR, Unknowns, corrected, slope_at
from ..curve.tracing import labelled
from .orbits import Step, advance, checked_state

PERIOD_DOUBLING, NEIMARK_SACKER = "period doubling", "Neimark-Sacker"
# Largest distances relative to the largest coordinate or one: of a solved cycle from its
# image, of points that are equal, of an orbit from its return, and from a cycle it is on.
_SOLVED, _EQUAL, _RETURNS, _BESIDE = 1e-12, 1e-7, 1e-6, 1e-3
# Distances from the unit circle below this are rounding.
_ON_CIRCLE = 1e-9


class Cycles(System):
    """Equations of the cycles of a map, for `theorykit.curve`.

    - `step`: the map.
    - `period`: the period. The unknowns are all points, flattened, and the parameter.
    """

    axes: ClassVar = {
        "points": ("time", "state"),
        "multiplier_modulus": ("multiplier",),
        "multiplier_angle": ("multiplier",),
    }
    step: Step
    period: int = eqx.field(static=True)

    def points(self, u: Unknowns) -> Float[Array, "period state"]:
        return u[:-1].reshape(self.period, -1)

    def residual(self, u):
        points = self.points(u)
        return (jax.vmap(self.step, (0, None))(points, u[-1]) - jnp.roll(points, -1, 0)).ravel()

    def multipliers(self, u: Unknowns) -> Complex[Array, " state"]:
        points = self.points(u)
        jacobians = jax.vmap(jax.jacfwd(self.step), (0, None))(points, u[-1])
        product, _ = jax.lax.scan(lambda m, jacobian: (jacobian @ m, None), jnp.eye(points.shape[1]), jacobians)
        # Second derivatives of events need those of eigenvectors.
        found = jax.lax.linalg.eig(product, compute_left_eigenvectors=False, enable_eigvec_derivs=True)[0]
        return found[jnp.lexsort((-found.imag, -jnp.abs(found)))]

    def tests(self, u, tangent):
        # Excess over the circle. Other kinds are inside, or a pair below -1.
        found = self.multipliers(u)
        tests = {
            SINGULAR: jnp.where(found.imag == 0, found.real - 1, -1.0),
            PERIOD_DOUBLING: jnp.where(found.imag == 0, -1 - found.real, jnp.where(found.real < -1, 1.0, -1.0)),
            NEIMARK_SACKER: jnp.where(found.imag > 0, jnp.abs(found) - 1, -1.0),
        }
        return jax.tree.map(jnp.sort, tests)

    def seen(self, u):
        multipliers = self.multipliers(u)
        return {
            "parameter": u[-1],
            "points": self.points(u),
            "multiplier_modulus": jnp.abs(multipliers),
            "multiplier_angle": jnp.angle(multipliers),
            "stable": jnp.abs(multipliers[0]) < 1 - _ON_CIRCLE,
        }

    def units(self, u):
        # Distances are root mean squares over points.
        return jnp.full_like(u, np.sqrt(self.period)).at[-1].set(1.0)

    def ends(self, kind, u):
        is_multiple = kind == BRANCH_POINT and _shortest_period(self.points(u)) < self.period
        return "the branch meets the cycles that it doubles" if is_multiple else ""


def find_cycle(step: Step, guess: Any, parameter: float, period: int) -> xr.Dataset:
    """Find the cycle near a guess, stable or not, by Newton's method in a trust region.

    Args:
        step: The map.
        guess: Points of the cycle (period, state), or its first point (state,).
        parameter: Value of the parameter.
        period: Number of steps after which the cycle first repeats.

    Returns:
        The records of `follow`, of one cycle.

    Raises:
        RuntimeError: If Newton's method does not end on a cycle of this period.
    """
    states = _checked(step, guess, parameter, "guess")
    period = checked_whole_number("period", period, least=1)
    if states.ndim == 1:
        states = _orbit(step, states, float(parameter), period)
    if states.ndim != 2 or len(states) != period:
        raise ValueError(f"guess must have shape (state,) or ({period}, state), got {states.shape}")
    system, where = Cycles(step, period), f"at parameter {float(parameter):.12g}"
    u, residual = _solved(system, jnp.append(states, parameter))
    points = system.points(u)
    if not residual <= _SOLVED * _scale(points):
        raise RuntimeError(f"no cycle of period {period} was found {where}: Newton's residual is {residual:.3g}")
    if (shortest := _shortest_period(points)) < period:
        raise RuntimeError(f"the cycle {where} has period {shortest}, not {period}")
    return labelled(system, [(u, "")]).isel(point=0)


@jit
def _solved(system, guess):
    def residual(points, parameter):
        return system.residual(jnp.append(points, parameter))

    solver = optx.Dogleg(1e-10, 1e-10)
    found = optx.root_find(residual, solver, guess[:-1], guess[-1], throw=False, max_steps=100)
    axis = jnp.zeros_like(guess).at[-1].set(1.0)
    u = corrected(system, jnp.append(found.value, guess[-1]), axis).u
    return u, jnp.max(jnp.abs(system.residual(u)))


def cycle_near(step: Step, start: Any, parameter: float, max_period: int, *, transient: int = 10_000) -> xr.Dataset:
    """Find the stable cycle on which an orbit settles, and refine it by Newton's method.

    Args:
        step: The map.
        start: First state (state,) of the orbit.
        parameter: Value of the parameter.
        max_period: Largest period to consider.
        transient: Number of steps to discard.

    Returns:
        The records of `follow`, of one cycle.

    Raises:
        RuntimeError: If the orbit has not settled on a cycle.
    """
    state = _checked(step, start, parameter, "start")
    most = checked_whole_number("max_period", max_period, least=1)
    if state.ndim != 1:
        raise ValueError(f"start must be one state, (state,), got shape {state.shape}")
    state = advance(step, state, float(parameter), transient)
    orbit = np.asarray(_orbit(step, state, float(parameter), 2 * most))
    where = f"the orbit at parameter {float(parameter):.12g}"
    if not np.all(np.isfinite(orbit)):
        raise RuntimeError(f"{where} escapes to infinity")
    # The orbit must return for `max_period` steps.
    returns = [np.max(np.abs(orbit[lag:][:most] - orbit[:most])) for lag in range(1, most + 1)]
    if np.min(returns) > (near := _RETURNS * _scale(orbit)):
        raise RuntimeError(f"{where} does not return to within {near:.3g} in {most} steps")
    period = 1 + int(np.argmax(np.array(returns) <= near))
    cycle = find_cycle(step, orbit[:period], parameter, period)
    apart = np.max(np.abs(cycle["points"].values - orbit[:period]))
    if apart > _BESIDE * _scale(orbit) or not cycle["stable"]:
        raise RuntimeError(f"{where} has not settled: it is {apart:.3g} from a cycle")
    return cycle


def follow(
    step: Step,
    cycle: xr.Dataset,
    bounds: Sequence[float],
    *,
    direction: int = 1,
    largest_step: float | None = None,
) -> xr.Dataset:
    """Follow the branch of cycles through `cycle`, stable or not, including around folds.

    `curve.refine(dynamics.Cycles(step, period), event)` differentiates an event.

    Args:
        step: The map.
        cycle: The start, of `find_cycle` or another branch.
        bounds: Lowest and highest value of the parameter.
        direction: 1 towards larger parameters, -1 towards smaller ones, 0 for both.
        largest_step: Largest step in the parameter and the root mean square of the points, by
            default a 20th of the bounds.

    Returns:
        The cycles in order along the axis `point` (see `curve.trace`): `parameter`, `points`
        (time, state), `stable`, and the modulus and angle of the multipliers, which are the
        eigenvalues of the product of the Jacobians, by decreasing modulus. All have the
        absolute rounding error of the largest. `event` is "" or the kind of event:

        - "period doubling": a multiplier passes through -1 (`double_period`).
        - "Neimark-Sacker": a conjugate pair crosses the unit circle, and a torus branches off.
        - "fold", "branch point": a multiplier passes through 1.

    Raises:
        ValueError: If `cycle` is not a cycle of `step`, or out of bounds.
    """
    checked_instance("cycle", cycle, xr.Dataset)
    points = _checked(step, cycle["points"].values, cycle["parameter"].item(), "cycle")
    system, start = Cycles(step, len(points)), np.append(points, cycle["parameter"])
    off = np.max(np.abs(system.residual(jnp.asarray(start))))
    if not off <= _BESIDE * _scale(points):
        raise ValueError(f"cycle is not one of step, which misses a point by {off:.3g}")
    return trace(system, start, bounds, direction=direction, largest_step=largest_step)


def double_period(step: Step, event: xr.Dataset, *, amplitude: float = 1e-2) -> xr.Dataset:
    """Find the cycle of twice the period that branches off at a period doubling.

    Args:
        step: The map.
        event: The period doubling: one event of `follow`, such as `branch.isel(point=5)`.
        amplitude: Half the largest distance between both halves of the cycle, relative to the
            largest coordinate of the event or one.

    Returns:
        The records of `follow`, of one cycle.

    Raises:
        ValueError: If `event` is not one period doubling.
        RuntimeError: If no other cycle is found.
    """
    if checked_instance("event", event, xr.Dataset)["event"].ndim or event["event"].item() != PERIOD_DOUBLING:
        raise ValueError(f"event must be one period doubling, got {event['event'].values}")
    checked_number("amplitude", amplitude, above=0.0)
    points = _checked(step, event["points"].values, event["parameter"].item(), "event")
    period, system = len(points), Cycles(step, 2 * len(points))
    twice = np.append([points, points], event["parameter"])
    # Along the branch that crosses, both halves move in opposite directions.
    _, _, null = np.linalg.svd(slope_at(system, twice))
    halves = null[-2:, :-1].reshape(2, 2, *points.shape)
    opposite = max(halves[:, 0] - halves[:, 1], key=np.linalg.norm)
    lengths = np.linalg.norm(opposite, axis=1)
    opposite /= lengths.max()
    guess = twice + amplitude * _scale(points) * np.append([opposite, -opposite], 0.0)
    # Fix the amplitude where they part most.
    opposite[lengths < lengths.max()] = 0.0
    place = corrected(system, guess, np.append([opposite, -opposite], 0.0))
    if not place.is_near() or _shortest_period(system.points(place.u)) <= period:
        raise RuntimeError(f"no cycle of period {2 * period} was found at the amplitude {amplitude}: try another one")
    return find_cycle(step, system.points(place.u), place.u[-1], 2 * period)


def _checked(step, state, parameter, name):
    """Return states (..., state), after a check that `step` takes them."""
    require_float64()
    reason = "need a loop in Python (`curve.refine` finds one event again in JAX)"
    refuse_traced("cycles of a map", step, state, parameter, reason=reason)
    states = jnp.atleast_1d(checked_array(name, state))
    checked_number("parameter", parameter)
    if 0 in states.shape:
        raise ValueError(f"{name} must have entries, got shape {states.shape}")
    checked_state(name, states.reshape(-1, states.shape[-1])[0], step, float(parameter))
    return states


def _scale(points):
    return max(1.0, float(np.max(np.abs(points))))


def _shortest_period(points):
    """Return the smallest divisor of the period after which `points` repeat."""
    cycle = np.asarray(points)
    for lag in range(1, len(cycle)):
        off = np.max(np.abs(np.roll(cycle, -lag, axis=0) - cycle))
        if len(cycle) % lag == 0 and off <= _EQUAL * _scale(cycle):
            return lag
    return len(cycle)


@jit
def _orbit(step, state, parameter, length):
    _, states = jax.lax.scan(lambda here, _: (step(here, parameter), here), state, length=length)
    return states
