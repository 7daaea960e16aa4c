"""Trace a curve by pseudo-arclength continuation and locate the events on it.

Steps are predicted along the tangent and corrected orthogonally to it, so that folds are
ordinary points (H. B. Keller, in Applications of Bifurcation Theory, 1977).
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from scipy.optimize import brentq

from .._compat import require_float64
from ..checks import checked_instance, checked_number, numeric_array, refuse_traced, shown
from .system import BRANCH_POINT, FOLD, SINGULAR, Place, System, Unknowns, corrected, refined, seen_at, slope_at

# Cosine between tangents below which a step is refused, and above which the next one is longer.
_STRAIGHT, _VERY_STRAIGHT = 0.95, 0.995
# First and smallest step, as fractions of the largest, and factor by which steps get longer.
_FIRST, _SMALLEST, _LONGER = 0.1, 1e-9, 1.5
# A step is on another branch if the step back misses the first tangent by this fraction.
_ASIDE = 0.03
# Largest number of points without events.
_MOST = 2000
# Events closer than this fraction of a step are one event.
_SAME = 1e-5
_CLOSED = "the curve closes on its start"
# The first or the last point is on an event if a test is below this.
_ON = 1e-7
# At a root, a continuous test is smaller than this fraction of its values on both sides.
_CONTINUOUS = 1e-5
# A jump is another branch, unless the step is below this fraction of the largest.
_SHORT = 1e-4
# A polished branch point moves by less than this fraction of the step.
_BESIDE = 0.05
# An unknown grows without bound if it exceeds the start by this factor.
_FAR = 1e8


def trace(
    system: System, start: Any, bounds: Sequence[float | int], *, direction: int = 1, largest_step: float | None = None
) -> xr.Dataset:
    """Follow the solutions of a system from a start, including around folds.

    Args:
        system: The equations.
        start: An approximate solution (unknowns,). The last unknown is the parameter.
        bounds: Lowest and highest value of the parameter.
        direction: 1 towards larger values of the parameter, -1 towards smaller ones, 0 for both.
        largest_step: Largest step in units of the system, by default a 20th of the bounds. Two
            events within a step that undo each other are missed.

    Returns:
        The points in order along the axis `point`: records of `System.seen`, `unknowns`, and
        `event`, a name of `System.tests`, "" for none, or

        - "fold": the curve turns back in the parameter.
        - "branch point": another branch crosses. The curve may also turn back there.

        The attribute `ended` gives the reason why the curve ends. With both directions, `began`
        gives the reason for the other end.

    Raises:
        ValueError: If no solution is near the start, or the start is out of bounds.
    """
    require_float64()
    refuse_traced("trace", system, start, reason="loops in Python (`curve.refine` finds one event again in JAX)")
    checked_instance("system", system, System)
    low, high = checked_bounds("bounds", bounds)
    largest = checked_number("largest_step", (high - low) / 20 if largest_step is None else largest_step, above=0.0)
    start = np.atleast_1d(numeric_array("start", start))
    if direction not in (-1, 0, 1):
        raise ValueError(f"direction must be 1, -1 or 0, got {direction}")
    if not low <= start[-1] <= high:
        raise ValueError(f"the start {start[-1]:g} is not within the bounds {low:g} and {high:g}")
    parts = []
    for each in (direction,) if direction else (-1, 1):
        tracer = _Tracer(system, (low, high), largest)
        ended = tracer.run(start, each)
        parts.append(labelled(tracer.system, tracer.points).assign_attrs(ended=ended))
        if ended == _CLOSED:
            break
    if len(parts) == 1:
        return parts[0]
    back, onwards = parts
    whole = xr.concat([back.isel(point=slice(None, 0, -1)), onwards], "point", combine_attrs="override")
    return whole.assign_attrs(began=back.attrs["ended"], ended=onwards.attrs["ended"])


def checked_bounds(name: str, bounds: Sequence[float | int]) -> tuple[float, float]:
    if (pair := numeric_array(name, bounds)).shape != (2,) or not -np.inf < pair[0] < pair[1] < np.inf:
        raise ValueError(f"{name} must be two numbers, the lower first; got {shown(bounds)}")
    return float(pair[0]), float(pair[1])


class _Event(NamedTuple):
    """Sign change of a test after a length of a step, or a jump."""

    length: float
    kind: str
    u: Unknowns
    jumps: bool = False


class _Tracer:
    """The system with its current units, and the points with the kinds of their events."""

    def __init__(self, system: System, bounds: tuple[float, float], largest: float):
        self.system, self.bounds, self.largest = system, bounds, largest
        self.points: list[tuple[Unknowns, str]] = []

    def run(self, start: Unknowns, direction: int) -> str:
        """Find the points of the curve, and return why it ends."""
        place = first = self.begin(start, direction)
        count, length = 1, _FIRST * self.largest
        while not (ended := self.end_at(place, first, count, length)):
            ahead = self.step(place, length)
            if ahead is not None and count > 2 and _passes(place, ahead, first):
                ahead = first
            events = None if ahead is None else self.events(place, ahead, length, place is first)
            if events is None:
                length /= 2
                continue
            for at, kind, u, jumps in events:
                ended = self.system.ends(kind, u)
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
                return _CLOSED
            if place.tangent @ ahead.tangent > _VERY_STRAIGHT:
                length = min(self.largest, _LONGER * length)
            place, count = self.framed(ahead), count + 1
        return ended

    def begin(self, start: Unknowns, direction: int) -> Place:
        """Return the first point. At a fold or branch point, the tangent is a null vector."""
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
            raise ValueError(f"no solution is near the start: the last correction is {place.last:.3g}")
        on = {kind for kind, value in zip(place.kinds, place.values, strict=True) if abs(value) < _ON}
        kinds = [each.kind for each in _merged([_Event(0.0, name, place.u) for name in on], 1.0)]
        kinds = [kind for kind in kinds if not self.system.ends(kind, place.u)]
        self.points += [(place.u, kind) for kind in kinds or [""]]
        return self.framed(place)

    def framed(self, place: Place) -> Place:
        """Return the place with units and vectors that suit the next step."""
        before, self.system = self.system, self.system.framed(place.u)
        if self.system is before:
            return place
        tangent = place.tangent * place.units / np.asarray(self.system.units(place.u))
        return self.solve(place.u, tangent / np.linalg.norm(tangent))._replace(u=place.u)

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
        """Return the events between two points, or None if these are on different branches."""
        span = float(place.tangent @ ((ahead.u - place.u) / place.units))
        found, known = [], {0.0: place, span: ahead}
        at = cache(lambda length: known[length] if length in known else self.ahead(place, length))
        begin, end = place.values, ahead.values
        crosses = (begin < 0) != (end < 0)
        if is_first:
            crosses &= np.abs(begin) >= _ON
        for entry in np.flatnonzero(crosses):
            root = brentq(lambda x, i=entry: at(x).values[i], 0.0, span, xtol=1e-13 * abs(span), disp=False)
            largest = max(abs(begin[entry]), abs(end[entry]))
            is_small = abs(at(root).values[entry]) <= _CONTINUOUS * largest
            is_jump = not (is_small and at(root).is_near(abs(span)))
            found.append(_Event(root, place.kinds[entry], at(root).u, is_jump))
        if self.bound_ahead(ahead) is not None:
            reached = ~crosses & (np.abs(end) < _ON) & (np.abs(begin) >= _ON)
            found += [_Event(span, place.kinds[entry], ahead.u) for entry in np.flatnonzero(reached)]
        events = []
        for event in _merged(found, span):
            # A jump may hide another event in the step.
            unclear = event.jumps
            if event.kind == BRANCH_POINT:
                # The corrections are nearly singular there.
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

    def end_at(self, place: Place, first: Place, count: int, length: float) -> str:
        """Return why the curve ends at a point, or nothing if it continues."""
        if (bound := self.bound_ahead(place)) is not None:
            return f"{self.system.parameter} reached {bound:.10g}"
        if count > 1 and (reason := self.system.ends("", place.u)):
            return f"{reason} at {self.text(place)}"
        if count >= _MOST:
            return f"{_MOST} points were found, the last at {self.text(place)}"
        if length < _SMALLEST * self.largest:
            return f"no point was found beyond {self.text(place)}"
        size, size_at_start = (np.max(np.abs(each.u[:-1])) for each in (place, first))
        if size > _FAR * max(1, size_at_start):
            return f"an unknown grows without bound at {self.text(place)}"
        return ""

    def text(self, place: Place) -> str:
        return f"{self.system.parameter} = {place.u[-1]:.6g}"


def labelled(system: System, points: Sequence[tuple[Unknowns, str]]) -> xr.Dataset:
    rows = [jax.device_get(seen_at(system, u)) for u, _ in points]
    variables: dict[str, Any] = {
        "event": ("point", np.array([kind for _, kind in points], dtype=str)),
        "unknowns": (("point", "unknown"), np.stack([u for u, _ in points])),
    }
    for name, first in rows[0].items():
        axes = system.axes.get(name, ())
        axes = (*axes, *(f"{name}_{axis}" for axis in range(np.ndim(first) - len(axes))))
        variables[name] = (("point", *axes), np.stack([row[name] for row in rows]))
    data = xr.Dataset(variables, attrs={"parameter": system.parameter})
    return data.set_coords(system.parameter) if system.parameter in data else data


def _merged(found: Sequence[_Event], span: float) -> list[_Event]:
    """Order events, and name folds and branch points.

    At a fold, the parameter turns back and a test of singular derivatives changes its sign.
    If only one of both happens, another branch crosses.
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
