r"""Limiting spectral laws of large random matrices: Marchenko-Pastur, semicircle, and their free sums.

All laws reduce to one with two parameters: the free sum of a semicircle law of variance v and a free Poisson law of
rate c with jumps of size one. Its Stieltjes transform g solves

    x = 1/g + v g + c / (1 - g).

Derivatives of g and of the logarithmic potential follow from this equation by the implicit function theorem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import mpmath
import sympy as sp

from ..checks import Scalar, checked_arguments, checked_scalar, checked_whole_number, shown
from .functions import WholeFunctionBase
from .matrix_functions import ENTRY, checked_lambda, value_of
from .notation import enclosed, power, unused, value_at


class LawFunctionBase(WholeFunctionBase):
    """Function of a law's parameters v and c, after `places` other numbers, with orders of derivatives at the end."""

    places = 0
    # LaTeX of the function, with the parameters of the law in place of `{law}`.
    notation = ""
    # Function of mpmath numbers. Integrals over the law have none, and are evaluated in float64.
    exact: Callable[..., Any] | None = None
    # The parameters with respect to which JAX differentiates. The other derivatives are known expressions.
    ordered: tuple[int, ...] = ()

    def __new__(cls, *arguments, **options):
        missing = cls.places + 2 + len(cls.ordered) - len(arguments)
        return super().__new__(cls, *arguments, *(sp.S.Zero for _ in range(missing)), **options)

    @classmethod
    def eval(cls, *arguments):
        """Check the parameters and the orders."""
        for name, value in zip("vc", arguments[cls.places :], strict=False):
            if value.is_negative or value.is_real is False:
                raise ValueError(f"the {_MEANING[name]} of a spectral law must not be negative, got {value}")
        for order in arguments[cls.places + 2 :]:
            checked_whole_number("the order of a derivative", order, least=0)

    def _slope(self, argindex):
        numbers, orders = self.args[: self.places + 2], list(self.args[self.places + 2 :])
        orders[self.ordered.index(argindex - 1)] += 1
        return self.func(*numbers, *orders)

    def _eval_evalf(self, prec):
        if self.exact is None or not all(argument.is_number for argument in self.args):
            return None
        split = self.places + 2
        # Roots that almost coincide have half the digits, and differences lose more.
        with mpmath.workprec((2 + any(self.orders)) * (prec + 20)):
            values = [mpmath.mpmathify(argument.evalf(mpmath.mp.dps)) for argument in self.args[:split]]
            return sp.Float(mpmath.diff(self.exact, values, self.orders), precision=prec)

    @property
    def orders(self):
        """Order of the derivative with respect to each number."""
        orders = dict(zip(self.ordered, map(int, self.args[self.places + 2 :]), strict=True))
        return tuple(orders.get(place, 0) for place in range(self.places + 2))

    def _latex(self, printer, exp=None):
        *place, v, c = map(printer._print, self.args[: self.places + 2])
        text = self.notation.format(law=f"{v}, {c}") + "".join(map(enclosed, place))
        return power(_derivatives("xvc" if self.places else "vc", self.orders) + text, exp)


def _derivatives(names: str, orders: Iterable[Any]) -> str:
    """Write derivatives of these orders in LaTeX."""
    powers = ((name, "" if order == 1 else f"^{{{order}}}") for name, order in zip(names, orders, strict=True) if order)
    return "".join(rf"\partial_{{{name}}}{power} " for name, power in powers)


_MEANING = {"v": "variance", "c": "rate"}


def _inverse_slope(g: Any, v: Any, c: Any) -> Any:
    """Return dg/dx without a pole at g = 0 or g = 1."""
    square = (1 - g) ** 2
    return g**2 * square / (v * g**2 * square + c * g**2 - square)


def _transforms(x: Any, v: Any, c: Any) -> list:
    """Return all solutions g of the equation at a real x."""
    coefficients = (v, -(x + v), x + 1 - c, -1) if c else (v, -x, 1)
    return mpmath.polyroots(coefficients[not v :], maxsteps=500, extraprec=4 * mpmath.mp.prec)


class StieltjesTransform(LawFunctionBase):
    """Mean of 1 / (z - x) for a real z outside the support."""

    nargs = numbers = 3
    places = 1
    notation = r"g_{{{law}}}"

    @staticmethod
    def exact(z, v, c):
        """Return the root at which x(g) falls."""
        transforms = _transforms(z, v, c)
        if any(abs(mpmath.im(g)) >= mpmath.mpf(10) ** -(mpmath.mp.dps // 2) for g in transforms):
            return mpmath.nan
        falling = [g for g in map(mpmath.re, transforms) if _inverse_slope(g, v, c) < 0]
        return falling[0] if len(falling) == 1 else mpmath.nan

    def _slope(self, argindex):
        _, v, c = self.args
        slope = _inverse_slope(self, v, c)
        return (slope, -self * slope, -slope / (1 - self))[argindex - 1]


class LogPotential(LawFunctionBase):
    """Mean of log|z - x| for a real z outside the support."""

    nargs = numbers = 3
    places = 1
    notation = r"U_{{{law}}}"

    @staticmethod
    def exact(z, v, c):
        """Return the mean from the Stieltjes transform."""
        g = StieltjesTransform.exact(z, v, c)
        return z * g - 1 - mpmath.log(abs(g)) - v * g**2 / 2 + (c * mpmath.log(abs(1 - g)) if c else 0)

    def _slope(self, argindex):
        g = StieltjesTransform(*self.args)
        return (g, -(g**2) / 2, sp.log(sp.Abs(1 - g)))[argindex - 1]


class SpectralDensity(LawFunctionBase):
    """Density of the law at x, for positive v and c."""

    nargs = 6
    numbers = 3
    places = 1
    notation = r"\mu_{{{law}}}"
    ordered = (0, 1, 2)

    @staticmethod
    def exact(x, v, c):
        """Return the density from the Stieltjes transform."""
        return max((-mpmath.im(g) for g in _transforms(x, v, c)), default=mpmath.mpf(0)) / mpmath.pi


class CubeOfDensity(LawFunctionBase):
    """Integral of the cube of the density, for positive v and c."""

    nargs = 4
    numbers = 2
    notation = r"\int \mu_{{{law}}}^3"
    ordered = (0, 1)


class LogEnergy(LawFunctionBase):
    """Mean of log|x - y| over independent x and y, for positive v and c."""

    nargs = 3
    numbers = 2
    notation = r"\Sigma_{{{law}}}"
    ordered = (1,)

    def _slope(self, argindex):
        v, c, order = self.args
        # The free Fisher information is the derivative of the free entropy along the semicircular flow.
        # Voiculescu, Inventiones mathematicae 132, 189 (1998).
        return sp.Rational(2, 3) * sp.pi**2 * CubeOfDensity(v, c, 0, order) if argindex == 1 else super()._slope(2)


class SpectralAverage(sp.Expr):
    """Mean of a function over the law, differentiated i times with respect to v and j times with respect to c.

    `function` is a SymPy `Lambda` of one number. The law is free Poisson if v is zero, and semicircle if c is zero.
    `side` times a bound on the quadrature error is added.
    """

    is_commutative = True
    function = property(lambda self: self.args[0])
    parameters = property(lambda self: self.args[1:3])
    orders = property(lambda self: self.args[3:5])
    side = property(lambda self: self.args[5])

    def __new__(cls, function, v, c, i=0, j=0, side=0):
        function = checked_lambda(function, 1, "one number")
        v, c, i, j, side = map(sp.sympify, (v, c, i, j, side))
        LawFunctionBase.eval(v, c)
        return super().__new__(cls, function, v, c, i, j, side)

    def with_value(self, value: sp.Expr) -> sp.Expr:
        """Return the mean of another function of the same variable."""
        coefficient, rest = value.as_independent(*self.function.variables, as_Add=False)
        if not rest.has_free(*self.function.variables):
            return value if self.orders == (0, 0) else sp.S.Zero
        return coefficient * self.func(sp.Lambda(self.function.variables, rest), *self.args[1:])

    def slope(self, index: int) -> sp.Expr:
        """Return the derivative with respect to parameter `index`, 0 for v and 1 for c."""
        orders = [order + (place == index) for place, order in enumerate(self.orders)]
        return self.func(self.function, *self.parameters, *orders, self.side)

    def _eval_derivative(self, symbol):
        of_law = (self.slope(i) * parameter.diff(symbol) for i, parameter in enumerate(self.parameters))
        return self.with_value(self.function.expr.diff(symbol)) + sp.Add(*of_law)

    def _eval_is_real(self):
        return self.function.expr.is_real or None

    def _eval_is_positive(self):
        return (self.orders == (0, 0) and self.function.expr.is_positive) or None

    def _latex(self, printer):
        name = unused(printer, "s", self)
        v, c = map(printer._print, self.parameters)
        mean = rf"\left\langle {value_at(printer, self.function, name)} \right\rangle"
        return rf"{_derivatives('vc', self.orders)}{mean}_{{{name} \sim \mu_{{{v}, {c}}}}}"


@dataclass(frozen=True)
class SpectralLaw:
    """Law of the eigenvalues of a large random matrix, made by `marchenko_pastur` and `semicircle`.

    Add laws for the free sum, which is the law of the sum of two independent matrices. Add a number to shift the
    eigenvalues, and multiply by a positive number to scale them. The parameters may be expressions.

    - `variance`: variance of the semicircle law.
    - `rate`, `jump`: rate and size of the jumps of the free Poisson law.
    - `shift`: number added to all eigenvalues.

    Example:
        >>> from theorykit.codegen import interpret
        >>> from theorykit.symbolic import marchenko_pastur, semicircle
        >>> law = marchenko_pastur(2) + semicircle(1)
        >>> float(round(interpret(law.average(lambda s: s**2), {}), 12))
        2.5
    """

    variance: sp.Expr = sp.S.Zero
    rate: sp.Expr = sp.S.Zero
    jump: sp.Expr = sp.S.One
    shift: sp.Expr = sp.S.Zero

    def __add__(self, other: Any) -> SpectralLaw:
        if not isinstance(other, SpectralLaw):
            return replace(self, shift=self.shift + checked_scalar("what is added to a law", other))
        if self.rate != 0 and other.rate != 0 and self.jump != other.jump:
            raise ValueError(
                "a free sum may have free Poisson laws of one size of jumps, "
                f"got {shown(self.jump)} and {shown(other.jump)}"
            )
        jump = self.jump if self.rate != 0 else other.jump
        return SpectralLaw(self.variance + other.variance, self.rate + other.rate, jump, self.shift + other.shift)

    __radd__ = __add__

    def __mul__(self, factor: Any) -> SpectralLaw:
        factor = _positive("the factor of a law", factor)
        return SpectralLaw(self.variance * factor**2, self.rate, self.jump * factor, self.shift * factor)

    __rmul__ = __mul__

    @property
    def mean(self) -> sp.Expr:
        """Mean of the eigenvalues."""
        return self.shift + self.rate * self.jump

    @property
    def _parameters(self) -> tuple[sp.Expr, sp.Expr]:
        """Return v and c of the law with jumps of size one."""
        return self.variance / self.jump**2, self.rate

    def _to_unit(self, place: sp.Expr) -> sp.Expr:
        return (place - self.shift) / self.jump

    def density(self, x: Scalar) -> sp.Expr:
        """Return the density at x, without the atom of a Marchenko-Pastur law of ratio below one."""
        (v, c), x = self._parameters, self._to_unit(checked_scalar("x", x))
        if c == 0:
            return sp.sqrt(sp.Max(0, 4 * v - x**2)) / (2 * sp.pi * v) / self.jump
        if v == 0:
            return sp.sqrt(sp.Max(0, 4 * c - (x - 1 - c) ** 2)) / (2 * sp.pi * x) / self.jump
        return SpectralDensity(x, v, c) / self.jump

    def stieltjes(self, z: Scalar) -> sp.Expr:
        """Return the mean of 1 / (z - s) over eigenvalues s, for a real z outside the support."""
        return StieltjesTransform(self._to_unit(checked_scalar("z", z)), *self._parameters) / self.jump

    def log_potential(self, z: Scalar) -> sp.Expr:
        """Return the mean of log|z - s| over eigenvalues s, for a real z outside the support."""
        return LogPotential(self._to_unit(checked_scalar("z", z)), *self._parameters) + sp.log(self.jump)

    def average(self, function: Callable[[sp.Expr], sp.Expr]) -> sp.Expr:
        """Return the mean of a function over the eigenvalues.

        Means of log(z + s) and of 1 / (z + s) are expressed by the potential and by the Stieltjes transform.

        Args:
            function: Function of an expression, such as `lambda s: log(1 + s)`.
        """
        value = sp.expand_mul(value_of(function, (ENTRY,)))
        return sp.Add(*map(self._mean_of_term, sp.Add.make_args(value)))

    def _mean_of_term(self, term: sp.Expr) -> sp.Expr:
        coefficient, rest = term.as_independent(ENTRY, as_Add=False)
        if not rest.has_free(ENTRY):
            return term
        argument = rest.args[0] if isinstance(rest, sp.log) else 1 / rest
        slope = sp.expand(argument.diff(ENTRY))
        place = sp.expand(-argument.xreplace({ENTRY: sp.S.Zero}) / slope) if slope != 0 else sp.nan
        if not slope.has_free(ENTRY) and argument.is_polynomial(ENTRY):
            if isinstance(rest, sp.log) and slope.is_positive:
                return coefficient * (sp.log(slope) + self.log_potential(place))
            if not isinstance(rest, sp.log):
                return -coefficient / slope * self.stieltjes(place)
        moved = rest.xreplace({ENTRY: self.shift + self.jump * ENTRY})
        return coefficient * SpectralAverage(sp.Lambda(ENTRY, moved), *self._parameters)

    def cube_of_density(self) -> sp.Expr:
        """Return the integral of the cube of the density."""
        v, c = self._parameters
        if c == 0:
            return 3 / (4 * sp.pi**2 * self.variance)
        if v == 0:
            place = self._to_unit
            return (
                self.average(lambda s: (4 * c - (place(s) - 1 - c) ** 2) / (2 * sp.pi * place(s)) ** 2) / self.jump**2
            )
        return CubeOfDensity(v, c) / self.jump**2

    def log_energy(self) -> sp.Expr:
        """Return the mean of log|s - t| over independent eigenvalues s and t, the free entropy up to a constant."""
        v, c = self._parameters
        if c == 0:
            return sp.log(self.variance) / 2 - sp.Rational(1, 4)
        if v == 0:
            of_log = LogPotential(sp.S.Zero, v, c)
            return -sp.S.Half + (1 - c) / 2 * of_log + c * sp.log(c) / 2 + sp.log(self.jump)
        return LogEnergy(v, c) + sp.log(self.jump)


def _positive(what: str, number: Any) -> sp.Expr:
    number = checked_scalar(what, number)
    if number.is_positive is False:
        raise ValueError(f"{what} must be positive, got {number}")
    return number


@checked_arguments
def marchenko_pastur(ratio: Scalar) -> SpectralLaw:
    """Return the law of the eigenvalues of the mean of n = ratio * d matrices w w^T, for standard normal w in R^d.

    For a ratio below one it has an atom of mass 1 - ratio at zero.

    Raises:
        ValueError: If the ratio is known not to be positive.
    """
    _positive("the ratio of a Marchenko-Pastur law", ratio)
    return SpectralLaw(rate=ratio, jump=1 / ratio)


@checked_arguments
def semicircle(variance: Scalar) -> SpectralLaw:
    """Return the semicircle law, of the eigenvalues of a large symmetric matrix with independent entries.

    Raises:
        ValueError: If the variance is known not to be positive.
    """
    return SpectralLaw(variance=_positive("the variance of a semicircle law", variance))
