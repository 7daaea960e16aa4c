"""Algebra of matrix expressions: distribute products, and bring traces and log-determinants to a normal form.

SymPy's own simplifiers expand determinants of Kronecker products and cannot take partial traces.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache

import sympy as sp
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from .atoms import (
    LogDet,
    PartialTrace,
    PrincipalBlock,
    SideBySide,
    SquareRoot,
    Stacked,
    checked_matrices,
    checked_matrix,
    checked_scalar,
    hold,
    matrix_scalars,
    principal_block,
    split_coefficient,
)
from .averages import GaussianAverage
from .matrix_functions import AssumedPositiveDefinite, assume_positive_definite, factors_of_power

Factors = tuple[MatrixExpr, ...]
"""Factors of a product of matrices, in order."""

# These atoms are linear in their first argument.
_LINEAR = (PartialTrace, PrincipalBlock, SideBySide, Stacked)


def kronecker(left: MatrixExpr, right: MatrixExpr) -> MatrixExpr:
    """Return the Kronecker product, with scalar coefficients moved to its front."""
    checked_matrix("left", left)
    checked_matrix("right", right)
    (first, left), (second, right) = split_coefficient(left), split_coefficient(right)
    # I (x) I = I, and a 1 x 1 identity is a factor of one.
    if isinstance(left, sp.Identity) and isinstance(right, sp.Identity):
        return first * second * sp.Identity(sp.expand(left.shape[0] * right.shape[0]))
    if left == sp.Identity(1) or right == sp.Identity(1):
        return first * second * (right if left == sp.Identity(1) else left)
    if isinstance(right, PartialTrace) and right.shape == (1, 1):
        return first * second * simplify_traces(sp.Trace(right)) * left
    return first * second * sp.KroneckerProduct(left, right)


@lru_cache(maxsize=4096)
def matrix_terms(expression: MatrixExpr) -> tuple[tuple[sp.Expr, Factors], ...]:
    """Expand a matrix into a sum of products, pairs of a scalar and factors that are no sums. Collect like terms.

    A matrix cancels its neighbouring inverse. An empty product is the identity.
    """
    gathered: dict[Factors, sp.Expr] = defaultdict(lambda: sp.S.Zero)
    for coefficient, factors in _products(expression):
        left: list[MatrixExpr] = []
        for factor in factors:
            if left and _cancel(left[-1], factor):
                left.pop()
            else:
                left.append(factor)
        gathered[tuple(left)] += coefficient
    return tuple((coefficient, factors) for factors, c in gathered.items() if (coefficient := sp.expand(c)) != 0)


def _cancel(left: MatrixExpr, right: MatrixExpr) -> bool:
    is_square = left.shape == right.shape == right.shape[::-1]
    # Zero has no inverse, although SymPy writes one.
    if not is_square or left.has(sp.ZeroMatrix) or right.has(sp.ZeroMatrix):
        return False
    return inverse(right) == left or inverse(left) == right


def _products(expression: MatrixExpr) -> list[tuple[sp.Expr, Factors]]:
    """Expand once. Terms may be alike, and a matrix may be next to its inverse."""
    if isinstance(expression, sp.MatAdd):
        return [term for argument in expression.args for term in _products(argument)]
    if isinstance(expression, sp.MatMul):
        coefficient, factors = expression.as_coeff_matrices()
        terms = [(coefficient, ())]
        for factor in factors:
            terms = [(a * b, left + right) for a, left in terms for b, right in _products(factor)]
        return terms
    if isinstance(expression, sp.Identity):
        return [(sp.S.One, ())]
    if isinstance(expression, sp.ZeroMatrix):
        return []
    if isinstance(expression, sp.Transpose):
        return [(c, tuple(factor.T for factor in reversed(factors))) for c, factors in _products(expression.arg)]
    if isinstance(expression, sp.KroneckerProduct) and len(expression.args) == 2:
        (of_left, rows), (of_right, columns) = [(matrix_terms(each), each.shape[0]) for each in expression.args]
        products = [
            (a * b, kronecker(product_of(left, rows), product_of(right, columns)))
            for a, left in of_left
            for b, right in of_right
        ]
        return [(c, () if isinstance(factor, sp.Identity) else (factor,)) for c, factor in products]
    if isinstance(expression, _LINEAR):
        inner, *rest = expression.args
        terms = matrix_terms(inner)
        return [(c, (expression.func(product_of(factors, inner.shape[0]), *rest),)) for c, factors in terms]
    # A simpler form of other matrices is expanded again, if there is one.
    same = expression
    if isinstance(expression, sp.Inverse):
        same = inverse(expression.arg)
    elif isinstance(expression, sp.MatPow) and expression.exp.is_Integer and expression.exp != 0:
        return _products(sp.MatMul(*factors_of_power(expression), evaluate=False))
    elif isinstance(expression, AssumedPositiveDefinite):
        same = assume_positive_definite(expand_products(expression.matrix))
    coefficient, factor = split_coefficient(same)
    if type(factor) is type(expression):
        return [(coefficient, (factor,))]
    return [(coefficient * c, factors) for c, factors in _products(factor)]


def inverse(matrix: MatrixExpr) -> MatrixExpr:
    """Return the inverse of a matrix, with inverses moved into Kronecker products and block diagonals."""
    return _inverse(checked_matrix("matrix", matrix))


@lru_cache(maxsize=4096)
def _inverse(matrix: MatrixExpr) -> MatrixExpr:
    if isinstance(matrix, (AssumedPositiveDefinite, sp.MatAdd, sp.MatMul)):
        matrix = expand_products(matrix)
    coefficient, factor = split_coefficient(matrix)
    if isinstance(factor, sp.KroneckerProduct):
        result = kronecker(*map(inverse, factor.args))
    elif isinstance(factor, BlockDiagMatrix):
        result = BlockDiagMatrix(*map(inverse, factor.diag))
    elif isinstance(factor, (sp.Identity, sp.Inverse)):
        result = factor if isinstance(factor, sp.Identity) else factor.arg
    else:
        result = sp.Inverse(factor)
    return result / coefficient


def square_root(matrix: MatrixExpr) -> MatrixExpr:
    """Return the square root of a positive definite matrix, moved into inverses and products, coefficient in front."""
    coefficient, factor = split_coefficient(matrix)
    if not coefficient.is_positive:
        coefficient, factor = sp.S.One, matrix
    root = factor if isinstance(factor, sp.Identity) else SquareRoot(factor)
    if isinstance(factor, sp.Inverse):
        root = inverse(square_root(factor.arg))
    elif isinstance(factor, sp.KroneckerProduct) and any(isinstance(each, sp.Identity) for each in factor.args):
        root = kronecker(*map(square_root, factor.args))
    return sp.sqrt(coefficient) * root


def fold_asinh(expression: sp.Expr) -> sp.Expr:
    """Rewrite r exp(-asinh x) as sqrt((r x)^2 + r^2) - r x for display. It loses digits by cancellation for large x."""
    small = [factor for factor in sp.Mul.make_args(expression) if isinstance(factor, sp.exp)]
    if len(small) != 1 or not isinstance(-small[0].exp, sp.asinh):
        return expression
    scale = expression / small[0]
    product = sp.Mul(scale, *(-small[0].exp).args)
    roots = [factor for factor in sp.Mul.make_args(product) if factor.is_Pow and abs(factor.exp) == sp.S.Half]
    # Write a product with a square under one root.
    shift = product / sp.Mul(*roots) * sp.sqrt(sp.Mul(*(root**2 for root in roots)))
    return sp.sqrt(shift**2 + sp.expand(scale**2)) - shift


def from_terms(terms: Sequence[tuple[sp.Expr, Factors]], shape: Sequence[sp.Expr]) -> MatrixExpr:
    """Build a sum from its terms. This is the inverse of `matrix_terms`."""
    if not terms:
        return sp.ZeroMatrix(*shape)
    products = [coefficient * product_of(factors, shape[0]) for coefficient, factors in terms]
    return products[0] if len(products) == 1 else sp.MatAdd(*sorted(products, key=lambda product: product.sort_key()))


def product_of(factors: Sequence[MatrixExpr], size: sp.Expr | None = None) -> MatrixExpr:
    """Multiply the factors. The empty product is the identity."""
    if not factors:
        return sp.Identity(size)
    return factors[0] if len(factors) == 1 else sp.MatMul(*factors)


def sum_of(matrices: Sequence[MatrixExpr]) -> MatrixExpr:
    """Return the sum of matrices, written as a sum of products."""
    return expand_products(sp.MatAdd(*checked_matrices("matrices", matrices)))


def expand_products(expression: MatrixExpr) -> MatrixExpr:
    return from_terms(matrix_terms(expression), expression.shape)


def normal(expression: sp.Expr) -> sp.Expr:
    """Return a scalar expression with sums inside traces and log-determinants split, so that equal terms cancel.

    Example:
        >>> from sympy import MatrixSymbol, Trace
        >>> from theorykit.symbolic import normal
        >>> A, B = MatrixSymbol("A", 3, 3), MatrixSymbol("B", 3, 3)
        >>> normal(Trace((A + B) * A) - Trace(A * B))
        Trace(A*A)
    """
    return _with_changes(checked_scalar("expression", expression), _trace_of_product)


def simplify_traces(expression: sp.Expr) -> sp.Expr:
    """Apply `normal`, and reduce traces of Kronecker products and block diagonals to traces of smaller matrices."""
    return _with_changes(expression, _reduce_trace)


def _with_changes(expression: sp.Expr, of_product: Callable[[Factors, sp.Expr], sp.Expr]) -> sp.Expr:
    changes = {}
    for node in matrix_scalars(expression):
        if isinstance(node, sp.Trace):
            changes[node] = _trace_by_terms(node.arg, of_product)
        elif isinstance(node, LogDet):
            changes[node] = _normal_log_det(node.matrix)
    changed = expression.xreplace(changes)
    # Expand as a polynomial in traces, log-determinants, sums of entries and averages.
    held, back = hold([*matrix_scalars(changed), *changed.atoms(GaussianAverage)])
    return sp.expand(changed.xreplace(held), log=True).xreplace(back)


@lru_cache(maxsize=4096)
def _trace_by_terms(matrix: MatrixExpr, of_product: Callable[[Factors, sp.Expr], sp.Expr]) -> sp.Expr:
    return sp.Add(*(c * of_product(factors, matrix.shape[0]) for c, factors in matrix_terms(matrix)))


def _trace_of_product(factors: Factors, size: sp.Expr) -> sp.Expr:
    """Return the trace, with a first factor that is the same for all rotations of the product."""
    if not factors:
        return size
    begun = [factors[i:] + factors[:i] for i in range(len(factors))]
    # Prefer a 1 x 1 product, which is a number.
    preferred = [rotation for rotation in begun if rotation[0].shape[0] == 1] or begun
    return sp.Trace(product_of(min(preferred, key=lambda rotation: [factor.sort_key() for factor in rotation]), size))


def _reduce_trace(factors: Factors, size: sp.Expr) -> sp.Expr:
    if len(factors) == 1 and isinstance(factors[0], PartialTrace):
        return _trace_by_terms(factors[0].matrix, _reduce_trace)
    for i, first in enumerate(factors):
        rest = product_of(factors[i + 1 :] + factors[:i], size)
        if isinstance(first, BlockDiagMatrix):
            # tr(diag(A, B) X) needs only the two diagonal blocks of X.
            blocks = [block.shape[0] for block in first.diag]
            parts = [a * principal_block(rest, blocks, i) for i, a in enumerate(first.diag)]
            return sp.Add(*(_trace_by_terms(part, _reduce_trace) for part in parts))
        if isinstance(first, sp.KroneckerProduct) and len(first.args) == 2:
            for traced in (0, 1):
                if isinstance(first.args[traced], sp.Identity):
                    kept, dimensions = first.args[1 - traced], tuple(factor.shape[0] for factor in first.args)
                    if isinstance(rest, sp.Identity):
                        return dimensions[traced] * _trace_by_terms(kept, _reduce_trace)
                    # tr((A (x) I) X) = tr(A tr_1 X)
                    coefficient, rest = split_coefficient(rest)
                    reduced = kept * PartialTrace(rest, dimensions, traced)
                    return coefficient * _trace_by_terms(reduced, _reduce_trace)
    return _trace_of_product(factors, size)


@lru_cache(maxsize=4096)
def _normal_log_det(matrix: MatrixExpr) -> sp.Expr:
    coefficient, factor = split_coefficient(matrix)
    if isinstance(factor, (AssumedPositiveDefinite, sp.MatAdd, sp.MatMul)):
        terms = matrix_terms(factor)
        if len(terms) != 1 or len(terms[0][1]) > 1:
            return matrix.shape[0] * sp.log(coefficient) + LogDet(from_terms(terms, factor.shape))
        more, factors = terms[0]
        coefficient, factor = coefficient * more, product_of(factors, factor.shape[0])
    if isinstance(factor, sp.Identity):
        value = sp.S.Zero
    elif isinstance(factor, sp.Inverse):
        value = -_normal_log_det(factor.arg)
    elif isinstance(factor, sp.KroneckerProduct):
        left, right = factor.args
        # log det (A (x) B) = n_B log det A + n_A log det B
        value = right.shape[0] * _normal_log_det(left) + left.shape[0] * _normal_log_det(right)
    elif isinstance(factor, BlockDiagMatrix):
        value = sp.Add(*map(_normal_log_det, factor.diag))
    else:
        value = LogDet(factor)
    return matrix.shape[0] * sp.log(coefficient) + value


def as_number(expression: sp.Expr, matrix: sp.MatrixSymbol, number: sp.Expr) -> sp.Expr:
    """Replace the 1 x 1 matrix symbol `matrix` in `expression` by the scalar `number`."""
    changed = expression.xreplace({matrix: number * sp.Identity(1)})
    if changed == expression:
        return expression
    if changed.is_Matrix and changed.shape == (1, 1) and not any(factors for _, factors in matrix_terms(changed)):
        return sp.Add(*(coefficient for coefficient, _ in matrix_terms(changed)))
    return expand_products(changed) if changed.is_Matrix else simplify_traces(changed)
