"""Branches of cycles, followed through a parameter by pseudo-arclength continuation, and their bifurcations.

Branches are followed around folds. Arclength is measured in the plane of the first point and the parameter, so both
should be of order one. Bifurcations occur where multipliers cross the unit circle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Complex, Float
from scipy.interpolate import KroghInterpolator
from scipy.optimize import brentq

from ..checks import Count, Number, Positive, checked_arguments, counted
from ..compilation import jit
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..symbolic.documents.sketches import brief, curves
from .cycles import (
    BranchPoint,
    Cycle,
    Linearisation,
    NoCycleError,
    Step,
    Unknowns,
    at_parameter,
    checked_step,
    correct,
    multipliers_of,
    smallest_period,
)

PERIOD_DOUBLING = "period doubling"
"""A multiplier passes through -1: a cycle of twice the period branches off."""
NEIMARK_SACKER = "Neimark-Sacker"
"""Two complex multipliers cross the unit circle: a torus branches off."""
FOLD = "fold"
"""A multiplier passes through 1, and the branch turns back."""
BRANCH_POINT = "branch point"
"""A multiplier passes through 1, and two branches of cycles meet."""

# Least cosine between the tangents at both ends of a step, and the cosine above which the next may be longer.
_STRAIGHT, _VERY_STRAIGHT = 0.95, 0.995
# Largest distance of a cycle from the tangent's prediction, in units of the tangent's part of the step.
_ASTRAY = 0.25
# Largest change of a multiplier's modulus in a step, if the modulus is below _LARGE.
_CHANGE, _LARGE = 0.25, 2.0
# A closed branch may miss its start by this much, in units of the step.
_BESIDE = 0.05
# Fractions of the largest step: the first step, the step below which multipliers may change freely, and the smallest.
_FIRST, _SHORT, _SMALLEST = 0.1, 1e-3, 1e-7
_LONGER = 1.5
# Distances from the unit circle below this are rounding.
_ON_CIRCLE = 1e-9
# Error of an event along the branch, as a fraction of the segment on which it was noticed.
_LOCATED = 1e-11
# Residual of a quantity at its located zero, which is less accurate if branches meet.
_CONTINUOUS = 1e-5
# Interpolation where branches meet: distance of the points, in units of the segment; their positions, in units of that;
# largest difference from the result of Newton's method, which is nearly singular there.
_AROUND, _NODES, _AGREES = 1e-2, (-1.5, -0.5, 0.5, 1.5), 1e-4
# Number of halvings of a segment to separate the crossings on it.
_HALVINGS = 16


class Event(DisplayMixin, eqx.Module):
    """Cycle whose stability changes, as one multiplier or a conjugate pair crosses the unit circle.

    - `kind`: "period doubling" (through -1), "Neimark-Sacker" (a pair), "fold" (through 1 where the branch turns back)
      or "branch point" (another branch crosses, in a pitchfork or transcritical bifurcation).
    - `points` (period, state), `parameter`: the cycle. At the end of a branch of doubled cycles, the original cycle.
    - `multiplier`: the crossing multiplier. Of a pair, the one in the upper half plane.
    """

    kind: str = eqx.field(static=True)
    points: Float[Array, "period state"]
    parameter: Float[Array, ""]
    multiplier: Complex[Array, ""]

    @property
    def period(self) -> int:
        """Period of the cycle."""
        return len(self.points)

    @property
    def angle(self) -> float:
        """Argument of the multiplier, from 0 to pi. At a Neimark-Sacker bifurcation, the rotation per period."""
        return float(np.angle(self.multiplier))

    def _view(self) -> Iterator[Block]:
        yield Text(f"{self.kind.capitalize()} of a cycle of period {self.period}.")
        yield Table(
            (
                ("parameter", f"{float(self.parameter):.8g}"),
                ("multiplier", f"modulus {abs(complex(self.multiplier)):.6g}, angle {self.angle:.4g} rad"),
                ("first point", brief(self.points[0], 4)),
            )
        )
        if self.kind == PERIOD_DOUBLING:
            yield Text("Find the doubled cycle with `dynamics.double_period(step, event, amplitude=...)`.")


class Branch(DisplayMixin, eqx.Module):
    """Cycles along a branch, in order, with the fields of `Cycle`, and the reason why it ends."""

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
        """Mask of stable cycles (cycle,)."""
        return np.abs(np.asarray(self.multipliers[:, 0])) < 1

    def _view(self) -> Iterator[Block]:
        low, high = float(np.min(self.parameters)), float(np.max(self.parameters))
        first, stable = np.asarray(self.points[:, 0, 0]), int(np.sum(self.stable))
        yield Text(
            f"Branch of {counted(len(self), 'cycle')} of period {self.points.shape[1]}, {stable} of them stable, at "
            f"parameters {low:.6g} to {high:.6g}. End: {self.ended}."
        )
        if self.events:
            rows = [(each.kind, f"{float(each.parameter):.8g}", f"{each.angle:.4g}") for each in self.events]
            yield Table(tuple(rows), ("change of stability", "parameter", "angle of the multiplier, rad"))
        else:
            yield Text("No change of stability was found.")
        yield curves(
            {"stable": np.where(self.stable, first, np.nan), "unstable": np.where(self.stable, np.nan, first)},
            f"first coordinate at parameters {low:.4g} to {high:.4g}",
            self.parameters,
        )
        yield Text("`to_xarray()` has all of it with names of axes.")

    def to_xarray(self) -> xr.Dataset:
        """Return the branch as a dataset that netCDF can store. A cycle of half the period appears twice."""
        shape = self.points.shape[1:]
        repeated = [np.resize(np.asarray(event.points), shape) for event in self.events]
        crossing = np.array([complex(event.multiplier) for event in self.events], dtype=complex)
        in_radians = {"units": "radian"}
        return xr.Dataset(
            {
                "points": (("cycle", "time", "state"), np.asarray(self.points)),
                "multiplier_modulus": (("cycle", "multiplier"), np.abs(self.multipliers)),
                "multiplier_angle": (("cycle", "multiplier"), np.angle(self.multipliers), in_radians),
                "residual": ("cycle", np.asarray(self.residuals)),
                "stable": ("cycle", self.stable),
                "event_kind": ("event", np.array([event.kind for event in self.events], dtype=str)),
                "event_parameter": ("event", np.array([float(event.parameter) for event in self.events])),
                "event_modulus": ("event", np.abs(crossing)),
                "event_angle": ("event", np.angle(crossing), in_radians),
                "event_points": (("event", "time", "state"), np.reshape(repeated, (len(self.events), *shape))),
            },
            coords={"parameter": ("cycle", np.asarray(self.parameters))},
            attrs={"period": shape[0], "ended": self.ended},
        )


@checked_arguments
def follow(
    step: Step,
    cycle: Cycle,
    bounds: tuple[Number, Number],
    *,
    direction: int = 1,
    largest_step: Positive | None = None,
    most_cycles: Count = 1000,
) -> Branch:
    """Follow the branch of cycles through `cycle` until its parameter leaves `bounds`. Cycles may be unstable.

    It starts towards larger parameters with `direction=1`, towards smaller with -1, and continues around folds. It also
    ends if it closes on its start, meets the cycles that it doubles, reaches `most_cycles`, or if the smallest step
    fails; `ended` gives the reason. `largest_step`, of the first point and the parameter together, is by default a 20th
    of the range of parameters. Two bifurcations that undo each other within a step are missed. Raises `NoCycleError` if
    `cycle` is not a cycle of `step`.

    Returns:
        Cycles in order: `points` (cycle, period, state), `parameters`, `stable` and `residuals` (cycle,), `multipliers`
        (cycle, state); and `events`, every change of stability, with its `kind`, `parameter`, `points`, `multiplier`.
    """
    low, high = map(float, bounds)
    if not low < high:
        raise ValueError(f"bounds must be two parameters, the lower first; got {bounds}")
    if direction not in (-1, 1):
        raise ValueError(f"direction must be 1 or -1, got {direction}")
    largest = (high - low) / 20 if largest_step is None else float(largest_step)
    points, parameter = checked_step(step, cycle.points, cycle.parameter, "cycle")
    if not low <= float(parameter) <= high:
        raise ValueError(f"the cycle is at parameter {float(parameter)}, out of the bounds {bounds}")
    first = at_parameter(step, Unknowns(points, parameter), direction)
    if not first.solved or not np.all(np.isfinite(first.tangent.first)):
        raise NoCycleError(
            f"the cycle to start from solves the map's equations to {float(first.residual):.3g} only, or is at a fold "
            f"itself, at parameter {float(parameter):.12g}; take it from find_cycle with the same step"
        )

    def reached(station: BranchPoint) -> str | None:
        parameter, leads = float(station.at.parameter), _turning(station)
        outwards = (parameter >= high and leads > 0) or (parameter <= low and leads < 0)
        return f"the parameter reached {parameter}" if outwards else None

    stations, events, length = [first], [], _FIRST * largest
    ended = reached(first)
    while ended is None and len(stations) < most_cycles:
        try:
            segment, happened, length = _stride(step, stations[-1], first, length, largest, (low, high))
        except NoCycleError as error:
            ended = str(error)
            break
        events += happened
        if any(event.period < len(points) for event in happened):
            ended = "it meets the cycles that it doubles"
            break
        stations.append(segment.end)
        ended = "it closes" if segment.end is first else reached(segment.end)
    columns = jax.tree.map(lambda *of_cycles: jnp.stack(of_cycles), *(station.cycle for station in stations))
    return Branch(*vars(columns).values(), events=tuple(events), ended=ended or f"most_cycles={most_cycles} were found")


@dataclass(frozen=True)
class _Segment:
    """Piece of a branch, short enough to be a graph over the distance along the tangent at its start."""

    step: Step
    start: BranchPoint
    end: BranchPoint

    @cached_property
    def direction(self) -> Float[Array, " coordinates"]:
        """Tangent at the start."""
        return self.start.tangent.first

    @cached_property
    def length(self) -> float:
        """Distance of the end along the tangent."""
        return float(self.direction @ (self.end.at.first - self.start.at.first))

    @cached_property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        return self.start.multipliers, self.end.multipliers

    @cached_property
    def cosine(self) -> float:
        """Cosine of the angle between the tangents at both ends."""
        return float(self.direction @ self.end.tangent.first)

    @cached_property
    def change(self) -> float:
        """Largest change of a multiplier's modulus, with moduli clipped at `_LARGE`."""
        before, after = (np.minimum(np.abs(multipliers), _LARGE) for multipliers in self.multipliers)
        return float(np.max(np.abs(after - before)))

    def guess(self, distance: float) -> Unknowns:
        """Interpolate between both ends and their tangents by a cubic Hermite polynomial."""
        to, length = distance / self.length, self.length
        arriving = length / self.cosine
        return jax.tree.map(
            lambda start, leaves, end, arrives: (
                start
                + to**2 * (3 - 2 * to) * (end - start)
                + to * (1 - to) * ((1 - to) * length * leaves - to * arriving * arrives)
            ),
            *(self.start.at, self.start.tangent, self.end.at, self.end.tangent),
        )

    def at(self, distance: float) -> BranchPoint:
        """Find the cycle at a distance from the start."""
        if distance in (0, self.length):
            return self.start if distance == 0 else self.end
        target = self.direction @ self.start.at.first + distance
        station = correct(self.step, self.guess(distance), self.direction, target)
        if not station.solved:
            raise NoCycleError(
                f"the branch is lost between parameters {float(self.start.at.parameter):.12g} and "
                f"{float(self.end.at.parameter):.12g}: Newton's method ends with a residual of "
                f"{float(station.residual):.3g}"
            )
        return station

    def root(self, quantity: Callable[[BranchPoint], float]) -> float:
        """Return the distance at which a quantity that changes sign is zero, by Brent's method.

        If it jumps instead, the ends belong to two nearby branches, and `NoCycleError` is raised.
        """
        distance = brentq(lambda distance: quantity(self.at(distance)), 0.0, self.length, xtol=_LOCATED * self.length)
        left = abs(quantity(self.at(distance)))
        if not left < _CONTINUOUS:
            raise NoCycleError(f"the branch is lost near another: a quantity that should vanish there is {left:.3g}")
        return distance

    def root_where_branches_meet(self, quantity: Callable[[BranchPoint], float], near: float) -> tuple[float, Unknowns]:
        """Return `root` and the cycle there, by cubic interpolation, because Newton's method is singular there."""
        spread = _AROUND * self.length
        stations = [self.at(near + spread * node) for node in _NODES]
        values = [quantity(station) for station in stations]
        if values[0] * values[-1] > 0:
            raise NoCycleError("the quantity that was located where branches meet does not vanish there")
        ahead = brentq(KroghInterpolator(_NODES, values), _NODES[0], _NODES[-1])
        at = jax.tree.map(
            lambda *leaves: jnp.asarray(KroghInterpolator(_NODES, leaves)(ahead)), *(s.at for s in stations)
        )
        return near + spread * ahead, at


def _stride(
    step: Step, start: BranchPoint, first: BranchPoint, length: float, largest: float, bounds: tuple[float, float]
) -> tuple[_Segment, list[Event], float]:
    """Return the next segment, its bifurcations, and the length of the step to try after it."""
    while length > _SMALLEST * largest:
        try:
            ahead = _ahead(step, start, length, is_short=length <= _SHORT * largest)
            segment = _up_to_bounds(_up_to_start(ahead, first), bounds)
            smooth = segment.cosine > _VERY_STRAIGHT and segment.change < _CHANGE / 2
            longer = min(largest, _LONGER * length) if smooth else length
            return segment, list(_events_on(segment)), longer
        except NoCycleError:
            length /= 2
    raise NoCycleError(f"steps of {length:.3g} fail from parameter {float(start.at.parameter):.12g} on")


def _ahead(step: Step, start: BranchPoint, length: float, *, is_short: bool) -> _Segment:
    """Return the segment of this `length`. `NoCycleError` if it bends so much that it may end on another branch."""
    guess = start.at.move(start.tangent, length)
    direction = start.tangent.first
    end = correct(step, guess, direction, direction @ start.at.first + length)
    segment = _Segment(step, start, end)
    astray = _largest(end.at.move(guess, -1.0)) > _ASTRAY * length * _largest(start.tangent)
    if not end.solved or astray or not segment.cosine > _STRAIGHT:
        raise NoCycleError("the step is too long")
    if not is_short and segment.change > _CHANGE:
        raise NoCycleError("the step is too long for the multipliers")
    return segment


def _up_to_start(segment: _Segment, first: BranchPoint) -> _Segment:
    """Cut the segment at the start of the branch if the branch is closed and passes there."""
    distance = float(segment.direction @ (first.at.first - segment.start.at.first))
    if not 0 < distance <= segment.length or segment.direction @ first.tangent.first < _STRAIGHT:
        return segment
    beside = _largest(segment.guess(distance).move(first.at, -1.0))
    return _Segment(segment.step, segment.start, first) if beside < _BESIDE * segment.length else segment


def _up_to_bounds(segment: _Segment, bounds: tuple[float, float]) -> _Segment:
    """Cut the segment at the bound if it goes beyond."""
    parameter, (low, high) = float(segment.end.at.parameter), bounds
    if low <= parameter <= high:
        return segment
    bound, sign = (high, 1) if parameter > high else (low, -1)
    near = segment.at(segment.root(lambda station: float(station.at.parameter) - bound))
    end = at_parameter(segment.step, Unknowns(near.at.points, jnp.asarray(bound, dtype=jnp.float64)), sign)
    landed = _Segment(segment.step, segment.start, end)
    if not end.solved or not landed.cosine > _STRAIGHT or not landed.length > 0:
        raise NoCycleError("the branch turns back at the bound")
    return landed


def _largest(change: Unknowns) -> float:
    return max(float(jnp.max(jnp.abs(change.points))), abs(float(change.parameter)))


# ---- bifurcations


def _events_on(segment: _Segment, halvings: int = _HALVINGS) -> Iterator[Event]:
    """Yield the bifurcations on a segment, in order.

    They are detected by changes in the number of multipliers outside the unit circle, and in the parities of the
    numbers beyond 1 and -1. A multiplier that crosses and returns within the segment is missed. Events closer than
    2^-halvings of the segment may not be resolved, nor the branches of an imperfect branch point with multipliers
    within 1e-5 of 1.
    """

    def excess(rank: int) -> Callable[[BranchPoint], float]:
        return lambda station: abs(station.multipliers[rank]) - 1

    # The k-th largest modulus is continuous along the branch, whichever multiplier has it. Keep one per conjugate pair.
    crossings = []
    inside, outside = sorted(int(np.sum(np.abs(multipliers) > 1)) for multipliers in segment.multipliers)
    for rank in range(inside, outside):
        if max(abs(abs(multipliers[rank]) - 1) for multipliers in segment.multipliers) < _ON_CIRCLE:
            continue
        distance = segment.root(excess(rank))
        station = segment.at(distance)
        multiplier = complex(station.multipliers[rank])
        if multiplier.imag >= 0:
            crossings.append((distance, rank, station.at, multiplier))
    crossings.sort(key=lambda crossing: crossing[0])

    def gained(number: int) -> int:
        """Return the increase in the number of real multipliers beyond 1 or -1 from start to end of the segment."""
        before, after = (np.sum((m.imag == 0) & (m.real * number > 1 + _ON_CIRCLE)) for m in segment.multipliers)
        return int(after) - int(before)

    through = {number: sum(m.imag == 0 and m.real * number > 0 for *_, m in crossings) for number in (1, -1)}
    explained = all((count - gained(number)) % 2 == 0 for number, count in through.items())
    if halvings > 0 and not (explained and through[1] <= 1):
        middle = segment.at(segment.length / 2)
        for ends in ((segment.start, middle), (middle, segment.end)):
            yield from _events_on(_Segment(segment.step, *ends), halvings - 1)
        return
    turns = _turning(segment.start) * _turning(segment.end) < 0
    for distance, rank, at, multiplier in crossings:
        kind = NEIMARK_SACKER if multiplier.imag else PERIOD_DOUBLING
        if multiplier.imag == 0 and multiplier.real > 0:
            kind = FOLD if turns else BRANCH_POINT
        if kind == BRANCH_POINT:
            try:  # a more accurate location may fail, for instance if multipliers exchange ranks
                closer, there = segment.root_where_branches_meet(excess(rank), distance)
                if abs(closer - distance) <= _AGREES * segment.length:
                    at, multiplier = there, 1 + 0j
            except NoCycleError:
                pass
        yield Event(kind, at.points, at.parameter, jnp.asarray(multiplier))
    if turns and through[1] == 0:
        yield _meeting(segment)


def _turning(station: BranchPoint) -> float:
    """Return the derivative of the parameter by arclength, which is zero at a fold."""
    return float(station.tangent.parameter)


def _meeting(segment: _Segment) -> Event:
    """Find the bifurcation at which this branch begins, if it turns back although no multiplier crosses 1.

    The other branch may consist of cycles of half the period. Then this is a period doubling.
    """
    _, at = segment.root_where_branches_meet(_turning, segment.root(_turning))
    kind, number = BRANCH_POINT, 1
    if smallest_period(at.points) < len(at.points):
        kind, number, at = PERIOD_DOUBLING, -1, Unknowns(at.points[: len(at.points) // 2], at.parameter)
    monodromy, _, _ = _linearised(segment.step, at).condense(jnp.zeros_like(at.points))
    multipliers = multipliers_of(monodromy)
    closest = multipliers[np.argmin(np.abs(multipliers - number))]
    return Event(kind, at.points, at.parameter, jnp.asarray(closest))


@checked_arguments
def double_period(step: Step, event: Event, *, amplitude: Positive = 1e-2) -> Cycle:
    """Find the cycle of twice the period that bifurcates at a period doubling, on either side of its parameter.

    `amplitude` is half the distance between its first points, in units of the event's largest coordinate (or of one, if
    that is more). Smaller values are closer to the event. Raises `NoCycleError` if none is found, or if `amplitude` is
    too small to distinguish it from the original cycle.
    """
    if event.kind != PERIOD_DOUBLING:
        raise ValueError(f"cycles are doubled at a period doubling, but this event is a {event.kind}")
    points, parameter = checked_step(step, event.points, event.parameter, "event")
    distance = amplitude * max(1.0, float(jnp.max(jnp.abs(points))))
    # Perturbation that changes sign after a period, of length one at the first point.
    linearisation, still = _linearised(step, Unknowns(points, parameter)), jnp.zeros_like(points)
    eigenvalues, vectors = np.linalg.eig(np.asarray(linearisation.condense(still)[0]))
    vector = vectors[:, np.argmin(np.abs(eigenvalues + 1))].real
    flipped = linearisation.spread(still, jnp.append(vector / np.linalg.norm(vector), 0.0)).points
    guess = jnp.concatenate([points + distance * flipped, points - distance * flipped])
    target = flipped[0] @ points[0] + distance
    station = correct(step, Unknowns(guess, parameter), jnp.append(flipped[0], 0.0), target)
    if not station.solved or smallest_period(station.at.points) < len(guess):
        raise NoCycleError(
            f"no cycle of period {len(guess)} was found beside the period doubling at {float(parameter):.12g} with an "
            f"amplitude of {amplitude}: Newton's method ends with a residual of {float(station.residual):.3g} on "
            f"points of period {smallest_period(station.at.points)}. Try another amplitude"
        )
    return station.cycle


_linearised = jit(Linearisation.about)
