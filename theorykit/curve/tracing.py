"""Trace a curve by pseudo-arclength continuation and locate the events on it.

Source: H. B. Keller, in Applications of Bifurcation Theory (1977). Steps are predicted along the tangent and corrected
orthogonally to it. Folds, where the parameter turns back, are ordinary points of this method.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from scipy.optimize import brentq
from tqdm.auto import tqdm

from .._compat import require_float64
from ..checks import checked_number, refuse_traced
from ..runs import bar
from .system import BRANCH_POINT, FOLD, SINGULAR, Place, System, Unknowns, corrected, refined, seen_at, slope_at

# Cosine between tangents below which a step is refused, and above which the next one is longer.
_STRAIGHT, _VERY_STRAIGHT = 0.95, 0.995
# First and smallest step, as fractions of the largest, and factor by which steps get longer.
_FIRST, _SMALLEST, _LONGER = 0.1, 1e-9, 1.5
# Refuse a step if the step back misses the first tangent by more than this fraction: it started on another branch.
_ASIDE = 0.03
# Largest number of points without events.
_MOST = 2000
# Events closer than this fraction of a step are one event.
_SAME = 1e-6
# The first or the last point is on an event if a test is below this.
_ON = 1e-7
# At a root, a continuous test is smaller than this fraction of its values on both sides.
_CONTINUOUS = 1e-5
# Otherwise a step led to another branch, unless the step is shorter than this fraction of the largest.
_SHORT = 1e-4
# A polished branch point is closer to the first estimate than this fraction of the step.
_BESIDE = 0.05
# An unknown above this many units grows without bound.
_FAR = 1e8
# A curve ends after this many steps in which the parameter does not change.
_STANDING = 3


def trace(
    system: System,
    start: Any,
    bounds: Sequence[float | int],
    *,
    direction: int = 1,
    largest_step: float | None = None,
    progress: bool = False,
) -> xr.Dataset:
    """Follow the solutions of a system from a start, including around folds.

    Args:
        system: The equations.
        start: An approximate solution (unknowns,). The last unknown is the parameter.
        bounds: Lowest and highest value of the parameter.
        direction: 1 to start towards larger values of the parameter, -1 towards smaller values, 0 for both.
        largest_step: Largest step in units of the system, by default a 20th of the bounds. Two events within one step
            that undo each other are missed.
        progress: Report progress if the trace takes longer than a second.

    Returns:
        The points in order along the axis `point`: what the system records (`System.seen`), `unknowns`, and `event`,
        the kind of event at a point, or "". Kinds are names of tests (`System.tests`), and

        - "fold": the curve turns back in the parameter.
        - "branch point": another branch crosses, as in a pitchfork. The curve may also turn back there.

        The attribute `ended` gives the reason why the curve ends, and `began` for both directions why it begins.

    Raises:
        ValueError: If no solution is near the start, or the start is out of bounds.
    """
    require_float64()
    refuse_traced("trace", system, start, reason="loops in Python (`curve.refine` finds one event again in JAX)")
    low, high = checked_bounds("bounds", bounds)
    largest = checked_number("largest_step", (high - low) / 20 if largest_step is None else largest_step, above=0.0)
    start = np.asarray(start, float)
    if direction not in (-1, 0, 1):
        raise ValueError(f"direction must be 1, -1 or 0, got {direction}")
    if not low <= start[-1] <= high:
        raise ValueError(f"the start is at {start[-1]:g}, which is not within the bounds {low:g} and {high:g}")
    with bar("curve", None, "point", shown=progress) as report:
        parts = []
        for each in (direction,) if direction else (-1, 1):
            tracer = _Tracer(system, (low, high), largest)
            ended = tracer.run(start, each, report)
            parts.append(labelled(tracer.system, tracer.points).assign_attrs(ended=ended))
    if direction or "closes" in parts[0].attrs["ended"]:
        return parts[0]
    whole = xr.concat([parts[0].isel(point=slice(None, 0, -1)), parts[1]], "point", combine_attrs="override")
    return whole.assign_attrs(began=parts[0].attrs["ended"], ended=parts[1].attrs["ended"])


def checked_bounds(name: str, bounds: Sequence[float | int]) -> tuple[float, float]:
    """Return the lowest and the highest value of a parameter."""
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise ValueError(f"{name} must be two values of the parameter, the lower first; got {bounds}")
    return float(checked_number(name, bounds[0])), float(checked_number(name, bounds[1]))


class _Event(NamedTuple):
    """Sign change of a test after a length of a step. It may be a jump, at a pole or between two branches."""

    length: float
    kind: str
    u: Unknowns
    jumps: bool = False


class _Tracer:
    """State of a trace: the system with its current units, and points with the kinds of their events."""

    def __init__(self, system: System, bounds: tuple[float, float], largest: float):
        self.system, self.bounds, self.largest = system, bounds, largest
        self.points: list[tuple[Unknowns, str]] = []

    def run(self, start: Unknowns, direction: int, report: tqdm) -> str:
        """Find the points of the curve, and return why it ends."""
        place = first = self.begin(start, direction)
        places, length = [first], _FIRST * self.largest
        while not (ended := self.end_at(places, length)):
            ahead = self.step(place, length)
            if ahead is not None and len(places) > 2 and _passes(place, ahead, first):
                ahead = first
            events = None if ahead is None else self.events(place, ahead, length, place is first)
            if events is None:
                length /= 2
                continue
            for at, kind, u, jumps in events:
                ended = self.system.ends(kind, place.u if jumps else u)
                if ended and not jumps and at > _SHORT * self.largest:
                    # The equations may be singular at the end. Add a regular point next to it.
                    beside = self.ahead(place, at - _SHORT * self.largest)
                    self.points += [(beside.u, "")] * beside.is_near(at)
                if not jumps:
                    self.points.append((u, kind))
                if ended:
                    return ended
            self.points.append((ahead.u, ""))
            if ahead is first:
                return "the curve closes on its start"
            if place.tangent @ ahead.tangent > _VERY_STRAIGHT:
                length = min(self.largest, _LONGER * length)
            place = self.framed(ahead)
            places.append(place)
            report.set_postfix_str(self.text(place), refresh=False)
            report.update()
        return ended

    def begin(self, start: Unknowns, direction: int) -> Place:
        """Return the first point. At a fold or a branch point, its tangent is a null vector of the derivatives."""
        self.system = self.system.framed(start)
        axis = np.append(np.zeros(len(start) - 1), float(direction))
        slope = np.asarray(slope_at(self.system, start)) * np.asarray(self.system.units(start))
        if np.isfinite(slope).all() and np.linalg.cond(slope[:, :-1]) > 1 / _ON:
            _, sizes, directions = np.linalg.svd(slope)
            null = directions[np.append(sizes, 0) <= _ON * sizes[0]]
            along = null.T @ (null @ axis)
            along = along if np.linalg.norm(along) > 1e-3 else direction * null[-1]
            axis = along / np.linalg.norm(along)
        place = self.solve(start, axis)
        if not place.is_near():
            raise ValueError(
                f"no solution is near the start: the last correction of {self.text(place)} is {place.last:.3g}"
            )
        on = [name for name, values in place.tests.items() if np.min(np.abs(values), initial=np.inf) < _ON]
        kinds = [each.kind for each in _merged([_Event(0.0, name, place.u) for name in on], 1.0)]
        kinds = [kind for kind in kinds if not self.system.ends(kind, place.u)]
        self.points += [(place.u, kind) for kind in kinds or [""]]
        return self.framed(place)

    def framed(self, place: Place) -> Place:
        """Return the place with units and auxiliary vectors that suit the next step."""
        before, self.system = self.system, self.system.framed(place.u)
        if self.system is before:
            return place
        tangent = place.tangent * place.units / np.asarray(self.system.units(place.u))
        return self.solve(place.u, tangent / np.linalg.norm(tangent))

    def solve(self, guess: Unknowns, across: Unknowns) -> Place:
        return jax.device_get(corrected(self.system, guess, across))

    def ahead(self, place: Place, length: float) -> Place:
        """Return the point after a step along the tangent."""
        return self.solve(place.u + length * place.tangent * place.units, place.tangent)

    def step(self, place: Place, length: float) -> Place | None:
        """Return the end of a step, or None if a shorter step is needed."""
        ahead = self.ahead(place, length)
        if not (ahead.is_near(length) and place.tangent @ ahead.tangent > _STRAIGHT):
            return None
        miss = (self.ahead(ahead, -length).u - place.u) / place.units
        miss -= (miss @ place.tangent) * place.tangent
        if not np.linalg.norm(miss) <= _ASIDE * length:
            return None
        bound = np.clip(ahead.u[-1], *self.bounds)
        if ahead.u[-1] == bound:
            return ahead
        # Stop at the bound, unless the curve turns back before it.
        if (place.u[-1] - bound) * (ahead.u[-1] - bound) >= 0:
            return None
        share = (bound - place.u[-1]) / (ahead.u[-1] - place.u[-1])
        guess = np.append((place.u + share * (ahead.u - place.u))[:-1], bound)
        end = self.solve(guess, np.append(np.zeros(len(guess) - 1), np.sign(ahead.u[-1] - bound)))
        return end if end.is_near(length) else None

    def events(self, place: Place, ahead: Place, length: float, is_first: bool) -> list[_Event] | None:
        """Return the events between two points in order, or None if the points are on different branches."""
        span = float(place.tangent @ ((ahead.u - place.u) / place.units))
        found = []

        @cache
        def at(length: float) -> Place:
            known = {0.0: place, span: ahead}
            return known[length] if length in known else self.ahead(place, length)

        for name, values in place.tests.items():
            for entry in range(np.size(values)):

                def value(length: float, name=name, entry=entry) -> float:
                    return float(np.nan_to_num(np.ravel(at(length).tests[name])[entry]))

                begin, end = value(0.0), value(span)
                if is_first and abs(begin) < _ON:
                    continue
                if (begin < 0) != (end < 0):
                    root = brentq(value, 0.0, span, xtol=1e-13 * abs(span), disp=False)
                    is_small = abs(value(root)) <= _CONTINUOUS * max(abs(begin), abs(end))
                    found.append(_Event(root, name, at(root).u, not (is_small and at(root).is_near(abs(span)))))
                elif abs(end) < _ON <= abs(begin) and self.bound_ahead(ahead) is not None:
                    found.append(_Event(span, name, ahead.u))
        events = []
        for event in _merged(found, span):
            ends = self.system.ends(event.kind, place.u)
            unclear = event.jumps and (
                event.kind in (FOLD, BRANCH_POINT) or (ends and event.kind not in self.system.poles)
            )
            if event.kind == BRANCH_POINT:
                # Newton's method is nearly singular there. The polished point is accurate, and on this branch.
                near = np.asarray(refined(self.system, BRANCH_POINT, event.u))
                unclear = not np.linalg.norm((near - event.u) / place.units) <= _BESIDE * abs(span)
                event = event if unclear else event._replace(u=near, jumps=False)
            if unclear and length > _SHORT * self.largest:
                return None
            events.append(event)
        return events

    def bound_ahead(self, place: Place) -> float | None:
        """Return the bound that the curve crosses at this point."""
        slope = place.tangent[-1]
        bound = self.bounds[int(slope > 0)]
        return bound if slope != 0 and (place.u[-1] - bound) * slope >= 0 else None

    def end_at(self, places: Sequence[Place], length: float) -> str:
        """Return why the curve ends at the last of its points, or nothing if it continues."""
        place, names = places[-1], self.system.names
        if (bound := self.bound_ahead(place)) is not None:
            return f"{names[-1]} reached {bound:.10g}"
        if len(places) >= _MOST:
            return f"{_MOST} points were found, the last at {self.text(place)}"
        if length < _SMALLEST * self.largest:
            return f"no point was found beyond {self.text(place)}"
        sizes, reason = np.abs(place.u[:-1]), ""
        if np.max(sizes, initial=0) > _FAR * max(1, np.max(np.abs(places[0].u[:-1]))):
            reason = f"grows without bound at {self.text(place)}"
        elif len(places) > _STANDING and not self.system.can_stand:
            steps = place.u - np.stack([each.u for each in places[-1 - _STANDING : -1]])
            if np.max(np.abs(steps[:, -1])) <= np.finfo(float).eps * max(place.units[-1], abs(place.u[-1])):
                sizes = np.abs(steps[0, :-1]) / place.units[:-1]
                reason = f"keeps changing while {names[-1]} is constant, at {self.text(place)}"
        number = int(np.argmax(sizes))
        return reason and f"{names[number] if len(names) > 1 else f'unknown {number}'} {reason}"

    def text(self, place: Place) -> str:
        return f"{self.system.names[-1]} = {place.u[-1]:.6g}"


def labelled(system: System, points: Sequence[tuple[Unknowns, str]]) -> xr.Dataset:
    """Label what a system records at points, with the kinds of their events."""
    rows = [jax.device_get(seen_at(system, u)) for u, _ in points]
    variables: dict[str, Any] = {
        "event": ("point", np.array([kind for _, kind in points], dtype=str)),
        "unknowns": (("point", "unknown"), np.stack([u for u, _ in points])),
    }
    for name, first in rows[0].items():
        axes = system.axes.get(name, ())
        axes = (*axes, *(f"{name}_{axis}" for axis in range(np.ndim(first) - len(axes))))
        variables[name] = (("point", *axes), np.stack([row[name] for row in rows]))
    name = system.names[-1]
    data = xr.Dataset(variables, attrs={"parameter": name})
    return data.set_coords(name) if name in data else data


def _merged(found: Sequence[_Event], span: float) -> list[_Event]:
    """Order events, and name folds and branch points.

    At a fold, the parameter turns back and derivatives become singular, with another index on both sides. If the
    index is the same, the curve turns back where another branch crosses.
    """
    found = sorted(found, key=lambda each: each.length)
    turns = [each for each in found if each.kind in (FOLD, SINGULAR)]
    events = [each for each in found if each.kind not in (FOLD, SINGULAR)]
    while turns:
        same = [each for each in turns if each.length - turns[0].length <= _SAME * abs(span)]
        kind = FOLD if {each.kind for each in same} == {FOLD, SINGULAR} else BRANCH_POINT
        events.append(same[0]._replace(kind=kind, jumps=any(each.jumps for each in same)))
        turns = turns[len(same) :]
    return sorted(events, key=lambda each: each.length)


def _passes(place: Place, ahead: Place, first: Place) -> bool:
    """Return whether a step passes the first point of the curve."""
    step, to_first = ((each.u - place.u) / place.units for each in (ahead, first))
    share = step @ to_first / (step @ step)
    beside = np.linalg.norm(to_first - share * step) < 0.1 * np.linalg.norm(step)
    return bool(0 < share <= 1 and beside and ahead.tangent @ first.tangent > _STRAIGHT)
