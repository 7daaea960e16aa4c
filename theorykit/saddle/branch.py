"""Branches of stationary points, followed through a parameter and around folds.

Where a transition is of first order, two minima coexist; they are ends of one branch, which turns back twice at folds
(limits of metastability, spinodals) and is a maximum along one direction between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int
from scipy.optimize import brentq
from sympy import Expr, Symbol

from ..checks import checked_instance, checked_number, checked_sequence, checked_whole_number, shown
from ..compilation import jit
from .action import Action
from .bound_action import BoundAction, Values, bind
from .problem import Coordinates
from .solution import Solution
from .verdict import NEAR, local_model, quadrature_error

_FOLD, _BRANCH_POINT = "fold", "branch point"
# largest change of a coordinate in a step, in its unit; of the first step, that of the largest; and when to give up
_LARGEST, _FIRST, _SMALLEST = 0.5, 0.1, 1e-9
# corrections of a predicted point: how many, from which on it has converged, and how far it may be led, of the step
_CORRECTIONS, _CONVERGED, _ASTRAY = 12, 1e-11, 0.3
# least cosine between tangents at both ends of a step, and that from which on the next is longer by this factor
_STRAIGHT, _VERY_STRAIGHT, _LONGER = 0.95, 0.995, 1.5
# turns located to this part of a step are the same
_SAME_PLACE = 1e-6
# coordinates next to an edge of a domain, where a branch ends: an order parameter of 1e-11, which a parameter that is
# known to 1e-16 hardly determines
_EDGE = 25.0
# how many units a real order parameter may grow to
_FAR = 1e8
# units from which on they are larger ones
_MANY = 8.0
# steps in which the parameter does not change, after which a branch runs off
_STANDING = 3


class Turn(eqx.Module):
    """Where an eigenvalue of the Hessian vanishes along a branch.

    `kind` is "fold", where the branch turns back in the parameter, or "branch point", where another branch crosses.
    """

    kind: str = eqx.field(static=True)
    parameter: Float[Array, ""]
    order_parameters: Mapping[str, Float[Array, "..."]]


class SolutionBranch(eqx.Module):
    """Stationary points along a branch, in order; `branch[i]` are the order parameters of one, for `initial=`.

    - `parameters` (point,): values of `parameter`. `order_parameters`: by name, the first axis `point`.
    - `action` (point,).
    - `hessian_eigenvalues` (point, coordinates): increasing, as `Solution` has them.
    - `quadrature_error` (point,): by how much finer quadrature would move the order parameters, as `Solution` has it.
    - `turns`: folds and branch points, in order. `ended`: why it goes no further.
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
        return {name: values[at] for name, values in self.order_parameters.items()}

    def __iter__(self) -> Iterator[dict[str, Float[Array, "..."]]]:
        return (self[at] for at in range(len(self)))

    @property
    def index(self) -> Int[np.ndarray, " point"]:
        """How many eigenvalues of the Hessian are negative at each point."""
        return np.sum(np.asarray(self.hessian_eigenvalues) < 0, axis=1)

    @property
    def folds(self) -> tuple[Turn, ...]:
        """The turns at which the branch turns back."""
        return tuple(turn for turn in self.turns if turn.kind == _FOLD)

    def near(self, value: float | int) -> tuple[dict[str, Float[Array, "..."]], ...]:
        """Where the branch passes a value of its parameter, once for each pass, by linear interpolation.

        Good starts, `initial=`, for `minimise` and `stationary` at this value.
        """
        value = float(checked_number("value", value))
        off = np.asarray(self.parameters) - value
        passes = [at for at in range(len(off) - 1) if off[at] * off[at + 1] < 0 or off[at] == 0]
        if off[-1] == 0:
            passes.append(len(off) - 1)
        return tuple(self._between(at, off) for at in passes)

    def _between(self, at: int, off: np.ndarray) -> dict[str, Float[Array, "..."]]:
        if off[at] == 0:
            return self[at]
        weight = off[at] / (off[at] - off[at + 1])
        return {name: (1 - weight) * v[at] + weight * v[at + 1] for name, v in self.order_parameters.items()}

    def to_xarray(self) -> xr.Dataset:
        """The branch with its axes named: every order parameter, `action`, `index` and `hessian_eigenvalue` by point.

        `turn_kind` and `turn_parameter` are by turn; the values of the parameter are the coordinate of its name. Names
        of variables and axes that are also yours, of an order parameter or the parameter, end in an underscore:
        `action_`.
        """
        taken = {self.parameter, *self.order_parameters}

        def free(name: str) -> str:
            return free(f"{name}_") if name in taken else name

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
    """A stationary point with its parameter, and the tangent of the branch there, in units in which its length is one.

    `residual`: the correction that was still made, in the same units.
    """

    coordinates: Coordinates
    parameter: Float[Array, ""]
    tangent: Float[Array, " unknowns"]
    curvatures: Float[Array, " coordinates"]
    residual: Float[Array, ""]
    led: Float[Array, ""]

    @property
    def leads(self) -> float:
        """The tangent's part along the parameter."""
        return float(self.tangent[-1])


class _Branch(eqx.Module):
    """Stationary points of an action as a curve in coordinates and one parameter, in units of the problem."""

    bound: BoundAction
    units: Float[Array, " unknowns"]
    first_units: Float[Array, " unknowns"]
    name: str = eqx.field(static=True)

    def at(self, parameter: Float[Array, ""]) -> BoundAction:
        """The action at a value of the parameter."""
        return eqx.tree_at(lambda bound: bound.parameters[self.name], self.bound, parameter)

    def _slope(self, coordinates: Coordinates, step: Float[Array, " unknowns"], parameter) -> Coordinates:
        """The gradient after a step in the unknowns; of a coordinate that is held, the step itself."""
        by = step * self.units
        slope = self.at(parameter + by[-1]).slope_after(coordinates, by[:-1])
        return slope * self.units[:-1] + (1 - self.bound.free) * step[:-1]

    def corrected(self, coordinates: Coordinates, parameter, across: Float[Array, " unknowns"]) -> _Place:
        """The stationary point near a predicted one, by Newton's method with corrections orthogonal to `across`."""
        none = jnp.zeros_like(self.units)

        def matrix(at, value):
            return jnp.concatenate([jax.jacfwd(lambda step: self._slope(at, step, value))(none), across[None]])

        def correct(state):
            at, value, _, led, count = state
            slope = self._slope(at, none, value)
            change = jnp.linalg.solve(matrix(at, value), jnp.append(-slope, 0.0))
            # where branches cross the matrix is singular, and a point that solves the equations is left as it is
            change = jnp.where(jnp.all(jnp.isfinite(change)) & jnp.any(slope != 0), change, 0.0)
            at = self.bound.moved(at, change[:-1] * self.units[:-1])
            length = jnp.linalg.norm(change)
            return at, value + change[-1] * self.units[-1], length, led + length, count + 1

        def unsettled(state):
            *_, length, _, count = state
            return (length > _CONVERGED) & (count < _CORRECTIONS)

        start = (coordinates, jnp.asarray(parameter), jnp.array(1.0), jnp.array(0.0), jnp.array(0))
        at, value, residual, led, _ = jax.lax.while_loop(unsettled, correct, start)
        ahead = jnp.linalg.solve(matrix(at, value), none.at[-1].set(1.0))
        tangent = jnp.where(jnp.all(jnp.isfinite(ahead)), ahead / jnp.linalg.norm(ahead), across)
        bound = self.at(value)
        curvatures = local_model(bound, at).model.curvatures / bound.scale
        return _Place(at, value, tangent, curvatures, residual, led)

    def grown(self, place: _Place) -> "_Branch":
        """With larger units for order parameters that have become many of them, so that steps grow along."""
        sizes, units = np.append(np.abs(place.coordinates), 0.0), np.asarray(self.units)
        is_large = np.append(self.bound.layout.is_real, False) & (sizes > _MANY * units)
        if not is_large.any():
            return self
        return eqx.tree_at(lambda b: b.units, self, jnp.where(is_large, sizes, units))

    def measured(self, place: _Place, units: Float[Array, " unknowns"]) -> _Place:
        """A place whose tangent was in other units."""
        tangent = place.tangent * units / self.units
        return eqx.tree_at(lambda p: p.tangent, place, tangent / jnp.linalg.norm(tangent))


@jit
def _corrected(branch: _Branch, coordinates: Coordinates, parameter, across) -> _Place:
    return branch.corrected(coordinates, parameter, across)


@jit
def _ahead(branch: _Branch, place: _Place, length) -> _Place:
    """The next place, a step of this length along the tangent and corrections across it."""
    step = length * place.tangent * branch.units
    coordinates = branch.bound.moved(place.coordinates, step[:-1])
    return branch.corrected(coordinates, place.parameter + step[-1], place.tangent)


@jit
def _described(branch: _Branch, points: Float[Array, "point coordinates"], parameters: Float[Array, " point"]):
    """Order parameters, actions and quadrature errors at points of the branch."""

    def at(inputs):
        coordinates, parameter = inputs
        bound = branch.at(parameter)
        local = local_model(bound, coordinates)
        values = bound.layout.at_edges(bound.layout.values(coordinates), coordinates, bound.free)
        return values, bound.action(coordinates), quadrature_error(bound, local.model, local.slope, coordinates)

    return jax.lax.map(at, (points, parameters))


class NoPointError(RuntimeError):
    """A step along a branch led to no stationary point of it."""


def follow(
    action: Action,
    values: Values,
    solution: Solution,
    parameter: Expr | str,
    bounds: Sequence[float | int],
    *,
    direction: int = 1,
    largest_step: float | int | None = None,
    most_points: int = 1000,
) -> SolutionBranch:
    """Follow the branch of stationary points through `solution` as one parameter changes, around folds too.

    It starts towards larger values with a `direction` of 1, towards smaller with -1, and ends where the parameter
    leaves `bounds`, where the branch closes or reaches the edge of a domain, after `most_points`, or where no step
    succeeds: `SolutionBranch.ended` says which. Averages are taken by adaptive quadrature if that of the action leaves
    a point unknown.

    Args:
        action: the action that was solved; the number of nodes of its averages may be another one.
        values: the parameters that `solution` was found at.
        solution: a converged solution, also one on an edge of a domain, which is then held there.
        parameter: the number among `values` that changes.
        bounds: its least and greatest value.
        direction: 1 or -1.
        largest_step: largest change of the parameter in a step, by default a 20th of the range. Two folds within a
            step are missed.
        most_points: how many points there may be.

    Raises:
        ValueError: for a solution that did not converge, or is one of another action.
    """
    name, bound = _checked(action, values, solution, parameter)
    low, high, largest = _checked_bounds(bounds, largest_step)
    checked_whole_number("most_points", most_points, least=1)
    if checked_whole_number("direction", direction) not in (-1, 1):
        raise ValueError(f"direction must be 1 or -1, got {direction}")
    here = float(bound.parameters[name])
    if not low <= here <= high:
        raise ValueError(f"the solution is at {name} = {here:g}, which is not within the bounds {low:g} and {high:g}")
    limits = _Limits(low, high, most_points)
    found = _followed(bound, solution, name, direction, largest, limits)
    if bound.of.has_averages and not np.all(found.quadrature_error <= float(solution.stats["tolerance"])):
        return _followed(bound.with_action(action.refined), solution, name, direction, largest, limits)
    return found


class _Limits(NamedTuple):
    low: float
    high: float
    most_points: int


def _followed(bound: BoundAction, solution: Solution, name: str, direction: int, largest: float, limits: _Limits):
    branch, first = _started(bound, solution, name, direction, largest, limits)
    places, turns, ended = _walk(branch, first, limits)
    points = jnp.stack([place.coordinates for place in places])
    parameters = jnp.stack([place.parameter for place in places])
    order_parameters, actions, errors = _described(branch, points, parameters)
    curvatures = jnp.stack([place.curvatures for place in places])
    return SolutionBranch(name, parameters, order_parameters, actions, curvatures, errors, turns, ended)


def _started(bound: BoundAction, solution: Solution, name: str, direction: int, largest: float, limits: _Limits):
    """The branch in units of the problem, and its first place.

    The unit of the parameter makes the largest step one of `_LARGEST`. Numbers of any sign are measured by their size
    and by how far they move over the range, so that neither has to be of order one; other coordinates are relative.
    """
    on_edge, here = solution.stats["coordinates"], bound.parameters[name]
    start = bound.layout.coordinates(solution.order_parameters)
    start = jnp.where(solution.stats["at_edge"], on_edge, start)
    bound = eqx.tree_at(lambda b: b.free, bound, jnp.where(solution.stats["at_edge"], 0.0, 1.0))
    size, along = len(start), jnp.zeros(len(start) + 1).at[-1].set(float(direction))
    units = jnp.append(jnp.ones(size), largest / _LARGEST)
    slope = _corrected(_Branch(bound, units, units, name), start, here, along).tangent
    moves = jnp.abs(slope[:-1] / jnp.where(slope[-1] == 0, jnp.inf, slope[-1])) * (limits.high - limits.low) / units[-1]
    real = jnp.maximum(jnp.abs(start), jnp.where(jnp.isfinite(moves), moves, 0.0))
    own = jnp.where(bound.layout.is_real & (real > 0), real, 1.0)
    units = jnp.append(own, units[-1])
    branch = _Branch(bound, units, units, name)
    first = _corrected(branch, start, here, along)
    if not first.residual <= NEAR:
        raise ValueError(
            f"the solution is no point that a branch starts from, as {name} changes: the correction is "
            f"{float(first.residual):.3g}. It may be at a fold or a branch point itself; start a little beside it"
        )
    return branch, first


def _walk(branch: _Branch, first: _Place, limits: _Limits) -> tuple[list[_Place], tuple[Turn, ...], str]:
    places, turns, length = [first], [], _FIRST * _LARGEST
    ended = _at_end(branch, first, limits)
    while ended is None:
        if len(places) >= limits.most_points:
            ended = f"most_points={limits.most_points} points were found, the last at {_text(branch, places[-1])}"
            break
        try:
            place, length = _stride(branch, places[-1], length, limits)
        except NoPointError as error:
            ended = str(error)
            break
        turns += _turns(branch, places[-1], place)
        closes = len(places) > 2 and _passes(branch, places[-1], place, first)
        places.append(first if closes else place)
        units, branch = branch.units, branch.grown(place)
        if branch.units is not units:
            first, places[-1] = (branch.measured(each, units) for each in (first, places[-1]))
        ended = "the branch closes on its start" if closes else _at_end(branch, place, limits) or _still(branch, places)
    return places, tuple(turns), ended


def _stride(branch: _Branch, place: _Place, length: float, limits: _Limits) -> tuple[_Place, float]:
    """The next place, and the length of the step to try after it."""
    while length > _SMALLEST * _LARGEST:
        ahead = _ahead(branch, place, jnp.asarray(length))
        cosine = float(place.tangent @ ahead.tangent)
        good = float(ahead.residual) <= NEAR and float(ahead.led) <= _ASTRAY * length and cosine > _STRAIGHT
        if good and not limits.low <= float(ahead.parameter) <= limits.high:
            landed = _landed(branch, place, ahead, length, limits)
            good, ahead = landed is not None, landed if landed is not None else ahead
        if good:
            return ahead, min(_LARGEST, _LONGER * length) if cosine > _VERY_STRAIGHT else length
        length /= 2
    raise NoPointError(f"no stationary point was found beyond {_text(branch, place)}: {_why_lost(branch, place)}")


def _why_lost(branch: _Branch, place: _Place) -> str:
    sizes = np.abs(np.asarray(place.curvatures))
    small = int(np.sum(sizes <= 1e-3 * np.max(sizes)))
    if small > 1:
        return f"{small} curvatures vanish together near there, so that several branches may meet"
    if small == 1:
        return "a curvature vanishes near there, so that another branch may cross"
    return "the action may not be smooth, or not be defined, on the other side"


def _landed(branch: _Branch, place: _Place, ahead: _Place, length: float, limits: _Limits) -> _Place | None:
    """The place on the bound that a step crosses; None if the branch turns back before it."""
    bound = limits.high if float(ahead.parameter) > limits.high else limits.low
    try:
        share = brentq(
            lambda share: float(_ahead(branch, place, jnp.asarray(share * length)).parameter) - bound, 0, 1, xtol=1e-12
        )
    except ValueError:
        return None
    near = _ahead(branch, place, jnp.asarray(share * length))
    across = jnp.zeros_like(branch.units).at[-1].set(1.0 if near.leads > 0 else -1.0)
    at_bound = _corrected(branch, near.coordinates, jnp.asarray(bound), across)
    return at_bound if float(at_bound.residual) <= NEAR and float(at_bound.led) <= _ASTRAY * length else None


def _turns(branch: _Branch, start: _Place, end: _Place) -> list[Turn]:
    """Folds and branch points on a step: where the tangent turns back, or a curvature changes its sign."""
    length = float(start.tangent @ _between(branch, start, end))
    places = {0.0: start, 1.0: end}

    def place(share: float) -> _Place:
        if share not in places:
            places[share] = _ahead(branch, start, jnp.asarray(share * length))
        return places[share]

    def root(quantity) -> float | None:
        values = quantity(start), quantity(end)
        if not np.all(np.isfinite(values)) or values[0] * values[1] >= 0:
            return None
        return brentq(lambda share: quantity(place(share)), 0.0, 1.0, xtol=1e-12)

    at_fold = root(lambda at: at.leads)
    found = [] if at_fold is None else [(at_fold, _FOLD)]
    for number in range(len(start.curvatures)):
        crosses = root(lambda at, number=number: float(at.curvatures[number]))
        if crosses is not None and all(abs(crosses - at) > _SAME_PLACE for at, _ in found):
            found.append((crosses, _BRANCH_POINT))
    layout = branch.bound.layout
    return [
        Turn(kind, place(share).parameter, layout.values(place(share).coordinates)) for share, kind in sorted(found)
    ]


def _between(branch: _Branch, start: _Place, end: _Place) -> Array:
    """From one place to another, in units: the steps of all domains are differences of coordinates to first order."""
    return jnp.append(end.coordinates - start.coordinates, end.parameter - start.parameter) / branch.units


def _passes(branch: _Branch, start: _Place, end: _Place, first: _Place) -> bool:
    """Whether the branch passes its first place on a step."""
    along, to_first = _between(branch, start, end), _between(branch, start, first)
    length = float(jnp.linalg.norm(along))
    share = float(along @ to_first) / length**2
    beside = float(jnp.linalg.norm(to_first - share * along))
    return 0 < share <= 1 and beside < 0.1 * length and float(end.tangent @ first.tangent) > _STRAIGHT


def _at_end(branch: _Branch, place: _Place, limits: _Limits) -> str | None:
    """Why a branch is not to be followed beyond a place, or None."""
    value, name, layout = float(place.parameter), branch.name, branch.bound.layout
    if (value >= limits.high and place.leads > 0) or (value <= limits.low and place.leads < 0):
        return f"{name} reached {value:g}, which is {'the upper' if place.leads > 0 else 'the lower'} one of bounds"
    free = np.asarray(branch.bound.free) > 0
    edge = np.asarray(layout.edges(place.coordinates, _EDGE)) & free
    if edge.any():
        owner = layout.owners[int(np.argmax(edge))]
        return f"{owner} reaches the edge of its domain at {_text(branch, place)}"
    far = np.asarray(layout.is_real) & (np.abs(place.coordinates) > _FAR * np.asarray(branch.first_units[:-1]))
    if far.any():
        return f"{layout.owners[int(np.argmax(far))]} grows without bound at {_text(branch, place)}"
    return None


def _still(branch: _Branch, places: list[_Place]) -> str | None:
    """Why a branch is not to be followed on which the parameter no longer changes, or None."""
    if len(places) <= _STANDING:
        return None
    last, before = places[-1], places[-1 - _STANDING]
    changes = [abs(float(place.parameter - before.parameter)) for place in places[-_STANDING:]]
    if max(changes) > np.finfo(float).eps * float(branch.units[-1]):
        return None
    moved = np.abs(last.coordinates - before.coordinates) / np.asarray(branch.units[:-1])
    owner = branch.bound.layout.owners[int(np.argmax(moved))]
    return f"{owner} moves on while {branch.name} stays where it is, at {_text(branch, last)}"


def _text(branch: _Branch, place: _Place) -> str:
    values = branch.bound.layout.values(place.coordinates)
    numbers = [f"{name} = {float(value):.4g}" for name, value in values.items() if np.ndim(value) == 0]
    return ", ".join([f"{branch.name} = {float(place.parameter):.6g}", *numbers[:4]])


def _checked_bounds(bounds, largest_step) -> tuple[float, float, float]:
    low, high = (float(checked_number("bounds", end)) for end in checked_sequence("bounds", bounds, "values", length=2))
    if not low < high:
        raise ValueError(f"bounds must be two values of the parameter, the lower first; got {bounds}")
    largest = (high - low) / 20 if largest_step is None else float(checked_number("largest_step", largest_step))
    checked_number("largest_step", largest, above=0.0)
    return low, high, largest


def _checked(action, values, solution, parameter) -> tuple[str, BoundAction]:
    checked_instance("action", action, Action)
    checked_instance("solution", solution, Solution)
    if solution.of.refined != action.refined:
        raise ValueError("solution is one of another action; give that, or solve this one first")
    if np.ndim(solution.converged) or not solution.converged:
        raise ValueError(f"solution is no stationary point to start from: {solution.diagnosis}")
    name = getattr(parameter, "name", parameter)
    numbers = [s.name for s in action.parameters if isinstance(s, Symbol) and s not in action.sizes]
    if not isinstance(name, str) or name not in numbers:
        raise ValueError(f"parameter must be a number among {', '.join(numbers) or 'none'}, got {shown(parameter)}")
    return name, bind(action, values, solution.order_parameters)
