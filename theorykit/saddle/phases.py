"""Transitions, and phase boundaries in two parameters.

Two minima that coexist at a first-order transition lie on one branch, which turns back at two
folds (spinodals). With F the gradient of S in coordinates and H its Jacobian, boundaries are
the systems

    spinodal       F(x) = 0, H is singular                   a fold: a minimum merges with a saddle
    continuous     F(x) + e w = 0, (H F_d) loses a rank      a pitchfork or another crossing of branches, if e = 0
    coexistence    F(x) = 0, F(y) = 0, S(x) = S(y)           a first-order transition

F_d is the derivative of F along a direction in the parameters, and w the left null vector of
H. With two free parameters, solutions form a curve. The first system stays regular at a cusp,
the critical point at which two spinodals meet.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping, Sequence
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

from .._jit import jit
from ..checks import by_name, checked_whole_number, counted, refuse_traced
from ..curve import trace
from ..curve.system import BRANCH_POINT, FOLD, Place, bordered, corrected, lost_rank, null_vectors, seen_at
from ..curve.tracing import checked_bounds, labelled
from ..runs import bar
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, place_of
from .branch import SystemOfAction, checked_parameter, follow, held_slope, is_same, near, order_parameters
from .problem import Coordinates
from .solution import Solution
from .solve import minimise, search

SPINODAL, CONTINUOUS, COEXISTENCE = "spinodal", "continuous transition", "coexistence"
CRITICAL, TRICRITICAL = "critical point", "tricritical point"
# Tests that end a line.
MERGED = "merged"
_ENDS = (MERGED, "unstable", "outside", "apart")
# Slacks below this count as zero.
_SLACK = 1e-8
# A boundary fixes coordinates that are 1e-14 from an edge.
_FIXED = 32.0
# Crossings without a mirror symmetry have a second derivative of F above this fraction of
# the third.
_ASYMMETRIC = 1e-6
TRIPLE = "triple point"
STABLE, METASTABLE = "stable", "metastable"
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
# Actions with a smaller relative difference are equal.
_ROUNDED = 1e-11
# Differences of order parameters about to merge, of one branch, and of one minimum.
_MERGING, _DUPLICATE, _SAME_PHASE = 0.1, 0.01, 0.05
# Positions of searches along a scan or a line, as fractions of its length.
_ALONG = (0.03, 0.5, 0.97)


class Boundary(SystemOfAction):
    """Equations of a kind of boundary.

    Unknowns are coordinates of the points, the slack, and two parameters.

    - `free` (points, coordinates): zero for fixed coordinates, on an edge of a domain.
    - `lengths` (unknowns,): units of the unknowns. Those of parameters are half their ranges.
    - `middle` (parameters,): centres of the ranges.
    - `left`, `right`, `normal`: null vectors of H, and the direction in the parameters in
      which its curvature changes.
    - `side`: difference of two solutions, or change of F with the parameters along `left`. It
      is reversed where solutions merge.
    - `parameters`: their names. If there is one, the last unknown has no effect.
    """

    free: Float[Array, "points coordinates"]
    middle: Float[Array, " parameters"]
    left: Coordinates
    right: Coordinates
    normal: Array
    side: Array
    kind: str = eqx.field(static=True)
    parameters: tuple[str, ...] = eqx.field(static=True)

    @property
    def parameter(self):
        return self.parameters[-1]

    @property
    def axes(self):
        return {"normal_form": ("order",), **dict.fromkeys((*self.bound.domains, "action"), ("solution",))}

    def points(self, u: Array) -> Float[Array, "points coordinates"]:
        return u[: self.free.size].reshape(self.free.shape)

    def at(self, values: Array) -> BoundAction:
        given = dict(zip(self.parameters, values, strict=False))
        return replace(self.bound, parameters={**self.bound.parameters, **given})

    def slope(self, at: Coordinates, values: Array, which: int = 0) -> Coordinates:
        return held_slope(replace(self.at(values), free=self.free[which]), at)

    def hessian(self, at: Coordinates, values: Array, which: int = 0) -> Array:
        return jax.jacfwd(lambda x: self.slope(x, values, which))(at)

    def residual(self, u):
        points, values = self.points(u), u[-2:]
        slopes = [self.slope(x, values, i) for i, x in enumerate(points)]
        if self.kind == COEXISTENCE:
            actions = jnp.stack([self.at(values).action(x) for x in points])
            return jnp.hstack([*slopes, actions[1:] - actions[0]])
        matrix, right = self.hessian(points[0], values), self.right[None]
        if self.kind == SPINODAL:
            return jnp.hstack([slopes[0], lost_rank(matrix, self.left, right)])
        _, change = jax.jvp(lambda p: self.slope(points[0], p), (values,), (self.normal,))
        right = jax.scipy.linalg.block_diag(right, jnp.ones((1, 1)))
        lost = lost_rank(jnp.column_stack([matrix, change]), self.left, right)
        return jnp.hstack([slopes[0] + u[-3] * self.left, lost])

    def curvatures(self, u: Array) -> Float[Array, "points curvatures"]:
        """Return the curvatures of each point, without the one that vanishes along the line."""
        hessians = jnp.stack([self.hessian(x, u[-2:], i) for i, x in enumerate(self.points(u))])
        curvatures = jnp.linalg.eigvalsh((hessians + hessians.mT) / 2)
        if self.kind == COEXISTENCE:
            return curvatures
        vanishing = jnp.argmin(jnp.abs(curvatures))
        return jnp.delete(curvatures, vanishing, axis=1, assume_unique_indices=True)

    def sides(self, u: Array) -> Array:
        points = self.points(u)
        if self.kind == COEXISTENCE:
            return points[0] - points[1]
        return jax.jacfwd(lambda p: self.left @ self.slope(points[0], p))(u[-2:]) * self.lengths[-2:]

    def normal_form(self, u: Array) -> Float[Array, " orders"]:
        """Return the second and third derivative of F along the null vector, which others follow.

        The second derivative vanishes at a critical point, and the third one at a tricritical
        point. It is positive if S is lowest there, and set to one if branches exchange their
        stability.
        """
        if self.kind == COEXISTENCE:
            return jnp.zeros(2)
        at, values = self.points(u)[0], u[-2:]

        def along(function):
            return lambda x: jax.jvp(function, (x,), (self.right,))[1]

        first = along(lambda x: self.slope(x, values))
        second = along(first)
        matrix = bordered(self.hessian(at, values), self.left, self.right[None])
        follows = jnp.linalg.solve(matrix, jnp.append(second(at), 0.0))[:-1]
        cubic = self.left @ (along(second)(at) - 3 * jax.jvp(first, (at,), (follows,))[1])
        quadratic, cubic = self.left @ second(at), cubic * (self.left @ self.right)
        exchange = (jnp.abs(quadratic) > _ASYMMETRIC * (jnp.abs(cubic) + 1)) & (self.kind == CONTINUOUS)
        return jnp.stack([quadratic, jnp.where(exchange, 1.0, cubic)])

    def reframed(self, u: Array) -> Boundary:
        """Return the equations with the null vectors at `u`, whose signs are kept."""
        if self.kind == COEXISTENCE:
            return self
        at, values = self.points(u)[0], u[-2:]
        left, (right,) = null_vectors(self.hessian(at, values))
        left = jnp.where(left @ self.left < 0, -left, left)
        right = jnp.where(right @ self.right < 0, -right, right)
        curvature = jax.jacfwd(lambda p: left @ self.hessian(at, p) @ right)(values)
        return replace(self, left=left, right=right, normal=curvature * self.lengths[-2:] ** 2)

    def tests(self, u, tangent):
        here, off = self.reframed(u), jnp.abs(u[-2] - self.middle[0]) / self.lengths[-2]
        tests = {"outside": 1 - off, "unstable": self.curvatures(u).ravel()}
        if self.kind == CONTINUOUS:
            return {**tests, TRICRITICAL: here.normal_form(u)[1], "apart": 1 - jnp.abs(u[-3]) / _SLACK}
        tests[MERGED] = jnp.sum(self.side * here.sides(u)) / jnp.sum(self.side**2)
        return tests | ({CRITICAL: here.normal_form(u)[0]} if self.kind == SPINODAL else {})

    def seen(self, u):
        points, values, here = self.points(u), u[-2:], self.reframed(u)
        bound, count = self.at(values), max(1, 2 // len(points))
        # Points before the curve reached an edge are off it.
        off_edge = jnp.where(jnp.abs(points) < _FIXED, 1.0, 0.0)
        pairs = [
            {**replace(bound, free=free).values_on_edges(x), "action": bound.action(x)}
            for free, x in zip(off_edge, points, strict=True)
        ]
        return {
            **dict(zip(self.parameters, values, strict=False)),
            **jax.tree.map(lambda *both: jnp.stack(both), *pairs * count),
            "error": here.error(u),
            "normal_form": here.normal_form(u),
            "negative": jnp.sum(self.curvatures(u) < 0, axis=1),
        }

    def error(self, u: Array) -> Array:
        """Bound the shift by rounding and quadrature, in units of half a range."""
        points, bound, residual = self.points(u), self.at(u[-2:]), self.residual(u)
        sizes = [bound.slopes(x, jnp.zeros_like(x))[1] * self.free[i] for i, x in enumerate(points)]
        of_points = bound.terms if self.kind == COEXISTENCE else lambda x: self.hessian(x, u[-2:])
        rest = sum(jnp.sum(jnp.abs(of_points(x))) for x in points)
        sizes.append(jnp.full(len(residual) - self.free.size, rest))
        wrong = 4 * jnp.finfo(u.dtype).eps * jnp.hstack(sizes) + jnp.abs(residual)
        if bound.of.nodes:
            finer = replace(self, bound=replace(self.bound, of=bound.of.finer))
            wrong += 2 * jnp.abs(finer.residual(u) - residual)
        off = jnp.abs(jnp.linalg.pinv(jax.jacfwd(self.residual)(u) * self.lengths)) @ wrong
        off += jnp.finfo(u.dtype).eps * jnp.maximum(1.0, jnp.abs(u / self.lengths))
        return jnp.max(off[-2:][: len(self.parameters)])

    def framed(self, u):
        return _framed(self, u)

    def ends(self, kind, u):
        return kind if kind in _ENDS else ""


@partial(jit, of_numbers=lambda system, *others: system.of_numbers)
def _framed(system: Boundary, u: Array) -> Boundary:
    # Fix order parameters that have reached an edge.
    at_edge = jnp.stack([system.bound.edges(x, _FIXED) for x in system.points(u)])
    system = replace(system, free=jnp.where(at_edge, 0.0, system.free)).reframed(u)
    return replace(system, side=system.sides(u))


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
    bound = bind(action, values, points[0])
    bound = replace(bound, units=jnp.asarray(np.ones(len(bound.units))))
    coordinates = np.stack([np.asarray(place_of(bound, each)[0]) for each in (*points, *sizes)])
    largest = np.max(np.abs(coordinates), axis=0)
    units = np.where(bound.is_real & (largest > 0), largest, 1.0)
    at = coordinates[: len(points)]
    free = np.where(np.isfinite(at), 1.0, 0.0)
    at = np.where(free > 0, at, BEYOND * np.sign(at))
    low, high = np.array([*ranges.values(), (0.0, 1.0)][:2]).T
    start = [*(float(bound.parameters[name]) for name in ranges), 0.0][:2]
    slack = [0.0] * (kind == CONTINUOUS)
    unknowns = np.concatenate([at.ravel(), slack, start])
    lengths = np.concatenate([*[units] * len(points), np.ones(len(slack)), (high - low) / 2])
    none, side = np.zeros(len(units)), np.zeros(len(units) if kind == COEXISTENCE else 2)
    arrays = (lengths, free, (low + high) / 2, none, none, np.zeros(2), side)
    return _framed(Boundary(bound, *map(jnp.asarray, arrays), kind, tuple(ranges)), unknowns), unknowns


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
    """
    reason = "loops in Python (`curve.refine` finds a fold again in JAX)"
    refuse_traced("transition", solution, other, reason=reason)
    action, name = solution.of, checked_parameter(solution.of, parameter)
    low, high = checked_bounds("bounds", bounds)
    if not is_same(other.of, action):
        raise ValueError("other is a solution of another action")
    for key, value in solution.parameters.items():
        if key != name and not np.array_equal(value, other.parameters[key]):
            raise ValueError(f"solution and other differ in {key}, and not in {name} alone")
    step, branches, pieces = (high - low) / 100, [], []
    options = {"direction": 0, "largest_step": step}
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
    events = [event for branch in branches for event in _events(branch)]
    merging = [
        (SPINODAL if kind == FOLD else CONTINUOUS, value, [at])
        for kind, value, at in events
        if low - step <= value <= high + step and all(_apart(at, _at(each, value)) < _MERGING for each in pieces)
    ]
    if crossings := _crossings(*pieces):
        value = min(crossings, key=lambda value: abs(value - float(solution.parameters[name])))
        merging = [(COEXISTENCE, value, [_at(piece, value) for piece in pieces])]
    if not merging:
        folds = sorted({f"{value:.6g}" for kind, value, _ in events if kind == FOLD})
        folds = f"; folds (spinodals) are at {' and '.join(folds)}" if folds else ""
        raise ValueError(f"the actions do not cross for {name} from {low:.6g} to {high:.6g}{folds}")
    kind, value, points = merging[0]
    given = {**solution.parameters, name: value}
    system, unknowns = boundary_at(action, {name: bounds}, kind, given, points, _largest(branches))
    place = jax.device_get(corrected(system, unknowns, np.append(np.zeros(len(unknowns) - 1), 1.0)))
    if not place.is_near():
        raise ValueError(f"Newton's method failed at the transition next to {name} = {value:.6g}")
    found = labelled(system, [(place.u, "")]).isel(point=0)[[name, "error", *system.bound.domains, "action"]]
    found["error"] *= float(system.lengths[-2])
    return found.assign(kind="first-order" if kind == COEXISTENCE else "continuous").assign_attrs(transition=name)


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
    Minima that coexist are compared with those of three searches along their line. A third
    minimum that becomes lower starts lines at the triple point. Boundaries at which solutions
    reach an edge of their domain are not found.

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
        - `stability` of a coexistence line: "stable", or "metastable" if a third minimum is lower.

        The attribute `open` says what was not settled.
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
    return diagram.dataset()


class _Diagram:
    """Lines and isolated points of a diagram, datasets with the attribute `kind`."""

    def __init__(self, action: Action, values: Mapping, ranges: Mapping[str, tuple], index: int, starts: int):
        self.action, self.values, self.ranges, self.index = action, values, ranges, index
        self.starts = starts
        self.boundary = partial(boundary_at, action, ranges)
        self.limits = np.array(list(ranges.values()))
        self.names = [symbol.name for symbol in action.order_parameters]
        self.lines: list[xr.Dataset] = []
        self.points: list[xr.Dataset] = []
        self.notes: list[str] = []

    def search(self, values: Mapping) -> list[Solution]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return search(self.action, values, index=self.index, starts=self.starts)

    def places(self, line: xr.Dataset) -> np.ndarray:
        """Return the parameters (point, 2) in units of half their ranges."""
        return np.stack([line[name].values for name in self.ranges], axis=1) / (np.diff(self.limits)[:, 0] / 2)

    def parameters(self, line: xr.Dataset, point: int) -> dict[str, Any]:
        return {**self.values, **{name: float(line[name][point]) for name in self.ranges}}

    def solutions(self, line: xr.Dataset, point: int) -> list[dict[str, np.ndarray]]:
        return [{name: line[name].values[point, which] for name in self.names} for which in (0, 1)]

    def seeds_on(self, name: str, other: Mapping[str, float]) -> Iterator[tuple[Boundary, np.ndarray]]:
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
                    found.append(follow(*line, direction=0))
        sizes = _largest(found)
        for kind, value, at in (event for branch in found for event in _events(branch)):
            kind = SPINODAL if kind == FOLD else CONTINUOUS
            yield self.boundary(kind, {**self.values, **other, name: value}, [at], sizes)
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
        kept = [*self.ranges, *self.names, "action", "error", "normal_form", "event"]
        line = line.isel(point=(errors < _REGULAR * np.nanmedian(errors)) & (events != MERGED))[kept]
        if line.sizes["point"] < 2:
            return
        events, (second, cubic) = line["event"].values, line["normal_form"].values.T
        special = np.flatnonzero(np.isin(events, (CRITICAL, TRICRITICAL))).tolist()
        for at in special:
            # Minima merge if the lowest coefficient that does not vanish is positive.
            if events[at] == TRICRITICAL or self.index or (abs(second[at]) < 1e-6 * cubic[at]):
                self.points.append(line.isel(point=[at]).assign_attrs(kind=str(events[at])))
        for at, reason in ((0, line.attrs.get("began", "")), (-1, line.attrs["ended"])):
            if reason.startswith((MERGED, "no point was found")):
                line = self.extended(line, at)
        # On one side of a tricritical point, the symmetric solution becomes unstable without
        # a stable one next to it. This is a spinodal.
        special = np.flatnonzero(np.isin(line["event"].values, (CRITICAL, TRICRITICAL))).tolist()
        inner = special if system.kind == CONTINUOUS else []
        for first, last in itertools.pairwise([0, *inner, line.sizes["point"] - 1]):
            if last > first:
                crosses = system.kind == CONTINUOUS and line["normal_form"].values[(first + last) // 2, 1] > 0
                kind = system.kind if crosses or system.kind == COEXISTENCE else SPINODAL
                self.lines.append(line.isel(point=slice(first, last + 1)).assign_attrs(kind=kind))
        if system.kind == COEXISTENCE and self.index == 0:
            self.compare(self.lines[-1])

    def extended(self, line: xr.Dataset, at: int) -> xr.Dataset:
        """Add the critical point at which solutions merge, at one end of a line."""
        for end in self.points:
            off = np.linalg.norm(self.places(end)[0] - self.places(line)[at])
            if off < _END and _apart(self.solutions(end, 0)[0], self.solutions(line, at)[0]) < 1.0:
                return xr.concat([line, end] if at else [end, line], "point", combine_attrs="override")
        return line

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

    def compare(self, line: xr.Dataset) -> None:
        """Find out where the minima of a line are the lowest, and add triple points where this changes."""
        count, starts, lower = line.sizes["point"], [], {}
        for share in _ALONG:
            starts += self.search(self.parameters(line, round(share * (count - 1))))
        for point in range(count):
            lowest, pair = float(line["action"][point, 0]), self.solutions(line, point)
            for start in (each.order_parameters for each in starts):
                if min(_apart(start, each) for each in pair) < _SAME_PHASE:
                    continue
                # A start on an edge or at a saddle point would stay there.
                begin = {name: 0.9 * each + 0.1 * pair[0][name] for name, each in start.items()}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = minimise(self.action, self.parameters(line, point), initial=begin)
                if found.converged and float(found.action) < lowest - _ROUNDED * (1 + abs(lowest)):
                    lower[point], lowest = found.order_parameters, float(found.action)
        states = [METASTABLE if point in lower else STABLE for point in range(count)]
        line["stability"] = "point", np.array(states, dtype=object)
        for point, third in lower.items():
            for beside in (point - 1, point + 1):
                if 0 <= beside < count and beside not in lower:
                    self.add_triple_point(line, point, beside, third)

    def add_triple_point(self, line: xr.Dataset, at: int, beside: int, third: Mapping[str, Any]) -> None:
        """Find the point at which three minima have equal action, and the lines from there."""
        system, start = self.boundary(COEXISTENCE, self.parameters(line, at), [*self.solutions(line, at), third])
        residual, solver = lambda u, system: system.residual(u), optx.Newton(1e-13, 1e-13)
        met = optx.root_find(residual, solver, start, system, throw=False, max_steps=20).value
        point = labelled(system, [(met, TRIPLE)]).reset_coords()
        step = self.places(line)[[at, beside]]
        off = np.linalg.norm(self.places(point)[0] - step.mean(axis=0))
        if not (point["error"] < _KNOWN and off <= np.linalg.norm(step[1] - step[0])):
            return
        if not any(each.attrs["kind"] == TRIPLE and self.is_at(each, point, _SAME) for each in self.points):
            self.points.append(point.isel(solution=slice(2)).assign_attrs(kind=TRIPLE))
        third = {name: point[name].values[0, 2] for name in self.names}
        for one in self.solutions(point, 0):
            self.add(*self.boundary(COEXISTENCE, self.parameters(point, 0), [one, third]))

    def is_at(self, line: xr.Dataset, point: xr.Dataset, near: float = _END) -> bool:
        return bool(np.min(np.linalg.norm(self.places(line) - self.places(point)[0], axis=1)) < near)

    def dataset(self) -> xr.Dataset:
        """Label all lines and points."""
        known = [line for line in self.lines if np.median(line["error"]) < _KNOWN]
        notes = ["boundaries that no scan or search reached are missing"]
        if lost := len(self.lines) - len(known):
            notes.append(f"{counted(lost, 'line')} with singular equations left out")
        coexisting = [line for line in known if line.attrs["kind"] == COEXISTENCE]
        for point in self.points if self.index == 0 else ():
            if not any(self.is_at(line, point) for line in coexisting):
                where = ", ".join(f"{name} = {float(point[name][0]):.5g}" for name in self.ranges)
                notes.append(f"no coexistence line was found at the {point.attrs['kind']}, {where}")
        kept, parts = [*self.ranges, *self.names, "error", "kind", "line", "stability"], []
        for number, each in enumerate([*known, *self.points]):
            labels = {"kind": each.attrs["kind"], "line": number, "stability": STABLE}
            labels = {name: ("point", [value] * each.sizes["point"]) for name, value in labels.items()}
            parts.append(each.assign({name: each.get(name, label) for name, label in labels.items()})[kept])
        none = xr.Dataset({name: ("point", np.zeros(0)) for name in kept})
        whole = xr.concat(parts or [none], "point", combine_attrs="drop")
        across, up = self.ranges
        attrs = {"across": across, "up": up, "ranges": self.limits.ravel().tolist()}
        return whole.assign_attrs(attrs, open="; ".join(notes))
