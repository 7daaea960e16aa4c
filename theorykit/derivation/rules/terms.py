"""Taking expressions apart: the terms of an action, the matrices of its quadratic and linear forms."""

from collections.abc import Callable

from sympy import Add, Expr, MatrixSymbol, S, Trace
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_arguments
from ...symbolic import normal, sum_of, transpose
from ...symbolic.algebra import Factors, from_terms, matrix_terms, rotations
from ...symbolic.atoms import LogDet


class RuleError(ValueError):
    """A rule does not apply to the expression that it was given."""


@checked_arguments
def terms_with(expression: Expr, *symbols: Expr) -> Expr:
    """The terms of a sum in which any of `symbols` occurs."""
    return Add(*(c * node for c, node in scalar_terms(normal(expression)) if (c * node).has(*symbols)))


@checked_arguments
def terms_without(expression: Expr, *symbols: Expr) -> Expr:
    """The terms of a sum in which none of `symbols` occurs."""
    return Add(*(c * node for c, node in scalar_terms(normal(expression)) if not (c * node).has(*symbols)))


def polynomial(expression: Expr, variable: MatrixSymbol) -> tuple[list, list, Expr]:
    """The terms of a polynomial of second degree in a column: matrices A, columns b (of 2 b^T v), and the rest."""
    quadratic, linear, constant = [], [], S.Zero
    for coefficient, node in scalar_terms(normal(expression)):
        if not node.has(variable):
            constant += coefficient * node
            continue
        if not isinstance(node, Trace):
            raise RuleError(f"{variable} must occur in quadratic forms only, not in {node}")
        for c, factors in matrix_terms(node.arg):
            kind, rest = _occurrence(factors, variable)
            weight = coefficient * c
            if kind == 2:
                quadratic.append(from_terms([(weight, rest)], (variable.shape[0],) * 2))
            else:
                linear.append(from_terms([(weight / 2, rest)], variable.shape))
    return quadratic, linear, constant


def _occurrence(factors: Factors, variable: MatrixSymbol) -> tuple[int, Factors]:
    """How often the column occurs in a cyclic product, and what it is multiplied with."""
    for rotated in rotations(factors):
        if rotated[0] == variable.T:
            middle = any(factor.has(variable) for factor in rotated[1:-1])
            if rotated[-1] == variable and not middle:
                return 2, rotated[1:-1]
            if not middle and not rotated[-1].has(variable):
                return 1, rotated[1:]
    for rotated in rotations(factors):
        if rotated[-1] == variable and not any(factor.has(variable) for factor in rotated[:-1]):
            return 1, tuple(transpose(factor) for factor in reversed(rotated[:-1]))
    raise RuleError(f"the exponent is not of second degree in {variable}: {factors}")


@checked_arguments
def inner_matrix(expression: Expr, outer: MatrixSymbol) -> MatrixExpr:
    """The matrix A (n x n) of an expression tr(A R^T R), R = `outer`."""
    terms = []
    for coefficient, factors in trace_terms(expression):
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
    """The matrix A of a quadratic form r^T A r, r = `column`."""
    quadratic, linear, constant = polynomial(expression, column)
    if linear or constant != 0 or not quadratic:
        raise RuleError(f"expected a quadratic form of {column}, got {expression}")
    return sum_of(quadratic)


@checked_arguments
def bilinear_matrix(expression: Expr, left: MatrixSymbol, right: MatrixSymbol) -> MatrixExpr:
    """The matrix B of a form 2 l^T B r of two columns."""
    _, linear, _ = polynomial(expression, left)
    terms = [(c, factors) for column in linear for c, factors in matrix_terms(column)]
    if any(factors[-1] != right for _, factors in terms):
        raise RuleError(f"expected a form of {left} and {right}, got {expression}")
    return from_terms([(c, factors[:-1]) for c, factors in terms], (left.shape[0], right.shape[0]))


def change_products(expression: Expr, change: Callable[[Factors], Expr]) -> Expr:
    """A sum of traces, with change(factors) for the trace of each product."""
    return normal(Add(*(c * change(factors) for c, factors in trace_terms(expression))))


def change_products_with(expression: Expr, held: Expr | type, change: Callable[[Factors], Expr]) -> Expr:
    """The same for those traces that hold a symbol, or atoms of a type; the other terms stay as they are."""
    after = S.Zero
    for coefficient, node in scalar_terms(normal(expression)):
        term = coefficient * node
        after += change_products(term, change) if node.has(held) else term
    return normal(after)


def scalar_terms(expression: Expr) -> list[tuple[Expr, Expr]]:
    """A normal scalar expression as (coefficient, trace or log-determinant) pairs; a plain scalar as (it, 1)."""
    return [term.as_independent(Trace, LogDet, as_Add=False) for term in Add.make_args(expression)]


def trace_terms(expression: Expr) -> list[tuple[Expr, Factors]]:
    """A sum of traces of products as (coefficient, factors) pairs."""
    terms = []
    for coefficient, node in scalar_terms(normal(expression)):
        if not isinstance(node, Trace):
            raise RuleError(f"expected traces, got {coefficient * node}")
        terms += [(coefficient * c, factors) for c, factors in matrix_terms(node.arg)]
    return terms
