"""Draw random points of an action, which are values of its parameters and order parameters in their domains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from sympy import Expr, MatrixSymbol

from ...checks import Index, checked_arguments
from ...codegen import compile_expressions, interpret
from ...codegen.compiled import bound_sizes
from ...saddle import Action
from ...saddle.bound_action import BoundAction, Values, bind, named
from ...saddle.problem import Coordinates
from ...symbolic.atoms import SymmetricSymbol
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number

# Values of undetermined sizes of matrices. They differ, so that a wrong transpose is detected.
_SIDES = (3, 4, 2, 5)


@dataclass(frozen=True, repr=False)
class ActionPoint(DisplayMixin):
    """An action with values of its parameters, sizes and order parameters.

    - `action`: the action.
    - `bound`: the compiled action with the values of the parameters.
    - `parameters`: values of parameters and sizes by name.
    - `coordinates`: coordinates of the order parameters; see `theorykit.saddle.domains`.
    """

    action: Action
    bound: BoundAction
    parameters: Mapping[str, Any]
    coordinates: Coordinates

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Point of an action**: S = {number(np.sum(self.terms()))}")
        rows = [(name, " x ".join(map(str, np.shape(each))), number(each)) for name, each in self.values.items()]
        yield Table(
            tuple((verbatim(name), shape or "number", value) for name, shape, value in rows),
            ("symbol", "shape", "value"),
        )

    @property
    def order_parameters(self) -> dict[str, Any]:
        """Order parameters as arrays or Python numbers."""
        return {name: _plain(value) for name, value in self.bound.values(self.coordinates).items()}

    @property
    def values(self) -> dict[str, Any]:
        """All values that the interpreter needs."""
        return {**self.parameters, **self.order_parameters}

    def terms(self) -> np.ndarray:
        """Evaluate each term of the action with the interpreter. Terms that are undefined are NaN."""
        values = self.values
        return np.array([value_of(term, values) for term in self.action.terms])

    def moved(self, step: np.ndarray) -> ActionPoint:
        """Return the point after a step; see `theorykit.saddle.domains`."""
        return replace(self, coordinates=self.bound.moved(self.coordinates, jnp.asarray(step)))

    @property
    def place(self) -> str:
        """Numeric order parameters as text."""
        numbers = {name: value for name, value in self.order_parameters.items() if np.ndim(value) == 0}
        return ", ".join(f"{name} = {value:.3g}" for name, value in numbers.items()) or "a random point"


@checked_arguments
def random_action_point(action: Action, seed: Index, values: Values | None = None) -> ActionPoint:
    """Draw random order parameters in their domains.

    Args:
        action: the action.
        seed: seed of all random numbers.
        values: values of the parameters. The default is random numbers between 0.5 and 1.5. Undetermined sizes of
            matrices are 2 to 5.
    """
    return random_points(action, values, 1, 1, seed)[0][0]


def value_of(expression: Expr, values: Mapping[str, Any]) -> float:
    """Evaluate a scalar expression with the interpreter. The result is NaN if it is not a real number."""
    if missing := {symbol.name for symbol in expression.free_symbols} - set(values):
        raise LookupError(f"no value for {', '.join(sorted(missing))}")
    with np.errstate(all="ignore"):
        try:
            value = np.asarray(interpret(expression, values))
        except (ValueError, ZeroDivisionError, OverflowError, FloatingPointError):
            return float("nan")
    return float(value) if np.isrealobj(value) else float("nan")


def random_points(
    action: Action, values: Mapping[Any, Any] | None, groups: int, points: int, seed: int
) -> list[list[ActionPoint]]:
    """Draw `points` points for each of `groups` sets of parameters, or for one set if `values` are given."""
    rng = np.random.default_rng(seed)
    free = {size for symbol in action.symbols for side in getattr(symbol, "shape", ()) for size in side.free_symbols}
    ordered = sorted(size.name for size in free)
    sides = {name: _SIDES[at % len(_SIDES)] for at, name in enumerate(ordered)}

    def shape(symbol: Expr) -> tuple[int, ...]:
        return tuple(int(interpret(side, sides)) for side in getattr(symbol, "shape", ()))

    def random(symbol: Expr) -> Any:
        if symbol.name in sides:
            return sides[symbol.name]
        if not isinstance(symbol, MatrixSymbol):
            return float(rng.uniform(0.5, 1.5)) * (-1.0 if symbol.is_negative else 1.0)
        matrix = rng.normal(size=shape(symbol))
        rows = len(matrix)
        return matrix @ matrix.T / rows + 0.3 * np.eye(rows) if isinstance(symbol, SymmetricSymbol) else matrix

    found = []
    for _ in range(groups if values is None else 1):
        if values is None:
            given = {symbol.name: random(symbol) for symbol in action.parameters}
        else:
            given = {name: _plain(value) for name, value in named("values", values, action.parameters).items()}
        bound = bind(action, given, {each: np.eye(*shape(each)) for each in action.order_parameters if shape(each)})
        # Compute the sizes that follow from shapes.
        arrays = {name: value for name, value in given.items() if np.ndim(value)}
        shapes = zip(bound.domains, bound.shapes, strict=True)
        arrays |= {name: np.zeros(shape) for name, shape in shapes if shape}
        symbols = [symbol for symbol in action.symbols if symbol.name in arrays]
        sizes = {size.name: size for size in bound_sizes(symbols) if size.name not in given}
        known = compile_expressions("sizes", sizes, symbols)(**arrays) if sizes else {}
        parameters = {**{name: int(value) for name, value in known.items()}, **given}
        # Domains are images of unbounded coordinates, so any coordinates give an interior point.
        drawn = [rng.standard_normal(len(bound.free)) for _ in range(points)]
        found.append([ActionPoint(action, bound, parameters, jnp.asarray(coordinates)) for coordinates in drawn])
    return found


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array if array.ndim else array.item()
