"""Transitions, and phase boundaries in two parameters.

Two minima that coexist at a first-order transition lie on one branch, which turns back at two
folds (spinodals). With F the gradient of S in coordinates and H its Jacobian, boundaries are
curves in the plane of two parameters:

    spinodal       F(x) = 0, w H = 0, |w| = 1                   a minimum merges with a saddle
    continuous     F(x) + e w = 0, w H = 0, |w| = 1, w F_d = 0  branches cross, if e = 0
    coexistence    F(x) = 0, F(y) = 0, S(x) = S(y)              a first-order transition

F_d is the derivative of F along the direction d in the parameters in which the curvature along
w changes. The first system stays regular at a cusp, the critical point at which two spinodals
meet.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
import xarray as xr
from jaxtyping import Array, Float
from sympy import Expr

from ..checks import by_name, checked_instance, checked_whole_number, refuse_traced
from ..curve import trace
from ..curve.system import BRANCH_POINT, FOLD, Place, Unknowns, compiled, corrected, seen_at, slope_at
from ..curve.tracing import checked_bounds, labelled
from ..runs import bar
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, place_of
from .branch import SystemOfAction, checked_parameter, follow, held_slope, is_same, near, order_parameters
from .problem import Coordinates
from .solution import Solution
from .solve import minimise, search

SPINODAL, CONTINUOUS, COEXISTENCE = "spinodal", "continuous transition", "coexistence"
CRITICAL, TRICRITICAL, TRIPLE = "critical point", "tricritical point", "triple point"
STABLE, METASTABLE = "stable", "metastable"
_PAIR, _MERGED = "two solutions", "merged"
# Slacks, and order parameters at all points, below these count as zero.
_SLACK, _ZERO = 1e-8, 1e-12
# A boundary fixes coordinates that are 1e-14 from an edge.
_FIXED = 32.0
# Crossings without a mirror symmetry have a second derivative of F above this fraction of
# the third.
_ASYMMETRIC = 1e-6
# Largest step of a line, in units of half the ranges.
_LARGEST = 0.1
# Distances of a point from a line it is on, and of a line from its seed or the critical point at its end.
_SAME, _END = 0.005, 0.2
# Lines through a point are the same if the cosine between them is above this.
_PARALLEL = 0.98
# Points of a line with larger errors than this multiple of the median are left out.
_REGULAR = 1e6
# Largest error of a boundary, in units of half the range of a parameter.
_KNOWN = 0.01
# Actions with a smaller relative difference are equal.
_ROUNDED = 1e-13
# Differences of order parameters about to merge, of one branch, of one minimum, and of one solution.
_MERGING, _DUPLICATE, _SAME_PHASE, _DISTINCT = 0.1, 0.01, 0.05, 1e-5
# Distance of a scan from a point whose coexistence line is missing, as a fraction of a range.
_NEARBY = 0.04
# Positions of searches along a scan or a line, as fractions of its length.
_ALONG = (0.03, 0.5, 0.97)


class Boundary(SystemOfAction):
    """Equations of one or two points, and other unknowns, in one or two parameters.

    - `free` (points, coordinates): zero for fixed coordinates, on an edge of a domain.
    - `lengths` (unknowns,): units of the unknowns. Those of parameters are half their ranges.
    - `middle` (parameters,): centres of the ranges.
    - `side`: difference of two points, or change of F along w with the parameters, at the
      start. It is reversed where solutions merge.
    """

    free: Float[Array, "points coordinates"]
    middle: Float[Array, " parameters"]
    side: Array
    kind: str = eqx.field(static=True)
    parameters: tuple[str, ...] = eqx.field(static=True)

    @property
    def parameter(self):
        return self.parameters[-1]

    @property
    def axes(self):
        return {"normal_form": ("order",), **dict.fromkeys((*self.bound.domains, "action"), ("solution",))}

    def values(self, u: Unknowns) -> Float[Array | np.ndarray, " parameters"]:
        return u[-len(self.parameters) :]

    def points(self, u: Unknowns) -> Float[Array | np.ndarray, "points coordinates"]:
        return u[: self.free.size].reshape(self.free.shape)

    def at(self, values: Array, free: Coordinates) -> BoundAction:
        parameters = {**self.bound.parameters, **dict(zip(self.parameters, values, strict=True))}
        return replace(self.bound, parameters=parameters, free=free)

    def each(self, function: Callable, u: Array) -> Any:
        """Map a function over the points. It is compiled once."""
        values = self.values(u)
        mapped = self.bound.over(lambda at: function(self.at(values, at[0]), at[1]))
        return mapped((self.free, self.points(u)))

    def hessians(self, u: Array) -> Float[Array, "points coordinates coordinates"]:
        return self.each(jax.jacfwd(held_slope, argnums=1), u)

    def curvatures(self, u: Array) -> Float[Array, "points curvatures"]:
        hessians = self.hessians(u)
        return jnp.linalg.eigvalsh((hessians + hessians.mT) / 2)

    def inside(self, u: Array) -> Array:
        return 1 - jnp.abs(u[-2] - self.middle[0]) / self.lengths[-2]

    def merged(self, u: Array) -> Array:
        return self.side @ self.sides(u) / (self.side @ self.side)

    def ends(self, kind, u):
        # The side may also turn by more than a right angle.
        turns = kind == _MERGED and np.linalg.norm(self.sides(u)) > 2 * _DUPLICATE * np.linalg.norm(self.side)
        return "" if turns or kind in (CRITICAL, TRICRITICAL) else kind

    def seen(self, u):
        def seen(bound, x):
            # Points before the curve reached an edge are off it.
            bound = replace(bound, free=jnp.where(jnp.abs(x) < _FIXED, 1.0, 0.0))
            return {**bound.values_on_edges(x), "action": bound.action(x)}

        times = 2 if len(self.free) == 1 else 1
        return {
            **dict(zip(self.parameters, self.values(u), strict=True)),
            **jax.tree.map(lambda of: jnp.repeat(of, times, axis=0), self.each(seen, u)),
            "error": self.error(u),
            "negative": jnp.sum(self.curvatures(u) < 0, axis=1),
        }

    def framed(self, u):
        at_edge = self.bound.has_edges & (np.abs(self.points(np.ravel(u))) > _FIXED)
        free = np.where(at_edge, 0.0, self.free)
        return self if np.array_equal(free, self.free) else replace(self, free=jnp.asarray(free))

    def error(self, u: Array) -> Array:
        """Bound the shift of the parameters by rounding and quadrature, in units of half a range."""
        residual = self.residual(u)
        sizes = jnp.ravel(self.each(lambda bound, x: bound.slopes(x, jnp.zeros_like(x))[1], u) * self.free)
        others = self.each(BoundAction.terms, u) if self.kind == COEXISTENCE else self.hessians(u)
        sizes = jnp.append(sizes, jnp.full(len(residual) - len(sizes), jnp.sum(jnp.abs(others))))
        wrong = 4 * jnp.finfo(u.dtype).eps * sizes + 8 * jnp.abs(residual)
        if self.bound.of.nodes:
            finer = replace(self, bound=replace(self.bound, of=self.bound.of.finer))
            wrong += 2 * jnp.abs(finer.residual(u) - residual)
        # At a multiple root, the residual is a power of the shift, and no singular value may be cut.
        off = jnp.abs(jnp.linalg.pinv(jax.jacfwd(self.residual)(u) * self.lengths, rtol=0.0)) @ wrong
        off += jnp.finfo(u.dtype).eps * jnp.maximum(1.0, jnp.abs(u / self.lengths))
        return jnp.max(self.values(off))


class SingularPoints(Boundary):
    """A point x at which H is singular, with its left null vector w and the slack e."""

    def slope(self, x: Coordinates, values: Array) -> Coordinates:
        return held_slope(self.at(values, self.free[0]), x)

    def residual(self, u):
        (x,), values, (left, slack) = self.points(u), self.values(u), self.others(u)
        hessian = jax.jacfwd(self.slope)
        last = slack
        if self.kind == CONTINUOUS:
            turns = jax.jacfwd(lambda p: left @ hessian(x, p) @ left)(values)
            last = self.sides(u) @ (turns * self.values(self.lengths))
        slope, change = self.slope(x, values), left @ hessian(x, values)
        return jnp.hstack([slope + slack * left, change, left @ left - 1, last])

    def curvatures(self, u):
        # One vanishes, and its sign is rounding.
        (found,) = super().curvatures(u)
        return jnp.delete(found, jnp.argmin(jnp.abs(found)), assume_unique_indices=True)[None]

    def others(self, u: Array) -> tuple[Array, Array]:
        size = len(self.bound.units)
        return u[size : 2 * size], u[2 * size]

    def sides(self, u: Unknowns) -> Float[Array, " parameters"]:
        """Return the change of F along w with the parameters."""
        (x,), (left, _) = self.points(u), self.others(u)
        return jax.jacfwd(lambda p: left @ self.slope(x, p))(self.values(u)) * self.values(self.lengths)

    def normal_form(self, u: Array) -> Float[Array, " orders"]:
        """Return the second and third derivative of F along the null vector, which others follow.

        The second derivative vanishes at a critical point, and the third one at a tricritical
        point. It is positive if S is lowest there, and set to one if branches exchange their
        stability.
        """
        (x,), values, (left, _) = self.points(u), self.values(u), self.others(u)
        matrix = jnp.block([[self.hessians(u)[0], left[:, None]], [left, jnp.zeros(1)]])
        right = jnp.linalg.solve(matrix, jnp.zeros(len(matrix)).at[-1].set(1.0))[:-1]

        def derivative(function, order):
            return derivative(jax.jacfwd(function), order - 1) if order else function(0.0)

        bend = derivative(lambda t: self.slope(x + t * right, values), 2)
        follows = -jnp.linalg.solve(matrix, jnp.append(bend, 0.0))[:-1]
        cubic = derivative(lambda t: left @ self.slope(x + t * right + t**2 / 2 * follows, values), 3)
        quadratic = left @ bend
        exchange = (jnp.abs(quadratic) > _ASYMMETRIC * (jnp.abs(cubic) + 1)) & (self.kind == CONTINUOUS)
        return jnp.stack([quadratic, jnp.where(exchange, 1.0, cubic)])

    def tests(self, u, tangent):
        quadratic, cubic = self.normal_form(u)
        tests = {"outside": self.inside(u), "unstable": self.curvatures(u)[0]}
        if self.kind == CONTINUOUS:
            return {**tests, TRICRITICAL: cubic, "apart": 1 - jnp.abs(self.others(u)[1]) / _SLACK}
        # Another line crosses where solutions merge. The curve ends before it.
        return {**tests, _MERGED: self.merged(u) - _DUPLICATE, CRITICAL: quadratic}

    def seen(self, u):
        return {**super().seen(u), "normal_form": self.normal_form(u)}


class Coexistence(Boundary):
    """Two points of equal action. In one parameter, their actions may differ."""

    def residual(self, u):
        slopes, actions = self.each(held_slope, u).ravel(), self.each(BoundAction.action, u)
        return slopes if self.kind == _PAIR else jnp.append(slopes, actions[1:] - actions[0])

    def tests(self, u, tangent):
        tests = {"unstable": self.curvatures(u).ravel(), _MERGED: self.merged(u)}
        return tests if self.kind == _PAIR else {"outside": self.inside(u), **tests}

    def sides(self, u: Unknowns) -> Coordinates:
        return self.points(u)[0] - self.points(u)[1]


def boundary_at(
    action: Action,
    ranges: Mapping[str, tuple[float, float]],
    kind: str,
    values: Values,
    points: Sequence[Mapping[str, Any]],
    sizes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Boundary, np.ndarray]:
    """Return the equations of a kind, and the unknowns at `points` and `values`.

    Units of unconstrained numbers are their largest values at `points` and `sizes`.
    """
    bound = bind(action.finest, values, points[0])
    bound = replace(bound, units=jnp.ones_like(bound.units))
    coordinates = np.stack([np.asarray(place_of(bound, each)[0]) for each in (*points, *sizes)])
    largest = np.max(np.abs(coordinates), axis=0)
    units = np.where(bound.is_real & (largest > _ZERO), largest, 1.0)
    at = np.nan_to_num(coordinates[: len(points)], posinf=BEYOND, neginf=-BEYOND)
    low, high = np.array(list(ranges.values())).T
    start = np.array([float(bound.parameters[name]) for name in ranges])
    others = np.zeros(0 if kind in (COEXISTENCE, _PAIR) else len(units) + 1)
    lengths = np.concatenate([*[units] * len(points), np.ones_like(others), (high - low) / 2])
    of = SingularPoints if len(others) else Coexistence
    fields = (lengths, np.ones(at.shape), (low + high) / 2, np.zeros(0))
    system = of(bound, *map(jnp.asarray, fields), kind, tuple(ranges)).framed(at)
    unknowns, side = _started(system, np.concatenate([at.ravel(), others, start]))
    return replace(system, side=side), np.asarray(unknowns)


@compiled
def _started(system: Boundary, u: Array) -> tuple[Array, Array]:
    """Return the unknowns with the left null vector, and the side."""
    if isinstance(system, SingularPoints):
        left = jnp.linalg.svd(system.hessians(u)[0])[0][:, -1]
        u = u.at[len(left) : 2 * len(left)].set(left)
    return u, system.sides(u)


@compiled
def _solved(system: Boundary, start: Array) -> Array:
    solver = optx.Newton(1e-13, 1e-13)
    return optx.root_find(lambda u, at: at.residual(u), solver, start, system, throw=False, max_steps=20).value


def transition(solution: Solution, other: Solution, parameter: Expr | str, bounds: Sequence[float | int]) -> xr.Dataset:
    """Find the value of a parameter at which two solutions have equal action, or merge.

    Both are followed together until one of them ends. Two crossings within a twentieth of the
    bounds may be missed. The value a of a first-order transition
    depends on another parameter b as da/db = -(dD/db) / (dD/da), where D(a, b) is the difference
    of `minimise(...).action` of both solutions, by `jax.grad`.

    Args:
        solution: A converged solution.
        other: Another solution of the same action at the same values of the parameters.
        parameter: The number that changes.
        bounds: Its lowest and highest value.

    Returns:
        A dataset of the value of the parameter closest to `solution`, its `error` (a bound on
        the shift by rounding and quadrature), and the order parameters and `action` of both
        solutions along the axis `solution`. `kind` is "first-order" if the solutions differ
        there, and "continuous" if they merge.

    Raises:
        ValueError: If the actions do not cross, or the solutions are the same.

    Example:
        >>> from sympy import symbols
        >>> from theorykit import enable_float64, saddle
        >>> enable_float64()
        >>> m, a = symbols("m a", real=True)
        >>> landau = saddle.Action(m**4 / 4 - 2 * m**3 / 3 + a * m**2 / 2, {m: saddle.Real()}, [a])
        >>> found = saddle.transition(*saddle.search(landau, {a: 0.8}), a, (0, 1))
        >>> found["kind"].item(), round(found["a"].item(), 6)
        ('first-order', 0.888889)
    """
    refuse_traced("transition", solution, other, reason="loops in Python (`curve.refine` finds a fold again in JAX)")
    action = checked_instance("solution", solution, Solution).of
    name = checked_parameter(action, parameter)
    if not is_same(checked_instance("other", other, Solution).of, action):
        raise ValueError("other is a solution of another action")
    for key, value in solution.parameters.items():
        if not np.array_equal(value, other.parameters[key]):
            raise ValueError(f"solution and other differ in {key}")
    if (apart := _apart(solution.order_parameters, other.order_parameters)) < _DISTINCT:
        raise ValueError(f"solution and other are the same, at {solution.place}")
    values, own = solution.parameters, float(solution.parameters[name])
    make = partial(boundary_at, action, {name: checked_bounds("bounds", bounds)})
    line, crossings = _both(make, values, [each.order_parameters for each in (solution, other)])
    met = [(COEXISTENCE, *each) for each in sorted(crossings, key=lambda each: abs(each[0] - own))]
    for at in (0, -1):
        one, two = _points(line, at)
        if _apart(one, two) < _MERGING * min(1.0, apart):
            met.append((CONTINUOUS, line[name].values[at], [one]))
    for kind, value, points in met:
        system, start = make(kind, {**values, name: value}, points)
        u = _solved(system, start)
        found = labelled(system, [(u, "")]).isel(point=0)[[name, "error", *system.bound.domains, "action"]]
        if found["error"] < _KNOWN and (kind == COEXISTENCE or abs(system.others(u)[1]) < _SLACK):
            found["error"] *= float(system.lengths[-1])
            kind = "first-order" if kind == COEXISTENCE else "continuous"
            return found.assign(kind=kind).assign_attrs(transition=name)
    low, high = line[name].values[[0, -1]]
    raise ValueError(f"the actions do not cross for {name} from {low:.6g} to {high:.6g}")


def _both(make: Any, values: Values, points: Sequence[Mapping]) -> tuple[xr.Dataset, list]:
    """Follow two solutions until one ends. Return their line, and where their actions cross."""
    system, start = make(_PAIR, values, points)
    bounds = system.middle[0] + jnp.array([-1, 1]) * system.lengths[-1]
    line = trace(system, start, bounds.tolist(), direction=0, largest_step=_LARGEST).reset_coords()
    actions, at = line["action"].values, line[system.parameter].values
    off = actions[:, 0] - actions[:, 1]
    # Solutions that are related by a symmetry have the same action.
    known = np.flatnonzero(np.abs(off) > _ROUNDED * (1 + np.abs(actions).max(axis=1)))
    pairs = [(one, two) for one, two in itertools.pairwise(known) if off[one] * off[two] < 0]
    crossings = []
    for one, two in pairs:
        # At a point of the line, the difference may be stationary.
        share = off[one] / (off[one] - off[two])
        both = zip(_points(line, one), _points(line, two), strict=True)
        points = [{name: (1 - share) * x + share * after[name] for name, x in before.items()} for before, after in both]
        crossings.append((float((1 - share) * at[one] + share * at[two]), points))
    return line, crossings


def _points(line: xr.Dataset, point: int) -> list[dict[str, Any]]:
    """Return the order parameters of both solutions."""
    names = [name for name, each in line.items() if each.dims[:2] == ("point", "solution") and name != "action"]
    return [{name: line[name].values[point, which] for name in names} for which in range(line.sizes["solution"])]


def _apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the largest difference of an order parameter, relative to its size or one."""
    off = [np.abs(value - second[name]) / np.maximum(1.0, np.abs(value)) for name, value in first.items()]
    return max(float(np.max(each)) for each in off)


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

    Stationary points are followed along lines in each parameter, and the boundary from every
    fold, crossing of branches and crossing of actions there. Coexisting minima are compared
    with all minima that the scans and three searches along their line find. Averages have 4,096
    nodes. Solutions that differ by less than 0.01, and boundaries at which solutions reach an edge
    of their domain, are not found.

    Args:
        action: The action.
        ranges: Two parameters, each with its lowest and highest value.
        values: All other parameters.
        index: Find boundaries of solutions with this index, 0 for minima.
        scans: Number of lines in each parameter.
        starts: Number of random starts of each search.
        progress: Show the progress.

    Returns:
        All boundaries along the axis `point`: both parameters, the order parameters of two
        solutions along the axis `solution`, `error` (a bound on the shift by rounding and
        quadrature, in units of half a range), `line` (the number of the boundary), and

        - `kind`: a solution ends or changes its index at a "spinodal". Another one branches off
          at a "continuous transition". Two have equal action at "coexistence". Two spinodals
          meet at a "critical point". A continuous transition becomes first-order at a
          "tricritical point". Three minima have equal action at a "triple point".
        - `stability` of a coexistence line: "stable", or "metastable" if a third minimum is lower.

        The attribute `open` lists what may be missing.

    Raises:
        ValueError: If `ranges` does not name two numbers among the parameters.
    """
    checked_instance("action", action, Action)
    given = {checked_parameter(action, key): pair for key, pair in by_name("ranges", ranges).items()}
    values = by_name("values", values)
    refuse_traced("phase_diagram", list(values.values()), reason="loops in Python")
    if len(given) != 2 or given.keys() & values.keys():
        raise ValueError(f"ranges must name two parameters, without values, got {', '.join(given) or 'none'}")
    given = {name: checked_bounds(f"ranges[{name}]", pair) for name, pair in given.items()}
    scans = checked_whole_number("scans", scans, least=1)
    diagram = _Diagram(action, values, given, index, starts)
    seeds = []
    with bar("phase diagram", 2 * scans, "scan", shown=progress) as report, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, other in (tuple(given), tuple(given)[::-1]):
            for share in (np.arange(scans) + 0.5) / scans:
                seeds += diagram.seeds_on(name, {other: float(np.interp(share, (0, 1), given[other]))})
                report.update()
        for kind in (CONTINUOUS, SPINODAL, COEXISTENCE):
            for system, unknowns in seeds:
                if system.kind == kind:
                    diagram.add(system, unknowns)
        diagram.scan_near_points()
    return diagram.dataset()


class _Diagram:
    """Lines and isolated points of a diagram, datasets with the attribute `kind`."""

    def __init__(self, action: Action, values: Mapping, ranges: Mapping[str, tuple], index: int, starts: int):
        self.action, self.values, self.ranges, self.index = action, values, ranges, index
        self.boundary = partial(boundary_at, action, ranges)
        self.starts, self.seeds = starts, itertools.count()
        self.limits = np.array(list(ranges.values()))
        self.minima: list[Mapping[str, Any]] = []
        self.lines: list[xr.Dataset] = []
        self.points: list[xr.Dataset] = []

    def search(self, values: Mapping[str, Any]) -> list[Solution]:
        # Other starts than of the last search.
        return search(self.action, values, index=self.index, starts=self.starts, seed=next(self.seeds))

    def places(self, line: xr.Dataset) -> np.ndarray:
        """Return the parameters (point, 2) in units of half their ranges."""
        return np.stack([line[name].values for name in self.ranges], axis=1) / (np.diff(self.limits)[:, 0] / 2)

    def parameters(self, line: xr.Dataset, point: int) -> dict[str, Any]:
        return {**self.values, **{name: float(line[name][point]) for name in self.ranges}}

    def seeds_on(self, name: str, other: Mapping[str, float]) -> Iterator[tuple[Boundary, np.ndarray]]:
        """Yield the boundaries that one parameter crosses, with approximate unknowns."""
        found: list[xr.Dataset] = []
        given, pieces = {**self.values, **other}, []
        for share in _ALONG:
            values = {**given, name: float(np.interp(share, (0, 1), self.ranges[name]))}
            for solution in self.search(values):
                if all(_apart(each, solution.order_parameters) >= _SAME_PHASE for each in self.minima):
                    self.minima.append(solution.order_parameters)
                known = (at for branch in found for at in near(branch, values[name]))
                if all(_apart(at, solution.order_parameters) >= _DUPLICATE for at in known):
                    # Two curvatures may vanish at the start.
                    with suppress(ValueError):
                        found.append(follow(self.action, values, solution, name, self.ranges[name], direction=0))
        known = map(order_parameters, found)
        sizes = [{n: np.max(np.abs(v), axis=0) for n, v in each.items()} for each in known]
        for branch in found:
            events, at = branch["event"].values, order_parameters(branch)
            cuts = np.flatnonzero(np.isin(events, (FOLD, BRANCH_POINT)))
            for cut in cuts:
                values, point = {**given, name: branch[name].values[cut]}, {n: v[cut] for n, v in at.items()}
                yield self.boundary(SPINODAL if events[cut] == FOLD else CONTINUOUS, values, [point], sizes)
            # The index is constant between events, and the parameter is monotonic.
            for first, last in itertools.pairwise([0, *cuts, len(events) - 1]):
                if last > first and branch["index"][(first + last + 1) // 2] == self.index:
                    pieces.append(branch.isel(point=slice(first, last + 1)).sortby(name))
        make = partial(boundary_at, self.action, {name: self.ranges[name]}, sizes=sizes)
        for pair in itertools.combinations(pieces, 2):
            low, high = (max(each[name].values[0] for each in pair), min(each[name].values[-1] for each in pair))
            if low < high:
                values = {**given, name: (low + high) / 2}
                one, two = (near(each, values[name])[0] for each in pair)
                if _apart(one, two) < _DUPLICATE:
                    continue
                with suppress(ValueError):
                    _, crossings = _both(make, values, [one, two])
                    for value, points in crossings:
                        yield self.boundary(COEXISTENCE, {**given, name: value}, points, sizes)

    def add(self, system: Boundary, start: np.ndarray) -> None:
        """Follow the boundary near `start`, unless it is known or of solutions with another index."""
        across = np.linalg.svd(np.multiply(slope_at(system, start), system.lengths))[2][-1]
        place, (low, high) = jax.device_get(corrected(system, start, across)), self.limits.T
        moved = np.abs(place.u - start)[-2:] / place.units[-2:]
        if not place.is_near() or np.any((place.u[-2:] < low) | (place.u[-2:] > high) | (moved > _END)):
            return
        # Newton's method may end with one solution, which coexists with itself.
        spread = [np.linalg.norm(np.ptp(system.points(u), axis=0)) for u in (start, place.u)]
        # The curvature that vanishes on other lines is negative on one side.
        allowed = [self.index] if system.kind == COEXISTENCE else [self.index, self.index - 1]
        is_allowed = np.isin(seen_at(system, place.u)["negative"], allowed).all()
        if spread[1] < spread[0] / 2 or not is_allowed or self.is_known(system.kind, place):
            return
        line = trace(system, place.u, self.limits[1], direction=0, largest_step=_LARGEST).reset_coords()
        # Equations are singular where solutions merge.
        errors, typical = line["error"].values, np.nanmedian(line["error"])
        line = line.isel(point=(errors < _REGULAR * typical) & (line["event"].values != _MERGED))
        if line.sizes["point"] < 2 or not typical < _KNOWN or np.ptp(self.places(line), axis=0).max() < _SAME:
            return
        line = line.drop_vars(["negative", "unknowns"])
        special = np.flatnonzero(line["event"].isin((CRITICAL, TRICRITICAL)))
        for at in special:
            # Minima merge if the lowest coefficient that does not vanish is positive.
            kind, (second, cubic) = line["event"].values[at], line["normal_form"].values[at]
            if kind == TRICRITICAL or self.index or abs(second) < 1e-6 * cubic:
                self.add_point(line.isel(point=[at]).assign_attrs(kind=str(kind)))
        if system.kind == CONTINUOUS:
            # On one side of a tricritical point, the symmetric solution becomes unstable without
            # a stable one next to it. This is a spinodal. A field leaves a point of the line.
            for first, last in itertools.pairwise([0, *special, line.sizes["point"] - 1]):
                if np.ptp(self.places(line)[first : last + 1], axis=0).max() > _SAME:
                    kind = CONTINUOUS if line["normal_form"].values[(first + last) // 2, 1] > 0 else SPINODAL
                    self.lines.append(line.isel(point=slice(first, last + 1)).assign_attrs(kind=kind))
            return
        for at, reason in ((0, line.attrs.get("began", "")), (-1, line.attrs["ended"])):
            if reason.startswith((_MERGED, "no point was found")):
                line = self.extended(line, at)
        self.lines.append(line.assign_attrs(kind=system.kind))
        if self.index == 0 and system.kind == COEXISTENCE:
            self.compare(self.lines[-1])

    def extended(self, line: xr.Dataset, at: int) -> xr.Dataset:
        """Add the critical point at which solutions merge, at one end of a line."""
        offs = [np.linalg.norm(self.places(end)[0] - self.places(line)[at]) for end in self.points]
        for off, end in sorted(zip(offs, self.points, strict=True), key=lambda each: each[0]):
            if off < _END and _apart(_points(end, 0)[0], _points(line, at)[0]) < 1.0:
                return xr.concat([line, end] if at else [end, line], "point", join="override", combine_attrs="override")
        return line

    def is_known(self, kind: str, place: Place) -> bool:
        """Return whether a line passes through a point in the same direction."""
        here, along = place.u[-2:] / place.units[-2:], place.tangent[-2:]
        for line in self.lines:
            begin, step = self.places(line)[:-1], np.diff(self.places(line), axis=0)
            lengths = np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-30)
            share = np.sum((here - begin) * step, axis=1, keepdims=True) / lengths**2
            off = np.linalg.norm(here - begin - np.clip(share, 0, 1) * step, axis=1)
            cosines = np.abs(step / lengths @ along) / np.linalg.norm(along)
            is_same_kind = (kind == COEXISTENCE) == (line.attrs["kind"] == COEXISTENCE)
            if is_same_kind and np.any((off < _SAME) & (cosines > _PARALLEL)):
                return True
        return False

    def compare(self, line: xr.Dataset) -> None:
        """Find out where the minima of a line are the lowest, and add triple points where this changes."""
        count, lower = line.sizes["point"], {}
        values = [self.parameters(line, point) for point in range(count)]
        there = [each for share in _ALONG for each in self.search(values[round(share * (count - 1))])]
        starts = [*(each.order_parameters for each in there), *self.minima]
        for point in range(count):
            lowest, pair = float(line["action"][point, 0]), _points(line, point)
            for start in starts:
                if min(_apart(start, each) for each in pair) < _SAME_PHASE:
                    continue
                # A start on an edge or at a saddle point would stay there.
                begin = {name: 0.9 * each + 0.1 * pair[0][name] for name, each in start.items()}
                found = minimise(self.action, values[point], initial=begin)
                if found.converged and float(found.action) < lowest - _ROUNDED * (1 + abs(lowest)):
                    lower[point], lowest = found.order_parameters, float(found.action)
        states = [METASTABLE if point in lower else STABLE for point in range(count)]
        line["stability"] = "point", np.array(states, dtype=object)
        for point, third in lower.items():
            for beside in {point - 1, point + 1} & set(range(count)) - set(lower):
                self.add_triple_point(line, point, beside, third)

    def add_triple_point(self, line: xr.Dataset, at: int, beside: int, third: Mapping[str, Any]) -> None:
        """Find the point at which three minima have equal action, and the lines from there."""
        system, start = self.boundary(COEXISTENCE, self.parameters(line, at), [*_points(line, at), third])
        point = labelled(system, [(_solved(system, start), TRIPLE)]).reset_coords()
        step = self.places(line)[[at, beside]]
        off = np.linalg.norm(self.places(point)[0] - step.mean(axis=0))
        if not (point["error"] < _KNOWN and off <= np.linalg.norm(step[1] - step[0])):
            return
        self.add_point(point.isel(solution=slice(2)).assign_attrs(kind=TRIPLE))
        *pair, third = _points(point, 0)
        for one in pair:
            self.add(*self.boundary(COEXISTENCE, self.parameters(point, 0), [one, third]))

    def add_point(self, point: xr.Dataset) -> None:
        # A spinodal also ends at a tricritical point.
        if not any(self.is_at(each, point, _SAME) for each in self.points):
            self.points.append(point)

    def is_lonely(self, point: xr.Dataset) -> bool:
        """Return whether no coexistence line of minima was found at a point, where one starts."""
        coexisting = (line for line in self.lines if line.attrs["kind"] == COEXISTENCE)
        return self.index == 0 and not any(self.is_at(line, point) for line in coexisting)

    def scan_near_points(self) -> None:
        """Find the coexistence lines at points whose line the other scans missed."""
        for point, name, side in itertools.product(self.points, self.ranges, (-_NEARBY, _NEARBY)):
            (other,) = self.ranges.keys() - {name}
            low, high = self.ranges[other]
            value = float(point[other][0]) + side * (high - low)
            if low < value < high and self.is_lonely(point):
                for system, unknowns in self.seeds_on(name, {other: value}):
                    self.add(system, unknowns)

    def is_at(self, line: xr.Dataset, point: xr.Dataset, near: float = _END) -> bool:
        return bool(np.min(np.linalg.norm(self.places(line) - self.places(point)[0], axis=1)) < near)

    def dataset(self) -> xr.Dataset:
        notes = ["boundaries that no scan or search reached are missing"]
        for point in filter(self.is_lonely, self.points):
            where = ", ".join(f"{name} = {float(point[name][0]):.5g}" for name in self.ranges)
            notes.append(f"no coexistence line was found at the {point.attrs['kind']}, {where}")
        names = [symbol.name for symbol in self.action.order_parameters]
        kept, parts = [*self.ranges, *names, "error", "kind", "line", "stability"], []
        for number, each in enumerate([*self.lines, *self.points]):
            labels = {"kind": each.attrs["kind"], "line": number, "stability": STABLE}
            labels = {name: ("point", [value] * each.sizes["point"]) for name, value in labels.items()}
            parts.append(each.assign({name: each.get(name, label) for name, label in labels.items()})[kept])
        none = xr.Dataset({name: ("point", np.zeros(0)) for name in kept})
        whole = xr.concat(parts or [none], "point", combine_attrs="drop")
        across, up = self.ranges
        attrs = {"across": across, "up": up, "ranges": self.limits.ravel().tolist()}
        return whole.assign_attrs(attrs, open="; ".join(notes))
