"""Scalar functions that SymPy lacks. They stay unexpanded because their definitions overflow or lose digits."""

import sympy as sp
from sympy import Abs, Expr, Heaviside, Integer, S, erf, erfc, exp, expand, log, pi, sign, sqrt
from sympy.core.function import ArgumentIndexError
from sympy.core.logic import fuzzy_and

from .atoms import checked_scalar
from .notation import enclosed, power

# Slopes and lengths below this number count as zero: the fourth power of a smaller one underflows.
_SMALLEST = sp.Float(1e-70)


class WholeFunctionBase(sp.Function):
    """Function with a closed form, `rewrite(closed_form)`, for display and for many digits."""

    closed_form: type
    # Number of leading arguments that can be differentiated. All other arguments are orders.
    numbers = 1

    def fdiff(self, argindex=1):
        if not 1 <= argindex <= self.numbers:
            raise ArgumentIndexError(self, argindex)
        return self._slope(argindex)

    def _eval_evalf(self, prec):
        return self.rewrite(self.closed_form)._eval_evalf(prec)

    def _latex(self, printer, exp=None):
        return power(printer._print(self.rewrite(self.closed_form)), exp)

    def _eval_is_real(self):
        return fuzzy_and(argument.is_real for argument in self.args[: self.numbers])


class LogCosh(WholeFunctionBase):
    """log cosh x. The hyperbolic cosine itself overflows at x = 711."""

    nargs = 1
    closed_form = log

    @classmethod
    def eval(cls, number):
        if number.is_zero:
            return S.Zero
        return cls(-number) if number.could_extract_minus_sign() else None

    def _slope(self, argindex):
        return sp.tanh(self.args[0])

    def _eval_rewrite_as_log(self, number, **kwargs):
        return log(sp.cosh(number))

    def _eval_is_nonnegative(self):
        return self.args[0].is_real


class LogNormalCDF(WholeFunctionBase):
    """Derivative of order n of log Phi(x), where Phi is the normal distribution function. Phi underflows at -39."""

    nargs = (1, 2)
    closed_form = log
    order = property(lambda self: int(self.args[1]) if len(self.args) == 2 else 0)

    @classmethod
    def eval(cls, number, order=S.Zero):
        if not (order.is_Integer and order >= 0):
            raise ValueError(f"the order of a derivative must be a non-negative whole number, got {order}")

    def __new__(cls, number, order=S.Zero, **options):
        return super().__new__(cls, number, *([] if order == 0 else [order]), **options)

    def _slope(self, argindex):
        return type(self)(self.args[0], Integer(self.order + 1))

    def _eval_rewrite_as_log(self, number, order=S.Zero, **kwargs):
        if order == 0:
            return log(erfc(-number / sqrt(2)) / 2)
        at = sp.Dummy()
        ratio = sqrt(2 / pi) * exp(-(at**2) / 2) / erfc(-at / sqrt(2))
        return ratio.diff(at, int(order) - 1).xreplace({at: number})

    def _eval_is_negative(self):
        return self.args[0].is_real if self.order == 0 else None

    def _latex(self, printer, exp=None):
        name = r"\log\Phi" if self.order == 0 else rf"\left(\log\Phi\right)^{{({self.order})}}"
        return power(name + enclosed(printer._print(self.args[0])), exp)


def log_cosh(number: Expr) -> Expr:
    """Return log cosh x of a number x (not log 2 cosh x)."""
    return LogCosh(checked_scalar("number", number))


def log_normal_cdf(number: Expr) -> Expr:
    """Return the logarithm of the standard normal distribution function at a number."""
    return LogNormalCDF(checked_scalar("number", number))


def with_log_normal_cdf(expression: Expr) -> Expr:
    """Write logarithms of a (1 + erf(u)) or of a erfc(u), which underflow, as log Phi."""

    def rule(of: Expr) -> Expr:
        constant, rest = expand(of.rewrite(erf)).as_coeff_Add()
        factor, function = rest.as_coeff_Mul()
        if isinstance(function, erf) and abs(factor) == constant:
            return log(2 * constant) + LogNormalCDF(sign(factor) * sqrt(2) * function.args[0])
        return log(of)

    return expression.replace(log, rule) if expression.has(erf, erfc) else expression


class InCases(WholeFunctionBase):
    """Function of two numbers whose closed form divides by zero at some of them, where `in_cases` has the limit."""

    numbers = 2

    def in_cases(self, *numbers: Expr) -> sp.Piecewise:
        """Return the function of these numbers, with the orders of this one, as an expression that evaluates."""
        condition, limit = self._limit(*numbers)
        closed = getattr(self, f"_eval_rewrite_as_{self.closed_form.__name__}")(*numbers, *self.args[2:])
        return sp.Piecewise((closed, condition), (limit, True))


class SmoothedKink(InCases):
    """Derivative of order n in a of the mean of max(a + b z, 0) over a standard normal z; for s = 1, of |a + b z|.

    The closed form is 0/0 at b = 0, where each function has a limit. Stein's lemma, dR_n/db = b R_{n+2}, closes the
    functions under differentiation.
    """

    nargs = 4
    closed_form = erf

    @classmethod
    def eval(cls, a, b, n, s):
        if b.could_extract_minus_sign():
            return cls(a, -b, n, s)
        if s == 1 and n >= 2:
            return 2 * cls(a, b, n, 0)
        if s == 1 and a.could_extract_minus_sign():
            return (-1) ** n * cls(-a, b, n, s)
        if s == 1 and n == 1 and a.is_zero:
            return S.Zero
        if b.is_zero:
            return (sp.Max(a, 0), Heaviside(a), Abs(a), sign(a))[n + 2 * s] if n < 2 else S.Zero
        return cls._eval_rewrite_as_erf(a, b, n, s) if b.is_number and b.is_zero is False else None

    def _slope(self, argindex):
        a, b, n, s = self.args
        return self.func(a, b, n + 1, s) if argindex == 1 else b * self.func(a, b, n + 2, s)

    @staticmethod
    def _eval_rewrite_as_erf(a, b, n, s, **kwargs):
        size = Abs(b)
        density = exp(-(a**2) / (2 * b**2)) / sqrt(2 * pi)
        if n < 2:
            share = erf(a / (sqrt(2) * size)) if s == 1 else erfc(-a / (sqrt(2) * size)) / 2
            return (1 + s) * size * density + a * share if n == 0 else share
        # Compute the Hermite polynomial (with the normal density as weight) by its recurrence.
        order, ratio, below, polynomial = int(n) - 2, a / size, S.Zero, S.One
        for i in range(order):
            below, polynomial = polynomial, ratio * polynomial - i * below
        return (-1) ** order * expand(polynomial) * density / size ** (order + 1)

    def _limit(self, a, b):
        # The density at 40 standard deviations is zero in float64, even if it is divided by powers of the slope.
        return (Abs(a) < 40 * Abs(b)) & (Abs(b) > _SMALLEST), self.func(a, S.Zero, *self.args[2:])

    def _eval_is_positive(self):
        return (self.args[1].is_nonzero or None) if self.args[2] == 0 else None


class AngleBetween(InCases):
    """atan2(c, d) for d >= 0, the arcsine of the correlation of two normal numbers.

    c is their covariance, and d^2 the determinant of their covariance matrix. The correlation itself may round to more
    than one, and is 0/0 at zero variance, where derivatives are set to zero.
    """

    nargs = 2
    closed_form = sp.atan2

    @classmethod
    def eval(cls, c, d):
        if c.is_zero:
            return S.Zero
        if c.could_extract_minus_sign():
            return -cls(-c, d)
        return sp.atan2(c, d) if c.is_number and d.is_number else None

    def _slope(self, argindex):
        c, d = self.args
        return (d if argindex == 1 else -c) * PowerOfLength(c, d, -2)

    def _eval_rewrite_as_asin(self, c, d, **kwargs):
        return sp.asin(c / sqrt(expand(c**2 + d**2)))

    def _eval_rewrite_as_atan2(self, c, d, **kwargs):
        return sp.atan2(c, d)

    def _limit(self, c, d):
        return c**2 + d**2 > _SMALLEST**2, S.Zero

    def _latex(self, printer, exp=None):
        return power(printer._print(self.rewrite(sp.asin)), exp)


class PowerOfLength(InCases):
    """r^n with r^2 = c^2 + d^2 and a whole number n, for a length and its derivatives. It is zero at r = 0."""

    nargs = 3
    closed_form = sp.Pow
    _limit = AngleBetween._limit

    @classmethod
    def eval(cls, c, d, n):
        if (squared := c**2 + d**2).is_positive:
            return sqrt(squared) ** n
        if c.could_extract_minus_sign() or d.could_extract_minus_sign():
            c, d = (-each if each.could_extract_minus_sign() else each for each in (c, d))
            return cls(c, d, n)
        return None

    def _slope(self, argindex):
        c, d, n = self.args
        return n * self.args[argindex - 1] * self.func(c, d, n - 2)

    def _eval_rewrite_as_Pow(self, c, d, n, **kwargs):
        return sqrt(c**2 + d**2) ** n


JUMPING = (Heaviside, sp.ceiling, sp.floor, sign)
"""Functions that jump. The derivative of their average is not the average of their derivative between jumps."""
