"""Functions that are kept whole, because the expressions that define them overflow or cancel."""

from sympy import Dummy, Expr, Function, Integer, S, cosh, erfc, exp, log, pi, sqrt, tanh
from sympy.core.function import ArgumentIndexError

from ...checks import checked_scalar


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

    def _eval_evalf(self, prec):
        return self.rewrite(log)._eval_evalf(prec)

    def _eval_is_real(self):
        return self.args[0].is_real

    def _eval_is_nonnegative(self):
        return self.args[0].is_real


class LogNormalCDF(Function):
    """The derivative of order n, zero if it is not given, of log Phi(x), the log of the normal distribution function.

    Phi itself is zero in float64 below x = -39. The derivatives are kept whole too: in the lower tail, the density over
    the probability is a ratio of two numbers that underflow, and its derivatives cancel.
    """

    nargs = (1, 2)

    @classmethod
    def eval(cls, number, order=S.Zero):
        """Without an order that is zero."""
        if not (order.is_Integer and order >= 0):
            raise ValueError(f"the order of a derivative must be a whole number that is not negative, got {order}")

    def __new__(cls, number, order=S.Zero, **options):
        return super().__new__(cls, number, *([] if order == 0 else [order]), **options)

    @property
    def order(self) -> int:
        """The order of the derivative."""
        return int(self.args[1]) if len(self.args) == 2 else 0

    def fdiff(self, argindex=1):
        """The derivative of the next order."""
        if argindex != 1:
            raise ArgumentIndexError(self, argindex)
        return type(self)(self.args[0], Integer(self.order + 1))

    def _eval_rewrite_as_log(self, number, order=S.Zero, **kwargs):
        if order == 0:
            return log(erfc(-number / sqrt(2)) / 2)
        at = Dummy()
        ratio = sqrt(2 / pi) * exp(-(at**2) / 2) / erfc(-at / sqrt(2))
        return ratio.diff(at, int(order) - 1).xreplace({at: number})

    def _eval_evalf(self, prec):
        return self.rewrite(log)._eval_evalf(prec)

    def _eval_is_real(self):
        return self.args[0].is_real

    def _eval_is_negative(self):
        return self.args[0].is_real if self.order == 0 else None


def log_cosh(number: Expr) -> Expr:
    """log cosh x, without the 2 of 2 cosh x."""
    return LogCosh(checked_scalar("number", number))


def log_normal_cdf(number: Expr) -> Expr:
    """log of the standard normal distribution function at x."""
    return LogNormalCDF(checked_scalar("number", number))
