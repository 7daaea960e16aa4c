"""The matrix differential: gradients of scalar expressions, by reverse accumulation over the expression tree.

SymPy's own matrix derivative returns zero, silently, for sums of traces and for every log-determinant; it is never
called here. The gradient G of a scalar S is defined by dS = tr(G^T dX); with respect to a symmetric matrix symbol it
is the symmetric part, the gradient within symmetric matrices.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sympy import (
    Add,
    Derivative,
    DiracDelta,
    Dummy,
    Expr,
    Function,
    Identity,
    Inverse,
    KroneckerProduct,
    Lambda,
    MatAdd,
    MatMul,
    MatPow,
    MatrixSymbol,
    Max,
    Min,
    Mul,
    OneMatrix,
    Piecewise,
    Pow,
    S,
    Symbol,
    Trace,
    Transpose,
    ZeroMatrix,
    log,
)
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_instance, checked_scalar
from .atoms import Diagonal, LogDet, PartialTrace, Softmax, SymmetricSymbol, split_coefficient, trace
from .averages import GaussianAverage, mean_slope
from .blocks import PrincipalBlock, SideBySide, Stacked, embed, principal_block
from .bound_variables import EntryVariable, check_matrices_are_fixed, matrix_scalars, new_variable
from .entries import Entrywise, KernelMatrix, SumOfEntries, of_entries, sum_of_entries
from .functions.derivatives import JUMPING, partial_derivative
from .spectral import EigenvalueSum, SpectralFunction, of_eigenvalues
from .structure import coefficient_and_factors

Contribution = tuple[Expr, Expr]


def gradient(expression: Expr, variable: Symbol | MatrixSymbol) -> Expr:
    """Gradient of a scalar expression with respect to a scalar or matrix symbol, of the symbol's shape.

    Raises `NotImplementedError` for a node that has no rule: never a silent zero.

        >>> from sympy import MatrixSymbol
        >>> from theorykit.symbolic import gradient, log_det, positive_definite
        >>> gradient(log_det(positive_definite("K", 3)), positive_definite("K", 3))
        K**(-1)
    """
    checked_instance("variable", variable, (Symbol, MatrixSymbol))
    terms = list(_accumulate(checked_scalar("expression", expression), S.One, variable))
    if not getattr(variable, "is_Matrix", False):
        return Add(*terms)
    if not terms:
        return ZeroMatrix(*variable.shape)
    total = MatAdd(*terms).doit()
    if isinstance(variable, SymmetricSymbol):
        return _symmetric_part(total)
    return total


def _symmetric_part(matrix: MatrixExpr) -> MatrixExpr:
    transpose = matrix.T.doit()
    if transpose == matrix:
        return matrix
    return MatAdd(matrix / 2, transpose / 2).doit()


def _accumulate(node: Expr, cotangent: Expr, variable: Expr) -> Iterator[Expr]:
    """All contributions of `node`, weighted by its cotangent, to the gradient with respect to `variable`."""
    if node == variable:
        yield cotangent
    elif node.has(variable):
        for argument, contribution in _pull_back(node, cotangent):
            if argument.has(variable):
                yield from _accumulate(argument, contribution, variable)


def _pull_back(node: Expr, cotangent: Expr) -> Iterable[Contribution]:
    for node_type, rule in _RULES:
        if isinstance(node, node_type):
            return rule(node, cotangent)
    raise NotImplementedError(
        f"the matrix differential has no rule for {type(node).__name__} (in {node}); write it with sums, products, "
        "inverses, Kronecker products, symbolic.entrywise and the other matrices of theorykit.symbolic"
    )


def _sum(node, cotangent):
    return ((term, cotangent) for term in node.args)


def _scalar_product(node, cotangent):
    for i, factor in enumerate(node.args):
        yield factor, cotangent * Mul(*node.args[:i], *node.args[i + 1 :])


def _scalar_power(node, cotangent):
    yield node.base, cotangent * node.exp * node.base ** (node.exp - 1)
    yield node.exp, cotangent * node * log(node.base)


def _scalar_function(node, cotangent):
    if isinstance(node, JUMPING):
        raise _without_derivative(node)
    for i, argument in enumerate(node.args):
        # by orders of derivatives and other whole numbers there is none
        if argument.free_symbols:
            yield argument, cotangent * partial_derivative(node, i + 1)


def _without_derivative(node):
    return NotImplementedError(
        f"the matrix differential has no rule for {type(node).__name__} (in {node}), which may jump"
    )


def _piecewise(node, cotangent):
    slope, numbers = _slopes(node, (), _partial)
    for leaf, symbol in numbers:
        yield leaf, cotangent * slope(symbol)


def _partial(expression: Expr, symbol: Symbol) -> Expr:
    """The derivative of a scalar expression that is made of no matrices; a function by cases is taken as continuous."""
    if isinstance(expression, Piecewise):
        # case by case: another case may have no derivative where this one holds
        return Piecewise(*((_partial(value, symbol), condition) for value, condition in expression.args))
    return Add(*_accumulate(expression, S.One, symbol))


def _slope(expression: Expr, symbol: Symbol) -> Expr:
    """The derivative in an average or of entries, of an expression that does not jump."""
    for node in expression.atoms(Piecewise, *JUMPING):
        if symbol in node.free_symbols:
            raise _without_derivative(node)
    slope = _partial(expression, symbol)
    if slope.has(DiracDelta, Derivative):
        raise NotImplementedError(f"SymPy finds no derivative of {expression} by {symbol}: {slope}")
    return slope


def _matrix_product(node, cotangent):
    coefficient, matrices = node.as_coeff_matrices()
    if coefficient != 1:
        yield coefficient, trace((cotangent.T * MatMul(*matrices)).doit())
    for i, matrix in enumerate(matrices):
        left = [m.T for m in reversed(matrices[:i])]
        right = [m.T for m in reversed(matrices[i + 1 :])]
        yield matrix, MatMul(coefficient, *left, cotangent, *right).doit()


def _matrix_power(node, cotangent):
    _, factors = coefficient_and_factors(MatMul(node))
    if factors == [node]:
        raise NotImplementedError(f"the matrix differential takes non-zero integer powers only, got {node}")
    return _matrix_product(MatMul(*factors, evaluate=False), cotangent)


def _inverse(node, cotangent):
    inverse_transpose = node.T
    yield node.arg, (-inverse_transpose * cotangent * inverse_transpose).doit()


def _kronecker(node, cotangent):
    if len(node.args) != 2 or any(factor.shape[0] != factor.shape[1] for factor in node.args):
        raise NotImplementedError(f"the matrix differential takes Kronecker products of two square factors, got {node}")
    left, right = node.args
    dimensions = (left.shape[0], right.shape[0])
    for traced, factor in ((1, left), (0, right)):
        pair = (Identity(dimensions[0]), right.T) if traced == 1 else (left.T, Identity(dimensions[1]))
        coefficient, rest = split_coefficient((cotangent * KroneckerProduct(*pair)).doit())
        yield factor, coefficient * PartialTrace(rest, dimensions, traced)


def _partial_trace(node, cotangent):
    # SymPy cannot simplify a Kronecker product whose factor carries a coefficient
    coefficient, rest = split_coefficient(cotangent.doit())
    identity = Identity(node.traced_dimension)
    pair = (identity, rest) if node.traced == 0 else (rest, identity)
    yield node.matrix, coefficient * KroneckerProduct(*pair)


def _function_of_entries(node, cotangent):
    variables, matrices = node.function.variables, node.matrices
    yield from _through_entries(node.function.expr, variables, matrices, cotangent)


def _function_of_one_matrix(node, cotangent):
    (variable,) = node.function.variables
    is_own = isinstance(variable, EntryVariable)
    own = variable if is_own else new_variable(EntryVariable, variable.name, node.function.expr)
    value = node.function.expr.xreplace({variable: own})
    of_matrix, *of_numbers = _through_entries(value, (own,), (node.expr,), cotangent)
    slope = Lambda(own, _slope(value, own))
    coefficient, rest = split_coefficient(cotangent)
    if isinstance(rest, OneMatrix):
        yield node.expr, coefficient * node.expr.applyfunc(slope)
    elif 1 not in node.shape:
        yield of_matrix
    elif node.shape[1] == 1:
        yield node.expr, DiagMatrix(node.expr.applyfunc(slope)) * cotangent
    else:
        yield node.expr, cotangent * DiagMatrix(node.expr.T.applyfunc(slope))
    yield from of_numbers


def _through_entries(value, variables, matrices, cotangent):
    """Contributions to matrices of which a function is taken entry by entry, then to the numbers in the function."""
    slope, numbers = _slopes(value, variables)
    weight = new_variable(EntryVariable, "g", value)

    def weighted(symbol):
        return of_entries(weight * slope(symbol), (weight, *variables), (cotangent, *matrices))

    for variable, matrix in zip(variables, matrices, strict=True):
        yield matrix, weighted(variable)
    for leaf, symbol in numbers:
        yield leaf, sum_of_entries(weighted(symbol))


def _slopes(
    value: Expr, variables: Sequence[Symbol], derivative: Callable[[Expr, Symbol], Expr] | None = None
) -> tuple[Callable[[Symbol], Expr], list[tuple[Expr, Symbol]]]:
    """The derivative of a function of `variables` by any symbol, and the numbers that it depends on besides.

    A number that is made of matrices, such as a trace, comes with a symbol that stands for it.
    """
    check_matrices_are_fixed(value)
    held = {leaf: Dummy(real=True) for leaf in dict.fromkeys(matrix_scalars(value))}
    value, back = value.xreplace(held), {symbol: leaf for leaf, symbol in held.items()}
    symbols = sorted(value.free_symbols - {*variables, *back}, key=lambda symbol: symbol.name)
    numbers = [*((symbol, symbol) for symbol in symbols), *held.items()]
    take = _slope if derivative is None else derivative
    return lambda symbol: take(value, symbol).xreplace(back), numbers


def _softmax(node, cotangent):
    yield node.column, DiagMatrix(node) * cotangent - node * (node.T * cotangent)


def _gaussian_average(node, cotangent):
    slope, numbers = _slopes(node.integrand, (node.variable,), partial(mean_slope, node, derivative=_partial))
    for leaf, symbol in numbers:
        yield leaf, cotangent * slope(symbol)


def _eigenvalue_sum(node, cotangent):
    (variable,) = node.function.variables
    slope, numbers = _slopes(node.function.expr, (variable,))
    yield node.matrix, cotangent * of_eigenvalues(slope(variable), variable, node.matrix)
    for leaf, symbol in numbers:
        yield leaf, cotangent * EigenvalueSum(Lambda(variable, slope(symbol)), node.matrix)


def _spectral_function(node, cotangent):
    """Of a cotangent that is a function of the same matrix alone: both then have the same eigenvectors."""
    coefficient, rest = split_coefficient(cotangent.doit())
    _, factors = coefficient_and_factors(MatMul(rest))
    if not all(_is_function_of(factor, node.matrix) for factor in factors):
        raise NotImplementedError(
            f"the matrix differential has no rule for SpectralFunction (in {node}) in a product with other matrices"
        )
    (variable,) = node.function.variables
    slope, numbers = _slopes(node.function.expr, (variable,))
    yield node.matrix, (coefficient * rest * of_eigenvalues(slope(variable), variable, node.matrix)).doit()
    for leaf, symbol in numbers:
        yield leaf, trace((cotangent.T * of_eigenvalues(slope(symbol), variable, node.matrix)).doit())


def _is_function_of(factor: MatrixExpr, matrix: MatrixExpr) -> bool:
    if isinstance(factor, Inverse):
        return _is_function_of(factor.arg, matrix)
    spectral = isinstance(factor, SpectralFunction) and factor.matrix == matrix
    return spectral or factor == matrix or isinstance(factor, Identity)


def _block_diagonal(node, cotangent):
    if len(node.diag) != 2:
        raise NotImplementedError(f"the matrix differential takes block diagonals of two blocks, got {node}")
    sizes = [block.shape[0] for block in node.diag]
    coefficient, rest = split_coefficient(cotangent.doit())
    for i, block in enumerate(node.diag):
        yield block, coefficient * principal_block(rest, sizes, i)


# First match wins: MatMul and MatAdd derive from Mul and Add, Inverse from MatPow.
_RULES = (
    (MatAdd, _sum),
    (MatMul, _matrix_product),
    (Inverse, _inverse),
    (MatPow, _matrix_power),
    (Transpose, lambda node, cotangent: [(node.arg, cotangent.T)]),
    (KroneckerProduct, _kronecker),
    (PartialTrace, _partial_trace),
    (ElementwiseApplyFunction, _function_of_one_matrix),
    (Entrywise, _function_of_entries),
    (KernelMatrix, lambda node, cotangent: [(node.entries, cotangent)]),
    (Softmax, _softmax),
    (SpectralFunction, _spectral_function),
    (DiagMatrix, lambda node, cotangent: [(node.args[0], Diagonal(cotangent))]),
    (PrincipalBlock, lambda node, cotangent: [(node.matrix, embed(cotangent, node.sizes, node.index))]),
    (BlockDiagMatrix, _block_diagonal),
    (Stacked, lambda node, cotangent: [(node.matrix, SideBySide(cotangent, node.blocks))]),
    (SideBySide, lambda node, cotangent: [(node.matrix, Stacked(cotangent, node.blocks))]),
    (Trace, lambda node, cotangent: [(node.arg, cotangent * Identity(node.arg.shape[0]))]),
    (LogDet, lambda node, cotangent: [(node.matrix, cotangent * Inverse(node.matrix).T)]),
    (EigenvalueSum, _eigenvalue_sum),
    (GaussianAverage, _gaussian_average),
    (SumOfEntries, lambda node, cotangent: [(node.matrix, cotangent * OneMatrix(*node.matrix.shape))]),
    (Add, _sum),
    (Mul, _scalar_product),
    (Pow, _scalar_power),
    (Piecewise, _piecewise),
    ((Function, Max, Min), _scalar_function),
)
