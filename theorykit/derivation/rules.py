"""Rules of the dynamics of tokens. A rule analyses an expression, computes the result, and returns the step.

Expressions are actions S with the integrand exp(-S/2). A rule matches a pattern in `before`, and raises `RuleError` if
there is no match. The keywords `record` of every rule are fields of `Step`, such as `equations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from sympy import (
    Add,
    Expr,
    Inverse,
    Lambda,
    MatrixSymbol,
    OneMatrix,
    S,
    Symbol,
    Trace,
    Transpose,
    ZeroMatrix,
    diff,
    expand,
    log,
    tanh,
    trigsimp,
)
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import checked_arguments
from ..symbolic import Softmax, entrywise, gradient, log_cosh, normal, sum_of
from ..symbolic.algebra import Factors, expand_products, from_terms, matrix_terms, product_of, rotations, transpose
from ..symbolic.atoms import LogDet
from ..symbolic.matrix_functions import ENTRY, sum_of_column
from . import claims
from .solving import RuleError, solve_for
from .step import Step

Definitions = Sequence[tuple[MatrixSymbol, MatrixExpr]]
"""Matrix symbols with their values, each of which may contain earlier symbols."""


@checked_arguments
def terms_with(expression: Expr, *symbols: Expr) -> Expr:
    """Return the terms of a sum that contain any of `symbols`."""
    return Add(*(term for term in Add.make_args(normal(expression)) if term.has(*symbols)))


def _scalar_terms(expression: Expr) -> list[tuple[Expr, Expr]]:
    """Split a normal scalar into pairs (coefficient, trace or log-determinant). A term x without either is (x, 1)."""
    return [term.as_independent(Trace, LogDet, as_Add=False) for term in Add.make_args(expression)]


@checked_arguments
def polynomial(expression: Expr, variable: MatrixSymbol) -> tuple[list, list, Expr]:
    """Split a quadratic polynomial in a column v into matrices A (of v^T A v), columns b (of 2 b^T v), and the rest."""
    quadratic, linear, constant = [], [], S.Zero
    for coefficient, node in _scalar_terms(normal(expression)):
        if not node.has(variable):
            constant += coefficient * node
            continue
        if not isinstance(node, Trace):
            raise RuleError(f"{variable} may occur only in linear and quadratic forms, but occurs in {node}")
        for c, factors in matrix_terms(node.arg):
            degree, rest = _occurrence(factors, variable)
            if degree == 2:
                quadratic.append(from_terms([(coefficient * c, rest)], (variable.shape[0],) * 2))
            else:
                linear.append(from_terms([(coefficient * c / 2, rest)], variable.shape))
    return quadratic, linear, constant


def _occurrence(factors: Factors, variable: MatrixSymbol) -> tuple[int, Factors]:
    """Return how often the column occurs in a cyclic product, 1 or 2, and the other factors."""
    for rotated in rotations(factors):
        if rotated[0] == variable.T and not any(factor.has(variable) for factor in rotated[1:-1]):
            if rotated[-1] == variable:
                return 2, rotated[1:-1]
            if not rotated[-1].has(variable):
                return 1, rotated[1:]
    for rotated in rotations(factors):
        if rotated[-1] == variable and not any(factor.has(variable) for factor in rotated[:-1]):
            return 1, tuple(transpose(factor) for factor in reversed(rotated[:-1]))
    raise RuleError(f"the exponent is not of second degree in {variable}: {factors}")


def _ordered(expression: Expr) -> Expr:
    return expand_products(expression) if expression.is_Matrix else normal(expression)


def _defined(rule: str, before: Expr, after: Expr, definitions: tuple, record: dict) -> Step:
    """Make a step whose sides are equal if symbols have the values in `definitions`."""
    return Step(rule, before, after, claims.Equal(definitions), definitions=definitions, **record)


@checked_arguments
def abbreviate(before: Expr, definitions: Mapping[MatrixSymbol | Symbol, Expr], **record) -> Step:
    """Replace the values in `definitions` by their symbols. A value is a product of matrices or the trace of one."""
    after = before if before.is_Matrix else normal(before)
    for symbol, value in definitions.items():
        if value.is_Matrix:
            ((scale, wanted),) = matrix_terms(value)
            if scale != 1:
                raise RuleError(f"{value} must be a product of matrices without a number")
            changed = _replace_product(after, symbol, wanted)
        else:
            changed = after.xreplace({normal(value): symbol})
        if changed == after:
            raise RuleError(f"{value} does not occur in {after}")
        after = changed
    return _defined("named", before, after, tuple(definitions.items()), record)


@checked_arguments
def name_sum(before: Expr, symbol: MatrixSymbol, value: MatrixExpr, **record) -> Step:
    """Replace the sum of products `value`, one of which occurs in `before`, by `symbol`. Like terms cancel."""
    return _defined("named", before, _recognise(before, symbol, value), ((symbol, value),), record)


def _recognise(before: Expr, symbol: MatrixSymbol, value: MatrixExpr) -> Expr:
    # Express the longest product in the sum `value` in terms of `symbol` and the other products.
    (scale, wanted), *rest = sorted(matrix_terms(value), key=lambda term: -len(term[1]))
    held = MatrixSymbol("held", *value.shape)
    changed = _replace_product(before, held, wanted)
    if not changed.has(held):
        raise RuleError(f"{product_of(wanted)} does not occur in {before}")
    others = from_terms([(-c / scale, factors) for c, factors in rest], value.shape)
    return _ordered(changed.xreplace({held: sum_of([symbol / scale, others])}))


def _replace_product(expression: Expr, symbol: MatrixSymbol, wanted: Factors) -> Expr:
    """Replace the product of the factors `wanted` by `symbol`, including inside functions of matrices."""
    if not expression.is_Matrix:
        terms = _scalar_terms(expression)
        changed = (node.func(_replace_product(*node.args, symbol, wanted)) if node.args else node for _, node in terms)
        return Add(*(c * node for (c, _), node in zip(terms, changed, strict=True)))
    turned = {wanted: symbol, tuple(transpose(factor) for factor in reversed(wanted)): transpose(symbol)}

    def within(factor: MatrixExpr) -> MatrixExpr:
        if isinstance(factor, Transpose):
            return transpose(within(factor.arg))
        if isinstance(factor, ElementwiseApplyFunction):
            return _replace_product(factor.expr, symbol, wanted).applyfunc(factor.function)
        if isinstance(factor, (Inverse, Softmax, DiagMatrix)):
            return factor.func(_replace_product(factor.args[0], symbol, wanted))
        return factor

    def named(factors: Factors) -> Factors:
        result: Factors = ()
        for factor in factors:
            result += (within(factor),)
            if result[-len(wanted) :] in turned:
                result = (*result[: -len(wanted)], turned[result[-len(wanted) :]])
        return result

    terms = [(c, named(factors)) for c, factors in matrix_terms(expression)]
    return from_terms(terms, expression.shape)


@checked_arguments
def write_out(before: Expr, definitions: Mapping[Expr, Expr], **record) -> Step:
    """Replace every symbol of `definitions` by its value."""
    if not before.has(*definitions):
        raise RuleError(f"none of {tuple(definitions)} occurs in {before}")
    return _defined("written out", before, before.xreplace(dict(definitions)), tuple(definitions.items()), record)


@checked_arguments
def set_to_zero(before: Expr, *symbols: MatrixSymbol, **record) -> Step:
    """Set the matrices `symbols` to zero."""
    zero = tuple((symbol, ZeroMatrix(*symbol.shape)) for symbol in symbols)
    if not before.has(*symbols):
        raise RuleError(f"none of {symbols} occurs in {before}")
    functions = {
        node: expand_products(node.expr.xreplace(dict(zero))).applyfunc(node.function)
        for node in before.atoms(ElementwiseApplyFunction)
    }
    return _defined("set to zero", before, _ordered(before.xreplace(functions).xreplace(dict(zero))), zero, record)


@checked_arguments
def insert_overlap(
    before: Expr, value: MatrixExpr, symbol: MatrixSymbol, conjugate: MatrixSymbol, weight: Expr, **record
) -> Step:
    """Replace the column `value` by the overlap `symbol`, and add `weight` tr(conjugate^T (value - symbol))."""
    after = _recognise(before, symbol, value) + normal(weight * Trace(conjugate.T * (value - symbol)))
    claim = claims.OrderParameterInserted(symbol, value, conjugate, weight)
    return Step("overlap by a delta function", before, after, claim, **record)


@checked_arguments
def solve(before: MatrixExpr, variable: MatrixSymbol, **record) -> Step:
    """Solve `before` = 0 for `variable`."""
    return Step("solved", before, solve_for(before, variable), claims.Solves(variable), **record)


@checked_arguments
def sum_over_spins(before: Expr, spins: MatrixSymbol, **record) -> Step:
    """Sum exp(s^T u) over all spins s in {-1, 1}^n, which gives the product over i of 2 cosh u_i."""
    field, constant = _field(before, spins)
    after = constant - 2 * (spins.shape[0] * log(2) + sum_of_column(entrywise(log_cosh, field)))
    return Step("sum over spins", before, expand(after), claims.SpinSum(spins), **record)


@checked_arguments
def covariance_over_spins(before: Expr, spins: MatrixSymbol, value: MatrixExpr, **record) -> Step:
    """Take the covariance of `value`, a column K s + c, over independent spins s in {-1, 1}^n with weights exp(s^T u).

    The covariance is K diag(1 - tanh^2 u) K^T, because the variance of a spin is the derivative of its mean with
    respect to its field.
    """
    field, _ = _field(before, spins)
    variance = field.applyfunc(Lambda(ENTRY, diff(tanh(ENTRY), ENTRY)))
    terms = [(c, factors) for c, factors in matrix_terms(value) if product_of(factors).has(spins)]
    if not terms or any(factors[-1] != spins or product_of(factors[:-1]).has(spins) for _, factors in terms):
        raise RuleError(f"expected a column that is a matrix times the spins {spins}, got {value}")
    reading = from_terms([(c, factors[:-1]) for c, factors in terms], (value.shape[0], spins.shape[0]))
    after = expand_products(reading * DiagMatrix(variance) * transpose(reading))
    return Step("covariance over spins", before, after, claims.SpinCovariance(spins, value), **record)


def _field(exponent: Expr, spins: MatrixSymbol) -> tuple[MatrixExpr, Expr]:
    """Return u and c of an exponent -2 s^T u + c that is linear in the spins s."""
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
    """Rewrite W f(U^T x) with an odd f, a sum over N neurons, as N C^T f(Omega x), a sum over classes.

    Each neuron has a column of both `weights` W and U. Neurons form a class if their columns of U are equal up to a
    sign. Each class has a row of both `classes` C and Omega. With the `assignment` B (classes x neurons), U = Omega^T B
    and C = B W^T / N.
    """
    (read, drive), (correlations, distinct) = weights, classes
    count = drive.shape[1]

    def gathered(factors: Factors) -> tuple[Expr, Factors]:
        for i, (left, right) in enumerate(pairwise(factors)):
            if left == read and isinstance(right, ElementwiseApplyFunction) and right.has(drive):
                shared = _of_classes(right, drive, distinct, parity=-1)
                return count, (*factors[:i], transpose(correlations), shared, *factors[i + 2 :])
        return S.One, factors

    definitions = ((drive, distinct.T * assignment), (correlations, assignment * read.T / count))
    step = _gathered(before, gathered, assignment, definitions, record)
    if step.after == expand_products(before):
        raise RuleError(f"no product of {read} and a function of {drive}^T x in {before}")
    return step


@checked_arguments
def gather_columns(
    before: MatrixExpr,
    weights: tuple[MatrixSymbol, MatrixSymbol],
    classes: tuple[MatrixSymbol, MatrixSymbol, MatrixSymbol],
    assignment: MatrixSymbol,
    **record,
) -> Step:
    """Rewrite W diag(f(U^T x)) W^T with an even f, a sum over N neurons, as N X^T diag(f(Omega x)) Xbar over classes.

    Neurons form a class if their columns of both `weights` W and U are equal up to a common sign. Each class has a row
    of all `classes` Xbar, X and Omega. With the `assignment` B (classes x neurons), W = X^T B, U = Omega^T B and
    Xbar = B W^T / N.
    """
    (read, drive), (sums, columns, distinct) = weights, classes
    count = drive.shape[1]

    def gathered(factors: Factors) -> tuple[Expr, Factors]:
        for i, (left, middle, right) in enumerate(zip(factors, factors[1:], factors[2:], strict=False)):
            if left == read and right == read.T and isinstance(middle, DiagMatrix) and middle.has(drive):
                shared = DiagMatrix(_of_classes(middle.args[0], drive, distinct, parity=1))
                return count, (*factors[:i], transpose(columns), shared, sums, *factors[i + 3 :])
        raise RuleError(f"no {read} diag(f({drive}^T x)) {read}^T in {product_of(factors)}")

    of_sums = (sums, assignment * read.T / count)
    definitions = ((drive, distinct.T * assignment), (read, columns.T * assignment), of_sums)
    return _gathered(before, gathered, assignment, definitions, record)


def _gathered(before: MatrixExpr, gather: Callable, assignment: MatrixSymbol, definitions: tuple, record: dict) -> Step:
    terms = [(c, *gather(factors)) for c, factors in matrix_terms(before)]
    after = from_terms([(expand(c * scale), factors) for c, scale, factors in terms], before.shape)
    claim = claims.NeuronsGathered(assignment, definitions)
    return Step("neurons gathered into classes", before, after, claim, definitions=definitions, **record)


def _of_classes(node: MatrixExpr, drive: MatrixSymbol, distinct: MatrixSymbol, parity: int) -> MatrixExpr:
    """Rewrite f(c U^T x) of the neurons as f(c Omega x) of the classes. f has parity 1 (even) or -1 (odd)."""
    is_function = isinstance(node, ElementwiseApplyFunction)
    (scale, (first, *rest)), *others = matrix_terms(node.expr if is_function else node)
    if not is_function or others or first != drive.T or any(factor.has(drive) for factor in rest):
        raise RuleError(f"expected a function of {drive}^T x, got {node}")
    function = node.function
    if expand(function(-ENTRY) - parity * function(ENTRY)) != 0:
        kind = "even" if parity == 1 else "odd"
        raise RuleError(f"{function.expr} is not {kind}, so neurons of opposite weights cannot form one class")
    return (scale * product_of((distinct, *rest))).applyfunc(function)


@checked_arguments
def slope(
    before: Expr,
    variable: MatrixSymbol,
    through: Definitions = (),
    forces: Mapping[MatrixSymbol, MatrixSymbol] | None = None,
    **record,
) -> Step:
    """Differentiate with respect to a matrix symbol, with the chain rule for defined symbols that depend on it.

    `through` contains these symbols with their values, which may depend on earlier symbols. `forces` assigns names to
    the gradients with respect to some of these symbols.
    """
    pulled: dict[MatrixSymbol, MatrixExpr] = {}
    named: list[tuple[MatrixSymbol, MatrixExpr]] = []

    def pull_back(value: MatrixExpr, force: MatrixExpr, target: MatrixSymbol) -> MatrixExpr:
        # Convert a gradient with respect to `value`, a function of `target`, to a gradient with respect to `target`.
        held = MatrixSymbol("held", *value.shape)
        return gradient(Trace(held.T * value), target).xreplace({held: force})

    def total(target: MatrixSymbol) -> MatrixExpr:
        later = [pull_back(value, pulled[symbol], target) for symbol, value in through if symbol in pulled]
        return _join(sum_of([gradient(before, target), *later]))

    # Go from the last definition to the first, as in reverse-mode differentiation.
    for symbol, _ in reversed(through):
        pulled[symbol] = total(symbol)
        if forces and symbol in forces:
            named.append((forces[symbol], pulled[symbol]))
            pulled[symbol] = forces[symbol]
    after = total(variable).xreplace({value: symbol for symbol, value in through})
    claim = claims.Gradient(variable, (*through, *named))
    return Step("differentiated", before, after, claim, definitions=tuple(reversed(named)), **record)


def _join(matrix: MatrixExpr) -> MatrixExpr:
    """Rewrite diag(x) 1 as x, and sinh/cosh as tanh."""

    def simplified(factor: MatrixExpr) -> MatrixExpr:
        if not isinstance(factor, ElementwiseApplyFunction):
            return factor
        (entry,) = factor.function.variables
        return factor.expr.applyfunc(Lambda(entry, trigsimp(factor.function.expr)))

    terms = []
    for coefficient, factors in matrix_terms(matrix):
        result: Factors = ()
        for factor in factors:
            if isinstance(factor, OneMatrix) and factor.shape[1] == 1 and result and isinstance(result[-1], DiagMatrix):
                result, factor = result[:-1], result[-1].args[0]
            result += (simplified(factor),)
        terms.append((coefficient, result))
    return from_terms(terms, matrix.shape)


@checked_arguments
def response(
    before: MatrixExpr, moved: Mapping[MatrixSymbol, MatrixExpr], displacement: MatrixSymbol, **record
) -> Step:
    """Return the response matrix of a column to a displacement on which the symbols of `moved` depend linearly."""
    # Take the gradient of c^T `before` with an arbitrary column c, so that only products of matrices and columns occur.
    probe = MatrixSymbol("c", before.shape[0], 1)
    gradients = {symbol: gradient(Trace(probe.T * before), symbol) for symbol in moved}
    pulled = [gradient(Trace(transpose(gradients[x]) * change), displacement) for x, change in moved.items()]

    def without_probe(factors: Factors) -> tuple[Expr, Factors]:
        # Split a product that is linear in the probe into a number and the matrices next to the probe.
        for i, factor in enumerate(factors):
            left, right = factors[:i], factors[i + 1 :]
            if factor == probe:
                return (normal(Trace(product_of(right))) if right else S.One), left
            if factor == transpose(probe):
                return S.One, (*left, *(transpose(other) for other in reversed(right)))
        raise RuleError(f"{probe} does not occur in {factors}")

    terms = [(c, *without_probe(factors)) for c, factors in matrix_terms(sum_of(pulled))]
    shape = (displacement.shape[0], before.shape[0])
    after = transpose(from_terms([(c * scale, factors) for c, scale, factors in terms], shape))
    claim = claims.Response(displacement, tuple(moved.items()))
    return Step("response to a displacement", before, after, claim, **record)
