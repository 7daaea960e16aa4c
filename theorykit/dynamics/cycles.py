"""Cycles of a smooth map, stable or not: their multipliers, their branches and bifurcations.

The map is `step(state, parameter) -> state`, any function that JAX can differentiate, with a state of shape (state,).
Pass the same function every time, so that it is compiled once. Keep its arrays in an Equinox module.

All points of a cycle are unknowns (multiple shooting). These equations are as well conditioned as one step of the map.
"""

from collections.abc import Callable, Sequence
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
from ..checks import checked_array, checked_number, checked_whole_number, refuse_traced
from ..curve import BRANCH_POINT, FOLD, System, trace
from ..curve.system import SINGULAR, Unknowns, corrected, slope_at

Step = Callable[[Array, Array], Array]
"""One step of a smooth map: a function of a state vector and a parameter, a number, that returns the next state."""

PERIOD_DOUBLING, NEIMARK_SACKER = "period doubling", "Neimark-Sacker"
# A cycle is solved if its defect is below this, relative to its largest coordinate.
_SOLVED = 1e-12
# Distances from the unit circle below this are rounding.
_ON_CIRCLE = 1e-9
# Points coincide up to rounding if they are closer than this, relative to the largest coordinate.
_COINCIDE = 1e-7
# An orbit has settled on a cycle if its distance from the cycle is below this, relative to the largest coordinate.
_BESIDE = 1e-3


class NoCycleError(RuntimeError):
    """No cycle was found, or none of the given period."""


class Cycle(eqx.Module):
    """Cycle of the map.

    - `points` (period, state): points of the cycle, in order. The first is the image of the last.
    - `multipliers` (state,): eigenvalues of the product of the Jacobians, by decreasing modulus. All have the absolute
      rounding error of the largest.
    """

    points: Float[Array, "period state"]
    parameter: Float[Array, ""]
    multipliers: Complex[Array, " state"]

    @property
    def period(self) -> int:
        return len(self.points)

    @property
    def is_stable(self) -> bool:
        """Whether all multipliers are inside the unit circle."""
        return bool(np.abs(self.multipliers[0]) < 1)


class Cycles(System):
    """Equations of the cycles of a map, for `theorykit.curve`.

    - `step`: the map. To differentiate an event, keep other parameters as arrays of an Equinox module.
    - `period`: the period. The unknowns are all points (period, state), flattened, and the parameter.
    """

    axes: ClassVar = {"points": ("time", "state")} | dict.fromkeys(
        ("multiplier_modulus", "multiplier_angle"), ("multiplier",)
    )
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
        # Second derivatives of events need derivatives of eigenvectors.
        found = jax.lax.linalg.eig(product, compute_left_eigenvectors=False, enable_eigvec_derivs=True)[0]
        return found[jnp.lexsort((-found.imag, -jnp.abs(found)))]

    def tests(self, u, tangent):
        # The excess of multipliers over the circle. Others count as inside.
        found = self.multipliers(u)
        tests = {
            SINGULAR: jnp.where(found.imag == 0, found.real - 1, -1.0),
            PERIOD_DOUBLING: jnp.where(found.imag == 0, -1 - found.real, -1.0),
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
        # Distances between cycles are root mean squares over their points.
        return jnp.full_like(u, np.sqrt(self.period)).at[-1].set(1.0)

    def ends(self, kind, u):
        is_multiple = kind == BRANCH_POINT and _shortest_period(self.points(u)) < self.period
        return "the branch meets the cycles that it doubles" if is_multiple else ""


def find_cycle(step: Step, guess: Any, parameter: Any, period: int) -> Cycle:
    """Find the cycle near a guess by Newton's method in a trust region. The cycle may be unstable.

    Args:
        step: The map, `step(state, parameter) -> state`.
        guess: Points of the cycle (period, state), or its first point (state,).
        parameter: Value of the parameter.
        period: Number of steps after which the cycle first repeats.

    Raises:
        NoCycleError: If Newton's method does not end on a cycle of this period.
    """
    states, number = _checked(step, guess, parameter, "guess")
    period = checked_whole_number("period", period, least=1)
    if states.ndim == 1:
        states = _orbit(step, states, number, 0, period)
    if states.ndim != 2 or len(states) != period:
        raise ValueError(f"guess must have shape (state,) or ({period}, state), got {states.shape}")
    system, where = Cycles(step, period), f"at parameter {float(number):.12g}"
    u, residual, multipliers = _solved(system, jnp.append(states, number))
    points = system.points(u)
    if not float(residual) <= _SOLVED * max(1.0, float(np.max(np.abs(points)))):
        raise NoCycleError(
            f"no cycle of period {period} was found {where}: Newton's method ends with a residual of {residual:.3g}"
        )
    if (shortest := _shortest_period(points)) < period:
        raise NoCycleError(f"the cycle {where} has period {shortest}, of which {period} is a multiple")
    if not np.isfinite(multipliers).all():
        raise NoCycleError(f"the derivatives of the map are not finite {where}")
    return Cycle(points, number, multipliers)


@jit
def _solved(system: Cycles, guess: Unknowns) -> tuple[Unknowns, Array, Array]:
    """Return the cycle at the parameter of `guess`, its largest defect, and its multipliers."""

    def defects(points, parameter):
        return system.residual(jnp.append(points, parameter))

    found = optx.root_find(defects, optx.Dogleg(1e-10, 1e-10), guess[:-1], guess[-1], throw=False, max_steps=100)
    axis = jnp.zeros_like(guess).at[-1].set(1.0)
    u = corrected(system, jnp.append(found.value, guess[-1]), axis).u
    return u, jnp.max(jnp.abs(system.residual(u))), system.multipliers(u)


def cycle_near(
    step: Step, start: Any, parameter: Any, max_period: int, *, transient: int = 10_000, tolerance: float = 1e-6
) -> Cycle:
    """Find the stable cycle on which an orbit settles. Newton's method refines the cycle.

    Args:
        step: The map, `step(state, parameter) -> state`.
        start: First state (state,) of the orbit.
        parameter: Value of the parameter.
        max_period: Largest period to consider.
        transient: Number of steps to discard.
        tolerance: Distance within which the orbit must return, relative to the largest coordinate or one.

    Raises:
        NoCycleError: If the orbit has not settled on a cycle.
    """
    state, number = _checked(step, start, parameter, "start")
    most = checked_whole_number("max_period", max_period, least=1)
    transient = checked_whole_number("transient", transient, least=0)
    if state.ndim != 1:
        raise ValueError(f"start must be one state, (state,), got shape {state.shape}")
    orbit = np.asarray(_orbit(step, state, number, jnp.asarray(transient), 2 * most))
    where = f"the orbit at parameter {float(number):.12g}"
    if not np.all(np.isfinite(orbit)):
        raise NoCycleError(f"{where} escapes to infinity")
    scale = max(1.0, np.max(np.abs(orbit)))
    near = scale * checked_number("tolerance", tolerance, above=0.0)
    # The orbit must return for `max_period` steps in succession.
    returns = np.array([np.max(np.abs(orbit[lag:][:most] - orbit[:most])) for lag in range(1, most + 1)])
    if np.min(returns) > near:
        raise NoCycleError(
            f"{where} does not return to within {near:.3g} in {most} steps; its closest return is to "
            f"{np.min(returns):.3g}, after {1 + np.argmin(returns)}"
        )
    period = 1 + int(np.argmax(returns <= near))
    cycle = find_cycle(step, orbit[:period], number, period)
    apart = float(np.max(np.abs(cycle.points - orbit[:period])))
    if apart > _BESIDE * scale or not cycle.is_stable:
        raise NoCycleError(f"{where} has not settled: it is {apart:.3g} from a cycle of period {period}")
    return cycle


def follow(
    step: Step,
    cycle: Cycle,
    bounds: Sequence[float],
    *,
    direction: int = 1,
    largest_step: float | None = None,
) -> xr.Dataset:
    """Follow the branch of cycles through `cycle`, including around folds. Cycles may be unstable.

    `curve.refine(dynamics.Cycles(step, period), event)` differentiates an event.

    Args:
        step: The map, `step(state, parameter) -> state`.
        cycle: The cycle to start from.
        bounds: Lowest and highest value of the parameter.
        direction: 1 to start towards larger parameters, -1 towards smaller parameters, 0 for both.
        largest_step: Largest step in the parameter and the root mean square of the points, by default a 20th of the
            bounds. Two bifurcations that undo each other within a step are missed.

    Returns:
        The cycles in order along the axis `point`: `parameter`, `points`, `stable`, and the multipliers by decreasing
        modulus. `event` is "" or the kind of event, and `angle` the argument of the multiplier that crosses there:

        - "period doubling": a multiplier passes through -1. `double_period` finds the cycle that branches off.
        - "Neimark-Sacker": a conjugate pair crosses the unit circle, and a torus branches off.
        - "fold": a multiplier passes through 1, and the branch turns back.
        - "branch point": another branch of cycles crosses.

        The attribute `ended` gives the reason why the branch ends.

    Raises:
        ValueError: If `cycle` is not a cycle of `step`, or out of bounds.

    Example:
        >>> import theorykit
        >>> from theorykit import dynamics
        >>> theorykit.enable_float64()
        >>> logistic = lambda x, r: r * x * (1 - x)
        >>> fixed_point = dynamics.find_cycle(logistic, [0.6], 2.5, period=1)
        >>> branch = dynamics.follow(logistic, fixed_point, (2.5, 3.4))
        >>> events = branch.isel(point=branch["event"] != "")
        >>> print(events["event"].item(), events["parameter"].item().__round__(6))
        period doubling 3.0
    """
    points, parameter = _checked(step, cycle.points, cycle.parameter, "cycle")
    start, system = np.append(points, parameter), Cycles(step, len(points))
    found = trace(system, start, bounds, direction=direction, largest_step=largest_step)
    kinds, values = found["event"].values, found["parameter"].values
    moduli, angles = found["multiplier_modulus"].values, found["multiplier_angle"].values
    known = {PERIOD_DOUBLING: np.pi, FOLD: 0.0, BRANCH_POINT: 0.0}
    angle = np.array([known.get(kind, np.nan) for kind in kinds])
    is_torus = kinds == NEIMARK_SACKER
    for at in np.flatnonzero(is_torus):
        on_circle = (np.abs(moduli[at] - 1) < 1e-6) & (angles[at] > 0) & (angles[at] < np.pi)
        # Several pairs may cross at one parameter.
        twins = np.sum(is_torus[:at] & (np.abs(values[:at] - values[at]) < 1e-8))
        angle[at] = np.sort(angles[at][on_circle])[min(twins, np.sum(on_circle) - 1)]
    found["multiplier_angle"].attrs["units"] = "radian"
    return found.assign(angle=("point", angle, {"units": "radian"}))


def double_period(step: Step, event: xr.Dataset, *, amplitude: float = 1e-2) -> Cycle:
    """Find a cycle of twice the period that bifurcates at a period doubling, on either side of its parameter.

    Args:
        step: The map, `step(state, parameter) -> state`.
        event: The period doubling: one event of `follow`, such as `branch.isel(point=5)`.
        amplitude: Half the distance between the first points of both halves of the cycle, relative to the largest
            coordinate of the event or one.

    Raises:
        NoCycleError: If no cycle is found, or none that differs from the original.
    """
    if event["event"].ndim or event["event"].item() != PERIOD_DOUBLING:
        raise ValueError(f"event must be one period doubling, got {event['event'].values}")
    checked_number("amplitude", amplitude, above=0.0)
    points, parameter = _checked(step, event["points"].values, event["parameter"].item(), "event")
    period, system = len(points), Cycles(step, 2 * len(points))
    twice = np.append([points, points], parameter)
    # Two branches cross here. Along the other one, the halves of the cycle move in opposite directions.
    _, _, null = np.linalg.svd(slope_at(system, twice))
    halves = null[-2:, :-1].reshape(2, 2, -1)
    opposite = max(halves[:, 0] - halves[:, 1], key=np.linalg.norm)
    is_first = np.arange(len(twice)) < points.shape[1]
    across = np.concatenate([opposite, -opposite, [0.0]])
    across /= np.linalg.norm(across[is_first])
    # The amplitude is kept, and the parameter follows.
    guess = twice + amplitude * max(1.0, np.max(np.abs(points))) * across
    place = corrected(system, guess, np.where(is_first, across, 0.0))
    if not place.is_near() or _shortest_period(system.points(place.u)) <= period:
        raise NoCycleError(
            f"no cycle of period {2 * period} was found near the period doubling at {float(parameter):.12g} with an "
            f"amplitude of {amplitude}"
        )
    return find_cycle(step, system.points(place.u), place.u[-1], 2 * period)


def _checked(step: Step, state: Any, parameter: Any, name: str) -> tuple[Array, Array]:
    """Return states (..., state) and the parameter in float64, and check that `step` maps states to states."""
    require_float64()
    reason = "are found by a loop in Python (`curve.refine` finds one event of a branch again in JAX)"
    refuse_traced("cycles of a map", step, state, parameter, reason=reason)
    states = jnp.atleast_1d(checked_array(name, state))
    number = jnp.asarray(checked_number("parameter", parameter), dtype=jnp.float64)
    if 0 in states.shape:
        raise ValueError(f"{name} must have entries, got shape {states.shape}")
    one = jax.ShapeDtypeStruct(states.shape[-1:], states.dtype)
    image = eqx.filter_eval_shape(step, one, number)
    if (image.shape, image.dtype) != (one.shape, one.dtype):
        raise ValueError(
            f"step must map {name} {one.dtype}{one.shape} to the same, but it returns {image.dtype}{image.shape}"
        )
    return states, number


def _shortest_period(points: Float[Array, "period state"]) -> int:
    """Return the smallest divisor of the period after which `points` repeat."""
    cycle = np.asarray(points)
    near = _COINCIDE * max(1.0, np.max(np.abs(cycle)))
    divisors = (lag for lag in range(1, len(cycle)) if len(cycle) % lag == 0)
    return next((lag for lag in divisors if np.max(np.abs(np.roll(cycle, -lag, axis=0) - cycle)) <= near), len(cycle))


@jit
def _orbit(step, state, parameter, transient, length):
    """Return `length` states after a transient."""
    state = jax.lax.fori_loop(0, transient, lambda _, here: step(here, parameter), state)
    _, states = jax.lax.scan(lambda here, _: (step(here, parameter), here), state, length=length)
    return states
