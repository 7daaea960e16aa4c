"""Claims about integrals: Gaussian averages, delta functions, densities, volumes, sources."""

import itertools
from dataclasses import dataclass

import numpy as np
from sympy import Expr, MatrixSymbol
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_whole_number
from ...codegen import interpret
from ..exact.residues import NotRational
from .claim import Claim, Identity, curvature, difference, draw, inner, worst

# Gauss-Hermite nodes a dimension, by the number of dimensions
_NODES = {1: 20, 2: 10, 3: 6}
# draws where there are more dimensions than that, and how many standard errors count as one tolerance
_DRAWS, _STANDARD_ERRORS = 200, 4.5


@dataclass(frozen=True)
class GaussianAverage(Claim):
    """exp(-after/2) is the average of exp(-before/2) over the column `variable` ~ N(0, `covariance`).

    Checked by Gauss-Hermite quadrature, its nodes laid about the point of the complex plane where the integrand is
    stationary, so that it neither decays nor oscillates between them; in more than three dimensions by Monte Carlo.
    """

    variable: MatrixSymbol
    covariance: MatrixExpr
    tolerance = 1e-8
    beyond = "an average"

    def _error(self, before, after, values, rng):
        covariance = np.atleast_2d(interpret(self.covariance, values))
        size, precision = len(covariance), np.linalg.inv(covariance)

        def exponent(column):
            return interpret(before, {**values, self.variable.name: column[:, None]}) + column @ precision @ column

        spread = np.linalg.inv(curvature(exponent, size).real / 2)
        slope = np.array([exponent(unit) - exponent(-unit) for unit in np.eye(size)]) / 2
        centre, root = -spread @ slope / 2, np.linalg.cholesky((spread + spread.T) / 2)
        scale = np.prod(np.diag(root)) / np.sqrt(np.linalg.det(covariance))
        expected = interpret(after, values)

        def ratio(standard):
            return scale * np.exp((standard @ standard - exponent(centre + root @ standard) + expected) / 2)

        with np.errstate(over="ignore", invalid="ignore"):
            if size in _NODES:
                return abs(_quadrature(ratio, size) - 1)
            draws = np.array([ratio(standard) for standard in rng.normal(size=(_DRAWS, size))])
            standard_error = np.std(draws) / np.sqrt(_DRAWS) + self.tolerance
            return self.tolerance * abs(np.mean(draws) - 1) / (_STANDARD_ERRORS * standard_error)


def _quadrature(function, size):
    """Average of a function of a column of `size` independent standard normal numbers."""
    count = _NODES[size]
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    picks = [list(pick) for pick in itertools.product(range(count), repeat=size)]
    return sum(np.prod(weights[pick] / np.sqrt(2 * np.pi)) * function(nodes[pick]) for pick in picks)


class AverageIs(GaussianAverage):
    """A Gaussian average read backwards: exp(-before/2) is the average of exp(-after/2)."""

    def _error(self, before, after, values, rng):
        return super()._error(after, before, values, rng)


@dataclass(frozen=True)
class OrderParameterInserted(Identity):
    """`after` holds the order parameter `symbol` in place of `value`, and its conjugate as a Lagrange multiplier.

    The integral over the conjugate is a delta function: `after` changes with it by weight tr(conjugate (value -
    symbol)), and is `before` where the order parameter has its value.
    """

    symbol: MatrixSymbol
    value: MatrixExpr
    conjugate: MatrixSymbol
    weight: Expr

    def _sides(self, before, after, point):
        value = point(self.value)
        yield point.where({self.symbol: value})(after), point(before)
        first, second = (point.draw(self.conjugate) for _ in range(2))
        step = first(self.conjugate) - second(self.conjugate)
        yield first(after) - second(after), point(self.weight) * inner(step, value - point(self.symbol))


@dataclass(frozen=True)
class GaussianDensity(Claim):
    """exp(-after/2) is, but for powers of 2 pi, the density of a column with characteristic function exp(-before/2)."""

    source: MatrixSymbol
    column: MatrixSymbol
    tolerance = 1e-8
    beyond = "a density"

    def _error(self, before, after, values, rng):
        size = len(values[self.column.name])

        def at(expression, symbol):
            return lambda column: interpret(expression, {**values, symbol.name: column[:, None]})

        covariance = curvature(at(before, self.source), size) / 2
        precision = curvature(at(after, self.column), size) / 2
        source, column = values[self.source.name], values[self.column.name]
        return worst(
            difference(covariance @ precision, np.eye(size)),
            difference(interpret(before, values), np.vdot(source, covariance @ source)),
            difference(
                interpret(after, values), np.vdot(column, precision @ column) + np.linalg.slogdet(covariance)[1]
            ),
        )


@dataclass(frozen=True)
class GramVolume(Claim):
    """`before` is -2 log density of weights X (n x N), `after` that of their overlap U, up to a constant number.

    Both depend on X through U alone, and the volume between them is known from what linear maps do to it: the weights
    A X fill |det A|^N of the volume, and their overlaps the Jacobian of the map from overlaps to overlaps; whatever
    the other matrices are that the densities depend on.
    """

    columns: MatrixSymbol
    overlap: MatrixSymbol
    count: Expr
    given: MatrixSymbol | None
    tolerance = 1e-8
    beyond = "a volume"

    def _error(self, before, after, values, rng):
        own, inner = len(values[self.columns.name]), 0 if self.given is None else self.given.shape[0]
        inner = round(interpret(inner, values)) if inner else 0
        count = own + inner + 3  # more columns than rows, whatever the width drawn
        values = {**values, self.count.name: count}
        weights = rng.normal(size=(own + inner, count))
        mixing = rng.normal(size=(own + inner, own + inner))
        mixing[:inner, inner:] = 0  # the given rows do not change with the others
        others, log_volume = self._others(before, after), []
        for rows in (weights, mixing @ weights):
            gram = rows @ rows.T / count
            for symbol in others:
                values = draw(symbol, values, rng)
            at = {**values, self.columns.name: rows[inner:], self.overlap.name: gram}
            if self.given is not None:
                at[self.given.name] = gram[:inner, :inner]
            log_volume.append((interpret(before, at) - interpret(after, at)) / 2)
        of_weights = count * np.linalg.slogdet(mixing[inner:, inner:])[1]
        of_overlaps = np.linalg.slogdet(_congruence(mixing, inner))[1]
        return abs(log_volume[1] - log_volume[0] - of_weights + of_overlaps) / max(1.0, abs(of_weights))

    def _others(self, before, after) -> list[MatrixSymbol]:
        matrices = before.atoms(MatrixSymbol) | after.atoms(MatrixSymbol)
        return sorted(matrices - {self.columns, self.overlap, self.given}, key=lambda symbol: symbol.name)


def _congruence(mixing, inner) -> np.ndarray:
    """The linear map U -> A U A^T on the entries of symmetric matrices, but for those of the leading `inner` block."""
    size = len(mixing)
    entries = [(i, j) for i in range(size) for j in range(i + 1) if i >= inner]
    result = np.empty((len(entries), len(entries)))
    for column, (i, j) in enumerate(entries):
        unit = np.zeros((size, size))
        unit[i, j] = unit[j, i] = 1
        image = mixing @ unit @ mixing.T
        result[:, column] = [image[entry] for entry in entries]
    return result


@dataclass(frozen=True)
class SourceDerivative(Claim):
    """`after` is `factor` times the derivative of the given order of `before` in the source, where the source is zero.

    The first derivative of a column source is a column, the second a matrix.
    """

    source: MatrixSymbol
    order: int
    factor: Expr
    tolerance = 1e-7

    def __post_init__(self):
        super().__post_init__()
        checked_whole_number("order", self.order, least=1, most=2)

    def _sides(self, before, after, point):
        source, factor = point(self.source), point(self.factor)
        at_zero = point.where({self.source: 0 * source})
        if self.order == 1:
            yield inner(at_zero(after), source), factor * at_zero.slope(before, self.source, source)
        else:

            def even(scale):
                there, opposite = (point.where({self.source: sign * scale * source}) for sign in (1, -1))
                return there(before) + opposite(before) - 2 * at_zero(before)

            if not all(each.is_zero for each in (even(2) - 4 * even(1)).zeros()):
                raise NotRational("the second derivative of a function of more than second degree")
            yield source.T @ at_zero(after) @ source, factor * even(1)

    def _error(self, before, after, values, rng):
        shape = values[self.source.name].shape

        def at(column):
            return interpret(before, {**values, self.source.name: column[:, None]})

        if self.order == 1:
            slope = np.array([(at(1e-4 * step) - at(-1e-4 * step)) / 2e-4 for step in np.eye(shape[0])])[:, None]
        else:
            slope = curvature(at, shape[0])
        zero = {**values, self.source.name: np.zeros(shape)}
        return difference(interpret(after, zero), complex(self.factor) * slope)
