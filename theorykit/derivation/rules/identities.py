"""Rules that rewrite: determinant lemma and Woodbury, blocks and paths, names, what may be dropped."""

from collections.abc import Sequence

from sympy import Expr, Identity, KroneckerProduct, MatrixSymbol, S, Trace, expand
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...symbolic import (
    Factors,
    LogDet,
    SideBySide,
    Stacked,
    as_number,
    beside,
    expanded,
    inverse,
    kronecker,
    log_det,
    matrix_terms,
    normal,
    product_of,
    reduced,
    rotations,
    sum_of,
    transposed,
)
from ..claims import (
    Equal,
    EqualUpToConstant,
    LeadingOrder,
)
from ..step import Step
from .terms import RuleError, change_products, change_products_with, inner_matrix, scalar_terms, terms_with


def determinant_lemma(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """logdet(C^{-1} + c Z M Z^T) + logdet C as logdet M + logdet(M^{-1} + c Z^T C Z): Sylvester's identity."""
    changes = {}
    for node in before.atoms(LogDet):
        if low_rank := _low_rank_update(node.matrix, covariance, inner):
            small = _small_matrix(*low_rank, covariance, inner)
            changes[node] = log_det(inner) + log_det(small) - log_det(covariance)
    if not changes:
        raise RuleError(f"no log-determinant of C^-1 + c Z M Z^T in {before}")
    after = normal(before.xreplace(changes))
    return Step("matrix determinant lemma", before, after, Equal(), **record)


def woodbury(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """Z^T (C^{-1} + c Z M Z^T)^{-1} Z as (M^{-1} - M^{-1} (M^{-1} + c Z^T C Z)^{-1} M^{-1}) / c."""
    after = S.Zero
    for coefficient, node in scalar_terms(normal(before)):
        after += coefficient * (_woodbury_in(node, covariance, inner) if isinstance(node, Trace) else node)
    return Step("Woodbury identity", before, normal(after), Equal(), **record)


def _woodbury_in(node: Trace, covariance, inner) -> Expr:
    ((coefficient, factors),) = matrix_terms(node.arg)
    for i in range(1, len(factors) - 1):
        low_rank = _low_rank_update(inverse(factors[i]), covariance, inner)
        if low_rank and factors[i - 1] == transposed(low_rank[1]) and factors[i + 1] == low_rank[1]:
            small = _small_matrix(*low_rank, covariance, inner)
            core = (inverse(inner) - inverse(inner) * inverse(small) * inverse(inner)) / low_rank[0]
            return coefficient * Trace(product_of((*factors[: i - 1], expanded(core), *factors[i + 2 :])))
    return node


def _low_rank_update(matrix: MatrixExpr, covariance: MatrixExpr, inner: MatrixExpr) -> tuple[Expr, MatrixExpr] | None:
    """c and Z if `matrix` is C^{-1} + c Z M Z^T."""
    given = dict((factors, c) for c, factors in matrix_terms(matrix))
    for c, factors in matrix_terms(inverse(covariance)):
        if given.pop(factors, None) != c:
            return None
    scales = {middle: scale for scale, middle in matrix_terms(inner)}
    outer = {(factors[0], transposed(factors[-1])) for factors in given if len(factors) > 1}
    ratios = {c / scales[factors[1:-1]] for factors, c in given.items() if factors[1:-1] in scales}
    if len(given) != len(scales) or not len(outer) == len(ratios) == 1:
        return None
    ((first, last),), (ratio,) = outer, ratios
    whole = {(first, *middle, transposed(first)): ratio * scale for middle, scale in scales.items()}
    return (ratio, first) if first == last and whole == given else None


def _small_matrix(c: Expr, outer: MatrixExpr, covariance: MatrixExpr, inner: MatrixExpr) -> MatrixExpr:
    """M^{-1} + c Z^T C Z."""
    return sum_of([inverse(inner), c * product_of((transposed(outer), covariance, outer))])


def unstack(before: Expr, **record) -> Step:
    """tr(T^T F) with F the k blocks of columns of B, one below the other, as tr(B S), S those of T^T likewise."""
    return Step("blocks unstacked", before, change_products(before, _unstacked), Equal(), **record)


def _unstacked(factors: Factors) -> Expr:
    *between, last = next((r for r in rotations(factors) if isinstance(r[-1], Stacked)), factors)
    if isinstance(last, Stacked):
        last, between = last.matrix, [Stacked(product_of(between), last.blocks)]
    return Trace(product_of((last, *between)))


def gather_blocks(before: Expr, **record) -> Step:
    """tr(B Z^T (A (x) I) Z) with Z the k blocks of R stacked, as tr((A (x) B) R^T R)."""
    after = change_products_with(before, Stacked, _gathered)
    return Step("blocks become path indices", before, after, Equal(), **record)


def _gathered(factors: Factors) -> Expr:
    for rotated in rotations(factors):
        last = rotated[-1]
        if isinstance(last, Stacked) and any(factor == transposed(last) for factor in rotated[:-1]):
            position = next(i for i, factor in enumerate(rotated[:-1]) if factor == transposed(last))
            middle, of_paths = rotated[position + 1 : -1], product_of(rotated[:position], last.shape[1])
            between = Identity(last.blocks)
            if middle:
                if len(middle) != 1 or not isinstance(middle[0], KroneckerProduct):
                    raise RuleError(f"expected A (x) I between the blocks, got {middle}")
                between = middle[0].args[0]
            mixed = kronecker(between, of_paths)
            return Trace(mixed * transposed(last.matrix) * last.matrix)
    raise RuleError(f"no stacked blocks in {factors}")


def join_branches(before: Expr, branches: Sequence[MatrixSymbol], joined: MatrixSymbol, weight: Expr, **record) -> Step:
    """(tr(A R_0^T R_0) + tr(B R_1^T R_1))/N as tr(diag(A, B) R^T R)/N, R = [R_0 | R_1], N = `weight`."""
    blocks = [inner_matrix(weight * terms_with(before, branch), branch) for branch in branches]
    after = Trace(BlockDiagMatrix(*blocks) * joined.T * joined) / weight
    definitions = ((joined, beside(*branches)),)
    return Step("branches side by side", before, after, Equal(definitions), definitions=definitions, **record)


def same_form(before: Expr, readings: MatrixSymbol, inner: MatrixSymbol, weight: Expr, **record) -> Step:
    """What is left, written as tr(L R^T R)/N, N = `weight`: the form that the next layer begins with."""
    value = expanded(weight * inner_matrix(before, readings))
    definitions = ((inner, value),)
    after = Trace(inner * readings.T * readings) / weight
    return Step("induction", before, after, Equal(definitions), definitions=definitions, **record)


def vectorise(before: Expr, length: Expr, **record) -> Step:
    """tr(B Z^T Z) with Z (length x n) the n blocks of a column z side by side: z^T (B (x) I) z."""
    after = change_products(before, lambda factors: _vectorised(factors, length))
    return Step("matrices become columns", before, after, Equal(), **record)


def _vectorised(factors: Factors, length: Expr) -> Expr:
    for *between, first, second in rotations(factors):
        first = transposed(first)
        if isinstance(second, SideBySide) and isinstance(first, SideBySide) and first.blocks == second.blocks:
            mixing = kronecker(product_of(between, second.shape[1]), Identity(length))
            return Trace(transposed(first.matrix) * mixing * second.matrix)
    for single, *rest in rotations(factors):
        # a single block is the column itself
        middle = [i for i in range(1, len(rest)) if rest[i].shape[0] == length]
        if single.shape == (1, 1) and middle:
            mixing = kronecker(single, Identity(length))
            return Trace(product_of((*rest[: middle[0]], mixing, *rest[middle[0] :])))
    raise RuleError(f"no blocks side by side in {factors}")


def name(before: Expr, symbol: MatrixSymbol, value: MatrixExpr, **record) -> Step:
    """Write `symbol` for the product `value` wherever it occurs in a trace."""
    ((scale, wanted),) = matrix_terms(value)

    def named(factors: Factors) -> Expr:
        found = next((each for each in rotations(factors) if each[: len(wanted)] == wanted), None)
        if found is None:
            raise RuleError(f"{value} does not occur in {factors}")
        return Trace(product_of((symbol, *found[len(wanted) :]))) / scale

    definitions = ((symbol, value),)
    after = change_products(before, named)
    return Step("named", before, after, Equal(definitions), definitions=definitions, **record)


def reduce_traces(before: Expr, **record) -> Step:
    """Traces with Kronecker products and block diagonals as traces of smaller matrices."""
    return Step("traces of smaller matrices", before, reduced(before), Equal(), **record)


def write_as_number(before: Expr, matrix: MatrixSymbol, number: Expr, **record) -> Step:
    """The 1 x 1 matrix symbol `matrix` as the scalar that is its entry."""
    definitions = ((matrix, number * Identity(1)),)
    after = as_number(before, matrix, number)
    return Step("1 x 1 matrix as a number", before, after, Equal(definitions), definitions=definitions, **record)


def leading_order(before: Expr, width: Expr, **record) -> Step:
    """The part of an action that grows with `width`, in which it is linear."""
    constant = before.subs(width, 0)
    after = expand(before - constant)
    if after.subs(width, 2 * width) != expand(2 * after):
        raise RuleError(f"{before} is not linear in {width}")
    return Step("leading order", before, after, LeadingOrder(width), **record)


def drop_constants(before: Expr, variables: Sequence[Expr], **record) -> Step:
    """Leave out the terms that do not depend on `variables`."""
    claim = EqualUpToConstant(tuple(variables))
    return Step("constants dropped", before, terms_with(before, *variables), claim, **record)
