"""Rules that differentiate by reverse accumulation: gradients through definitions, responses to displacements."""

from collections.abc import Mapping, Sequence

from sympy import Expr, Lambda, MatrixSymbol, OneMatrix, S, Trace, ZeroMatrix, trigsimp
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_arguments
from ...symbolic import gradient, normal, sum_of, transpose
from ...symbolic.algebra import Factors, expand_products, from_terms, matrix_terms, product_of
from ..claims import Equal, Gradient, Response, Solves
from ..step import Step
from .saddles import solve_for
from .terms import RuleError

Definitions = Sequence[tuple[MatrixSymbol, MatrixExpr]]


@checked_arguments
def slope(
    before: Expr,
    variable: MatrixSymbol,
    through: Definitions = (),
    forces: Mapping[MatrixSymbol, MatrixSymbol] | None = None,
    **record,
) -> Step:
    """The gradient in a matrix symbol, also `through` the symbols that stand for functions of it, by the chain rule.

    A symbol may stand for a function of those before it. `forces` names the gradient in some of them.
    """
    pulled: dict[MatrixSymbol, MatrixExpr] = {}
    named: list[tuple[MatrixSymbol, MatrixExpr]] = []

    def total(target: MatrixSymbol) -> MatrixExpr:
        later = [_pull_back(value, pulled[symbol], target) for symbol, value in through if symbol in pulled]
        return _join(sum_of([gradient(before, target), *later]))

    for symbol, _ in reversed(through):
        pulled[symbol] = total(symbol)
        if forces and symbol in forces:
            named.append((forces[symbol], pulled[symbol]))
            pulled[symbol] = forces[symbol]
    after = total(variable).xreplace({value: symbol for symbol, value in through})
    claim = Gradient(variable, (*through, *named))
    return Step("differentiated", before, after, claim, definitions=tuple(reversed(named)), **record)


def _pull_back(value: MatrixExpr, force: MatrixExpr, target: MatrixSymbol) -> MatrixExpr:
    """A gradient in `value`, a function of `target`, as a gradient in `target`."""
    held = MatrixSymbol("held", *value.shape)
    return gradient(Trace(held.T * value), target).xreplace({held: force})


def _join(matrix: MatrixExpr) -> MatrixExpr:
    """diag(x) 1 as x, and sinh/cosh as tanh."""
    terms = []
    for coefficient, factors in matrix_terms(matrix):
        result: Factors = ()
        for factor in factors:
            if isinstance(factor, OneMatrix) and factor.shape[1] == 1 and result and isinstance(result[-1], DiagMatrix):
                result, factor = result[:-1], result[-1].args[0]
            result += (factor,)
        terms.append((coefficient, tuple(map(_simplify, result))))
    return from_terms(terms, matrix.shape)


def _simplify(factor: MatrixExpr) -> MatrixExpr:
    if not isinstance(factor, ElementwiseApplyFunction):
        return factor
    (entry,) = factor.function.variables
    return factor.expr.applyfunc(Lambda(entry, trigsimp(factor.function.expr)))


@checked_arguments
def solve(before: MatrixExpr, variable: MatrixSymbol, **record) -> Step:
    """The `variable` that makes `before` zero."""
    return Step("solved", before, solve_for(before, variable), Solves(variable), **record)


@checked_arguments
def set_to_zero(before: Expr, *symbols: MatrixSymbol, **record) -> Step:
    """What is left where the matrices `symbols` are zero."""
    zero = tuple((symbol, ZeroMatrix(*symbol.shape)) for symbol in symbols)
    if not before.has(*symbols):
        raise RuleError(f"none of {symbols} occurs in {before}")
    changed = before.xreplace(
        {
            node: expand_products(node.expr.xreplace(dict(zero))).applyfunc(node.function)
            for node in before.atoms(ElementwiseApplyFunction)
        }
    ).xreplace(dict(zero))
    after = expand_products(changed) if before.is_Matrix else normal(changed)
    return Step("set to zero", before, after, Equal(zero), definitions=zero, **record)


@checked_arguments
def response(
    before: MatrixExpr, moved: Mapping[MatrixSymbol, MatrixExpr], displacement: MatrixSymbol, **record
) -> Step:
    """How a column moves with a displacement that the symbols of `moved` follow linearly, as the matrix of it.

    By the gradient of c^T `before` with any column c, so that products of matrices with columns alone are formed.
    """
    probe = MatrixSymbol("c", before.shape[0], 1)
    gradients = {symbol: gradient(Trace(probe.T * before), symbol) for symbol in moved}
    pulled = [gradient(Trace(transpose(gradients[x]) * change), displacement) for x, change in moved.items()]
    terms = [(c, *_without_column(factors, probe)) for c, factors in matrix_terms(sum_of(pulled))]
    shape = (displacement.shape[0], before.shape[0])
    after = transpose(from_terms([(c * scale, factors) for c, scale, factors in terms], shape))
    claim = Response(displacement, tuple(moved.items()))
    return Step("response to a displacement", before, after, claim, **record)


def _without_column(factors: Factors, column: MatrixSymbol) -> tuple[Expr, Factors]:
    """A product that is linear in a column, as a number and the matrices that the column stands behind."""
    for i, factor in enumerate(factors):
        left, right = factors[:i], factors[i + 1 :]
        if factor == column:
            return (normal(Trace(product_of(right))) if right else S.One), left
        if factor == transpose(column):
            return S.One, (*left, *(transpose(other) for other in reversed(right)))
    raise RuleError(f"{column} does not occur in {factors}")
