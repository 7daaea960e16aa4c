"""A slow, literal evaluation of the same expressions in NumPy: the oracle for generated code.

Every node is evaluated as written (Kronecker products formed, inverses by an LU solve, log-determinants by LU), so it
shares no algorithm with the lowering, and only the names of the scalar functions.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, reduce
from itertools import product

import numpy as np

# its rooms are imported where one is used, which few users do
import scipy
import sympy as sp
from sympy.core.numbers import ImaginaryUnit
from sympy.logic.boolalg import BooleanFalse, BooleanTrue
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix

from ..checks import checked_instance, shown
from ..symbolic.atoms import Diagonal, LogDet, PartialTrace, PrincipalBlock, SideBySide, Softmax, SquareRoot, Stacked
from ..symbolic.averages import GaussianAverage, breaks, coefficients, exponential_factor, features, singularities
from ..symbolic.bound_variables import BoundVariable, EntryVariable, bound_outside, matrix_scalars
from ..symbolic.matrix_functions import EigenvalueSum, Entrywise, KernelMatrix, SpectralFunction, SumOfEntries
from ..symbolic.numeric import NumericFunction
from .quadrature.oracle import normal_mean
from .scalars.coverage import as_float
from .scalars.table import TABLE

# the value of an expression: complex where the imaginary unit occurs in it, true or false of a condition
Value = np.ndarray | float | int | complex | bool | np.bool_


def interpret(expression: sp.Expr, values: Mapping[str, Value]) -> Value:
    """Evaluate `expression` with the symbols' values by name; sizes must be given too. Matrices are 2-d arrays.

    What occurs several times in it is evaluated once.
    """
    if not isinstance(expression, sp.Basic):
        raise TypeError(f"expression must be a SymPy expression, got {shown(expression)}")
    return _Evaluation(checked_instance("values", values, Mapping, "numbers and arrays by name"), {})(expression)


@dataclass(frozen=True)
class _Evaluation:
    """The values of nodes, given those of the symbols; what has been evaluated is `known`.

    A variable that the expression binds has an entry of its own in `symbols`, by itself and not by its name. Its value
    may be an array of many, and scalar expressions of it are then such arrays.
    """

    symbols: Mapping[str | BoundVariable, Value]
    known: dict[sp.Basic, Value]

    def __call__(self, node: sp.Basic) -> Value:
        if node not in self.known:
            rule = _rule_for(type(node))
            if rule is None:
                raise NotImplementedError(f"the interpreter has no rule for {type(node).__name__} (in {node})")
            self.known[node] = rule(node, self)
        return self.known[node]

    def where(self, values: Mapping[BoundVariable, Value]) -> "_Evaluation":
        """With these values of variables too."""
        return _Evaluation({**self.symbols, **values}, {})


@cache
def _rule_for(kind: type[sp.Basic]) -> Callable[..., Value] | None:
    return next((rule for node_type, rule in _RULES if issubclass(kind, node_type)), None)


def _lookup(node, at):
    key = node if isinstance(node, BoundVariable) else node.name
    if key not in at.symbols:
        raise ValueError(f"values must be a mapping with a number or an array for {node.name}, got {shown(at.symbols)}")
    return at.symbols[key]


def _product(node, at):
    result = 1.0
    for factor in map(at, node.args):
        result = result @ factor if np.ndim(result) and np.ndim(factor) else result * factor
    return result


def _matrix_power(node, at):
    if not node.exp.is_Integer:
        raise NotImplementedError(f"the interpreter takes integer powers of a matrix only, got MatPow {node}")
    return np.linalg.matrix_power(at(node.base), int(node.exp))


def _partial_trace(node, at):
    outer, inner = (int(at(dimension)) for dimension in node.dimensions)
    matrix = at(node.matrix)
    spans = [slice(a * inner, (a + 1) * inner) for a in range(outer)]
    blocks = [[matrix[rows, columns] for columns in spans] for rows in spans]
    if node.traced == 0:
        return sum(blocks[h][h] for h in range(outer))
    return np.array([[np.trace(block) for block in row] for row in blocks])


def _block_matrix(node, at):
    rows, columns = node.blocks.shape
    return np.block([[at(node.blocks[i, j]) for j in range(columns)] for i in range(rows)])


def _principal_block(node, at):
    split, matrix = int(at(node.sizes[0])), at(node.matrix)
    return matrix[:split, :split] if node.index == 0 else matrix[split:, split:]


def _square_root(node, at):
    # Denman-Beavers iteration
    root, inverse = at(node.matrix), np.eye(len(at(node.matrix)))
    for _ in range(60):
        root, inverse = (root + np.linalg.inv(inverse)) / 2, (inverse + np.linalg.inv(root)) / 2
    return root


def _entrywise(node, at):
    matrices = (node.expr,) if isinstance(node, ElementwiseApplyFunction) else node.matrices
    own = {variable: EntryVariable(f"entry {i}") for i, variable in enumerate(node.function.variables)}
    value = node.function.expr.xreplace(own)
    of_entries = np.vectorize(
        lambda *entries: at.where(dict(zip(own.values(), entries, strict=True)))(value), otypes=[float]
    )
    return of_entries(*map(at, matrices))


def _eigenvalues(node, at):
    """The function of each eigenvalue, and orthonormal eigenvectors: by the Schur form, which any matrix has."""
    triangular, vectors = scipy.linalg.schur(at(node.matrix))
    (variable,) = node.function.variables
    own = EntryVariable("eigenvalue")
    value = node.function.expr.xreplace({variable: own})
    return np.array([at.where({own: each})(value) for each in np.diag(triangular)]), vectors


def _spectral_function(node, at):
    values, vectors = _eigenvalues(node, at)
    return (vectors * values) @ vectors.T


def _softmax(node, at):
    weights = np.exp(at(node.column))
    return weights / np.sum(weights)


def _log_det(node, at):
    sign, value = np.linalg.slogdet(at(node.matrix))
    if sign <= 0:
        raise ValueError(f"LogDet of a matrix with non-positive determinant: {node.matrix}")
    return value


def _gaussian_average(node, at):
    rest, tilt = exponential_factor(node)

    def of_variable(expression):
        return lambda points: at.where({node.variable: points})(expression)

    if any(map(bound_outside, matrix_scalars(node.integrand))):
        return normal_mean(lambda points: np.array([of_variable(node.integrand)(point) for point in points]))
    outer = [np.shape(at(variable)) for variable in bound_outside(node)]
    shape = np.broadcast_shapes(*outer)
    places = [*_breaks(node, at, shape), *_narrow(features(rest, node.variable), at, shape)]
    tilt = tilt and (of_variable(tilt[0]), *map(at, tilt[1:]))
    return normal_mean(of_variable(rest), places, shape, tilt)


def _breaks(node, at, shape):
    """Where the integrand has a kink, a jump or a singularity, in arrays of the shape."""
    for function in [*breaks(node), *singularities(node)]:
        if any(variable != node.variable and variable not in at.symbols for variable in bound_outside(function)):
            continue
        polynomial = coefficients(function, node.variable)
        if polynomial:
            yield from _roots(*(np.broadcast_to(at(each), shape) for each in polynomial))
            continue
        points = np.linspace(-38.5, 38.5, 3851).reshape(-1, *(1 for _ in shape))
        values = np.broadcast_to(at.where({node.variable: points})(function), (len(points), *shape))
        changes = np.sign(values[1:]) != np.sign(values[:-1])
        for number in range(int(np.max(np.sum(changes, axis=0), initial=0))):
            is_next = changes & (np.cumsum(changes, axis=0) == number + 1)
            low = np.broadcast_to(points[:-1], changes.shape)
            left = np.where(np.any(is_next, axis=0), np.sum(np.where(is_next, low, 0.0), axis=0), 0.0)
            yield _bisected(at, node.variable, function, left, left + 0.02)


def _narrow(functions, at, shape):
    """Places around which a function of a + b z + c z^2 may be narrow."""
    for polynomial in functions:
        if any(variable not in at.symbols for each in polynomial for variable in bound_outside(each)):
            continue
        a, b, c = (np.broadcast_to(at(each), shape) for each in polynomial)
        # a width is infinite where the function is constant
        with np.errstate(all="ignore"):
            vertex = [] if np.all(c == 0) else [-b / (2 * c)]
            slope = np.sqrt(np.abs(b**2 - 4 * a * c))
            widths = [1 / slope, *([np.abs(c) ** -0.5, slope / np.abs(2 * c)] if vertex else [])]
            places = [
                centre + steps * width
                for centre, width, steps in product([*_roots(a, b, c), *vertex], widths, (-30, -3, 0, 3, 30))
            ]
        yield from (np.where(np.isfinite(place), place, 0.0) for place in places)


def _roots(a, b, c):
    """The real roots of a + b z + c z^2, zero for those that are missing."""
    with np.errstate(all="ignore"):
        found = [-a / b] if np.all(c == 0) else [(-b + side * np.sqrt(b**2 - 4 * a * c)) / (2 * c) for side in (1, -1)]
    return [np.where(np.isfinite(root), root, 0.0) for root in found]


def _bisected(at, variable, function, left, right):
    above = np.sign(at.where({variable: left[None]})(function))
    for _ in range(60):
        middle = (left + right) / 2
        is_left = (np.sign(at.where({variable: middle[None]})(function)) == above)[0]
        left, right = np.where(is_left, middle, left), np.where(is_left, right, middle)
    return (left + right) / 2


def _function(node, at):
    row = TABLE[type(node)]
    whole = row.whole_numbers(node)
    return row.numpy(*(int(argument) if i in whole else at(argument) for i, argument in enumerate(node.args)))


def _piecewise(node, at):
    left, result = True, np.nan
    for value, condition in node.args:
        holds = np.logical_and(left, at(condition))
        # a case may be undefined where it does not hold
        if np.any(holds):
            with np.errstate(all="ignore"):
                result = np.where(holds, at(value), result)
        left = np.logical_and(left, np.logical_not(holds))
    return result[()]


def _relation(compare: Callable) -> Callable:
    return lambda node, at: compare(at(node.lhs), at(node.rhs))


# First match wins, and the matrix nodes derive from the scalar ones.
_RULES = (
    ((sp.Symbol, sp.MatrixSymbol), _lookup),
    ((sp.Number, sp.NumberSymbol), lambda node, at: as_float(node)),
    (ImaginaryUnit, lambda node, at: 1j),
    (sp.Identity, lambda node, at: np.eye(int(at(node.shape[0])))),
    (sp.ZeroMatrix, lambda node, at: np.zeros([int(at(side)) for side in node.shape])),
    (sp.OneMatrix, lambda node, at: np.ones([int(at(side)) for side in node.shape])),
    (BlockMatrix, _block_matrix),
    (PrincipalBlock, _principal_block),
    (Stacked, lambda node, at: np.concatenate(np.split(at(node.matrix), int(at(node.blocks)), axis=1))),
    (SideBySide, lambda node, at: np.hstack(np.split(at(node.matrix), int(at(node.blocks))))),
    (SquareRoot, _square_root),
    (SpectralFunction, _spectral_function),
    (EigenvalueSum, lambda node, at: np.sum(_eigenvalues(node, at)[0])),
    (sp.MatPow, _matrix_power),
    (sp.Transpose, lambda node, at: at(node.arg).T),
    (sp.MatMul, _product),
    (sp.Mul, lambda node, at: reduce(operator.mul, map(at, node.args))),
    ((sp.MatAdd, sp.Add), lambda node, at: sum(map(at, node.args))),
    (sp.KroneckerProduct, lambda node, at: reduce(np.kron, map(at, node.args))),
    (PartialTrace, _partial_trace),
    ((ElementwiseApplyFunction, Entrywise), _entrywise),
    (KernelMatrix, lambda node, at: at(node.entries)),
    (SumOfEntries, lambda node, at: np.sum(at(node.matrix))),
    (Softmax, _softmax),
    (DiagMatrix, lambda node, at: np.diag(at(node.args[0])[:, 0])),
    (Diagonal, lambda node, at: np.diag(at(node.matrix))[:, None]),
    (sp.Trace, lambda node, at: np.trace(at(node.arg))),
    (LogDet, _log_det),
    (GaussianAverage, _gaussian_average),
    (sp.Pow, lambda node, at: at(node.base) ** at(node.exp)),
    (sp.Piecewise, _piecewise),
    (BooleanTrue, lambda node, at: True),
    (BooleanFalse, lambda node, at: False),
    (sp.StrictGreaterThan, _relation(np.greater)),
    (sp.GreaterThan, _relation(np.greater_equal)),
    (sp.StrictLessThan, _relation(np.less)),
    (sp.LessThan, _relation(np.less_equal)),
    (sp.Equality, _relation(np.equal)),
    (sp.Unequality, _relation(np.not_equal)),
    (sp.And, lambda node, at: reduce(np.logical_and, map(at, node.args))),
    (sp.Or, lambda node, at: reduce(np.logical_or, map(at, node.args))),
    (sp.Not, lambda node, at: np.logical_not(at(node.args[0]))),
    (NumericFunction, lambda node, at: np.asarray(type(node).implementation(*map(at, node.args)))[()]),
    (sp.Max, lambda node, at: reduce(np.maximum, map(at, node.args))),
    (sp.Min, lambda node, at: reduce(np.minimum, map(at, node.args))),
    (tuple(TABLE), _function),
)
