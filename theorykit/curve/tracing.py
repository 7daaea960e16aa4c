"""Trace a curve by pseudo-arclength continuation and locate the events on it.

Source: H. B. Keller, in Applications of Bifurcation Theory (1977). Steps are predicted along the tangent and corrected
orthogonally to it. Folds, where the parameter turns back, are ordinary points of this method.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from scipy.optimize import brentq

from .._compat import require_float64
from ..checks import Count, Positive, checked_arguments, checked_number, refuse_traced
from ..runs import bar
from .events import BRANCH_POINT, FOLD, refined
from .system import Place, System, Unknowns, corrected, seen_at, slope_at

# Refuse a step if the cosine between the tangents at its ends is below the first value; lengthen the next step if it
# is above the second.
_STRAIGHT, _VERY_STRAIGHT = 0.95, 0.995
# First and smallest length of a step, as fractions of the largest, and factor by which steps get longer.
_FIRST, _SMALLEST, _LONGER = 0.1, 1e-9, 1.5
# Refuse a step if the step back misses the first tangent by more than this fraction: it started on another branch.
_ASIDE = 0.03
# Events closer than this fraction of a step are one event.
_SAME = 1e-6
# The first or the last point is on an event if a test is below this.
_ON = 1e-7
# At a root, a continuous test is smaller than this fraction of its values on both sides.
_CONTINUOUS = 1e-5
# Such a jump means that a step led to another branch, unless the step is shorter than this fraction of the largest.
_SHORT = 1e-4
# A polished branch point is closer to the first estimate than this fraction of the step.
_BESIDE = 0.05
# An unknown above this many units grows without bound.
_FAR = 1e8
# A curve ends after this many steps in which the parameter does not change.
_STANDING = 3


@checked_arguments
def trace(
    system: System,
    start: Any,
    bounds: Sequence[float | int],
    *,
    direction: int = 1,
    largest_step: Positive | None = None,
    most_points: Count = 1000,
    progress: bool = False,
) -> xr.Dataset:
    """Follow the solutions of a system from a start, including around folds.

    Args:
        system: The equations.
        start: An approximate solution (unknowns,). The last unknown is the parameter.
        bounds: Lowest and highest value of the parameter.
        direction: 1 to start towards larger values of the parameter, -1 towards smaller values.
        largest_step: Length of the largest step in units of the system, by default a 20th of the range. Two events
            within one step that undo each other are missed.
        most_points: Largest number of points without events.
        progress: Report progress if the trace takes longer than a second.

    Returns:
        The points in order along the axis `point`, with the variables that the system records (`System.seen`),
        `unknowns`, and `event`: the kind of event at a point, or "". Events are points of the curve. Kinds are

        - "fold": the curve turns back in the parameter.
        - "branch point": another branch crosses, as in a pitchfork. The curve may also turn back there.
        - names of test functions of the system (`System.tests`).

        The attribute `ended` gives the reason why the curve ends.

    Raises:
        ValueError: If no solution is near the start, or the start is out of bounds. Also in `jax.jit`, `grad` or
            `vmap`, where `refine` finds events again.
    """
    require_float64()
    refuse_traced("trace", system, start, reason="loops in Python (`curve.refine` finds one event again in JAX)")
    if direction not in (-1, 1):
        raise ValueError(f"direction must be 1 or -1, got {direction}")
    low, high = checked_bounds("bounds", bounds)
    start = np.asarray(start, float)
    if not low <= start[-1] <= high:
        raise ValueError(f"the start is at {start[-1]:g}, which is not within the bounds {low:g} and {high:g}")
    largest = (high - low) / 20 if largest_step is None else float(largest_step)
    tracer = Tracer(system, (low, high), largest)
    with bar("curve", None, "point", shown=progress) as report:
        tracer.run(start, direction, most_points, report)
    return tracer.dataset()


def checked_bounds(name: str, bounds: Sequence[float | int]) -> tuple[float, float]:
    """Return the lowest and the highest value of a parameter."""
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise ValueError(f"{name} must be two values of the parameter, the lower first; got {bounds}")
    return float(checked_number(name, bounds[0])), float(checked_number(name, bounds[1]))


class _Found(NamedTuple):
    """Sign change of a test at a share of a step. Tests change their sign by a jump at poles and between branches."""

    share: float
    kind: str
    place: Place
    is_jump: bool = False


class Tracer:
    """State of a trace: `points`, each with the kind of its event, and `place`, the last one without an event."""

    def __init__(self, system: System, bounds: tuple[float, float], largest: float):
        self.system, self.bounds, self.largest = system, bounds, largest
        self.points: list[tuple[Unknowns, str]] = []
        self.ended = ""

    def solve(self, guess: Unknowns, across: Unknowns, units: Unknowns) -> Place:
        return jax.device_get(corrected(self.system, guess, across, units))

    def run(self, start: Unknowns, direction: int, most: int, report: Any = None) -> None:
        """Find the points of the curve until it ends."""
        place = first = self.begin(start, direction)
        places, length = [first], _FIRST * self.largest
        while not self.ended:
            if (bound := self.bound_ahead(place)) is not None:
                self.ended = f"{self.name(-1)} reached {bound:.10g}"
            elif len(places) >= most:
                self.ended = f"most_points={most} points were found, the last at {self.text(place)}"
            elif length < _SMALLEST * self.largest:
                self.ended = f"no point was found beyond {self.text(place)}"
            elif (found := self.segment(places, length)) is None:
                length /= 2
            else:
                ahead, events = found
                for u, kind in events:
                    if u is not place.u:
                        self.points.append((u, kind))
                    self.ended = self.ended or self.system.ends(kind, u)
                    if self.ended:
                        return
                straight = place.tangent @ ahead.tangent > _VERY_STRAIGHT
                length = min(self.largest, _LONGER * length) if straight else length
                self.points.append((ahead.u, ""))
                self.ended = "the curve closes on its start" if ahead is first else ""
                place = self.framed(ahead)
                places.append(place)
                self.ended = self.ended or self.runs_off(places)
                if report is not None:
                    report.set_postfix_str(self.text(place), refresh=False)
                    report.update()

    def segment(self, places: Sequence[Place], length: float) -> tuple[Place, list] | None:
        """Return the end of a step and the events on it, or None if a shorter step is needed."""
        place, first = places[-1], places[0]
        if (ahead := self.step(place, length)) is None:
            return None
        if len(places) > 2 and _passes(place, ahead, first):
            ahead = first
        found, events = [], []
        for name, values in place.tests.items():
            for entry in range(np.size(values)):
                found += self.crossing(place, ahead, name, entry, place is first)
        span = np.linalg.norm((ahead.u - place.u) / place.units)
        for _, kind, there, is_jump in _kinds(found):
            u = there.u
            if kind == BRANCH_POINT:
                # Newton's method is nearly singular there, and a regular system is more accurate.
                near = np.asarray(refined(self.system, BRANCH_POINT, u))
                if np.linalg.norm((near - u) / place.units) <= _BESIDE * span:
                    u, is_jump = near, False
            if not is_jump:
                events.append((u, kind))
                continue
            # The ends of the step are on two branches, or the equations are singular where the curve ends.
            ends = bool(self.system.ends(kind, place.u))
            may_jump = kind in self.system.singular or not (ends or kind in (FOLD, BRANCH_POINT))
            if not may_jump and length > _SHORT * self.largest:
                return None
            if ends:
                events.append((place.u, kind))
                break
        return ahead, events

    def begin(self, start: Unknowns, direction: int) -> Place:
        """Return the first point. At a fold or a branch point, its tangent is a null vector of the derivatives."""
        self.system = self.system.framed(start)
        axis = np.append(np.zeros(len(start) - 1), float(direction))
        units = np.asarray(self.system.units(start))
        slope = np.asarray(slope_at(self.system, start)) * units
        if np.isfinite(slope).all() and np.linalg.cond(slope[:, :-1]) > 1 / _ON:
            _, sizes, directions = np.linalg.svd(slope)
            null = directions[np.append(sizes, 0) <= _ON * sizes[0]]
            along = null.T @ (null @ axis)
            along = along if np.linalg.norm(along) > 1e-3 else direction * null[-1]
            axis = along / np.linalg.norm(along)
        place = self.solve(start, axis, units)
        if not place.is_near(np.inf):
            raise ValueError(
                f"no solution is near the start: the last correction of {self.text(place)} is {place.last:.3g}"
            )
        names = [name for name, values in place.tests.items() if np.min(np.abs(values), initial=np.inf) < _ON]
        kinds = _kinds([_Found(0.0, name, place) for name in names])
        kinds = [each for each in kinds if not self.system.ends(each.kind, place.u)]
        self.points += [(place.u, each.kind) for each in kinds] or [(place.u, "")]
        return self.framed(place)

    def framed(self, place: Place) -> Place:
        """Return the place with units and auxiliary vectors that suit the next step."""
        system, before = self.system.framed(place.u), self.system
        units = np.asarray(system.units(place.u))
        if system is before and np.array_equal(units, place.units):
            return place
        self.system = system
        tangent = place.tangent * place.units / units
        return self.solve(place.u, tangent / np.linalg.norm(tangent), units)

    def ahead(self, place: Place, length: float) -> Place:
        """Return the point after a step along the tangent."""
        return self.solve(place.u + length * place.tangent * place.units, place.tangent, place.units)

    def step(self, place: Place, length: float) -> Place | None:
        """Return the end of a step, or None if a shorter step is needed."""
        ahead = self.ahead(place, length)
        if not (ahead.is_near(length) and place.tangent @ ahead.tangent > _STRAIGHT):
            return None
        back = self.ahead(ahead, -length)
        miss = (back.u - place.u) / place.units
        miss -= (miss @ place.tangent) * place.tangent
        if not np.linalg.norm(miss) <= _ASIDE * length:
            return None
        low, high = self.bounds
        if low <= ahead.u[-1] <= high:
            return ahead
        # Stop at the bound, unless the curve turns back before it.
        bound = high if ahead.u[-1] > high else low
        if (place.u[-1] - bound) * (ahead.u[-1] - bound) >= 0:
            return None

        def beyond(share: float) -> float:
            known = {0.0: place, length: ahead}
            return (known[share] if share in known else self.ahead(place, share)).u[-1] - bound

        share = brentq(beyond, 0.0, length, xtol=1e-12 * length)
        near = self.ahead(place, share)
        axis = np.append(np.zeros(len(near.u) - 1), np.sign(near.tangent[-1]))
        end = self.solve(np.append(near.u[:-1], bound), axis, place.units)
        return end if end.is_near(length) else None

    def crossing(self, place: Place, ahead: Place, name: str, entry: int, is_first: bool) -> list[_Found]:
        """Return the share of a step at which an entry of a test changes its sign, with its name and point."""

        def value(at: Place) -> float:
            return float(np.nan_to_num(np.ravel(at.tests[name])[entry]))

        @cache
        def at(share: float) -> Place:
            known = {0.0: place, 1.0: ahead}
            return known[share] if share in known else self.between(place, ahead, share)

        begin, end = value(place), value(ahead)
        if is_first and abs(begin) < _ON:
            return []
        if begin * end < 0:
            share = brentq(lambda share: value(at(share)), 0.0, 1.0, xtol=1e-13, disp=False)
            there, span = at(share), np.linalg.norm((ahead.u - place.u) / place.units)
            is_small = abs(value(there)) <= _CONTINUOUS * max(abs(begin), abs(end))
            is_other = False
            if name == "singular" and place.tests[FOLD] * ahead.tests[FOLD] > 0:
                # The fold of another branch is not on this one, which does not turn back.
                turns = [abs(float(each.tests[FOLD])) for each in (place, there, ahead)]
                is_other = turns[1] < 1e-3 * min(turns[0], turns[2])
            return [_Found(share, name, there, is_other or not (is_small and there.is_near(span)))]
        if abs(end) < _ON <= abs(begin) and self.bound_ahead(ahead) is not None:
            return [_Found(1.0, name, ahead)]
        return []

    def between(self, place: Place, ahead: Place, share: float) -> Place:
        """Return the point at a fraction of a step, from a cubic interpolation between its ends."""
        step = (ahead.u - place.u) / place.units
        length, cosine = place.tangent @ step, place.tangent @ ahead.tangent
        leaving, arriving = length * place.tangent, length / cosine * ahead.tangent
        by = share**2 * (3 - 2 * share) * step
        by = by + share * (1 - share) * ((1 - share) * leaving - share * arriving)
        return self.solve(place.u + by * place.units, place.tangent, place.units)

    def bound_ahead(self, place: Place) -> float | None:
        """Return the bound that the curve crosses at this point."""
        low, high = self.bounds
        value, slope = place.u[-1], place.tangent[-1]
        if value >= high and slope > 0:
            return high
        return low if value <= low and slope < 0 else None

    def runs_off(self, places: Sequence[Place]) -> str:
        """Return why the curve has no end within the bounds, if an unknown grows."""
        place = places[-1]
        sizes = np.abs(place.u[:-1])
        if np.max(sizes, initial=0) > _FAR * max(1, np.max(np.abs(places[0].u[:-1]))):
            return f"{self.name(int(np.argmax(sizes)))} grows without bound at {self.text(place)}"
        if len(places) <= _STANDING or self.system.can_stand:
            return ""
        steps = place.u - np.stack([each.u for each in places[-1 - _STANDING : -1]])
        if np.max(np.abs(steps[:, -1])) > np.finfo(float).eps * max(place.units[-1], abs(place.u[-1])):
            return ""
        moved = self.name(int(np.argmax(np.abs(steps[0, :-1]) / place.units[:-1])))
        return f"{moved} keeps changing while {self.name(-1)} is constant, at {self.text(place)}"

    def name(self, unknown: int) -> str:
        names = self.system.names
        return names[unknown] if len(names) > 1 or unknown == -1 else f"unknown {unknown}"

    def text(self, place: Place) -> str:
        return f"{self.name(-1)} = {place.u[-1]:.6g}"

    def dataset(self) -> xr.Dataset:
        """Label the points."""
        rows = [jax.device_get(seen_at(self.system, u)) for u, _ in self.points]
        variables: dict[str, Any] = {
            "event": ("point", np.array([kind for _, kind in self.points], dtype=str)),
            "unknowns": (("point", "unknown"), np.stack([u for u, _ in self.points])),
        }
        for name, first in rows[0].items():
            axes = self.system.axes.get(name, [f"{name}_{axis}" for axis in range(np.ndim(first))])
            variables[name] = (("point", *axes), np.stack([row[name] for row in rows]))
        data = xr.Dataset(variables, attrs={"parameter": self.name(-1), "ended": self.ended})
        return data.set_coords(self.name(-1)) if self.name(-1) in data else data


def _kinds(found: Sequence[_Found]) -> list[_Found]:
    """Name the kinds of events.

    At a fold, the parameter turns back and derivatives become singular, with another index on both sides. If the
    index is the same, the curve turns back where another branch crosses.
    """
    singular = [each for each in found if each.kind == "singular"]
    kinds = [each for each in found if each.kind not in (FOLD, "singular")]
    for turn in (each for each in found if each.kind == FOLD):
        beside = [each for each in singular if abs(each.share - turn.share) < _SAME]
        singular = [each for each in singular if not any(each is other for other in beside)]
        kinds.append(turn._replace(kind=FOLD if beside else BRANCH_POINT))
    for each in singular:
        if all(known.kind != BRANCH_POINT or abs(each.share - known.share) > _SAME for known in kinds):
            kinds.append(each._replace(kind=BRANCH_POINT))
    return sorted(kinds, key=lambda each: each.share)


def _passes(place: Place, ahead: Place, first: Place) -> bool:
    """Return whether a step passes the first point of the curve."""
    step, to_first = ((each.u - place.u) / place.units for each in (ahead, first))
    share = step @ to_first / (step @ step)
    beside = np.linalg.norm(to_first - share * step) < 0.1 * np.linalg.norm(step)
    return bool(0 < share <= 1 and beside and ahead.tangent @ first.tangent > _STRAIGHT)
