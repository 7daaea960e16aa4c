"""Matrix differential: gradients of scalar expressions, by reverse accumulation over the expression tree.

SymPy's own matrix derivative silently returns zero for sums of traces and for every log-determinant, so it is not used.
The gradient G of a scalar S is defined by dS = tr(G^T dX). For a symmetric matrix symbol, G is replaced by its
symmetric part, the gradient on the space of symmetric matrices.
"""

from collections.abc import Iterable, Iterator
from functools import partial, singledispatch
from itertools import islice

import sympy as sp
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixElement

from ..checks import checked_instance
from .atoms import (
    Diagonal,
    EntryVariable,
    PartialTrace,
    SymmetricSymbol,
    check_matrices_are_fixed,
    checked_scalar,
    hold,
    matrix_scalars,
    new_variable,
    principal_block,
    split_coefficient,
    trace,
)
from .averages import GaussianAverage, mean_slope
from .functions import JUMPING
from .matrix_functions import Entrywise, factors_of_power, of_entries, sum_of_entries


def gradient(expression: sp.Expr, variable: sp.Symbol | sp.MatrixSymbol) -> sp.Expr:
    """Return the gradient of a scalar expression in a scalar or matrix symbol. It has the shape of the symbol.

    Raises:
        NotImplementedError: If there is no rule for a node of the expression.

    Example:
        >>> from sympy import MatrixSymbol
        >>> from theorykit.symbolic import gradient, log_det, positive_definite
        >>> gradient(log_det(positive_definite("K", 3)), positive_definite("K", 3))
        K**(-1)
    """
    expression = checked_scalar("expression", expression)
    checked_instance("variable", variable, (sp.Symbol, sp.MatrixSymbol))
    if not variable.is_Matrix:
        return _slope_by_number(expression, variable)
    terms = list(_accumulate(expression, sp.S.One, variable))
    if not terms:
        return sp.ZeroMatrix(*variable.shape)
    total = sp.MatAdd(*terms).doit()
    if isinstance(variable, SymmetricSymbol):
        transpose = total.T.doit()
        return total if transpose == total else sp.MatAdd(total / 2, transpose / 2).doit()
    return total


def _accumulate(node: sp.Expr, cotangent: sp.Expr, variable: sp.Expr) -> Iterator[sp.Expr]:
    if node == variable:
        yield cotangent
    elif node.has(variable):
        for argument, contribution in _contributions(node, cotangent, variable):
            yield from _accumulate(argument, contribution, variable)


# Number of paths from an expression to a symbol above which shared subexpressions are differentiated once. Up to it,
# the gradient is a sum of products, whose terms are easier to read and to cancel.
_MOST_PATHS = 500


def _slope_by_number(expression: sp.Expr, variable: sp.Symbol) -> sp.Expr:
    terms = list(islice(_accumulate(expression, sp.S.One, variable), _MOST_PATHS + 1))
    if len(terms) <= _MOST_PATHS:
        return sp.Add(*terms)
    slopes: dict[sp.Expr, sp.Expr] = {variable: sp.S.One}

    def slope(node: sp.Expr) -> sp.Expr:
        if node not in slopes:
            slopes[node] = sp.Add(*(c * slope(argument) for argument, c in _of_numbers(node, sp.S.One, variable)))
        return slopes[node]

    return slope(expression)


def _of_numbers(node: sp.Expr, cotangent: sp.Expr, variable: sp.Symbol) -> Iterator[tuple[sp.Expr, sp.Expr]]:
    """Yield the numbers that a node depends on directly or through matrices, with derivatives times the cotangent."""
    for argument, contribution in _contributions(node, cotangent, variable):
        if argument.has(variable):
            if getattr(argument, "is_Matrix", False):
                yield from _of_numbers(argument, contribution, variable)
            else:
                yield argument, contribution


@singledispatch
def _of_node(node: sp.Expr, cotangent: sp.Expr) -> Iterable[tuple[sp.Expr, sp.Expr]]:
    raise NotImplementedError(
        f"the matrix differential has no rule for {type(node).__name__} (in {node}); write it with sums, products, "
        "inverses, Kronecker products, symbolic.entrywise and the other matrices of theorykit.symbolic"
    )


def _contributions(node: sp.Expr, cotangent: sp.Expr, variable: sp.Expr) -> Iterable[tuple[sp.Expr, sp.Expr]]:
    """Return pairs of an argument of a node and its part of the gradient, at least those with the variable."""
    if isinstance(node, sp.Piecewise):
        return _through_numbers(node, (), _partial, cotangent, variable)
    if isinstance(node, GaussianAverage):
        slope = partial(mean_slope, node, derivative=_partial)
        return _through_numbers(node.integrand, (node.variable,), slope, cotangent, variable)
    return node.pullback(cotangent) if hasattr(node, "pullback") else _of_node(node, cotangent)


_sum = lambda node, g: [(term, g) for term in node.args]  # noqa: E731
_of_node.register(sp.Add, _sum)
_of_node.register(sp.MatAdd, _sum)
_of_node.register(sp.Transpose, lambda node, g: [(node.arg, g.T)])
_of_node.register(sp.Trace, lambda node, g: [(node.arg, g * sp.Identity(node.arg.shape[0]))])
_of_node.register(DiagMatrix, lambda node, g: [(node.args[0], Diagonal(g))])
# d(X^-1) = -X^-1 dX X^-1
_of_node.register(sp.Inverse, lambda node, g: [(node.arg, (-node.T * g * node.T).doit())])
_of_node.register(
    Entrywise, lambda node, g: _through_entries(node.function.expr, node.function.variables, node.matrices, g)
)


@_of_node.register(sp.Mul)
def _(node, cotangent):
    for i, factor in enumerate(node.args):
        yield factor, cotangent * sp.Mul(*node.args[:i], *node.args[i + 1 :])


@_of_node.register(sp.Pow)
def _(node, cotangent):
    yield node.base, cotangent * node.exp * node.base ** (node.exp - 1)
    yield node.exp, cotangent * node * sp.log(node.base)


@_of_node.register(sp.Function)
@_of_node.register(sp.Max)
@_of_node.register(sp.Min)
def _(node, cotangent):
    if isinstance(node, JUMPING):
        raise _without_derivative(node)
    for i, argument in enumerate(node.args):
        # Skip arguments that are orders of derivatives or other whole numbers.
        if argument.free_symbols:
            yield argument, cotangent * node.fdiff(i + 1)


def _without_derivative(node):
    return NotImplementedError(
        f"the matrix differential has no rule for {type(node).__name__} (in {node}), which may jump"
    )


def _partial(expression: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """Differentiate a scalar expression without matrices. Piecewise functions are assumed to be continuous."""
    if isinstance(expression, sp.Piecewise):
        # Differentiate case by case, because an inactive case may have no derivative.
        return sp.Piecewise(*((_partial(value, symbol), condition) for value, condition in expression.args))
    return sp.Add(*_accumulate(expression, sp.S.One, symbol))


def _slope(expression: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """Differentiate an expression without jumps, inside an average or a function of entries."""
    for node in expression.atoms(sp.Piecewise, *JUMPING):
        if symbol in node.free_symbols:
            raise _without_derivative(node)
    slope = _partial(expression, symbol)
    if slope.has(sp.DiracDelta, sp.Derivative):
        raise NotImplementedError(f"SymPy finds no derivative of {expression} by {symbol}: {slope}")
    return slope


@_of_node.register(sp.MatMul)
def _(node, cotangent):
    coefficient, matrices = node.as_coeff_matrices()
    if coefficient != 1:
        yield coefficient, trace((cotangent.T * sp.MatMul(*matrices)).doit())
    # tr(G^T L dX R) = tr((L^T G R^T)^T dX)
    for i, matrix in enumerate(matrices):
        left = [m.T for m in reversed(matrices[:i])]
        right = [m.T for m in reversed(matrices[i + 1 :])]
        yield matrix, sp.MatMul(coefficient, *left, cotangent, *right).doit()


@_of_node.register(sp.MatPow)
def _(node, cotangent):
    return _of_node(sp.MatMul(*factors_of_power(node), evaluate=False), cotangent)


@_of_node.register(sp.KroneckerProduct)
def _(node, cotangent):
    if len(node.args) != 2 or any(factor.shape[0] != factor.shape[1] for factor in node.args):
        raise NotImplementedError(
            f"the matrix differential supports only Kronecker products of two square factors, got {node}"
        )
    # Multiply by the other factor, then trace over it: tr(G^T (dA (x) B)) = tr(tr_1(G (I (x) B^T))^T dA).
    left, right = node.args
    dimensions = (left.shape[0], right.shape[0])
    for traced, factor in ((1, left), (0, right)):
        pair = (sp.Identity(dimensions[0]), right.T) if traced == 1 else (left.T, sp.Identity(dimensions[1]))
        coefficient, rest = split_coefficient((cotangent * sp.KroneckerProduct(*pair)).doit())
        yield factor, coefficient * PartialTrace(rest, dimensions, traced)


@_of_node.register(BlockDiagMatrix)
def _(node, cotangent):
    if len(node.diag) != 2:
        raise NotImplementedError(f"the matrix differential supports only block diagonals of two blocks, got {node}")
    sizes = [block.shape[0] for block in node.diag]
    coefficient, rest = split_coefficient(cotangent.doit())
    for i, block in enumerate(node.diag):
        yield block, coefficient * principal_block(rest, sizes, i)


@_of_node.register(MatrixElement)
def _(node, cotangent):
    if not all(side.is_Integer for side in (*node.parent.shape, node.i, node.j)):
        raise NotImplementedError(f"the matrix differential has no rule for MatrixElement (in {node}) of symbolic size")
    unit = sp.Matrix(*node.parent.shape, lambda i, j: int((i, j) == (node.i, node.j))).as_immutable()
    yield node.parent, cotangent * unit


@_of_node.register(ElementwiseApplyFunction)
def _(node, cotangent):
    (own,) = (variable,) = node.function.variables
    if not isinstance(variable, EntryVariable):
        own = new_variable(EntryVariable, variable.name, node.function.expr)
    value = node.function.expr.xreplace({variable: own})
    of_matrix, *of_numbers = _through_entries(value, (own,), (node.expr,), cotangent)
    if node.shape[1] == 1 and not isinstance(split_coefficient(cotangent)[1], sp.OneMatrix):
        # Write a product of matrices, to which the rules for products apply.
        of_matrix = node.expr, DiagMatrix(node.expr.applyfunc(sp.Lambda(own, _slope(value, own)))) * cotangent
    return [of_matrix, *of_numbers]


def _through_entries(value, variables, matrices, cotangent):
    """Yield contributions to the matrices that the function is applied to, then to the numbers in the function."""
    slope, numbers = _slopes(value, variables)
    weight = new_variable(EntryVariable, "g", value)

    def weighted(symbol):
        return of_entries(weight * slope(symbol), (weight, *variables), (cotangent, *matrices))

    for variable, matrix in zip(variables, matrices, strict=True):
        yield matrix, weighted(variable)
    for leaf, symbol in numbers:
        yield leaf, sum_of_entries(weighted(symbol))


def _through_numbers(value, variables, derivative, cotangent, variable):
    """Yield contributions to the numbers with `variable` in a function of `variables`. Others may have no slope."""
    slope, numbers = _slopes(value, variables, derivative)
    for leaf, symbol in numbers:
        if leaf.has(variable):
            yield leaf, cotangent * slope(symbol)


def _slopes(value, variables, derivative=_slope):
    """Differentiate a function of `variables` with respect to any symbol, and list the other numbers in it.

    A number that contains matrices, such as a trace, is paired with a symbol that represents it.
    """
    check_matrices_are_fixed(value)
    held, back = hold(matrix_scalars(value), real=True)
    value = value.xreplace(held)
    symbols = sorted(value.free_symbols - {*variables, *back}, key=lambda symbol: symbol.name)
    numbers = [*((symbol, symbol) for symbol in symbols), *held.items()]
    return lambda symbol: derivative(value, symbol).xreplace(back), numbers
