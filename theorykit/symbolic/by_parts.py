"""Standard form of saddle-point equations: averages by parts, and exact cancellations."""

from collections.abc import Iterator

from sympy import Add, Expr, Poly, PolynomialError, Symbol, expand_mul, simplify
from sympy.core.relational import Relational

from .atoms import hold
from .averages import GaussianAverage, average_like, limit, line_of, nodes_around
from .functions import JUMPING

# Do not expand expressions with more operations than this, which takes too long.
_MOST_OPERATIONS = 3000
# Accept the result of integration by parts if it is at most this many times longer.
_LONGER = 4


def in_standard_form(expression: Expr) -> Expr:
    """Integrate averages by parts, take constants out of them, and cancel terms exactly.

    E[z g(z)] becomes E[g'(z)] (Stein's lemma). The derivative of a replica action with respect to an overlap q is then
    a multiple of q - E[tanh^2(...)]. Without this step, it is a difference of terms of order one, and an overlap of
    1e-6 loses six digits. Products are expanded only if this adds no terms, because expanding (q - 1)^3 also loses
    digits.
    """
    averages = [
        node
        for node in expression.atoms(GaussianAverage)
        if not node.integrand.has(GaussianAverage)
        and not any(getattr(symbol, "is_Matrix", False) for symbol in node.integrand.free_symbols)
    ]
    by_parts = expression.xreplace({average: _by_parts(average) for average in averages})
    if by_parts.count_ops() > _MOST_OPERATIONS:
        return by_parts
    expanded = _expanded(by_parts)
    return expanded if len(Add.make_args(expanded)) <= len(Add.make_args(by_parts)) else by_parts


def _by_parts(average: GaussianAverage) -> Expr:
    """Remove powers of the variable by parts. Return the average unchanged if this does not help, as for a Gaussian."""
    z, coefficients = average.variable, _powers(average.integrand, average.variable)
    if coefficients is None or set(coefficients) <= {0}:
        return _constants_out(average, average.integrand)
    # A jump adds a term to E[g'].
    if any(_jumps(rest.diff(z, order), z) for power, rest in coefficients.items() for order in range(power)):
        return average
    lowered = Add(*(_mean(average, power, rest) for power, rest in coefficients.items()))
    powers = [_powers(node.integrand, node.variable) for node in lowered.atoms(GaussianAverage)]
    left = any(each is not None and not set(each) <= {0} for each in powers)
    return average if left or lowered.count_ops() > _LONGER * average.count_ops() else lowered


def _jumps(integrand: Expr, z: Symbol) -> bool:
    """Return whether an integrand may jump. Cases may meet without a jump."""
    around = list(nodes_around(integrand, z))
    lines = [line_of(node.lhs - node.rhs, z) for node in around if isinstance(node, Relational)]
    if None in lines or any(isinstance(node, JUMPING) for node in around):
        return True
    return any(simplify(limit(integrand, z, line, 1) - limit(integrand, z, line, -1)) != 0 for line in lines)


def _powers(integrand: Expr, variable: Symbol) -> dict[int, Expr] | None:
    """Return the coefficients of an integrand as a polynomial in its variable. They may contain functions of it.

    Factors without the variable are not expanded: in 1 - 2 q + q^2, a small 1 - q loses its digits.
    """

    def others(node: Expr) -> Iterator[Expr]:
        is_power = node.is_Pow and node.exp.is_Integer and node.exp > 0
        if node.has(variable) and (node.is_Add or node.is_Mul or is_power):
            for argument in node.args:
                yield from others(argument)
        elif node != variable and not node.is_number:
            yield node

    held, back = hold(others(integrand))
    try:
        polynomial = Poly(integrand.xreplace(held), variable)
    except PolynomialError:
        return None
    return {power: coefficient.xreplace(back) for (power,), coefficient in polynomial.terms()}


def _mean(average: GaussianAverage, power: int, rest: Expr) -> Expr:
    """Return the mean of z^power rest(z), by E[z g] = E[g']."""
    if power == 0:
        return _constants_out(average, rest)
    by_slope = _mean(average, power - 1, rest.diff(average.variable))
    return by_slope + (power - 1) * _mean(average, power - 2, rest) if power > 1 else by_slope


def _constants_out(average: GaussianAverage, integrand: Expr) -> Expr:
    """Return the average, with terms that do not depend on its variable moved out of it."""
    constant, rest = _expanded(integrand).as_independent(average.variable, as_Add=True)
    return average_like(average, integrand) if constant == 0 else constant + average_like(average, rest)


def _expanded(expression: Expr) -> Expr:
    """Expand products of sums. Functions and averages are not expanded inside."""
    return Add(*(expand_mul(product, deep=False) for product in Add.make_args(expression)))
