"""Rules that rewrite: determinant lemma and Woodbury, blocks and paths, names, what may be dropped."""

from collections.abc import Callable, Mapping, Sequence

from sympy import Add, Expr, Identity, Inverse, KroneckerProduct, MatrixSymbol, Symbol, Trace, Transpose, expand, log
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_arguments
from ...symbolic import Softmax, beside, inverse, kronecker, log_det, normal, sum_of, transpose
from ...symbolic.algebra import (
    Factors,
    as_number,
    expand_products,
    from_terms,
    matrix_terms,
    product_of,
    rotations,
    simplify_traces,
)
from ...symbolic.atoms import LogDet, SideBySide, Stacked
from ..claims import Equal, EqualUpToConstant, LeadingOrder
from ..step import Step
from .terms import RuleError, change_products, change_products_with, inner_matrix, scalar_terms, terms_with


@checked_arguments
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


@checked_arguments
def woodbury(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """Z^T (C^{-1} + c Z M Z^T)^{-1} Z as (M^{-1} - M^{-1} (M^{-1} + c Z^T C Z)^{-1} M^{-1}) / c."""

    def between(factors: Factors, i: int, c: Expr, outer: MatrixExpr) -> Factors:
        if not 0 < i < len(factors) - 1 or factors[i - 1] != transpose(outer) or factors[i + 1] != outer:
            return factors
        small = _small_matrix(c, outer, covariance, inner)
        core = (inverse(inner) - inverse(inner) * inverse(small) * inverse(inner)) / c
        return (*factors[: i - 1], expand_products(core), *factors[i + 2 :])

    after = _with_updates(before, covariance, inner, between)
    return Step("Woodbury identity", before, after, Equal(), **record)


@checked_arguments
def invert_update(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """(C^{-1} + c Z M Z^T)^{-1} as C - c C Z (M^{-1} + c Z^T C Z)^{-1} Z^T C: Woodbury's identity."""

    def inverted(factors: Factors, i: int, c: Expr, outer: MatrixExpr) -> Factors:
        small = _small_matrix(c, outer, covariance, inner)
        correction = c * product_of((covariance, outer, inverse(small), transpose(outer), covariance))
        return (*factors[:i], sum_of([covariance, -correction]), *factors[i + 1 :])

    after = _with_updates(before, covariance, inner, inverted)
    if after == before:
        raise RuleError(f"no inverse of C^-1 + c Z M Z^T in {before}")
    return Step("Woodbury identity", before, after, Equal(), **record)


@checked_arguments
def push_through(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """M Z^T (C^{-1} + c Z M Z^T)^{-1} as (M^{-1} + c Z^T C Z)^{-1} Z^T C: the push-through identity."""
    ((scale, middle),) = matrix_terms(inner)

    def pushed(factors: Factors, i: int, c: Expr, outer: MatrixExpr) -> Factors:
        begin, wanted = i - 1 - len(middle), (*middle, transpose(outer))
        if begin < 0 or factors[begin:i] != wanted:
            return factors
        small = _small_matrix(c, outer, covariance, inner)
        return (*factors[:begin], inverse(small) / scale, transpose(outer), covariance, *factors[i + 1 :])

    after = _with_updates(before, covariance, inner, pushed)
    if after == before:
        raise RuleError(f"no product M Z^T (C^-1 + c Z M Z^T)^-1 in {before}")
    return Step("push-through identity", before, after, Equal(), **record)


def _with_updates(before: Expr, covariance, inner, change: Callable[..., Factors]) -> Expr:
    """change(factors, i, c, Z) for each product of a scalar or matrix whose factor i is (C^{-1} + c Z M Z^T)^{-1}."""

    def changed(matrix: MatrixExpr) -> MatrixExpr:
        return sum_of([c * product_of(one_product(factors), matrix.shape[0]) for c, factors in matrix_terms(matrix)])

    def one_product(factors: Factors) -> Factors:
        for i, factor in enumerate(factors):
            low_rank = isinstance(factor, Inverse) and _low_rank_update(factor.arg, covariance, inner)
            if low_rank:
                return change(factors, i, *low_rank)
        return factors

    if before.is_Matrix:
        return changed(before)
    terms = scalar_terms(normal(before))
    return normal(Add(*(c * (Trace(changed(node.arg)) if isinstance(node, Trace) else node) for c, node in terms)))


@checked_arguments
def rescale(before: Expr, matrix: MatrixExpr, factor: Expr, **record) -> Step:
    """logdet A and A^{-1} as those of c A, for A = `matrix` and c = `factor`."""
    scaled = expand_products(factor * matrix)
    changes = {
        LogDet(matrix): LogDet(scaled) - matrix.shape[0] * log(factor),
        Inverse(matrix): factor * Inverse(scaled),
    }
    if not before.has(*changes):
        raise RuleError(f"neither logdet nor inverse of {matrix} in {before}")
    changed = before.xreplace(changes)
    after = expand_products(changed) if before.is_Matrix else normal(changed)
    return Step("rescaled", before, after, Equal(), **record)


def _low_rank_update(matrix: MatrixExpr, covariance: MatrixExpr, inner: MatrixExpr) -> tuple[Expr, MatrixExpr] | None:
    """c and Z if `matrix` is C^{-1} + c Z M Z^T."""
    given = dict((factors, c) for c, factors in matrix_terms(matrix))
    for c, factors in matrix_terms(inverse(covariance)):
        if given.pop(factors, None) != c:
            return None
    scales = {middle: scale for scale, middle in matrix_terms(inner)}
    for factors, c in given.items():
        if len(factors) > 1 and factors[1:-1] in scales:
            ratio, outer = c / scales[factors[1:-1]], factors[0]
            whole = {(outer, *middle, transpose(outer)): ratio * scale for middle, scale in scales.items()}
            return (ratio, outer) if whole == given else None
    return None


def _small_matrix(c: Expr, outer: MatrixExpr, covariance: MatrixExpr, inner: MatrixExpr) -> MatrixExpr:
    """M^{-1} + c Z^T C Z."""
    return sum_of([inverse(inner), c * product_of((transpose(outer), covariance, outer))])


@checked_arguments
def unstack(before: Expr, **record) -> Step:
    """tr(T^T F) with F the k blocks of columns of B, one below the other, as tr(B S), S those of T^T likewise."""
    return Step("blocks unstacked", before, change_products(before, _unstack), Equal(), **record)


def _unstack(factors: Factors) -> Expr:
    *between, last = next((r for r in rotations(factors) if isinstance(r[-1], Stacked)), factors)
    if isinstance(last, Stacked):
        last, between = last.matrix, [Stacked(product_of(between), last.blocks)]
    return Trace(product_of((last, *between)))


@checked_arguments
def gather_blocks(before: Expr, **record) -> Step:
    """tr(B Z^T (A (x) I) Z) with Z the k blocks of R stacked, as tr((A (x) B) R^T R)."""
    after = change_products_with(before, Stacked, _gather)
    return Step("blocks become path indices", before, after, Equal(), **record)


def _gather(factors: Factors) -> Expr:
    for rotated in rotations(factors):
        last = rotated[-1]
        if isinstance(last, Stacked) and transpose(last) in rotated[:-1]:
            position = rotated.index(transpose(last))
            middle, of_paths = rotated[position + 1 : -1], product_of(rotated[:position], last.shape[1])
            between = Identity(last.blocks)
            if middle:
                if len(middle) != 1 or not isinstance(middle[0], KroneckerProduct):
                    raise RuleError(f"expected A (x) I between the blocks, got {middle}")
                between = middle[0].args[0]
            mixed = kronecker(between, of_paths)
            return Trace(mixed * transpose(last.matrix) * last.matrix)
    raise RuleError(f"no stacked blocks in {factors}")


@checked_arguments
def join_branches(before: Expr, branches: Sequence[MatrixSymbol], joined: MatrixSymbol, weight: Expr, **record) -> Step:
    """(tr(A R_0^T R_0) + tr(B R_1^T R_1))/N as tr(diag(A, B) R^T R)/N, R = [R_0 | R_1], N = `weight`."""
    blocks = [inner_matrix(weight * terms_with(before, branch), branch) for branch in branches]
    after = Trace(BlockDiagMatrix(*blocks) * joined.T * joined) / weight
    definitions = ((joined, beside(*branches)),)
    return Step("branches side by side", before, after, Equal(definitions), definitions=definitions, **record)


@checked_arguments
def same_form(before: Expr, readings: MatrixSymbol, inner: MatrixSymbol, weight: Expr, **record) -> Step:
    """What is left, written as tr(L R^T R)/N, N = `weight`: the form that the next layer begins with."""
    value = expand_products(weight * inner_matrix(before, readings))
    definitions = ((inner, value),)
    after = Trace(inner * readings.T * readings) / weight
    return Step("induction", before, after, Equal(definitions), definitions=definitions, **record)


@checked_arguments
def vectorise(before: Expr, length: Expr, **record) -> Step:
    """tr(B Z^T Z) with Z (length x n) the n blocks of a column z side by side: z^T (B (x) I) z."""
    after = change_products(before, lambda factors: _vectorise(factors, length))
    return Step("matrices become columns", before, after, Equal(), **record)


def _vectorise(factors: Factors, length: Expr) -> Expr:
    for *between, first, second in rotations(factors):
        first = transpose(first)
        if isinstance(second, SideBySide) and isinstance(first, SideBySide) and first.blocks == second.blocks:
            mixing = kronecker(product_of(between, second.shape[1]), Identity(length))
            return Trace(transpose(first.matrix) * mixing * second.matrix)
    for single, *rest in rotations(factors):
        # a single block is the column itself
        middle = [i for i in range(1, len(rest)) if rest[i].shape[0] == length]
        if single.shape == (1, 1) and middle:
            mixing = kronecker(single, Identity(length))
            return Trace(product_of((*rest[: middle[0]], mixing, *rest[middle[0] :])))
    raise RuleError(f"no blocks side by side in {factors}")


@checked_arguments
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


@checked_arguments
def abbreviate(before: Expr, definitions: Mapping[MatrixSymbol | Symbol, Expr], **record) -> Step:
    """Write each symbol of `definitions` for its value, a product or the trace of one, wherever it or A^T occurs."""
    after = before if before.is_Matrix else normal(before)
    for symbol, value in definitions.items():
        if value.is_Matrix:
            ((scale, wanted),) = matrix_terms(value)
            if scale != 1:
                raise RuleError(f"{value} is not a product of matrices alone")
            changed = replace_product(after, symbol, wanted)
        else:
            changed = after.xreplace({normal(value): symbol})
        if changed == after:
            raise RuleError(f"{value} does not occur in {after}")
        after = changed
    pairs = tuple(definitions.items())
    return Step("named", before, after, Equal(pairs), definitions=pairs, **record)


def replace_product(expression: Expr, symbol: MatrixSymbol, wanted: Factors) -> Expr:
    """`expression` with `symbol` for the product of the factors `wanted`, within functions of matrices too."""
    if not expression.is_Matrix:
        terms = scalar_terms(expression)

        def within(node: Expr) -> Expr:
            return node.func(replace_product(*node.args, symbol, wanted)) if node.args else node

        return Add(*(c * within(node) for c, node in terms))
    turned = {wanted: symbol, tuple(transpose(factor) for factor in reversed(wanted)): transpose(symbol)}

    def named(factors: Factors) -> Factors:
        result: Factors = ()
        for factor in factors:
            result += (_with_argument(factor, lambda inner: replace_product(inner, symbol, wanted)),)
            if result[-len(wanted) :] in turned:
                result = (*result[: -len(wanted)], turned[result[-len(wanted) :]])
        return result

    terms = [(c, named(factors)) for c, factors in matrix_terms(expression)]
    return from_terms(terms, expression.shape)


def _with_argument(factor: MatrixExpr, change: Callable[[MatrixExpr], MatrixExpr]) -> MatrixExpr:
    """A function of a matrix, with that changed; any other factor as it is."""
    if isinstance(factor, Transpose):
        return transpose(_with_argument(factor.arg, change))
    if isinstance(factor, ElementwiseApplyFunction):
        return change(factor.expr).applyfunc(factor.function)
    if isinstance(factor, (Inverse, Softmax, DiagMatrix)):
        return factor.func(change(factor.args[0]))
    return factor


@checked_arguments
def write_out(before: Expr, definitions: Mapping[Expr, Expr], **record) -> Step:
    """Every symbol of `definitions` as what it stands for."""
    if not before.has(*definitions):
        raise RuleError(f"none of {tuple(definitions)} occurs in {before}")
    pairs = tuple(definitions.items())
    return Step("written out", before, before.xreplace(dict(definitions)), Equal(pairs), definitions=pairs, **record)


@checked_arguments
def reduce_traces(before: Expr, **record) -> Step:
    """Traces with Kronecker products and block diagonals as traces of smaller matrices."""
    return Step("traces of smaller matrices", before, simplify_traces(before), Equal(), **record)


@checked_arguments
def write_as_number(before: Expr, matrix: MatrixSymbol, number: Expr, **record) -> Step:
    """The 1 x 1 matrix symbol `matrix` as the scalar that is its entry."""
    definitions = ((matrix, number * Identity(1)),)
    after = as_number(before, matrix, number)
    return Step("1 x 1 matrix as a number", before, after, Equal(definitions), definitions=definitions, **record)


@checked_arguments
def leading_order(before: Expr, width: Expr, **record) -> Step:
    """The part of an action that grows with `width`, in which it is linear."""
    constant = before.subs(width, 0)
    after = expand(before - constant)
    if after.subs(width, 2 * width) != expand(2 * after):
        raise RuleError(f"{before} is not linear in {width}")
    return Step("leading order", before, after, LeadingOrder(width), **record)


@checked_arguments
def drop_constants(before: Expr, variables: Sequence[Expr], **record) -> Step:
    """Leave out the terms that do not depend on `variables`."""
    claim = EqualUpToConstant(tuple(variables))
    return Step("constants dropped", before, terms_with(before, *variables), claim, **record)
