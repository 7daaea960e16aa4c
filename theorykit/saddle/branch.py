"""Branches of stationary points, followed through a parameter and around folds.

Where a transition is of first order, two minima coexist; they are ends of one branch, which turns back twice at folds
(limits of metastability, spinodals) and is a maximum along one direction between them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int
from sympy import Expr, Symbol

from ..arguments import checked_instance, checked_number, checked_sequence, checked_whole_number, shown
from ..compilation import jit
from ..dynamics import BRANCH_POINT, FOLD, find_cycle
from ..dynamics import follow as follow_cycles
from .action import Action
from .bound_action import BoundAction, Values, bind
from .problem import Coordinates
from .solution import Solution
from .solvers.quadratic_model import QuadraticModel

# rate of the gradient descent whose fixed points the stationary points are, of that at which its first step overshoots:
# so small that no multiplier comes near -1, where descent would double its period
_RATE = 0.02


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
    - `turns`: folds and branch points, in order. `ended`: why it goes no further.
    """

    parameter: str = eqx.field(static=True)
    parameters: Float[Array, " point"]
    order_parameters: Mapping[str, Float[Array, "point ..."]]
    action: Float[Array, " point"]
    hessian_eigenvalues: Float[Array, "point coordinates"]
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
        return tuple(turn for turn in self.turns if turn.kind == FOLD)

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
            free("hessian_eigenvalue"): ((point, free("eigenvalue")), np.asarray(self.hessian_eigenvalues)),
            free("turn_kind"): (turn, np.array([turn.kind for turn in self.turns], dtype=str)),
            free("turn_parameter"): (turn, np.array([float(turn.parameter) for turn in self.turns])),
        }
        coordinates = {self.parameter: (point, np.asarray(self.parameters))}
        return xr.Dataset(variables, coords=coordinates, attrs={"ended": self.ended, "parameter": self.parameter})


class _Descent(eqx.Module):
    """Gradient descent of the action, whose fixed points are its stationary points, as a map with one parameter."""

    bound: BoundAction
    rate: Float[Array, ""]
    name: str = eqx.field(static=True)

    def __call__(self, coordinates: Coordinates, parameter: Float[Array, ""]) -> Coordinates:
        return coordinates - self.rate * jax.grad(self.at(parameter).action)(coordinates)

    def at(self, parameter: Float[Array, ""]) -> BoundAction:
        """The action at a value of the parameter."""
        return eqx.tree_at(lambda bound: bound.parameters[self.name], self.bound, parameter)


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
    """The branch of stationary points through `solution`, found at `values`, as one of these, `parameter`, is changed.

    It starts towards larger values with a `direction` of 1, towards smaller with -1, goes around folds, and ends where
    the parameter leaves `bounds`, where the branch closes, after `most_points`, or where no step succeeds. Steps are
    measured in the coordinates of the order parameters (`theorykit.saddle.domains`) and the parameter together;
    `largest_step` is by default a 20th of the range of the parameter. Two folds within a step are missed. Raises
    `ValueError` for a solution that did not converge, or is one of another action.
    """
    name, bound = _checked(action, values, solution, parameter)
    checked_whole_number("most_points", most_points, least=1)
    low, high = checked_sequence("bounds", bounds, "values of the parameter", length=2)
    start = solution.stats["coordinates"]
    descent = _Descent(bound, _rate(bound, start), name)
    cycle = find_cycle(descent, start, bound.parameters[name], 1)
    found = follow_cycles(
        descent, cycle, (low, high), direction=direction, largest_step=largest_step, most_cycles=most_points
    )
    points, parameters = found.points[:, 0], found.parameters
    order_parameters, actions, eigenvalues = _along(descent, points, parameters)
    turns = [
        Turn(event.kind, event.parameter, bound.layout.values(event.points[0]))
        for event in found.events
        if event.kind in (FOLD, BRANCH_POINT)
    ]
    return SolutionBranch(name, parameters, order_parameters, actions, eigenvalues, tuple(turns), found.ended)


def _checked(action, values, solution, parameter) -> tuple[str, BoundAction]:
    checked_instance("action", action, Action)
    checked_instance("solution", solution, Solution)
    if solution.of != action:
        raise ValueError("solution is one of another action; give that, or solve this one first")
    if np.ndim(solution.converged) or not solution.converged:
        raise ValueError(f"solution is no stationary point to start from: {solution.diagnosis}")
    name = getattr(parameter, "name", parameter)
    numbers = [s.name for s in action.parameters if isinstance(s, Symbol) and s not in action.sizes]
    if not isinstance(name, str) or name not in numbers:
        raise ValueError(f"parameter must be a number among {', '.join(numbers) or 'none'}, got {shown(parameter)}")
    return name, bind(action, values, solution.order_parameters)


@jit
def _rate(bound: BoundAction, coordinates: Coordinates) -> Float[Array, ""]:
    return _RATE / jnp.max(jnp.abs(jnp.linalg.eigvalsh(jax.hessian(bound.action)(coordinates))))


@jit
def _along(descent: _Descent, points: Float[Array, "point coordinates"], parameters: Float[Array, " point"]):
    """Order parameters, actions and the eigenvalues of Hessians at points of the branch."""

    def at(inputs):
        coordinates, parameter = inputs
        bound = descent.at(parameter)
        curvatures = QuadraticModel.of(bound.expansion(bound.at(coordinates))).curvatures
        return bound.layout.values(coordinates), bound.action(coordinates), curvatures / bound.scale

    return jax.lax.map(at, (points, parameters))
