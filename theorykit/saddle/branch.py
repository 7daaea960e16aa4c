"""Branches of stationary points, followed through a parameter and around folds.

At a first-order transition, two minima coexist. Both lie on one branch, which turns back at two folds (spinodals, the
limits of metastability). Between the folds, the branch is a maximum along one direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from sympy import Expr, Symbol

from ..checks import Count, checked_arguments, checked_number, refuse_traced, shown
from ..curve import System, trace
from ..curve.system import slope_at
from ..curve.tracing import checked_bounds
from .action import Action
from .bound_action import BoundAction, Values, bind, place_of
from .certificate import local_model, quadrature_errors
from .problem import Coordinates
from .solution import Solution
from .solve import PositiveNumber

# Length of the largest step, in units of the coordinates.
_LARGEST = 0.5
# Stop a branch when a coordinate exceeds this value, next to an edge of its domain. The order parameter is then
# exp(-25) = 1e-11 from the edge, and double precision of the control parameter no longer resolves it.
_EDGE = 25.0
# Enlarge the unit of a real order parameter when the order parameter exceeds this many units.
_MANY = 8.0
_EDGE_REACHED = "edge"
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
        return {"singular": local_model(here, u[:-1]).model.curvatures / here.scale, _EDGE_REACHED: inside}

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
        is_real = np.append(self.bound.is_real, False)
        return jnp.where(is_real & (jnp.abs(u) > _MANY * self.lengths), jnp.abs(u), self.lengths)

    def ends(self, kind, u):
        if kind != _EDGE_REACHED:
            return ""
        owner = self.bound.owners[int(np.argmax(np.abs(u[:-1])))]
        return f"{owner} reaches the edge of its domain at {self.name} = {u[-1]:.6g}"


def held_slope(bound: BoundAction, at: Coordinates) -> Coordinates:
    """Return the gradient of S. Coordinates on an edge of a domain are held fixed."""
    found, _ = bound.slopes(at, jnp.zeros_like(at))
    return jnp.where(bound.free > 0, found, at - jax.lax.stop_gradient(at))


@checked_arguments
def follow(
    action: Action,
    values: Values,
    solution: Solution,
    parameter: Expr | str,
    bounds: Sequence[float | int],
    *,
    direction: int = 1,
    largest_step: PositiveNumber | None = None,
    most_points: Count = 1000,
    progress: bool = True,
) -> xr.Dataset:
    """Follow the branch of stationary points through `solution` as one parameter changes, including around folds.

    At a pitchfork, a branch of broken symmetry turns back to its mirror image, and the event is a branch point. The
    branch ends if the parameter leaves `bounds`, it closes or reaches the edge of a domain, or no step succeeds.
    Averages use the composite rule if the action's own quadrature leaves a point unresolved.
    `curve.refine(StationaryPoints.of(action, values, parameter), event)` differentiates an event in the other values.

    Args:
        action: The action that was solved. Its averages may have another number of nodes.
        values: Values of the parameters of `solution`.
        solution: A converged solution. Order parameters on an edge of their domain are fixed there.
        parameter: The parameter that changes, a number among `values`.
        bounds: Lowest and highest value of the parameter.
        direction: 1 to start towards larger values, -1 to start towards smaller values.
        largest_step: Largest change of the parameter in a step, by default a 20th of the range. Two folds within one
            step are missed.
        most_points: Largest number of points.
        progress: Report progress if the branch takes longer than a second.

    Returns:
        The points in order along the axis `point`: the parameter, the order parameters and the other fields of
        `Solution`, with the `index` before an event at the event. `event` is "fold", "branch point", "edge" where a
        branch reaches the edge of a domain, or "". The attribute `ended` gives the reason why the branch ends.

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
    largest = (high - low) / 20 if largest_step is None else float(largest_step)
    system = StationaryPoints.of(action, values, parameter, solution.order_parameters)
    at_edge = np.asarray(solution.stats["at_edge"])
    start, _ = place_of(system.bound, solution.order_parameters)
    start = np.where(at_edge, solution.stats["coordinates"], start)
    start = np.append(start, system.bound.parameters[system.name])
    system = replace(system, bound=replace(system.bound, free=jnp.where(at_edge, 0.0, 1.0)))
    system = replace(system, lengths=jnp.asarray(_lengths(system, start, high - low, largest)))
    options = {"direction": direction, "largest_step": _LARGEST, "most_points": most_points, "progress": progress}
    found = trace(system, start, (low, high), **options)
    refines = system.bound.of.fixed_averages and action.can_refine
    if refines and not np.all(found["quadrature_error"] <= float(solution.stats["tolerance"])):
        system = replace(system, bound=replace(system.bound, of=action.refined))
        found = trace(system, start, (low, high), **options)
    for name in solution.order_parameters:
        found[name].attrs["kind"] = "order parameter"
    # An eigenvalue vanishes at an event, where its sign is rounding.
    index, is_event = found["index"].values, found["event"].values != ""
    for at in np.flatnonzero(is_event[1:]) + 1:
        index[at] = index[at - 1]
    return found


def _lengths(system: StationaryPoints, start: np.ndarray, width: float, largest: float) -> np.ndarray:
    """Return units, so that numbers need not be of order one.

    The unit of an unconstrained number is its size, or its change over the range if that is larger. Steps of other
    coordinates are relative changes, with unit one.
    """
    units = np.append(np.ones(len(start) - 1), largest / _LARGEST)
    slope = np.asarray(slope_at(system, start))
    with np.errstate(all="ignore"):
        try:
            moves = np.abs(np.linalg.solve(slope[:, :-1], slope[:, -1])) * width
        except np.linalg.LinAlgError:
            moves = np.full(len(start) - 1, np.nan)
    real = np.maximum(np.abs(start[:-1]), np.where(np.isfinite(moves), moves, 0.0))
    units[:-1] = np.where(system.bound.is_real & (real > 0), real, 1.0)
    return units


def near(branch: xr.Dataset, value: float | int) -> tuple[dict[str, Any], ...]:
    """Interpolate the order parameters at a value of the parameter, once for every pass of the branch.

    Pass a result as `initial=` to `minimise` or `stationary` to find the stationary point at this value.

    Args:
        branch: The result of `follow`.
        value: The value of its parameter.
    """
    off = branch[branch.attrs["parameter"]].values - float(checked_number("value", value))
    values = {name: each.values for name, each in branch.filter_by_attrs(kind="order parameter").items()}
    found = []
    for at, here in enumerate(off):
        if here == 0 and (at == 0 or off[at - 1] != 0):
            found.append({name: each[at] for name, each in values.items()})
        elif at + 1 < len(off) and here * off[at + 1] < 0:
            weight = here / (here - off[at + 1])
            found.append({name: (1 - weight) * each[at] + weight * each[at + 1] for name, each in values.items()})
    return tuple(found)


def checked_parameter(action: Action, parameter: Expr | str) -> str:
    """Return the name of a numeric parameter that can change."""
    name = getattr(parameter, "name", parameter)
    numbers = [s.name for s in action.parameters if isinstance(s, Symbol) and s not in action.sizes]
    if name not in numbers:
        raise ValueError(f"parameter must be a number among {', '.join(numbers) or 'none'}, got {shown(parameter)}")
    return name
