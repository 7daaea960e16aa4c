"""Bifurcations of cycles: where multipliers cross the unit circle along a branch, and cycles of twice the period."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float
from scipy.interpolate import KroghInterpolator
from scipy.optimize import brentq

from ..checks import checked_instance, checked_number
from ..compilation import jit
from .cycles import Cycle, NoCycleError, cycle_at, smallest_period
from .shooting import BranchPoint, Linearisation, Step, Unknowns, checked_step, correct, multipliers_of

PERIOD_DOUBLING = "period doubling"
"""A multiplier goes through -1: a cycle of twice the period branches off."""
NEIMARK_SACKER = "Neimark-Sacker"
"""Two complex multipliers cross the unit circle: a torus branches off."""
FOLD = "fold"
"""A multiplier goes through 1, and the branch turns back."""
BRANCH_POINT = "branch point"
"""A multiplier goes through 1, and two branches of cycles meet."""

# distance from the unit circle that is rounding
_ON_CIRCLE = 1e-9
# error of an event along the branch, as a fraction of the segment that it was noticed on
_LOCATED = 1e-11
# what a quantity may be off zero where it is located, which is less closely where branches meet
_CONTINUOUS = 1e-5
# where branches meet: how far apart the points are that it is located from, in units of the segment; where they are, in
# units of that; and how far this may be from where Newton's method found it, where it is nearly singular
_AROUND, _NODES, _AGREES = 1e-2, (-1.5, -0.5, 0.5, 1.5), 1e-4
# halvings of a segment until what crosses on it is told apart
_HALVINGS = 16


class Event(eqx.Module):
    """A cycle whose stability changes, as one multiplier or a conjugate pair crosses the unit circle.

    - `kind`: "period doubling" (through -1), "Neimark-Sacker" (a pair), "fold" (through 1 where the branch turns back)
      or "branch point" (another branch crosses, in a pitchfork or transcritical bifurcation).
    - `points` (period, state), `parameter`: the cycle.
    - `multiplier`: the one that crosses, of a pair that of the upper half plane.

    A branch of doubled cycles ends in a period doubling: that of the cycle that they double, whose points these are.
    """

    kind: str = eqx.field(static=True)
    points: Float[Array, "period state"]
    parameter: Float[Array, ""]
    multiplier: Complex[Array, ""]

    @property
    def period(self) -> int:
        """The period of the cycle."""
        return len(self.points)

    @property
    def angle(self) -> float:
        """Argument of the multiplier, from 0 to pi; at a Neimark-Sacker bifurcation, the rotation in a period."""
        return float(np.angle(self.multiplier))


@dataclass(frozen=True)
class Segment:
    """A piece of a branch, short enough to be a graph over the distance along the tangent at its start."""

    step: Step
    start: BranchPoint
    end: BranchPoint

    @property
    def direction(self) -> Float[Array, " coordinates"]:
        """The tangent at the start."""
        return self.start.tangent.first

    @cached_property
    def length(self) -> float:
        """Distance of the end along the tangent."""
        return float(self.direction @ (self.end.at.first - self.start.at.first))

    @property
    def multipliers(self) -> tuple[np.ndarray, np.ndarray]:
        """The multipliers at the start, and at the end."""
        return self.start.multipliers, self.end.multipliers

    def guess(self, distance: float) -> Unknowns:
        """Cubic Hermite interpolation between both ends and their tangents."""
        to, length = distance / self.length, self.length
        arriving = length / float(self.direction @ self.end.tangent.first)
        return jax.tree.map(
            lambda start, leaves, end, arrives: (
                start
                + to**2 * (3 - 2 * to) * (end - start)
                + to * (1 - to) * ((1 - to) * length * leaves - to * arriving * arrives)
            ),
            *(self.start.at, self.start.tangent, self.end.at, self.end.tangent),
        )

    def at(self, distance: float) -> BranchPoint:
        """The cycle at a distance from the start."""
        if distance == 0:
            return self.start
        if distance == self.length:
            return self.end
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
        """The distance at which a quantity that changes sign is zero.

        Where it jumps instead, the ends are of two branches that come close to each other: that is a `NoCycleError`.
        """
        distance = brentq(lambda distance: quantity(self.at(distance)), 0.0, self.length, xtol=_LOCATED * self.length)
        left = abs(quantity(self.at(distance)))
        if not left < _CONTINUOUS:
            raise NoCycleError(f"the branch is lost near another: what was to be zero there is {left:.3g}")
        return distance

    def root_where_branches_meet(self, quantity: Callable[[BranchPoint], float], near: float) -> tuple[float, Unknowns]:
        """As `root`, and the cycle there, by cubic interpolation: at a branch point Newton's method is singular."""
        spread = _AROUND * self.length
        stations = [self.at(near + spread * node) for node in _NODES]
        values = [quantity(station) for station in stations]
        if values[0] * values[-1] > 0:
            raise NoCycleError("what was located where branches meet is not zero around there")
        ahead = brentq(KroghInterpolator(_NODES, values), _NODES[0], _NODES[-1])
        at = jax.tree.map(
            lambda *leaves: jnp.asarray(KroghInterpolator(_NODES, leaves)(ahead)), *(s.at for s in stations)
        )
        return near + spread * ahead, at

    def halves(self) -> tuple["Segment", "Segment"]:
        """The same in two."""
        middle = self.at(self.length / 2)
        return Segment(self.step, self.start, middle), Segment(self.step, middle, self.end)


@dataclass(frozen=True)
class _Crossing:
    """Where the multiplier of a rank by modulus crosses the unit circle."""

    rank: int
    distance: float
    at: Unknowns
    multiplier: complex

    def is_at(self, number: int) -> bool:
        """Whether it crosses through 1, or -1."""
        return self.multiplier.imag == 0 and self.multiplier.real * number > 0


def events_on(segment: Segment, halvings: int = _HALVINGS) -> Iterator[Event]:
    """The bifurcations on a segment, in order.

    They are detected by changes in the number of multipliers outside the unit circle, and in the parities of those
    beyond 1 and -1; a multiplier that crosses and returns within the segment is missed. Events closer than 2^-halvings
    of the segment may not be resolved, nor the branches of an imperfect branch point with multipliers within 1e-5 of 1.
    """
    crossings = sorted(_crossings(segment), key=lambda crossing: crossing.distance)
    through_one = sum(crossing.is_at(1) for crossing in crossings)
    through_minus_one = sum(crossing.is_at(-1) for crossing in crossings)
    unexplained = through_one - _count_gained(segment, 1), through_minus_one - _count_gained(segment, -1)
    explained = all(count % 2 == 0 for count in unexplained)
    if halvings > 0 and not (explained and through_one <= 1):
        for half in segment.halves():
            yield from events_on(half, halvings - 1)
        return
    turns = _turning(segment.start) * _turning(segment.end) < 0
    for crossing in crossings:
        if crossing.is_at(1) and not turns:
            crossing = _at_branch_point(segment, crossing)
        yield _event(crossing, FOLD if turns else BRANCH_POINT)
    if turns and through_one == 0:
        yield _meeting(segment)


def _crossings(segment: Segment) -> Iterator[_Crossing]:
    """Crossings of the unit circle, one for a conjugate pair.

    Found by bracketing for the k-th largest modulus, which is continuous along the branch, whichever multiplier has it.
    """
    inside, outside = sorted(int(np.sum(np.abs(multipliers) > 1)) for multipliers in segment.multipliers)
    for rank in range(inside, outside):
        if max(abs(abs(multipliers[rank]) - 1) for multipliers in segment.multipliers) < _ON_CIRCLE:
            continue
        distance = segment.root(partial(_excess, rank))
        station = segment.at(distance)
        multiplier = complex(station.multipliers[rank])
        if multiplier.imag >= 0:
            yield _Crossing(rank, distance, station.at, multiplier)


def _excess(rank: int, station: BranchPoint) -> float:
    """How far the multiplier of a rank by modulus is outside the unit circle."""
    return abs(station.multipliers[rank]) - 1


def _at_branch_point(segment: Segment, crossing: _Crossing) -> _Crossing:
    """`crossing` located more accurately; as it is where that fails, such as where multipliers exchange ranks there."""
    try:
        distance, at = segment.root_where_branches_meet(partial(_excess, crossing.rank), crossing.distance)
    except NoCycleError:
        return crossing
    if abs(distance - crossing.distance) > _AGREES * segment.length:
        return crossing
    return replace(crossing, distance=distance, at=at, multiplier=1 + 0j)


def _count_gained(segment: Segment, number: int) -> int:
    """How many more real multipliers are beyond `number`, 1 or -1, at the end of the segment than at its start."""
    before, after = (np.sum((m.imag == 0) & (m.real * number > 1 + _ON_CIRCLE)) for m in segment.multipliers)
    return int(after) - int(before)


def _turning(station: BranchPoint) -> float:
    """Derivative of the parameter by arclength: zero at a fold."""
    return float(station.tangent.parameter)


def _event(crossing: _Crossing, through_one: str) -> Event:
    kind = through_one if crossing.is_at(1) else PERIOD_DOUBLING if crossing.is_at(-1) else NEIMARK_SACKER
    return Event(kind, crossing.at.points, crossing.at.parameter, jnp.asarray(crossing.multiplier))


def _meeting(segment: Segment) -> Event:
    """The bifurcation at which this branch begins, where it turns back though no multiplier crosses 1.

    The other branch may be of cycles of half the period: then it is a period doubling.
    """
    _, at = segment.root_where_branches_meet(_turning, segment.root(_turning))
    period = len(at.points)
    if smallest_period(at.points) == period:
        return Event(BRANCH_POINT, at.points, at.parameter, _multiplier(segment.step, at, 1))
    half = Unknowns(at.points[: period // 2], at.parameter)
    return Event(PERIOD_DOUBLING, half.points, half.parameter, _multiplier(segment.step, half, -1))


def _multiplier(step: Step, at: Unknowns, number: int) -> Complex[Array, ""]:
    """The multiplier of a cycle that is closest to a number."""
    monodromy, _, _ = _linearised(step, at).condense(jnp.zeros_like(at.points))
    multipliers = multipliers_of(monodromy)
    return jnp.asarray(multipliers[np.argmin(np.abs(multipliers - number))])


def double_period(step: Step, event: Event, *, amplitude: float = 1e-2) -> Cycle:
    """The cycle of twice the period that bifurcates at a period doubling, on whichever side of its parameter it is.

    `amplitude` is half the distance between its first points, in units of the event's largest coordinate (or of one, if
    that is more): the smaller, the closer to the event. Raises `NoCycleError` where there is none found, or `amplitude`
    is too small to tell it from the cycle that it doubles.
    """
    checked_instance("event", event, Event)
    checked_number("amplitude", amplitude, above=0.0)
    if event.kind != PERIOD_DOUBLING:
        raise ValueError(f"cycles are doubled at a period doubling, but this event is a {event.kind}")
    points, parameter = checked_step(step, event.points, event.parameter, "event")
    distance = amplitude * max(1.0, float(jnp.max(jnp.abs(points))))
    flipped = _flipped_direction(step, Unknowns(points, parameter))
    guess = jnp.concatenate([points + distance * flipped, points - distance * flipped])
    direction = jnp.append(flipped[0], 0.0)
    target = flipped[0] @ points[0] + distance
    station = correct(step, Unknowns(guess, parameter), direction, target)
    if not station.solved or smallest_period(station.at.points) < len(guess):
        raise NoCycleError(
            f"no cycle of period {len(guess)} was found beside the period doubling at {float(parameter):.12g} with an "
            f"amplitude of {amplitude}: Newton's method ends with a residual of {float(station.residual):.3g} on "
            f"points of period {smallest_period(station.at.points)}. Try another amplitude"
        )
    return cycle_at(station)


def _flipped_direction(step: Step, at: Unknowns) -> Float[Array, "period state"]:
    """The perturbation that has changed sign after a period, of length one at the first point."""
    linearisation = _linearised(step, at)
    still = jnp.zeros_like(at.points)
    monodromy, _, _ = linearisation.condense(still)
    eigenvalues, vectors = np.linalg.eig(np.asarray(monodromy))
    vector = vectors[:, np.argmin(np.abs(eigenvalues + 1))].real
    return linearisation.spread(still, jnp.append(vector / np.linalg.norm(vector), 0.0)).points


_linearised = jit(Linearisation.about)
