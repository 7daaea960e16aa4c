"""Rules about stationary points: order parameters introduced and eliminated, multipliers, response, Riccati."""

from collections.abc import Iterable

from sympy import Expr, Identity, Inverse, MatrixSymbol, S, Trace
from sympy.matrices.expressions.matexpr import MatrixExpr

from ...checks import checked_arguments
from ...symbolic import SquareRoot, gradient, inverse, normal, positive_definite, sum_of
from ...symbolic.algebra import expand_products, from_terms, matrix_terms
from ...symbolic.atoms import LogDet
from ..claims import Constrained, MatrixDerivative, OrderParameterInserted, Solves, Stationary
from ..step import Step
from .terms import RuleError, terms_without


@checked_arguments
def insert_order_parameter(
    before: Expr, value: MatrixExpr, symbol: MatrixSymbol, conjugate: MatrixSymbol, weight: Expr, **record
) -> Step:
    """Name `value` by the order parameter `symbol`, enforced by a delta function in Fourier form.

    The Fourier variable is `conjugate`, scaled so that the exponent gains weight tr(conjugate (value - symbol)).
    """
    old = dict((factors, c) for c, factors in matrix_terms(value))
    changes = {}
    for node in _sums_in(before):
        terms = dict((factors, c) for c, factors in matrix_terms(node))
        if all(terms.get(factors) == c for factors, c in old.items()):
            rest = [(c, factors) for factors, c in terms.items() if factors not in old]
            changes[node] = from_terms([*rest, (S.One, (symbol,))], node.shape)
    if not changes:
        raise RuleError(f"{value} does not occur in {before}")
    named = before.xreplace(changes)
    after = normal(named) + normal(weight * Trace(conjugate * (value - symbol)))
    claim = OrderParameterInserted(symbol, value, conjugate, weight)
    return Step("order parameter by a delta function", before, after, claim, **record)


def _sums_in(expression: Expr) -> Iterable[MatrixExpr]:
    for node in expression.atoms(LogDet):
        yield node.matrix
    for node in expression.atoms(Trace):
        for _, factors in matrix_terms(node.arg):
            for factor in factors:
                if inverse(factor).is_MatAdd:
                    yield inverse(factor)


@checked_arguments
def eliminate(before: Expr, variable: MatrixSymbol, **record) -> Step:
    """Take the integral over `variable` at its saddle point: solve the vanishing of the gradient, and substitute."""
    solution = solve_for(gradient(before, variable), variable)
    after = normal(before.xreplace({variable: solution}))
    claim = Stationary(variable, solution)
    return Step("eliminated at its saddle point", before, after, claim, definitions=((variable, solution),), **record)


@checked_arguments
def constrain(before: Expr, multiplier: MatrixSymbol, variable: MatrixSymbol, **record) -> Step:
    """Take the integral over `multiplier`, in which `before` is linear: it fixes `variable`."""
    slope = gradient(before, multiplier)
    if slope.has(multiplier):
        raise RuleError(f"the action is not linear in {multiplier}: {slope}")
    value = solve_for(slope, variable)
    terms = matrix_terms(value)
    if len(terms) != 1 or len(terms[0][1]) != 1:
        raise RuleError(f"expected {variable} to be a multiple of one matrix, got {value}")
    ((scale, (named,)),) = terms
    after = normal(terms_without(before, multiplier).xreplace({named: variable / scale}))
    claim = Constrained(multiplier, variable, value)
    return Step("Lagrange multiplier", before, after, claim, definitions=((variable, value),), **record)


@checked_arguments
def solve_for(equation: MatrixExpr, variable: MatrixSymbol) -> MatrixExpr:
    """The `variable` that makes `equation` zero, where it stands once, in an inverse or alone between factors."""
    terms = matrix_terms(equation)
    holding = [term for term in terms if any(factor.has(variable) for factor in term[1])]
    if len(holding) != 1:
        raise RuleError(f"{variable} occurs in {len(holding)} terms of {equation}, not in one")
    ((coefficient, factors),) = holding
    rest = [(-c / coefficient, other) for c, other in terms if (c, other) != holding[0]]
    position = next(i for i, factor in enumerate(factors) if factor.has(variable))
    shape = factors[position].shape
    left, right = factors[:position], factors[position + 1 :]
    sides = [(c, (*map(inverse, reversed(left)), *other, *map(inverse, reversed(right)))) for c, other in rest]
    value = expand_products(from_terms(sides, shape))
    return _isolate(factors[position], value, variable)


def _isolate(expression: MatrixExpr, value: MatrixExpr, variable: MatrixSymbol) -> MatrixExpr:
    if expression == variable:
        return value
    if inverse(expression).is_MatAdd or inverse(expression) == variable:
        return _without(inverse(expression), expand_products(inverse(value)), variable)
    raise RuleError(f"cannot solve {expression} = {value} for {variable}")


def _without(total: MatrixExpr, value: MatrixExpr, variable: MatrixSymbol) -> MatrixExpr:
    rest = [(-c, factors) for c, factors in matrix_terms(total) if factors != (variable,)]
    if any(factor.has(variable) for _, factors in rest for factor in factors):
        raise RuleError(f"{variable} does not stand alone in {total}")
    return sum_of([value, from_terms(rest, value.shape)])


@checked_arguments
def derivative(before: Expr, variable: MatrixSymbol, **record) -> Step:
    """The gradient in a symmetric matrix; for a source, the mean of what the source multiplies."""
    return Step(
        "differentiated", before, expand_products(gradient(before, variable)), MatrixDerivative(variable), **record
    )


@checked_arguments
def linear_response(entropy: Expr, variable: MatrixSymbol, mean: MatrixExpr, force: MatrixExpr, **record) -> Step:
    """How a minimum moves, to first order, when the term tr(force variable) is added: Hessian and solve."""
    displacement = positive_definite("X", variable.shape[0])
    along = gradient(Trace(gradient(entropy, variable) * displacement), variable)
    equation = sum_of([along.xreplace({variable: mean}), force])
    after = solve_for(equation, displacement)
    return Step("linear response", equation, after, Solves(displacement), **record)


@checked_arguments
def riccati(equation: MatrixExpr, variable: MatrixSymbol, **record) -> Step:
    """Solve G = 0 where X G X = X A X - c X - W: X = A^{-1/2} (c/2 + (c^2/4 + A^{1/2} W A^{1/2})^{1/2}) A^{-1/2}."""
    quadratic, linear, rest = [], S.Zero, []
    for coefficient, factors in matrix_terms(variable * equation * variable):
        if factors == (variable,):
            linear -= coefficient
        elif factors[0] == factors[-1] == variable and not any(f.has(variable) for f in factors[1:-1]):
            quadratic.append(from_terms([(coefficient, factors[1:-1])], variable.shape))
        elif not any(factor.has(variable) for factor in factors):
            rest.append(from_terms([(-coefficient, factors)], variable.shape))
        else:
            raise RuleError(f"{equation} = 0 is not a Riccati equation of {variable}: it has the term {factors}")
    if not quadratic or not rest:
        raise RuleError(f"{equation} = 0 is not a Riccati equation of {variable}")
    root = SquareRoot(sum_of(quadratic))
    inner = SquareRoot(linear**2 / 4 * Identity(variable.shape[0]) + root * sum_of(rest) * root)
    middle = linear / 2 * Identity(variable.shape[0]) + inner
    after = Inverse(root) * middle * Inverse(root)
    return Step("Riccati equation solved", equation, after, Solves(variable, positive_definite=True), **record)
