"""Cycles of a smooth map, stable or not: their multipliers, their branches and bifurcations.

The map is `step(state, parameter) -> state`, any function that JAX can differentiate, with a state of shape (state,).
It is compiled once for each period if you pass the same function every time. Keep its arrays in an Equinox module.

Cycles are found by multiple shooting: the unknowns are all points of the cycle, and the parameter. These equations are
as well conditioned as one step of the map. Equations for the iterated map are not, if the orbit is chaotic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from ..checks import (
    Count,
    Index,
    Number,
    Positive,
    check_is_number,
    checked_arguments,
    checked_array,
    checked_number,
    first_line,
    refuse_traced,
)
from ..curve import BRANCH_POINT, FOLD, System, trace
from ..curve.system import Unknowns, corrected
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..symbolic.documents.values import brief

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


class Cycle(DisplayMixin, eqx.Module):
    """Cycle of the map.

    - `points` (period, state): points of the cycle, in order. The first is the image of the last.
    - `parameter`: value of the parameter.
    - `multipliers` (state,): eigenvalues of the product of the Jacobians, by decreasing modulus. They are the factors
      by which small perturbations grow per period. All have the absolute rounding error of the largest.
    """

    points: Float[Array, "period state"]
    parameter: Float[Array, ""]
    multipliers: Complex[Array, " state"]

    @property
    def period(self) -> int:
        """Number of steps after which the cycle first repeats."""
        return len(self.points)

    @property
    def is_stable(self) -> bool:
        """Whether nearby orbits approach the cycle: all multipliers are inside the unit circle."""
        return bool(np.abs(self.multipliers[0]) < 1)

    def _view(self) -> Iterator[Block]:
        kind = "Stable" if self.is_stable else "Unstable"
        yield Text(f"{kind} cycle of period {self.period} at parameter {float(self.parameter):.6g}.")
        moduli = brief(np.abs(self.multipliers), 4)
        yield Table((("moduli of the multipliers", moduli), ("first point", brief(self.points[0], 4))))


class Cycles(System):
    """Equations of the cycles of a map, for `theorykit.curve`.

    - `step`: the map. To differentiate an event, keep other parameters as arrays of an Equinox module.
    - `period`: the period. The unknowns are all points (period, state), flattened, and the parameter.
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
        images = jax.vmap(self.step, (0, None))(points, u[-1])
        return (images - jnp.roll(points, -1, 0)).ravel()

    def jacobians(self, u: Unknowns) -> Float[Array, "period state state"]:
        of_point = jax.jacfwd(self.step)
        return jax.vmap(of_point, (0, None))(self.points(u), u[-1])

    def multipliers(self, u: Unknowns) -> Complex[Array, " state"]:
        """Return the eigenvalues of the product of the Jacobians, by decreasing modulus."""

        def multiply(product, jacobian):
            return jacobian @ product, None

        jacobians = self.jacobians(u)
        product, _ = jax.lax.scan(multiply, jnp.eye(jacobians.shape[1]), jacobians)
        # Second derivatives of events need derivatives of eigenvectors.
        found = jax.lax.linalg.eig(product, compute_left_eigenvectors=False, enable_eigvec_derivs=True)[0]
        return found[jnp.lexsort((-found.imag, -jnp.abs(found)))]

    def tests(self, u, tangent):
        multipliers = self.multipliers(u)
        is_real = multipliers.imag == 0

        def ordered(excess, applies):
            """Sort the excess of multipliers over the circle; others count as inside."""
            return jnp.sort(jnp.where(applies, excess, -1.0))

        return {
            "singular": ordered(multipliers.real - 1, is_real),
            PERIOD_DOUBLING: ordered(-1 - multipliers.real, is_real),
            NEIMARK_SACKER: ordered(jnp.abs(multipliers) - 1, multipliers.imag > 0),
        }

    def seen(self, u):
        multipliers = self.multipliers(u)
        moduli = jnp.abs(multipliers)
        return {
            "parameter": u[-1],
            "points": self.points(u),
            "multiplier_modulus": moduli,
            "multiplier_angle": jnp.angle(multipliers),
            "stable": moduli[0] < 1 - _ON_CIRCLE,
        }

    def units(self, u):
        # Distances between cycles are root mean squares over their points.
        return jnp.full_like(u, np.sqrt(self.period)).at[-1].set(1.0)

    def ends(self, kind, u):
        if kind == BRANCH_POINT and smallest_period(self.points(u)) < self.period:
            return "the branch meets the cycles that it doubles"
        return ""


@checked_arguments
def find_cycle(step: Step, guess: Any, parameter: Any, period: Count) -> Cycle:
    """Find the cycle near a guess by Newton's method in a trust region. The cycle may be unstable.

    Args:
        step: The map, `step(state, parameter) -> state`.
        guess: Points of the cycle (period, state), or only the first point (state,), which the map then iterates. A
            number is a state of shape (1,).
        parameter: Value of the parameter.
        period: Period of the cycle.

    Raises:
        NoCycleError: If Newton's method does not end on a cycle, or ends on a cycle of a shorter period.
    """
    states, number = checked_step(step, guess, parameter, "guess")
    if states.ndim == 1:
        states = _orbit(step, states, number, period)
    if states.ndim != 2 or len(states) != period:
        raise ValueError(f"guess must have shape (state,) or ({period}, state), got {states.shape}")
    system = Cycles(step, period)
    points, residual = _solved(system, jnp.append(states, number))
    if not float(residual) <= _SOLVED * max(1.0, float(np.max(np.abs(points)))):
        raise NoCycleError(
            f"no cycle of period {period} was found at parameter {float(number):.12g}: from the guess, Newton's method "
            f"ends with a residual of {float(residual):.3g}"
        )
    return _cycle(system, points)


def _cycle(system: Cycles, u: Unknowns) -> Cycle:
    """Return the cycle at a solution. Its period is the shortest."""
    points = system.points(u)
    if (shortest := smallest_period(points)) < system.period:
        raise NoCycleError(
            f"the cycle found from the guess has period {shortest}, of which {system.period} is a multiple"
        )
    multipliers = _multipliers(system, u)
    if not np.isfinite(multipliers).all():
        raise NoCycleError(f"the derivatives of the map are not finite on the orbit at parameter {float(u[-1]):.12g}")
    return Cycle(points, u[-1], multipliers)


@jit
def _solved(system: Cycles, guess: Unknowns) -> tuple[Unknowns, Array]:
    """Return the cycle at the parameter of `guess`, and its largest defect."""

    def defects(points, parameter):
        return system.residual(jnp.append(points, parameter))

    found = optx.root_find(defects, optx.Dogleg(1e-10, 1e-10), guess[:-1], guess[-1], throw=False, max_steps=100)
    axis = jnp.zeros_like(guess).at[-1].set(1.0)
    place = corrected(system, jnp.append(found.value, guess[-1]), axis, jnp.ones_like(guess))
    return place.u, jnp.max(jnp.abs(system.residual(place.u)))


_multipliers = jit(lambda system, u: system.multipliers(u))


@checked_arguments
def cycle_near(
    step: Step, start: Any, parameter: Any, max_period: Count, *, transient: Index = 10_000, tolerance: Positive = 1e-6
) -> Cycle:
    """Find the stable cycle on which an orbit settles. Newton's method refines the cycle.

    Args:
        step: The map, `step(state, parameter) -> state`.
        start: First state (state,) of the orbit. A number is a state of shape (1,).
        parameter: Value of the parameter.
        max_period: Largest period to consider. The period is the smallest number of steps after which the orbit
            returns, `max_period` times in succession.
        transient: Number of steps to discard.
        tolerance: Distance within which the orbit must return, in units of the largest coordinate (or of one, if that
            is larger).

    Raises:
        NoCycleError: If the orbit has not settled on a cycle: it is aperiodic, escapes, or needs a longer transient or
            period.
    """
    state, number = checked_step(step, start, parameter, "start")
    if state.ndim != 1:
        raise ValueError(f"start must be one state, (state,), got shape {state.shape}")
    settled = _settle(step, state, number, jnp.asarray(transient))
    orbit = np.asarray(_orbit(step, settled, number, 2 * max_period))
    if not np.all(np.isfinite(orbit)):
        raise NoCycleError(f"the orbit escapes to infinity at parameter {float(number):.12g}")
    scale = max(1.0, np.max(np.abs(orbit)))
    lags = range(1, max_period + 1)
    returns = np.array([np.max(np.abs(orbit[lag:][:max_period] - orbit[:max_period])) for lag in lags])
    period = 1 + int(np.argmax(returns <= tolerance * scale))
    if returns[period - 1] > tolerance * scale:
        raise NoCycleError(
            f"the orbit at parameter {float(number):.12g} does not return to within {tolerance * scale:.3g} in "
            f"{max_period} steps; its closest return is to {min(returns):.3g}, after {1 + int(np.argmin(returns))}"
        )
    cycle = find_cycle(step, orbit[:period], number, period)
    apart = float(np.max(np.abs(cycle.points - orbit[:period])))
    if apart > _BESIDE * scale or not cycle.is_stable:
        raise NoCycleError(
            f"the orbit at parameter {float(number):.12g} nearly returns after {period} steps, but has not settled: "
            f"the cycle is {apart:.3g} away, with a multiplier of modulus {float(np.abs(cycle.multipliers[0])):.6g}"
        )
    return cycle


@checked_arguments
def follow(
    step: Step,
    cycle: Cycle,
    bounds: tuple[Number, Number],
    *,
    direction: int = 1,
    largest_step: Positive | None = None,
    most_cycles: Count = 1000,
) -> xr.Dataset:
    """Follow the branch of cycles through `cycle`, including around folds. Cycles may be unstable.

    The branch ends if its parameter leaves `bounds`, if it closes on its start or meets the cycles that it doubles, or
    if the smallest step fails. `curve.refine(dynamics.Cycles(step, period), event)` differentiates an event.

    Args:
        step: The map, `step(state, parameter) -> state`.
        cycle: The cycle to start from.
        bounds: Lowest and highest value of the parameter.
        direction: 1 to start towards larger parameters, -1 to start towards smaller parameters.
        largest_step: Largest step in the parameter and the root mean square of the points, by default a 20th of the
            range of parameters. Two bifurcations that undo each other within a step are missed.
        most_cycles: Largest number of cycles.

    Returns:
        The cycles in order along the axis `point`: `parameter`, `points`, `stable`, and the multipliers by decreasing
        modulus. Cycles at which the stability changes are among them. `event` has the kind there, and "" elsewhere:

        - "period doubling": a multiplier passes through -1. `double_period` finds the cycle that branches off.
        - "Neimark-Sacker": a conjugate pair crosses the unit circle, and a torus branches off. `angle` is the argument
          of the multiplier, from 0 to pi.
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
    points, parameter = checked_step(step, cycle.points, cycle.parameter, "cycle")
    found = trace(
        Cycles(step, len(points)),
        np.append(points, parameter),
        bounds,
        direction=direction,
        largest_step=largest_step,
        most_points=most_cycles,
    )
    found["multiplier_angle"].attrs["units"] = "radian"
    found["angle"] = "point", _angles(found), {"units": "radian"}
    return found


def _angles(branch: xr.Dataset) -> np.ndarray:
    """Return the argument of the crossing multiplier at every event, and NaN elsewhere."""
    kinds, values = branch["event"].values, branch["parameter"].values
    known = {PERIOD_DOUBLING: np.pi, FOLD: 0.0, BRANCH_POINT: 0.0}
    angles = np.array([known.get(kind, np.nan) for kind in kinds])
    for at in np.flatnonzero(kinds == NEIMARK_SACKER):
        moduli, all_angles = (branch[f"multiplier_{part}"].values[at] for part in ("modulus", "angle"))
        on_circle = (np.abs(moduli - 1) < 1e-6) & (all_angles > 0) & (all_angles < np.pi)
        candidates = np.sort(all_angles[on_circle])
        # Several pairs that cross at one parameter are told apart by their angles.
        twins = np.sum((kinds == NEIMARK_SACKER) & (np.abs(values - values[at]) < 1e-8) & (np.arange(len(kinds)) < at))
        angles[at] = candidates[min(twins, len(candidates) - 1)]
    return angles


@checked_arguments
def double_period(step: Step, event: xr.Dataset, *, amplitude: Positive = 1e-2) -> Cycle:
    """Find a cycle of twice the period that bifurcates at a period doubling, on either side of its parameter.

    Args:
        step: The map, `step(state, parameter) -> state`.
        event: The period doubling: one event of `follow`, such as `branch.isel(point=5)`.
        amplitude: Half the distance between the first points of the two halves of the cycle, in units of the largest
            coordinate of the event (or of one, if that is larger). Smaller amplitudes give a cycle closer to the event.

    Raises:
        NoCycleError: If no cycle is found, or if `amplitude` is too small to distinguish the cycle from the original.
    """
    if event["event"].ndim or event["event"].item() != PERIOD_DOUBLING:
        raise ValueError(f"event must be one period doubling, got {event['event'].values}")
    points, parameter = checked_step(step, event["points"].values, event["parameter"].item(), "event")
    distance = amplitude * max(1.0, float(jnp.max(jnp.abs(points))))
    # The perturbation changes its sign after a period. It has length one at the first point.
    jacobians = np.asarray(_jacobians(Cycles(step, len(points)), jnp.append(points, parameter)))
    product = np.eye(points.shape[1])
    for jacobian in jacobians:
        product = jacobian @ product
    eigenvalues, vectors = np.linalg.eig(product)
    vector = vectors[:, np.argmin(np.abs(eigenvalues + 1))].real
    flipped = [vector / np.linalg.norm(vector)]
    for jacobian in jacobians[:-1]:
        flipped.append(jacobian @ flipped[-1])
    flipped = np.stack(flipped)
    guess = np.append([points + distance * flipped, points - distance * flipped], parameter)
    system = Cycles(step, 2 * len(points))
    # The amplitude is kept, and the parameter follows.
    across = np.zeros(len(guess))
    across[: points.shape[1]] = flipped[0]
    place = corrected(system, guess, across, np.ones(len(guess)))
    if not place.is_near(np.inf) or smallest_period(system.points(place.u)) <= len(points):
        raise NoCycleError(
            f"no cycle of period {system.period} was found near the period doubling at {float(parameter):.12g} with an "
            f"amplitude of {amplitude}; try another one"
        )
    return _cycle(system, place.u)


_jacobians = jit(lambda system, u: system.jacobians(u))


def checked_step(step: Step, state: Any, parameter: Any, name: str) -> tuple[Array, Array]:
    """Return `state` (..., state) and the number `parameter` in float64 after checks that both fit `step`."""
    require_float64()
    reason = "are found by a loop in Python (`curve.refine` finds one event of a branch again in JAX)"
    refuse_traced("cycles of a map", step, state, parameter, reason=reason)
    states = checked_array(name, state)
    if states.ndim == 0:
        check_is_number(name, state)
    states = jnp.atleast_1d(states)
    number = jnp.asarray(checked_number("parameter", parameter), dtype=jnp.float64)
    if 0 in states.shape:
        raise ValueError(f"{name} must have entries, got shape {states.shape}")
    one = jax.ShapeDtypeStruct(states.shape[-1:], states.dtype)
    try:
        image = eqx.filter_eval_shape(step, one, number)
    except Exception as error:
        raise ValueError(
            f"step fails for {name} of shape {one.shape}: {type(error).__name__}: {first_line(error)}"
        ) from error
    found = getattr(image, "shape", None), getattr(image, "dtype", None)
    if found != (one.shape, one.dtype):
        raise ValueError(
            f"step must map {name} {one.dtype}{one.shape} to the same, but it returns {found[1]}{found[0]}"
        )
    return states, number


def smallest_period(points: Float[Array, "period state"]) -> int:
    """Return the smallest divisor of the period after which `points` repeat."""
    cycle = np.asarray(points)
    scale = max(1.0, np.max(np.abs(cycle)))
    divisors = (lag for lag in range(1, len(cycle)) if len(cycle) % lag == 0)
    repeats = (lag for lag in divisors if np.max(np.abs(np.roll(cycle, -lag, axis=0) - cycle)) <= _COINCIDE * scale)
    return next(repeats, len(cycle))


@jit
def _settle(step, state, parameter, steps):
    return jax.lax.fori_loop(0, steps, lambda _, here: step(here, parameter), state)


@jit
def _orbit(step, state, parameter, length):
    """Return `length` states, starting with `state`."""
    _, states = jax.lax.scan(lambda here, _: (step(here, parameter), here), state, length=length)
    return states
