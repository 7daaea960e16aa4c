"""Cycles of a smooth map, stable or not: periodic points, and the multipliers of small perturbations.

The map is `step(state, parameter) -> state`, any function that JAX can differentiate, with a state of shape (state,).
It is compiled once for each period if you pass the same function every time. Keep its arrays in an Equinox module.

Cycles are found by multiple shooting: the unknowns are all points of the cycle, and the parameter. These equations are
as well conditioned as one step of the map. Equations for the iterated map are not, if the orbit is chaotic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jax.typing import ArrayLike
from jaxtyping import Array, Complex, Float

from ..checks import (
    Count,
    Index,
    Positive,
    check_is_number,
    checked_arguments,
    checked_array,
    checked_number,
    first_line,
)
from ..compilation import jit
from ..precision import require_float64
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..symbolic.documents.values import brief

Step = Callable[[Array, Array], Array]
"""One step of a smooth map: a function of a state vector and a parameter, a number, that returns the next state."""

# A cycle is solved if its defect is below this, relative to its largest coordinate.
_SOLVED = 1e-12
# Newton's method has failed after this many evaluations of the map.
_MOST_EVALUATIONS = 100
# Changes below this multiple of the machine precision are rounding.
_ROUNDING = 4.0
# Stop if a Newton step has been shortened to less than this fraction.
_SHORTEST = 2.0**-12
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
    - `residual`: largest coordinate difference between a point and the image of the previous point.
    """

    points: Float[Array, "period state"]
    parameter: Float[Array, ""]
    multipliers: Complex[Array, " state"]
    residual: Float[Array, ""]

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
        yield Table(
            (
                ("moduli of the multipliers, largest first", brief(np.abs(self.multipliers), 4)),
                ("first point", brief(self.points[0], 4)),
                ("residual", f"{float(self.residual):.2g}"),
            )
        )
        yield Text("Follow it through the parameter with `dynamics.follow(step, cycle, bounds)`.")


@checked_arguments
def find_cycle(step: Step, guess: Any, parameter: Any, period: Count) -> Cycle:
    """Find the cycle near a guess. It may be unstable.

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
    station = at_parameter(step, Unknowns(states, number))
    if not np.all(np.isfinite(station.multipliers)):
        raise NoCycleError(
            f"the derivatives of the map are not finite on the orbit from the guess at parameter "
            f"{float(number):.12g}: the orbit escapes, or the map has no derivative there"
        )
    if not station.solved:
        raise NoCycleError(
            f"no cycle of period {period} was found at parameter {float(number):.12g}: from the guess, Newton's method "
            f"ends with a residual of {float(station.residual):.3g}. There may be none at this parameter (it may end "
            "in a fold nearby), or the guess is too far off; cycle_near finds stable cycles from an orbit"
        )
    shortest = smallest_period(station.at.points)
    if shortest < period:
        raise NoCycleError(
            f"the cycle found from the guess has period {shortest}, of which {period} is a multiple; pass "
            f"period={shortest}, or start from points that differ more from each other"
        )
    return station.cycle


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
    returns = [np.max(np.abs(orbit[lag:][:max_period] - orbit[:max_period])) for lag in range(1, max_period + 1)]
    period = 1 + int(np.argmax(np.array(returns) <= tolerance * scale))
    if returns[period - 1] > tolerance * scale:
        raise NoCycleError(
            f"the orbit at parameter {float(number):.12g} does not return to within {tolerance * scale:.3g} in "
            f"{max_period} steps; its closest return is to {min(returns):.3g}, after {1 + int(np.argmin(returns))}. It "
            "is aperiodic, or has a longer period, or the transient is too short"
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


def checked_step(step: Step, state: Any, parameter: Any, name: str) -> tuple[Array, Array]:
    """Return `state` (..., state) and the number `parameter` in float64 after checks that both fit `step`."""
    require_float64()
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
            f"step must map {name} to a float64 state of the same size, but it maps shape {one.shape} to "
            f"{found[1]}{found[0]}"
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


# ---- multiple shooting


class Unknowns(eqx.Module):
    """Points of a cycle in order, and the parameter of the map. Also used for changes of both."""

    points: Float[Array, "period state"]
    parameter: Float[Array, ""]

    def move(self, change: Unknowns, length: ArrayLike = 1.0) -> Unknowns:
        """Add `length` times a change."""
        return jax.tree.map(lambda here, by: here + length * by, self, change)

    @property
    def first(self) -> Float[Array, " coordinates"]:
        """First point and parameter (state + 1,), the coordinates in which arclength is measured."""
        return jnp.append(self.points[0], self.parameter)


class Linearisation(eqx.Module):
    """Derivatives of the map at each point of a cycle, with respect to the state and to the parameter."""

    jacobians: Float[Array, "period state state"]
    drifts: Float[Array, "period state"]

    @classmethod
    def about(cls, step: Step, at: Unknowns) -> Linearisation:
        """Linearise by forward differentiation."""
        of_point = jax.jacfwd(step, argnums=(0, 1))
        return cls(*jax.vmap(of_point, in_axes=(0, None))(at.points, at.parameter))

    def condense(self, defects: Float[Array, "period state"]) -> tuple[Array, Array, Array]:
        """Return (P, c, d): in a period, changes x of the first point and m of the parameter become P x + c m + d."""

        def through(affine, one):
            jacobian, drift, defect = one
            return (jacobian @ affine).at[:, -2].add(drift).at[:, -1].add(defect), None

        start = jnp.eye(defects.shape[1], defects.shape[1] + 2)
        affine, _ = jax.lax.scan(through, start, (self.jacobians, self.drifts, defects))
        return affine[:, :-2], affine[:, -2], affine[:, -1]

    def spread(self, defects: Float[Array, "period state"], change: Float[Array, " coordinates"]) -> Unknowns:
        """Return the change of every point, from `change`, the change of the first point and of the parameter."""
        first, parameter = change[:-1], change[-1]

        def through(here, one):
            jacobian, drift, defect = one
            return jacobian @ here + drift * parameter + defect, here

        _, points = jax.lax.scan(through, first, (self.jacobians, self.drifts, defects))
        return Unknowns(points, parameter)


class BranchPoint(eqx.Module):
    """End of a Newton correction: a point on a branch of cycles if `solved`.

    - `at`: the cycle and the parameter.
    - `residual`: largest defect of the equations.
    - `multipliers` (state,): by decreasing modulus. In a conjugate pair, the member in the upper half plane is first.
    - `tangent`: direction along the branch. It has length one in the coordinates of `Unknowns.first`, and a positive
      product with the `direction` of the correction.
    """

    at: Unknowns
    residual: Float[Array, ""]
    multipliers: Complex[np.ndarray, " state"]
    tangent: Unknowns

    @property
    def solved(self) -> bool:
        """Whether the equations hold. The tangent may still be NaN, exactly at a branch point or a fold."""
        scale = max(1.0, float(np.max(np.abs(self.at.points))))
        return bool(np.all(np.isfinite(self.multipliers))) and float(self.residual) <= _SOLVED * scale

    @property
    def cycle(self) -> Cycle:
        """Return the cycle here, without the tangent."""
        return Cycle(self.at.points, self.at.parameter, jnp.asarray(self.multipliers), self.residual)


def at_parameter(step: Step, guess: Unknowns, sign: int = 1) -> BranchPoint:
    """Find the cycle at the parameter of `guess`. Its tangent points to larger parameters for `sign=1`."""
    axis = jnp.zeros(guess.points.shape[1] + 1).at[-1].set(float(sign))
    return correct(step, guess, axis, sign * guess.parameter)


def correct(step: Step, guess: Unknowns, direction: Array, target: Array) -> BranchPoint:
    """Find the cycle with direction . `Unknowns.first` = target, by Newton's method from `guess`.

    A direction along the parameter axis fixes the parameter. The tangent of a branch as direction fixes the arclength.
    """
    at, residual, monodromy, tangent = _correct(step, guess, direction, target)
    return BranchPoint(at, residual, multipliers_of(monodromy), tangent)


@jit
def _correct(step, guess, direction, target):
    """Return the cycle, its residual, the product of the Jacobians, and the tangent."""

    def defects_at(at: Unknowns) -> tuple[Array, Array]:
        """Return the defects of x_{i+1} = step(x_i), cyclic, and of direction . first = target."""
        images = jax.vmap(step, in_axes=(0, None))(at.points, at.parameter)
        return images - jnp.roll(at.points, -1, axis=0), direction @ at.first - target

    def border(monodromy: Array, drift: Array) -> Float[Array, "coordinates coordinates"]:
        """Return the Jacobian of the condensed equations, bordered by `direction`. It is regular even at a fold."""
        return jnp.vstack([jnp.column_stack([monodromy - jnp.eye(len(drift)), drift]), direction])

    def newton_change(at: Unknowns, defects: tuple[Array, Array]) -> Unknowns:
        """Return Newton's step for the first point and the parameter, propagated to the other points."""
        linearisation = Linearisation.about(step, at)
        monodromy, drift, defect = linearisation.condense(defects[0])
        change = jnp.linalg.solve(border(monodromy, drift), -jnp.append(defect, defects[1]))
        return linearisation.spread(defects[0], change)

    def is_moving(state) -> Array:
        here, _, change, length, _, evaluations = state
        moves = length * optx.max_norm(change)
        rounding = _ROUNDING * jnp.finfo(moves.dtype).eps * jnp.maximum(1.0, optx.max_norm(here))
        # A singular linearisation makes the step NaN, which ends the iteration.
        return (moves > rounding) & (length >= _SHORTEST) & (evaluations < _MOST_EVALUATIONS)

    def evaluate(state):
        """Accept the proposal if it reduces the defects. Otherwise propose half of the last step."""
        here, proposal, change, length, size, evaluations = state
        defects = defects_at(proposal)
        better = optx.two_norm(defects) < size
        here = jax.tree.map(lambda new, old: jnp.where(better, new, old), proposal, here)
        change = jax.lax.cond(better, lambda: newton_change(here, defects), lambda: change)
        length = jnp.where(better, 1.0, length / 2)
        size = jnp.where(better, optx.two_norm(defects), size)
        return here, here.move(change, length), change, length, size, evaluations + 1

    anywhere = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), guess)
    begun = (guess, guess, anywhere, jnp.array(1.0), jnp.array(jnp.inf), jnp.array(0))
    found, *_ = jax.lax.while_loop(is_moving, evaluate, begun)
    of_cycle, _ = defects_at(found)
    linearisation = Linearisation.about(step, found)
    monodromy, drift, _ = linearisation.condense(of_cycle)
    along = jnp.linalg.solve(border(monodromy, drift), jnp.zeros_like(direction).at[-1].set(1.0))
    tangent = linearisation.spread(jnp.zeros_like(of_cycle), along / jnp.linalg.norm(along))
    return found, jnp.max(jnp.abs(of_cycle)), monodromy, tangent


def multipliers_of(monodromy: Float[Array, "state state"]) -> Complex[np.ndarray, " state"]:
    """Return eigenvalues in the order of `BranchPoint.multipliers`, or NaN if an entry is not finite."""
    product = np.asarray(monodromy)
    if not np.all(np.isfinite(product)):
        return np.full(len(product), complex(np.nan))
    eigenvalues = np.linalg.eigvals(product).astype(complex)
    return eigenvalues[np.lexsort((-eigenvalues.imag, -np.abs(eigenvalues)))]
