"""Forms of scalar nodes whose values do not overflow or lose digits.

An evaluator asks for the `stable_form` of a node and evaluates it in place of the node. The forms have no derivatives,
because derivatives are taken of the expression itself.
"""

from collections.abc import Iterable
from functools import lru_cache, reduce

import sympy as sp
from sympy import Add, Expr, Max, Min, Mul, Pow, S, cosh, exp, log, sinh, tanh

from .functions import LogCosh

# Largest number of exponential functions in a sum.
_MOST_TERMS = 16
# Exponential functions as sums: pairs of a factor and the sign of the exponent.
_EXPONENTIALS = {exp: ((S.One, 1),), cosh: ((S.Half, 1), (S.Half, -1)), sinh: ((S.Half, 1), (-S.Half, -1))}
# Rounding error of a difference, relative to its terms.
_ROUNDING = 4 * 2.0**-52


class StableForm(Expr):
    """Form that only evaluates."""

    is_commutative = True


def _scaled_sum(terms: Iterable[sp.Tuple], at):
    """Return the largest exponent and the sum of c exp(u - largest) over pairs (c, u)."""
    exponents = [at(exponent) for _, exponent in terms]
    largest = at.algebra.stop_gradient(reduce(at.xp.maximum, exponents))
    values = [at(c) * at.xp.exp(u - largest) for (c, _), u in zip(terms, exponents, strict=True)]
    return largest, values


class LogSumExp(StableForm):
    """log of the sum of c exp(u) over the arguments, pairs (c, u)."""

    def value(self, at):
        # A sum 1 + small keeps the digits of the small number.
        largest, values = _scaled_sum(self.args, at)
        total = at.xp.log(sum(values))
        if (one := sp.Tuple(1, 0)) not in self.args:
            return largest + total
        rest = [value for term, value in zip(self.args, values, strict=True) if term != one]
        return largest + at.xp.where(at.xp.equal(largest, 0), at.xp.log1p(sum(rest)), total)


class ProductOfExponentials(StableForm):
    """Product of powers of sums of c exp(u). The arguments are pairs of a tuple of pairs (c, u) and the power."""

    def value(self, at):
        total, product = 0.0, 1.0
        for terms, power in self.args:
            largest, values = _scaled_sum(terms, at)
            total = total + int(power) * largest
            product = product * sum(values) ** int(power)
        return product * at.xp.exp(total)


class RootOfDifference(StableForm):
    """sqrt(Max(0, sum of the arguments)). Value and derivative are zero if the sum is below its rounding error.

    Kernels contain the square root of c_xx c_yy - c_xy^2, which vanishes for two equal examples.
    """

    def value(self, at):
        terms = list(map(at, self.args))
        number, size = sum(terms), reduce(at.xp.maximum, map(at.xp.abs, terms))
        inside = number > (_ROUNDING * size if len(terms) > 1 else 0.0)
        return at.xp.where(inside, at.xp.sqrt(at.xp.where(inside, number, 1.0)), 0.0)


class ArcsineOfCorrelation(StableForm):
    """asin(Max(-1, Min(1, x))). The derivative is set to zero at and beyond -1 and 1."""

    def value(self, at):
        number = at(self.args[0])
        inside = at.xp.abs(number) < 1
        within = at.xp.arcsin(at.xp.where(inside, number, 0.0))
        return at.xp.where(inside, within, at.xp.sign(number) * (at.xp.pi / 2))


@lru_cache(maxsize=2**14)
def stable_form(node: Expr) -> Expr | None:
    """Return what to evaluate in place of a node whose value may overflow or lose digits, or None.

    It applies to logarithms, ratios of exponential functions, roots of differences and arcsines of correlations.
    """
    rule = _RULES.get(type(node))
    return rule(node) if rule else None


def _log(node: Expr) -> Expr | None:
    """Write the logarithm of a product of exponential functions as a sum, or use a `LogSumExp`."""
    (of,) = node.args
    out, rest = S.Zero, S.One
    for factor in Mul.make_args(of):
        base, power = factor.as_base_exp()
        if isinstance(factor, exp):
            out += factor.exp
        elif isinstance(base, cosh):
            out += power * LogCosh(base.args[0])
        else:
            rest *= factor
    if out != 0:
        return out + log(rest, evaluate=False) if rest != 1 else out
    terms = terms_of_exponentials(of) if of.is_Add else None
    return None if terms is None else LogSumExp(*sp.Tuple(*terms))


def terms_of_exponentials(expression: Expr) -> list[tuple[Expr, Expr]] | None:
    """Write an expression with exponential or hyperbolic functions as at most 16 terms c exp(u), pairs (c, u)."""
    terms: list[tuple[Expr, Expr]] = []
    for term in Add.make_args(expression):
        pairs = [(S.One, S.Zero)]
        for factor in Mul.make_args(term):
            base, power = (factor.base, factor.exp) if isinstance(factor, Pow) else (factor, S.One)
            of_factor, repeats = [(factor, S.Zero)], 1
            if type(base) in _EXPONENTIALS and power in (1, 2, 3, 4):
                of_factor, repeats = [(d, sign * base.args[0]) for d, sign in _EXPONENTIALS[type(base)]], int(power)
            for _ in range(repeats):
                pairs = [(c * d, u + v) for c, u in pairs for d, v in of_factor]
        terms += pairs
        if len(terms) > _MOST_TERMS:
            return None
    return terms if any(exponent.free_symbols for _, exponent in terms) else None


def _product(node: Expr) -> Expr | None:
    """Cancel ratios of exponential functions, which may be infinity over infinity."""
    steep = [f for f in node.args if isinstance(f, Pow) and f.exp.is_negative and f.base.has(exp, cosh, sinh)]
    if not steep:
        return None
    # The two exponentials of a hyperbolic sine cancel near zero.
    product = node.replace(sinh, lambda u: tanh(u) * cosh(u))
    rest, sums = S.One, []
    for factor in Mul.make_args(product):
        base, power = (factor.base, factor.exp) if isinstance(factor, Pow) else (factor, S.One)
        terms = terms_of_exponentials(base) if power.is_Integer and base.has(exp, cosh) else None
        if terms is None:
            rest *= factor
        else:
            sums.append((terms, power))
    powers = [power for _, power in sums]
    if not powers or not min(powers) < 0 < max(powers):
        return product if product != node else None
    found = ProductOfExponentials(*(sp.Tuple(sp.Tuple(*terms), power) for terms, power in sums))
    return found if rest == 1 else rest * found


def _power(node: Expr) -> Expr | None:
    if node.exp != S.Half or not isinstance(node.base, Max) or S.Zero not in node.base.args:
        return None
    rest = Max(*(each for each in node.base.args if each != 0))
    return RootOfDifference(*Add.make_args(rest))


def _arcsine(node: Expr) -> Expr | None:
    (number,) = node.args
    inner = number.args if isinstance(number, Max) and S.NegativeOne in number.args else ()
    correlation = next((each for each in inner if isinstance(each, Min) and S.One in each.args), None)
    if len(inner) != 2 or correlation is None:
        return None
    return ArcsineOfCorrelation(Min(*(each for each in correlation.args if each != 1)))


_RULES = {log: _log, Mul: _product, Pow: _power, sp.asin: _arcsine}
