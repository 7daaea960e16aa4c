"""Curves of stationary points of an action: branches as one parameter changes, and boundaries in two parameters.

Two minima that coexist at a first-order transition lie on one branch, which turns back at two folds (spinodals, the
limits of metastability). With F the gradient of S in coordinates and H its Jacobian, boundaries are the systems

    spinodal       F(x) = 0, H is singular                   a fold: a minimum merges with a saddle
    continuous     F(x) + e w = 0, (H F_d) loses a rank      a pitchfork or another crossing of branches, if e = 0
    coexistence    F(x) = 0, F(y) = 0, S(x) = S(y)           a first-order transition

F_d is the derivative of F along a direction in the parameters, and w the left null vector of H. With two free
parameters, solutions form a curve. These systems stay regular at a cusp, at which two spinodals end in a critical
point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from sympy import Expr, Symbol

from .._jit import jit
from ..checks import checked_number, refuse_traced, shown
from ..curve import System, trace
from ..curve.system import SINGULAR, bordered, lost_rank, null_vectors, slope_at
from ..curve.tracing import checked_bounds
from .action import Action
from .bound_action import BEYOND, BoundAction, Values, bind, place_of
from .certificate import local_model, quadrature_errors
from .problem import Coordinates
from .solution import Solution

# Length of the largest step, in units of the coordinates.
_LARGEST = 0.5
# Stop a branch when a coordinate exceeds this value, next to an edge of its domain. The order parameter is then
# exp(-25) = 1e-11 from the edge, and double precision of the control parameter no longer resolves it.
_EDGE = 25.0
# Enlarge the unit of a real order parameter that exceeds this many units.
_MANY = 8.0
_EDGE_REACHED = "edge"
SPINODAL, CONTINUOUS, COEXISTENCE = "spinodal", "continuous transition", "coexistence"
CRITICAL, TRICRITICAL = "critical point", "tricritical point"
# Names of the tests that end a line, and reasons.
MERGED, _UNSTABLE, _OUTSIDE, _APART = "merged", "unstable", "outside", "apart"
_ENDS = {
    MERGED: "the solutions merge",
    _UNSTABLE: "a solution becomes unstable",
    _OUTSIDE: "the edge of the ranges",
    _APART: "the branches no longer cross",
}
# Slacks below this count as zero.
_SLACK = 1e-8
# A boundary fixes coordinates next to an edge of a domain, 1e-14 from it: the order parameter has no digits left.
_FIXED = 32.0
# Branches cross without a mirror symmetry if the second derivative of F exceeds this fraction of the third.
_ASYMMETRIC = 1e-6
# Names in the results of `follow`.
_NAMES = {"action", "event", "hessian_eigenvalues", "index", "point", "quadrature_error", "unknowns"}


class StationaryPoints(System):
    """Equations of the stationary points of an action, for `theorykit.curve`, as one parameter changes.

    - `bound`: the action with its values.
    - `lengths` (unknowns,): units of the coordinates of the domains and of the parameter.
    - `name`: the parameter.
    """

    axes: ClassVar[Mapping[str, tuple[str, ...]]] = {"hessian_eigenvalues": ("eigenvalue",)}
    bound: BoundAction
    lengths: Float[Array, " unknowns"]
    name: str = eqx.field(static=True)

    @classmethod
    def of(
        cls, action: Action, values: Values, parameter: Expr | str, initial: Values | None = None
    ) -> StationaryPoints:
        """Return the equations at values of all parameters. The units of coordinates are one."""
        bound = bind(action, values, initial)
        name = checked_parameter(action, parameter)
        if taken := sorted(_NAMES & {name, *bound.domains}):
            raise ValueError(f"{taken[0]} is a name in results: rename the symbol")
        bound = replace(bound, units=jnp.ones_like(bound.units))
        return cls(bound, jnp.ones(len(bound.units) + 1), name)

    @property
    def names(self):
        return (*self.bound.owners, self.name)

    @property
    def of_numbers(self):
        return self.bound.of.is_of_numbers

    def at(self, parameter: Float[Array, ""]) -> BoundAction:
        return replace(self.bound, parameters={**self.bound.parameters, self.name: parameter})

    def residual(self, u):
        return held_slope(self.at(u[-1]), u[:-1])

    def tests(self, u, tangent):
        here = self.at(u[-1])
        has_edges = np.repeat([domain.has_edges for domain in here.domains.values()], here.lengths)
        inside = jnp.where(has_edges & (here.free > 0), _EDGE - jnp.abs(u[:-1]), 1.0)
        return {SINGULAR: local_model(here, u[:-1]).model.curvatures / here.scale, _EDGE_REACHED: inside}

    def seen(self, u):
        here, at = self.at(u[-1]), u[:-1]
        known = local_model(here, at)
        eigenvalues = known.model.curvatures / here.scale
        return {
            self.name: u[-1],
            **here.values_on_edges(at),
            "action": here.action(at),
            "index": jnp.sum(eigenvalues < 0),
            "hessian_eigenvalues": eigenvalues,
            "quadrature_error": quadrature_errors(here, known, at)[0],
        }

    def units(self, u):
        return self.lengths

    def framed(self, u):
        many = np.append(self.bound.is_real, False) & (np.abs(u) > _MANY * self.lengths)
        return replace(self, lengths=jnp.where(many, np.abs(u), self.lengths)) if many.any() else self

    def ends(self, kind, u):
        if kind != _EDGE_REACHED:
            return ""
        owner = self.bound.owners[int(np.argmax(np.abs(u[:-1])))]
        return f"{owner} reaches the edge of its domain at {self.name} = {u[-1]:.6g}"


def held_slope(bound: BoundAction, at: Coordinates) -> Coordinates:
    """Return the gradient of S. Coordinates on an edge of a domain are held fixed."""
    found, _ = bound.slopes(at, jnp.zeros_like(at))
    return jnp.where(bound.free > 0, found, at - jax.lax.stop_gradient(at))


def follow(
    action: Action,
    values: Values,
    solution: Solution,
    parameter: Expr | str,
    bounds: Sequence[float | int],
    *,
    direction: int = 1,
    largest_step: float | None = None,
    progress: bool = True,
) -> xr.Dataset:
    """Follow the branch of stationary points through `solution` as one parameter changes, including around folds.

    At a pitchfork, a branch of broken symmetry turns back to its mirror image, and the event is a branch point.
    Averages use the composite rule if the action's own quadrature leaves a point unresolved.
    `curve.refine(StationaryPoints.of(action, values, parameter), event)` differentiates an event in the other values.

    Args:
        action: The action that was solved. Its averages may have another number of nodes.
        values: Values of the parameters of `solution`.
        solution: A converged solution. Order parameters on an edge of their domain are fixed there.
        parameter: The parameter that changes, a number among `values`.
        bounds: Lowest and highest value of the parameter.
        direction: 1 to start towards larger values, -1 towards smaller values, 0 for both.
        largest_step: Largest change of the parameter in a step, by default a 20th of the bounds.
        progress: Report progress if the branch takes longer than a second.

    Returns:
        The points in order along the axis `point` (see `curve.trace`): the parameter, the order parameters and other
        fields of `Solution`, with the `index` before an event at the event. Another kind of event is "edge", where a
        branch reaches the edge of a domain and ends.

    Raises:
        ValueError: If `solution` did not converge or belongs to another action.

    Example:
        >>> import theorykit
        >>> from sympy import symbols
        >>> from theorykit import saddle
        >>> theorykit.enable_float64()
        >>> m, h = symbols("m h", real=True)
        >>> action = saddle.Action(m**4 / 4 - m**2 / 2 - h * m, {m: saddle.Real()}, [h])
        >>> up = saddle.minimise(action, {h: 0.1}, initial={m: 1.0})
        >>> branch = saddle.follow(action, {h: 0.1}, up, h, (-0.5, 0.5), direction=-1, progress=False)
        >>> print(branch["h"][branch["event"] == "fold"].values.round(4))  # 2 / 27**0.5 = 0.3849
        [-0.3849  0.3849]
    """
    reason = "loops in Python (`curve.refine` finds one event again in JAX)"
    refuse_traced("follow", list(values.values()), solution, reason=reason)
    if solution.of.refined != action.refined:
        raise ValueError("solution belongs to another action; pass that action, or solve this one first")
    if np.ndim(solution.converged) or not solution.converged:
        raise ValueError(f"solution is not a stationary point, and no branch starts from it: {solution.diagnosis}")
    low, high = checked_bounds("bounds", bounds)
    largest = checked_number("largest_step", (high - low) / 20 if largest_step is None else largest_step, above=0.0)
    system = StationaryPoints.of(action, values, parameter, solution.order_parameters)
    at_edge = np.asarray(solution.stats["at_edge"])
    start = np.where(at_edge, solution.stats["coordinates"], place_of(system.bound, solution.order_parameters)[0])
    start = np.append(start, system.bound.parameters[system.name])
    system = replace(system, bound=replace(system.bound, free=jnp.where(at_edge, 0.0, 1.0)))
    # The unit of an unconstrained number is its size, or its change over the range if that is larger. Steps of other
    # coordinates are relative changes, with unit one.
    slope = slope_at(system, start)
    moves = np.abs(jnp.linalg.solve(slope[:, :-1], slope[:, -1])) * (high - low)
    real = np.maximum(np.abs(start[:-1]), np.where(np.isfinite(moves), moves, 0.0))
    units = np.append(np.where(system.bound.is_real & (real > 0), real, 1.0), largest / _LARGEST)
    system = replace(system, lengths=jnp.asarray(units))
    options = {"direction": direction, "largest_step": _LARGEST, "progress": progress}
    found = trace(system, start, (low, high), **options)
    refines = system.bound.of.fixed_averages and action.can_refine
    if refines and not np.all(found["quadrature_error"] <= float(solution.stats["tolerance"])):
        found = trace(replace(system, bound=replace(system.bound, of=action.refined)), start, (low, high), **options)
    for name in solution.order_parameters:
        found[name].attrs["kind"] = "order parameter"
    # An eigenvalue vanishes at an event, where its sign is rounding.
    index = found["index"].values
    for at in np.flatnonzero(found["event"].values[1:] != "") + 1:
        index[at] = index[at - 1]
    return found


def near(branch: xr.Dataset, value: float | int) -> tuple[dict[str, Any], ...]:
    """Interpolate the order parameters at a value of the parameter, once for every pass of the branch.

    Pass a result as `initial=` to `minimise` or `stationary` to find the stationary point at this value.

    Args:
        branch: The result of `follow`.
        value: The value of its parameter.
    """
    off = branch[branch.attrs["parameter"]].values - float(checked_number("value", value))
    # The first point counts if it has this value, and of equal points the first one.
    before, found = np.append(np.sign(off[:1]) or 1.0, off[:-1]), []
    for at in np.flatnonzero((before * off < 0) | ((before != 0) & (off == 0))):
        weight = off[at] / (off[at] - before[at])
        found.append({n: (1 - weight) * v[at] + weight * v[at - 1] for n, v in order_parameters(branch).items()})
    return tuple(found)


def order_parameters(branch: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the order parameters of a branch by name."""
    return {str(name): each.values for name, each in branch.filter_by_attrs(kind="order parameter").items()}


def checked_parameter(action: Action, parameter: Expr | str) -> str:
    """Return the name of a numeric parameter that can change."""
    name = getattr(parameter, "name", parameter)
    numbers = [s.name for s in action.parameters if isinstance(s, Symbol) and s not in action.sizes]
    if name not in numbers:
        raise ValueError(f"parameter must be a number among {', '.join(numbers) or 'none'}, got {shown(parameter)}")
    return name


class Boundary(System):
    """Equations of a kind of boundary. Unknowns: coordinates of the points, slack, and two parameters.

    - `free` (points, coordinates): zero for coordinates on an edge of a domain, which are fixed.
    - `lengths` (unknowns,): units. Those of parameters are half their ranges, which have the centres `middle`.
    - `left`, `right`, `normal`: null vectors of H, and the direction in the parameters in which its curvature changes.
    - `side`: difference of two solutions, or change of F with the parameters along `left`. It is reversed where
      solutions merge.
    - `parameters`: names of the parameters. If there is one, the last unknown has no effect.
    """

    can_stand: ClassVar[bool] = True
    poles: ClassVar[tuple[str, ...]] = (MERGED,)
    bound: BoundAction
    free: Float[Array, "points coordinates"]
    lengths: Float[Array, " unknowns"]
    middle: Float[Array, " parameters"]
    left: Coordinates
    right: Coordinates
    normal: Array
    side: Array
    kind: str = eqx.field(static=True)
    parameters: tuple[str, ...] = eqx.field(static=True)

    @property
    def names(self):
        owners = self.bound.owners * len(self.free) + ("slack",) * (self.kind == CONTINUOUS)
        return (*owners, *self.parameters, "none")[: len(owners) + 2]

    @property
    def axes(self):
        names = (*self.bound.domains, "action")
        return {"negative": ("of_point",), "normal_form": ("order",), **dict.fromkeys(names, ("solution",))}

    @property
    def of_numbers(self):
        return self.bound.of.is_of_numbers

    def points(self, u: Array) -> Float[Array, "points coordinates"]:
        return u[: self.free.size].reshape(self.free.shape)

    def at(self, values: Array) -> BoundAction:
        given = dict(zip(self.parameters, values, strict=False))
        return replace(self.bound, parameters={**self.bound.parameters, **given})

    def slope(self, at: Coordinates, values: Array, which: int = 0) -> Coordinates:
        return held_slope(replace(self.at(values), free=self.free[which]), at)

    def hessian(self, at: Coordinates, values: Array, which: int = 0) -> Array:
        return jax.jacfwd(lambda x: self.slope(x, values, which))(at)

    def change(self, at: Coordinates, values: Array) -> Coordinates:
        """Return F_d."""
        return jax.jvp(lambda p: self.slope(at, p), (values,), (self.normal,))[1]

    def residual(self, u):
        points, values = self.points(u), u[-2:]
        slopes = [self.slope(x, values, i) for i, x in enumerate(points)]
        if self.kind == COEXISTENCE:
            actions = jnp.stack([self.at(values).action(x) for x in points])
            return jnp.hstack([*slopes, actions[1:] - actions[0]])
        hessian = self.hessian(points[0], values)
        if self.kind == SPINODAL:
            return jnp.hstack([slopes[0], lost_rank(hessian, self.left, self.right[None])])
        matrix = jnp.column_stack([hessian, self.change(points[0], values)])
        right = jax.scipy.linalg.block_diag(self.right[None], jnp.ones((1, 1)))
        return jnp.hstack([slopes[0] + u[-3] * self.left, lost_rank(matrix, self.left, right)])

    def curvatures(self, u: Array) -> Float[Array, "points curvatures"]:
        """Return the curvatures of each point in order, without the one that vanishes along the line."""
        hessians = jnp.stack([self.hessian(x, u[-2:], i) for i, x in enumerate(self.points(u))])
        curvatures = jnp.linalg.eigvalsh((hessians + hessians.mT) / 2)
        if self.kind == COEXISTENCE:
            return curvatures
        return jnp.delete(curvatures, jnp.argmin(jnp.abs(curvatures)), axis=1, assume_unique_indices=True)

    def sides(self, u: Array) -> Array:
        points = self.points(u)
        if self.kind == COEXISTENCE:
            return points[0] - points[1]
        return jax.jacfwd(lambda p: self.left @ self.slope(points[0], p))(u[-2:]) * self.lengths[-2:]

    def normal_form(self, u: Array) -> Float[Array, " orders"]:
        """Return the second and third derivative of F along the null vector, without other coordinates.

        The second one vanishes at a critical point, and the third one at a tricritical point. It is positive if S is
        lowest there, and set to one on continuous transitions of branches that exchange their stability.
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
        """Return the equations with the null vectors at `u`, with the signs of those before."""
        if self.kind == COEXISTENCE:
            return self
        at, values = self.points(u)[0], u[-2:]
        left, (right,) = null_vectors(self.hessian(at, values))
        pairs = (left, self.left), (right, self.right)
        left, right = (x * jnp.where(x @ old < 0, -1.0, 1.0) for x, old in pairs)
        curvature = jax.jacfwd(lambda p: left @ self.hessian(at, p) @ right)(values)
        return replace(self, left=left, right=right, normal=curvature * self.lengths[-2:] ** 2)

    def tests(self, u, tangent):
        here = self.reframed(u)
        off = jnp.abs(u[-2] - self.middle[0]) / self.lengths[-2]
        tests = {_OUTSIDE: 1 - off, _UNSTABLE: self.curvatures(u).ravel()}
        if self.kind == CONTINUOUS:
            return {**tests, TRICRITICAL: here.normal_form(u)[1], _APART: 1 - jnp.abs(u[-3]) / _SLACK}
        tests[MERGED] = jnp.sum(self.side * here.sides(u)) / jnp.sum(self.side**2)
        return tests | ({CRITICAL: here.normal_form(u)[0]} if self.kind == SPINODAL else {})

    def seen(self, u):
        points, values, here = self.points(u), u[-2:], self.reframed(u)
        # An order parameter that starts on an edge stays at the coordinate BEYOND, up to rounding.
        off_edge = jnp.where(jnp.abs(points) < 0.99 * BEYOND, 1.0, 0.0)
        pairs = [(replace(self.at(values), free=free), x) for free, x in zip(off_edge, points, strict=True)]
        pairs *= max(1, 2 // len(pairs))
        return {
            **dict(zip(self.parameters, values, strict=False)),
            **jax.tree.map(lambda *both: jnp.stack(both), *(bound.values_on_edges(x) for bound, x in pairs)),
            "action": jnp.stack([bound.action(x) for bound, x in pairs]),
            "error": here.error(u),
            "normal_form": here.normal_form(u),
            "negative": jnp.sum(self.curvatures(u) < 0, axis=1),
        }

    def error(self, u: Array) -> Array:
        """Bound the shift of a point by rounding and quadrature, in units of half a range."""
        points, values, eps = self.points(u), u[-2:], jnp.finfo(u.dtype).eps
        bound, residual = self.at(values), self.residual(u)
        slope = jax.jacfwd(self.residual)(u) * self.lengths
        matrix = jnp.concatenate([slope, jnp.linalg.svd(slope)[2][len(slope) :]])
        sizes = [bound.slopes(x, jnp.zeros_like(x))[1] * self.free[i] for i, x in enumerate(points)]
        if self.kind == COEXISTENCE:
            terms = jnp.stack([jnp.sum(jnp.abs(bound.terms(x))) for x in points])
            sizes.append(terms[1:] + terms[0])
        else:
            sizes.append(jnp.sum(jnp.abs(self.hessian(points[0], values))))
        if self.kind == CONTINUOUS:
            sizes.append(jnp.sum(jnp.abs(self.change(points[0], values))))
        padding = 0, len(u) - len(residual)
        rounding = jnp.pad(4 * eps * jnp.hstack(sizes) + jnp.abs(residual), padding)
        off = jnp.abs(jnp.linalg.inv(matrix)) @ rounding
        if bound.of.fixed_averages:
            finer = replace(self, bound=replace(self.bound, of=bound.of.checking))
            off += 2 * jnp.abs(jnp.linalg.solve(matrix, jnp.pad(finer.residual(u) - residual, padding)))
        off += eps * jnp.maximum(1.0, jnp.abs(u / self.lengths))
        return jnp.max(off[-2:][: len(self.parameters)])

    def units(self, u):
        return self.lengths

    def framed(self, u):
        return _framed(self, u)

    def ends(self, kind, u):
        where = ", ".join(f"{name} = {value:.4g}" for name, value in zip(self.parameters, u[-2:], strict=False))
        return f"{_ENDS[kind]} at {where}" if kind in _ENDS else ""


@partial(jit, of_numbers=lambda system, *others: system.of_numbers)
def _framed(system: Boundary, u: Array) -> Boundary:
    # Fix order parameters that have reached an edge of their domain, and solve for the others.
    at_edge = jnp.stack([system.bound.edges(x, _FIXED) for x in system.points(u)])
    system = replace(system, free=jnp.where(at_edge, 0.0, system.free)).reframed(u)
    return replace(system, side=system.sides(u))


def boundary_at(
    action: Action,
    values: Values,
    kind: str,
    points: Sequence[Mapping[str, Any]],
    ranges: Mapping[str, tuple[float, float]],
    sizes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Boundary, np.ndarray]:
    """Return the equations of a kind, and the unknowns at `points`, order parameters by name, and at `values`.

    The units of numbers without a domain are their largest values at `points` and `sizes`.
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
    arrays = (free, lengths, (low + high) / 2, none, none, np.zeros(2), side)
    return _framed(Boundary(bound, *map(jnp.asarray, arrays), kind, tuple(ranges)), unknowns), unknowns
