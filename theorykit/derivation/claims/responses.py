"""Claims about how things move when others do: gradients through definitions, responses to displacements."""

from dataclasses import dataclass

import numpy as np
from sympy import Expr, MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...codegen import interpret
from .claim import Claim, define, difference, slope_at_zero, worst

_DIRECTIONS = 3


@dataclass(frozen=True)
class Gradient(Claim):
    """`after` is the gradient of the number `before` in the matrix `variable`.

    Every symbol of `definitions` has the value that it stands for, in order, and moves with the variable.
    """

    variable: MatrixSymbol
    definitions: tuple[tuple[Expr, Expr], ...] = ()
    tolerance = 1e-7
    beyond = "a derivative through functions of entries"

    def _error(self, before, after, values, rng):
        at = values[self.variable.name]
        found, errors = interpret(after, define(values, self.definitions)), []
        if found.shape != at.shape:
            return np.inf
        for _ in range(_DIRECTIONS):
            direction = rng.normal(size=at.shape)

            def along(step, direction=direction):
                moved = {**values, self.variable.name: at + step * direction}
                return interpret(before, define(moved, self.definitions))

            errors.append(difference(np.sum(found * direction), slope_at_zero(along)))
        return worst(*errors)


@dataclass(frozen=True)
class Response(Claim):
    """`after` times the column `displacement` is how far the column `before` moves, to first order in it.

    `moved` pairs the symbols that move with how far they do, linear in the displacement.
    """

    displacement: MatrixSymbol
    moved: tuple[tuple[MatrixSymbol, MatrixExpr], ...]
    tolerance = 1e-7
    beyond = "a derivative through functions of entries"

    def _error(self, before, after, values, rng):
        found, errors = interpret(after, values), []
        for _ in range(_DIRECTIONS):
            by = rng.normal(size=values[self.displacement.name].shape)
            changes = {x.name: interpret(d, {**values, self.displacement.name: by}) for x, d in self.moved}

            def along(step, changes=changes):
                return interpret(before, {**values, **{name: values[name] + step * d for name, d in changes.items()}})

            errors.append(difference(found @ by, slope_at_zero(along)))
        return worst(*errors)
