"""Python text of scalar expressions: arithmetic and the covered functions, over named numbers."""

from collections.abc import Iterable
from functools import reduce

from sympy import Add, Expr, Max, Min, Mul, Pow, S, cosh, exp, log, sinh
from sympy.printing.numpy import JaxPrinter

from ...symbolic.averages import GaussianAverage, breaks, coefficients, exponential_factor, features, singularities
from ...symbolic.bound_variables import NormalVariable
from ...symbolic.functions import LogCosh
from ...symbolic.numeric import NumericFunction
from .coverage import as_float, refusal
from .table import TABLE

NORMAL = "normal"
"""What the function in an average calls its variable, with a number where averages stand in averages."""
SPECIAL = "special"
"""The module of functions in generated code: one name, as symbols are called beta and gamma too."""
SCALAR_OPERATIONS = ("gaussian_mean", "adaptive_gaussian_mean")
"""Operations of generated code that stand in formulas."""
# a whole number up to this one is the same in float64
_LARGEST_EXACT = 2**53


def print_scalar(expression: Expr) -> str:
    """Python text of scalar arithmetic over named numbers, functions from `jnp`; an unknown node is an error."""
    if reason := refusal(expression):
        raise NotImplementedError(reason)
    return _ScalarPrinter().doprint(expression).replace("jax.numpy.", "jnp.")


def average_operation(average: Expr) -> tuple[str, tuple[str, ...]]:
    """The operation that takes an average, and its operands: texts of functions of one number, and of numbers."""
    depth = _depth(average)
    name = NORMAL if depth == 1 else f"{NORMAL}_{depth}"
    own = NormalVariable(name)
    average = average.func(average.integrand.xreplace({average.variable: own}), own, *average.args[2:])
    rest, tilt = exponential_factor(average)

    def zeros(function: Expr) -> str:
        """The coefficients of a polynomial of degree one or two, or any other function."""
        polynomial = coefficients(function, own)
        return numbers(polynomial) if polynomial else f"lambda {name}: {print_scalar(function)}"

    def numbers(polynomial: tuple[Expr, ...]) -> str:
        *lower, last = polynomial
        return _tuple(map(print_scalar, lower if last == 0 else polynomial))

    kinks = list(map(zeros, breaks(average)))
    optional = []
    operation, first = "gaussian_mean", str(average.nodes)
    if average.is_adaptive:
        operation, first = "adaptive_gaussian_mean", print_scalar(average.side)
        kinks += [each for each in map(zeros, singularities(average)) if each not in kinks]
        optional = [_tuple(map(numbers, features(rest, own)))]
    exponent = None if tilt is None else list(map(print_scalar, tilt))
    tilted = "None" if exponent is None else _tuple([f"lambda {name}: {exponent[0]}", *exponent[1:]])
    optional = [_tuple(kinks), *optional, tilted]
    while optional and optional[-1] in ("()", "None"):
        optional.pop()
    return operation, (f"lambda {name}: {print_scalar(rest)}", first, *optional)


def _tuple(texts: Iterable[str]) -> str:
    texts = list(texts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _depth(average: Expr) -> int:
    return 1 + max(map(_depth, average.integrand.atoms(GaussianAverage)), default=0)


def function_name(function: type[NumericFunction]) -> str:
    """The name of a numeric function in generated code."""
    orders = function.orders if any(function.orders) else ()
    return "_".join(["function", function.own_name, *map(str, orders)])


def _terms_of_exponentials(expression: Expr) -> list[tuple[Expr, Expr]] | None:
    """A sum of c exp(u) as pairs of c and u, if it has exponential or hyperbolic functions; none of more than 16."""
    terms = []
    for term in Add.make_args(expression):
        pairs = [(S.One, S.Zero)]
        for factor in Mul.make_args(term):
            base, power = (factor.base, factor.exp) if isinstance(factor, Pow) else (factor, S.One)
            kind = type(base) if power in (1, 2, 3, 4) else None
            ways = {
                exp: lambda u: [(S.One, u)],
                cosh: lambda u: [(S.Half, u), (S.Half, -u)],
                sinh: lambda u: [(S.Half, u), (-S.Half, -u)],
            }
            of_factor = ways[kind](base.args[0]) if kind in ways else [(factor, S.Zero)]
            for _ in range(int(power) if kind in ways else 1):
                pairs = [(c * d, u + v) for c, u in pairs for d, v in of_factor]
        terms += pairs
    return terms if len(terms) <= 16 and any(exponent.free_symbols for _, exponent in terms) else None


def _log_without_overflow(of: Expr) -> Expr | None:
    """log of a product with powers of exponential functions or cosh, as a sum."""
    factors = {factor: factor.as_base_exp() for factor in Mul.make_args(of)}
    out, rest = S.Zero, S.One
    for factor, (base, power) in factors.items():
        if isinstance(factor, exp):
            out += factor.exp
        elif isinstance(base, cosh):
            out += power * LogCosh(base.args[0])
        else:
            rest *= factor
    return out + log(rest, evaluate=rest == 1) if out != 0 else None


class _ScalarPrinter(JaxPrinter):
    def _print_log(self, expr):
        (of,) = expr.args
        if (found := _log_without_overflow(of)) is not None:
            # a sum, of which a factor may stand in front
            return f"({self._print(found)})"
        terms = _terms_of_exponentials(of) if of.is_Add else None
        if terms is None:
            return f"jnp.log({self._print(of)})"
        pairs = (f"({self._print(factor)}, {self._print(exponent)})" for factor, exponent in terms)
        return f"{SPECIAL}.log_sum_exp({', '.join(pairs)})"

    def _print(self, expr, **kwargs):
        row = None if isinstance(expr, log) else TABLE.get(type(expr))
        if row is None and not isinstance(expr, NumericFunction):
            return super()._print(expr, **kwargs)
        name = row.text if row else function_name(type(expr))
        name = f"{SPECIAL}.{name}" if row and row.is_special else name
        return f"{name}({', '.join(map(self._print, expr.args))})"

    def _print_Integer(self, expr):
        # JAX takes no whole number beyond 64 bits
        return str(int(expr)) if abs(expr) <= _LARGEST_EXACT else repr(as_float(expr))

    def _print_Rational(self, expr):
        is_short = max(abs(expr.p), expr.q) <= _LARGEST_EXACT
        return f"{expr.p}/{expr.q}" if is_short else repr(as_float(expr))

    def _print_Float(self, expr):
        return repr(as_float(expr))

    def _print_Pow(self, expr, rational=False):
        if expr.exp == S.Half and isinstance(expr.base, Max) and S.Zero in expr.base.args:
            rest = Max(*(each for each in expr.base.args if each != 0))
            return f"{SPECIAL}.root_of_difference({', '.join(map(self._print, Add.make_args(rest)))})"
        # derivatives of whole powers have no pole at zero
        if expr.exp.is_Float and float(expr.exp).is_integer():
            return super()._print_Pow(type(expr)(expr.base, int(expr.exp), evaluate=False), rational=rational)
        return super()._print_Pow(expr, rational=rational)

    def _print_asin(self, expr):
        (number,) = expr.args
        inner = number.args if isinstance(number, Max) and S.NegativeOne in number.args else ()
        correlation = next((each for each in inner if isinstance(each, Min) and S.One in each.args), None)
        if len(inner) != 2 or correlation is None:
            return f"jnp.arcsin({self._print(number)})"
        return (
            f"{SPECIAL}.arcsine_of_correlation({self._print(Min(*(each for each in correlation.args if each != 1)))})"
        )

    def _print_Mul(self, expr):
        # a power in a denominator has an infinite derivative before the quotient is zero, a negative power has not
        steep = [f for f in expr.args if isinstance(f, Pow) and f.exp.is_negative and f.base.has(exp, cosh, sinh)]
        if not steep:
            return super()._print_Mul(expr)
        powers = (f"({self._print(f.base)})**({self._print(f.exp)})" for f in steep)
        rest = Mul(*(factor for factor in expr.args if factor not in steep))
        return "*".join([f"({self._print(rest)})", *powers])

    def _print_Piecewise(self, node):
        names = sorted({symbol.name for symbol in node.free_symbols})
        function = f"lambda {', '.join(names)}: "
        pieces = (f"({function}{self._print(is_so)}, {function}{self._print(value)})" for value, is_so in node.args)
        return f"{SPECIAL}.piecewise([{', '.join(names)}], {', '.join(pieces)})"

    def _print_Max(self, node):
        return reduce(lambda left, right: f"jnp.maximum({left}, {right})", map(self._print, node.args))

    def _print_Min(self, node):
        return reduce(lambda left, right: f"jnp.minimum({left}, {right})", map(self._print, node.args))

    def _print_GaussianAverage(self, node):
        operation, operands = average_operation(node)
        return f"{operation}({', '.join(operands)})"
