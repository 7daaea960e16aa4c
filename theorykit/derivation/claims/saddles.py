"""Claims about stationary points and derivatives."""

from dataclasses import dataclass

import numpy as np
from sympy import MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...codegen import interpret
from ..exact.residues import NotRational
from .claim import Claim, Identity, directional_derivative, draw, inner, symmetric_direction, worst


@dataclass(frozen=True)
class Stationary(Identity):
    """`before` is stationary in the symmetric matrix `variable` at `solution`, and `after` is its value there."""

    variable: MatrixSymbol
    solution: MatrixExpr
    tolerance = 1e-7

    def _sides(self, before, after, point):
        solution = point(self.solution)
        at_solution = point.where({self.variable: solution})
        yield at_solution.slope(before, self.variable, point.symmetric_matrix(solution.shape[0])), 0
        yield point(after), at_solution(before)


@dataclass(frozen=True)
class Constrained(Identity):
    """`before` is linear in the symmetric matrix `multiplier`: stationarity in it makes `variable` take `value`."""

    multiplier: MatrixSymbol
    variable: MatrixSymbol
    value: MatrixExpr
    tolerance = 1e-7

    def _sides(self, before, after, point):
        held = point.where({self.variable: point(self.value)})
        direction = point.symmetric_matrix(point.size(self.multiplier.shape[0]))
        for _ in range(2):
            yield held.draw(self.multiplier).slope(before, self.multiplier, direction), 0
        yield held(after), held(before)

    def _error(self, before, after, values, rng):
        direction = symmetric_direction(len(values[self.multiplier.name]), rng)
        if abs(directional_derivative(before, self.multiplier, values, direction)) < 1e-6:
            return np.inf  # the multiplier must multiply something
        return super()._error(before, after, values, rng)


@dataclass(frozen=True)
class MatrixDerivative(Identity):
    """`after` is the gradient of `before` in the symmetric matrix `source`."""

    source: MatrixSymbol
    tolerance = 1e-7

    def _sides(self, before, after, point):
        found = point(after)
        yield found, found.T
        for _ in range(3):
            direction = point.symmetric_matrix(found.shape[0])
            yield inner(found, direction), point.slope(before, self.source, direction)


@dataclass(frozen=True)
class Solves(Claim):
    """`before`, a matrix, is zero where `variable` is `after`; which is positive definite, where that is claimed.

    A matrix equation of second degree has other solutions, which are not.
    """

    variable: MatrixSymbol
    positive_definite: bool = False
    tolerance = 1e-9

    def _sides(self, before, after, point):
        if self.positive_definite:
            raise NotRational("which of several solutions is positive definite")
        yield point.where({self.variable: point(after)})(before), 0

    def _error(self, before, after, values, rng):
        solution = interpret(after, values)
        if self.positive_definite and not np.linalg.eigvalsh(solution)[0] > 0:
            return np.inf
        residual = interpret(before, {**values, self.variable.name: solution})
        elsewhere = interpret(before, draw(self.variable, values, rng))
        return float(np.max(np.abs(residual)) / max(1.0, np.max(np.abs(elsewhere))))


@dataclass(frozen=True)
class SolvesToFirstOrder(Claim):
    """`before` + tr(force X_1) stays stationary in `variable` when all variables move from `limit` by `displaced`.

    To first order in the displacements: the second derivative of `before`, once along them and once along a random
    direction of `variable`, cancels the force. `after` is the displacement of `variable`; the force acts on the first.
    """

    variable: MatrixSymbol
    limit: tuple[tuple[MatrixSymbol, MatrixExpr], ...]
    displaced: tuple[tuple[MatrixSymbol, MatrixExpr], ...]
    force: MatrixSymbol
    tolerance = 1e-4
    beyond = "a second derivative"

    def _error(self, before, after, values, rng):
        point = {symbol.name: interpret(value, values) for symbol, value in self.limit}
        along = {symbol.name: interpret(value, values) for symbol, value in self.displaced}
        along[self.variable.name] = interpret(after, values)
        name = self.variable.name
        ratios = [np.linalg.norm(along[other]) / np.linalg.norm(value, -2) for other, value in point.items()]
        length = max(1.0, *ratios)  # displacements no larger than what is displaced keep the differences accurate
        direction = symmetric_direction(len(point[name]), rng) * np.linalg.norm(point[name], -2)

        def at(scale, sideways):
            moved = {other: value + scale / length * along[other] for other, value in point.items()}
            return interpret(before, {**values, **moved, name: moved[name] + sideways * direction})

        def differences(h):
            return np.array([at(0, h) - at(0, -h), (at(h, h) - at(h, -h) - at(-h, h) + at(-h, -h)) / h * length / 2])

        first, second = (4 * differences(0.005) / 0.005 - differences(0.01) / 0.01) / 6
        on_first = self.limit[0][0].name == name
        force = np.sum(values[self.force.name] * direction) if on_first else 0.0
        return worst(abs(second + force), abs(first)) / max(1.0, abs(force))
