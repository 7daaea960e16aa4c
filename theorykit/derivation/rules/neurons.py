"""Rules about many neurons: overlaps named, spins summed over, neurons gathered into classes of equal weights."""

from itertools import pairwise

from sympy import Expr, MatrixSymbol, S, Trace, expand, log
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...annotations import checked_arguments
from ...symbolic import (
    Factors,
    entrywise,
    expand_products,
    from_terms,
    log_cosh,
    matrix_terms,
    normal,
    product_of,
    sum_of,
    sum_of_column,
    transpose,
)
from ...symbolic.entries import ENTRY
from ..claims import Equal, NeuronsGathered, OrderParameterInserted, SpinSum
from ..step import Step
from .identities import replace_product
from .terms import RuleError, polynomial


@checked_arguments
def insert_overlap(
    before: Expr, value: MatrixExpr, symbol: MatrixSymbol, conjugate: MatrixSymbol, weight: Expr, **record
) -> Step:
    """Name the column `value` by the overlap `symbol`, enforced by a delta function in Fourier form.

    The Fourier variable is `conjugate`, scaled so that the exponent gains weight tr(conjugate^T (value - symbol)).
    """
    named = _recognise(before, symbol, value)
    after = named + normal(weight * Trace(conjugate.T * (value - symbol)))
    claim = OrderParameterInserted(symbol, value, conjugate, weight)
    return Step("overlap by a delta function", before, after, claim, **record)


@checked_arguments
def name_sum(before: Expr, symbol: MatrixSymbol, value: MatrixExpr, **record) -> Step:
    """Write `symbol` for the sum of products `value`, of which one occurs in `before`, and like terms cancel."""
    definitions = ((symbol, value),)
    after = _recognise(before, symbol, value)
    return Step("named", before, after, Equal(definitions), definitions=definitions, **record)


def _recognise(before: Expr, symbol: MatrixSymbol, value: MatrixExpr) -> Expr:
    """`before` with the longest product of the sum `value` as what it is in terms of `symbol`."""
    (scale, wanted), *rest = sorted(matrix_terms(value), key=lambda term: -len(term[1]))
    held = MatrixSymbol("held", *value.shape)
    changed = replace_product(before, held, wanted)
    if not changed.has(held):
        raise RuleError(f"{product_of(wanted)} does not occur in {before}")
    others = from_terms([(-c / scale, factors) for c, factors in rest], value.shape)
    changed = changed.xreplace({held: sum_of([symbol / scale, others])})
    return expand_products(changed) if before.is_Matrix else normal(changed)


@checked_arguments
def sum_over_spins(before: Expr, spins: MatrixSymbol, **record) -> Step:
    """The sum over all spins s in {-1, 1}^n of exp(s^T u): the product over i of 2 cosh u_i."""
    quadratic, linear, constant = polynomial(before, spins)
    if quadratic or not linear:
        raise RuleError(f"expected an exponent linear in the spins {spins}, got {before}")
    field = expand_products(-sum_of(linear))
    after = constant - 2 * (spins.shape[0] * log(2) + sum_of_column(entrywise(log_cosh, field)))
    return Step("sum over spins", before, expand(after), SpinSum(spins), **record)


@checked_arguments
def gather_classes(
    before: MatrixExpr,
    weights: tuple[MatrixSymbol, MatrixSymbol],
    classes: tuple[MatrixSymbol, MatrixSymbol],
    assignment: MatrixSymbol,
    **record,
) -> Step:
    """W f(U^T x) with an odd f, a sum over N neurons, as N C^T f(Omega x), one over classes.

    Neurons (columns of `weights` W, U) whose column of U is the same but for a sign share a class, with a row of
    `classes` C, Omega: U = Omega^T B and C = B W^T / N, B (classes x neurons) the `assignment`.
    """
    (read, drive), (correlations, distinct) = weights, classes
    count = drive.shape[1]

    def gathered(factors: Factors) -> tuple[Expr, Factors]:
        for i, (left, right) in enumerate(pairwise(factors)):
            if left == read and isinstance(right, ElementwiseApplyFunction) and right.has(drive):
                shared = _of_classes(right, drive, distinct)
                return count, (*factors[:i], transpose(correlations), shared, *factors[i + 2 :])
        return S.One, factors

    terms = [(c, *gathered(factors)) for c, factors in matrix_terms(before)]
    after = from_terms([(expand(c * scale), factors) for c, scale, factors in terms], before.shape)
    if after == expand_products(before):
        raise RuleError(f"no product of {read} and a function of {drive}^T x in {before}")
    definitions = ((drive, distinct.T * assignment), (correlations, assignment * read.T / count))
    claim = NeuronsGathered(assignment, definitions)
    return Step("neurons gathered into classes", before, after, claim, definitions=definitions, **record)


def _of_classes(node: ElementwiseApplyFunction, drive: MatrixSymbol, distinct: MatrixSymbol) -> MatrixExpr:
    """f(c U^T x) of the neurons as f(c Omega x) of the classes, f odd."""
    (scale, (first, *rest)), *others = matrix_terms(node.expr)
    function = node.function
    if others or first != drive.T or any(factor.has(drive) for factor in rest):
        raise RuleError(f"expected a function of {drive}^T x, got {node}")
    if expand(function(-ENTRY) + function(ENTRY)) != 0:
        raise RuleError(f"{function.expr} is not odd: neurons of opposite weights do not share it")
    return (scale * product_of((distinct, *rest))).applyfunc(function)
