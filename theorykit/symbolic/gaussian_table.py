"""Averages over one or two standard normal variables, in closed form where a table has one.

A term c z^n exp(p z^2 + q z) f(a + b z) is the average of a polynomial and f over a normal variable of another mean and
variance, and z^n is lowered by E[z g(z)] = E[g'(z)] (Stein) until f stands alone or beside a derivative of it.
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import NamedTuple

from sympy import (
    Abs,
    Add,
    Basic,
    Dummy,
    Expr,
    Function,
    Heaviside,
    Integer,
    Max,
    Min,
    Mul,
    Pow,
    Rational,
    S,
    Symbol,
    asin,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    expand,
    factorial2,
    pi,
    sign,
    sin,
    sinh,
    sqrt,
)

from ..arguments import checked_instance, checked_sequence, shown
from .arguments import checked_scalar
from .averages import NODES, GaussianAverage, average_over, checked_nodes, mean_of_deltas

Variables = tuple[Symbol, ...]


class _Line(NamedTuple):
    """a + b z, of one variable z or of several."""

    offset: Expr
    slopes: tuple[Expr, ...]


def gaussian_average(integrand: Expr, *variables: Symbol, nodes: int | str | Expr = NODES) -> Expr:
    """The mean of `integrand` over one or two independent standard normal `variables`.

    Terms with a closed form get it: polynomials times exponentials of quadratic functions, and times one of sin, cos,
    sinh, cosh, erf, erfc, Abs, sign, Heaviside, Max and Min of a linear function; products of two erf, and over two
    variables of two sign, Heaviside, Abs or Max(x, 0), of linear functions without a constant. The others stay
    averages, `GaussianAverage`, by quadrature with `nodes` nodes, or "adaptive". All symbols are taken to be real.

    Raises `ValueError` for an exponential whose average is known to be infinite.

        >>> from sympy import erf, symbols
        >>> from theorykit.symbolic import gaussian_average
        >>> z, h = symbols("z h", real=True)
        >>> gaussian_average(erf(z + h) + z**2, z)
        erf(sqrt(3)*h/3) + 1
    """
    integrand = checked_scalar("integrand", integrand)
    nodes = checked_nodes(nodes)
    variables = checked_sequence("variables", variables, "symbols")
    for i, variable in enumerate(variables):
        checked_instance(f"variables[{i}]", variable, Symbol)
    if len(variables) not in (1, 2) or len(set(variables)) < len(variables):
        raise ValueError(f"variables must be one symbol or two different ones, got {shown(variables)}")
    if len(variables) == 1:
        return _average(integrand, variables[0], nodes)
    closed, rest = _split(integrand, variables, _mean_of_pair)
    return closed + _average(_average(rest, variables[0], nodes), variables[1], nodes)


def _average(integrand: Expr, variable: Symbol, nodes: Expr) -> Expr:
    at_points, integrand = mean_of_deltas(integrand, variable)
    closed, rest = _split(integrand, (variable,), _mean_of_term)
    return at_points + closed + average_over(rest, variable, nodes)


def _split(integrand: Expr, variables: Variables, mean: Callable[[Expr, Variables], Expr | None]) -> tuple[Expr, Expr]:
    """The mean of all terms that have one, and the sum of the others: the integrand as it was, where none has."""
    terms = Add.make_args(_expanded(integrand, variables))
    means = [mean(term, variables) for term in terms]
    if all(each is None for each in means):
        return S.Zero, integrand
    left = Add(*(term for term, each in zip(terms, means, strict=True) if each is None))
    return Add(*(each for each in means if each is not None)), left


def _expanded(integrand: Expr, variables: Variables) -> Expr:
    """A sum of products, with Max and Min of two linear functions as Max(x, 0); functions are not taken apart."""
    pairs = [node for node in integrand.atoms(Max, Min) if len(node.args) == 2]
    changes = {node: _as_ramp(node) for node in pairs if _line(node.args[0] - node.args[1], variables) is not None}
    integrand = integrand.xreplace(changes)
    held = {node: Dummy() for node in _outermost_functions(integrand)}
    expanded = expand(integrand.xreplace(held), power_base=False, power_exp=False, log=False)
    return expanded.xreplace({number: node for node, number in held.items()})


def _as_ramp(node: Expr) -> Expr:
    first, second = sorted(node.args, key=lambda argument: argument == 0)
    return second + Max(first - second, 0) if isinstance(node, Max) else second - Max(second - first, 0)


def _outermost_functions(expression: Basic) -> set[Basic]:
    of_matrices = any(getattr(argument, "is_Matrix", False) for argument in expression.args)
    if of_matrices or isinstance(expression, (Function, GaussianAverage, Max, Min)):
        return {expression}
    return {node for argument in expression.args for node in _outermost_functions(argument)}


def _line(expression: Expr, variables: Variables) -> _Line | None:
    """`expression` as a linear function of the variables, if it is one."""
    slopes = tuple(expand(expression.diff(variable)) for variable in variables)
    offset = expand(expression - Add(*(slope * z for slope, z in zip(slopes, variables, strict=True))))
    is_linear = not any(part.has_free(*variables) for part in (offset, *slopes))
    return _Line(offset, slopes) if is_linear else None


def _factors(product: Expr) -> list[Expr]:
    """The factors of a product, whole powers as repeated factors."""
    factors = []
    for factor in Mul.make_args(product):
        repeated = isinstance(factor, Pow) and factor.exp.is_Integer and factor.exp > 0
        factors += [factor.base] * int(factor.exp) if repeated else [factor]
    return factors


def _argument(function: Expr) -> Expr | None:
    """What a function of the table is of; of Max that is not zero."""
    if isinstance(function, Max):
        others = [argument for argument in function.args if argument != 0]
        return others[0] if len(others) == 1 else None
    return function.args[0]


def _mean_of_term(term: Expr, variables: Variables) -> Expr | None:
    """The mean of c z^n exp(p z^2 + q z) f(a + b z) over z, if it has a row."""
    (z,) = variables
    constant, rest = term.as_independent(z, as_Add=False)
    if not rest.has_free(z):
        return term
    factors = _factors(rest)
    exponent = Add(*(factor.exp for factor in factors if isinstance(factor, exp)))
    functions = [factor for factor in factors if factor != z and not isinstance(factor, exp)]
    curvature = expand(exponent.diff(z, 2) / 2)
    tilt = _line(expand(exponent - curvature * z**2), variables)
    if tilt is None or curvature.has_free(z):
        return None
    narrowing = 1 - 2 * curvature
    if narrowing.is_nonpositive:
        raise ValueError(f"the integrand has the term {term}, whose average over {z} is infinite")
    # the density times the exponential is that of another normal variable
    (slope,), deviation = tilt.slopes, 1 / sqrt(narrowing)
    mean = slope / narrowing
    moved = [function.xreplace({z: mean + deviation * z}) for function in functions]
    means = [_mean_of_power(power, moved, z) for power in range(factors.count(z) + 1)]
    if any(each is None for each in means):
        return None
    scale = constant * exp(expand(tilt.offset + slope**2 / (2 * narrowing))) * deviation
    return scale * _moved(mean, deviation, means)


def _moved(mean: Expr, deviation: Expr, moments: Sequence[Expr]) -> Expr:
    """The mean of (mean + deviation z)^n f from those of z^k f, k = 0 ... n."""
    n = len(moments) - 1
    return Add(*(comb(n, k) * mean ** (n - k) * deviation**k * moment for k, moment in enumerate(moments)))


def _mean_of_power(power: int, functions: Sequence[Expr], z: Symbol) -> Expr | None:
    """The mean of z^power times the functions, if it has a row."""
    if not functions:
        return Integer(factorial2(power - 1)) if power % 2 == 0 else S.Zero
    if len(functions) == 2 and power == 0 and all(isinstance(function, erf) for function in functions):
        return _of_pair(erf, functions, (z,))
    (function, *others) = functions
    if others or type(function) not in _ROWS or (argument := _argument(function)) is None:
        return None
    line = _line(argument, (z,))
    return None if line is None else _by_parts(power, type(function), line.offset, line.slopes[0])


def _by_parts(power: int, kind: type, a: Expr, b: Expr) -> Expr:
    """The mean of z^power f(a + b z), by parts: (power - 1) z^(power - 2) f + b z^(power - 1) f'."""
    row = _ROWS[kind]
    if power == 0:
        return row.mean(a, b)
    lower = (power - 1) * _by_parts(power - 2, kind, a, b) if power > 1 else 0
    return lower + b * row.with_derivative(power - 1, a, b)


class _Row(NamedTuple):
    """The mean of f(a + b z), and that of z^power f'(a + b z)."""

    mean: Callable[[Expr, Expr], Expr]
    with_derivative: Callable[[int, Expr, Expr], Expr]


def _distribution(a: Expr, b: Expr) -> Expr:
    """The probability that a + b z is above zero."""
    return erfc(-a / (sqrt(2) * Abs(b))) / 2


def _scaled_density(a: Expr, b: Expr) -> Expr:
    """|b| times the density of a + b z at zero, which is not zero over zero where b is."""
    return exp(-(a**2) / (2 * b**2)) / sqrt(2 * pi)


def _with_delta(power: int, a: Expr, b: Expr) -> Expr:
    """The mean of z^power delta(a + b z)."""
    return (-a / b) ** power * _scaled_density(a, b) / Abs(b)


def _with_bell(power: int, a: Expr, b: Expr) -> Expr:
    """The mean of z^power times the derivative of erf at a + b z."""
    narrowing = 1 + 2 * b**2
    moments = [_mean_of_power(k, (), Dummy()) for k in range(power + 1)]
    density = 2 * exp(-(a**2) / narrowing) / sqrt(pi * narrowing)
    return density * _moved(-2 * a * b / narrowing, 1 / sqrt(narrowing), moments)


def _derivative(kind: type, factor: int = 1) -> Callable[[int, Expr, Expr], Expr]:
    return lambda power, a, b: factor * _by_parts(power, kind, a, b)


_ROWS: Mapping[type, _Row] = {
    sin: _Row(lambda a, b: exp(-(b**2) / 2) * sin(a), _derivative(cos)),
    cos: _Row(lambda a, b: exp(-(b**2) / 2) * cos(a), _derivative(sin, -1)),
    sinh: _Row(lambda a, b: exp(b**2 / 2) * sinh(a), _derivative(cosh)),
    cosh: _Row(lambda a, b: exp(b**2 / 2) * cosh(a), _derivative(sinh)),
    erf: _Row(lambda a, b: erf(a / sqrt(1 + 2 * b**2)), _with_bell),
    erfc: _Row(lambda a, b: erfc(a / sqrt(1 + 2 * b**2)), lambda *of: -_with_bell(*of)),
    Heaviside: _Row(_distribution, _with_delta),
    sign: _Row(lambda a, b: erf(a / (sqrt(2) * Abs(b))), lambda *of: 2 * _with_delta(*of)),
    Abs: _Row(
        lambda a, b: 2 * Abs(b) * _scaled_density(a, b) + a * erf(a / (sqrt(2) * Abs(b))),
        _derivative(sign),
    ),
    Max: _Row(lambda a, b: Abs(b) * _scaled_density(a, b) + a * _distribution(a, b), _derivative(Heaviside)),
}
# f -> the mean of f(x) f(y) over normal x, y of variances v, w and covariance c
_PAIRS: Mapping[type, Callable[[Expr, Expr, Expr], Expr]] = {
    erf: lambda v, w, c: 2 / pi * asin(2 * c / sqrt((1 + 2 * v) * (1 + 2 * w))),
    sign: lambda v, w, c: 2 / pi * asin(c / sqrt(v * w)),
    Heaviside: lambda v, w, c: Rational(1, 4) + asin(c / sqrt(v * w)) / (2 * pi),
    Abs: lambda v, w, c: 2 / pi * (sqrt(v * w - c**2) + c * asin(c / sqrt(v * w))),
    Max: lambda v, w, c: (sqrt(v * w - c**2) + c * (pi / 2 + asin(c / sqrt(v * w)))) / (2 * pi),
}


def _mean_of_pair(term: Expr, variables: Variables) -> Expr | None:
    """The mean of c f(x) f(y) over both variables, for linear functions x and y of them without a constant."""
    constant, rest = term.as_independent(*variables, as_Add=False)
    factors = _factors(rest)
    kinds = set(map(type, factors))
    if len(factors) != 2 or len(kinds) != 1 or not kinds <= set(_PAIRS):
        return None
    mean = _of_pair(*kinds, factors, variables)
    return None if mean is None else constant * mean


def _of_pair(kind: type, functions: Sequence[Expr], variables: Variables) -> Expr | None:
    arguments = [_argument(function) for function in functions]
    lines = [None if argument is None else _line(argument, variables) for argument in arguments]
    if any(line is None or line.offset != 0 for line in lines):
        return None
    x, y = (line.slopes for line in lines)
    v, w, c = (Add(*(a * b for a, b in zip(*pair, strict=True))) for pair in ((x, x), (y, y), (x, y)))
    return _PAIRS[kind](v, w, c)
