r"""Scalar functions that SymPy lacks. They stay unexpanded because their definitions overflow or lose digits.

The mean of max(a + b z, 0) over a standard normal z is |b| phi(a/|b|) + a Phi(a/|b|). At b = 0, the mean and all its
derivatives have limits, but the formula is 0/0. If R_n is the derivative of order n in a, Stein's lemma gives
dR_n/db = b R_{n+2}. The functions b^k R_n(a, b) are therefore closed under differentiation, and each has a limit at
b = 0. For two variables, polar coordinates serve the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mpmath
import sympy as sp
from sympy import Abs, Expr, Heaviside, Integer, S, erf, erfc, exp, expand, log, pi, sign, sqrt
from sympy.core.function import ArgumentIndexError
from sympy.core.logic import fuzzy_and

from ..checks import Scalar, checked_arguments
from .notation import enclosed, power
from .numeric import NumericFunction


class WholeFunctionBase(sp.Function):
    """Function with a closed form, `rewrite(closed_form)`, for display and for evaluation to many digits."""

    closed_form: type
    # Number of leading arguments that can be differentiated. All other arguments are orders.
    numbers = 1

    def fdiff(self, argindex=1):
        """Differentiate with respect to a numeric argument."""
        if not 1 <= argindex <= self.numbers:
            raise ArgumentIndexError(self, argindex)
        return self._slope(argindex)

    def _eval_evalf(self, prec):
        return self.rewrite(self.closed_form)._eval_evalf(prec)

    def _latex(self, printer, exp=None):
        return power(printer._print(self.rewrite(self.closed_form)), exp)

    def _eval_is_real(self):
        return fuzzy_and(argument.is_real for argument in self.args[: self.numbers])


class Logistic(WholeFunctionBase):
    """1 / (1 + exp(-x)). The exponential overflows at x = -710, and a difference of tanh from one loses all digits."""

    nargs = 1
    closed_form = exp

    def _slope(self, argindex):
        return self * Logistic(-self.args[0])

    def _eval_rewrite_as_exp(self, number, **kwargs):
        return 1 / (1 + exp(-number))

    def _eval_is_positive(self):
        return self.args[0].is_real


class LogCosh(WholeFunctionBase):
    """log cosh x. The hyperbolic cosine itself overflows at x = 711."""

    nargs = 1
    closed_form = log

    @classmethod
    def eval(cls, number):
        """Use that the function is even."""
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
    """Derivative of order n of log Phi(x), where Phi is the normal distribution function. By default, n is 0.

    Phi itself is zero in float64 below x = -39, and derivatives in the lower tail are ratios of numbers that underflow.
    """

    nargs = (1, 2)
    closed_form = log
    order = property(lambda self: int(self.args[1]) if len(self.args) == 2 else 0)

    @classmethod
    def eval(cls, number, order=S.Zero):
        """Check that the order is a whole number."""
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


@checked_arguments
def log_cosh(number: Scalar) -> Expr:
    """Return log cosh x (not log 2 cosh x).

    Example:
        >>> from sympy import symbols
        >>> from theorykit.symbolic import gradient, log_cosh
        >>> x = symbols("x", real=True)
        >>> gradient(log_cosh(2 * x), x)
        2*tanh(2*x)
    """
    return LogCosh(number)


@checked_arguments
def log_normal_cdf(number: Scalar) -> Expr:
    """Return the logarithm of the standard normal distribution function at x."""
    return LogNormalCDF(number)


class _Smoothed(WholeFunctionBase):
    """b^k times the n-th derivative with respect to a of the mean of f(a + b z) over a standard normal z."""

    closed_form = erf
    numbers = 2

    def __new__(cls, a, b, n=S.Zero, k=S.Zero, **options):
        return super().__new__(cls, a, b, n, k, **options)

    @classmethod
    def eval(cls, a, b, n, k):
        """Evaluate in closed form for a numeric slope. For n below two, split off the power b^k."""
        if not (n.is_Integer and n >= 0 and k.is_Integer):
            raise ValueError(f"orders must be whole numbers with n >= 0, got n={n} and k={k}")
        if b.could_extract_minus_sign():
            return (-1) ** k * cls(a, -b, n, k)
        if n < 2 and k != 0:
            return b**k * cls(a, b, n)
        if n < 2 and b.is_zero:
            return cls._limits[int(n)](a)
        if b.is_number and b.is_zero is False:
            return cls._closed_form(a, b, n, k)
        return None

    def _slope(self, argindex):
        a, b, n, k = self.args
        if argindex == 1:
            return self.func(a, b, n + 1, k)
        # Stein's lemma: the mean solves a heat equation in the squared slope.
        heat = self.func(a, b, n + 2, k + 1)
        return heat if k == 0 else k * self.func(a, b, n, k - 1) + heat

    def _eval_rewrite_as_erf(self, a, b, n, k, **kwargs):
        return self._closed_form(a, b, n, k)

    def _eval_is_positive(self):
        return (self.args[1].is_nonzero or None) if self.args[2] == 0 and self.args[3] == 0 else None


def _density(a: Expr, b: Expr) -> Expr:
    """Return the normal density at a/b."""
    return exp(-(a**2) / (2 * b**2)) / sqrt(2 * pi)


class SmoothedRamp(_Smoothed):
    """b^k times the n-th derivative with respect to a of the mean of max(a + b z, 0) over a standard normal z."""

    _limits = (lambda a: sp.Max(a, 0), Heaviside)

    @staticmethod
    def _closed_form(a, b, n, k):
        above = erfc(-a / (sqrt(2) * Abs(b))) / 2
        if n == 0:
            return b**k * (Abs(b) * _density(a, b) + a * above)
        if n == 1:
            return b**k * above
        # Compute the Hermite polynomial (with the normal density as weight) by its recurrence.
        order, ratio, below, polynomial = int(n) - 2, a / Abs(b), S.Zero, S.One
        for i in range(order):
            below, polynomial = polynomial, ratio * polynomial - i * below
        return (-1) ** order * b**k * expand(polynomial) * _density(a, b) / Abs(b) ** (order + 1)


class SmoothedAbs(_Smoothed):
    """b^k times the n-th derivative with respect to a of the mean of |a + b z| over a standard normal z."""

    _limits = (Abs, sign)

    @classmethod
    def eval(cls, a, b, n, k):
        """Use that the function is odd or even in a, and is twice the ramp for n of at least two."""
        if n >= 2:
            return 2 * SmoothedRamp(a, b, n, k)
        if a.could_extract_minus_sign():
            return (-1) ** n * cls(-a, b, n, k)
        if a.is_zero and n == 1:
            return S.Zero
        return super().eval(a, b, n, k)

    @staticmethod
    def _closed_form(a, b, n, k):
        mean_sign = erf(a / (sqrt(2) * Abs(b)))
        return b**k * (2 * Abs(b) * _density(a, b) + a * mean_sign if n == 0 else mean_sign)


class AngleBetween(WholeFunctionBase):
    """atan2(c, |d|), the arcsine of the correlation of two normal numbers.

    c is their covariance, and d^2 the determinant of their covariance matrix. This form avoids the correlation itself,
    which rounding may push beyond one and which is 0/0 at zero variance.
    """

    nargs = numbers = 2
    closed_form = sp.atan2

    @classmethod
    def eval(cls, c, d):
        """Use that the function is odd in c and even in d."""
        if c.is_zero:
            return S.Zero
        if c.could_extract_minus_sign():
            return -cls(-c, d)
        if d.could_extract_minus_sign():
            return cls(c, -d)
        if c.is_number and d.is_number:
            return sp.atan2(c, Abs(d))
        return None

    def _slope(self, argindex):
        c, d = self.args
        return PlaneMonomial(c, d, 0, 1, 0, 1) if argindex == 1 else -PlaneMonomial(c, d, 1, 0, 1, 1)

    def _eval_rewrite_as_asin(self, c, d, **kwargs):
        return sp.asin(c / sqrt(expand(c**2 + d**2)))

    def _eval_rewrite_as_atan2(self, c, d, **kwargs):
        return sp.atan2(c, Abs(d))

    def _latex(self, printer, exp=None):
        return power(printer._print(self.rewrite(sp.asin)), exp)


class PlaneMonomial(WholeFunctionBase):
    """c^i |d|^j sign(d)^s / r^(i + j + m), with r^2 = c^2 + d^2, for derivatives of an angle and of a length.

    At c = d = 0 the value is defined as zero, because the limit depends on the direction.
    """

    nargs = 6
    numbers = 2
    closed_form = sign

    @classmethod
    def eval(cls, c, d, i, j, s, m):
        """Use that the function is even in d for s = 0."""
        if not all(order.is_Integer and order >= least for order, least in ((i, 0), (j, 0), (s, 0), (m, -1))):
            raise ValueError(f"orders must be non-negative whole numbers, the last at least -1, got {i}, {j}, {s}, {m}")
        if c.is_number and d.is_number and (c.is_zero is False or d.is_zero is False):
            return cls._closed_form(c, d, i, j, s, m)
        if s == 0 and d.could_extract_minus_sign():
            return cls(c, -d, i, j, s, m)
        return None

    @staticmethod
    def _closed_form(c, d, i, j, s, m):
        return c**i * Abs(d) ** j * sign(d) ** s / sqrt(c**2 + d**2) ** (i + j + m)

    def _slope(self, argindex):
        c, d, i, j, s, m = self.args
        of_c = argindex == 1
        power, s = (i, s) if of_c else (j, (s + 1) % 2)
        raised, lowered = ((i + 1, j), (i - 1, j)) if of_c else ((i, j + 1), (i, j - 1))
        first = -(i + j + m) * self.func(c, d, *raised, s, m + 1)
        return first if power == 0 else power * self.func(c, d, *lowered, s, m + 1) + first

    def _eval_rewrite_as_sign(self, c, d, i, j, s, m, **kwargs):
        return self._closed_form(c, d, i, j, s, m)


def length(c: Expr, d: Expr) -> Expr:
    """Return the square root of c^2 + d^2, with finite derivatives at zero."""
    squared = c**2 + d**2
    return sqrt(squared) if squared.is_positive else PlaneMonomial(c, d, 0, 0, 0, -1)


JUMPING = (Heaviside, sp.Mod, sp.ceiling, sp.floor, sp.frac, sign)
"""Functions that jump. The derivative of their average is not the average of their derivative between jumps."""


# Derivatives that SymPy lacks, or writes with a spurious pole.
_SLOPES: Mapping[type, Callable[[Expr, int], Expr]] = {
    **dict.fromkeys((Heaviside, sp.ceiling, sp.floor, sign), lambda node, index: S.Zero),
    sp.frac: lambda node, index: S.One,
    sp.Mod: lambda node, index: S.One if index == 1 else -sp.floor(node.args[0] / node.args[1]),
    sp.coth: lambda node, index: -(sp.csch(node.args[0]) ** 2),
}


def partial_derivative(node: Expr, index: int) -> Expr:
    """Differentiate a scalar function with respect to argument `index`, counted from 1, between its jumps."""
    rule = _SLOPES.get(type(node))
    return node.fdiff(index) if rule is None else rule(node, index)


def many_digits(symbols: sp.Symbol | Sequence[sp.Symbol], expression: Expr) -> Callable[..., Any]:
    """Return the expression as a function of mpmath numbers. Numeric functions of users have only float64 precision."""
    evaluated: dict[str, Callable[..., mpmath.mpf]] = {}
    for kind in {each.func for each in expression.atoms(WholeFunctionBase, NumericFunction)}:

        def value(*numbers: Any, kind: Callable[..., Expr] = kind) -> mpmath.mpf:
            digits = mpmath.mp.dps
            exact = [Integer(int(each)) if each == int(each) else sp.Float(each, digits) for each in numbers]
            return mpmath.mpmathify(kind(*exact).evalf(digits))

        name = f"own_{len(evaluated)}"
        evaluated[name] = value
        expression = expression.replace(kind, sp.Function(name))
    return sp.lambdify(symbols, expression, [evaluated, "mpmath"])
