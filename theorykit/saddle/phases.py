"""Find transitions and phase diagrams: follow branches, look for crossings, and follow those through the plane."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr
from scipy.optimize import brentq
from sympy import Expr

from .._jit import jit
from ..checks import Count, Index, by_name, checked_arguments, counted, refuse_traced
from ..curve import BRANCH_POINT, FOLD, trace
from ..curve.system import Place, corrected, seen_at, slope_at
from ..curve.tracing import checked_bounds
from ..runs import bar
from .action import Action
from .bound_action import Values
from .boundaries import COEXISTENCE, CONTINUOUS, CRITICAL, MERGED, SPINODAL, TRICRITICAL, Boundary, boundary_at
from .branch import checked_parameter, follow, near
from .solution import Solution
from .solve import minimise, search

TRIPLE = "triple point"
STABLE, METASTABLE, UNKNOWN = "stable", "metastable", "unknown"
# Largest step of a line, in units of half the ranges, and largest number of points.
_LARGEST, _MOST_POINTS = 0.1, 2000
# Distance within which a point is on a known line, and distance within which a line ends at a critical point.
_SAME, _END = 0.005, 0.2
# Two coexistence lines through a point are the same if the cosine between them is above this.
_PARALLEL = 0.98
# Points of a line with larger errors than this multiple of the median are left out.
_REGULAR = 1e6
# Largest error of a boundary, in units of half the range of a parameter.
_KNOWN = 0.01
# A singular point is not a fold if the change of F with the parameters is below this fraction of the change of
# curvature.
_NO_FOLD = 1e-4
# Actions with a smaller relative difference are equal.
_ROUNDED = 1e-11
# Order parameters that are about to merge differ by less than the first. Duplicates of a branch differ by less than
# the second.
_MERGING, _DUPLICATE = 0.1, 0.01
# Starts that differ by less lead to the same minimum.
_SAME_PHASE = 0.05
# Positions of searches along a scan or a line, as fractions of its length.
_ALONG = (0.03, 0.5, 0.97)


@checked_arguments
def transition(solution: Solution, other: Solution, parameter: Expr | str, bounds: Sequence[float | int]) -> xr.Dataset:
    """Find the value of a parameter at which two solutions of an action have equal action, or merge.

    Both branches are followed within `bounds`. At the crossing of actions closest to `solution`, Newton's method solves
    the equations of both solutions and of equal actions together.

    Args:
        solution: A converged solution.
        other: A solution of the same action at the same values of all other parameters.
        parameter: The number that changes.
        bounds: Its lowest and highest value.

    Returns:
        A dataset with the value of the parameter, its `error`, which bounds the shift by rounding and quadrature, and
        the order parameters and `action` of both solutions along the axis `solution`. `kind` is "first-order" if the
        solutions differ there, and "continuous" if they merge.

    Raises:
        ValueError: If the actions do not cross, or both solutions are on the same branch. The message states where the
            branches end, as at a fold (spinodal).

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
    refuse_traced("transition", solution, other, reason="loops in Python (`curve.refine` finds a fold again in JAX)")
    action, pair, name = solution.of, (solution, other), checked_parameter(solution.of, parameter)
    bounds = checked_bounds("bounds", bounds)
    if other.of.refined != action.refined:
        raise ValueError("other is a solution of another action")
    for key, value in solution.parameters.items():
        if key != name and not np.array_equal(value, other.parameters[key]):
            raise ValueError(f"solution and other differ in {key}, and not in {name} alone")
    step, branches, pieces = (bounds[1] - bounds[0]) / 100, [], []
    for each in pair:
        branch, start = _both_ways(action, each.parameters, each, name, bounds, step)
        value = float(each.parameters[name])
        parts = _pieces(branch, int(each.stats["asked"]))
        parts = [part for part in parts if any(_apart(at, start) == 0 for at in near(part, value))]
        if not parts:
            raise ValueError(f"the branch of the solution at {each.place} has no other point within bounds")
        branches.append(branch)
        pieces.append(parts[0])
    (low, high), crossings, here = _ends(*pieces), _crossings(*pieces), float(solution.parameters[name])
    places = ((_at(piece, value) for piece in pieces) for value in np.linspace(low, high, 5))
    if all(_apart(*at) < _DUPLICATE for at in places):
        raise ValueError(
            f"solution and other are on the same branch, at {solution.place} and at {other.place}, so no transition "
            "is between them. Find the other solution from another start (initial=...), or with search"
        )
    if crossings:
        value = min(crossings, key=lambda value: abs(value - here))
        label, kind, points = "first-order", COEXISTENCE, [_at(piece, value) for piece in pieces]
    else:
        events = [event for branch in branches for event in _events(branch)]
        merging = [
            event
            for event in events
            if low - step <= event.value <= high + step
            and all(_apart(event.at, _at(piece, event.value)) < _MERGING for piece in pieces)
        ]
        if not merging:
            folds = sorted({f"{event.value:.6g}" for event in events if event.kind == FOLD})
            raise ValueError(
                f"the actions do not cross for {name} from {low:.6g} to {high:.6g}, where both solutions exist; "
                + (f"a solution ends at a fold (spinodal) at {name} = {' and '.join(folds)}" if folds else "no fold")
            )
        value, points = merging[0].value, [merging[0].at]
        label, kind = "continuous", SPINODAL if merging[0].kind == FOLD else CONTINUOUS
    given = {**solution.parameters, name: value}
    system, unknowns = boundary_at(action, given, kind, points, {name: bounds}, _largest(branches))
    axis = np.append(np.zeros(len(unknowns) - 1), 1.0)
    place = jax.device_get(corrected(system, unknowns, axis, system.lengths))
    if not place.is_near(np.inf):
        raise ValueError(f"the solutions coexist next to {name} = {value:.6g}, but Newton's method failed there")
    found = jax.device_get(seen_at(system, place.u))
    both = {key: (("solution", *_axes(key, found[key])), found[key]) for key in solution.order_parameters}
    data = {"kind": label, name: found[name], "error": found["error"] * system.lengths[-2], **both}
    return xr.Dataset({**data, "action": ("solution", found["action"])}, attrs={"transition": name})


def _axes(name: str, values: np.ndarray) -> list[str]:
    """Return names for the axes of both values of an order parameter."""
    return [f"{name}_{axis}" for axis in ("row", "column")[: values.ndim - 1]]


# ---- branches


class _Event(NamedTuple):
    kind: str
    value: float
    at: Mapping[str, Any]


def _events(branch: xr.Dataset) -> Iterator[_Event]:
    """Yield folds and branch points of a branch, with their parameter and order parameters."""
    points = branch.isel(point=branch["event"].isin([FOLD, BRANCH_POINT]))
    for number in range(points.sizes["point"]):
        at = points.isel(point=number)
        yield _Event(at["event"].item(), at[at.attrs["parameter"]].item(), _order_parameters(at))


def _order_parameters(at: xr.Dataset) -> dict[str, np.ndarray]:
    return {name: each.values for name, each in at.filter_by_attrs(kind="order parameter").items()}


def _both_ways(
    action: Action, values: Values, solution: Solution, name: str, bounds: tuple[float, float], step=None
) -> tuple[xr.Dataset, dict[str, np.ndarray]]:
    """Return the branch on both sides of a solution as one, and the order parameters at the solution."""
    ahead, back = (
        follow(action, values, solution, name, bounds, direction=direction, largest_step=step, progress=False)
        for direction in (1, -1)
    )
    whole = xr.concat([back.isel(point=slice(None, 0, -1)), ahead], "point", combine_attrs="override")
    return whole, _order_parameters(ahead.isel(point=0))


def _pieces(branch: xr.Dataset, index: int) -> list[xr.Dataset]:
    """Return the parts of a branch with constant index and monotonic parameter, with points sorted by the parameter."""
    right = (branch["index"].values == index) | (branch["event"].values != "")
    steps = np.sign(np.diff(branch[branch.attrs["parameter"]].values))
    keys, pieces = np.where(right[:-1] & right[1:], steps, 0.0), []
    for key, numbers in itertools.groupby(range(len(keys)), keys.__getitem__):
        steps_of_piece = list(numbers)
        if key:
            order = np.arange(steps_of_piece[0], steps_of_piece[-1] + 2)[:: int(key)]
            pieces.append(branch.isel(point=order))
    return pieces


def _ends(*pieces: xr.Dataset) -> tuple[float, float]:
    """Return the lowest and the highest value of the parameter that all pieces reach."""
    ends = np.array([piece[piece.attrs["parameter"]].values[[0, -1]] for piece in pieces])
    return float(np.max(ends[:, 0])), float(np.min(ends[:, 1]))


def _at(piece: xr.Dataset, value: float) -> dict[str, Any]:
    """Interpolate order parameters linearly, up to the ends of a piece."""
    return near(piece, float(np.clip(value, *_ends(piece))))[0]


def _crossings(first: xr.Dataset, second: xr.Dataset) -> list[float]:
    """Return parameter values at which the actions of two pieces cross."""
    places = [piece[piece.attrs["parameter"]].values for piece in (first, second)]
    grid, (low, high) = np.unique(np.concatenate(places)), _ends(first, second)
    grid = grid[(low <= grid) & (grid <= high)]
    off, error = np.zeros(len(grid)), np.zeros(len(grid))
    for piece, here, sign in ((first, places[0], 1.0), (second, places[1], -1.0)):
        action = piece["action"].values
        # Deviation of each inner point from the chord between its neighbours: a bound on the error of interpolation.
        chords = [
            np.interp(here[at], here[[at - 1, at + 1]], action[[at - 1, at + 1]]) for at in range(1, len(here) - 1)
        ]
        bends = np.pad(np.abs(action[1:-1] - chords), 1, mode="edge") if chords else np.full(2, np.inf)
        off += sign * np.interp(grid, here, action)
        error += np.interp(grid, here, bends) + _ROUNDED * np.abs(np.interp(grid, here, action))
    # Solutions that are related by a symmetry have the same action, up to these errors.
    grid, off = grid[np.abs(off) > error], off[np.abs(off) > error]
    at = np.flatnonzero(off[:-1] * off[1:] < 0)
    return (grid[at] - off[at] * np.diff(grid)[at] / np.diff(off)[at]).tolist()


def _largest(branches: Sequence[xr.Dataset]) -> list[dict[str, Any]]:
    """Return the largest absolute value of every order parameter on each branch."""
    return [{n: np.max(np.abs(v), axis=0) for n, v in _order_parameters(branch).items()} for branch in branches]


def _apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the largest difference of an order parameter, relative to its size or one."""
    return max(
        float(np.max(np.abs(np.subtract(value, second[name])) / np.maximum(1.0, np.abs(value))))
        for name, value in first.items()
    )


# ---- phase diagrams


class _Line(NamedTuple):
    """Boundary line, or an isolated point of a diagram.

    - `system`: its equations.
    - `points`: what the system records along it.
    - `ends`: why it stops at its first and at its last point.
    """

    kind: str
    system: Boundary
    points: xr.Dataset
    ends: tuple[str, str] = ("", "")

    def parameters(self) -> np.ndarray:
        """Return the parameters (point, 2) in units of half their ranges."""
        values = [self.points[name].values for name in self.system.parameters]
        return np.stack(values, axis=1) / np.asarray(self.system.lengths[-2:])

    def solution(self, point: int, which: int) -> dict[str, np.ndarray]:
        return {name: self.points[name].values[point, which] for name in self.system.bound.domains}

    def row_of(self, system: Boundary) -> xr.Dataset:
        """Return an isolated point as a point of another line, at which solutions merge."""
        unknowns = self.points["unknowns"].values[0]
        one, slack = unknowns[: self.system.free.shape[1]], [0.0] * (system.kind == CONTINUOUS)
        unknowns = np.concatenate([np.tile(one, len(system.free)), slack, unknowns[-2:]])
        points = self.points.drop_vars(["negative", "unknowns"])
        return points.assign(unknowns=(("point", "unknown"), unknowns[None]))

    def values(self, point: int) -> dict[str, float]:
        return {name: float(self.points[name][point]) for name in self.system.parameters}


@checked_arguments
def phase_diagram(
    action: Action,
    ranges: Mapping[Expr | str, Sequence[float | int]],
    values: Values = MappingProxyType({}),
    *,
    index: Index = 0,
    scans: Count = 4,
    starts: Count = 8,
    progress: bool = True,
) -> xr.Dataset:
    """Find the phase boundaries of an action in two of its parameters.

    Stationary points are followed along lines in each parameter. From every fold, crossing of branches and crossing of
    actions on these scans, the boundary is followed through the plane, as long as its solutions have this `index`.
    Minima that coexist are compared with those of random searches along their line and of all other lines. A third
    minimum that becomes lower starts new lines at the triple point. Averages use the quadrature nodes of the action,
    and errors include the resulting shift.

    Args:
        action: The action. Its solutions may lie on edges of their domains, but boundaries at which they reach an edge
            are not found.
        ranges: Two parameters, each with its lowest and highest value.
        values: All other parameters.
        index: Find boundaries of solutions with this index, 0 for minima.
        scans: Number of lines in each parameter.
        starts: Number of random starts of each search for stationary points. There are three searches on every line.
        progress: Show the progress.

    Returns:
        All boundaries point by point along the axis `point`: both parameters, the order parameters of one or two
        solutions along the axis `solution`, `error` (a bound on the shift by rounding and quadrature, in units of half
        a range), `line` (the number of the boundary), and

        - `kind`: a solution ceases to exist or changes its index at a "spinodal". Another solution branches off at a
          "continuous transition". Two solutions have equal action at "coexistence". Isolated points are a "critical
          point" (two spinodals meet), a "tricritical point" (a continuous transition becomes first-order) and a "triple
          point" (a third minimum has the action of two that coexist).
        - `stability`: of a coexistence line, "stable" or "metastable" (a third minimum is lower), or "unknown" if a
          comparison failed.

        `begins` and `ends` have the reasons along the axis `boundary`. The attribute `open` says what was not settled.

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
        raise ValueError(f"ranges must name exactly two parameters, got {', '.join(given) or 'none'}")
    given = {name: checked_bounds(f"ranges[{name}]", pair) for name, pair in given.items()}
    search_options = {"index": index, "starts": starts, "progress": False}
    diagram = _Diagram(action, values, given, index)
    seeds = []
    with bar("phase diagram", 2 * scans, "scan", shown=progress) as report:
        for name, other in (tuple(given), tuple(given)[::-1]):
            for share in (np.arange(scans) + 0.5) / scans:
                at = {**values, other: float(np.interp(share, (0, 1), given[other]))}
                seeds += diagram.seeds_on(at, name, search_options)
                report.update()
        for kind in (CONTINUOUS, SPINODAL, COEXISTENCE):
            for system, unknowns in seeds:
                if system.kind == kind:
                    diagram.add(system, unknowns)
    if index == 0:
        diagram.compare(search_options)
    return diagram.dataset(f"{scans} scans per parameter and searches with {counted(starts, 'start')}")


class _Diagram:
    """Lines and isolated points of a diagram while they are found."""

    def __init__(self, action: Action, values: Mapping[str, Any], ranges: Mapping[str, tuple], index: int):
        self.action, self.values, self.ranges, self.index = action, values, ranges, index
        self.lines: list[_Line] = []
        self.points: list[_Line] = []
        self.notes: list[str] = []

    def seeds_on(self, values: Mapping[str, Any], name: str, options: dict) -> Iterator[tuple[Boundary, np.ndarray]]:
        """Yield the boundaries that one parameter crosses, as systems with approximate unknowns."""
        found: list[xr.Dataset] = []
        for share in _ALONG:
            here = float(np.interp(share, (0, 1), self.ranges[name]))
            for solution in search(self.action, {**values, name: here}, **options):
                known = (at for branch in found for at in near(branch, here))
                if any(_apart(at, solution.order_parameters) < _DUPLICATE for at in known):
                    continue
                try:
                    branch, _ = _both_ways(self.action, {**values, name: here}, solution, name, self.ranges[name])
                except ValueError:
                    # Two curvatures vanish at the start, which other scans find.
                    continue
                found.append(branch)
        sizes = _largest(found)

        def seed(kind: str, value: float, *points: Mapping[str, Any]) -> tuple[Boundary, np.ndarray]:
            return boundary_at(self.action, {**values, name: value}, kind, points, self.ranges, sizes)

        for event in (event for branch in found for event in _events(branch)):
            system, unknowns = seed(SPINODAL, event.value, event.at)
            change = np.linalg.norm(system.normal / system.lengths[-2:])
            is_fold = np.linalg.norm(system.side) > _NO_FOLD * change
            yield (system, unknowns) if is_fold else seed(CONTINUOUS, event.value, event.at)
        pieces = [piece for branch in found for piece in _pieces(branch, self.index)]
        for second, first in itertools.combinations(pieces, 2):
            for crossing in _crossings(first, second):
                yield seed(COEXISTENCE, crossing, _at(first, crossing), _at(second, crossing))

    def add(self, system: Boundary, unknowns: np.ndarray) -> None:
        """Follow the boundary near `unknowns`, unless it is known or of solutions with another index."""
        place = jax.device_get(_nearest(system, unknowns))
        low, high = np.transpose(list(self.ranges.values()))
        if not place.is_near(np.inf) or np.any((place.u[-2:] < low) | (place.u[-2:] > high)):
            return
        # Newton's method may go from two solutions to one, which coexists with itself everywhere.
        spread = [np.linalg.norm(np.ptp(system.points(np.asarray(at)), axis=0)) for at in (unknowns, place.u)]
        if system.kind == COEXISTENCE and spread[1] < spread[0] / 2:
            return
        seen = jax.device_get(seen_at(system, place.u))
        # The curvature that vanishes on other lines has either sign next to them.
        allowed = [self.index] if system.kind == COEXISTENCE else [self.index, self.index - 1]
        if not np.isin(seen["negative"], allowed).all() or self.is_known(system, place, seen):
            return
        lines, points = _followed(system, place.u, self.ranges)
        self.points += [point for point in points if self.is_confirmed(point)]
        self.lines += [self.completed(line) for line in lines]

    def is_known(self, system: Boundary, place: Place, seen: Mapping[str, np.ndarray]) -> bool:
        """Return whether a line passes through a point. Coexistence lines may cross in different directions.

        A spinodal may cross the continuous transition of another point.
        """
        alike = {system.kind} if system.kind == COEXISTENCE else {CONTINUOUS, SPINODAL}
        here, along = place.u[-2:] / np.asarray(system.lengths[-2:]), place.tangent[-2:]
        one = {name: seen[name][0] for name in system.bound.domains}
        for line in self.lines:
            if line.kind not in alike:
                continue
            points = line.parameters()
            begin, step = points[:-1], np.diff(points, axis=0)
            share = np.sum((here - begin) * step, axis=1) / np.maximum(np.sum(step**2, axis=1), 1e-300)
            distances = np.linalg.norm(here - begin - np.clip(share, 0, 1)[:, None] * step, axis=1)
            closest = int(np.argmin(distances))
            if distances[closest] >= _SAME:
                continue
            if line.kind == COEXISTENCE:
                differs = abs(along @ step[closest]) < _PARALLEL * np.linalg.norm(along) * np.linalg.norm(step[closest])
            else:
                can_cross = line.kind == CONTINUOUS and system.kind == SPINODAL
                differs = can_cross and _apart(line.solution(closest, 0), one) > _MERGING
            if not differs:
                return True
        return False

    def is_confirmed(self, point: _Line) -> bool:
        """Return whether the normal form has the right coefficients: the lowest vanishes, the next one is stable."""
        second, cubic = point.points["normal_form"].values[0]
        if point.kind == CRITICAL and self.index == 0:
            return bool(abs(second) < 1e-6 * abs(cubic) and cubic > 0)
        return bool(np.isfinite([second, cubic]).all())

    def completed(self, line: _Line) -> _Line:
        """Add the critical points at which solutions merge. The equations of a line are singular next to them."""
        for at, end in itertools.product((0, -1), self.points):
            off = np.linalg.norm(end.parameters()[0] - line.parameters()[at])
            apart = _apart(*(each.solution(i, 0) for each, i in ((end, 0), (line, at))))
            merges = line.ends[at].startswith(("the solutions merge", "no point was found"))
            if off < (_END if merges else _SAME * (line.kind == COEXISTENCE)) and apart < 1.0:
                ends = tuple(f"the {end.kind}" if i == at % 2 else text for i, text in enumerate(line.ends))
                line = line._replace(ends=ends)
                if merges:
                    parts = [line.points.drop_vars("negative"), end.row_of(line.system)]
                    points = xr.concat(parts if at else parts[::-1], "point", combine_attrs="override")
                    line = line._replace(points=points)
        return line

    def minimum(self, values: Mapping[str, float], start: Mapping[str, Any], other: Mapping) -> Solution | None:
        """Return the minimum near a start, or the end of a solve that did not converge; None if S is not finite there.

        The start may be a saddle point, or on the edge of a domain. Then the solve starts a little closer to `other`.
        """
        found = None
        for share in (0.0, 0.1):
            begin = {name: (1 - share) * each + share * other[name] for name, each in start.items()}
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = minimise(self.action, {**self.values, **values}, initial=begin)
            except ValueError:
                continue
            if found.converged:
                break
        return found

    def compare(self, options: dict) -> None:
        """Compare the minima of every coexistence line with all others, and follow lines from triple points."""
        # Lines are added during the first pass. In the second one, their minima are known to all others.
        for searches in (True, False):
            number = 0
            while number < len(self.lines):
                if self.lines[number].kind == COEXISTENCE:
                    self.lines[number] = self.compared(self.lines[number], options if searches else None)
                number += 1

    def compared(self, line: _Line, options: dict | None) -> _Line:
        """Return the line with its stability. With options of a search, look for new minima, and add triple points."""
        places, count = line.parameters(), line.points.sizes["point"]
        found: list[dict[str, Any]] = []
        for share in _ALONG if options else ():
            at = {**self.values, **line.values(round(share * (count - 1)))}
            found += [dict(each.order_parameters) for each in search(self.action, at, **options)]
        others = [each for each in self.lines if each.kind == COEXISTENCE and each is not line]
        known = line.points.get("stability")
        stability = np.full(count, STABLE, dtype=object) if known is None else known.values.astype(object)
        lower: dict[int, Solution] = {}
        for point in range(count):
            nearest = [int(np.argmin(np.linalg.norm(each.parameters() - places[point], axis=1))) for each in others]
            starts = [each.solution(at, i) for each, at in zip(others, nearest, strict=True) for i in (0, -1)]
            third, failed = self.third(line, point, [*found, *starts])
            if third is not None:
                stability[point], lower[point] = METASTABLE, third
            elif failed and stability[point] == STABLE:
                stability[point] = UNKNOWN
        # Minima merge at a critical point, where no solve converges.
        for end, beside in ((0, 1), (-1, -2)):
            if line.ends[end] in (f"the {CRITICAL}", f"the {TRICRITICAL}"):
                stability[end] = stability[beside]
        line = line._replace(points=line.points.assign(stability=("point", stability.astype(str))))
        for before in range(count - 1) if options else ():
            if (before in lower) != (before + 1 in lower):
                third = lower.get(before, lower.get(before + 1))
                self.add_triple_point(line, before, third.order_parameters)
        return line

    def third(self, line: _Line, point: int, starts: Sequence[Mapping]) -> tuple[Solution | None, bool]:
        """Return the lowest minimum from starts if it is lower than both of a line, and whether a comparison failed."""
        own = float(line.points["action"][point, 0])
        tried = [line.solution(point, which) for which in (0, 1)]
        lowest, failed = None, False
        for start in starts:
            if min(_apart(start, each) for each in tried) < _SAME_PHASE:
                continue
            tried.append(start)
            found = self.minimum(line.values(point), start, tried[0])
            if found is None or not found.converged:
                # Next to a critical point, minima of the line itself are too flat to be certified.
                is_own = found is not None and min(_apart(found.order_parameters, at) for at in tried[:2]) < _SAME_PHASE
                failed = failed or not is_own
            elif float(found.action) < own - _ROUNDED * (1 + abs(own)):
                lowest, own = found, float(found.action)
        return lowest, failed

    def add_triple_point(self, line: _Line, before: int, third: Mapping[str, Any]) -> None:
        """Find the point at which a third minimum has the action of two that coexist, and the lines from there."""
        begin, end = (line.points["unknowns"].values[at] for at in (before, before + 1))

        def at(share: float) -> tuple[dict, Solution | None]:
            place = _nearest(line.system, begin + share * (end - begin))
            seen = jax.device_get(seen_at(line.system, place.u))
            here = {name: float(seen[name]) for name in self.ranges}
            own = {name: seen[name][0] for name in third}
            return {**seen, "unknowns": np.asarray(place.u)}, self.minimum(here, third, own)

        def off(share: float) -> float:
            seen, found = at(share)
            is_known = found is not None and found.converged
            return float(found.action) - float(seen["action"][0]) if is_known else np.nan

        sides = np.array([off(0.0), off(1.0)])
        if sides[0] * sides[1] < 0:
            seen, found = at(brentq(off, 0.0, 1.0, xtol=1e-11))
        elif np.nanmin(np.abs(sides)) < 1e-9:
            # One of the points is the triple point.
            seen, found = at(float(np.nanargmin(np.abs(sides))))
        else:
            self.notes.append("a third minimum becomes lower between two points of a coexistence line")
            return
        rows = {name: (each.dims, seen[name][None]) for name, each in line.points.items() if name in seen}
        point = _Line(TRIPLE, line.system, xr.Dataset(rows))
        if not any(each.kind == TRIPLE and self.is_at(each, point, _SAME) for each in self.points):
            self.points.append(point)
        here, third = point.values(0), found.order_parameters
        for which in (0, 1):
            pair = [point.solution(0, which), third]
            self.add(*boundary_at(self.action, {**self.values, **here}, COEXISTENCE, pair, self.ranges))

    def is_at(self, line: _Line, point: _Line, near: float = _END) -> bool:
        return bool(np.min(np.linalg.norm(line.parameters() - point.parameters()[0], axis=1)) < near)

    def dataset(self, effort: str) -> xr.Dataset:
        """Label all lines and points."""
        known = [line for line in self.lines if np.median(line.points["error"]) < _KNOWN]
        if len(known) < len(self.lines):
            lost = sorted({line.kind for line in self.lines if all(line is not each for each in known)})
            warnings.warn(
                f"{counted(len(self.lines) - len(known), 'line')} left out ({', '.join(lost)}): the equations are "
                "singular all along, as when branches cross for every value of a parameter",
                stacklevel=3,
            )
        for point in self.points:
            lines = [line for line in known if line.kind == COEXISTENCE and self.is_at(line, point)]
            if not lines and self.index == 0:
                where = ", ".join(f"{name} = {value:.5g}" for name, value in point.values(0).items())
                self.notes.append(f"no coexistence line was found that ends in the {point.kind} at {where}")
        boundaries, names = [*known, *self.points], [symbol.name for symbol in self.action.order_parameters]
        rows: dict[str, Any] = {}
        for name in (*self.ranges, *names, "error"):
            parts = [each.points[name].values for each in boundaries]
            axes = [f"{name}_{axis}" for axis in ("row", "column")[: max(parts[0].ndim - 2, 0)]] if parts else []
            dims = ("point", *["solution"] * (name in names and bool(parts)), *axes)
            rows[name] = dims, np.concatenate(parts) if parts else np.zeros(0)
        lengths = [each.points.sizes["point"] for each in boundaries]
        rows["kind"] = "point", np.repeat(np.array([each.kind for each in boundaries], str), lengths)
        rows["line"] = "point", np.repeat(np.arange(len(boundaries)), lengths)
        stability = [each.points.get("stability", [STABLE] * n) for each, n in zip(boundaries, lengths, strict=True)]
        rows["stability"] = "point", np.concatenate([np.zeros(0, str), *stability])
        for at, name in enumerate(("begins", "ends")):
            rows[name] = "boundary", np.array([each.ends[at] for each in boundaries], str)
        if unknown := int(np.sum(rows["stability"][1] == UNKNOWN)):
            self.notes.append(f"the stability of {counted(unknown, 'point')} is unknown")
        missing = f"boundaries that no scan or search reached are missing ({effort})"
        across, up = self.ranges
        limits = [limit for pair in self.ranges.values() for limit in pair]
        notes = "; ".join([*self.notes, missing])
        return xr.Dataset(rows, attrs={"across": across, "up": up, "ranges": limits, "open": notes})


@jit
def _nearest(system: Boundary, unknowns: np.ndarray) -> Place:
    """Solve near approximate unknowns, with corrections in all directions in which the equations change."""
    slope = slope_at(system, unknowns) * system.lengths
    return corrected(system, unknowns, jax.numpy.linalg.svd(slope)[2][-1], system.lengths)


def _followed(system: Boundary, start: np.ndarray, ranges: Mapping[str, Any]) -> tuple[list[_Line], list[_Line]]:
    """Return the line through a point, split at changes of its kind, and its special points.

    An isolated point has no line. On one side of a tricritical point, branches cross where the symmetric solution of
    lowest index becomes unstable towards solutions on the other side of the line. This is a spinodal.
    """
    options = {"largest_step": _LARGEST, "most_points": _MOST_POINTS}
    back, ahead = (trace(system, start, list(ranges.values())[1], direction=each, **options) for each in (-1, 1))
    whole, ended = back.isel(point=slice(None, None, -1)), (back.attrs["ended"], back.attrs["ended"])
    if "closes" not in back.attrs["ended"]:
        whole = xr.concat([whole, ahead.isel(point=slice(1, None))], "point", combine_attrs="override")
        ended = back.attrs["ended"], ahead.attrs["ended"]
    # Equations are singular where solutions merge, and points next to it have large errors.
    errors = whole["error"].values
    regular = (errors < _REGULAR * np.nanmedian(errors)) & (whole["event"].values != MERGED)
    whole = whole.reset_coords().isel(point=regular)
    if whole.sizes["point"] < 2:
        return [], []
    kinds = whole["event"].values
    special = np.flatnonzero(np.isin(kinds, (CRITICAL, TRICRITICAL)))
    points = [_Line(str(kinds[at]), system, whole.isel(point=[at])) for at in special]
    if system.kind != CONTINUOUS:
        return [_Line(system.kind, system, whole, ended)], points
    cuts = [0, *special.tolist(), whole.sizes["point"] - 1]
    reasons, lines = [ended[0], *[f"the {TRICRITICAL}"] * len(special), ended[1]], []
    for number, (first, last) in enumerate(itertools.pairwise(cuts)):
        if last > first:
            cubic = whole["normal_form"].values[(first + last) // 2, 1]
            part = whole.isel(point=slice(first, last + 1))
            kind = CONTINUOUS if cubic > 0 else SPINODAL
            lines.append(_Line(kind, system, part, tuple(reasons[number : number + 2])))
    return lines, points
