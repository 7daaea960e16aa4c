"""Algebra of matrix expressions: distribute products, bring traces and log-determinants to a normal form.

Stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. SymPy's own simplifiers expand
determinants of Kronecker products and cannot take partial traces; the few identities that a theory of random weights
needs are here, each an equality for matrices of any size.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache

from sympy import (
    Add,
    Basic,
    Dummy,
    Expr,
    Function,
    Identity,
    Inverse,
    KroneckerProduct,
    MatAdd,
    MatMul,
    MatPow,
    MatrixSymbol,
    Mul,
    Pow,
    S,
    Trace,
    Transpose,
    ZeroMatrix,
    expand,
    log,
)
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import (
    checked_expression,
    checked_factors,
    checked_instance,
    checked_matrices,
    checked_matrix,
    checked_scalar,
    checked_sequence,
    checked_size,
)
from .atoms import LogDet, PartialTrace, log_det, split_coefficient
from .averages import GaussianAverage
from .blocks import PrincipalBlock, SideBySide, Stacked, principal_block
from .entries import SumOfEntries
from .spectral import EigenvalueSum
from .structure import coefficient_and_factors

Factors = tuple[MatrixExpr, ...]
"""The factors of a product of matrices, in order."""

# numbers inside of which nothing is expanded
_KEPT_WHOLE = (EigenvalueSum, GaussianAverage, SumOfEntries)
# atoms that are linear in their first argument
_LINEAR = (PartialTrace, PrincipalBlock, SideBySide, Stacked)


def kronecker(left: MatrixExpr, right: MatrixExpr) -> MatrixExpr:
    """Kronecker product of two matrices, the scalar coefficients in front: SymPy multiplies no others."""
    left, right = checked_matrix("left", left), checked_matrix("right", right)
    (first, left), (second, right) = split_coefficient(left), split_coefficient(right)
    if isinstance(left, Identity) and isinstance(right, Identity):
        return first * second * Identity(expand(left.shape[0] * right.shape[0]))
    if left == Identity(1) or right == Identity(1):
        return first * second * (right if left == Identity(1) else left)
    if isinstance(right, PartialTrace) and right.shape == (1, 1):
        return first * second * simplify_traces(Trace(right)) * left
    return first * second * KroneckerProduct(left, right)


def transpose(matrix: MatrixExpr) -> MatrixExpr:
    """The transpose, taken inside sums, products and blocks."""
    checked_matrix("matrix", matrix)
    if isinstance(matrix, (MatAdd, MatMul)):
        return from_terms([(c, _transpose_product(factors)) for c, factors in matrix_terms(matrix)], matrix.shape[::-1])
    return _transpose_factor(matrix)


def _transpose_factor(factor: MatrixExpr) -> MatrixExpr:
    if isinstance(factor, Transpose):
        return factor.arg
    if isinstance(factor, Inverse):
        return Inverse(transpose(factor.arg))
    if isinstance(factor, KroneckerProduct):
        return KroneckerProduct(*map(transpose, factor.args))
    if isinstance(factor, BlockDiagMatrix):
        return BlockDiagMatrix(*map(transpose, factor.diag))
    return factor.T


def _transpose_product(factors: Factors) -> Factors:
    return tuple(_transpose_factor(factor) for factor in reversed(factors))


def matrix_terms(expression: MatrixExpr) -> list[tuple[Expr, Factors]]:
    """`expression` as a sum of products: (scalar coefficient, factors that are no sums), like terms gathered.

    Identities are left out and a matrix beside its inverse cancels, so the empty product is the identity.
    """
    checked_matrix("expression", expression)
    return list(_gathered(expression))


@lru_cache(maxsize=4096)
def _gathered(expression: MatrixExpr) -> tuple[tuple[Expr, Factors], ...]:
    gathered: dict[Factors, Expr] = defaultdict(lambda: S.Zero)
    for coefficient, factors in _products(expression):
        gathered[_cancel(factors)] += coefficient
    return tuple((coefficient, factors) for factors, c in gathered.items() if (coefficient := expand(c)) != 0)


def _products(expression: MatrixExpr) -> list[tuple[Expr, Factors]]:
    if isinstance(expression, MatAdd):
        return [term for argument in expression.args for term in _products(argument)]
    if isinstance(expression, MatMul):
        coefficient, factors = coefficient_and_factors(expression)
        result = [(coefficient, ())]
        for factor in factors:
            result = [(a * b, x + y) for a, x in result for b, y in _products(factor)]
        return result
    if isinstance(expression, Transpose):
        return [(c, _transpose_product(factors)) for c, factors in _products(expression.arg)]
    if isinstance(expression, Identity):
        return [(S.One, ())]
    if isinstance(expression, ZeroMatrix):
        return []
    if isinstance(expression, Inverse):
        coefficient, inner = split_coefficient(inverse(expression.arg))
        if isinstance(inner, Inverse):
            return [(coefficient, (inner,))]
        return [(coefficient * c, factors) for c, factors in _products(inner)]
    if isinstance(expression, MatPow) and (repeated := coefficient_and_factors(MatMul(expression))[1]) != [expression]:
        return _products(MatMul(*repeated, evaluate=False))
    if isinstance(expression, KroneckerProduct) and len(expression.args) == 2:
        sides = [(matrix_terms(factor), factor.shape[0]) for factor in expression.args]
        return [
            (a * b, _kronecker_factors(product_of(left, sides[0][1]), product_of(right, sides[1][1])))
            for a, left in sides[0][0]
            for b, right in sides[1][0]
        ]
    if isinstance(expression, _LINEAR):
        inner, *rest = expression.args
        terms = matrix_terms(inner)
        return [(c, (expression.func(product_of(factors, inner.shape[0]), *rest),)) for c, factors in terms]
    return [(S.One, (expression,))]


def _kronecker_factors(left: MatrixExpr, right: MatrixExpr) -> Factors:
    product = kronecker(left, right)
    return () if isinstance(product, Identity) else (product,)


def inverse(matrix: MatrixExpr) -> MatrixExpr:
    """The inverse, taken inside Kronecker products and block diagonals."""
    return _inverse(checked_matrix("matrix", matrix))


@lru_cache(maxsize=4096)
def _inverse(matrix: MatrixExpr) -> MatrixExpr:
    if isinstance(matrix, (MatAdd, MatMul)):
        matrix = expand_products(matrix)
    coefficient, factor = split_coefficient(matrix)
    if isinstance(factor, KroneckerProduct):
        result = kronecker(*map(inverse, factor.args))
    elif isinstance(factor, BlockDiagMatrix):
        result = BlockDiagMatrix(*map(inverse, factor.diag))
    elif isinstance(factor, (Identity, Inverse)):
        result = factor if isinstance(factor, Identity) else factor.arg
    else:
        result = Inverse(factor)
    return result / coefficient


def _cancel(factors: Factors) -> Factors:
    result: list[MatrixExpr] = []
    for factor in factors:
        if result and _are_inverse(factor, result[-1]):
            result.pop()
        else:
            result.append(factor)
    return tuple(result)


def _are_inverse(factor: MatrixExpr, other: MatrixExpr) -> bool:
    square = factor.shape == other.shape == factor.shape[::-1]
    if not square or any(side.has(ZeroMatrix) for side in (factor, other)):
        return False
    return inverse(factor) == other or inverse(other) == factor


def from_terms(terms: Sequence[tuple[Expr, Factors]], shape: Sequence[Expr]) -> MatrixExpr:
    """The sum of products that `matrix_terms` takes apart."""
    terms, (rows, columns) = checked_sequence("terms", terms, "products"), checked_sequence("shape", shape, "sizes", 2)
    shape = (checked_size("shape[0]", rows), checked_size("shape[1]", columns))
    for i, term in enumerate(terms):
        coefficient, factors = checked_sequence(f"terms[{i}]", term, "entries, a coefficient and factors", 2)
        checked_scalar(f"terms[{i}][0]", coefficient)
        checked_factors(f"terms[{i}][1]", factors)
    if not terms:
        return ZeroMatrix(*shape)
    products = [coefficient * product_of(factors, shape[0]) for coefficient, factors in terms]
    return products[0] if len(products) == 1 else MatAdd(*sorted(products, key=lambda product: product.sort_key()))


def product_of(factors: Sequence[MatrixExpr], size: Expr | None = None) -> MatrixExpr:
    """The product of factors; of none, the identity of the size given."""
    size = None if size is None else checked_size("size", size)
    factors = checked_factors("factors", factors)
    if not factors:
        if size is None:
            raise ValueError("size must be given for a product of no factors, the identity")
        return Identity(size)
    return factors[0] if len(factors) == 1 else MatMul(*factors)


def sum_of(matrices: Sequence[MatrixExpr]) -> MatrixExpr:
    """The sum of matrices, as a sum of products."""
    return expand_products(MatAdd(*checked_matrices("matrices", matrices)))


def rotations(factors: Factors) -> list[Factors]:
    """A cyclic product, begun at each of its factors."""
    factors = checked_factors("factors", factors)
    return [factors[i:] + factors[:i] for i in range(len(factors))]


def expand_products(expression: MatrixExpr) -> MatrixExpr:
    """`expression` as a sum of products."""
    return from_terms(matrix_terms(expression), expression.shape)


def normal(expression: Expr) -> Expr:
    """A scalar expression with sums inside traces and log-determinants taken apart; equal terms cancel."""
    return _with_changes(checked_scalar("expression", expression), _trace_of_product)


def simplify_traces(expression: Expr) -> Expr:
    """`normal`, and traces with Kronecker products and block diagonals as traces of smaller matrices."""
    return _with_changes(checked_scalar("expression", expression), _reduce_trace)


def _with_changes(expression: Expr, of_product: Callable[[Factors, Expr], Expr]) -> Expr:
    changes = {node: _trace_by_terms(node.arg, of_product) for node in _outermost(expression, Trace)}
    changes |= {node: _normal_log_det(node.matrix) for node in _outermost(expression, LogDet)}
    changed = expression.xreplace(changes)
    # a polynomial in its traces and log-determinants; these come back in other expressions of a derivation
    numbers = {node: Dummy() for kind in (Trace, LogDet) for node in _outermost(changed, kind)}
    expanded_nodes = {number: _expand_once(node) for node, number in numbers.items()}
    kept = {node: Dummy() for node in _outermost(changed, *_KEPT_WHOLE)}
    expanded = expand(changed.xreplace(kept | numbers), log=True)
    return expanded.xreplace(expanded_nodes).xreplace({number: node for node, number in kept.items()})


@lru_cache(maxsize=4096)
def _expand_once(node: Expr) -> Expr:
    return node if _is_expanded(node) else expand(node, log=True)


@lru_cache(maxsize=16384)
def _is_expanded(node: Basic) -> bool:
    """Whether there is nothing in it that SymPy would expand, which takes SymPy long to find out."""
    if isinstance(node, (Mul, MatMul)):
        expanded = not any(map(_is_composed, node.args))
    elif isinstance(node, Pow):
        expanded = node.base.is_Atom and not isinstance(node.exp, Add)
    else:
        expanded = isinstance(node, (LogDet, Inverse)) or not isinstance(node, (Function, MatPow))
    return expanded and all(map(_is_expanded, node.args))


def _is_composed(factor: Basic) -> bool:
    """Whether SymPy may write a product with this factor in another way."""
    if isinstance(factor, Transpose):
        return type(factor.arg) is not MatrixSymbol
    if isinstance(factor, Inverse):
        return not isinstance(factor.arg, (MatAdd, MatrixSymbol))
    if isinstance(factor, Pow):
        return _is_composed(factor.base)
    return isinstance(factor, (Add, MatAdd, Mul, MatMul, MatPow, Identity, ZeroMatrix))


def _outermost(expression: Expr, *kinds: type) -> list[Expr]:
    atoms = list(expression.atoms(*kinds))
    return [node for node in atoms if not any(other != node and other.has(node) for other in atoms)]


@lru_cache(maxsize=4096)
def _trace_by_terms(matrix: MatrixExpr, of_product: Callable[[Factors, Expr], Expr]) -> Expr:
    return Add(*(c * of_product(factors, matrix.shape[0]) for c, factors in matrix_terms(matrix)))


def _trace_of_product(factors: Factors, size: Expr) -> Expr:
    """The trace, its cyclic product begun at a place that depends on the product alone."""
    if not factors:
        return size
    begun = rotations(factors)
    # a number written as a product stays one
    preferred = [rotation for rotation in begun if rotation[0].shape[0] == 1] or begun
    return Trace(product_of(min(preferred, key=lambda rotation: [factor.sort_key() for factor in rotation]), size))


def _reduce_trace(factors: Factors, size: Expr) -> Expr:
    if len(factors) == 1 and isinstance(factors[0], PartialTrace):
        return _trace_by_terms(factors[0].matrix, _reduce_trace)
    for i, first in enumerate(factors):
        rest = product_of(factors[i + 1 :] + factors[:i], size)
        if isinstance(first, BlockDiagMatrix):
            blocks = [block.shape[0] for block in first.diag]
            parts = [a * principal_block(rest, blocks, i) for i, a in enumerate(first.diag)]
            return Add(*(_trace_by_terms(part, _reduce_trace) for part in parts))
        if isinstance(first, KroneckerProduct) and len(first.args) == 2:
            traced = [i for i in (0, 1) if isinstance(first.args[i], Identity)]
            if traced:
                return _trace_with_identity(first, traced[0], rest)
    return _trace_of_product(factors, size)


def _trace_with_identity(product: KroneckerProduct, traced: int, rest: MatrixExpr) -> Expr:
    kept = product.args[1 - traced]
    dimensions = tuple(factor.shape[0] for factor in product.args)
    if isinstance(rest, Identity):
        return dimensions[traced] * _trace_by_terms(kept, _reduce_trace)
    coefficient, rest = split_coefficient(rest)
    return coefficient * _trace_by_terms(kept * PartialTrace(rest, dimensions, traced), _reduce_trace)


@lru_cache(maxsize=4096)
def _normal_log_det(matrix: MatrixExpr) -> Expr:
    coefficient, factor = split_coefficient(matrix)
    if isinstance(factor, (MatAdd, MatMul)):
        terms = matrix_terms(factor)
        if len(terms) != 1 or len(terms[0][1]) > 1:
            return matrix.shape[0] * log(coefficient) + LogDet(from_terms(terms, factor.shape))
        more, factors = terms[0]
        coefficient, factor = coefficient * more, product_of(factors, factor.shape[0])
    return matrix.shape[0] * log(coefficient) + _log_det_of_factor(factor)


def _log_det_of_factor(factor: MatrixExpr) -> Expr:
    if isinstance(factor, Identity):
        return S.Zero
    if isinstance(factor, Inverse):
        return -_normal_log_det(factor.arg)
    if isinstance(factor, KroneckerProduct):
        left, right = factor.args
        return right.shape[0] * _normal_log_det(left) + left.shape[0] * _normal_log_det(right)
    if isinstance(factor, BlockDiagMatrix):
        return Add(*map(_normal_log_det, factor.diag))
    return LogDet(factor)


def as_number(expression: Expr, matrix: MatrixSymbol, number: Expr) -> Expr:
    """`expression` with the 1 x 1 matrix symbol `matrix` written as the scalar `number`."""
    checked_instance("matrix", matrix, MatrixSymbol)
    if matrix.shape != (1, 1):
        raise ValueError(f"the matrix must be 1 x 1, got {matrix} of shape {matrix.shape}")
    return _as_number(checked_expression("expression", expression), matrix, checked_scalar("number", number))


def _as_number(expression: Expr, matrix: MatrixSymbol, number: Expr) -> Expr:
    if expression == matrix:
        return number
    if not expression.has(matrix):
        return expression
    arguments = [_as_number(argument, matrix, number) for argument in expression.args]
    if isinstance(expression, Inverse):
        return inverse(arguments[0]) if arguments[0].is_Matrix else 1 / arguments[0]
    if isinstance(expression, LogDet):
        return log_det(arguments[0])
    if isinstance(expression, Trace):
        return normal(Trace(arguments[0])) if arguments[0].is_Matrix else arguments[0]
    if isinstance(expression, (MatMul, KroneckerProduct)):
        arguments = [_entry_of_one_by_one(argument) for argument in arguments]
        return MatMul(*arguments) if any(argument.is_Matrix for argument in arguments) else Mul(*arguments)
    if isinstance(expression, MatAdd) and not all(argument.is_Matrix for argument in arguments):
        return Add(*(normal(Trace(term)) if term.is_Matrix else term for term in arguments))
    return expression.func(*arguments)


def _entry_of_one_by_one(expression: Expr) -> Expr:
    if isinstance(expression, PartialTrace) and expression.shape == (1, 1):
        return Trace(expression.matrix)
    return expression
