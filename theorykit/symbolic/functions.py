"""Functions of numbers that are kept whole, since what they are made of overflows."""

from sympy import Expr, Function, S, cosh, erfc, exp, log, pi, sqrt, tanh
from sympy.core.function import ArgumentIndexError

from .arguments import checked_scalar


class LogCosh(Function):
    """log cosh x: the hyperbolic cosine itself overflows at x = 711."""

    nargs = 1

    @classmethod
    def eval(cls, number):
        """Even in its argument."""
        if number.is_zero:
            return S.Zero
        return cls(-number) if number.could_extract_minus_sign() else None

    def fdiff(self, argindex=1):
        """The hyperbolic tangent."""
        if argindex != 1:
            raise ArgumentIndexError(self, argindex)
        return tanh(self.args[0])

    def _eval_rewrite_as_log(self, number, **kwargs):
        return log(cosh(number))

    def _eval_is_real(self):
        return self.args[0].is_real

    def _eval_is_nonnegative(self):
        return self.args[0].is_real


class LogNormalCDF(Function):
    """log of the probability that a standard normal number is below x: that itself is zero in float64 below x = -39."""

    nargs = 1

    def fdiff(self, argindex=1):
        """The density over the probability."""
        if argindex != 1:
            raise ArgumentIndexError(self, argindex)
        number = self.args[0]
        return exp(-(number**2) / 2 - self) / sqrt(2 * pi)

    def _eval_rewrite_as_log(self, number, **kwargs):
        return log(erfc(-number / sqrt(2)) / 2)

    def _eval_is_real(self):
        return self.args[0].is_real

    def _eval_is_negative(self):
        return self.args[0].is_real


def log_cosh(number: Expr) -> Expr:
    """log cosh x, without the 2 of 2 cosh x."""
    return LogCosh(checked_scalar("number", number))


def log_normal_cdf(number: Expr) -> Expr:
    """log of the standard normal distribution function at x."""
    return LogNormalCDF(checked_scalar("number", number))
