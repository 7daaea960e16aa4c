"""The algebra of the oracle: NumPy arrays, every node evaluated as it is written, by LU and SciPy.

Values may be stacks: matrices have the axes of a stack first, and scalars have only these axes. Averages are integrated
until they no longer change. They share neither panels nor an error estimate with compiled code, which does not refine
its rules.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, ClassVar

import numpy as np
import scipy
import sympy as sp

from ..checks import checked_instance
from ..symbolic.atoms import bound_outside, matrix_scalars
from ..symbolic.averages import GaussianAverage, breaks, coefficients, features, singularities, without_exponential
from ..symbolic.envelopes import FunctionOfLoss, MoreauEnvelope, derivative
from ..symbolic.numeric import NumericFunction, compiled
from .evaluate import Algebra, At
from .functions import FARTHEST

# Edges of panels in standard deviations. The density beyond the last edge is zero in float64.
_EDGES = np.array([1.3, 3.1, 5.3, 8.3, 12.7, 20.0, 30.0, 38.5])
_EDGES = np.concatenate([-_EDGES[::-1], _EDGES])
# Nodes on (0, 1) of a rule and of a coarser one, with the weights of both rules.
_FINE, _COARSE = (np.polynomial.legendre.leggauss(count) for count in (16, 8))
_NODES = (1 + np.concatenate([_FINE[0], _COARSE[0]])) / 2
_WEIGHTS = np.array([[*_FINE[1], *np.zeros(8)], [*np.zeros(16), *_COARSE[1]]]) / 2
# Difference of the two rules on a panel, relative to the mean absolute value, below which the panel is not halved. The
# error of the finer rule is smaller by orders of magnitude.
_TOLERANCE = 1e-14
# Largest number of panels and of halvings. A function with large rounding errors would need infinitely many.
_MOST_PANELS, _MOST_HALVINGS = 1024, 100

Function = Callable[[np.ndarray], np.ndarray]


def _piecewise(node, at):
    # A case may be undefined where its condition does not hold.
    left, result = True, np.nan
    for value, condition in node.args:
        holds = np.logical_and(left, at(condition))
        if np.any(holds):
            with np.errstate(all="ignore"):
                result = np.where(holds, at(value), result)
        left = np.logical_and(left, np.logical_not(holds))
    return result[()]


def _product(node, at):
    matrices = [at(factor) for factor in node.args if factor.is_Matrix]
    scale = reduce(operator.mul, (at(factor) for factor in node.args if not factor.is_Matrix), 1.0)
    return np.expand_dims(scale, (-2, -1)) * reduce(operator.matmul, matrices)


def _power(node, at):
    if not node.exp.is_Integer:
        raise NotImplementedError(f"a power of a matrix must have an integer exponent, got MatPow {node}")
    return np.linalg.matrix_power(at(node.base), int(node.exp))


def _average(node, at):
    of_variable = partial(at.function, (node.variable,))
    if any(map(bound_outside, matrix_scalars(node.integrand))):
        each = of_variable(node.integrand)
        return normal_mean(lambda points: np.array(list(map(each, points))))
    if (found := without_exponential(node)) is not None:
        number, average = found
        return at(number) * at(average)
    outside = [*bound_outside(node), *matrix_scalars(node.integrand)]
    shape = np.broadcast_shapes(*(np.shape(at(each)) for each in outside))
    # Panels end at kinks and singularities.
    kinks, places = [], []
    for function in [*breaks(node), *singularities(node)]:
        if polynomial := coefficients(function, node.variable):
            kinks.append(polynomial)
        else:
            places += _sign_changes(of_variable(function), shape)
    # Around the roots and the vertex, a function of a + b z + c z^2 may vary rapidly.
    steep = features(node)
    for polynomial in [*kinks, *steep]:
        a, b, c = (np.broadcast_to(at(each), shape) for each in polynomial)
        with np.errstate(all="ignore"):
            size, is_line = np.sqrt(np.abs(b**2 - 4 * a * c)), np.all(c == 0)
            centres = [-a / b] if is_line else [(-b + side * size) / (2 * c) for side in (1, -1, 0)]
            widths = [1 / size] if is_line else [1 / size, np.abs(c) ** -0.5, size / np.abs(2 * c)]
            places += centres
            if polynomial in steep:
                places += [centre + n * width for centre in centres for width in widths for n in (-30, -3, 3, 30)]
    places = [np.where(np.isfinite(place), place, 0.0) for place in places]
    return normal_mean(of_variable(node.integrand), places, shape)


def _sign_changes(function: Function, shape: Sequence[int]) -> list[Any]:
    """Locate sign changes by bisection, each in all elements of the batch, or at zero if an element has fewer."""
    grid = np.linspace(-38.5, 38.5, 3851).reshape(-1, *(1 for _ in shape))
    above = np.broadcast_to(function(grid), (len(grid), *shape)) > 0
    changes = above[1:] != above[:-1]
    order = np.argsort(~changes, axis=0, kind="stable")[: int(np.max(np.sum(changes, axis=0), initial=0))]
    exists, is_above = (np.take_along_axis(each, order, axis=0) for each in (changes, above[:-1]))
    left, width = np.take_along_axis(np.broadcast_to(grid[:-1], changes.shape), order, axis=0), 0.02
    for _ in range(60):
        width /= 2
        left = np.where((function(left + width) > 0) == is_above, left + width, left)
    return list(np.where(exists, left, 0.0))


def normal_mean(
    function: Function, places: Iterable[np.ndarray | float] = (), shape: Sequence[int] = ()
) -> np.ndarray | float | complex:
    """Average `function` over a standard normal variable, to a relative accuracy of about 1e-14.

    Args:
        function: takes an array of points, whose trailing axes have the shape `shape` or broadcast to it. It may have
            kinks, jumps and integrable singularities.
        places: their positions, as numbers or arrays of shape `shape`.
        shape: shape of the batch.
    """
    grid = np.broadcast_to(_EDGES.reshape(-1, *(1 for _ in shape)), (len(_EDGES), *shape))
    inner = [np.clip(np.broadcast_to(at, (1, *shape)), grid[:1], grid[-1:]) for at in places]
    edges = np.sort(np.concatenate([grid, *inner]), axis=0)
    # Each panel is integrated from both ends to its middle, in u with z = end + reach u^2, which softens singularities
    # at the ends. Panels are along the first axis, and nodes along the second.
    half = (edges[1:] - edges[:-1]) / 2
    ends, reach = np.concatenate([edges[:-1], edges[1:]]), np.concatenate([half, -half])
    left, length, size, total = np.zeros(len(ends)), 1.0, None, np.zeros(shape)
    for halvings in range(_MOST_HALVINGS):
        u = (left[:, None] + length * _NODES).reshape(len(ends), -1, *(1 for _ in shape))
        z = ends[:, None] + reach[:, None] * u**2
        points = z.reshape(-1, *shape)
        with np.errstate(all="ignore"):
            density = np.exp(-(points**2) / 2)
            terms = np.broadcast_to(function(points), points.shape) * density
        terms, density = terms.reshape(z.shape), density.reshape(z.shape)
        # Set overflows at large |z| to zero, because a function whose mean exists is negligible there. A point that is
        # rounded to the end of its panel may be at a singularity, and has negligible weight.
        negligible = (density < 1e-150) | (z == ends[:, None])
        terms = np.where(negligible & ~np.isfinite(terms), 0.0, terms)
        terms = terms * 2 * u * np.abs(reach[:, None]) * length
        fine, coarse = np.tensordot(_WEIGHTS, terms, ([1], [1]))
        size = np.nansum(np.abs(fine), axis=0) if size is None else size
        # The density has a relative rounding error in proportion to z^2, which no halving removes.
        unresolved = np.abs(fine - coarse) > _TOLERANCE * (size + np.max(z**2, axis=1) * np.abs(fine))
        # A NaN is not halved again, because the comparison is false.
        again = np.any(unresolved.reshape(len(left), -1), axis=1)
        again &= (len(left) < _MOST_PANELS) & (halvings < _MOST_HALVINGS - 1)
        total = total + np.sum(fine[~again], axis=0)
        if not np.any(again):
            break
        length = length / 2
        ends, reach = (np.concatenate([each[again]] * 2) for each in (ends, reach))
        left = np.concatenate([left[again], left[again] + length])
    return total / np.sqrt(2 * np.pi)


def _of_loss(node: Any, at: Any) -> Any:
    """Evaluate a proximal point or a Moreau envelope: bisect until the ends are neighbours in float64."""
    given = [np.asarray(at(number)) for number in node.numbers]
    # There is no minimum around a complex number.
    numbers = (np.where(np.imag(each) == 0, np.real(each), np.nan) for each in given)
    omega, variance, *parameters = np.broadcast_arrays(*numbers)
    loss, slope = (at.function(node.loss.variables, derivative(node.loss, order)) for order in (0, 1))
    with np.errstate(all="ignore"):
        ends = omega, np.clip(omega - variance * slope(omega, *parameters), -FARTHEST, FARTHEST)
        low, high = np.minimum(*ends), np.maximum(*ends)
        while np.any((low < (middle := low + (high - low) / 2)) & (middle < high)):
            is_above = middle - omega + variance * slope(middle, *parameters) > 0
            low, high = np.where(is_above, low, middle), np.where(is_above, middle, high)
        if isinstance(node, MoreauEnvelope):
            high = (high - omega) ** 2 / (2 * variance) + loss(high, *parameters)
    return high[()]


class Numpy(Algebra):
    """Evaluate in NumPy. Shares no algorithm with `Jax`."""

    rules: ClassVar = {
        sp.Piecewise: _piecewise,
        sp.MatMul: _product,
        sp.MatPow: _power,
        FunctionOfLoss: _of_loss,
        GaussianAverage: _average,
        NumericFunction: lambda node, at: np.asarray(compiled(type(node))(*map(at, node.args)))[()],
    }

    @staticmethod
    def function(row, node, at):
        whole = row.whole_numbers(node)
        numbers = [int(each) if i in whole else at(each) for i, each in enumerate(node.args)]
        with np.errstate(all="ignore"):
            return row.numpy(*numbers)

    @staticmethod
    def entrywise(function, *matrices):
        """Apply a function of numbers. The axes of stacks come last, as in scalars."""
        entries = [np.moveaxis(matrix, (-2, -1), (0, 1)) for matrix in matrices]
        values = np.broadcast_arrays(function(*entries), *entries)[0].astype(float)
        return np.moveaxis(values, (0, 1), (-2, -1))

    @staticmethod
    def joined(blocks, axis):
        batch = np.broadcast_shapes(*(block.shape[:-2] for block in blocks))
        return np.concatenate([np.broadcast_to(block, batch + block.shape[-2:]) for block in blocks], axis)

    @staticmethod
    def log_det(matrix, at):
        with np.errstate(invalid="ignore"):
            sign, value = np.linalg.slogdet(at(matrix))
        if np.any(sign <= 0):
            raise ValueError(f"LogDet needs a matrix with a positive determinant, got {matrix}")
        return value

    @staticmethod
    def square_root(matrix, at):
        return scipy.linalg.sqrtm(at(matrix))

    @staticmethod
    def assumed_definite(matrix):
        return np.where(np.linalg.eigvalsh(matrix)[..., :1, None] > 0, matrix, np.nan)

    @staticmethod
    def trace(matrix, at):
        return np.trace(at(matrix), axis1=-2, axis2=-1)

    @staticmethod
    def kron(left, right):
        product = left[..., :, None, :, None] * right[..., None, :, None, :]
        return product.reshape(*product.shape[:-4], -1, left.shape[-1] * right.shape[-1])


def interpret(expression: sp.Expr, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression in NumPy, as written, but Gaussian averages to 1e-14 whatever their `nodes`.

    Args:
        expression: a scalar or matrix expression.
        values: values of its symbols and sizes by name. Matrices are 2-d arrays, or stacks of them along the first
            axes. The value is then a stack, too.

    Raises:
        ValueError: a symbol has no value.
        NotImplementedError: there is no rule for a part of the expression.
    """
    checked_instance("expression", expression, sp.Basic, "a SymPy expression")
    return At(checked_instance("values", values, Mapping, "numbers and arrays by name"), Numpy)(expression)
