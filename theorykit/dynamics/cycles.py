"""Cycles of a smooth map, stable or not: points that come round, and the multipliers that say what becomes of others.

The map is `step(state, parameter) -> state`, any function JAX can differentiate, with a state of shape (state,). It is
compiled once for each period: hand over the same function every time, and its arrays in an Equinox module.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Complex, Float

from ..checks import checked_number, checked_whole_number
from .shooting import BranchPoint, Step, Unknowns, at_parameter, checked_step

# points that coincide but for rounding, in units of `BranchPoint.scale`
_COINCIDE = 1e-7
# how far the cycle of an orbit may be from it, in units of the largest state
_BESIDE = 1e-3


class NoCycleError(RuntimeError):
    """There is no cycle where one was looked for, or none of that period."""


class Cycle(eqx.Module):
    """A cycle of the map at a `parameter`.

    - `points` (period, state): in order; the first is the image of the last.
    - `multipliers` (state,): eigenvalues of the product of the Jacobians, by decreasing modulus. A small distance from
      the cycle is multiplied by them in a period. Those much below the largest have an absolute error of its rounding.
    - `residual`: largest difference of a coordinate from that of the image of the point before.
    """

    points: Float[Array, "period state"]
    parameter: Float[Array, ""]
    multipliers: Complex[Array, " state"]
    residual: Float[Array, ""]

    @property
    def period(self) -> int:
        """Steps after which the cycle comes round for the first time."""
        return len(self.points)

    @property
    def is_stable(self) -> bool:
        """Whether every orbit that starts close enough comes closer: all multipliers are within the unit circle."""
        return bool(np.abs(self.multipliers[0]) < 1)


def find_cycle(step: Step, guess: ArrayLike, parameter: ArrayLike, period: int) -> Cycle:
    """The cycle of `period` near `guess`: all its points (period, state), or the first (state,), iterated for the rest.

    Raises `NoCycleError` where Newton's method ends elsewhere than on a cycle, or on one of a shorter period.
    """
    start = Unknowns(*_checked_guess(step, guess, parameter, period))
    station = at_parameter(step, start)
    if not np.all(np.isfinite(station.multipliers)):
        raise NoCycleError(
            f"the derivatives of the map are not finite on the orbit from the guess at parameter "
            f"{float(start.parameter):.12g}: the orbit escapes, or the map has no derivative there"
        )
    if not station.solved:
        raise NoCycleError(
            f"no cycle of period {period} was found at parameter {float(start.parameter):.12g}: from the guess, "
            f"Newton's method ends with a residual of {float(station.residual):.3g}. There may be none at this "
            "parameter (it may end in a fold nearby), or the guess is too far off; cycle_near takes it from an orbit"
        )
    shortest = smallest_period(station.at.points)
    if shortest < period:
        raise NoCycleError(
            f"the cycle found from the guess has period {shortest}, of which {period} is a multiple; ask for that, or "
            "start from points that differ more from each other"
        )
    return cycle_at(station)


def cycle_near(
    step: Step,
    start: ArrayLike,
    parameter: ArrayLike,
    max_period: int,
    *,
    transient: int = 10_000,
    tolerance: float = 1e-6,
) -> Cycle:
    """The stable cycle, of at most `max_period`, that the orbit from the state `start` is on after `transient` steps.

    The period is the least after which the orbit returns to within `tolerance` times the largest coordinate (or one,
    if that is more), and does so `max_period` times on end; Newton's method does the rest. Raises `NoCycleError` where
    the orbit has not settled on a cycle: it is aperiodic, or escapes, or needs a longer transient or period.
    """
    checked_whole_number("max_period", max_period, least=1)
    checked_whole_number("transient", transient, least=0)
    checked_number("tolerance", tolerance, above=0.0)
    state, number = checked_step(step, start, parameter, "start")
    if state.ndim != 1:
        raise ValueError(f"start must be one state, (state,), got shape {state.shape}")
    settled = _settle(step, state, number, jnp.asarray(transient))
    orbit = np.asarray(_orbit(step, settled, number, 2 * max_period))
    if not np.all(np.isfinite(orbit)):
        raise NoCycleError(f"the orbit escapes to infinity at parameter {float(number):.12g}")
    scale = max(1.0, np.max(np.abs(orbit)))
    returns = [np.max(np.abs(orbit[lag:][:max_period] - orbit[:max_period])) for lag in range(1, max_period + 1)]
    period = 1 + int(np.argmax(np.array(returns) <= tolerance * scale))
    if returns[period - 1] > tolerance * scale:
        raise NoCycleError(
            f"the orbit at parameter {float(number):.12g} does not return to within {tolerance * scale:.3g} in "
            f"{max_period} steps; its closest return is to {min(returns):.3g}, after {1 + int(np.argmin(returns))}. It "
            "is aperiodic, or of a longer period, or the transient is too short"
        )
    cycle = find_cycle(step, orbit[:period], number, period)
    apart = float(np.max(np.abs(cycle.points - orbit[:period])))
    if apart > _BESIDE * scale or not cycle.is_stable:
        raise NoCycleError(
            f"the orbit at parameter {float(number):.12g} nearly returns after {period} steps, but has not settled: "
            f"the cycle there is {apart:.3g} away, and its largest multiplier has modulus "
            f"{float(np.abs(cycle.multipliers[0])):.6g}. Use a longer transient"
        )
    return cycle


def smallest_period(points: Float[Array, "period state"]) -> int:
    """The smallest divisor of the period after which `points` repeat themselves."""
    cycle = np.asarray(points)
    scale = max(1.0, np.max(np.abs(cycle)))
    divisors = (lag for lag in range(1, len(cycle)) if len(cycle) % lag == 0)
    repeats = (lag for lag in divisors if np.max(np.abs(np.roll(cycle, -lag, axis=0) - cycle)) <= _COINCIDE * scale)
    return next(repeats, len(cycle))


def cycle_at(station: BranchPoint) -> Cycle:
    """A station of a branch as a cycle."""
    return Cycle(station.at.points, station.at.parameter, jnp.asarray(station.multipliers), station.residual)


def _checked_guess(step: Step, guess: ArrayLike, parameter: ArrayLike, period: int) -> tuple[Array, Array]:
    checked_whole_number("period", period, least=1)
    states, number = checked_step(step, guess, parameter, "guess")
    if states.ndim == 1:
        states = _orbit(step, states, number, period)
    if states.ndim != 2 or len(states) != period:
        raise ValueError(f"guess must have shape (state,) or ({period}, state), got {states.shape}")
    return states, number


@eqx.filter_jit
def _settle(step: Step, state: Array, parameter: Array, steps: Array) -> Array:
    return jax.lax.fori_loop(0, steps, lambda _, here: step(here, parameter), state)


@eqx.filter_jit
def _orbit(step: Step, state: Array, parameter: Array, length: int) -> Float[Array, "length state"]:
    """`length` states, `state` the first."""
    _, states = jax.lax.scan(lambda here, _: (step(here, parameter), here), state, length=length)
    return states
