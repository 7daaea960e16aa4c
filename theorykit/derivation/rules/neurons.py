"""Rules about many neurons: overlaps named, spins summed over, neurons gathered into classes of equal weights."""

from itertools import pairwise

from sympy import Expr, Lambda, MatrixSymbol, S, Trace, diff, expand, log, tanh
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_arguments
from ...symbolic import entrywise, log_cosh, normal, sum_of, transpose
from ...symbolic.algebra import Factors, expand_products, from_terms, matrix_terms, product_of
from ...symbolic.matrix_functions import ENTRY, sum_of_column
from ..claims import Equal, NeuronsGathered, OrderParameterInserted, SpinCovariance, SpinSum
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
    field, constant = _field(before, spins)
    after = constant - 2 * (spins.shape[0] * log(2) + sum_of_column(entrywise(log_cosh, field)))
    return Step("sum over spins", before, expand(after), SpinSum(spins), **record)


@checked_arguments
def covariance_over_spins(before: Expr, spins: MatrixSymbol, value: MatrixExpr, **record) -> Step:
    """The covariance of `value`, a column K s + c, over independent spins s in {-1, 1}^n with weights exp(s^T u).

    K diag(1 - tanh^2 u) K^T, for the slope of the mean of a spin in its field is its variance.
    """
    field, _ = _field(before, spins)
    variance = field.applyfunc(Lambda(ENTRY, diff(tanh(ENTRY), ENTRY)))
    terms = [(c, factors) for c, factors in matrix_terms(value) if product_of(factors).has(spins)]
    if not terms or any(factors[-1] != spins or product_of(factors[:-1]).has(spins) for _, factors in terms):
        raise RuleError(f"expected a column that is a matrix times the spins {spins}, got {value}")
    reading = from_terms([(c, factors[:-1]) for c, factors in terms], (value.shape[0], spins.shape[0]))
    after = expand_products(reading * DiagMatrix(variance) * transpose(reading))
    return Step("covariance over spins", before, after, SpinCovariance(spins, value), **record)


def _field(exponent: Expr, spins: MatrixSymbol) -> tuple[MatrixExpr, Expr]:
    """u of an exponent -2 s^T u + c that is linear in the spins s, and c."""
    quadratic, linear, constant = polynomial(exponent, spins)
    if quadratic or not linear:
        raise RuleError(f"expected an exponent linear in the spins {spins}, got {exponent}")
    return expand_products(-sum_of(linear)), constant


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
                shared = _of_classes(right, drive, distinct, parity=-1)
                return count, (*factors[:i], transpose(correlations), shared, *factors[i + 2 :])
        return S.One, factors

    terms = [(c, *gathered(factors)) for c, factors in matrix_terms(before)]
    after = from_terms([(expand(c * scale), factors) for c, scale, factors in terms], before.shape)
    if after == expand_products(before):
        raise RuleError(f"no product of {read} and a function of {drive}^T x in {before}")
    definitions = ((drive, distinct.T * assignment), (correlations, assignment * read.T / count))
    claim = NeuronsGathered(assignment, definitions)
    return Step("neurons gathered into classes", before, after, claim, definitions=definitions, **record)


@checked_arguments
def gather_columns(
    before: MatrixExpr,
    weights: tuple[MatrixSymbol, MatrixSymbol],
    classes: tuple[MatrixSymbol, MatrixSymbol, MatrixSymbol],
    assignment: MatrixSymbol,
    **record,
) -> Step:
    """W diag(f(U^T x)) W^T with an even f, a sum over N neurons, as N X^T diag(f(Omega x)) Xbar, one over classes.

    Neurons whose columns of both `weights` W, U are the same but for a common sign share a class, with a row of
    `classes` Xbar, X, Omega: W = X^T B, U = Omega^T B and Xbar = B W^T / N, B (classes x neurons) the `assignment`.
    """
    (read, drive), (sums, columns, distinct) = weights, classes
    count = drive.shape[1]

    def gathered(factors: Factors) -> tuple[Expr, Factors]:
        for i, (left, middle, right) in enumerate(zip(factors, factors[1:], factors[2:], strict=False)):
            if left == read and right == read.T and isinstance(middle, DiagMatrix) and middle.has(drive):
                shared = DiagMatrix(_of_classes(middle.args[0], drive, distinct, parity=1))
                return count, (*factors[:i], transpose(columns), shared, sums, *factors[i + 3 :])
        raise RuleError(f"no {read} diag(f({drive}^T x)) {read}^T in {product_of(factors)}")

    terms = [(c, *gathered(factors)) for c, factors in matrix_terms(before)]
    after = from_terms([(expand(c * scale), factors) for c, scale, factors in terms], before.shape)
    definitions = (
        (drive, distinct.T * assignment),
        (read, columns.T * assignment),
        (sums, assignment * read.T / count),
    )
    claim = NeuronsGathered(assignment, definitions)
    return Step("neurons gathered into classes", before, after, claim, definitions=definitions, **record)


def _of_classes(node: MatrixExpr, drive: MatrixSymbol, distinct: MatrixSymbol, parity: int) -> MatrixExpr:
    """f(c U^T x) of the neurons as f(c Omega x) of the classes, f of the parity 1, even, or -1, odd."""
    if not isinstance(node, ElementwiseApplyFunction):
        raise RuleError(f"expected a function of {drive}^T x, got {node}")
    (scale, (first, *rest)), *others = matrix_terms(node.expr)
    function = node.function
    if others or first != drive.T or any(factor.has(drive) for factor in rest):
        raise RuleError(f"expected a function of {drive}^T x, got {node}")
    if expand(function(-ENTRY) - parity * function(ENTRY)) != 0:
        kind = "even" if parity == 1 else "odd"
        raise RuleError(f"{function.expr} is not {kind}: neurons of opposite weights do not share it")
    return (scale * product_of((distinct, *rest))).applyfunc(function)
