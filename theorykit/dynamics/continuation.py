"""Branches of cycles, followed through a parameter by pseudo-arclength continuation: also around folds.

Arclength is measured in the plane of the first point and the parameter, so that both should be of order one.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Complex, Float

from ..checks import checked_instance, checked_number, checked_sequence, checked_whole_number
from .bifurcations import Event, Segment, events_on
from .cycles import Cycle, NoCycleError, cycle_at
from .shooting import BranchPoint, Step, Unknowns, at_parameter, checked_step, correct

# least cosine between the tangents at both ends of a step, and that from which on the next may be longer
_STRAIGHT, _VERY_STRAIGHT = 0.95, 0.995
# largest distance of a cycle from where the tangent led, in units of the tangent's part of the step
_ASTRAY = 0.25
# largest change of a multiplier's modulus in a step, where it is below _LARGE
_CHANGE, _LARGE = 0.25, 2.0
# how far from its start, in units of the step, a closed branch may pass
_BESIDE = 0.05
# of the largest step: the first one, that from which on multipliers may change as they like, and the smallest
_FIRST, _SHORT, _SMALLEST = 0.1, 1e-3, 1e-7
_LONGER = 1.5


class Branch(eqx.Module):
    """Cycles along a branch, in order.

    - `points` (cycle, period, state), `parameters` (cycle,), `multipliers` (cycle, state), `residuals` (cycle,): as
      `Cycle` has them.
    - `events`: every change of stability, in order.
    - `ended`: why it goes no further.
    """

    points: Float[Array, "cycle period state"]
    parameters: Float[Array, " cycle"]
    multipliers: Complex[Array, "cycle state"]
    residuals: Float[Array, " cycle"]
    events: tuple[Event, ...]
    ended: str = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.parameters)

    def __getitem__(self, index: int) -> Cycle:
        return Cycle(self.points[index], self.parameters[index], self.multipliers[index], self.residuals[index])

    @property
    def stable(self) -> np.ndarray:
        """Which of the cycles are (cycle,)."""
        return np.abs(np.asarray(self.multipliers[:, 0])) < 1

    def to_xarray(self) -> xr.Dataset:
        """The branch with its axes named, as netCDF can hold it.

        - `points` (cycle, time, state), `parameter`, `residual` and `stable` (cycle,).
        - `multiplier_modulus` and `multiplier_angle` (cycle, multiplier); angles in radians, from -pi to pi.
        - `event_kind`, `event_parameter`, `event_modulus`, `event_angle` (event,), and `event_points` (event, time,
          state), a cycle of half the period twice.
        """
        period = self.points.shape[1]
        repeated = [np.resize(np.asarray(event.points), self.points.shape[1:]) for event in self.events]
        crossing = np.array([complex(event.multiplier) for event in self.events], dtype=complex)
        moduli, angles = np.abs(self.multipliers), np.angle(self.multipliers)
        return xr.Dataset(
            {
                "points": (("cycle", "time", "state"), np.asarray(self.points)),
                "multiplier_modulus": (("cycle", "multiplier"), moduli),
                "multiplier_angle": (("cycle", "multiplier"), angles, {"units": "radian"}),
                "residual": ("cycle", np.asarray(self.residuals)),
                "stable": ("cycle", self.stable),
                "event_kind": ("event", np.array([event.kind for event in self.events], dtype=str)),
                "event_parameter": ("event", np.array([float(event.parameter) for event in self.events])),
                "event_modulus": ("event", np.abs(crossing)),
                "event_angle": ("event", np.angle(crossing), {"units": "radian"}),
                "event_points": (
                    ("event", "time", "state"),
                    np.reshape(repeated, (len(self.events), *self.points.shape[1:])),
                ),
            },
            coords={"parameter": ("cycle", np.asarray(self.parameters))},
            attrs={"period": period, "ended": self.ended},
        )


class _StepBounds(NamedTuple):
    """Between which parameters a branch goes, and its largest step."""

    low: float
    high: float
    largest: float


def follow(
    step: Step,
    cycle: Cycle,
    bounds: tuple[float | int, float | int],
    *,
    direction: int = 1,
    largest_step: float | int | None = None,
    most_cycles: int = 1000,
) -> Branch:
    """The branch of cycles through `cycle`, until its parameter leaves `bounds`; stable or not, and around folds.

    It starts towards larger parameters with a `direction` of 1, towards smaller with -1. It also ends where it closes
    on its start, where it meets the cycles that it doubles, after `most_cycles`, or where the smallest step fails;
    `Branch.ended` says which. `largest_step`, of the first point and the parameter together, is by default a 20th of
    the range of parameters; bifurcations that undo each other are missed if both are within a step. Raises
    `NoCycleError` if `cycle` is none of `step`.
    """
    strides = _checked_strides(bounds, direction, largest_step, most_cycles)
    checked_instance("cycle", cycle, Cycle, "as find_cycle returns it")
    points, parameter = checked_step(step, cycle.points, cycle.parameter, "cycle")
    if not strides.low <= float(parameter) <= strides.high:
        raise ValueError(f"the cycle is at parameter {float(parameter)}, out of the bounds {bounds}")
    start = at_parameter(step, Unknowns(points, parameter), direction)
    if not start.solved or not np.all(np.isfinite(start.tangent.first)):
        raise NoCycleError(
            f"the cycle to start from solves the map's equations to {float(start.residual):.3g} only, or is at a fold "
            f"itself, at parameter {float(parameter):.12g}; take it from find_cycle with the same step"
        )
    return _follow(step, start, strides, most_cycles)


def _checked_strides(bounds, direction: int, largest_step: float | int | None, most_cycles: int) -> _StepBounds:
    low, high = (float(checked_number("bounds", end)) for end in checked_sequence("bounds", bounds, "parameters", 2))
    if not low < high:
        raise ValueError(f"bounds must be two parameters, the lower first; got {bounds}")
    largest = (high - low) / 20 if largest_step is None else float(checked_number("largest_step", largest_step))
    if checked_whole_number("direction", direction) not in (-1, 1):
        raise ValueError(f"direction must be 1 or -1, got {direction}")
    checked_whole_number("most_cycles", most_cycles, least=1)
    checked_number("largest_step", largest, above=0.0)
    return _StepBounds(low, high, largest)


def _follow(step: Step, first: BranchPoint, strides: _StepBounds, most_cycles: int) -> Branch:
    stations, events, length = [first], [], _FIRST * strides.largest
    ended = _out_of_bounds(first, strides)
    while ended is None and len(stations) < most_cycles:
        try:
            segment, happened, length = _stride(step, stations[-1], first, length, strides)
        except NoCycleError as error:
            ended = str(error)
            break
        events += happened
        if any(event.period < len(first.at.points) for event in happened):
            ended = "it meets the cycles that it doubles"
            break
        stations.append(segment.end)
        ended = "it closes" if segment.end is first else _out_of_bounds(segment.end, strides)
    return _branch(stations, events, ended or f"most_cycles={most_cycles} were found")


def _stride(
    step: Step, start: BranchPoint, first: BranchPoint, length: float, strides: _StepBounds
) -> tuple[Segment, list[Event], float]:
    """The next segment, its bifurcations, and the length of the step to try after it."""
    while length > _SMALLEST * strides.largest:
        try:
            ahead = _ahead(step, start, length, strides)
            segment = _up_to_bounds(_up_to_start(ahead, first), strides)
            smooth = _cosine(segment) > _VERY_STRAIGHT and _change(segment) < _CHANGE / 2
            longer = min(strides.largest, _LONGER * length) if smooth else length
            return segment, list(events_on(segment)), longer
        except NoCycleError:
            length /= 2
    raise NoCycleError(f"steps of {length:.3g} fail from parameter {float(start.at.parameter):.12g} on")


def _ahead(step: Step, start: BranchPoint, length: float, strides: _StepBounds) -> Segment:
    """The segment of this `length`; `NoCycleError` where it bends so much that its end may be on another branch."""
    guess = start.at.move(start.tangent, length)
    direction = start.tangent.first
    end = correct(step, guess, direction, direction @ start.at.first + length)
    segment = Segment(step, start, end)
    astray = _largest(end.at.move(guess, -1.0)) > _ASTRAY * length * _largest(start.tangent)
    if not end.solved or astray or not _cosine(segment) > _STRAIGHT:
        raise NoCycleError("the step is too long")
    if length > _SHORT * strides.largest and _change(segment) > _CHANGE:
        raise NoCycleError("the step is too long for the multipliers")
    return segment


def _up_to_start(segment: Segment, first: BranchPoint) -> Segment:
    """The segment, ending where the branch started if it is a closed curve and passes there."""
    distance = float(segment.direction @ (first.at.first - segment.start.at.first))
    if not 0 < distance <= segment.length or segment.direction @ first.tangent.first < _STRAIGHT:
        return segment
    beside = _largest(segment.guess(distance).move(first.at, -1.0))
    return Segment(segment.step, segment.start, first) if beside < _BESIDE * segment.length else segment


def _up_to_bounds(segment: Segment, strides: _StepBounds) -> Segment:
    """The segment, ending on the bound if it goes beyond."""
    parameter = float(segment.end.at.parameter)
    if strides.low <= parameter <= strides.high:
        return segment
    bound, sign = (strides.high, 1) if parameter > strides.high else (strides.low, -1)
    near = segment.at(segment.root(lambda station: float(station.at.parameter) - bound))
    end = at_parameter(segment.step, Unknowns(near.at.points, jnp.asarray(bound, dtype=jnp.float64)), sign)
    landed = Segment(segment.step, segment.start, end)
    if not end.solved or not _cosine(landed) > _STRAIGHT or not landed.length > 0:
        raise NoCycleError("the branch turns back at the bound")
    return landed


def _out_of_bounds(station: BranchPoint, strides: _StepBounds) -> str | None:
    """Why a branch is not to be followed beyond a station, or None."""
    parameter, leads = float(station.at.parameter), float(station.tangent.parameter)
    outwards = (parameter >= strides.high and leads > 0) or (parameter <= strides.low and leads < 0)
    return f"the parameter reached {parameter}" if outwards else None


def _cosine(segment: Segment) -> float:
    """Cosine of the angle between the tangents at both ends."""
    return float(segment.direction @ segment.end.tangent.first)


def _change(segment: Segment) -> float:
    """The largest change of a multiplier's modulus, moduli clipped at `_LARGE`."""
    before, after = (np.minimum(np.abs(multipliers), _LARGE) for multipliers in segment.multipliers)
    return float(np.max(np.abs(after - before)))


def _largest(change: Unknowns) -> float:
    return max(float(jnp.max(jnp.abs(change.points))), abs(float(change.parameter)))


def _branch(stations: list[BranchPoint], events: list[Event], ended: str) -> Branch:
    cycles = [cycle_at(station) for station in stations]
    names = ("points", "parameter", "multipliers", "residual")
    columns = (jnp.stack([getattr(cycle, name) for cycle in cycles]) for name in names)
    return Branch(*columns, events=tuple(events), ended=ended)
