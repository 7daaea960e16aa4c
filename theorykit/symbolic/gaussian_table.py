"""Averages over one or two standard normal variables, in closed form if the table contains one.

The average of c z^n exp(p z^2 + q z) f(a + b z) is an average of a polynomial times f over a normal variable with
another mean and variance. The power z^n is a sum of Hermite polynomials, and Stein's lemma gives
E[He_k(z) f(a + b z)] = b^k d^k/da^k E[f(a + b z)]. No formula divides by the slope b, which may be zero.
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb, factorial

import sympy as sp

from ..checks import checked_instance, shown
from .atoms import checked_scalar, hold
from .averages import NODES, GaussianAverage, average_over, checked_nodes, coefficients
from .functions import AngleBetween, PowerOfLength, SmoothedKink

Variables = tuple[sp.Symbol, ...]


def gaussian_average(integrand: sp.Expr, *variables: sp.Symbol, nodes: int | str | sp.Expr = NODES) -> sp.Expr:
    """Return the average of `integrand` over one or two independent standard normal `variables`.

    These terms are replaced by closed forms:

    - Polynomials times exponentials of quadratic functions, and these times one of sin, cos, sinh, cosh, erf, erfc,
      Abs, sign, Heaviside, Max and Min of a linear function.
    - Products of two erf, sign, Heaviside, Abs or Max(x, 0) of linear functions without a constant.

    Other terms stay averages (`GaussianAverage`).

    Args:
        integrand: Scalar expression. All symbols are assumed to be real.
        variables: One symbol, or two different symbols.
        nodes: Number of quadrature nodes of the remaining averages, or "adaptive".

    Raises:
        ValueError: If the average of an exponential is known to be infinite.

    Example:
        >>> from sympy import erf, symbols
        >>> from theorykit.symbolic import gaussian_average
        >>> z, h = symbols("z h", real=True)
        >>> gaussian_average(erf(z + h) + z**2, z)
        erf(sqrt(3)*h/3) + 1
    """
    integrand = checked_scalar("integrand", integrand)
    nodes = checked_nodes(nodes)
    for i, variable in enumerate(variables):
        checked_instance(f"variables[{i}]", variable, sp.Symbol)
    if len(variables) not in (1, 2) or len(set(variables)) < len(variables):
        raise ValueError(f"variables must be one symbol or two different ones, got {shown(variables)}")
    total, rest = (sp.S.Zero, integrand) if len(variables) == 1 else _split(integrand, variables, _mean_of_pair)
    for variable in variables:
        closed, left = _split(rest, (variable,), _mean_of_term)
        rest = closed + average_over(left, variable, nodes)
    return total + rest


def _split(
    integrand: sp.Expr, variables: Variables, mean: Callable[[sp.Expr, Variables], sp.Expr | None]
) -> tuple[sp.Expr, sp.Expr]:
    """Return the mean of all terms in the table, and the sum of all others (the integrand itself if none is found)."""
    # Expand into a sum of products, with Max and Min of two linear functions as Max(x, 0).
    ramps = {}
    for node in integrand.atoms(sp.Max, sp.Min):
        if len(node.args) == 2 and _line(node.args[0] - node.args[1], variables) is not None:
            first, second = sorted(node.args, key=lambda argument: argument == 0)
            is_max = isinstance(node, sp.Max)
            ramps[node] = second + sp.Max(first - second, 0) if is_max else second - sp.Max(second - first, 0)
    ramped = integrand.xreplace(ramps)
    held, back = hold(_outermost_functions(ramped))
    terms = sp.Add.make_args(
        sp.expand(ramped.xreplace(held), power_base=False, power_exp=False, log=False).xreplace(back)
    )
    means = [mean(term, variables) for term in terms]
    if all(each is None for each in means):
        return sp.S.Zero, integrand
    left = sp.Add(*(term for term, each in zip(terms, means, strict=True) if each is None))
    return sp.Add(*(each for each in means if each is not None)), left


def _outermost_functions(expression: sp.Basic) -> set[sp.Basic]:
    of_matrices = any(getattr(argument, "is_Matrix", False) for argument in expression.args)
    if of_matrices or isinstance(expression, (sp.Function, GaussianAverage, sp.Max, sp.Min)):
        return {expression}
    return {node for argument in expression.args for node in _outermost_functions(argument)}


def _line(expression: sp.Expr, variables: Variables) -> tuple[sp.Expr, tuple[sp.Expr, ...]] | None:
    """Return the offset and the slopes of a linear function."""
    slopes = tuple(sp.expand(expression.diff(variable)) for variable in variables)
    offset = sp.expand(expression - sp.Add(*(slope * z for slope, z in zip(slopes, variables, strict=True))))
    is_linear = not any(part.has_free(*variables) for part in (offset, *slopes))
    return (offset, slopes) if is_linear else None


def _factors(product: sp.Expr) -> list[sp.Expr]:
    """Return the factors of a product, with whole powers repeated."""
    factors = []
    for factor in sp.Mul.make_args(product):
        repeated = isinstance(factor, sp.Pow) and factor.exp.is_Integer and factor.exp > 0
        factors += [factor.base] * int(factor.exp) if repeated else [factor]
    return factors


def _argument(function: sp.Expr) -> sp.Expr | None:
    """Return the argument of a function in the table, the non-zero one of Max."""
    if isinstance(function, sp.Max):
        others = [argument for argument in function.args if argument != 0]
        return others[0] if len(others) == 1 else None
    return function.args[0]


def _mean_of_term(term: sp.Expr, variables: Variables) -> sp.Expr | None:
    """Return the mean of c z^n exp(p z^2 + q z) f(a + b z) over z, if the table contains it."""
    (z,) = variables
    constant, rest = term.as_independent(z, as_Add=False)
    if not rest.has_free(z):
        return term
    factors = _factors(rest)
    exponent = sp.Add(*(factor.exp for factor in factors if isinstance(factor, sp.exp)))
    functions = [factor for factor in factors if factor != z and not isinstance(factor, sp.exp)]
    if (quadratic := coefficients(sp.expand(exponent), z)) is None:
        return None
    offset, slope, curvature = quadratic
    # Complete the square: exp(p z^2 + q z) times the density is a normal density of variance 1 / (1 - 2 p).
    narrowing = 1 - 2 * curvature
    if narrowing.is_nonpositive:
        raise ValueError(f"the integrand has the term {term}, whose average over {z} is infinite")
    # Write z in terms of a standard normal variable of this density.
    mean, deviation = slope / narrowing, 1 / sp.sqrt(narrowing)
    moved = [function.xreplace({z: mean + deviation * z}) for function in functions]
    means = [_mean_of_power(power, moved, z) for power in range(factors.count(z) + 1)]
    if any(each is None for each in means):
        return None
    scale = constant * sp.exp(sp.expand(offset + slope**2 / (2 * narrowing))) * deviation
    # Expand (mean + deviation z)^n f into means of z^k f.
    n = len(means) - 1
    return scale * sp.Add(*(comb(n, k) * mean ** (n - k) * deviation**k * moment for k, moment in enumerate(means)))


def _mean_of_power(power: int, functions: Sequence[sp.Expr], z: sp.Symbol) -> sp.Expr | None:
    """Return the mean of z^power times the functions, if the table contains it."""
    if not functions:
        return sp.Integer(sp.factorial2(power - 1)) if power % 2 == 0 else sp.S.Zero
    if power == 0 and (pair := _mean_of_pair(sp.Mul(*functions, evaluate=False), (z,))) is not None:
        return pair
    (function, *others) = functions
    row = _ROWS.get(type(function))
    if isinstance(function, SmoothedKink):
        # The function is itself an average. The variances add up.
        _, slope, order, s = function.args
        row = lambda k, a, b: b**k * SmoothedKink(a, PowerOfLength(slope, b, 1), order + k, s)  # noqa: E731
        row = None if slope.has_free(z) else row
    if others or row is None or (argument := _argument(function)) is None:
        return None
    line = _line(argument, (z,))
    if line is None:
        return None
    a, (b,) = line
    # z^n = sum n! / (2^m m! k!) He_k(z) with k = n - 2m.
    return sp.Add(
        *(
            sp.Rational(factorial(power), 2**m * factorial(m) * factorial(power - 2 * m)) * row(power - 2 * m, a, b)
            for m in range(power // 2 + 1)
        )
    )


# Rows give the mean of He_k(z) f(a + b z).
_Row = Callable[[int, sp.Expr, sp.Expr], sp.Expr]


def _smooth(mean: Callable[[sp.Expr, sp.Expr], sp.Expr]) -> _Row:
    def row(k: int, a: sp.Expr, b: sp.Expr) -> sp.Expr:
        at = sp.Dummy(real=True)
        return b**k * mean(at, b).diff(at, k).xreplace({at: a})

    return row


def _kinked(order: int, s: int) -> _Row:
    """Make the row of a derivative of this order of max(x, 0), or of |x| for s = 1."""
    return lambda k, a, b: b**k * SmoothedKink(a, b, order + k, s)


_ROWS: Mapping[type, _Row] = {
    sp.sin: _smooth(lambda a, b: sp.exp(-(b**2) / 2) * sp.sin(a)),
    sp.cos: _smooth(lambda a, b: sp.exp(-(b**2) / 2) * sp.cos(a)),
    sp.sinh: _smooth(lambda a, b: sp.exp(b**2 / 2) * sp.sinh(a)),
    sp.cosh: _smooth(lambda a, b: sp.exp(b**2 / 2) * sp.cosh(a)),
    sp.erf: _smooth(lambda a, b: sp.erf(a / sp.sqrt(1 + 2 * b**2))),
    sp.erfc: _smooth(lambda a, b: sp.erfc(a / sp.sqrt(1 + 2 * b**2))),
    sp.Heaviside: _kinked(1, 0),
    sp.sign: _kinked(1, 1),
    sp.Abs: _kinked(0, 1),
    sp.Max: _kinked(0, 0),
}


# Rows give the mean of f(x) f(y) over normal x and y with variances v and w, covariance c and d = sqrt(v w - c^2).
_PAIRS: Mapping[type, Callable[[sp.Expr, sp.Expr, sp.Expr, sp.Expr], sp.Expr]] = {
    sp.erf: lambda v, w, c, d: 2 / sp.pi * sp.asin(2 * c / sp.sqrt((1 + 2 * v) * (1 + 2 * w))),
    sp.sign: lambda v, w, c, d: 2 / sp.pi * AngleBetween(c, d),
    sp.Heaviside: lambda v, w, c, d: sp.Rational(1, 4) + AngleBetween(c, d) / (2 * sp.pi),
    sp.Abs: lambda v, w, c, d: 2 / sp.pi * (d + c * AngleBetween(c, d)),
    sp.Max: lambda v, w, c, d: (d + c * (sp.pi / 2 + AngleBetween(c, d))) / (2 * sp.pi),
}


def _mean_of_pair(term: sp.Expr, variables: Variables) -> sp.Expr | None:
    """Return the mean of c f(x) f(y) over the variables, for linear functions x and y without a constant."""
    constant, rest = term.as_independent(*variables, as_Add=False)
    factors = _factors(rest)
    row = _PAIRS.get(type(factors[0]))
    if row is None or len(factors) != 2 or type(factors[0]) is not type(factors[1]):
        return None
    arguments = [_argument(function) for function in factors]
    lines = [None if argument is None else _line(argument, variables) for argument in arguments]
    if any(line is None or line[0] != 0 for line in lines):
        return None
    (_, x), (_, y) = lines
    v, w, c = (sp.Add(*(a * b for a, b in zip(*pair, strict=True))) for pair in ((x, x), (y, y), (x, y)))
    # Use Lagrange's identity for d. The difference v w - c^2 may be negative because of rounding.
    d = sp.Abs(x[0] * y[1] - x[1] * y[0]) if len(x) == 2 else sp.S.Zero
    return constant * row(v, w, c, d)
