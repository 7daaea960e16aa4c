"""Branches of stationary points, followed through a parameter and around folds.

At a first-order transition, two minima coexist. Both lie on one branch, which turns back at two folds (spinodals, the
limits of metastability). Between the folds, the branch is a maximum along one direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Array, Bool, Float, Int
from sympy import Expr, Symbol

from ..checks import Count, checked_arguments, checked_number, shown
from ..compilation import jit
from ..progress import Progress
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Heading, Table, Text, verbatim
from .action import Action
from .bound_action import BoundAction, Values, bind, place_of
from .certificate import NEAR, local_model, quadrature_errors
from .problem import Coordinates
from .solution import Solution, place_in_words
from .solve import PositiveNumber

FOLD, _BRANCH_POINT = "fold", "branch point"
# Length of the largest step, in units of the coordinates.
_LARGEST = 0.5
# Length of the first step, as a fraction of the largest.
_FIRST = 0.1
# The branch ends if a step of this fraction of the largest fails.
_SMALLEST = 1e-9
# Maximum number of Newton corrections of a predicted point.
_CORRECTIONS = 12
# Corrections end when the last one is shorter than this, in units of the coordinates.
_CONVERGED = 1e-11
# Reject a step if the total length of its corrections exceeds this fraction of the step. Longer corrections may lead to
# another branch.
_ASTRAY = 0.3
# Reject a step if the step back misses the first tangent by more than this fraction. A step past a pitchfork can end on
# the symmetric branch, whose tangent has nearly the same direction. On an arc of a circle, the step back does not miss.
_ASIDE = 0.03
# Reject a step if the cosine between the tangents at its ends is below this.
STRAIGHT = 0.95
# Lengthen the next step if this cosine is above this value.
_VERY_STRAIGHT = 0.995
# Factor by which the next step is longer.
LONGER = 1.5
# Turns closer to each other than this fraction of the step are the same turn.
_SAME_PLACE = 1e-6
# Stop a branch when a coordinate exceeds this value, next to an edge of its domain. The order parameter is then
# exp(-25) = 1e-11 from the edge, and double precision of the control parameter no longer resolves it.
_EDGE = 25.0
# Stop a branch when a real order parameter exceeds this many units: it grows without bound.
_FAR = 1e8
# Enlarge the unit of a real order parameter when the order parameter exceeds this many units.
_MANY = 8.0
# Number of points of a branch that are described by one call of a compiled function.
_AT_ONCE = 16
# Stop a branch after this many steps in which the parameter does not change.
_STANDING = 3


def free_name(name: str, taken: Collection[str]) -> str:
    """Append underscores to `name` until no symbol of an action has this name."""
    return free_name(f"{name}_", taken) if name in taken else name


class Turn(DisplayMixin, eqx.Module):
    """Point of a branch at which an eigenvalue of the Hessian vanishes.

    - `kind`: "fold" if the branch turns back in the parameter, or "branch point" if another branch crosses. The
      branch also turns back at some branch points.
    - `parameter`: value of the parameter that changes along the branch.
    - `order_parameters`: values of the order parameters, by name.
    """

    kind: str = eqx.field(static=True)
    parameter: Float[Array, ""]
    order_parameters: Mapping[str, Float[Array, "..."]]

    def _view(self) -> Iterator[Block]:
        place = verbatim(place_in_words(self.order_parameters))
        yield Text(f"{self.kind} at {float(self.parameter):.9g}, where {place}")


class SolutionBranch(DisplayMixin, eqx.Module):
    """Stationary points along a branch, in order. `branch[i]` returns the order parameters of a point, for `initial=`.

    - `parameter`: name of the parameter that changes.
    - `parameters` (point,): its values.
    - `order_parameters` (point, ...): values of the order parameters, by name.
    - `action` (point,): values of S.
    - `hessian_eigenvalues` (point, coordinates), `quadrature_error` (point,): as in `Solution`.
    - `turns`: folds and branch points, in order, each with its `kind`, `parameter` and `order_parameters`.
    - `ended`: the reason why the branch stops.
    """

    parameter: str = eqx.field(static=True)
    parameters: Float[Array, " point"]
    order_parameters: Mapping[str, Float[Array, "point ..."]]
    action: Float[Array, " point"]
    hessian_eigenvalues: Float[Array, "point coordinates"]
    quadrature_error: Float[Array, " point"]
    turns: tuple[Turn, ...]
    ended: str = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.parameters)

    def __getitem__(self, at: int) -> dict[str, Float[Array, "..."]]:
        # Indexing is done on the host. With JAX, it would be compiled for each shape.
        return {name: jax.device_put(np.asarray(values)[at]) for name, values in self.order_parameters.items()}

    def __iter__(self) -> Iterator[dict[str, Float[Array, "..."]]]:
        return (self[at] for at in range(len(self)))

    @property
    def index(self) -> Int[np.ndarray, " point"]:
        """Number of negative eigenvalues of the Hessian at each point."""
        return np.sum(np.asarray(self.hessian_eigenvalues) < 0, axis=1)

    def _view(self) -> Iterator[Block]:
        low, high = float(np.min(self.parameters)), float(np.max(self.parameters))
        name = verbatim(self.parameter)
        yield Heading(f"Branch of {len(self)} stationary points for {name} from {low:.6g} to {high:.6g}")
        index = self.index
        # A row per part in which the parameter rises or falls.
        rises = np.diff(self.parameters)
        turned = np.append(rises[:-1] * rises[1:] < 0, False)
        changes = [0, *(np.flatnonzero((np.diff(index) != 0) | turned) + 1).tolist(), len(index)]
        rows = []
        for begin, end in itertools.pairwise(changes):
            values = [f"{float(self.parameters[at]):.6g}" for at in (begin, end - 1)]
            places = [verbatim(place_in_words(self[at])) for at in (begin, end - 1)]
            rows.append((str(int(index[begin])), *(f"{a} to {b}" for a, b in (values, places))))
        yield Table(tuple(rows), ("index", name, "order parameters"))
        if self.turns:
            turns = [
                (turn.kind, f"{float(turn.parameter):.9g}", verbatim(place_in_words(turn.order_parameters)))
                for turn in self.turns
            ]
            yield Table(tuple(turns), ("turn", name, "order parameters"))
        yield Text(f"Ended: {verbatim(self.ended)}.")

    @property
    def folds(self) -> tuple[Turn, ...]:
        """Turns at which the branch turns back."""
        return tuple(turn for turn in self.turns if turn.kind == FOLD)

    def near(self, value: float | int) -> tuple[dict[str, Float[Array, "..."]], ...]:
        """Interpolate the order parameters at a value of the parameter, once for every pass of the branch.

        Pass a result as `initial=` to `minimise` or `stationary` to find the stationary point at this value.
        """
        off = np.asarray(self.parameters) - float(checked_number("value", value))
        found = []
        for at, here in enumerate(off):
            if here == 0:
                found.append(self[at])
            elif at + 1 < len(off) and here * off[at + 1] < 0:
                weight, values = here / (here - off[at + 1]), jax.tree.map(np.asarray, self.order_parameters)
                between = {n: (1 - weight) * v[at] + weight * v[at + 1] for n, v in values.items()}
                found.append(jax.device_put(between))
        return tuple(found)

    def to_xarray(self) -> xr.Dataset:
        """Return the branch as a dataset.

        Every order parameter, `action`, `index` and `hessian_eigenvalue` have the axis `point`. `turn_kind` and
        `turn_parameter` have the axis `turn`. The parameter is a coordinate, under its own name. If an order parameter
        or the parameter has the name of another variable or axis, the other one gets a trailing underscore, such as
        `action_`.
        """
        free = partial(free_name, taken={self.parameter, *self.order_parameters})
        point, turn = free("point"), free("turn")
        variables: dict[str, Any] = {
            name: ((point, *(free(f"{name}_{axis}") for axis in ("row", "column")[: v.ndim - 1])), np.asarray(v))
            for name, v in self.order_parameters.items()
        }
        variables |= {
            free("action"): (point, np.asarray(self.action)),
            free("index"): (point, self.index),
            free("quadrature_error"): (point, np.asarray(self.quadrature_error)),
            free("hessian_eigenvalue"): ((point, free("eigenvalue")), np.asarray(self.hessian_eigenvalues)),
            free("turn_kind"): (turn, np.array([turn.kind for turn in self.turns], dtype=str)),
            free("turn_parameter"): (turn, np.array([float(turn.parameter) for turn in self.turns])),
        }
        coordinates = {self.parameter: (point, np.asarray(self.parameters))}
        return xr.Dataset(variables, coords=coordinates, attrs={"ended": self.ended, "parameter": self.parameter})


class _Place(eqx.Module):
    """Stationary point, its parameter, and the tangent of the branch there. Lengths are in units of the branch.

    - `tangent` (unknowns,): a vector of length one.
    - `residual`: length of the last correction.
    - `led`: total length of all corrections.
    - `order_parameters`: their values, by name.
    - `at_edge` (coordinates,): whether the order parameter of a coordinate is next to an edge where the branch ends.
    """

    coordinates: Coordinates
    parameter: Float[Array, ""]
    tangent: Float[Array, " unknowns"]
    curvatures: Float[Array, " coordinates"]
    residual: Float[Array, ""]
    led: Float[Array, ""]
    order_parameters: Mapping[str, Float[Array, "..."]]
    at_edge: Bool[Array, " coordinates"]

    @property
    def leads(self) -> float:
        """Change of the parameter along the tangent."""
        return float(np.asarray(self.tangent)[-1])

    def ends(self, length: float) -> bool:
        """Return whether the place is a valid end of a step of this length."""
        return float(self.residual) <= NEAR and float(self.led) <= _ASTRAY * length


class _Branch(eqx.Module):
    """Stationary points of an action as a curve in coordinates and one parameter, in units of the problem."""

    bound: BoundAction
    units: Float[Array, " unknowns"]
    name: str = eqx.field(static=True)

    def at(self, parameter: Float[Array, ""]) -> BoundAction:
        return replace(self.bound, parameters={**self.bound.parameters, self.name: parameter})

    def ahead(self, place: _Place, length: float) -> _Place:
        """Find the next point by a step of this length along the tangent, and corrections orthogonal to it."""
        # Steps are computed on the host. With JAX, each operation on them would be compiled.
        step = jax.device_put(length * np.asarray(place.tangent))
        return _corrected(self, place.coordinates, place.parameter, place.tangent, step)

    def between(self, start: _Place, end: _Place) -> np.ndarray:
        """Return the step in units of the branch. To first order, steps in all domains are coordinate differences."""
        first, last = (np.append(np.asarray(each.coordinates), each.parameter) for each in (start, end))
        return (last - first) / np.asarray(self.units)

    def text(self, place: _Place) -> str:
        values = place.order_parameters.items()
        numbers = [f"{name} = {float(value):.4g}" for name, value in values if np.ndim(value) == 0]
        return ", ".join([f"{self.name} = {float(place.parameter):.6g}", *numbers[:4]])


@partial(jit, of_numbers=lambda branch, *others: branch.bound.of.is_of_numbers)
def _corrected(branch: _Branch, coordinates: Coordinates, parameter, across, step) -> _Place:
    """Find the stationary point near a predicted one by Newton's method with corrections orthogonal to `across`.

    The prediction is a `step` away from `coordinates` and `parameter`, in units of the branch.
    """
    bound, none = branch.bound, jnp.zeros_like(branch.units)
    ahead = step * branch.units

    def slope(at, by, value):
        """Return the gradient after a step in the unknowns. The entry of a fixed coordinate is the step itself."""
        moved = by * branch.units
        found, _ = branch.at(value + moved[-1]).slopes(at, moved[:-1])
        return found * branch.units[:-1] + (1 - bound.free) * by[:-1]

    def matrix(at, value):
        return jnp.concatenate([jax.jacfwd(lambda by: slope(at, by, value))(none), across[None]])

    def correct(state):
        at, value, _, led, count = state
        here = slope(at, none, value)
        change = jnp.linalg.solve(matrix(at, value), jnp.append(-here, 0.0))
        # The matrix is singular at a crossing of branches. A point that already solves the equations is kept.
        change = jnp.where(jnp.all(jnp.isfinite(change)) & jnp.any(here != 0), change, 0.0)
        length = jnp.linalg.norm(change)
        at = bound.moved(at, change[:-1] * branch.units[:-1])
        return at, value + change[-1] * branch.units[-1], length, led + length, count + 1

    def unsettled(state):
        *_, length, _, count = state
        return (length > _CONVERGED) & (count < _CORRECTIONS)

    begin = bound.moved(coordinates, ahead[:-1]), jnp.asarray(parameter) + ahead[-1]
    start = (*begin, jnp.array(1.0), jnp.array(0.0), jnp.array(0))
    at, value, residual, led, _ = jax.lax.while_loop(unsettled, correct, start)
    tangent = jnp.linalg.solve(matrix(at, value), none.at[-1].set(1.0))
    tangent = jnp.where(jnp.all(jnp.isfinite(tangent)), tangent / jnp.linalg.norm(tangent), across)
    here = branch.at(value)
    curvatures, at_edge = local_model(here, at).model.curvatures / here.scale, here.edges(at, _EDGE) & (here.free > 0)
    return _Place(at, value, tangent, curvatures, residual, led, here.values(at), at_edge)


@partial(jit, of_numbers=lambda branch, *others: branch.bound.of.is_of_numbers)
def _described(branch: _Branch, points: Float[Array, "point coordinates"], parameters: Float[Array, " point"]):
    """Return order parameters, actions and quadrature errors at points of the branch."""

    def at(inputs):
        coordinates, parameter = inputs
        bound = branch.at(parameter)
        error, _ = quadrature_errors(bound, local_model(bound, coordinates), coordinates)
        return bound.values_on_edges(coordinates), bound.action(coordinates), error

    return jax.lax.map(at, (points, parameters))


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
) -> SolutionBranch:
    """Follow the branch of stationary points through `solution` as one parameter changes, including around folds.

    The method is pseudo-arclength continuation. At a pitchfork, a branch of broken symmetry turns back to its mirror
    image, and the turn is reported as a branch point. The branch ends if the parameter leaves `bounds`, the branch
    closes or reaches the edge of a domain, or no step succeeds. Averages use the composite rule if the action's own
    quadrature leaves a point unresolved.

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
        The points in order. `ended` gives the reason why the branch stops.

    Raises:
        ValueError: If `solution` did not converge, belongs to another action, or is itself a fold or a branch point.

    Example:
        >>> import theorykit
        >>> from sympy import symbols
        >>> from theorykit import saddle
        >>> theorykit.enable_float64()
        >>> m, h = symbols("m h", real=True)
        >>> action = saddle.Action(m**4 / 4 - m**2 / 2 - h * m, {m: saddle.Real()}, [h])
        >>> up = saddle.minimise(action, {h: 0.1}, initial={m: 1.0})
        >>> branch = saddle.follow(action, {h: 0.1}, up, h, (-0.5, 0.5), direction=-1, progress=False)
        >>> [round(float(fold.parameter), 4) for fold in branch.folds]  # 2 / 27**0.5 = 0.3849
        [-0.3849, 0.3849]
    """
    if solution.of.refined != action.refined:
        raise ValueError("solution belongs to another action; pass that action, or solve this one first")
    if np.ndim(solution.converged) or not solution.converged:
        raise ValueError(f"solution is not a stationary point, and no branch starts from it: {solution.diagnosis}")
    name, (low, high) = checked_parameter(action, parameter), checked_bounds("bounds", bounds)
    bound = bind(action, values, solution.order_parameters)
    if direction not in (-1, 1):
        raise ValueError(f"direction must be 1 or -1, got {direction}")
    here = float(bound.parameters[name])
    if not low <= here <= high:
        raise ValueError(f"the solution is at {name} = {here:g}, which is not within the bounds {low:g} and {high:g}")
    largest = (high - low) / 20 if largest_step is None else float(largest_step)
    options = (solution, name, direction, largest, (low, high), most_points)
    cost = f"{name} from {low:g} to {high:g}, at most {most_points:,} points"
    with Progress("branch", unit="point", shown=progress, cost=cost) as report:
        found = _followed(bound, *options, report)
        if (
            bound.of.fixed_averages
            and action.can_refine
            and not np.all(found.quadrature_error <= float(solution.stats["tolerance"]))
        ):
            return _followed(replace(bound, of=action.refined), *options, report)
    return found


def checked_parameter(action: Action, parameter: Expr | str) -> str:
    """Return the name of a numeric parameter that can change."""
    name = getattr(parameter, "name", parameter)
    numbers = [s.name for s in action.parameters if isinstance(s, Symbol) and s not in action.sizes]
    if name not in numbers:
        raise ValueError(f"parameter must be a number among {', '.join(numbers) or 'none'}, got {shown(parameter)}")
    return name


def checked_bounds(name: str, bounds: Sequence[float | int]) -> tuple[float, float]:
    """Return the lowest and highest value of a parameter."""
    if len(bounds) != 2 or not bounds[0] < bounds[1]:
        raise ValueError(f"{name} must be two values of the parameter, the lower first; got {bounds}")
    return float(checked_number(name, bounds[0])), float(checked_number(name, bounds[1]))


def follow_both_ways(
    action: Action, values: Values, solution: Solution, parameter: str, bounds: tuple[float, float], step=None
) -> tuple[SolutionBranch, int]:
    """Return the branch on both sides of a solution as one, and the number of the point at the solution."""
    ahead, back = (
        follow(action, values, solution, parameter, bounds, direction=direction, largest_step=step, progress=False)
        for direction in (1, -1)
    )
    turns, ended = (*back.turns[::-1], *ahead.turns), f"{back.ended}; {ahead.ended}"
    back, ahead = (replace(each, turns=(), ended="") for each in (back, ahead))
    whole = jax.tree.map(lambda *of: jax.device_put(np.concatenate([np.asarray(of[0])[:0:-1], of[1]])), back, ahead)
    return replace(whole, turns=turns, ended=ended), len(back) - 1


def _followed(bound: BoundAction, solution, name, direction, largest, bounds, most_points, report) -> SolutionBranch:
    at_edge = np.asarray(solution.stats["at_edge"])
    start, _ = place_of(bound, solution.order_parameters)
    start = jax.device_put(np.where(at_edge, solution.stats["coordinates"], start))
    bound = replace(bound, free=jax.device_put(np.where(at_edge, 0.0, 1.0)))
    here, none = bound.parameters[name], np.zeros(len(start) + 1)
    along = np.append(none[1:], float(direction))
    # With this unit of the parameter, its largest step has length _LARGEST. The unit of an unconstrained number is its
    # size, or its change over the range if that is larger, so that numbers need not be of order one. The steps of other
    # coordinates are relative changes, with unit one.
    units = np.append(np.ones(len(start)), largest / _LARGEST)
    branch = _Branch(bound, jax.device_put(units), name)
    slope = np.asarray(_corrected(branch, start, here, along, none).tangent)
    moves = np.abs(slope[:-1] / np.where(slope[-1] == 0, np.inf, slope[-1])) * (bounds[1] - bounds[0]) / units[-1]
    real = np.maximum(np.abs(start), np.where(np.isfinite(moves), moves, 0.0))
    units = np.append(np.where(bound.is_real & (real > 0), real, 1.0), units[-1])
    branch, far = replace(branch, units=jax.device_put(units)), np.where(bound.is_real, _FAR * units[:-1], np.inf)
    first = _corrected(branch, start, here, along, none)
    if not float(first.residual) <= NEAR:
        raise ValueError(
            f"no branch starts from the solution as {name} changes: the correction is {float(first.residual):.3g}. "
            "The solution may itself be a fold or a branch point; start from a solution at a slightly different value"
        )
    places, turns, length = [first], [], _FIRST * _LARGEST
    ended = _end_at(branch, places, bounds, far)
    while ended is None:
        place = places[-1]
        if len(places) >= most_points:
            ended = f"most_points={most_points} points were found, the last at {branch.text(place)}"
            break
        ahead, length = _next(branch, place, length, bounds)
        if ahead is None:
            sizes = np.abs(np.asarray(place.curvatures))
            small = int(np.sum(sizes <= 1e-3 * np.max(sizes)))
            why = f"{small} curvatures vanish near there, so that branches may meet" if small else "S may not be smooth"
            ended = f"no stationary point was found beyond {branch.text(place)}: {why}"
            break
        turns += _turns(branch, place, ahead)
        # Check whether the branch passes its first point on this step.
        step, to_first = branch.between(place, ahead), branch.between(place, places[0])
        if len(places) > 2 and passes(step, to_first) and np.dot(ahead.tangent, places[0].tangent) > STRAIGHT:
            places, ended = [*places, places[0]], "the branch closes on its start"
            break
        places.append(ahead)
        report.update(note=branch.text(ahead))
        ended = _end_at(branch, places, bounds, far)
        # Enlarge the units of order parameters that have grown, so that steps grow too.
        sizes, units = np.append(np.abs(np.asarray(ahead.coordinates)), 0.0), np.asarray(branch.units)
        is_large = np.append(bound.is_real, False) & (sizes > _MANY * units)
        if is_large.any():
            larger = np.where(is_large, sizes, units)
            branch = replace(branch, units=jax.device_put(larger))
            for at in (0, -1):
                tangent = np.asarray(places[at].tangent) * units / larger
                places[at] = replace(places[at], tangent=jax.device_put(tangent / np.linalg.norm(tangent)))
    # One compiled function describes branches of any length.
    found = jax.tree.map(lambda *of: np.stack(of), *places, *(-len(places) % _AT_ONCE) * places[-1:])
    described = [
        _described(branch, found.coordinates[at : at + _AT_ONCE], found.parameter[at : at + _AT_ONCE])
        for at in range(0, len(places), _AT_ONCE)
    ]
    whole = *jax.tree.map(lambda *of: np.concatenate(of), *described), found.curvatures, found.parameter
    whole = jax.tree.map(lambda of: jax.device_put(of[: len(places)]), whole)
    order_parameters, actions, errors, curvatures, parameters = whole
    return SolutionBranch(name, parameters, order_parameters, actions, curvatures, errors, tuple(turns), ended)


def passes(step: Array | np.ndarray, to_first: Array | np.ndarray) -> bool:
    """Return whether a step passes the first point of a curve, which is at `to_first` from its begin."""
    share = float(step @ to_first) / float(step @ step)
    return 0 < share <= 1 and bool(np.linalg.norm(to_first - share * step) < 0.1 * np.linalg.norm(step))


def _next(branch: _Branch, place: _Place, length: float, bounds: tuple[float, float]) -> tuple[_Place | None, float]:
    """Return the next point, or None if no step succeeds, and the length of the step to try after it."""
    while length > _SMALLEST * _LARGEST:
        ahead = branch.ahead(place, length)
        cosine, value = np.dot(place.tangent, ahead.tangent), float(ahead.parameter)
        if good := ahead.ends(length) and cosine > STRAIGHT:
            # A step back that ends beside the tangent started on another branch, which crosses the branch of `place`.
            tangent, miss = np.asarray(place.tangent), branch.between(place, branch.ahead(ahead, -length))
            good = np.linalg.norm(miss - (miss @ tangent) * tangent) <= _ASIDE * length
        if good and not bounds[0] <= value <= bounds[1]:
            # Stop at the bound that the step crosses, unless the branch turns back before it.
            bound = bounds[int(value > bounds[1])]

            def beyond(share: float, length=length, bound=bound) -> float:
                return float(branch.ahead(place, share * length).parameter) - bound

            if good := beyond(0.0) * beyond(1.0) <= 0:
                near = branch.ahead(place, scipy.optimize.brentq(beyond, 0.0, 1.0, xtol=1e-12) * length)
                none = np.zeros(len(branch.units))
                across = np.append(none[1:], 1.0 if near.leads > 0 else -1.0)
                ahead = _corrected(branch, near.coordinates, bound, across, none)
                good = ahead.ends(length)
        if good:
            return ahead, min(_LARGEST, LONGER * length) if cosine > _VERY_STRAIGHT else length
        length /= 2
    return None, length


def _turns(branch: _Branch, start: _Place, end: _Place) -> list[Turn]:
    """Find folds, where the tangent turns back, and branch points, where a curvature changes sign, on a step."""
    length, places = float(np.dot(start.tangent, branch.between(start, end))), {0.0: start, 1.0: end}

    def place(share: float) -> _Place:
        if share not in places:
            places[share] = branch.ahead(start, share * length)
        return places[share]

    def root(quantity) -> float | None:
        values = quantity(start), quantity(end)
        if not np.all(np.isfinite(values)) or values[0] * values[1] >= 0:
            return None
        return scipy.optimize.brentq(lambda share: quantity(place(share)), 0.0, 1.0, xtol=1e-12)

    at_fold = root(lambda at: at.leads)
    # A fold changes the index. The branch also turns back at a pitchfork, with the same index on both sides.
    same_index = np.sum(np.asarray(start.curvatures) < 0) == np.sum(np.asarray(end.curvatures) < 0)
    found = [] if at_fold is None else [(at_fold, _BRANCH_POINT if same_index else FOLD)]
    for number in range(len(start.curvatures)):
        crosses = root(lambda at, number=number: float(np.asarray(at.curvatures)[number]))
        if crosses is not None and all(abs(crosses - at) > _SAME_PLACE for at, _ in found):
            found.append((crosses, _BRANCH_POINT))
    return [Turn(kind, place(share).parameter, place(share).order_parameters) for share, kind in sorted(found)]


def _end_at(branch: _Branch, places: list[_Place], bounds: tuple[float, float], far: np.ndarray) -> str | None:
    """Return the reason to stop at the last of these points, or None to continue."""
    place, bound, name = places[-1], branch.bound, branch.name
    value, leads = float(place.parameter), place.leads
    if (value >= bounds[1] and leads > 0) or (value <= bounds[0] and leads < 0):
        return f"{name} reached {value:g}, {'the upper' if leads > 0 else 'the lower'} bound"
    at_edge = np.asarray(place.at_edge)
    if at_edge.any():
        return f"{bound.owners[int(np.argmax(at_edge))]} reaches the edge of its domain at {branch.text(place)}"
    is_far = np.abs(np.asarray(place.coordinates)) > far
    if is_far.any():
        return f"{bound.owners[int(np.argmax(is_far))]} grows without bound at {branch.text(place)}"
    if len(places) <= _STANDING:
        return None
    before = places[-1 - _STANDING]
    changes = [abs(float(each.parameter) - float(before.parameter)) for each in places[-_STANDING:]]
    if max(changes) > np.finfo(float).eps * np.asarray(branch.units)[-1]:
        return None
    moved = np.abs(np.subtract(place.coordinates, before.coordinates)) / np.asarray(branch.units)[:-1]
    return f"{bound.owners[int(np.argmax(moved))]} keeps changing while {name} is constant, at {branch.text(place)}"
