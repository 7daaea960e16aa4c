"""Rules of integration. A rule analyses an expression, computes the result, and returns the step.

Expressions are actions S with the integrand exp(-S/2). A rule matches a pattern in `before`, and raises `RuleError` if
there is no match. `Derivation.verify` checks the claims of the steps. The keywords `record` of every rule are fields of
`Step`, such as `equations`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated

import numpy as np
from sympy import (
    Add,
    Dummy,
    Expr,
    Identity,
    Interval,
    Inverse,
    KroneckerProduct,
    Lambda,
    MatrixSymbol,
    OneMatrix,
    Reals,
    S,
    Symbol,
    Trace,
    Transpose,
    ZeroMatrix,
    diff,
    expand,
    lambdify,
    log,
    sqrt,
    tanh,
    trigsimp,
)
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockDiagMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixExpr
from sympy.solvers import solve as solve_by_sympy

from ..checks import checked_arguments, checked_whole_number
from ..symbolic import (
    GaussianAverage,
    Softmax,
    SquareRoot,
    entrywise,
    gradient,
    inverse,
    kronecker,
    log_cosh,
    log_det,
    normal,
    positive_definite,
    sum_of,
)
from ..symbolic.algebra import (
    Factors,
    as_number,
    expand_products,
    from_terms,
    matrix_terms,
    product_of,
    rotations,
    simplify_traces,
    square_root,
    transpose,
)
from ..symbolic.atoms import (
    LogDet,
    PrincipalBlock,
    SideBySide,
    Stacked,
    beside,
    hold,
    matrix_scalars,
    split_coefficient,
)
from ..symbolic.matrix_functions import ENTRY, AssumedPositiveDefinite, sum_of_column
from . import claims
from .step import Step

Definitions = Sequence[tuple[MatrixSymbol, MatrixExpr]]
"""Matrix symbols with their values, each of which may contain earlier symbols."""


# Number of random points at which it is tested whether a solution is in its range.
_TRIES = 200
# Largest imaginary part, relative to the absolute value, of a real number after rounding.
_REAL = 1e-12


class RuleError(ValueError):
    """A rule does not apply to the given expression."""


# Analysis of expressions: the terms of an action, and the matrices of its quadratic and linear forms.


@checked_arguments
def terms_with(expression: Expr, *symbols: Expr) -> Expr:
    """Return the terms of a sum that contain any of `symbols`."""
    return Add(*(term for term in Add.make_args(normal(expression)) if term.has(*symbols)))


@checked_arguments
def terms_without(expression: Expr, *symbols: Expr) -> Expr:
    """Return the terms of a sum that contain none of `symbols`."""
    return Add(*(term for term in Add.make_args(normal(expression)) if not term.has(*symbols)))


@checked_arguments
def inner_matrix(expression: Expr, outer: MatrixSymbol) -> MatrixExpr:
    """Return the matrix A (n x n) of an expression tr(A R^T R) with R = `outer`."""
    terms = []
    for coefficient, factors in _trace_terms(expression):
        if outer not in factors:
            raise RuleError(f"{outer} does not occur in {factors}")
        position = factors.index(outer)
        rotated = factors[position + 1 :] + factors[: position + 1]
        if len(rotated) < 2 or rotated[-2] != outer.T:
            raise RuleError(f"expected tr(A {outer}^T {outer}), got {factors}")
        terms.append((coefficient, rotated[:-2]))
    return from_terms(terms, (outer.shape[1],) * 2)


@checked_arguments
def inner_of_form(expression: Expr, column: MatrixSymbol) -> MatrixExpr:
    """Return the matrix A of a quadratic form r^T A r with r = `column`."""
    quadratic, linear, constant = polynomial(expression, column)
    if linear or constant != 0 or not quadratic:
        raise RuleError(f"expected a quadratic form of {column}, got {expression}")
    return sum_of(quadratic)


@checked_arguments
def bilinear_matrix(expression: Expr, left: MatrixSymbol, right: MatrixSymbol) -> MatrixExpr:
    """Return the matrix B of a form 2 l^T B r of the columns l = `left` and r = `right`."""
    _, linear, _ = polynomial(expression, left)
    terms = [(c, factors) for column in linear for c, factors in matrix_terms(column)]
    if any(factors[-1] != right for _, factors in terms):
        raise RuleError(f"expected a form of {left} and {right}, got {expression}")
    return from_terms([(c, factors[:-1]) for c, factors in terms], (left.shape[0], right.shape[0]))


Ranges = Mapping[Symbol, Interval]
"""Intervals of numbers. All other numbers are any real numbers."""


@checked_arguments
def solve_for(equation: Expr, variable: Symbol | MatrixSymbol, ranges: Ranges = MappingProxyType({})) -> Expr:
    """Solve `equation` = 0 for a variable.

    Args:
        equation: an equation for a number, or a matrix in which a matrix variable occurs once, either alone between
            factors or in an inverse.
        variable: the variable.
        ranges: ranges of numbers. A number must have one solution in its range. Of several solutions, those outside it
            for random values of all other symbols are discarded.

    Raises:
        RuleError: if there is no solution of this form, or more than one.
    """
    if isinstance(variable, Symbol):
        # SymPy solves for a symbol with the assumptions that follow from its range, and does not look into other terms.
        held, back = hold((node for node in _opaque(equation) if not node.has(variable)), real=True)
        within = ranges.get(variable, Reals)
        sign = {"positive": True} if within.inf >= 0 else {"negative": True} if within.sup <= 0 else {}
        unknown = Dummy(variable.name, real=True, **sign)
        rest = equation.xreplace({**held, variable: unknown})
        if any(node.has(unknown) for node in _opaque(rest)):
            raise RuleError(f"{variable} occurs in a trace, a log-determinant, an average or a function of a matrix")
        try:
            found = solve_by_sympy(rest, unknown)
        except NotImplementedError as error:
            raise RuleError(f"SymPy finds no solution of {equation} = 0 for {variable}") from error
        if len(found) > 1:
            found = [each for each in found if _is_ever_within(each, within, ranges)]
        if len(found) != 1:
            many = f"{len(found)} solutions, {', '.join(map(str, found))}" if found else "no solution"
            raise RuleError(f"{equation} = 0 has {many} for {variable} between {within.inf} and {within.sup}")
        return found[0].xreplace(back)
    # If the equation is L f(X) R + rest = 0, then f(X) = -L^-1 rest R^-1. Here f is the identity, or the inverse of X
    # or of a sum with X.
    terms = matrix_terms(equation)
    holding = [term for term in terms if any(factor.has(variable) for factor in term[1])]
    if len(holding) != 1:
        raise RuleError(f"{variable} occurs in {len(holding)} terms of {equation}, but must occur in one")
    ((coefficient, factors),) = holding
    rest = [(-c / coefficient, other) for c, other in terms if (c, other) != holding[0]]
    position = next(i for i, factor in enumerate(factors) if factor.has(variable))
    held, left, right = factors[position], factors[:position], factors[position + 1 :]
    sides = [(c, (*map(inverse, reversed(left)), *other, *map(inverse, reversed(right)))) for c, other in rest]
    value = expand_products(from_terms(sides, held.shape))
    if held == variable:
        return value
    inside = inverse(held)
    inside = inside.matrix if isinstance(inside, AssumedPositiveDefinite) else inside
    if not inside.is_MatAdd and inside != variable:
        raise RuleError(f"cannot solve {held} = {value} for {variable}")
    value = expand_products(inverse(value))
    beyond = [(-c, factors) for c, factors in matrix_terms(inside) if factors != (variable,)]
    if any(factor.has(variable) for _, factors in beyond for factor in factors):
        raise RuleError(f"{variable} must occur once and alone in {inside}")
    return sum_of([value, from_terms(beyond, value.shape)])


def _opaque(expression: Expr) -> list[Expr]:
    """Return the outermost scalars that contain matrices, and Gaussian averages."""
    return [*matrix_scalars(expression), *expression.atoms(GaussianAverage)]


def _is_ever_within(value: Expr, within: Interval, ranges: Ranges) -> bool:
    """Return whether a value is in an interval for any of many random values of its symbols."""
    symbols, rng = sorted(value.free_symbols, key=str), np.random.default_rng(0)
    compute = lambdify(symbols, value, "numpy")
    low, high = float(within.inf), float(within.sup)
    for _ in range(_TRIES):
        at = compute(*(_number(symbol, ranges.get(symbol, Reals), rng) for symbol in symbols))
        if abs(at.imag) <= _REAL * abs(at) and low < at.real < high:
            return True
    return False


def _number(symbol: Symbol, within: Interval, rng: np.random.Generator) -> complex:
    """Draw a number from its range. It is complex, so that roots of negative numbers exist."""
    low, high, length = float(within.inf), float(within.sup), np.exp(2 * rng.normal())
    low = max(low, 0.0) if symbol.is_positive else low
    if np.isfinite(high - low):
        return complex(rng.uniform(low, high))
    if np.isfinite(low) or np.isfinite(high):
        return complex(low + length if np.isfinite(low) else high - length)
    return complex(2 * rng.normal())


def _scalar_terms(expression: Expr) -> list[tuple[Expr, Expr]]:
    """Split a normal scalar into pairs (coefficient, trace or log-determinant). A term x without either is (x, 1)."""
    return [term.as_independent(Trace, LogDet, as_Add=False) for term in Add.make_args(expression)]


def _trace_terms(expression: Expr) -> list[tuple[Expr, Factors]]:
    """Split a sum of traces of products into (coefficient, factors) pairs."""
    terms = []
    for coefficient, node in _scalar_terms(normal(expression)):
        if not isinstance(node, Trace):
            raise RuleError(f"expected traces, got {coefficient * node}")
        terms += [(coefficient * c, factors) for c, factors in matrix_terms(node.arg)]
    return terms


def _change_products(
    expression: Expr, change: Callable[[Factors], Expr], held: Sequence | None = None, kept: Expr = S.One
) -> Expr:
    """Replace the trace of each product in a sum of traces by change(factors).

    If `held` is given, change only terms that contain any of these symbols or types, and multiply other terms by
    `kept`.
    """
    terms = Add.make_args(normal(expression))
    changing = [term for term in terms if held is None or term.has(*held)]
    left = [kept * term for term in terms if term not in changing]
    changed = [c * change(factors) for term in changing for c, factors in _trace_terms(term)]
    return normal(Add(*left, *changed))


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


# Rules that rewrite: determinant lemma and Woodbury, blocks and paths, abbreviations, dropped terms.


@checked_arguments
def determinant_lemma(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """Rewrite logdet(C^{-1} + c Z M Z^T) + logdet C as logdet M + logdet(M^{-1} + c Z^T C Z) (Sylvester's identity)."""
    changes = {}
    for node in before.atoms(LogDet):
        if low_rank := _low_rank_update(node.matrix, covariance, inner):
            small = _small_matrix(*low_rank, covariance, inner)
            changes[node] = log_det(inner) + log_det(small) - log_det(covariance)
    after = normal(before.xreplace(changes)) if changes else before
    return _changed("matrix determinant lemma", before, after, "log-determinant of C^-1 + c Z M Z^T", record)


@checked_arguments
def woodbury(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """Rewrite Z^T (C^{-1} + c Z M Z^T)^{-1} Z as (M^{-1} - M^{-1} (M^{-1} + c Z^T C Z)^{-1} M^{-1}) / c."""

    def between(factors: Factors, i: int, c: Expr, outer: MatrixExpr) -> Factors:
        if not 0 < i < len(factors) - 1 or factors[i - 1] != transpose(outer) or factors[i + 1] != outer:
            return factors
        small = _small_matrix(c, outer, covariance, inner)
        core = (inverse(inner) - inverse(inner) * inverse(small) * inverse(inner)) / c
        return (*factors[: i - 1], expand_products(core), *factors[i + 2 :])

    after = _with_updates(before, covariance, inner, between)
    return Step("Woodbury identity", before, after, claims.Equal(), **record)


@checked_arguments
def invert_update(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """Rewrite (C^{-1} + c Z M Z^T)^{-1} as C - c C Z (M^{-1} + c Z^T C Z)^{-1} Z^T C (Woodbury's identity)."""

    def inverted(factors: Factors, i: int, c: Expr, outer: MatrixExpr) -> Factors:
        small = _small_matrix(c, outer, covariance, inner)
        correction = c * product_of((covariance, outer, inverse(small), transpose(outer), covariance))
        return (*factors[:i], sum_of([covariance, -correction]), *factors[i + 1 :])

    after = _with_updates(before, covariance, inner, inverted)
    return _changed("Woodbury identity", before, after, "inverse of C^-1 + c Z M Z^T", record)


@checked_arguments
def push_through(before: Expr, covariance: MatrixExpr, inner: MatrixExpr, **record) -> Step:
    """Rewrite M Z^T (C^{-1} + c Z M Z^T)^{-1} as (M^{-1} + c Z^T C Z)^{-1} Z^T C (push-through identity)."""
    ((scale, middle),) = matrix_terms(inner)

    def pushed(factors: Factors, i: int, c: Expr, outer: MatrixExpr) -> Factors:
        begin = i - 1 - len(middle)
        if begin < 0 or factors[begin:i] != (*middle, transpose(outer)):
            return factors
        small = _small_matrix(c, outer, covariance, inner)
        return (*factors[:begin], inverse(small) / scale, transpose(outer), covariance, *factors[i + 1 :])

    after = _with_updates(before, covariance, inner, pushed)
    return _changed("push-through identity", before, after, "product M Z^T (C^-1 + c Z M Z^T)^-1", record)


def _changed(rule: str, before: Expr, after: Expr, what: str, record: dict) -> Step:
    """Make a step whose sides are equal, or raise `RuleError` if it changes nothing."""
    if after == before:
        raise RuleError(f"no {what} in {before}")
    return Step(rule, before, after, claims.Equal(), **record)


def _with_updates(before: Expr, covariance, inner, change: Callable[..., Factors]) -> Expr:
    """Apply change(factors, i, c, Z) to each product whose factor i is (C^{-1} + c Z M Z^T)^{-1}."""

    def one_product(factors: Factors) -> Factors:
        for i, factor in enumerate(factors):
            if isinstance(factor, Inverse) and (low_rank := _low_rank_update(factor.arg, covariance, inner)):
                return change(factors, i, *low_rank)
        return factors

    def changed(matrix: MatrixExpr) -> MatrixExpr:
        return sum_of([c * product_of(one_product(factors), matrix.shape[0]) for c, factors in matrix_terms(matrix)])

    if before.is_Matrix:
        return changed(before)
    terms = _scalar_terms(normal(before))
    return normal(Add(*(c * (Trace(changed(node.arg)) if isinstance(node, Trace) else node) for c, node in terms)))


def _low_rank_update(matrix: MatrixExpr, covariance: MatrixExpr, inner: MatrixExpr) -> tuple[Expr, MatrixExpr] | None:
    """Return c and Z if `matrix` is C^{-1} + c Z M Z^T."""
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
    """Return M^{-1} + c Z^T C Z."""
    return sum_of([inverse(inner), c * product_of((transpose(outer), covariance, outer))])


@checked_arguments
def rescale(before: Expr, matrix: MatrixExpr, factor: Expr, **record) -> Step:
    """Express logdet A and A^{-1} in terms of c A, with A = `matrix` and c = `factor`."""
    scaled = expand_products(factor * matrix)
    changes = {
        LogDet(matrix): LogDet(scaled) - matrix.shape[0] * log(factor),
        Inverse(matrix): factor * Inverse(scaled),
    }
    after = _ordered(before.xreplace(changes)) if before.has(*changes) else before
    return _changed("rescaled", before, after, f"logdet or inverse of {matrix}", record)


def _ordered(expression: Expr) -> Expr:
    return expand_products(expression) if expression.is_Matrix else normal(expression)


@checked_arguments
def unstack(before: Expr, **record) -> Step:
    """Rewrite tr(T^T F) as tr(B S). T and F are stacks of k blocks, which B and S have side by side."""

    def unstacked(factors: Factors) -> Expr:
        *between, last = next((r for r in rotations(factors) if isinstance(r[-1], Stacked)), factors)
        if isinstance(last, Stacked):
            last, between = last.matrix, [Stacked(product_of(between), last.blocks)]
        return Trace(product_of((last, *between)))

    return Step("blocks unstacked", before, _change_products(before, unstacked), claims.Equal(), **record)


@checked_arguments
def gather_blocks(before: Expr, **record) -> Step:
    """Rewrite tr(B Z^T (A (x) I) Z) as tr((A (x) B) R^T R). Z is the stack of the k blocks of R."""

    def gathered(factors: Factors) -> Expr:
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
                return Trace(kronecker(between, of_paths) * transpose(last.matrix) * last.matrix)
        raise RuleError(f"no stacked blocks in {factors}")

    after = _change_products(before, gathered, (Stacked,))
    return Step("blocks become path indices", before, after, claims.Equal(), **record)


@checked_arguments
def join_branches(before: Expr, branches: Sequence[MatrixSymbol], joined: MatrixSymbol, weight: Expr, **record) -> Step:
    """Rewrite (tr(A R_0^T R_0) + tr(B R_1^T R_1))/N as tr(diag(A, B) R^T R)/N.

    The `branches` are R_0 and R_1, `joined` is R = [R_0 | R_1], and `weight` is N.
    """
    blocks = [inner_matrix(weight * terms_with(before, branch), branch) for branch in branches]
    after = Trace(BlockDiagMatrix(*blocks) * joined.T * joined) / weight
    return _defined("branches side by side", before, after, ((joined, beside(*branches)),), record)


@checked_arguments
def same_form(before: Expr, readings: MatrixSymbol, inner: MatrixSymbol, weight: Expr, **record) -> Step:
    """Write the action as tr(L R^T R)/N, the form with which the next layer begins.

    `readings` is R, `inner` is L, and `weight` is N.
    """
    value = expand_products(weight * inner_matrix(before, readings))
    return _defined("induction", before, Trace(inner * readings.T * readings) / weight, ((inner, value),), record)


def _defined(rule: str, before: Expr, after: Expr, definitions: tuple, record: dict) -> Step:
    """Make a step whose sides are equal if symbols have the values in `definitions`."""
    return Step(rule, before, after, claims.Equal(definitions), definitions=definitions, **record)


@checked_arguments
def vectorise(before: Expr, length: Expr, **record) -> Step:
    """Rewrite tr(B Z^T Z) as z^T (B (x) I) z. Z (`length` x n) has the n blocks of the column z side by side."""
    after = _change_products(before, lambda factors: _vectorise(factors, length))
    return Step("matrices become columns", before, after, claims.Equal(), **record)


def _vectorise(factors: Factors, length: Expr) -> Expr:
    for *between, first, second in rotations(factors):
        first = transpose(first)
        if isinstance(second, SideBySide) and isinstance(first, SideBySide) and first.blocks == second.blocks:
            mixing = kronecker(product_of(between, second.shape[1]), Identity(length))
            return Trace(transpose(first.matrix) * mixing * second.matrix)
    for single, *rest in rotations(factors):
        # A single block is the column itself.
        middle = [i for i in range(1, len(rest)) if rest[i].shape[0] == length]
        if single.shape == (1, 1) and middle:
            mixing = kronecker(single, Identity(length))
            return Trace(product_of((*rest[: middle[0]], mixing, *rest[middle[0] :])))
    raise RuleError(f"no blocks side by side in {factors}")


@checked_arguments
def name(before: Expr, symbol: MatrixSymbol, value: MatrixExpr, **record) -> Step:
    """Replace the product `value` by `symbol` in all traces."""
    ((scale, wanted),) = matrix_terms(value)

    def named(factors: Factors) -> Expr:
        found = next((each for each in rotations(factors) if each[: len(wanted)] == wanted), None)
        if found is None:
            raise RuleError(f"{value} does not occur in {factors}")
        return Trace(product_of((symbol, *found[len(wanted) :]))) / scale

    return _defined("named", before, _change_products(before, named), ((symbol, value),), record)


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
def reduce_traces(before: Expr, **record) -> Step:
    """Reduce traces with Kronecker products and block diagonals to traces of smaller matrices."""
    return Step("traces of smaller matrices", before, simplify_traces(before), claims.Equal(), **record)


@checked_arguments
def write_as_number(before: Expr, matrix: MatrixSymbol, number: Expr, **record) -> Step:
    """Replace the 1 x 1 matrix symbol `matrix` by the scalar that is its entry."""
    after, definitions = as_number(before, matrix, number), ((matrix, number * Identity(1)),)
    return _defined("1 x 1 matrix as a number", before, after, definitions, record)


@checked_arguments
def leading_order(before: Expr, width: Expr, **record) -> Step:
    """Keep the part of an action that is linear in `width`."""
    after = expand(before - before.subs(width, 0))
    if after.subs(width, 2 * width) != expand(2 * after):
        raise RuleError(f"{before} is not linear in {width}")
    return Step("leading order", before, after, claims.LeadingOrder(width), **record)


@checked_arguments
def drop_constants(before: Expr, variables: Sequence[Expr], **record) -> Step:
    """Drop the terms that do not depend on `variables`."""
    claim = claims.EqualUpToConstant(tuple(variables))
    return Step("constants dropped", before, terms_with(before, *variables), claim, **record)


# Rules that integrate: Gaussian averages, sums over rows, densities, volumes, derivatives with respect to a source.


@checked_arguments
def linearise_square(before: Expr, auxiliary: MatrixSymbol, **record) -> Step:
    """Write c tr(d^T d) as the Gaussian average of exp(-i t^T d) over t ~ N(0, c I) (Hubbard-Stratonovich)."""
    ((coefficient, node),) = _scalar_terms(before)
    if not isinstance(node, Trace) or len(node.arg.args) != 2 or transpose(node.arg.args[0]) != node.arg.args[1]:
        raise RuleError(f"linearise_square needs c tr(d^T d), got {before}")
    after = 2 * S.ImaginaryUnit * Trace(auxiliary.T * node.arg.args[1])
    covariance = coefficient * Identity(auxiliary.shape[0])
    return Step("Hubbard-Stratonovich", before, after, claims.AverageIs(auxiliary, covariance), **record)


@checked_arguments
def linearise_form(before: Expr, column: MatrixSymbol, auxiliary: MatrixSymbol, weight: Expr, **record) -> Step:
    """Write the quadratic form r^T M r / N as the Gaussian average of exp(-i w^T r / N^(1/2)) over w ~ N(0, M)."""
    covariance = expand_products(weight * inner_of_form(before, column))
    after = 2 * S.ImaginaryUnit * Trace(auxiliary.T * column) / sqrt(weight)
    return Step("read backwards as weights", before, after, claims.AverageIs(auxiliary, covariance), **record)


@checked_arguments
def split_into_rows(before: Expr, rows: Sequence[tuple[MatrixSymbol, MatrixExpr]], **record) -> Step:
    """Replace a sum over the rows of R, such as tr(M R^T R), by the term of one row r, such as tr(r^T M r).

    `rows` contains pairs of a column symbol and the matrix whose rows it represents.
    """
    if not rows:
        raise ValueError("rows must have at least one pair, got none")
    names = {member: column for column, member in rows}

    def one_row(factors: Factors) -> Expr:
        # Open the cyclic product between R and R^T, where it sums over the row index.
        for rotated in rotations(factors):
            if rotated[0] in names and (last := transpose(rotated[-1])) in names:
                return Trace(product_of((names[rotated[0]].T, *rotated[1:-1], names[last])))
        raise RuleError(f"no index of rows in {factors}")

    claim = claims.SumOverRows(tuple(rows), rows[0][1].shape[0], per_row="after")
    return Step("one row at a time", before, _change_products(before, one_row), claim, **record)


@checked_arguments
def sum_over_rows(before: Expr, count: Expr, rows: Sequence[tuple[MatrixSymbol, MatrixExpr]], **record) -> Step:
    """Replace a function of one row by its sum over `count` rows. This is the inverse of `split_into_rows`."""
    names = dict(rows)

    def all_rows(factors: Factors) -> Expr:
        for first, *middle, last in rotations(factors):
            if transpose(first) in names and last in names:
                return Trace(product_of((*middle, transpose(names[last]), names[last])))
        raise RuleError(f"expected a quadratic form of rows, got {factors}")

    after = _change_products(before, all_rows, tuple(names), kept=count)
    claim = claims.SumOverRows(tuple(rows), count, per_row="before")
    return Step("sum over rows", before, after, claim, **record)


@checked_arguments
def gaussian_average(before: Expr, variable: MatrixSymbol, covariance: MatrixExpr, **record) -> Step:
    """Integrate a column v ~ N(0, C) out of an exponent v^T A v + 2 b^T v + c, for example one block of weights.

    The result is logdet C + logdet(C^{-1} + A) + c - b^T (C^{-1} + A)^{-1} b.
    """
    # Complete the square: v^T (C^-1 + A) v + 2 b^T v is minimal at v = -(C^-1 + A)^-1 b.
    quadratic, linear, after = polynomial(before, variable)
    precision = sum_of([inverse(covariance), *quadratic])
    if quadratic:
        after += log_det(covariance) + log_det(precision)
    if linear:
        shift = sum_of(linear)
        after -= Trace(product_of((transpose(shift), inverse(precision), shift)))
    claim = claims.GaussianAverage(variable, covariance)
    return Step("Gaussian integral", before, normal(after), claim, **record)


@checked_arguments
def gaussian_density(before: Expr, source: MatrixSymbol, column: MatrixSymbol, **record) -> Step:
    """Turn the characteristic function exp(-g^T M g/2) of a column into its density: logdet M + x^T M^{-1} x."""
    covariance = inner_of_form(before, source)
    after = normal(log_det(covariance) + Trace(column.T * inverse(covariance) * column))
    return Step("density of Gaussian columns", before, after, claims.GaussianDensity(source, column), **record)


@checked_arguments
def gram_volume(
    before: Expr, columns: MatrixSymbol, overlap: MatrixSymbol, count: Expr, given: MatrixSymbol | None = None, **record
) -> Step:
    """Turn the density of n x N weights X into the density of their overlap U = X X^T / N.

    The volume of weights with the overlap U is det(U)^((N - n - 1)/2). If the overlap of some rows of all weights is
    `given`, it is the leading block of U, and the volume is divided by the volume of these rows.
    """
    size = overlap.shape[0]
    block, volume = overlap, -(count - size - 1) * log_det(overlap)
    if given is not None:
        inner = given.shape[0]
        if inner == size:
            raise ValueError(f"given must have fewer rows than overlap, but both have {size}")
        block = PrincipalBlock(overlap, (inner, expand(size - inner)), 1)
        volume += (count - inner - 1) * log_det(given)

    def by_overlap(factors: Factors) -> Expr:
        *middle, _, _ = next(r for r in rotations(factors) if r[-2:] == (columns, columns.T))
        return count * Trace(product_of((*middle, block)))

    after = expand(_change_products(before, by_overlap, (columns,)) + volume)
    claim = claims.GramVolume(columns, overlap, count, given)
    return Step("volume of weights with an overlap", before, after, claim, **record)


@checked_arguments
def gaussian_equivalence(
    before: Expr, hidden: MatrixExpr, weights: MatrixSymbol, kernel: tuple[MatrixSymbol, MatrixExpr], **record
) -> Step:
    """Replace nonlinear units phi(V X) by linear units V' kappa^(1/2) with the same covariance. This is an ansatz.

    `hidden` is phi(V X), `weights` is V with one row per unit, and `kernel` is the symbol kappa (tokens x tokens) with
    its value.
    """
    symbol, value = kernel
    # SymPy prints the name Vtilde_0 with a tilde, so this is the name of the replacement of V_0.
    letter, *index = weights.name.split("_", 1)
    equivalent = MatrixSymbol("_".join((f"{letter}tilde", *index)), weights.shape[0], symbol.shape[0])
    linear = equivalent * SquareRoot(symbol)
    after = before.xreplace({hidden: linear, transpose(hidden): transpose(linear)})
    if after == before:
        raise RuleError(f"{hidden} does not occur in {before}")
    claim = claims.SameMoments(weights, equivalent, symbol, value)
    return Step("Gaussian equivalence", before, after, claim, definitions=((symbol, value),), **record)


_Order = Annotated[int, partial(checked_whole_number, least=1, most=2)]


@checked_arguments
def source_derivative(
    before: Expr,
    source: MatrixSymbol,
    factor: Expr,
    order: _Order = 1,
    **record,
) -> Step:
    """Take the first derivative, or the matrix of second derivatives, in a column source at zero, times `factor`."""
    quadratic, linear, _ = polynomial(before, source)
    found = [2 * factor * matrix for matrix in (quadratic if order == 2 else linear)]
    shape = (source.shape[0], source.shape[0] if order == 2 else 1)
    after = sum_of(found) if found else from_terms([], shape)
    rule = "source differentiated twice" if order == 2 else "source differentiated"
    return Step(rule, before, after, claims.SourceDerivative(source, order, factor), **record)


# Rules for stationary points: order parameters that are introduced and eliminated, multipliers, response, Riccati.


@checked_arguments
def insert_order_parameter(
    before: Expr, value: MatrixExpr, symbol: MatrixSymbol, conjugate: MatrixSymbol, weight: Expr, **record
) -> Step:
    """Replace `value` by the order parameter `symbol`, with a delta function in Fourier form.

    The Fourier variable is `conjugate`, scaled such that weight tr(conjugate (value - symbol)) is added to the action.
    """
    old = dict((factors, c) for c, factors in matrix_terms(value))
    sums = [node.matrix for node in before.atoms(LogDet)]
    of_traces = [factors for node in before.atoms(Trace) for _, factors in matrix_terms(node.arg)]
    sums += [inverse(factor) for factors in of_traces for factor in factors if inverse(factor).is_MatAdd]
    changes = {}
    for node in sums:
        terms = dict((factors, c) for c, factors in matrix_terms(node))
        if all(terms.get(factors) == c for factors, c in old.items()):
            rest = [(c, factors) for factors, c in terms.items() if factors not in old]
            changes[node] = from_terms([*rest, (S.One, (symbol,))], node.shape)
    if not changes:
        raise RuleError(f"{value} does not occur in {before}")
    after = normal(before.xreplace(changes)) + normal(weight * Trace(conjugate * (value - symbol)))
    claim = claims.OrderParameterInserted(symbol, value, conjugate, weight)
    return Step("order parameter by a delta function", before, after, claim, **record)


@checked_arguments
def insert_overlap(
    before: Expr, value: MatrixExpr, symbol: MatrixSymbol, conjugate: MatrixSymbol, weight: Expr, **record
) -> Step:
    """Replace the column `value` by the overlap `symbol`, and add `weight` tr(conjugate^T (value - symbol))."""
    after = _recognise(before, symbol, value) + normal(weight * Trace(conjugate.T * (value - symbol)))
    claim = claims.OrderParameterInserted(symbol, value, conjugate, weight)
    return Step("overlap by a delta function", before, after, claim, **record)


@checked_arguments
def eliminate(before: Expr, variable: Symbol | MatrixSymbol, ranges: Ranges = MappingProxyType({}), **record) -> Step:
    """Integrate over `variable` at its saddle point: find the zero of the gradient, and substitute it."""
    solution = solve_for(gradient(before, variable), variable, ranges)
    after, claim = _with_value(before, {variable: solution}), claims.Stationary(variable, solution)
    return Step("eliminated at its saddle point", before, after, claim, definitions=((variable, solution),), **record)


@checked_arguments
def eliminate_constrained(
    before: Expr,
    multiplier: Symbol | MatrixSymbol,
    variable: Symbol | MatrixSymbol,
    ranges: Ranges = MappingProxyType({}),
    **record,
) -> Step:
    """Integrate over `multiplier`, in which `before` is linear, and substitute the `variable` that this determines."""
    slope = gradient(before, multiplier)
    if slope.has(multiplier):
        raise RuleError(f"the action must be linear in {multiplier}, but its gradient is {slope}")
    value = solve_for(slope, variable, ranges)
    zero = ZeroMatrix(*multiplier.shape) if isinstance(multiplier, MatrixSymbol) else S.Zero
    after = _with_value(before, {multiplier: zero, variable: value})
    claim = claims.Constrained(multiplier, variable, value)
    return Step("eliminated by its constraint", before, after, claim, definitions=((variable, value),), **record)


def _with_value(before: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Substitute values. An expression of numbers is not expanded, because large terms of an expansion may cancel."""
    after = before.xreplace(values)
    return normal(after) if any(symbol.is_Matrix for symbol in values) else after


@checked_arguments
def constrain(before: Expr, multiplier: MatrixSymbol, variable: MatrixSymbol, **record) -> Step:
    """Integrate over `multiplier`, in which `before` is linear. This fixes `variable`."""
    slope = gradient(before, multiplier)
    if slope.has(multiplier):
        raise RuleError(f"the action must be linear in {multiplier}, but its gradient is {slope}")
    value = solve_for(slope, variable)
    terms = matrix_terms(value)
    if len(terms) != 1 or len(terms[0][1]) != 1:
        raise RuleError(f"expected {variable} to be a multiple of one matrix, got {value}")
    ((scale, (named,)),) = terms
    after = normal(terms_without(before, multiplier).xreplace({named: variable / scale}))
    claim = claims.Constrained(multiplier, variable, value)
    return Step("Lagrange multiplier", before, after, claim, definitions=((variable, value),), **record)


@checked_arguments
def derivative(before: Expr, variable: MatrixSymbol, **record) -> Step:
    """Differentiate with respect to a symmetric matrix. For a source, this is the mean of the matrix it multiplies."""
    after = expand_products(gradient(before, variable))
    return Step("differentiated", before, after, claims.MatrixDerivative(variable), **record)


@checked_arguments
def linear_response(entropy: Expr, variable: MatrixSymbol, mean: MatrixExpr, force: MatrixExpr, **record) -> Step:
    """Find the first-order shift of a minimum when the term tr(force variable) is added, from the Hessian."""
    # Solve (Hessian applied to the displacement) + force = 0.
    displacement = positive_definite("X", variable.shape[0])
    along = gradient(Trace(gradient(entropy, variable) * displacement), variable)
    equation = sum_of([along.xreplace({variable: mean}), force])
    after = solve_for(equation, displacement)
    return Step("linear response", equation, after, claims.Solves(displacement), **record)


@checked_arguments
def riccati(equation: MatrixExpr, variable: MatrixSymbol, **record) -> Step:
    """Solve X G X = X A X - c X - W for G = 0: X = A^{-1/2} (c + (c^2 + 4 A^{1/2} W A^{1/2})^{1/2}) A^{-1/2} / 2."""
    quadratic, linear, rest = [], S.Zero, []
    for coefficient, factors in matrix_terms(variable * equation * variable):
        if factors == (variable,):
            linear -= coefficient
        elif factors[0] == factors[-1] == variable and not any(f.has(variable) for f in factors[1:-1]):
            quadratic.append(from_terms([(coefficient, factors[1:-1])], variable.shape))
        elif not any(factor.has(variable) for factor in factors):
            rest.append(from_terms([(-coefficient, factors)], variable.shape))
        else:
            raise RuleError(f"{equation} = 0 is not a Riccati equation of {variable}: it contains the term {factors}")
    if not quadratic or not rest:
        raise RuleError(f"{equation} = 0 is not a Riccati equation of {variable}")
    root = square_root(sum_of(quadratic))
    inner = linear**2 * Identity(variable.shape[0]) + 4 * expand_products(root * sum_of(rest) * root)
    middle = linear * Identity(variable.shape[0]) + SquareRoot(inner)
    coefficient, factor = split_coefficient(inverse(root))
    after = coefficient**2 / 2 * (middle if isinstance(factor, Identity) else factor * middle * factor)
    return Step("Riccati equation solved", equation, after, claims.Solves(variable, positive_definite=True), **record)


@checked_arguments
def solve(before: MatrixExpr, variable: MatrixSymbol, **record) -> Step:
    """Solve `before` = 0 for `variable`."""
    return Step("solved", before, solve_for(before, variable), claims.Solves(variable), **record)


# Rules for many neurons: sums over spins, and neurons that are grouped into classes of equal weights.


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


# Rules of reverse accumulation: gradients through definitions, and responses to displacements.


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
