"""Branches of cycles, followed through a parameter by pseudo-arclength continuation, and their bifurcations.

Branches are followed around folds. Arclength is measured in the space of the first point and the parameter, so both
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
from ..symbolic.documents.values import brief, curves
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

# Reject a step if the cosine between the tangents at its ends is below this.
_STRAIGHT = 0.95
# Lengthen the next step if this cosine is above this value.
_VERY_STRAIGHT = 0.995
# Reject a step if the cycle is farther than this from the prediction, relative to the largest change that the tangent
# predicts. The cycle may then be on another branch.
_ASTRAY = 0.25
# Reject a step if the modulus of a multiplier changes by more than this, so that no crossing is missed.
_CHANGE = 0.25
# Changes of a modulus above this value are ignored, because they are far from the unit circle.
_LARGE = 2.0
# A branch is closed if it passes its start within this distance, relative to the step.
_BESIDE = 0.05
# Length of the first step, relative to the largest.
_FIRST = 0.1
# In steps shorter than this, relative to the largest, multipliers may change freely.
_SHORT = 1e-3
# The branch ends if a step of this length, relative to the largest, fails.
_SMALLEST = 1e-7
# Factor by which the next step is longer.
_LONGER = 1.5
# Distances from the unit circle below this are rounding.
_ON_CIRCLE = 1e-9
# Tolerance on the position of an event, relative to the segment on which it was found.
_LOCATED = 1e-11
# Largest residual of a quantity at its zero. It is far above rounding, because zeros are less accurate where branches
# meet.
_CONTINUOUS = 1e-5
# Newton's method is nearly singular where branches meet, so the event is located by interpolation. This is the spacing
# of the interpolation nodes, relative to the segment.
_AROUND = 1e-2
# Positions of the interpolation nodes, in units of the spacing.
_NODES = (-1.5, -0.5, 0.5, 1.5)
# Largest accepted difference between interpolation and Newton's method, relative to the segment.
_AGREES = 1e-4
# Maximum number of halvings of a segment to separate the crossings on it.
_HALVINGS = 16


class Event(DisplayMixin, eqx.Module):
    """Cycle whose stability changes, as one multiplier or a conjugate pair crosses the unit circle.

    - `kind`: "period doubling" (through -1), "Neimark-Sacker" (a pair), "fold" (through 1 where the branch turns back)
      or "branch point" (another branch crosses, in a pitchfork or transcritical bifurcation).
    - `points` (period, state): points of the cycle. At the end of a branch of doubled cycles, they belong to the
      original cycle.
    - `parameter`: value of the parameter.
    - `multiplier`: the crossing multiplier, or the member of a pair in the upper half plane.
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
        """Argument of the multiplier, 0 to pi. At a Neimark-Sacker bifurcation, it is the rotation angle per period."""
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
    """Cycles along a branch, in order. `branch[i]` returns a `Cycle`.

    - `points` (cycle, period, state), `parameters` (cycle,), `multipliers` (cycle, state), `residuals` (cycle,): as in
      `Cycle`.
    - `events`: all changes of stability, in order.
    - `ended`: the reason why the branch ends.
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
        """Mask (cycle,) of stable cycles."""
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
        yield from curves(
            {"stable": np.where(self.stable, first, np.nan), "unstable": np.where(self.stable, np.nan, first)},
            f"first coordinate at parameters {low:.4g} to {high:.4g}",
        )
        yield Text("`to_xarray()` returns all of it with named axes.")

    def to_xarray(self) -> xr.Dataset:
        """Return the branch as a dataset that netCDF can store. Points of a cycle of half the period are repeated."""
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
    """Follow the branch of cycles through `cycle`, including around folds. Cycles may be unstable.

    The branch ends if its parameter leaves `bounds`, if it closes on its start or meets the cycles that it doubles, or
    if the smallest step fails.

    Args:
        step: The map, `step(state, parameter) -> state`.
        cycle: The cycle to start from.
        bounds: Lowest and highest value of the parameter.
        direction: 1 to start towards larger parameters, -1 to start towards smaller parameters.
        largest_step: Largest step in the space of the first point and the parameter, by default a 20th of the range of
            parameters. Two bifurcations that undo each other within a step are missed.
        most_cycles: Largest number of cycles.

    Returns:
        The cycles in order, and `events`, all changes of stability. `ended` gives the reason why the branch ends.

    Raises:
        NoCycleError: If `cycle` is not a cycle of `step`, or is at a fold.

    Example:
        >>> import theorykit
        >>> from theorykit import dynamics
        >>> theorykit.enable_float64()
        >>> logistic = lambda x, r: r * x * (1 - x)
        >>> fixed_point = dynamics.find_cycle(logistic, [0.6], 2.5, period=1)
        >>> branch = dynamics.follow(logistic, fixed_point, (2.5, 3.4))
        >>> [(event.kind, round(float(event.parameter), 6)) for event in branch.events]
        [('period doubling', 3.0)]
    """
    low, high = map(float, bounds)
    if not low < high:
        raise ValueError(f"bounds must be two parameter values, lower first; got {bounds}")
    if direction not in (-1, 1):
        raise ValueError(f"direction must be 1 or -1, got {direction}")
    largest = (high - low) / 20 if largest_step is None else float(largest_step)
    points, parameter = checked_step(step, cycle.points, cycle.parameter, "cycle")
    if not low <= float(parameter) <= high:
        raise ValueError(f"the cycle is at parameter {float(parameter)}, which is outside the bounds {bounds}")
    first = at_parameter(step, Unknowns(points, parameter), direction)
    if not first.solved or not np.all(np.isfinite(first.tangent.first)):
        raise NoCycleError(
            f"no branch starts from the cycle at parameter {float(parameter):.12g}: it solves the map's equations only "
            f"to {float(first.residual):.3g}, or is at a fold itself; take it from find_cycle with the same step"
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
            ended = "the branch meets the cycles that it doubles"
            break
        stations.append(segment.end)
        ended = "the branch closes" if segment.end is first else reached(segment.end)
    columns = jax.tree.map(lambda *of_cycles: jnp.stack(of_cycles), *(station.cycle for station in stations))
    return Branch(*vars(columns).values(), events=tuple(events), ended=ended or f"most_cycles={most_cycles} were found")


@dataclass(frozen=True)
class _Segment:
    """Piece of a branch, so short that the distance along the tangent at its start parametrises it."""

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
        """Find the distance along the segment at which `quantity` changes sign, by Brent's method.

        Raises `NoCycleError` if it jumps across zero: the ends of the segment are then on two different branches.
        """
        distance = brentq(lambda distance: quantity(self.at(distance)), 0.0, self.length, xtol=_LOCATED * self.length)
        left = abs(quantity(self.at(distance)))
        if not left < _CONTINUOUS:
            raise NoCycleError(f"the branch is lost near another one: a quantity that should vanish is {left:.3g}")
        return distance

    def root_where_branches_meet(self, quantity: Callable[[BranchPoint], float], near: float) -> tuple[float, Unknowns]:
        """Return `root` and its cycle by cubic interpolation. Newton's method is singular where branches meet."""
        spread = _AROUND * self.length
        stations = [self.at(near + spread * node) for node in _NODES]
        values = [quantity(station) for station in stations]
        if values[0] * values[-1] > 0:
            raise NoCycleError("the quantity does not change sign near the located meeting of branches")
        ahead = brentq(KroghInterpolator(_NODES, values), _NODES[0], _NODES[-1])
        at = jax.tree.map(
            lambda *leaves: jnp.asarray(KroghInterpolator(_NODES, leaves)(ahead)), *(s.at for s in stations)
        )
        return near + spread * ahead, at


def _stride(
    step: Step, start: BranchPoint, first: BranchPoint, length: float, largest: float, bounds: tuple[float, float]
) -> tuple[_Segment, list[Event], float]:
    """Return the next segment, its bifurcations, and the length of the step to try after it."""
    (low, high), direction = bounds, start.tangent.first
    while length > _SMALLEST * largest:
        try:
            guess = start.at.move(start.tangent, length)
            end = correct(step, guess, direction, direction @ start.at.first + length)
            segment = _Segment(step, start, end)
            astray = _largest(end.at.move(guess, -1.0)) > _ASTRAY * length * _largest(start.tangent)
            if not end.solved or astray or not segment.cosine > _STRAIGHT:
                raise NoCycleError("the step is too long")  # it may end on another branch
            if length > _SHORT * largest and segment.change > _CHANGE:
                raise NoCycleError("the multipliers change too much in the step")
            # Cut the segment at the start of the branch if the branch is closed and passes its start.
            distance = float(direction @ (first.at.first - start.at.first))
            passes = 0 < distance <= segment.length and not direction @ first.tangent.first < _STRAIGHT
            if passes and _largest(segment.guess(distance).move(first.at, -1.0)) < _BESIDE * segment.length:
                segment = _Segment(step, start, first)
            # Cut the segment at the bound if it goes beyond the bound.
            parameter = float(segment.end.at.parameter)
            if not low <= parameter <= high:
                bound, sign = (high, 1) if parameter > high else (low, -1)
                near = segment.at(segment.root(lambda station, bound=bound: float(station.at.parameter) - bound))
                end = at_parameter(step, Unknowns(near.at.points, jnp.asarray(bound, dtype=jnp.float64)), sign)
                segment = _Segment(step, start, end)
                if not end.solved or not segment.cosine > _STRAIGHT or not segment.length > 0:
                    raise NoCycleError("the branch turns back at the bound")
            smooth = segment.cosine > _VERY_STRAIGHT and segment.change < _CHANGE / 2
            longer = min(largest, _LONGER * length) if smooth else length
            return segment, list(_events_on(segment)), longer
        except NoCycleError:
            length /= 2
    raise NoCycleError(f"steps of length {length:.3g} fail at parameter {float(start.at.parameter):.12g}")


def _largest(change: Unknowns) -> float:
    return max(float(jnp.max(jnp.abs(change.points))), abs(float(change.parameter)))


# ---- bifurcations


def _events_on(segment: _Segment, halvings: int = _HALVINGS) -> Iterator[Event]:
    """Yield the bifurcations on a segment, in order.

    Bifurcations are detected by changes in the number of multipliers outside the unit circle, and in the parities of
    the numbers of real multipliers above 1 and below -1. A multiplier that crosses and returns within the segment is
    missed. Two cases may not be resolved: events closer than 2^-halvings of the segment, and the two branches of an
    imperfect branch point with multipliers within 1e-5 of 1.
    """

    def excess(rank: int) -> Callable[[BranchPoint], float]:
        return lambda station: abs(station.multipliers[rank]) - 1

    # Follow the k-th largest modulus. It is continuous along the branch even if multipliers exchange ranks. Keep one
    # multiplier per conjugate pair.
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
        """Return how many more real multipliers are beyond `number`, 1 or -1, at the end of the segment."""
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
        # The branch turns back although no multiplier crosses 1: it begins at a bifurcation. If the other branch
        # consists of cycles of half the period, this is a period doubling.
        _, at = segment.root_where_branches_meet(_turning, segment.root(_turning))
        kind, number = BRANCH_POINT, 1
        if smallest_period(at.points) < len(at.points):
            kind, number, at = PERIOD_DOUBLING, -1, Unknowns(at.points[: len(at.points) // 2], at.parameter)
        monodromy, _, _ = _linearised(segment.step, at).condense(jnp.zeros_like(at.points))
        multipliers = multipliers_of(monodromy)
        closest = multipliers[np.argmin(np.abs(multipliers - number))]
        yield Event(kind, at.points, at.parameter, jnp.asarray(closest))


def _turning(station: BranchPoint) -> float:
    """Return the derivative of the parameter with respect to arclength, which is zero at a fold."""
    return float(station.tangent.parameter)


@checked_arguments
def double_period(step: Step, event: Event, *, amplitude: Positive = 1e-2) -> Cycle:
    """Find a cycle of twice the period that bifurcates at a period doubling, on either side of its parameter.

    Args:
        step: The map, `step(state, parameter) -> state`.
        event: The period doubling.
        amplitude: Half the distance between the first points of the two halves of the cycle, in units of the largest
            coordinate of the event (or of one, if that is larger). Smaller amplitudes give a cycle closer to the event.

    Raises:
        NoCycleError: If no cycle is found, or if `amplitude` is too small to distinguish the cycle from the original.
    """
    if event.kind != PERIOD_DOUBLING:
        raise ValueError(f"event must be a period doubling, got a {event.kind}")
    points, parameter = checked_step(step, event.points, event.parameter, "event")
    distance = amplitude * max(1.0, float(jnp.max(jnp.abs(points))))
    # Find the perturbation that changes sign after a period. It has length one at the first point.
    linearisation, still = _linearised(step, Unknowns(points, parameter)), jnp.zeros_like(points)
    eigenvalues, vectors = np.linalg.eig(np.asarray(linearisation.condense(still)[0]))
    vector = vectors[:, np.argmin(np.abs(eigenvalues + 1))].real
    flipped = linearisation.spread(still, jnp.append(vector / np.linalg.norm(vector), 0.0)).points
    guess = jnp.concatenate([points + distance * flipped, points - distance * flipped])
    target = flipped[0] @ points[0] + distance
    station = correct(step, Unknowns(guess, parameter), jnp.append(flipped[0], 0.0), target)
    if not station.solved or smallest_period(station.at.points) < len(guess):
        raise NoCycleError(
            f"no cycle of period {len(guess)} was found near the period doubling at {float(parameter):.12g} with an "
            f"amplitude of {amplitude}: Newton's method ends with a residual of {float(station.residual):.3g} on "
            f"points of period {smallest_period(station.at.points)}. Try another amplitude"
        )
    return station.cycle


_linearised = jit(Linearisation.about)
