"""Transitions and phase diagrams: crossings of branches, followed through the plane."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import optimistix as optx
import xarray as xr
from jaxtyping import Array
from sympy import Expr

from .._jit import jit
from ..checks import by_name, checked_whole_number, counted, refuse_traced
from ..curve import trace
from ..curve.system import BRANCH_POINT, FOLD, Place, corrected, seen_at
from ..curve.tracing import checked_bounds, labelled
from ..runs import bar
from .action import Action
from .bound_action import Values
from .branch import (
    COEXISTENCE,
    CONTINUOUS,
    CRITICAL,
    MERGE,
    MERGED,
    SPINODAL,
    TRICRITICAL,
    Boundary,
    boundary_at,
    checked_parameter,
    follow,
    near,
    order_parameters,
)
from .solution import Solution
from .solve import minimise, search

Seed = tuple[Boundary, np.ndarray]
TRIPLE = "triple point"
STABLE, METASTABLE, UNKNOWN = "stable", "metastable", "unknown"
# Largest step of a line, in units of half the ranges.
_LARGEST = 0.1
# Distances of a point from a line it is on, and of a line from the critical point at its end.
_SAME, _END = 0.005, 0.2
# Lines through a point are the same if the cosine between them is above this.
_PARALLEL = 0.98
# Points of a line with larger errors than this multiple of the median are left out.
_REGULAR = 1e6
# Largest error of a boundary, in units of half the range of a parameter.
_KNOWN = 0.01
# A fold has a larger ratio of the changes of F and of its curvature with the parameters.
_NO_FOLD = 1e-4
# Actions with a smaller relative difference are equal.
_ROUNDED = 1e-11
# Differences of order parameters about to merge, of one branch, and of one minimum.
_MERGING, _DUPLICATE, _SAME_PHASE = 0.1, 0.01, 0.05
# Positions of searches along a scan or a line, as fractions of its length.
_ALONG = (0.03, 0.5, 0.97)


def transition(solution: Solution, other: Solution, parameter: Expr | str, bounds: Sequence[float | int]) -> xr.Dataset:
    """Find the value of a parameter at which two solutions have equal action, or merge.

    Args:
        solution: A converged solution.
        other: A solution of the same action at the same values of all other parameters.
        parameter: The number that changes.
        bounds: Its lowest and highest value.

    Returns:
        A dataset of the value of the parameter closest to `solution`, its `error` (a bound on
        the shift by rounding and quadrature), and the order parameters and `action` of both
        solutions along the axis `solution`. `kind` is "first-order" if the solutions differ
        there, and "continuous" if they merge.

    Raises:
        ValueError: If the actions do not cross, or both solutions are on the same branch.

    Example:
        >>> import theorykit
        >>> from sympy import symbols
        >>> from theorykit import saddle
        >>> theorykit.enable_float64()
        >>> m, h = symbols("m h", real=True)
        >>> action = saddle.Action(m**4 / 4 - m**2 / 2 - h * m, {m: saddle.Real()}, [h])
        >>> up, down = (saddle.minimise(action, {h: 0.1}, initial={m: start}) for start in (1.0, -1.0))
        >>> found = saddle.transition(up, down, h, (-1, 1))
        >>> found["kind"].item(), bool(abs(found["h"]) <= found["error"])
        ('first-order', True)
    """
    reason = "loops in Python (`curve.refine` finds a fold again in JAX)"
    refuse_traced("transition", solution, other, reason=reason)
    action, name = solution.of, checked_parameter(solution.of, parameter)
    low, high = checked_bounds("bounds", bounds)
    if other.of.refined != action.refined:
        raise ValueError("other is a solution of another action")
    for key, value in solution.parameters.items():
        if key != name and not np.array_equal(value, other.parameters[key]):
            raise ValueError(f"solution and other differ in {key}, and not in {name} alone")
    step, branches, pieces = (high - low) / 100, [], []
    options = {"direction": 0, "largest_step": step, "progress": False}
    for each in (solution, other):
        branches.append(follow(action, each.parameters, each, name, (low, high), **options))
        passes = [
            (_apart(at, each.order_parameters), number, part)
            for number, part in enumerate(_pieces(branches[-1], int(each.stats["asked"])))
            for at in near(part, float(each.parameters[name]))
        ]
        if not passes:
            raise ValueError(f"no branch within bounds goes through the solution at {each.place}")
        pieces.append(min(passes)[2])
    low, high = _overlap(*pieces)
    apart = [_apart(*(_at(each, value) for each in pieces)) for value in np.linspace(low, high, 5)]
    if max(apart) < _DUPLICATE:
        raise ValueError(f"solution at {solution.place} and other at {other.place} are on the same branch")
    if crossings := _crossings(*pieces):
        value = min(crossings, key=lambda value: abs(value - float(solution.parameters[name])))
        label, kind, points = "first-order", COEXISTENCE, [_at(piece, value) for piece in pieces]
    else:
        events = [event for branch in branches for event in _events(branch)]
        merging = [
            (kind, value, at)
            for kind, value, at in events
            if low - step <= value <= high + step and all(_apart(at, _at(each, value)) < _MERGING for each in pieces)
        ]
        if not merging:
            folds = {f"{value:.6g}" for kind, value, _ in events if kind == FOLD}
            folds = f"; folds (spinodals) are at {' and '.join(sorted(folds))}" if folds else ""
            raise ValueError(f"the actions do not cross for {name} from {low:.6g} to {high:.6g}{folds}")
        event, value, at = merging[0]
        label, kind, points = "continuous", SPINODAL if event == FOLD else CONTINUOUS, [at]
    given = {**solution.parameters, name: value}
    system, unknowns = boundary_at(action, {name: bounds}, kind, given, points, _largest(branches))
    place = jax.device_get(corrected(system, unknowns, np.append(np.zeros(len(unknowns) - 1), 1.0)))
    if not place.is_near():
        raise ValueError(f"Newton's method failed at the transition next to {name} = {value:.6g}")
    found = labelled(system, [(place.u, "")]).isel(point=0)[[name, "error", *system.bound.domains, "action"]]
    found["error"] *= float(system.lengths[-2])
    return found.assign(kind=label).assign_attrs(transition=name)


def _events(branch: xr.Dataset) -> Iterator[tuple[str, float, dict[str, np.ndarray]]]:
    """Yield kind, parameter and order parameters of folds and branch points."""
    values, found = branch[branch.attrs["parameter"]].values, order_parameters(branch)
    for at, kind in enumerate(branch["event"].values):
        if kind in (FOLD, BRANCH_POINT):
            yield kind, float(values[at]), {name: each[at] for name, each in found.items()}


def _pieces(branch: xr.Dataset, index: int) -> list[xr.Dataset]:
    """Return the parts with this index and monotonic parameter, sorted by the parameter."""
    right = (branch["index"].values == index) | (branch["event"].values != "")
    steps = np.sign(np.diff(branch[branch.attrs["parameter"]].values))
    steps, pieces = np.where(right[:-1] & right[1:], steps, 0.0), []
    for key, numbers in itertools.groupby(range(len(steps)), steps.__getitem__):
        at = list(numbers)
        if key:
            pieces.append(branch.isel(point=np.arange(at[0], at[-1] + 2)[:: int(key)]))
    return pieces


def _overlap(*pieces: xr.Dataset) -> tuple[float, float]:
    """Return the lowest and the highest value of the parameter that all pieces reach."""
    ends = np.array([piece[piece.attrs["parameter"]].values[[0, -1]] for piece in pieces])
    return float(np.max(ends[:, 0])), float(np.min(ends[:, 1]))


def _at(piece: xr.Dataset, value: float) -> dict[str, Any]:
    """Interpolate order parameters linearly, up to the ends of a piece."""
    return near(piece, float(np.clip(value, *_overlap(piece))))[0]


def _crossings(*pair: xr.Dataset) -> list[float]:
    """Return parameter values at which the actions of two pieces cross."""
    places, actions = ([piece[name].values for piece in pair] for name in (pair[0].attrs["parameter"], "action"))
    grid, (low, high) = np.unique(np.concatenate(places)), _overlap(*pair)
    grid = grid[(low <= grid) & (grid <= high)]
    off, error = np.zeros(len(grid)), np.zeros(len(grid))
    for here, action, sign in zip(places, actions, (1.0, -1.0), strict=True):
        # The error of interpolation is at most the distance from the chord of the neighbours.
        share = (here[1:-1] - here[:-2]) / (here[2:] - here[:-2])
        bends = np.abs(action[1:-1] - (1 - share) * action[:-2] - share * action[2:])
        bends = np.pad(bends, 1, mode="edge") if len(bends) else np.full(2, np.inf)
        off += sign * np.interp(grid, here, action)
        error += np.interp(grid, here, bends) + _ROUNDED * np.abs(np.interp(grid, here, action))
    # Solutions that are related by a symmetry have the same action, up to these errors.
    grid, off = grid[np.abs(off) > error], off[np.abs(off) > error]
    at = np.flatnonzero(off[:-1] * off[1:] < 0)
    return (grid[at] - off[at] * np.diff(grid)[at] / np.diff(off)[at]).tolist()


def _largest(branches: Sequence[xr.Dataset]) -> list[dict[str, Any]]:
    """Return the largest absolute values of the order parameters on each branch."""
    known = map(order_parameters, branches)
    return [{n: np.max(np.abs(v), axis=0) for n, v in each.items()} for each in known]


def _apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the largest difference of an order parameter, relative to its size or one."""
    return max(
        float(np.max(np.abs(value - second[name]) / np.maximum(1.0, np.abs(value)))) for name, value in first.items()
    )


# ---- phase diagrams


def phase_diagram(
    action: Action,
    ranges: Mapping[Expr | str, Sequence[float | int]],
    values: Values = MappingProxyType({}),
    *,
    index: int = 0,
    scans: int = 4,
    starts: int = 8,
    progress: bool = True,
) -> xr.Dataset:
    """Find the phase boundaries of an action in two of its parameters.

    Stationary points are followed along lines in each parameter. From every fold, crossing of
    branches and crossing of actions on these scans, the boundary is followed through the plane.
    Minima that coexist are compared with those of searches along their line and of all other
    lines. A third minimum that becomes lower starts lines at the triple point. Boundaries at
    which solutions reach an edge of their domain are not found.

    Args:
        action: The action.
        ranges: Two parameters, each with its lowest and highest value.
        values: All other parameters.
        index: Find boundaries of solutions with this index, 0 for minima.
        scans: Number of lines in each parameter.
        starts: Number of random starts of each search. There are three searches on every line.
        progress: Show the progress.

    Returns:
        All boundaries along the axis `point`: both parameters, the order parameters of two
        solutions along the axis `solution`, `error` (a bound on the shift by rounding and
        quadrature, in units of half a range), `line` (the number of the boundary), and

        - `kind`: a solution ends or changes its index at a "spinodal". Another one branches off
          at a "continuous transition". Two have equal action at "coexistence". Two spinodals
          meet at a "critical point". A continuous transition becomes first-order at a
          "tricritical point". Three minima have equal action at a "triple point".
        - `stability` of a coexistence line: "stable", "metastable" (a third minimum is lower),
          or "unknown" (a comparison failed).

        `begins` and `ends` have the reasons along the axis `boundary`. The attribute `open`
        says what was not settled.

    Example:
        >>> import theorykit
        >>> from sympy import symbols
        >>> from theorykit import saddle
        >>> theorykit.enable_float64()
        >>> m, h, a = symbols("m h a", real=True)
        >>> landau = saddle.Action(m**4 / 4 + a * m**2 / 2 - h * m, {m: saddle.Real()}, [h, a])
        >>> diagram = saddle.phase_diagram(landau, {h: (-1, 1), a: (-2, 1)})
        >>> print(*dict.fromkeys(diagram["kind"].values), sep=", ")
        spinodal, coexistence, critical point
    """
    given = {checked_parameter(action, key): pair for key, pair in by_name("ranges", ranges).items()}
    values = by_name("values", values)
    refuse_traced("phase_diagram", list(values.values()), reason="loops in Python")
    if len(given) != 2:
        raise ValueError(f"ranges must name two parameters, got {', '.join(given) or 'none'}")
    given = {name: checked_bounds(f"ranges[{name}]", pair) for name, pair in given.items()}
    scans = checked_whole_number("scans", scans, least=1)
    diagram = _Diagram(action, values, given, index, starts)
    seeds = []
    with bar("phase diagram", 2 * scans, "scan", shown=progress) as report:
        for name, other in (tuple(given), tuple(given)[::-1]):
            for share in (np.arange(scans) + 0.5) / scans:
                seeds += diagram.seeds_on(name, {other: float(np.interp(share, (0, 1), given[other]))})
                report.update()
        for kind in (CONTINUOUS, SPINODAL, COEXISTENCE):
            for system, unknowns in seeds:
                if system.kind == kind:
                    diagram.add(system, unknowns)
    # Minima on a new line may be lower than those of the lines before.
    count = 0
    while index == 0 and count < len(diagram.lines):
        count = len(diagram.lines)
        for number, line in enumerate(diagram.lines):
            if line.attrs["kind"] == COEXISTENCE:
                diagram.lines[number] = diagram.compared(line)
    return diagram.dataset()


class _Diagram:
    """Lines and isolated points of a diagram, datasets with `kind`, `begins` and `ends`."""

    def __init__(self, action: Action, values: Mapping, ranges: Mapping[str, tuple], index: int, starts: int):
        self.action, self.values, self.ranges, self.index = action, values, ranges, index
        self.search = partial(search, action, index=index, starts=starts)
        self.boundary = partial(boundary_at, action, ranges)
        self.limits = np.array(list(ranges.values()))
        self.names = [symbol.name for symbol in action.order_parameters]
        self.lines: list[xr.Dataset] = []
        self.points: list[xr.Dataset] = []
        self.notes: list[str] = []

    def places(self, line: xr.Dataset) -> np.ndarray:
        """Return the parameters (point, 2) in units of half their ranges."""
        return np.stack([line[name].values for name in self.ranges], axis=1) / (np.diff(self.limits)[:, 0] / 2)

    def parameters(self, line: xr.Dataset, point: int) -> dict[str, Any]:
        return {**self.values, **{name: float(line[name][point]) for name in self.ranges}}

    def solutions(self, line: xr.Dataset, point: int) -> list[dict[str, np.ndarray]]:
        return [{name: line[name].values[point, which] for name in self.names} for which in (0, 1)]

    def seeds_on(self, name: str, other: Mapping[str, float]) -> Iterator[Seed]:
        """Yield the boundaries that one parameter crosses, with approximate unknowns."""
        found: list[xr.Dataset] = []
        for share in _ALONG:
            values = {**self.values, **other, name: float(np.interp(share, (0, 1), self.ranges[name]))}
            for solution in self.search(values):
                known = (at for branch in found for at in near(branch, values[name]))
                if any(_apart(at, solution.order_parameters) < _DUPLICATE for at in known):
                    continue
                line = self.action, values, solution, name, self.ranges[name]
                # Two curvatures may vanish at the start.
                with suppress(ValueError):
                    found.append(follow(*line, direction=0, progress=False))
        sizes = _largest(found)
        for _, value, at in (event for branch in found for event in _events(branch)):
            values = {**self.values, **other, name: value}
            system, unknowns = self.boundary(SPINODAL, values, [at], sizes)
            change = np.linalg.norm(system.normal / system.lengths[-2:])
            is_fold = np.linalg.norm(system.side) > _NO_FOLD * change
            yield (system, unknowns) if is_fold else self.boundary(CONTINUOUS, values, [at], sizes)
        pieces = [piece for branch in found for piece in _pieces(branch, self.index)]
        for pair in itertools.combinations(pieces[::-1], 2):
            for value in _crossings(*pair):
                points = [_at(piece, value) for piece in pair]
                yield self.boundary(COEXISTENCE, {**self.values, **other, name: value}, points, sizes)

    def add(self, system: Boundary, unknowns: np.ndarray) -> None:
        """Follow the boundary near `unknowns`, unless it is known or of solutions with another index."""
        place, (low, high) = jax.device_get(corrected(system, unknowns)), self.limits.T
        if not place.is_near() or np.any((place.u[-2:] < low) | (place.u[-2:] > high)):
            return
        # Newton's method may end with one solution, which coexists with itself.
        spread = [np.linalg.norm(np.ptp(system.points(at), axis=0)) for at in (unknowns, place.u)]
        if system.kind == COEXISTENCE and spread[1] < spread[0] / 2:
            return
        # The curvature that vanishes on other lines has either sign next to them.
        allowed = [self.index] if system.kind == COEXISTENCE else [self.index, self.index - 1]
        negative = seen_at(system, place.u)["negative"]
        if not np.isin(negative, allowed).all() or self.is_known(system.kind, place):
            return
        line = trace(system, place.u, self.limits[1], direction=0, largest_step=_LARGEST).reset_coords()
        # Equations are singular where solutions merge.
        errors, events = line["error"].values, line["event"].values
        line = self.selected(line.isel(point=(errors < _REGULAR * np.nanmedian(errors)) & (events != MERGED)))
        if (count := line.sizes["point"]) < 2:
            return
        events, (second, cubic) = line["event"].values, line["normal_form"].values.T
        special = np.flatnonzero(np.isin(events, (CRITICAL, TRICRITICAL))).tolist()
        for at in special:
            # Minima merge if the lowest coefficient that does not vanish is positive.
            if events[at] == TRICRITICAL or self.index or (abs(second[at]) < 1e-6 * cubic[at]):
                self.points.append(line.isel(point=[at]).assign_attrs(kind=str(events[at]), begins="", ends=""))
        # On one side of a tricritical point, the symmetric solution becomes unstable without
        # a stable one next to it. This is a spinodal.
        inner = special if system.kind == CONTINUOUS else []
        ended = line.attrs["ended"]
        reasons = [line.attrs.get("began", ended), *[f"the {TRICRITICAL}"] * len(inner), ended]
        cuts = itertools.pairwise([0, *inner, count - 1])
        for (first, last), (begins, ends) in zip(cuts, itertools.pairwise(reasons), strict=True):
            if last > first:
                crosses = system.kind == CONTINUOUS and cubic[(first + last) // 2] > 0
                kind = system.kind if crosses or system.kind == COEXISTENCE else SPINODAL
                part = line.isel(point=slice(first, last + 1))
                self.lines.append(self.completed(part.assign_attrs(kind=kind, begins=begins, ends=ends)))

    def selected(self, points: xr.Dataset) -> xr.Dataset:
        kept = [*self.ranges, *self.names, "action", "error", "normal_form", "event"]
        stability = np.full(points.sizes["point"], STABLE, dtype=object)
        return points[kept].assign(stability=("point", stability))

    def is_known(self, kind: str, place: Place) -> bool:
        """Return whether a line passes through a point in the same direction."""
        here, along = place.u[-2:] / place.units[-2:], place.tangent[-2:]
        for line in self.lines:
            if (kind == COEXISTENCE) != (line.attrs["kind"] == COEXISTENCE):
                continue
            begin, step = self.places(line)[:-1], np.diff(self.places(line), axis=0)
            lengths = np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-30)
            share = np.sum((here - begin) * step, axis=1, keepdims=True) / lengths**2
            off = np.linalg.norm(here - begin - np.clip(share, 0, 1) * step, axis=1)
            cosines = np.abs(step / lengths @ along) / np.linalg.norm(along)
            if np.any((off < _SAME) & (cosines > _PARALLEL)):
                return True
        return False

    def completed(self, line: xr.Dataset) -> xr.Dataset:
        """Add the critical points at which solutions merge."""
        attrs = dict(line.attrs)
        for (at, side), end in itertools.product(((0, "begins"), (-1, "ends")), self.points):
            off = np.linalg.norm(self.places(end)[0] - self.places(line)[at])
            apart = _apart(self.solutions(end, 0)[0], self.solutions(line, at)[0])
            merges = attrs[side].startswith((MERGE, "no point was found"))
            if off < (_END if merges else _SAME * (attrs["kind"] == COEXISTENCE)) and apart < 1.0:
                attrs[side] = f"the {end.attrs['kind']}"
                if merges:
                    line = xr.concat([line, end] if at else [end, line], "point", combine_attrs="drop")
        return line.assign_attrs(attrs)

    def compared(self, line: xr.Dataset) -> xr.Dataset:
        """Return the line with its stability, and add triple points where it changes."""
        places, count = self.places(line), line.sizes["point"]
        starts = []
        for share in _ALONG:
            found = self.search(self.parameters(line, round(share * (count - 1))))
            starts += [each.order_parameters for each in found]
        others = [each for each in self.lines if each.attrs["kind"] == COEXISTENCE and each is not line]
        nearby = [(each, self.places(each)) for each in others]
        stability = np.full(count, STABLE, dtype=object)
        lower: dict[int, Mapping] = {}
        for point in range(count):
            pairs = []
            for each, at in nearby:
                closest = np.argmin(np.linalg.norm(at - places[point], axis=1))
                pairs += self.solutions(each, closest)
            third, failed = self.third(line, point, [*starts, *pairs])
            if third is not None:
                stability[point], lower[point] = METASTABLE, third
            elif failed:
                stability[point] = UNKNOWN
        # Minima merge at a critical point, where no solve converges.
        for side, end, beside in (("begins", 0, 1), ("ends", -1, -2)):
            if line.attrs[side] in (f"the {CRITICAL}", f"the {TRICRITICAL}"):
                stability[end] = stability[beside]
        for point, third in lower.items():
            for beside in (point - 1, point + 1):
                if 0 <= beside < count and beside not in lower:
                    self.add_triple_point(line, point, beside, third)
        return line.assign(stability=("point", stability))

    def third(self, line: xr.Dataset, point: int, starts: Sequence[Mapping]) -> tuple[Any, bool]:
        """Return the lowest minimum if it is lower than those of a line, and if a solve failed."""
        own, values = float(line["action"][point, 0]), self.parameters(line, point)
        pair, lowest, failed = self.solutions(line, point), None, False
        tried = list(pair)
        for start in starts:
            if min(_apart(start, each) for each in tried) < _SAME_PHASE:
                continue
            tried.append(start)
            # A start on an edge or at a saddle point would stay there.
            begin = {name: 0.9 * each + 0.1 * pair[0][name] for name, each in start.items()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = minimise(self.action, values, initial=begin)
            if not found.converged:
                # Next to a critical point, minima of the line are too flat to be certified.
                off = min(_apart(found.order_parameters, at) for at in pair)
                failed = failed or not off < _SAME_PHASE
            elif float(found.action) < own - _ROUNDED * (1 + abs(own)):
                lowest, own = found.order_parameters, float(found.action)
        return lowest, failed

    def add_triple_point(self, line: xr.Dataset, at: int, beside: int, third: Mapping[str, Any]) -> None:
        """Find the point at which three minima have equal action, and the lines from there."""
        system, start = self.boundary(COEXISTENCE, self.parameters(line, at), [*self.solutions(line, at), third])
        point = self.selected(labelled(system, [(_met(system, start), TRIPLE)]).reset_coords())
        step = self.places(line)[[at, beside]]
        off = np.linalg.norm(self.places(point)[0] - step.mean(axis=0))
        if not (point["error"] < _KNOWN and off <= np.linalg.norm(step[1] - step[0])):
            self.notes.append("a third minimum becomes lower between two points of a coexistence line")
            return
        if not any(each.attrs["kind"] == TRIPLE and self.is_at(each, point, _SAME) for each in self.points):
            self.points.append(point.isel(solution=slice(2)).assign_attrs(kind=TRIPLE, begins="", ends=""))
        third = {name: point[name].values[0, 2] for name in self.names}
        for one in self.solutions(point, 0):
            self.add(*self.boundary(COEXISTENCE, self.parameters(point, 0), [one, third]))

    def is_at(self, line: xr.Dataset, point: xr.Dataset, near: float = _END) -> bool:
        return bool(np.min(np.linalg.norm(self.places(line) - self.places(point)[0], axis=1)) < near)

    def dataset(self) -> xr.Dataset:
        """Label all lines and points."""
        known = [line for line in self.lines if np.median(line["error"]) < _KNOWN]
        if lost := len(self.lines) - len(known):
            self.notes.append(f"{counted(lost, 'line')} with singular equations left out")
        coexisting = [line for line in known if line.attrs["kind"] == COEXISTENCE]
        for point in self.points if self.index == 0 else ():
            if not any(self.is_at(line, point) for line in coexisting):
                where = ", ".join(f"{name} = {float(point[name][0]):.5g}" for name in self.ranges)
                self.notes.append(f"no coexistence line was found at the {point.attrs['kind']}, {where}")
        kept = [*self.ranges, *self.names, "error", "kind", "line", "stability"]
        boundaries, parts = [*known, *self.points], []
        for number, each in enumerate(boundaries):
            labels = {"kind": each.attrs["kind"], "line": number}
            labels = {name: ("point", [value] * each.sizes["point"]) for name, value in labels.items()}
            labels["stability"] = "point", each["stability"].values.astype(str)
            parts.append(each.assign(labels)[kept])
        none = xr.Dataset({name: ("point", np.zeros(0)) for name in kept})
        whole = xr.concat(parts or [none], "point", combine_attrs="drop")
        for side in ("begins", "ends"):
            whole[side] = "boundary", np.array([each.attrs[side] for each in boundaries], str)
        notes = [*self.notes, "boundaries that no scan or search reached are missing"]
        across, up = self.ranges
        attrs = {"across": across, "up": up, "ranges": self.limits.ravel().tolist()}
        return whole.assign_attrs(attrs, open="; ".join(dict.fromkeys(notes)))


@partial(jit, of_numbers=lambda system, start: system.of_numbers)
def _met(system: Boundary, start: np.ndarray) -> Array:
    """Solve for three solutions of equal action."""
    options = {"solver": optx.Newton(1e-13, 1e-13), "throw": False, "max_steps": 20}
    return optx.root_find(lambda u, system: system.residual(u), y0=start, args=system, **options).value
