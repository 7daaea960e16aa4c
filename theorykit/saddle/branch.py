"""Branches of stationary points in one parameter, through folds and crossings of branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from sympy import Expr, Symbol

from ..checks import by_name, checked_instance, checked_number, refuse_traced, shown
from ..curve import System, trace
from ..curve.system import SINGULAR, seen_at, slope_at
from ..curve.tracing import checked_bounds
from .action import Action
from .bound_action import BoundAction, Values, bind, place_of
from .certificate import NEAR, local_model, quadrature_errors
from .problem import Coordinates, reach_of
from .solution import Solution

# Length of the largest step, in units of the coordinates.
_LARGEST = 0.5
# A branch ends at this coordinate, exp(-25) = 1e-11 from an edge. Double precision of the
# parameter no longer resolves it.
_EDGE = 25.0
# Enlarge the unit of a real order parameter that exceeds this many units.
_MANY = 8.0
_EDGE_REACHED = "edge"
# Names in the results of `follow`.
_NAMES = {"action", "event", "hessian_eigenvalues", "index", "point", "quadrature_error", "unknowns"}


class SystemOfAction(System):
    """Equations of an action with its values, with units (unknowns,) of the unknowns."""

    bound: BoundAction
    lengths: Float[Array, " unknowns"]

    @property
    def of_numbers(self):
        return self.bound.of.is_of_few_numbers

    def units(self, u):
        return self.lengths


class StationaryPoints(SystemOfAction):
    """Equations of the stationary points of an action as a parameter changes, for `theorykit.curve`."""

    axes: ClassVar = {"hessian_eigenvalues": ("eigenvalue",)}
    parameter: str = eqx.field(static=True)

    @classmethod
    def of(
        cls, action: Action, values: Values, parameter: Expr | str, initial: Values | None = None
    ) -> StationaryPoints:
        """Return the equations, in which `parameter` may change."""
        bound = bind(action, values, initial)
        name = checked_parameter(action, parameter)
        if taken := sorted(_NAMES & {name, *bound.domains}):
            raise ValueError(f"{taken[0]} is a name in results: rename the symbol")
        bound = replace(bound, of=action.finest, units=jnp.ones_like(bound.units))
        return cls(bound=bound, lengths=jnp.ones(len(bound.units) + 1), parameter=name)

    def at(self, value: Float[Array, ""]) -> BoundAction:
        return replace(self.bound, parameters={**self.bound.parameters, self.parameter: value})

    def residual(self, u):
        return held_slope(self.at(u[-1]), u[:-1])

    def tests(self, u, tangent):
        here = self.at(u[-1])
        inside = jnp.where(self.bound.has_edges & (here.free > 0), _EDGE - jnp.abs(u[:-1]), 1.0)
        return {SINGULAR: local_model(here, u[:-1]).model.curvatures / here.scale, _EDGE_REACHED: inside}

    def seen(self, u):
        here, at = self.at(u[-1]), u[:-1]
        known = local_model(here, at)
        eigenvalues = known.model.curvatures / here.scale
        return {
            self.parameter: u[-1],
            **here.values_on_edges(at),
            "action": here.action(at),
            "index": jnp.sum(eigenvalues < 0),
            "hessian_eigenvalues": eigenvalues,
            "quadrature_error": quadrature_errors(here, known, at)[0],
        }

    def framed(self, u):
        many = np.append(self.bound.is_real, False) & (np.abs(u) > _MANY * self.lengths)
        return replace(self, lengths=jnp.where(many, np.abs(u), self.lengths)) if many.any() else self

    def ends(self, kind, u):
        is_judged = self.bound.of.nodes and not self.bound.of.is_nested
        if not kind and is_judged and seen_at(self, u)["quadrature_error"] > NEAR * reach_of(u[:-1]):
            return "averages are inaccurate"
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
    a branch point. Averages have 4,096 nodes, and the branch ends where they are too inaccurate
    for a certificate. To differentiate an event in the other values, use
    `curve.refine(StationaryPoints.of(action, values, parameter), event)`.

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
        ValueError: If `solution` did not converge, or belongs to another action or other values.

    Example:
        >>> from sympy import symbols
        >>> from theorykit import enable_float64, saddle
        >>> enable_float64()
        >>> m, a = symbols("m a", real=True)
        >>> landau = saddle.Action(m**4 / 4 - 2 * m**3 / 3 + a * m**2 / 2, {m: saddle.Real()}, [a])
        >>> solution = saddle.minimise(landau, {a: 0.5}, initial={m: 1.5})
        >>> branch = saddle.follow(landau, {a: 0.5}, solution, a, (0.2, 1.2))
        >>> branch["a"].values[branch["event"] == "fold"].round(6)
        array([1.])
    """
    reason = "loops in Python (`curve.refine` finds one event again in JAX)"
    refuse_traced("follow", list(by_name("values", values).values()), solution, reason=reason)
    if not is_same(checked_instance("solution", solution, Solution).of, checked_instance("action", action, Action)):
        raise ValueError("solution belongs to another action")
    if np.ndim(solution.converged) or not solution.converged:
        raise ValueError(f"solution is not one stationary point: {solution.diagnosis}")
    low, high = checked_bounds("bounds", bounds)
    declared = {symbol.name: symbol.is_nonnegative for symbol in action.parameters}
    if low < 0 and declared[checked_parameter(action, parameter)]:
        raise ValueError(f"bounds must be at least 0, as {parameter} is declared, got {low:g}")
    largest = checked_number("largest_step", (high - low) / 20 if largest_step is None else largest_step, above=0.0)
    system = StationaryPoints.of(action, values, parameter, solution.order_parameters)
    for name, value in solution.parameters.items():
        if not np.array_equal(value, system.bound.values_of_parameters[name]):
            raise ValueError(f"solution belongs to another value of {name}: {np.asarray(value)}")
    at_edge = np.asarray(solution.stats["at_edge"])
    start = np.where(at_edge, solution.stats["coordinates"], place_of(system.bound, solution.order_parameters)[0])
    start = np.append(start, system.bound.parameters[system.parameter])
    system = replace(system, bound=replace(system.bound, free=jnp.where(at_edge, 0.0, 1.0)))
    # The unit of an unconstrained number is its size, or its change over the range if that is
    # larger, unless it is zero within its error. Steps of other coordinates are relative changes.
    slope = slope_at(system, start)
    moves = np.abs(jnp.linalg.solve(slope[:, :-1], slope[:, -1])) * (high - low)
    real = np.maximum(np.abs(start[:-1]), np.where(np.isfinite(moves), moves, 0.0))
    units = np.append(np.where(system.bound.is_real & (real > float(solution.error)), real, 1.0), largest / _LARGEST)
    system = replace(system, lengths=jnp.asarray(units))
    found = trace(system, start, (low, high), direction=direction, largest_step=_LARGEST)
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
    """Interpolate the order parameters of a branch at a value of its parameter.

    Args:
        branch: The result of `follow`.
        value: The value of its parameter.

    Returns:
        The order parameters by name, once per passage through `value`. Each
        entry is a start for `minimise` or `stationary`, as `initial=`.
    """
    branch = checked_instance("branch", branch, xr.Dataset)
    off = branch[branch.attrs["parameter"]].values - float(checked_number("value", value))
    # The first point counts if it has this value, and of equal points the first one.
    before, found = np.append(np.sign(off[:1]) or 1.0, off[:-1]), []
    for at in np.flatnonzero((before * off < 0) | ((before != 0) & (off == 0))):
        share = off[at] / (off[at] - before[at])
        found.append({n: (1 - share) * v[at] + share * v[at - 1] for n, v in order_parameters(branch).items()})
    return tuple(found)


def order_parameters(branch: xr.Dataset) -> dict[str, np.ndarray]:
    return {str(name): each.values for name, each in branch.filter_by_attrs(kind="order parameter").items()}


def checked_parameter(action: Action, parameter: Expr | str) -> str:
    name = getattr(parameter, "name", parameter)
    numbers = [s.name for s in action.parameters if isinstance(s, Symbol) and s not in action.sizes]
    if name not in numbers:
        raise ValueError(f"parameter must be a number among {', '.join(numbers) or 'none'}, got {shown(parameter)}")
    return name
