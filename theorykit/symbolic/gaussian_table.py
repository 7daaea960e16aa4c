"""Averages over one or two standard normal variables, in closed form where a table has one.

A term c z^n exp(p z^2 + q z) f(a + b z) is the average of a polynomial and f over a normal variable of another mean and
variance. The power z^n is a sum of Hermite polynomials, and E[He_k(z) f(a + b z)] = b^k d^k/da^k E[f(a + b z)] (Stein).
Nothing is divided by the slope b, which may be zero.
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb, factorial
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

from ..checks import checked_instance, checked_scalar, checked_sequence, shown
from .averages import NODES, GaussianAverage, average_over, checked_nodes, mean_of_deltas
from .functions.smoothed import AngleBetween, PlaneMonomial, SmoothedAbs, SmoothedRamp, length

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
    if others or (row := _row_of(function, z)) is None or (argument := _argument(function)) is None:
        return None
    line = _line(argument, (z,))
    return None if line is None else _of_powers(power, row, line.offset, line.slopes[0])


def _row_of(function: Expr, z: Symbol) -> Callable[[int, Expr, Expr], Expr] | None:
    if isinstance(function, (SmoothedAbs, SmoothedRamp)):
        return None if function.args[1].has_free(z) else _smoothed_again(function)
    return _ROWS.get(type(function))


def _of_powers(power: int, row: Callable[[int, Expr, Expr], Expr], a: Expr, b: Expr) -> Expr:
    """The mean of z^power f(a + b z), by z^n = sum n! / (2^m m! k!) He_k(z) with k = n - 2m."""
    return Add(
        *(
            Rational(factorial(power), 2**m * factorial(m) * factorial(power - 2 * m)) * row(power - 2 * m, a, b)
            for m in range(power // 2 + 1)
        )
    )


# the mean of He_k(z) f(a + b z)
_Row = Callable[[int, Expr, Expr], Expr]


def _smooth(mean: Callable[[Expr, Expr], Expr]) -> _Row:
    """The row of a function whose mean is smooth in the slope."""

    def row(k: int, a: Expr, b: Expr) -> Expr:
        at = Dummy(real=True)
        return b**k * mean(at, b).diff(at, k).xreplace({at: a})

    return row


def _smoothed_again(function: Expr) -> _Row:
    """The row of what is an average already: the variances add up."""
    _, slope, order, power = function.args

    def row(k: int, a: Expr, b: Expr) -> Expr:
        return b**k * slope**power * function.func(a, length(slope, b), order + k)

    return row


_ROWS: Mapping[type, _Row] = {
    sin: _smooth(lambda a, b: exp(-(b**2) / 2) * sin(a)),
    cos: _smooth(lambda a, b: exp(-(b**2) / 2) * cos(a)),
    sinh: _smooth(lambda a, b: exp(b**2 / 2) * sinh(a)),
    cosh: _smooth(lambda a, b: exp(b**2 / 2) * cosh(a)),
    erf: _smooth(lambda a, b: erf(a / sqrt(1 + 2 * b**2))),
    erfc: _smooth(lambda a, b: erfc(a / sqrt(1 + 2 * b**2))),
    Heaviside: lambda k, a, b: SmoothedRamp(a, b, k + 1, k),
    sign: lambda k, a, b: SmoothedAbs(a, b, k + 1, k),
    Abs: lambda k, a, b: SmoothedAbs(a, b, k, k),
    Max: lambda k, a, b: SmoothedRamp(a, b, k, k),
}


class _Covariance(NamedTuple):
    """Of two normal variables x and y: the variances v and w, the covariance c, and d with c^2 + d^2 = v w."""

    v: Expr
    w: Expr
    c: Expr
    d: Expr


def _angle(of: _Covariance) -> Expr:
    """The arcsine of the correlation."""
    return AngleBetween(of.c, of.d)


def _size(of: _Covariance) -> Expr:
    """|d|."""
    return PlaneMonomial(of.c, of.d, 0, 1, 0, -1)


# f -> the mean of f(x) f(y) over normal x and y
_PAIRS: Mapping[type, Callable[[_Covariance], Expr]] = {
    erf: lambda of: 2 / pi * asin(2 * of.c / sqrt((1 + 2 * of.v) * (1 + 2 * of.w))),
    sign: lambda of: 2 / pi * _angle(of),
    Heaviside: lambda of: Rational(1, 4) + _angle(of) / (2 * pi),
    Abs: lambda of: 2 / pi * (_size(of) + of.c * _angle(of)),
    Max: lambda of: (_size(of) + of.c * (pi / 2 + _angle(of))) / (2 * pi),
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
    # Lagrange's identity: no difference of products, which rounding may carry below zero
    d = x[0] * y[1] - x[1] * y[0] if len(x) == 2 else S.Zero
    return _PAIRS[kind](_Covariance(v, w, c, d))
