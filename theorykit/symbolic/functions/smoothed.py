r"""Averages of kinks and jumps over a normal variable, kept whole: their closed forms divide by the slope.

The mean of max(a + b z, 0) over a standard normal z is |b| phi(a/|b|) + a Phi(a/|b|). Where b vanishes, the quotients
and all derivatives have limits, but the formula is 0/0. With R_n the derivative of order n by a, Stein's lemma gives
dR_n/db = b R_{n+2}. So the functions b^k R_n(a, b) are closed under differentiation, and each has a limit at b = 0.
For two variables, polar coordinates serve in the same way.
"""

from sympy import Abs, Expr, Function, Heaviside, Max, S, asin, atan2, erf, erfc, exp, expand, pi, sign, sqrt
from sympy.core.function import ArgumentIndexError


class _Smoothed(Function):
    """b^k times the derivative of order n by a of the mean of a function of a + b z over a standard normal z."""

    def __new__(cls, a, b, n=S.Zero, k=S.Zero, **options):
        return super().__new__(cls, a, b, n, k, **options)

    @classmethod
    def eval(cls, a, b, n, k):
        """In closed form where the slope is a number, or above order zero as a power times the rest."""
        if not (n.is_Integer and n >= 0 and k.is_Integer):
            raise ValueError(f"orders must be whole numbers, and n not negative, got n={n} and k={k}")
        if b.could_extract_minus_sign():
            return (-1) ** k * cls(a, -b, n, k)
        if n < 2 and k != 0:
            return b**k * cls(a, b, n)
        if n < 2 and b.is_zero:
            return cls._limit(a, n)
        if b.is_number and b.is_zero is False:
            return cls._closed_form(a, b, n, k)
        return None

    def fdiff(self, argindex=1):
        """The rule of the family: by a the next order, by b Stein's lemma."""
        a, b, n, k = self.args
        if argindex == 1:
            return self.func(a, b, n + 1, k)
        if argindex != 2:
            raise ArgumentIndexError(self, argindex)
        heat = self.func(a, b, n + 2, k + 1)
        return heat if k == 0 else k * self.func(a, b, n, k - 1) + heat

    def _eval_rewrite_as_erf(self, a, b, n, k, **kwargs):
        return self._closed_form(a, b, n, k)

    def _eval_evalf(self, prec):
        return self.rewrite(erf)._eval_evalf(prec)

    def _eval_is_real(self):
        return self.args[0].is_real and self.args[1].is_real

    def _eval_is_positive(self):
        return (self.args[1].is_nonzero or None) if self.args[2] == 0 and self.args[3] == 0 else None


def _density(a: Expr, b: Expr) -> Expr:
    """The normal density at a/b."""
    return exp(-(a**2) / (2 * b**2)) / sqrt(2 * pi)


def _hermite(order: int, number: Expr) -> Expr:
    """The Hermite polynomial whose weight is the normal density."""
    below, polynomial = S.Zero, S.One
    for k in range(order):
        below, polynomial = polynomial, number * polynomial - k * below
    return expand(polynomial)


class SmoothedRamp(_Smoothed):
    """b^k times the derivative of order n by a of the mean of max(a + b z, 0) over a standard normal z."""

    @staticmethod
    def _limit(a, n):
        return Max(a, 0) if n == 0 else Heaviside(a)

    @staticmethod
    def _closed_form(a, b, n, k):
        above = erfc(-a / (sqrt(2) * Abs(b))) / 2
        if n == 0:
            return b**k * (Abs(b) * _density(a, b) + a * above)
        if n == 1:
            return b**k * above
        order = int(n) - 2
        return (-1) ** order * b**k * _hermite(order, a / Abs(b)) * _density(a, b) / Abs(b) ** (order + 1)


class SmoothedAbs(_Smoothed):
    """b^k times the derivative of order n by a of the mean of |a + b z| over a standard normal z."""

    @classmethod
    def eval(cls, a, b, n, k):
        """Odd or even in a; from the second order on twice the ramp."""
        if n >= 2:
            return 2 * SmoothedRamp(a, b, n, k)
        if a.could_extract_minus_sign():
            return (-1) ** n * cls(-a, b, n, k)
        if a.is_zero and n == 1:
            return S.Zero
        return super().eval(a, b, n, k)

    @staticmethod
    def _limit(a, n):
        return Abs(a) if n == 0 else sign(a)

    @staticmethod
    def _closed_form(a, b, n, k):
        mean_sign = erf(a / (sqrt(2) * Abs(b)))
        return b**k * (2 * Abs(b) * _density(a, b) + a * mean_sign if n == 0 else mean_sign)


class AngleBetween(Function):
    """atan2(c, |d|): the arcsine of the correlation of two normal numbers of covariance c and determinant d^2.

    It needs no quotient of variances, which rounding may carry beyond one and which is 0/0 for a variance of zero.
    """

    nargs = 2

    @classmethod
    def eval(cls, c, d):
        """Odd in c, even in d, and a number for numbers."""
        if c.is_zero:
            return S.Zero
        if c.could_extract_minus_sign():
            return -cls(-c, d)
        if d.could_extract_minus_sign():
            return cls(c, -d)
        if c.is_number and d.is_number:
            return atan2(c, Abs(d))
        return None

    def fdiff(self, argindex=1):
        """That of an angle: the other coordinate over the squared radius."""
        c, d = self.args
        if argindex == 1:
            return PlaneMonomial(c, d, 0, 1, 0, 1)
        if argindex == 2:
            return -PlaneMonomial(c, d, 1, 0, 1, 1)
        raise ArgumentIndexError(self, argindex)

    def _eval_rewrite_as_asin(self, c, d, **kwargs):
        return asin(c / sqrt(expand(c**2 + d**2)))

    def _eval_rewrite_as_atan2(self, c, d, **kwargs):
        return atan2(c, Abs(d))

    def _eval_evalf(self, prec):
        return self.rewrite(atan2)._eval_evalf(prec)

    def _eval_is_real(self):
        return self.args[0].is_real and self.args[1].is_real


class PlaneMonomial(Function):
    """c^i |d|^j sign(d)^s / r^(i + j + m), with r^2 = c^2 + d^2: they make up derivatives of an angle and of a length.

    At c = d = 0 it is zero, although the limit depends on the direction. Its quotients neither overflow nor underflow
    before r does.
    """

    nargs = 6

    @classmethod
    def eval(cls, c, d, i, j, s, m):
        """In closed form for numbers that are not both zero."""
        if not all(order.is_Integer and order >= least for order, least in ((i, 0), (j, 0), (s, 0), (m, -1))):
            raise ValueError(f"orders must be whole numbers, only the last below zero, -1, got {i}, {j}, {s}, {m}")
        if c.is_number and d.is_number and (c.is_zero is False or d.is_zero is False):
            return cls._closed_form(c, d, i, j, s, m)
        if s == 0 and d.could_extract_minus_sign():
            return cls(c, -d, i, j, s, m)
        return None

    @staticmethod
    def _closed_form(c, d, i, j, s, m):
        return c**i * Abs(d) ** j * sign(d) ** s / sqrt(c**2 + d**2) ** (i + j + m)

    def fdiff(self, argindex=1):
        """Monomials of one order more."""
        c, d, i, j, s, m = self.args
        total = i + j + m
        if argindex == 1:
            raised = total * self.func(c, d, i + 1, j, s, m + 1)
            return -raised if i == 0 else i * self.func(c, d, i - 1, j, s, m + 1) - raised
        if argindex != 2:
            raise ArgumentIndexError(self, argindex)
        other = (s + 1) % 2
        raised = total * self.func(c, d, i, j + 1, other, m + 1)
        return -raised if j == 0 else j * self.func(c, d, i, j - 1, other, m + 1) - raised

    def _eval_rewrite_as_sign(self, c, d, i, j, s, m, **kwargs):
        return self._closed_form(c, d, i, j, s, m)

    def _eval_evalf(self, prec):
        return self.rewrite(sign)._eval_evalf(prec)

    def _eval_is_real(self):
        return self.args[0].is_real and self.args[1].is_real


def length(c: Expr, d: Expr) -> Expr:
    """The square root of c^2 + d^2, with finite derivatives where both may be zero."""
    squared = c**2 + d**2
    return sqrt(squared) if squared.is_positive else PlaneMonomial(c, d, 0, 0, 0, -1)
