"""Claims of derivation steps, and their checks by evaluation, quadrature or finite differences.

Actions S occur in integrands exp(-S/2), so a sum of actions is a product of integrands.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sympy import Expr, MatrixSymbol, S, Symbol, flatten
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..codegen import interpret
from ..codegen.evaluate import At
from ..codegen.literal import Numpy
from ..symbolic import GaussianAverage as AverageOfKernel
from ..symbolic.atoms import PositiveDefiniteSymbol, PositiveSemidefiniteSymbol, SymmetricSymbol
from ..symbolic.documents import Equation
from .field import NotRational, Point, defined

Show = Callable[[Expr], str]
Values = dict[str, np.ndarray | float | int | complex]

# Number of random points at which an integrand is compared with a Gaussian density.
_DRAWS = 20
# Standard errors in one tolerance. A true claim then fails with probability 1e-5.
_STANDARD_ERRORS = 4.5
# Numbers of directions in quadratures over a row of two weights. For step functions the error depends irregularly on
# the number, so several are compared with the last.
_DIRECTIONS = 201, 271, 433, 867
# Number of directions per length of the row.
_PER_LENGTH = 5
# Largest length of the row, in standard deviations of a weight.
_LONGEST = 10.0
# The error of the last quadrature is at most this factor times the largest difference, and at most this fraction.
_UNCERTAIN, _MOST_UNCERTAIN = 4, 0.05
# Factors of the inputs. They give variances of 1e-3 and 1e3.
_SCALES = (1.0, 0.03, 30.0)


def random_values(expressions: Iterable[Expr], sizes: Mapping[Expr, int], rng: np.random.Generator) -> Values:
    """Draw a value of order one for every symbol, by name, with its declared symmetry."""
    values: Values = {size.name: number for size, number in sizes.items()}
    free = {symbol for expression in expressions for symbol in expression.free_symbols}
    for symbol in sorted(free, key=lambda symbol: symbol.name):
        if symbol.name not in values:
            values[symbol.name] = random_value(symbol, values, rng)
    return values


def random_value(symbol: Symbol | MatrixSymbol, sizes: Values, rng: np.random.Generator) -> np.ndarray | float:
    if not getattr(symbol, "is_Matrix", False):
        return float(rng.uniform(0.5, 1.5))
    rows, columns = (round(float(interpret(side, sizes))) for side in symbol.shape)
    matrix = rng.normal(size=(rows, columns)) / np.sqrt(columns)
    if isinstance(symbol, PositiveDefiniteSymbol):
        return matrix @ matrix.T + 0.5 * np.eye(rows)
    if isinstance(symbol, PositiveSemidefiniteSymbol):
        return matrix @ matrix.T
    if isinstance(symbol, SymmetricSymbol):
        return (matrix + matrix.T) / 2
    return matrix


class FloatPoint(At):
    """Floating-point values of symbols by name, with the methods of `field.Point`."""

    def __init__(self, values: Values, rng: np.random.Generator):
        super().__init__(values, Numpy)
        self.rng = rng

    def where(self, values: Mapping[Expr, Any]) -> "FloatPoint":
        return FloatPoint({**self.values, **{symbol.name: value for symbol, value in values.items()}}, self.rng)

    def draw(self, symbol: Symbol | MatrixSymbol) -> "FloatPoint":
        return self.where({symbol: random_value(symbol, self.values, self.rng)})

    def direction(self, symbol: Symbol | MatrixSymbol) -> Any:
        drawn = self.rng.normal(size=np.shape(self.values[symbol.name]))
        if isinstance(symbol, SymmetricSymbol):
            drawn = (drawn + drawn.T) / np.linalg.norm(drawn + drawn.T)
        return drawn

    def assignment(self, symbol: MatrixSymbol) -> np.ndarray:
        classes, neurons = self.values[symbol.name].shape
        assignment = np.zeros((classes, neurons))
        signs = self.rng.choice([-1.0, 1.0], size=neurons)
        assignment[self.rng.integers(classes, size=neurons), np.arange(neurons)] = signs
        return assignment

    def slope(self, function: Callable[["FloatPoint"], Any], variable: Expr, direction: Any) -> Any:
        at, step = self.values[variable.name], 1e-4
        f = [function(self.where({variable: at + k * step * direction})) for k in (-2, -1, 1, 2)]
        return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step)


class Claim:
    """Relation between `before` and `after`.

    A claim that values are equal implements `sides`, for floating-point numbers and exact arithmetic. Others implement
    `error`, for floating-point numbers only.

    - `tolerance`: tolerance of the check in floating-point numbers.
    - `checked_by`: description of this check, with braces in place of the tolerance.
    - `beyond`: the part that cannot be checked exactly.
    """

    tolerance: float = 1e-10
    checked_by: str = "random numbers, to {}"
    beyond: str = "a claim of another kind than that values are equal"

    def sides(self, before: Expr, after: Expr, point: Point | FloatPoint) -> Iterator[tuple[Any, Any]]:
        """Yield pairs of values that are equal if the claim holds, in the arithmetic of the point."""
        raise NotRational(self.beyond)

    def error(self, before: Expr, after: Expr, values: Values, rng: np.random.Generator) -> float:
        """Return the error of the claim for these values of symbols by name."""
        # Python's `max` may ignore NaN.
        return float(np.max([difference(*pair) for pair in self.sides(before, after, FloatPoint(values, rng))]))

    def statement(self, before: str, after: str, show: Show) -> Equation:
        """Write the claim as an equation. `show` writes expressions of the claim."""
        return Equation(before, after)

    def expressions(self, before: Expr, after: Expr) -> Sequence[Expr]:
        """Return all expressions whose symbols need values."""
        return (before, after, *(part for part in flatten(vars(self).values()) if isinstance(part, Expr)))


def _weight(exponent: str) -> str:
    return rf"e^{{-\frac12\left[{exponent}\right]}}"


def difference(found, expected) -> float:
    """Return the largest difference, relative to the largest entry if this entry exceeds one."""
    return float(np.max(np.abs(found - expected)) / max(1.0, np.max(np.abs(expected))))


def _inner(left, right):
    return (left.T @ right).trace()


@dataclass(frozen=True)
class Equal(Claim):
    """Both sides are equal if all symbols of `definitions` are replaced by their values.

    An `assignment` of neurons to classes is a matrix with one entry of 1 or -1 in each column.
    """

    definitions: tuple[tuple[Expr, Expr], ...] = ()
    assignment: MatrixSymbol | None = None
    checked_by = "evaluation of both sides, to {}"

    def sides(self, before, after, point):
        if self.assignment is not None:
            point = point.where({self.assignment: point.assignment(self.assignment)})
        point = defined(point, self.definitions)
        yield point(after), point(before)


@dataclass(frozen=True)
class EqualUpToConstant(Claim):
    """Both sides change by the same amount when `variables` change."""

    variables: tuple[Expr, ...]
    checked_by = "evaluation of differences, to {}"

    def sides(self, before, after, point):
        other = point
        for variable in self.variables:
            other = other.draw(variable)
        yield other(after) - point(after), other(before) - point(before)

    def statement(self, before, after, show):
        return Equation(before, rf"{after} + \text{{const.}}")


@dataclass(frozen=True)
class SumOverRows(Claim):
    """The side `per_row`, a function of one row, summed over `count` rows of matrices, is the other side.

    - `rows`: pairs of a column symbol and the matrix whose rows it represents.
    """

    rows: tuple[tuple[MatrixSymbol, MatrixExpr], ...]
    count: Expr
    per_row: Literal["before", "after"]
    checked_by = "summing over rows, to {}"

    def sides(self, before, after, point):
        one_row, whole = (before, after) if self.per_row == "before" else (after, before)
        matrices = {column: point(matrix) for column, matrix in self.rows}
        of_rows = (
            point.where({column: matrix[[i]].T for column, matrix in matrices.items()})(one_row)
            for i in range(point.size(self.count))
        )
        yield point(whole), sum(of_rows)

    def statement(self, before, after, show):
        each = r",\; ".join(rf"{show(column)}^T \in \text{{rows of }} {show(matrix)}" for column, matrix in self.rows)
        total = rf"\sum_{{{each}}}" if self.rows else show(self.count)
        if self.per_row == "before":
            return Equation(rf"{total} \left[{before}\right]", after)
        return Equation(before, rf"{total} \left[{after}\right]")


@dataclass(frozen=True)
class LeadingOrder(Claim):
    """`after` is proportional to `width`, and the remainder of `before` does not grow with the width."""

    width: Expr
    checked_by = "evaluation at two widths, to {}"

    def sides(self, before, after, point):
        wider = point.where({self.width: 7 * point(self.width)})
        yield point(before) - point(after), wider(before) - wider(after)
        yield wider(after), 7 * point(after)

    def statement(self, before, after, show):
        return Equation(before, rf"{after} + O(1) \quad ({show(self.width)} \to \infty)")


SPINS = "spins"
"""Law of a column whose entries are 1 or -1."""


@dataclass(frozen=True)
class Average(Claim):
    """One side is the average of the other over the column `variable`: exp(-after/2) = <exp(-before/2)>.

    - `variable`: the column.
    - `law`: its covariance, if it is Gaussian with mean zero, or `SPINS`. The average over spins is a sum.
    - `of`: the side that is averaged.
    - `value`: a column. If it is given, `after` is its covariance over spins with weights exp(-before/2).

    The exponent of a Gaussian average must be quadratic. The integrand is then proportional to another Gaussian density
    around a stationary point in the complex plane. The check measures this density by differences, and compares it with
    the integrand at random points. Spins are enumerated.
    """

    variable: MatrixSymbol
    law: MatrixExpr | str
    of: Literal["before", "after"] = "before"
    value: MatrixExpr | None = None
    tolerance = 1e-8
    beyond = "an average"
    checked_by = "comparison with a Gaussian density, or all configurations of spins, to {}"

    def error(self, before, after, values, rng):
        if self.of == "after":
            before, after = after, before
        if self.law == SPINS:
            return self._error_of_spins(before, after, values)
        covariance = np.atleast_2d(interpret(self.law, values))
        size, precision = len(covariance), np.linalg.inv(covariance)

        def exponent(columns):
            exponents = interpret(before, {**values, self.variable.name: columns[..., None]})
            return exponents + np.sum(columns @ precision * columns, axis=-1)

        # The exponent is quadratic, so differences give the exact centre and width of the tilted Gaussian.
        steps = np.vstack([np.zeros(size), np.eye(size)])
        at = np.broadcast_to(exponent(steps[:, None] + steps), (size + 1, size + 1))
        spread = 2 * np.linalg.inv((at[1:, 1:] - at[1:, :1] - at[:1, 1:] + at[0, 0]).real)
        slope = (exponent(np.eye(size)) - exponent(-np.eye(size))) / 2
        centre, root = -spread @ slope / 2, np.linalg.cholesky((spread + spread.T) / 2)
        scale = np.prod(np.diag(root)) / np.sqrt(np.linalg.det(covariance))
        standard = rng.normal(size=(_DRAWS, size))
        logarithms = np.sum(standard**2, axis=-1) - exponent(centre + standard @ root.T) + interpret(after, values)
        with np.errstate(over="ignore"):
            return float(np.max(np.abs(scale * np.exp(logarithms / 2) - 1)))

    def _error_of_spins(self, before, after, values):
        signs = itertools.product((-1.0, 1.0), repeat=len(values[self.variable.name]))
        every = [np.array(each)[:, None] for each in signs]
        points = [{**values, self.variable.name: spins} for spins in every]
        exponents = np.array([-interpret(before, at) / 2 for at in points])
        log_sum = np.logaddexp.reduce(exponents)
        if self.value is None:
            return difference(interpret(after, values), -2 * log_sum)
        columns, weights = np.array([interpret(self.value, at)[:, 0] for at in points]), np.exp(exponents - log_sum)
        centred = columns - weights @ columns
        return difference(interpret(after, values), (weights[:, None] * centred).T @ centred)

    def statement(self, before, after, show):
        variable = show(self.variable)
        if self.value is not None:
            law = rf"P\left({variable}\right) \propto {_weight(before)}"
            covariance = rf"\operatorname{{Cov}}_{{{variable}}}\left[{show(self.value)}\right]"
            return Equation(covariance, rf"{after} \quad \left({law}\right)")
        if self.law == SPINS:
            configurations = rf"{variable} \in \{{-1, 1\}}^{{{show(self.variable.shape[0])}}}"
            return Equation(rf"-2\log \sum_{{{configurations}}} {_weight(before)}", after)
        over = rf"{variable} \sim \mathcal N\left(0,\, {show(self.law)}\right)"
        averaged = rf"-2\log\left\langle {_weight(before if self.of == 'before' else after)}\right\rangle_{{{over}}}"
        return Equation(averaged, after) if self.of == "before" else Equation(before, averaged)


@dataclass(frozen=True)
class OrderParameterInserted(Claim):
    """`after` contains the order parameter `symbol` in place of `value`, and its conjugate as a Lagrange multiplier.

    Then `after` has the term weight tr(conjugate (value - symbol)), and equals `before` if the symbol has its value.
    """

    symbol: MatrixSymbol
    value: MatrixExpr
    conjugate: MatrixSymbol
    weight: Expr
    checked_by = "evaluation where the delta function is, to {}"

    def sides(self, before, after, point):
        value = point(self.value)
        yield point.where({self.symbol: value})(after), point(before)
        first, second = (point.draw(self.conjugate) for _ in range(2))
        step = first(self.conjugate) - second(self.conjugate)
        yield first(after) - second(after), point(self.weight) * _inner(step, value - point(self.symbol))

    def statement(self, before, after, show):
        variables = rf"d{show(self.symbol)}\, d{show(self.conjugate)}"
        return Equation(_weight(before), rf"\int {variables}\; {_weight(after)}")


@dataclass(frozen=True)
class Volume(Claim):
    """`before` is -2 log density of weights X (n x N), and `after` is -2 log density of their overlap U.

    The claim holds up to a constant, and is tested by linear maps: X -> A X changes the volume element of weights by
    |det A|^N, and the volume element of overlaps by the Jacobian of U -> A U A^T.
    """

    columns: MatrixSymbol
    overlap: MatrixSymbol
    count: Expr
    given: MatrixSymbol | None
    tolerance = 1e-8
    beyond = "a volume"
    checked_by = "Jacobians of linear maps of weights and overlaps, to {}"

    def error(self, before, after, values, rng):
        own, inner = len(values[self.columns.name]), 0
        if self.given is not None:
            inner = round(interpret(self.given.shape[0], values))
        size = own + inner
        count = size + 3  # needs more columns than rows, whatever the width drawn
        values = {**values, self.count.name: count}
        weights = rng.normal(size=(size, count))
        mixing = rng.normal(size=(size, size))
        mixing[:inner, inner:] = 0  # the given rows do not depend on the others
        matrices = before.atoms(MatrixSymbol) | after.atoms(MatrixSymbol)
        others = sorted(matrices - {self.columns, self.overlap, self.given}, key=lambda symbol: symbol.name)
        log_volume = []
        for rows in (weights, mixing @ weights):
            gram = rows @ rows.T / count
            for symbol in others:
                values = {**values, symbol.name: random_value(symbol, values, rng)}
            at = {**values, self.columns.name: rows[inner:], self.overlap.name: gram}
            if self.given is not None:
                at[self.given.name] = gram[:inner, :inner]
            log_volume.append((interpret(before, at) - interpret(after, at)) / 2)
        # The linear map U -> A U A^T on the entries i >= j of symmetric matrices, without the given block.
        i, j = np.tril_indices(size)
        i, j = i[i >= inner], j[i >= inner]
        jacobian = mixing[np.ix_(i, i)] * mixing[np.ix_(j, j)]
        jacobian += (i != j) * mixing[np.ix_(i, j)] * mixing[np.ix_(j, i)]
        of_weights = count * np.linalg.slogdet(mixing[inner:, inner:])[1]
        of_overlaps = np.linalg.slogdet(jacobian)[1]
        return abs(log_volume[1] - log_volume[0] - of_weights + of_overlaps) / max(1.0, abs(of_weights))

    def statement(self, before, after, show):
        weights, overlap = show(self.columns), show(self.overlap)
        return Equation(rf"{_weight(before)}\; d{weights}", rf"{_weight(after)}\; d{overlap}", r"\propto")


@dataclass(frozen=True)
class SameMoments(Claim):
    """`before` and `after`, quadratic in hidden units of one layer, have the same mean over the layer's weights.

    - `weights`: weights of the nonlinear units, one row of two standard normal numbers per unit.
    - `equivalent`: standard normal weights of the linear units.
    - `kernel`, `value`: the kernel of the units, and its value.

    The mean of `before` is a quadrature over directions and lengths of a row, whose error is subtracted. The mean of
    `after` is exact.
    """

    weights: MatrixSymbol
    equivalent: MatrixSymbol
    kernel: MatrixSymbol
    value: MatrixExpr
    tolerance = 1e-5
    beyond = "an average"
    checked_by = "quadrature over directions and lengths of the weights, to {}"

    def error(self, before, after, values, rng):
        width = self.weights.shape[0].name
        if values[self.weights.name].shape[1] != 2:
            raise ValueError("the mean over nonlinear units needs two weights per unit")
        # These rows have exactly the second moments of standard normal numbers.
        count = values[self.equivalent.name].shape[1]
        rows = np.sqrt(count) * np.eye(count)

        def mean(directions, at):
            angles = 2 * np.pi * (np.arange(directions) + rng.uniform()) / directions
            nodes, weights = np.polynomial.legendre.leggauss(directions // _PER_LENGTH)
            lengths = _LONGEST * (nodes + 1) / 2
            density = lengths * np.exp(-(lengths**2) / 2) * weights * _LONGEST / 2
            units = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
            at = {**at, width: directions, self.weights.name: lengths[:, None, None] * units}
            return density @ np.broadcast_to(interpret(before, at), lengths.shape)

        # A kernel that is written as an average is correct at any scale, if it is at one.
        data, errors = [symbol for symbol in self.value.free_symbols if isinstance(symbol, MatrixSymbol)], []
        for scale in _SCALES[:1] if self.value.has(AverageOfKernel) else _SCALES:
            at = {**values, **{symbol.name: scale * values[symbol.name] for symbol in data}}
            of_units = {self.kernel.name: interpret(self.value, at), self.equivalent.name: rows, width: count}
            expected = interpret(after, {**at, **of_units})
            *coarse, found = (mean(directions, at) for directions in _DIRECTIONS)
            uncertain = min(_UNCERTAIN * np.max(np.abs(coarse - found)), _MOST_UNCERTAIN * abs(found))
            errors.append((abs(expected - found) - uncertain) / abs(found))
        return float(np.max([0.0, *errors]))

    def statement(self, before, after, show):
        sides = ((before, self.weights), (after, self.equivalent))
        return Equation(*(rf"\left\langle {side} \right\rangle_{{{show(over)}}}" for side, over in sides))


@dataclass(frozen=True)
class Derivative(Claim):
    """`after` is the derivative of `before` with respect to a number or a matrix.

    - `order`: 1, or 2 for the matrix of second derivatives of a quadratic function of a column.
    - `factor`: a number that multiplies the derivative.
    - `definitions`: symbols that depend on the variable, with their values, which may contain earlier symbols.
    - `at_zero`: whether the variable is zero, like a source.
    """

    variable: Symbol | MatrixSymbol
    order: Literal[1, 2] = 1
    factor: Expr = S.One
    definitions: tuple[tuple[Expr, Expr], ...] = ()
    at_zero: bool = False
    tolerance = 1e-7
    checked_by = "finite differences along random directions, to {}"

    def sides(self, before, after, point):
        factor, variable = point(self.factor), self.variable
        if self.at_zero:
            point = point.where({variable: 0 * point(variable)})
        found, along = defined(point, self.definitions)(after), point.direction(variable)
        if isinstance(variable, SymmetricSymbol):
            yield found, found.T
        # One random direction is enough: a nonzero error is orthogonal to it with probability zero.
        if self.order == 2:
            other = point.direction(variable)

            def mixed(first, second):
                steps = (first + second, first, second)
                both, one, another = (point.where({variable: point(variable) + step})(before) for step in steps)
                return both - one - another + point(before)

            yield mixed(2 * along, other), 2 * mixed(along, other)  # `before` is quadratic
            yield along.T @ found @ other, factor * mixed(along, other)
            return
        slope = factor * point.slope(lambda moved: defined(moved, self.definitions)(before), variable, along)
        if before.is_Matrix:
            yield found @ along, slope
        else:
            yield _inner(found, along) if variable.is_Matrix else found * along, slope

    def statement(self, before, after, show):
        variable, power = show(self.variable), "" if self.order == 1 else f"^{self.order}"
        if self.at_zero and self.definitions:
            moved = r",\; ".join(rf"\delta {show(x)} = {show(value - x)}" for x, value in self.definitions)
            moves = rf"\left[{after}\right] {variable} \quad ({moved})"
            return Equation(rf"\delta\left[{before}\right]", moves)
        factor = "" if self.factor == 1 else rf"{show(self.factor)}\,"
        sign = "d" if self.definitions else r"\partial"
        operator = rf"\frac{{{sign}{power}}}{{{sign} {variable}{power}}}"
        at_zero = rf"_{{{variable} = 0}}" if self.at_zero else ""
        return Equation(rf"{factor}{operator}\left[{before}\right]{at_zero}", after)


@dataclass(frozen=True)
class Stationary(Claim):
    """`before` is stationary in `variable` at `solution`, and has the value `after` there.

    If there is a `multiplier`, `before` is linear in it, and stationary in it if the variable has the value `solution`.
    """

    variable: Symbol | MatrixSymbol
    solution: Expr
    multiplier: Symbol | MatrixSymbol | None = None
    tolerance = 1e-7
    checked_by = "finite differences and evaluation, to {}"

    def sides(self, before, after, point):
        at = point.where({self.variable: point(self.solution)})
        varied = self.variable if self.multiplier is None else self.multiplier
        direction = at.direction(varied)
        yield at.slope(lambda moved: moved(before), varied, direction), 0
        if self.multiplier is None:
            yield point(after), at(before)
        else:
            yield at.draw(varied).slope(lambda moved: moved(before), varied, direction), 0
            yield at(after), at(before)

    def error(self, before, after, values, rng):
        if self.multiplier is not None:
            point = FloatPoint(values, rng)
            direction = point.direction(self.multiplier)
            if abs(point.slope(lambda moved: moved(before), self.multiplier, direction)) < 1e-6:
                return np.inf  # `before` does not depend on the multiplier.
        return super().error(before, after, values, rng)

    def statement(self, before, after, show):
        varied = show(self.variable if self.multiplier is None else self.multiplier)
        return Equation(rf"\underset{{{varied}}}{{\operatorname{{extr}}}} \left[{before}\right]", after)


@dataclass(frozen=True)
class Solves(Claim):
    """The matrix `before` is zero if `variable` equals `after`, which may have to be `positive_definite`."""

    variable: MatrixSymbol
    positive_definite: bool = False
    tolerance = 1e-9
    checked_by = "the residual, to {}"

    def sides(self, before, after, point):
        if self.positive_definite:
            raise NotRational("which of several solutions is positive definite")
        yield point.where({self.variable: point(after)})(before), 0

    def error(self, before, after, values, rng):
        solution = interpret(after, values)
        if self.positive_definite and not np.linalg.eigvalsh(solution)[0] > 0:
            return np.inf
        residual = interpret(before, {**values, self.variable.name: solution})
        # The error is relative to the value at a random point, which is no solution.
        elsewhere = FloatPoint(values, rng).draw(self.variable)(before)
        return float(np.max(np.abs(residual)) / max(1.0, np.max(np.abs(elsewhere))))

    def statement(self, before, after, show):
        return Equation(f"{before} = 0", rf"{show(self.variable)} = {after}", r"\;\Rightarrow\;")


@dataclass(frozen=True)
class LargeSizeLimit(Claim):
    """`after` is the limit of the mean of `before`, a random number, as `size` grows. The correction falls as 1/size.

    `sample(size, values, rng)` returns independent draws of the number at the parameters `at`. Their means are
    extrapolated to infinite size.
    """

    size: Symbol
    sample: Callable[[int, Values, np.random.Generator], np.ndarray]
    at: tuple[tuple[Symbol, float], ...]
    sizes: tuple[int, ...] = (8, 16, 32)
    tolerance = 1e-2
    beyond = "a limit of large random matrices"
    checked_by = f"random matrices, extrapolated to infinite size, within {_STANDARD_ERRORS} standard errors"

    def expressions(self, before, after):
        return (after,)

    def error(self, before, after, values, rng):
        values = {**values, **{symbol.name: value for symbol, value in self.at}}
        draws = [np.asarray(self.sample(size, values, rng)) for size in self.sizes]
        means = [np.mean(each) for each in draws]
        weights = [np.sqrt(len(each)) / np.std(each, ddof=1) for each in draws]
        (_, limit), covariance = np.polyfit(1 / np.array(self.sizes), means, 1, w=weights, cov="unscaled")
        uncertainty = _STANDARD_ERRORS * np.sqrt(covariance[1, 1])
        return self.tolerance * abs(limit - float(interpret(after, values))) / uncertainty

    def statement(self, before, after, show):
        return Equation(rf"\lim_{{{show(self.size)} \to \infty}} {before}", after)
