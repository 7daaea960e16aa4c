"""Curves of stationary points: branches in one parameter, and boundaries in two.

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
# A branch ends at this coordinate, exp(-25) = 1e-11 from an edge. Double precision of the
# parameter no longer resolves it.
_EDGE = 25.0
# Enlarge the unit of a real order parameter that exceeds this many units.
_MANY = 8.0
_EDGE_REACHED = "edge"
SPINODAL, CONTINUOUS, COEXISTENCE = "spinodal", "continuous transition", "coexistence"
CRITICAL, TRICRITICAL = "critical point", "tricritical point"
# Tests that end a line, and reasons.
MERGED = "merged"
MERGE = "the solutions merge"
_ENDS = {
    MERGED: MERGE,
    "unstable": "a solution becomes unstable",
    "outside": "the edge of the ranges",
    "apart": "the branches no longer cross",
}
# Slacks below this count as zero.
_SLACK = 1e-8
# A boundary fixes coordinates that are 1e-14 from an edge.
_FIXED = 32.0
# Crossings without a mirror symmetry have a second derivative of F above this fraction of
# the third.
_ASYMMETRIC = 1e-6
# Names in the results of `follow`.
_NAMES = {"action", "event", "hessian_eigenvalues", "index", "point", "quadrature_error", "unknowns"}


class StationaryPoints(System):
    """Equations of the stationary points of an action, for `theorykit.curve`.

    - `bound`: the action with its values.
    - `lengths` (unknowns,): units of the coordinates and of the parameter.
    - `name`: the parameter that changes.
    """

    axes: ClassVar = {"hessian_eigenvalues": ("eigenvalue",)}
    bound: BoundAction
    lengths: Float[Array, " unknowns"]
    name: str = eqx.field(static=True)

    @classmethod
    def of(
        cls, action: Action, values: Values, parameter: Expr | str, initial: Values | None = None
    ) -> StationaryPoints:
        """Return the equations at values of all parameters."""
        bound = bind(action, values, initial)
        name = checked_parameter(action, parameter)
        if taken := sorted(_NAMES & {name, *bound.domains}):
            raise ValueError(f"{taken[0]} is a name in results: rename the symbol")
        bound = replace(bound, units=jnp.ones_like(bound.units))
        return cls(bound, jnp.ones(len(bound.units) + 1), name)

    @property
    def parameter(self):
        return self.name

    @property
    def of_numbers(self):
        return self.bound.of.is_of_numbers

    def at(self, value: Float[Array, ""]) -> BoundAction:
        return replace(self.bound, parameters={**self.bound.parameters, self.name: value})

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
        return "an order parameter reaches an edge" if kind == _EDGE_REACHED else ""


def held_slope(bound: BoundAction, at: Coordinates) -> Coordinates:
    """Return the gradient of S. Coordinates on an edge of a domain are fixed."""
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
) -> xr.Dataset:
    """Follow the branch of stationary points through `solution`, including around folds.

    At a pitchfork, a branch of broken symmetry turns back to its mirror image, and the event is
    a branch point. Averages get more nodes if their errors exceed the tolerance of `solution`.
    `curve.refine(StationaryPoints.of(action, values, parameter), event)`
    differentiates an event in the other values.

    Args:
        action: The action that was solved. Its averages may have another number of nodes.
        values: Values of the parameters of `solution`.
        solution: A converged solution. Order parameters on an edge are fixed there.
        parameter: The parameter that changes, a number among `values`.
        bounds: Lowest and highest value of the parameter.
        direction: 1 towards larger values, -1 towards smaller ones, 0 for both.
        largest_step: Largest step in the parameter, by default a 20th of the bounds.

    Returns:
        The points in order along the axis `point` (see `curve.trace`): the parameter, the order
        parameters and other fields of `Solution`. At an event, `index` is that before it. A
        branch ends at the event "edge", where it reaches the edge of a domain.

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
        >>> branch = saddle.follow(action, {h: 0.1}, up, h, (-0.5, 0.5), direction=-1)
        >>> print(branch["h"][branch["event"] == "fold"].values.round(4))  # 2 / 27**0.5 = 0.3849
        [-0.3849  0.3849]
    """
    reason = "loops in Python (`curve.refine` finds one event again in JAX)"
    refuse_traced("follow", list(values.values()), solution, reason=reason)
    if not is_same(solution.of, action):
        raise ValueError("solution belongs to another action")
    if np.ndim(solution.converged) or not solution.converged:
        raise ValueError(f"solution is not one stationary point: {solution.diagnosis}")
    low, high = checked_bounds("bounds", bounds)
    largest = checked_number("largest_step", (high - low) / 20 if largest_step is None else largest_step, above=0.0)
    system = StationaryPoints.of(action, values, parameter, solution.order_parameters)
    at_edge = np.asarray(solution.stats["at_edge"])
    start = np.where(at_edge, solution.stats["coordinates"], place_of(system.bound, solution.order_parameters)[0])
    start = np.append(start, system.bound.parameters[system.name])
    system = replace(system, bound=replace(system.bound, free=jnp.where(at_edge, 0.0, 1.0)))
    # The unit of an unconstrained number is its size, or its change over the range if that is
    # larger. Steps of other coordinates are relative changes.
    slope = slope_at(system, start)
    moves = np.abs(jnp.linalg.solve(slope[:, :-1], slope[:, -1])) * (high - low)
    real = np.maximum(np.abs(start[:-1]), np.where(np.isfinite(moves), moves, 0.0))
    units = np.append(np.where(system.bound.is_real & (real > 0), real, 1.0), largest / _LARGEST)
    system = replace(system, lengths=jnp.asarray(units))
    options = {"direction": direction, "largest_step": _LARGEST}
    for of in (system.bound.of, *action.levels):
        found = trace(replace(system, bound=replace(system.bound, of=of)), start, (low, high), **options)
        # A curvature vanishes at an event.
        errors = found["quadrature_error"].values[found["event"].values == ""]
        if np.all(errors <= float(solution.stats["tolerance"])):
            break
    for name in solution.order_parameters:
        found[name].attrs["kind"] = "order parameter"
    # An eigenvalue vanishes at an event, where its sign is rounding.
    index = found["index"].values
    for at in np.flatnonzero(found["event"].values[1:] != "") + 1:
        index[at] = index[at - 1]
    return found


def is_same(action: Action, other: Action) -> bool:
    """Return whether two actions differ at most in the numbers of nodes of averages."""
    return action.with_nodes(64) == other.with_nodes(64)


def near(branch: xr.Dataset, value: float | int) -> tuple[dict[str, Any], ...]:
    """Interpolate the order parameters at a value of the parameter, once per pass of the branch.

    Each result is a start for `minimise` or `stationary`, as `initial=`.

    Args:
        branch: The result of `follow`.
        value: The value of its parameter.
    """
    off = branch[branch.attrs["parameter"]].values - float(checked_number("value", value))
    # The first point counts if it has this value, and of equal points the first one.
    before, found = np.append(np.sign(off[:1]) or 1.0, off[:-1]), []
    for at in np.flatnonzero((before * off < 0) | ((before != 0) & (off == 0))):
        share = off[at] / (off[at] - before[at])
        found.append({n: (1 - share) * v[at] + share * v[at - 1] for n, v in order_parameters(branch).items()})
    return tuple(found)


def order_parameters(branch: xr.Dataset) -> dict[str, np.ndarray]:
    """Return the order parameters of a branch by name."""
    found = branch.filter_by_attrs(kind="order parameter")
    return {str(name): each.values for name, each in found.items()}


def checked_parameter(action: Action, parameter: Expr | str) -> str:
    """Return the name of a numeric parameter."""
    name = getattr(parameter, "name", parameter)
    numbers = [s.name for s in action.parameters if isinstance(s, Symbol) and s not in action.sizes]
    if name not in numbers:
        raise ValueError(f"parameter must be a number among {', '.join(numbers) or 'none'}, got {shown(parameter)}")
    return name


class Boundary(System):
    """Equations of a kind of boundary.

    Unknowns are coordinates of the points, the slack, and two parameters.

    - `free` (points, coordinates): zero for fixed coordinates, on an edge of a domain.
    - `lengths` (unknowns,): units. Those of parameters are half their ranges.
    - `middle` (parameters,): centres of the ranges.
    - `left`, `right`, `normal`: null vectors of H, and the direction in the parameters in
      which its curvature changes.
    - `side`: difference of two solutions, or change of F with the parameters along `left`. It
      is reversed where solutions merge.
    - `parameters`: their names. If there is one, the last unknown has no effect.
    """

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
    def parameter(self):
        return self.parameters[-1]

    @property
    def axes(self):
        return {"normal_form": ("order",), **dict.fromkeys((*self.bound.domains, "action"), ("solution",))}

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

    def units(self, u):
        return self.lengths

    def framed(self, u):
        return _framed(self, u)

    def ends(self, kind, u):
        return _ENDS.get(kind, "")


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
    arrays = (free, lengths, (low + high) / 2, none, none, np.zeros(2), side)
    return _framed(Boundary(bound, *map(jnp.asarray, arrays), kind, tuple(ranges)), unknowns), unknowns
