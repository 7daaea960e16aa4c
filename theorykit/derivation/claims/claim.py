"""The interface of a claim, and how numbers are compared and functions differentiated to check one."""

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sympy import Expr, MatrixSymbol, Symbol, flatten

from ...checks import check_fields, checked_arguments
from ...codegen import interpret
from ..exact.point import ExactPoint
from ..exact.residues import NotRational
from ..exact.values import Residues, as_value
from ..sampling import Values, random_value


class Claim(abc.ABC):
    """How `after` follows from `before`. A claim is a dataclass that says so by `_error`.

    - `tolerance`: of the check on floating-point numbers.
    - `beyond`: what the claim is about, in words, that is no identity of rational functions, so that it cannot be
      checked exactly.
    """

    tolerance: float = 1e-10
    beyond: str = "a claim of another kind than that values are equal"

    def __post_init__(self):
        check_fields(self)

    @checked_arguments
    def error(self, before: Expr, after: Expr, values: Values, rng: np.random.Generator) -> float:
        """How far the claim is from holding with the symbols' values by name."""
        free = {symbol.name for expression in self.expressions(before, after) for symbol in expression.free_symbols}
        if missing := sorted(free - set(values)):
            raise ValueError(f"values must have one for every symbol; there is none of {', '.join(missing)}")
        return self._error(before, after, values, rng)

    @abc.abstractmethod
    def _error(self, before: Expr, after: Expr, values: Values, rng: np.random.Generator) -> float:
        """As `error`, of arguments that were checked."""

    def _sides(self, before: Expr, after: Expr, point: "ExactPoint | FloatPoint") -> Iterator[tuple[Any, Any]]:
        """Values that are equal where the claim holds, whatever the arithmetic of the point."""
        raise NotRational(self.beyond)

    @checked_arguments
    def expressions(self, before: Expr, after: Expr) -> Sequence[Expr]:
        """Everything whose symbols need values: both sides, and what the claim speaks of beside them."""
        parts = flatten(vars(self).values())
        return (before, after, *(part for part in parts if isinstance(part, Expr)))


class Identity(Claim):
    """A claim that values are equal, said once by `_sides`: checked on floating-point numbers, and exactly."""

    def _error(self, before, after, values, rng):
        sides = self._sides(before, after, FloatPoint(values, rng))
        return worst(*(difference(found, expected) for found, expected in sides))

    @abc.abstractmethod
    def _sides(self, before, after, point):
        """As of any claim."""


@dataclass(frozen=True)
class FloatPoint:
    """Random floating-point values of symbols by name; expressions are evaluated there as at an `ExactPoint`."""

    values: Values
    rng: np.random.Generator

    def __call__(self, expression: Expr):
        return interpret(expression, self.values)

    def size(self, size: Expr) -> int:
        """The value of a size."""
        return round(self(size))

    def where(self, values: Mapping[Expr, Any]) -> "FloatPoint":
        """With these values of symbols."""
        return FloatPoint({**self.values, **{symbol.name: value for symbol, value in values.items()}}, self.rng)

    def define(self, definitions: Iterable[tuple[Expr, Expr]]) -> "FloatPoint":
        """With the values of symbols that stand for others; a definition may use the ones before it."""
        return FloatPoint(define(self.values, definitions), self.rng)

    def draw(self, symbol: Symbol | MatrixSymbol) -> "FloatPoint":
        """With another random value for a symbol."""
        return FloatPoint(draw(symbol, self.values, self.rng), self.rng)

    def scaled(self, symbol: Symbol, factor: int) -> "FloatPoint":
        """With a scalar symbol a whole number of times as large."""
        return self.where({symbol: factor * self.values[symbol.name]})

    def symmetric_matrix(self, size: int) -> np.ndarray:
        """A random symmetric matrix, of norm one."""
        return symmetric_direction(size, self.rng)

    def slope(self, expression: Expr, variable: MatrixSymbol, direction: np.ndarray) -> Any:
        """The derivative of a scalar in a direction of a matrix, by differences."""
        return directional_derivative(expression, variable, self.values, direction)


def inner(left, right):
    """The sum of the products of the entries of two matrices."""
    return (left.T @ right).trace()


def residuals(claim: Claim, before: Expr, after: Expr, point: ExactPoint) -> Iterator[Residues]:
    """What must be zero, in exact arithmetic, for the claim to hold at a random point of a prime field.

    Raises `NotRational`, which says what is no rational function there.
    """
    for found, expected in claim._sides(before, after, point):
        yield from as_value(found - expected).zeros()


def difference(found, expected) -> float:
    """Largest difference, relative to the largest entry where that exceeds one."""
    return float(np.max(np.abs(found - expected)) / max(1.0, np.max(np.abs(expected))))


def worst(*errors: float) -> float:
    """The largest error; NaN if any is, which Python's `max` may lose."""
    return float(np.max(errors))


def draw(symbol: Symbol | MatrixSymbol, values: Values, rng: np.random.Generator) -> Values:
    """`values` with another random value for `symbol`."""
    return {**values, symbol.name: random_value(symbol, values, rng)}


def define(values: Values, definitions: Iterable[tuple[Expr, Expr]]) -> Values:
    """`values`, and those of symbols that stand for others; a definition may use the ones before it."""
    for symbol, value in definitions:
        values = {**values, symbol.name: interpret(value, values)}
    return values


def slope_at_zero(function, step=1e-4):
    """Derivative at zero of a function of a number, by differences of fourth order; values may be arrays."""
    f = [function(k * step) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step)


def curvature(function, size: int) -> np.ndarray:
    """Matrix of second differences of a function of a column, at zero; exact for one of second degree."""
    basis, at_zero = np.eye(size), function(np.zeros(size))
    alone = [function(a) for a in basis]
    second = np.empty((size, size), dtype=np.result_type(at_zero, *alone))
    for i in range(size):
        for j in range(i + 1):
            together = function(basis[i] + basis[j])
            second[i, j] = second[j, i] = together - alone[i] - alone[j] + at_zero
    return second


def symmetric_direction(size: int, rng: np.random.Generator) -> np.ndarray:
    """A random symmetric matrix of norm one."""
    direction = rng.normal(size=(size, size))
    return (direction + direction.T) / np.linalg.norm(direction + direction.T)


def directional_derivative(expression, variable, values, direction):
    """Derivative of a scalar in a direction of a matrix, by differences of fourth order."""
    at = values[variable.name]
    return slope_at_zero(lambda step: interpret(expression, {**values, variable.name: at + step * direction}))
