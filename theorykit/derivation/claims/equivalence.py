"""Claims about what replaces nonlinear hidden units: it has their mean and covariance over the weights."""

from dataclasses import dataclass

import numpy as np
from sympy import MatrixSymbol, Symbol
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...codegen import interpret
from ...symbolic import GaussianAverage
from .claim import Claim, difference, worst

# directions of a row of two weights, equally many of each, and lengths
_DIRECTIONS, _LENGTHS, _LONGEST = 500, 48, 10.0
_FINER = 601, 811, 1301
# what steps never leave open by the fewest directions
_CERTAIN = 0.05
# factors of the data at which the kernel alone is tried, of variances of 1e-3 and 1e3, by more directions
_SCALES, _MANY = (0.03, 30.0), 10_000
# what the quadrature leaves open there: so many times what one twice as fine changes
_UNCERTAIN = 4


@dataclass(frozen=True)
class SameMoments(Claim):
    """`before` and `after`, quadratic in hidden units of one layer, have the same mean over the layer's weights.

    - `weights`: of the nonlinear units, a row a unit of two standard normal numbers. `equivalent`: of the linear ones,
      standard normal too.
    - `kernel`: the symbol of their kernel, and its `value`.

    So they have the same covariance, and outputs that are linear in them the same under the prior. The mean of
    `before` is taken by quadrature over directions and lengths of a row, which knows no kernel; that of `after` is
    exact. The kernel alone is tried at variances of 1e-3 and 1e3 too, where what that quadrature leaves open, of steps
    and of steep functions, counts as no error.
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
        count = values[self.equivalent.name].shape[1]
        # rows with exactly the second moments of standard normal numbers
        rows = np.sqrt(count) * np.eye(count)
        given = {**values, self.kernel.name: interpret(self.value, values), self.equivalent.name: rows, width: count}
        of_equivalent, of_units = interpret(after, given), self._of_units(before, values, _DIRECTIONS, rng)
        off = difference(of_equivalent, of_units)
        if self.tolerance < off < _CERTAIN:
            # steps leave an error that goes up and down with the directions
            *others, finest = (self._of_units(before, values, count, rng) for count in _FINER)
            left_open = worst(*(difference(each, finest) for each in (of_units, *others)))
            off = worst(difference(of_equivalent, finest) - _UNCERTAIN * left_open, 0.0)
        # a kernel that is an average is one at any scale
        scales = () if self.value.has(GaussianAverage) or off > self.tolerance else _SCALES
        return worst(off, *(self._at_scale(before, values, scale, rng) for scale in scales))

    def _of_units(self, before, values, count, rng):
        """The mean over rows of weights, by so many directions."""
        width, directions = self.weights.shape[0].name, _directions(count, rng)

        def mean_over_directions(length):
            return interpret(before, {**values, self.weights.name: length * directions, width: count})

        lengths, density = _lengths()
        return sum(map(np.multiply, density, map(mean_over_directions, lengths)))

    def _at_scale(self, before, values, scale, rng):
        """How far the kernel is off for data of another size, relative to the largest entry."""
        units = [node for node in before.atoms(ElementwiseApplyFunction) if node.expr.has(self.weights)]
        data = [symbol for symbol in self.value.free_symbols if isinstance(symbol, MatrixSymbol)]
        if not units or len(data) != 1:
            return 0.0
        inputs = scale * values[data[0].name]
        kernel = interpret(self.value, {**values, data[0].name: inputs})
        unit = Symbol("unit", real=True)
        function = units[0].function(unit)
        coarse, fine = (_second_moments(function, inputs, finer, rng) for finer in (1, 2))
        size = np.max(np.abs(fine))
        return float((np.max(np.abs(kernel - fine)) - _UNCERTAIN * np.max(np.abs(fine - coarse))) / size)


def _second_moments(function, inputs, finer, rng):
    """E[phi phi^T] of a row of standard normal weights, by quadrature so many times finer."""
    count = finer * _MANY
    moments, directions = 0.0, _directions(count, rng)
    for length, weight in zip(*_lengths(finer * _LENGTHS), strict=True):
        hidden = np.broadcast_to(interpret(function, {"unit": length * directions @ inputs}), (count, inputs.shape[1]))
        moments = moments + weight * hidden.T @ hidden / count
    return moments


def _directions(count, rng):
    angles = 2 * np.pi * (np.arange(count) + rng.uniform()) / count
    return np.column_stack([np.cos(angles), np.sin(angles)])


def _lengths(count=_LENGTHS):
    """Lengths of a row of two weights, and their probability."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    lengths = _LONGEST * (nodes + 1) / 2
    return lengths, lengths * np.exp(-(lengths**2) / 2) * weights * _LONGEST / 2
