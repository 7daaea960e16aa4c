"""Transitions and phase diagrams: two stationary points have equal action, merge, or bifurcate.

Every kind of boundary is a system of equations for stationary points and parameters. With F the gradient of S in
coordinates and H its Jacobian, the systems are

    spinodal       F(x) = 0, g(x) = 0                        a fold: a minimum merges with a saddle
    continuous     F(x) + e w = 0, g(x) = 0, w F_d = 0       a pitchfork or another crossing of branches, if e = 0
    coexistence    F(x) = 0, F(y) = 0, S(x) = S(y)           a first-order transition

The scalar g vanishes if and only if H is singular. It is the last entry of the solution of the bordered system
[[H, w], [v^T, 0]] (z, g) = (0, 1), with w and v close to the null vectors of H (Govaerts, Numerical Methods for
Bifurcations of Dynamical Equilibria, 2000). F_d is the derivative of F along a direction in the parameters. With two
free parameters, solutions form a curve, which is followed by pseudo-arclength continuation. These systems stay regular
at a cusp, at which two spinodals end in a critical point.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Array, Bool, Float
from sympy import Expr

from ..checks import Count, Index, by_name, checked_arguments, counted, on_host
from ..compilation import jit
from ..progress import Progress
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Heading, Table, Text, verbatim
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, place_of
from .branch import (
    FOLD,
    LONGER,
    STRAIGHT,
    SolutionBranch,
    checked_bounds,
    checked_parameter,
    follow_both_ways,
    free_name,
    passes,
)
from .diagnosis import ConvergenceWarning
from .problem import Coordinates
from .solution import Solution, place_in_words
from .solve import minimise, search, stationary

SPINODAL, CONTINUOUS, COEXISTENCE = "spinodal", "continuous transition", "coexistence"
CRITICAL, TRICRITICAL = "critical point", "tricritical point"
# Largest, first and smallest step of a line. Parameters are in units of half their range.
_LARGEST, _FIRST, _SMALLEST, _MOST_POINTS = 0.1, 0.01, 1e-7, 2000
# Lengthen the next step if the cosine between the tangents at both ends of a step is above this value.
_VERY_STRAIGHT = 0.99
# Newton corrections: their number, tolerance, largest acceptable last one, and largest total in units of the step.
_CORRECTIONS, _CONVERGED, _NEAR, _ASTRAY = 15, 1e-12, 1e-8, 0.3
# Distance within which a point is on a known line, and distance within which a line ends at a critical point.
_SAME, _END = 0.005, 0.2
# Largest error of a boundary, in units of half the range of a parameter.
_KNOWN = 0.01
# A singular point is not a fold if the change of F with the parameters is below this fraction of the change of
# curvature. Branches cross without a mirror symmetry if the second derivative of F exceeds this fraction of the third.
_NO_FOLD, _ASYMMETRIC = 1e-4, 1e-6
# Slacks below this count as zero.
_SLACK = 1e-8
# Coordinates next to an edge of a domain, 1e-14 from it, are fixed: the order parameter has no digits left.
_EDGE = 32.0
# Actions with a smaller relative difference are equal.
_ROUNDED = 1e-11
# Order parameters that are about to merge differ by less than the first. Duplicates of a branch differ by less than
# the second.
_MERGING, _DUPLICATE = 0.1, 0.01
# Positions of searches along a scan, as fractions of the range.
_ALONG = (0.03, 0.5, 0.97)
_MERGED = "the solutions merge"


class Transition(DisplayMixin, eqx.Module):
    """Value of a parameter at which two solutions have equal action, or merge.

    - `kind`: "first-order" if the solutions differ there, "continuous" if they merge.
    - `solutions`: the two solutions at `value`, as returned by `minimise` or `stationary`. If they merge, a curvature
      is zero.
    - `error`: bound on the shift of `value` by rounding and quadrature.
    """

    parameter: str = eqx.field(static=True)
    value: Float[Array, ""]
    kind: str = eqx.field(static=True)
    error: Float[Array, ""]
    solutions: tuple[Solution, Solution]

    def _view(self) -> Iterator[Block]:
        yield Heading(f"{self.kind.capitalize()} transition")
        rows = [(verbatim(self.parameter), f"{float(self.value):.9g}"), ("error", f"{float(self.error):.1g}")]
        for number, solution in zip(("first", "second"), self.solutions, strict=True):
            rows.append((f"{number} solution", f"{verbatim(solution.place)}; S = {float(solution.action):.6g}"))
        yield Table(tuple(rows))


class PhaseBoundary(DisplayMixin, eqx.Module):
    """A boundary line in the plane of two parameters, or a point at which such lines end.

    - `kind`: the kind of line or point. A solution ceases to exist or changes its index at a "spinodal". Another
      solution branches off at a "continuous transition". Two solutions have equal action at "coexistence". Two
      spinodals meet at a "critical point". A continuous transition becomes first-order at a "tricritical point".
    - `parameters`: values of the two parameters along the line, by name.
    - `order_parameters`: order parameters of the solution, or of both coexisting solutions.
    - `error`: bound on the shift of a point by rounding and quadrature, in units of half the range of a parameter.
    - `ended`: why the line stops at its first point, and why at its last point.
    - `stable` (point,): whether no third minimum on any of the lines of a phase diagram is lower than two minima that
      coexist. It is true for other kinds.
    """

    kind: str = eqx.field(static=True)
    parameters: Mapping[str, Float[Array, " point"]]
    order_parameters: tuple[Mapping[str, Float[Array, "point ..."]], ...]
    error: Float[Array, " point"]
    stable: Bool[Array, " point"]
    ended: tuple[str, ...] = eqx.field(static=True, default=())

    def __len__(self) -> int:
        return len(self.error)

    def _view(self) -> Iterator[Block]:
        yield Heading(self.kind.capitalize())
        given = (self.parameters, *self.order_parameters)
        error = float(np.asarray(self.error).max())
        rows = [(verbatim(name), _range(values, error)) for each in given for name, values in each.items()]
        rows += [("points", str(len(self))), ("largest error", f"{error:.1g} of half the range")]
        yield Table((*rows, *zip(("begins", "ends"), map(verbatim, self.ended), strict=False)))


class PhaseDiagram(DisplayMixin, eqx.Module):
    """Phase boundaries of an action in two parameters: `lines`, and the `critical_points` at which lines end.

    `ranges` has the range of each parameter. The first parameter is the horizontal axis of `plot`.
    """

    lines: tuple[PhaseBoundary, ...]
    critical_points: tuple[PhaseBoundary, ...]
    ranges: Mapping[str, tuple[float, float]] = eqx.field(static=True)

    def _view(self) -> Iterator[Block]:
        yield Heading(f"Phase diagram in {' and '.join(map(verbatim, self.ranges))}")
        boundaries = (*self.lines, *self.critical_points)
        if not boundaries:
            yield Text("No boundary was found within the ranges: widen them, or raise `scans`.")
            return
        rows = []
        for each in boundaries:
            error = float(np.asarray(each.error).max())
            sides = ((each.parameters[name], error * (high - low) / 2) for name, (low, high) in self.ranges.items())
            lost = len(each) - int(np.sum(each.stable))
            points = f"{len(each)}, {lost} metastable" if lost else str(len(each))
            rows.append((each.kind, *(_range(*side) for side in sides), points, f"{error:.1g}"))
        yield Table(tuple(rows), ("boundary", *map(verbatim, self.ranges), "points", "largest error"))
        yield Text("Errors are in units of half a range. `plot()` draws the diagram, `to_xarray()` labels it.")

    def to_xarray(self) -> xr.Dataset:
        """Return all boundaries, point by point: parameters, order parameters, `error`, `stable`, `kind`, and `line`.

        `line` is the number of the boundary. The axis `solution` has both solutions of a coexistence line, and
        otherwise the same one twice. A name that the action already uses gets a trailing underscore.
        """
        boundaries = (*self.lines, *self.critical_points)
        names = boundaries[0].order_parameters[0] if boundaries else {}
        free = partial(free_name, taken={*self.ranges, *names})
        point, lengths = free("point"), [len(each) for each in boundaries]
        data: dict[str, Any] = {
            name: (point, np.concatenate([[], *(each.parameters[name] for each in boundaries)])) for name in self.ranges
        }
        for name in names:
            both = [np.stack([each.order_parameters[at][name] for at in (0, -1)], axis=1) for each in boundaries]
            axes = [f"{name}_{axis}" for axis in ("row", "column")[: both[0].ndim - 2]]
            data[name] = (point, free("solution"), *axes), np.concatenate(both)
        data[free("error")] = point, np.concatenate([[], *(each.error for each in boundaries)])
        data[free("stable")] = point, np.concatenate([np.zeros(0, bool), *(each.stable for each in boundaries)])
        data[free("kind")] = point, np.repeat(np.array([each.kind for each in boundaries], str), lengths)
        data[free("line")] = point, np.repeat(np.arange(len(boundaries)), lengths)
        (across, widths), (up, heights) = self.ranges.items()
        ours = {name: free(name) for name in ("kind", "line", "stable")}
        return xr.Dataset(data, attrs={"across": across, "up": up, "ranges": [*widths, *heights], **ours})

    def plot(self, axes: Any = None) -> Any:
        """Draw the diagram into matplotlib's `axes`, or new ones: `plots.draw_phase_diagram`."""
        from ..plots import draw_phase_diagram

        return draw_phase_diagram(self.to_xarray(), axes)


def _range(values: Array, error: Array | float) -> str:
    """Write the lowest and the highest value, or one value if they agree to the error. Values below the error are 0."""
    values = np.asarray(values)
    if values.ndim > 1:
        return f"{values.shape[1:]} each"
    low, high = float(np.min(values)), float(np.max(values))
    numbers = [0.0 if abs(value) <= error else value for value in (low, high)[: 1 + (high - low > 2 * error)]]
    return " to ".join(f"{value:.5g}" for value in numbers)


class _Frame(eqx.Module):
    """Null vectors of H at the last point, and the direction in the parameters in which its curvature changes."""

    left: Coordinates
    right: Coordinates
    normal: Array


class _System(eqx.Module):
    """Equations of a kind of boundary. Unknowns: coordinates of one or two points, slack, parameters in `units`."""

    bound: BoundAction
    free: Float[Array, "points coordinates"]
    units: Float[Array, " parameters"]
    kind: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    # Known values are computed on the host. With JAX, each operation on them would be compiled.
    def points(self, unknowns: Any) -> Any:
        return on_host(unknowns)[: self.free.size].reshape(self.free.shape)

    def parameters(self, unknowns: Any) -> Any:
        return on_host(unknowns)[-len(self.names) :] * on_host(self.units)

    def at(self, parameters: Array) -> BoundAction:
        given = dict(zip(self.names, parameters, strict=True))
        return replace(self.bound, parameters={**self.bound.parameters, **given})

    def slope(self, at: Coordinates, parameters: Array, which: int = 0) -> tuple[Coordinates, Coordinates]:
        """Return F, and the magnitude of its terms. Coordinates on an edge of a domain are fixed."""
        found, magnitude = self.at(parameters).slopes(at, jnp.zeros_like(at))
        held = jnp.where(self.free[which] > 0, 0.0, at - jax.lax.stop_gradient(at))
        return found * self.free[which] + held, magnitude * self.free[which]

    def hessian(self, at: Coordinates, parameters: Array, which: int = 0) -> Array:
        return jax.jacfwd(lambda x: self.slope(x, parameters, which)[0])(at)

    def bordered(self, at: Coordinates, parameters: Array, frame: _Frame) -> Array:
        hessian = self.hessian(at, parameters)
        return jnp.block([[hessian, frame.left[:, None]], [frame.right[None], jnp.zeros((1, 1))]])

    def residual(self, unknowns: Array, frame: _Frame) -> tuple[Array, Array]:
        """Return the residuals of the equations, and the magnitude of their terms."""
        at, parameters = self.points(unknowns), self.parameters(unknowns)
        slopes, magnitudes = zip(*(self.slope(x, parameters, i) for i, x in enumerate(at)), strict=True)
        if self.kind == COEXISTENCE:
            first, second = (self.at(parameters).terms(x) for x in at)
            total = jnp.sum(jnp.abs(first)) + jnp.sum(jnp.abs(second))
            difference = jnp.sum(first) - jnp.sum(second)
            return jnp.hstack([*slopes, difference]), jnp.hstack([*magnitudes, total])
        matrix = self.bordered(at[0], parameters, frame)
        last = jnp.zeros(len(matrix)).at[-1].set(1.0)
        singular, entries = jnp.linalg.solve(matrix, last)[-1], jnp.sum(jnp.abs(matrix[:-1, :-1]))
        if self.kind == SPINODAL:
            return jnp.hstack([slopes[0], singular]), jnp.hstack([magnitudes[0], entries])
        along = frame.normal * self.units
        change = jax.jvp(lambda p: self.slope(at[0], p)[0], (parameters,), (along,))[1]
        left = jnp.linalg.solve(matrix.T, last)[:-1]
        slack = unknowns[-len(self.names) - 1]
        sides = [slopes[0] + slack * frame.left, singular, left @ change]
        return jnp.hstack(sides), jnp.hstack([magnitudes[0], entries, jnp.sum(jnp.abs(change))])


class _Place(eqx.Module):
    """Point of a line.

    - `order_parameters`: the order parameters of each of its `points`.
    - `at_edge`: whether a free coordinate of a point is next to an edge of its domain.
    - `residual`: the last correction.
    - `led`: the sum of all corrections.
    - `error`: error of the parameters, in units.
    - `test` changes its sign at a special point: a cusp of a spinodal, or the change of a continuous transition to
      first order (positive if continuous).
    - `curvatures` (points, coordinates): curvatures of each of the `points`, in increasing order. The one that vanishes
      all along a line is left out.
    - `side` is reversed if a line passes the point where its solutions merge: the normal of a spinodal (the derivative
      of F in the parameters along the null vector), or the difference of two solutions.
    """

    unknowns: Array
    order_parameters: tuple[Mapping[str, Float[Array, "..."]], ...]
    at_edge: Bool[Array, "points coordinates"]
    tangent: Array
    residual: Array
    led: Array
    error: Array
    frame: _Frame
    test: Array
    curvatures: Array
    side: Array

    @property
    def negative(self) -> np.ndarray:
        """Number of negative curvatures of each of the points."""
        return np.sum(np.asarray(self.curvatures) < 0, axis=1)


@partial(jit, of_numbers=lambda system, *others: system.bound.of.is_of_numbers)
def _corrected(system: _System, unknowns: Array, across: Float[Array, "rows unknowns"], frame: _Frame) -> _Place:
    """Solve near `unknowns` by Newton's method. A row `across` makes corrections orthogonal to it."""
    none, last = jnp.zeros(len(across)), jnp.zeros(len(unknowns)).at[-1].set(1.0)

    def matrix(at):
        return jnp.concatenate([jax.jacfwd(lambda u: system.residual(u, frame)[0])(at), across])

    def correct(state):
        at, _, led, count = state
        sides = jnp.append(-system.residual(at, frame)[0], none)
        # Least squares, because the equations are singular at a crossing of lines.
        change = jnp.linalg.lstsq(matrix(at), sides)[0]
        length = jnp.linalg.norm(change)
        return at + change, length, led + length, count + 1

    def unsettled(state):
        _, length, _, count = state
        return (length > _CONVERGED) & (count < _CORRECTIONS)

    start = (unknowns, jnp.array(1.0), jnp.array(0.0), jnp.array(0))
    at, residual, led, _ = jax.lax.while_loop(unsettled, correct, start)
    whole, (sides, magnitudes) = matrix(at), system.residual(at, frame)
    tangent = jnp.linalg.solve(whole, last)
    tangent = tangent / jnp.linalg.norm(tangent)
    rounding = jnp.append(4 * jnp.finfo(at.dtype).eps * magnitudes, none)
    off = jnp.abs(jnp.linalg.solve(whole, jnp.eye(len(whole)))) @ rounding + residual
    if system.bound.of.fixed_averages:
        finer = replace(system, bound=replace(system.bound, of=system.bound.of.checking))
        off += 2 * jnp.abs(jnp.linalg.solve(whole, jnp.append(finer.residual(at, frame)[0] - sides, none)))
    points, parameters, count = system.points(at), system.parameters(at), len(system.names)
    hessians = jnp.stack([system.hessian(point, parameters, i) for i, point in enumerate(points)])
    curvatures = jnp.linalg.eigvalsh((hessians + hessians.mT) / 2)
    if system.kind != COEXISTENCE:
        curvatures = jnp.delete(curvatures, jnp.argmin(jnp.abs(curvatures)), axis=1, assume_unique_indices=True)
    if system.kind == COEXISTENCE:
        test, side = jnp.array(1.0), points[0] - points[1]
    else:
        frame, normal = _framed(system, points[0], parameters, frame)
        if system.kind == SPINODAL:
            test, side = tangent[-2] * normal[1] - tangent[-1] * normal[0], normal
        else:
            # Positive for a continuous transition, else negative: the third derivative of F along the null vector, with
            # the other coordinates eliminated (Lyapunov-Schmidt). If the second derivative of F is not zero, the
            # branches exchange their stability, which is continuous on both sides.
            slope = lambda x: system.slope(x, parameters)[0]  # noqa: E731
            along = lambda f: lambda x: jax.jvp(f, (x,), (frame.right,))[1]  # noqa: E731
            second = along(along(slope))
            sides = jnp.append(second(points[0]), 0.0)
            follows = jnp.linalg.solve(system.bordered(points[0], parameters, frame), sides)[:-1]
            mixed = jax.jvp(along(slope), (points[0],), (follows,))[1]
            cubic = frame.left @ (along(second)(points[0]) - 3 * mixed)
            crossing = jnp.abs(frame.left @ second(points[0])) > _ASYMMETRIC * (jnp.abs(cubic) + 1.0)
            test, side = jnp.where(crossing, 1.0, cubic * (frame.left @ frame.right)), jnp.zeros(count)
    error = jnp.max(off[-count:] + jnp.finfo(at.dtype).eps * jnp.maximum(1.0, jnp.abs(at[-count:])))
    # An order parameter that starts on an edge stays at the coordinate BEYOND, up to rounding.
    off_edge = jnp.where(jnp.abs(points) < 0.99 * BEYOND, 1.0, 0.0)
    bounds = [replace(system.bound, free=free) for free in off_edge]
    values = tuple(bound.values_on_edges(point) for bound, point in zip(bounds, points, strict=True))
    at_edge = jnp.stack([system.bound.edges(point, _EDGE) for point in points]) & (system.free > 0)
    return _Place(at, values, at_edge, tangent, residual, led, error, frame, test, curvatures, side)


def _framed(system: _System, at: Coordinates, parameters: Array, before: _Frame | None = None) -> tuple[_Frame, Array]:
    """Return the frame at a point with almost singular H, and `left` times the parameter derivative of F.

    The signs of the null vectors are chosen as in the frame `before`.
    """
    left, _, right = jnp.linalg.svd(system.hessian(at, parameters))
    left, right = left[:, -1], right[-1]
    if before is not None:
        left, right = (x * jnp.sign(x @ old) for x, old in ((left, before.left), (right, before.right)))
    slope = jax.jacfwd(lambda p: left @ system.slope(at, p)[0])(parameters)
    curvature = jax.jacfwd(lambda p: left @ system.hessian(at, p) @ right)(parameters)
    return _Frame(left, right, curvature * system.units), slope * system.units


@partial(jit, of_numbers=lambda system, *others: system.bound.of.is_of_numbers)
def _local(system: _System, unknowns: Array) -> tuple[_Frame, Array, Array]:
    """Return the frame and the normal, as in `_framed`, and the direction in which the equations change least."""
    at, parameters = system.points(unknowns)[0], system.parameters(unknowns)
    frame, normal = _framed(system, at, parameters)
    tangent = jnp.linalg.svd(jax.jacfwd(lambda u: system.residual(u, frame)[0])(unknowns))[2][-1]
    return frame, normal, tangent


class _Curve:
    """Boundary through a point."""

    def __init__(self, system: _System, ranges: Mapping[str, tuple[float, float]]):
        self.system = system
        self.centre = np.array([(low + high) / (high - low) for low, high in ranges.values()])

    def place(self, start: _Place, length: float) -> _Place:
        tangent = np.asarray(start.tangent)
        return _corrected(self.system, np.asarray(start.unknowns) + length * tangent, tangent[None], start.frame)

    def root(self, quantity: Callable[[_Place], float], start: _Place, ahead: _Place) -> _Place:
        """Find the sign change of a quantity on a step. If lines cross there, Newton's method may fail at the root."""
        found, length = [start], float(np.dot(np.subtract(ahead.unknowns, start.unknowns), start.tangent))

        @cache
        def value(by: float) -> float:
            place = self.place(start, by)
            if float(place.residual) <= _NEAR and float(place.led) <= _ASTRAY * length:
                found.append(place)
            return float(np.nan_to_num(quantity(place)))

        # The sign change may be due to rounding.
        changes = value(0.0) * value(length) < 0
        end = scipy.optimize.brentq(value, 0.0, length, xtol=1e-13) if changes else length
        nearest = min(found, key=lambda place: abs(quantity(place)))
        for share in (0.9999, 0.99, 0.9):
            if abs(quantity(nearest)) > 1e-3 * abs(quantity(start)):
                value(share * end)
                nearest = min(found, key=lambda place: abs(quantity(place)))
        return nearest

    def outside(self, place: _Place) -> float:
        """Return the distance of the parameters from their ranges, in units. It is negative inside."""
        return float(np.max(np.abs(np.asarray(place.unknowns)[-2:] - self.centre))) - 1.0

    def text(self, place: _Place) -> str:
        parameters, error = self.system.parameters(place.unknowns), float(place.error) * np.asarray(self.system.units)
        parameters = np.where(np.abs(parameters) > error, parameters, 0.0)
        return place_in_words(dict(zip(self.system.names, parameters, strict=True)))

    def end(self, place: _Place, ahead: _Place) -> tuple[_Place, str]:
        """Return where a line ends on a step, and why: a curvature changes its sign, or the ranges end."""
        ended = ""
        if self.outside(ahead) > 0:
            ahead = self.root(self.outside, place, ahead) if self.outside(place) < 0 else place
            ended = f"the edge of the ranges at {self.text(ahead)}"
        fewer = np.minimum(place.negative, ahead.negative)
        if (changed := np.flatnonzero(place.negative != ahead.negative)).size:
            which = int(changed[0]), int(fewer[changed[0]])
            ahead = self.root(lambda at: float(at.curvatures[which]), place, ahead)
            what = "the spinodal of one of the solutions"
            what = what if self.system.kind == COEXISTENCE else "the solution becomes unstable in another direction"
            ended = f"{what} at {self.text(ahead)}"
        return ahead, ended

    def followed(self, start: _Place) -> tuple[list[_Place], list[_Place], str]:
        """Return points of the boundary in one direction, the special ones among them, and why it stops."""
        places, special, length = [start], [], _FIRST
        while len(places) < _MOST_POINTS:
            place = places[-1]
            ahead = self.place(place, length)
            cosine = float(np.dot(place.tangent, ahead.tangent))
            # Halve the step if Newton's method failed, if it may have moved to another line, or if the tangent turned.
            if not (float(ahead.residual) <= _NEAR and float(ahead.led) <= _ASTRAY * length and cosine > STRAIGHT):
                length /= 2
                if length < _SMALLEST:
                    return places, special, f"no point was found beyond {self.text(place)}"
                continue
            # The slack e of the equations is zero as long as the branches cross.
            if self.system.kind == CONTINUOUS and abs(float(np.asarray(ahead.unknowns)[-3])) > _SLACK:
                return places, special, f"the branches no longer cross beyond {self.text(place)}"
            if np.dot(place.side, ahead.side) < 0:
                # A symmetry maps the rest of the line to this part.
                return places, special, f"{_MERGED} next to {self.text(place)}"
            ahead, ended = self.end(place, ahead)
            # A sign change of the test function marks a critical or tricritical point, unless it is a pole.
            if float(place.test) * float(ahead.test) < 0:
                there = self.root(lambda at: float(at.test), place, ahead)
                if abs(float(there.test)) < min(abs(float(place.test)), abs(float(ahead.test))):
                    special.append(there)
                    places.append(there)
            if ended:
                return (places if ahead is place else [*places, ahead]), special, ended
            step, to_first = (np.subtract(each.unknowns, place.unknowns) for each in (ahead, start))
            if len(places) > 2 and passes(step, to_first) and np.dot(ahead.tangent, start.tangent) > STRAIGHT:
                return [*places, start], special, "the line closes on its start"
            if (at_edge := np.asarray(ahead.at_edge)).any():
                # Fix order parameters that have reached an edge of their domain, and solve for the others.
                free = jax.device_put(np.where(at_edge, 0.0, self.system.free))
                self.system = replace(self.system, free=free)
                ahead = self.place(ahead, 0.0)
            places.append(ahead)
            length = min(_LARGEST, LONGER * length) if cosine > _VERY_STRAIGHT else length
        return places, special, f"{_MOST_POINTS} points were found"

    def boundary(self, kind: str, places: list[_Place], ended: tuple[str, ...] = ()) -> PhaseBoundary:
        parameters = np.transpose([self.system.parameters(place.unknowns) for place in places])
        others = jax.tree.map(lambda *of: np.stack(of), *((place.order_parameters, place.error) for place in places))
        parameters, (values, errors) = jax.device_put((list(parameters), others))
        stable = jax.device_put(np.ones(len(places), bool))
        return PhaseBoundary(kind, dict(zip(self.system.names, parameters, strict=True)), values, errors, stable, ended)

    def boundaries(self, start: _Place) -> tuple[list[PhaseBoundary], list[PhaseBoundary]]:
        """Return the line through a point, split at changes of its kind, and its special points.

        An isolated point has no line. On one side of a tricritical point, branches cross where the symmetric solution
        of lowest index becomes unstable towards solutions on the other side of the line. This is a spinodal.
        """
        kind = self.system.kind
        # Coordinates that reach an edge are fixed from there on. This differs between directions, so follow copies.
        reverse = replace(start, tangent=jax.device_put(-np.asarray(start.tangent)))
        back, before, begins = copy(self).followed(self.place(reverse, 0.0))
        ahead, after, ends = ([], [], begins) if begins.startswith("the line closes") else copy(self).followed(start)
        places, special = [*back[::-1], *ahead[1:]], [*before[::-1], *after]
        if len(places) < 2:
            return [], []
        of_point = {SPINODAL: CRITICAL, CONTINUOUS: TRICRITICAL}.get(kind)
        points = [self.boundary(of_point, [place]) for place in special if of_point]
        if kind != CONTINUOUS:
            return [self.boundary(kind, places, (begins, ends))], points
        cuts = [0, *(at for at, place in enumerate(places) if any(place is each for each in special)), len(places) - 1]
        reasons, lines = [begins, *(f"the {TRICRITICAL}" for _ in special), ends], []
        for number, (first, last) in enumerate(itertools.pairwise(cuts)):
            part = CONTINUOUS if float(places[(first + last) // 2].test) > 0 else SPINODAL
            lines.append(self.boundary(part, places[first : last + 1], tuple(reasons[number : number + 2])))
        return lines, points


def _system(
    action: Action,
    values: Values,
    kind: str,
    points: Sequence[Mapping[str, Any]],
    ranges: Mapping[str, Any],
    sizes: Sequence[Mapping[str, Any]] = (),
) -> tuple[_System, Array]:
    """Return the system of a kind, and its unknowns at `points`, order parameters by name, and at `values`.

    The units of numbers without a domain are their largest values at `points` and `sizes`.
    """
    bound = bind(action, values, points[0])
    bound = replace(bound, units=jax.device_put(np.ones(len(bound.units))))
    coordinates = np.stack([np.asarray(place_of(bound, each)[0]) for each in (*points, *sizes)])
    largest = np.max(np.abs(coordinates), axis=0)
    units_of_points = np.where(bound.is_real & (largest > 0), largest, 1.0)
    at = coordinates[: len(points)] / units_of_points
    free = np.where(np.isfinite(at), 1.0, 0.0)
    at = np.where(free > 0, at, BEYOND * np.sign(at))
    units = np.array([(high - low) / 2 for low, high in ranges.values()])
    parameters = np.stack([bound.parameters[name] for name in ranges]) / units
    unknowns = np.concatenate([at.ravel(), np.zeros(int(kind == CONTINUOUS)), parameters])
    units_of_points, free, units, unknowns = jax.device_put((units_of_points, free, units, unknowns))
    return _System(replace(bound, units=units_of_points), free, units, kind, tuple(ranges)), unknowns


def _pieces(branch: SolutionBranch, index: int) -> Iterator[SolutionBranch]:
    """Yield the parts of a branch with constant index and monotonic parameter, with points sorted by the parameter."""
    right, steps = branch.index == index, np.sign(np.diff(np.asarray(branch.parameters)))
    keys = np.where(right[:-1] & right[1:], steps, 0.0)
    for key, numbers in itertools.groupby(range(len(keys)), keys.__getitem__):
        steps_of_piece = list(numbers)
        order = np.arange(steps_of_piece[0], steps_of_piece[-1] + 2)[:: int(key) or 1]
        if key:
            arrays = jax.tree.map(np.asarray, replace(branch, turns=()))
            yield jax.tree.map(lambda values, order=order: jax.device_put(values[order]), arrays)


def _ends(*pieces: SolutionBranch) -> tuple[float, float]:
    """Return the lowest and the highest value of the parameter that all pieces reach."""
    ends = np.array([np.asarray(piece.parameters)[[0, -1]] for piece in pieces])
    return float(np.max(ends[:, 0])), float(np.min(ends[:, 1]))


def _at(piece: SolutionBranch, value: float) -> dict[str, Any]:
    """Interpolate order parameters linearly, up to the ends of a piece."""
    return piece.near(float(np.clip(value, *_ends(piece))))[0]


def _crossings(first: SolutionBranch, second: SolutionBranch) -> list[float]:
    """Return parameter values at which the actions of two pieces cross."""
    grid, (low, high) = np.unique(np.concatenate([first.parameters, second.parameters])), _ends(first, second)
    grid = grid[(low <= grid) & (grid <= high)]
    off, error = np.zeros(len(grid)), np.zeros(len(grid))
    for piece, sign in ((first, 1.0), (second, -1.0)):
        here, action = np.asarray(piece.parameters), np.asarray(piece.action)
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


@checked_arguments
def transition(solution: Solution, other: Solution, parameter: Expr | str, bounds: Sequence[float | int]) -> Transition:
    """Find the value of a parameter at which two solutions of an action have equal action, or merge.

    Both branches are followed within `bounds`. At the crossing of actions closest to `solution`, Newton's method solves
    the equations of both solutions and of equal actions together.

    Args:
        solution: A converged solution.
        other: A solution of the same action at the same values of all other parameters.
        parameter: The number that changes.
        bounds: Its lowest and highest value.

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
        >>> found.kind, bool(abs(found.value) <= found.error)
        ('first-order', True)
    """
    action, pair, name = solution.of, (solution, other), checked_parameter(solution.of, parameter)
    bounds = checked_bounds("bounds", bounds)
    if other.of.refined != action.refined:
        raise ValueError("other is a solution of another action")
    if not (solution.parameters and other.parameters):
        raise ValueError("solution and other must be found outside of compiled code, where parameters are known")
    for key, value in solution.parameters.items():
        if key != name and not np.array_equal(value, other.parameters[key]):
            raise ValueError(f"solution and other differ in {key}, and not in {name} alone")
    step, indices = (bounds[1] - bounds[0]) / 100, [int(each.stats["asked"]) for each in pair]
    branches, pieces = [], []
    for each, index in zip(pair, indices, strict=True):
        branch, start = follow_both_ways(action, each.parameters, each, name, bounds, step)
        here, value = branch[start], float(each.parameters[name])
        parts = (part for part in _pieces(branch, index) if any(_apart(at, here) == 0 for at in part.near(value)))
        if (part := next(parts, None)) is None:
            raise ValueError(f"the branch of the solution at {each.place} has no other point within bounds")
        branches.append(branch)
        pieces.append(part)
    (low, high), crossings, here = _ends(*pieces), _crossings(*pieces), float(solution.parameters[name])
    places = ((_at(piece, value) for piece in pieces) for value in np.linspace(low, high, 5))
    if all(_apart(*pair) < _DUPLICATE for pair in places):
        raise ValueError(
            f"solution and other are on the same branch, at {solution.place} and at {other.place}, so no transition "
            "is between them. Find the other solution from another start (initial=...), or with search"
        )
    values = {**solution.parameters, name: min(crossings, key=lambda value: abs(value - here), default=low)}
    if crossings:
        label, kind, points = "first-order", COEXISTENCE, [_at(piece, values[name]) for piece in pieces]
    else:
        turns = [turn for branch in branches for turn in branch.turns]
        merging = [
            turn
            for turn in turns
            if low - step <= turn.parameter <= high + step
            and all(_apart(turn.order_parameters, _at(piece, float(turn.parameter))) < _MERGING for piece in pieces)
        ]
        if not merging:
            folds = " and ".join(sorted({f"{float(turn.parameter):.6g}" for turn in turns if turn.kind == FOLD}))
            raise ValueError(
                f"the actions do not cross for {name} from {low:.6g} to {high:.6g}, where both solutions exist; "
                + (f"a solution ends at a fold (spinodal) at {name} = {folds}" if folds else "neither meets a fold")
            )
        label, kind = "continuous", SPINODAL if merging[0].kind == FOLD else CONTINUOUS
        values, points = {**values, name: float(merging[0].parameter)}, [merging[0].order_parameters]
    system, unknowns = _system(action, values, kind, points, {name: bounds}, _largest(branches))
    place = _corrected(system, unknowns, np.zeros((0, len(unknowns))), _local(system, unknowns)[0])
    if not float(place.residual) <= _NEAR:
        what = "the actions cross" if crossings else "the solutions merge"
        raise ValueError(f"{what} next to {name} = {values[name]:.6g}, but Newton's method failed there")
    (value,), (unit,) = system.parameters(place.unknowns), np.asarray(system.units)
    error, points = float(place.error) * unit, place.order_parameters * (2 // len(place.order_parameters))
    with warnings.catch_warnings():
        # Curvatures vanish if the solutions merge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        ends = [
            stationary(action, {**values, name: float(value)}, index=index, initial=point)
            for index, point in zip(indices, points, strict=True)
        ]
    value, error = jax.device_put((np.asarray(value), np.asarray(error)))
    return Transition(name, value, label, error, tuple(ends))


def _apart(first: Mapping[str, Any], second: Mapping[str, Any]) -> float:
    """Return the largest difference of an order parameter, relative to its size or one."""
    return max(
        float(np.max(np.abs(np.subtract(value, second[name])) / np.maximum(1.0, np.abs(value))))
        for name, value in first.items()
    )


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
) -> PhaseDiagram:
    """Find the phase boundaries of an action in two of its parameters.

    Stationary points are followed along lines in each parameter. From every fold, crossing of branches and crossing of
    actions on these scans, the boundary is followed through the plane, as long as its solutions have this `index`. A
    boundary that no scan crosses is missed. A coexistence line of two minima is not `stable` where a third minimum is
    lower. Averages use the quadrature nodes of the action, and errors include the resulting shift of a boundary.

    Args:
        action: The action. Its solutions may lie on edges of their domains, but boundaries at which they reach an edge
            are not found.
        ranges: Two parameters, each with its lowest and highest value.
        values: All other parameters.
        index: Find boundaries of solutions with this index, 0 for minima.
        scans: Number of lines in each parameter.
        starts: Number of random starts of each search for stationary points. There are three searches on every line.
        progress: Show the progress.

    Example:
        >>> import theorykit
        >>> from sympy import symbols
        >>> from theorykit import saddle
        >>> theorykit.enable_float64()
        >>> m, h, a = symbols("m h a", real=True)
        >>> landau = saddle.Action(m**4 / 4 + a * m**2 / 2 - h * m, {m: saddle.Real()}, [h, a])
        >>> diagram = saddle.phase_diagram(landau, {h: (-1, 1), a: (-2, 1)})
        >>> [line.kind for line in diagram.lines], len(diagram.critical_points)
        (['spinodal', 'coexistence'], 1)
    """
    given = {checked_parameter(action, key): pair for key, pair in by_name("ranges", ranges).items()}
    if len(given) != 2:
        raise ValueError(f"ranges must name exactly two parameters, got {', '.join(given) or 'none'}")
    given = {name: checked_bounds(f"ranges[{name}]", pair) for name, pair in given.items()}
    lines: list[PhaseBoundary] = []
    ends: list[PhaseBoundary] = []
    seeds = []
    cost = f"{scans} scans in each of {' and '.join(given)}"
    with Progress("phase diagram", 2 * scans, "scan", shown=progress, cost=cost) as report:
        for name, other in (tuple(given), tuple(given)[::-1]):
            for share in (np.arange(scans) + 0.5) / scans:
                at = {**by_name("values", values), other: float(np.interp(share, (0, 1), given[other]))}
                seeds += _events(action, at, name, given, index, starts)
                report.update()
        for kind in (CONTINUOUS, SPINODAL, COEXISTENCE):
            # Parts of the line on which branches cross are spinodals. The equations of a spinodal hold there too.
            alike = {kind} if kind == COEXISTENCE else {CONTINUOUS, SPINODAL}
            for system, unknowns in seeds:
                if system.kind != kind:
                    continue
                # Correct in all directions in which the equations change.
                frame, *_, tangent = _local(system, unknowns)
                start, curve = _corrected(system, unknowns, np.asarray(tangent)[None], frame), _Curve(system, given)
                if not float(start.residual) <= _NEAR or curve.outside(start) > 0:
                    continue
                # Newton's method may go from two solutions to one, which coexists with itself everywhere.
                before, after = (np.linalg.norm(np.ptp(system.points(at), axis=0)) for at in (unknowns, start.unknowns))
                if kind == COEXISTENCE and after < before / 2:
                    continue
                # The curvature that vanishes on other lines has either sign next to them.
                allowed = (index,) if kind == COEXISTENCE else (index, index - 1)
                if not np.isin(start.negative, allowed).all():
                    continue
                if any(line.kind in alike and _is_on(line, start, system) for line in lines):
                    continue
                parts, special = curve.boundaries(start)
                lines += [_completed(line, ends, system) for line in parts]
                ends += special
    known = [line for line in lines if np.median(line.error) < _KNOWN]
    if lost := [line.kind for line in lines if not any(line is each for each in known)]:
        warnings.warn(
            f"{counted(len(lost), 'line')} left out ({', '.join(sorted(set(lost)))}): the equations are singular all "
            "along, as when branches cross for every value of a parameter",
            stacklevel=3,
        )
    coexisting = [at for at, line in enumerate(known) if line.kind == COEXISTENCE and index == 0]
    if len(coexisting) > 1:
        with Progress("stability", len(coexisting), "line", shown=progress) as report:
            for at in coexisting:
                others = [known[each] for each in coexisting if each != at]
                known[at] = replace(
                    known[at], stable=_stable(action, by_name("values", values), known[at], others, given)
                )
                report.update()
    return PhaseDiagram(tuple(known), tuple(ends), given)


def _stable(
    action: Action,
    values: Mapping[str, Any],
    line: PhaseBoundary,
    others: Sequence[PhaseBoundary],
    ranges: Mapping[str, tuple[float, float]],
) -> Bool[Array, " point"]:
    """Return whether no minimum from other lines is lower, at each point of a coexistence line.

    A minimum that becomes lower than both of a line does so at a point at which three minima coexist. Other lines pass
    through this point, and have the third minimum.
    """
    units = {name: high - low for name, (low, high) in ranges.items()}
    stable, own = np.ones(len(line), bool), action({**values, **line.parameters, **line.order_parameters[0]})
    for number in range(len(line)):
        here = _point(line.parameters, number)
        starts = []
        for other in others:
            off = sum(((np.asarray(other.parameters[name]) - here[name]) / units[name]) ** 2 for name in ranges)
            nearest = int(np.argmin(off))
            starts += [_point(each, nearest) for each in other.order_parameters]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [minimise(action, {**values, **here}, initial=start) for start in starts]
        except ValueError:
            # A start is on the edge of its domain.
            continue
        lowest = min(float(each.action) if each.converged else np.inf for each in found)
        stable[number] = not lowest < own[number] - _ROUNDED * (1 + abs(own[number]))
    return jax.device_put(stable)


def _events(action: Action, values: Mapping[str, Any], name: str, ranges: Mapping[str, Any], index: int, starts: int):
    """Yield the boundaries that one parameter crosses as it changes, as systems with approximate unknowns."""
    found: list[SolutionBranch] = []
    for share in _ALONG:
        here = float(np.interp(share, (0, 1), ranges[name]))
        for solution in search(action, {**values, name: here}, index=index, starts=starts, progress=False):
            near = (at for branch in found for at in branch.near(here))
            if any(_apart(at, solution.order_parameters) < _DUPLICATE for at in near):
                continue
            try:
                found.append(follow_both_ways(action, {**values, name: here}, solution, name, ranges[name])[0])
            except ValueError:
                # The start is at a fold or branch point itself, which other scans find.
                continue
    largest = _largest(found)

    def system(kind: str, value: float, *points: Mapping[str, Any]) -> tuple[_System, Array]:
        return _system(action, {**values, name: value}, kind, points, ranges, largest)

    for turn in (turn for branch in found for turn in branch.turns):
        fold, unknowns = system(SPINODAL, float(turn.parameter), turn.order_parameters)
        frame, normal, _ = _local(fold, unknowns)
        is_fold = np.linalg.norm(normal) > _NO_FOLD * np.linalg.norm(frame.normal)
        yield (fold, unknowns) if is_fold else system(CONTINUOUS, float(turn.parameter), turn.order_parameters)
    pieces = [piece for branch in found for piece in _pieces(branch, index)]
    for second, first in itertools.combinations(pieces, 2):
        for crossing in _crossings(first, second):
            yield system(COEXISTENCE, crossing, _at(first, crossing), _at(second, crossing))


def _largest(branches: Sequence[SolutionBranch]) -> list[dict[str, Any]]:
    """Return the largest absolute value of every order parameter on each branch."""
    return [{n: np.max(np.abs(v), axis=0) for n, v in branch.order_parameters.items()} for branch in branches]


def _point(values: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Return the values at one point of a line, by name."""
    return {name: np.asarray(of_line)[at] for name, of_line in values.items()}


def _is_on(line: PhaseBoundary, place: _Place, system: _System) -> bool:
    """Return whether a line passes through a place. A spinodal may cross the continuous transition of another point."""
    # Access by name, because JAX sorts the entries of dictionaries.
    units = np.asarray(system.units)
    points = np.stack([line.parameters[name] for name in system.names], axis=1) / units
    at, begin, step = system.parameters(place.unknowns) / units, points[:-1], np.diff(points, axis=0)
    share = np.sum((at - begin) * step, axis=1) / np.maximum(np.sum(step**2, axis=1), np.finfo(float).tiny)
    nearest = begin + np.clip(share, 0.0, 1.0)[:, None] * step
    distances = np.linalg.norm(at - nearest, axis=1)
    closest = int(np.argmin(distances))
    apart = _apart(_point(line.order_parameters[0], closest), place.order_parameters[0])
    is_other = (line.kind, system.kind) == (CONTINUOUS, SPINODAL) and apart > _MERGING
    return bool(distances[closest] < _SAME) and not is_other


def _completed(line: PhaseBoundary, ends: Sequence[PhaseBoundary], system: _System) -> PhaseBoundary:
    """Add the critical points at which solutions merge. The equations of a line are singular next to them."""
    for at in (0, -1):
        for end in ends:
            first, last = jax.tree.map(np.asarray, (end.parameters, line.parameters))
            off = np.stack([first[n][0] - last[n][at] for n in system.names]) / np.asarray(system.units)
            apart = _apart(*(_point(line.order_parameters[i], at) for i in (0, -1)))
            merges = line.ended[at].startswith(_MERGED)
            near = _END if merges else _SAME * (line.kind == COEXISTENCE)
            if not np.linalg.norm(off) < near or apart > 1.0:
                continue
            ended = tuple(f"the {end.kind}" if i == at % 2 else text for i, text in enumerate(line.ended))
            line, end = replace(line, ended=ended), replace(end, kind=line.kind, ended=ended)
            if not merges:
                break
            end = replace(end, order_parameters=end.order_parameters * len(line.order_parameters))
            parts = (line, end) if at else (end, line)
            line = jax.tree.map(lambda *of: jax.device_put(np.concatenate(of)), *parts)
            break
    return line
