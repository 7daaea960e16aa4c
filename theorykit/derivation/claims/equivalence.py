"""Claims about what replaces nonlinear hidden units: it has their mean and covariance over the weights."""

from dataclasses import dataclass

import numpy as np
from sympy import MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...codegen import interpret
from .claim import Claim, difference

# directions of a row of two weights, equally many of each, and lengths
_DIRECTIONS, _LENGTHS, _LONGEST = 500, 48, 10.0


@dataclass(frozen=True)
class SameMoments(Claim):
    """`before` and `after`, quadratic in hidden units of one layer, have the same mean over the layer's weights.

    - `weights`: of the nonlinear units, a row a unit of two standard normal numbers. `equivalent`: of the linear ones,
      standard normal too.
    - `kernel`: the symbol of their kernel, and its `value`.

    So they have the same covariance, and outputs that are linear in them the same under the prior. The mean of
    `before` is taken by quadrature over directions and lengths of a row, which knows no kernel; that of `after` is
    exact.
    """

    weights: MatrixSymbol
    equivalent: MatrixSymbol
    kernel: MatrixSymbol
    value: MatrixExpr
    tolerance = 1e-5
    beyond = "an average"

    def _error(self, before, after, values, rng):
        width = self.weights.shape[0].name
        if values[self.weights.name].shape[1] != 2:
            raise ValueError("the mean over nonlinear units is taken for two weights a unit")
        angles = 2 * np.pi * (np.arange(_DIRECTIONS) + rng.uniform()) / _DIRECTIONS
        directions = np.column_stack([np.cos(angles), np.sin(angles)])
        nodes, weights = np.polynomial.legendre.leggauss(_LENGTHS)
        lengths = _LONGEST * (nodes + 1) / 2
        density = lengths * np.exp(-(lengths**2) / 2) * weights * _LONGEST / 2

        def mean_over_directions(length):
            return interpret(before, {**values, self.weights.name: length * directions, width: _DIRECTIONS})

        of_units = sum(map(np.multiply, density, map(mean_over_directions, lengths)))
        count = values[self.equivalent.name].shape[1]
        # rows with exactly the second moments of standard normal numbers
        rows = np.sqrt(count) * np.eye(count)
        given = {**values, self.kernel.name: interpret(self.value, values), self.equivalent.name: rows, width: count}
        return difference(interpret(after, given), of_units)
