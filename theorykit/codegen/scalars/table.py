"""The scalar functions of which expressions may be made: one row each, and nothing elsewhere says what is covered.

A row has the SymPy class, its text in generated code and its NumPy value, which the interpreter takes. The derivative
is that of `symbolic.functions.partial_derivative`, and the LaTeX that of the printer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import factorial
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np

# its modules are imported where one is used, which few users do
import scipy
import sympy
from jax.scipy import special

from ...symbolic.functions import AngleBetween, LogCosh, LogNormalCDF, PlaneMonomial, SmoothedAbs, SmoothedRamp
from . import values


@dataclass(frozen=True)
class ScalarFunction:
    """One covered function.

    - `kind`: its SymPy class.
    - `text`: the function in generated code: of `jnp`, or a name that `theorykit.codegen.special` has.
    - `numpy`: its value, of floats and arrays.
    - `arguments`: one letter for each argument: x for any number, n for a whole number that is known.
    - `domain`: where it is defined, for the page; real numbers without it.
    - `value`: its JAX code without derivatives; none for a function of `jnp`, whose own derivatives are right.
    - `is_shown`: whether the page lists it: users do not write the others.
    """

    kind: type
    text: str
    numpy: Callable[..., Any]
    arguments: str = "x"
    domain: str = ""
    value: Callable[..., Any] | None = None
    is_shown: bool = True

    @property
    def is_special(self) -> bool:
        """Whether generated code imports it."""
        return not self.text.startswith("jnp.") and self.text != "abs"

    def whole_numbers(self, node: sympy.Expr) -> tuple[int, ...]:
        """The positions of arguments that are whole numbers."""
        return tuple(i for i, letter in enumerate(self.arguments[: len(node.args)]) if letter == "n")


def _quiet(function: Callable) -> Callable:
    def value(*numbers):
        with np.errstate(all="ignore"):
            return function(*numbers)

    return value


def _log_cosh(x):
    # complex too: an action may be tried where a square root is not real
    right = np.where(np.real(x) < 0, np.negative(x), x)
    return right + np.log1p(np.exp(-2 * right)) - np.log(2)


def _log_normal_cdf(x, order=0):
    if order == 0:
        return scipy.special.log_ndtr(x)
    if order == 1:
        return np.sqrt(2 / np.pi) / scipy.special.erfcx(-np.asarray(x) / np.sqrt(2))

    def derivative(x):
        with mpmath.workdps(40 + 15 * order):
            exact = LogNormalCDF(sympy.Float(x, mpmath.mp.dps), sympy.Integer(int(order)))
            return float(exact.rewrite(sympy.log).evalf(20))

    return np.vectorize(derivative, otypes=[float])(x)


def _of_positive(function: Callable, shift: float = 0.0) -> Callable:
    return _quiet(lambda x: np.where(np.add(x, shift) > 0, function(np.add(x, shift)), np.nan))


def _spherical_bessel(n, x):
    # SciPy has it for positive numbers
    return scipy.special.spherical_jn(int(n), np.abs(x)) * np.where(np.less(x, 0), (-1.0) ** int(n), 1.0)


def _polygamma(n, x):
    if n == 0:
        return scipy.special.digamma(x)
    return (-1) ** (n + 1) * factorial(int(n)) * scipy.special.zeta(n + 1, x)


def _smoothed(of_ramp: bool) -> Callable:
    """The closed form as it is written, with its limit for zero slope."""

    @_quiet
    def value(a, b, n=0, k=0):
        a, b = np.broadcast_arrays(np.asarray(a, float), np.asarray(b, float))
        size = np.abs(b)
        ratio = np.where((a == 0) & (size == 0), 0.0, a / size)
        density = scipy.stats.norm.pdf(ratio)
        share = scipy.special.ndtr(ratio) if of_ramp else scipy.special.erf(ratio / np.sqrt(2))
        if n == 0:
            return b**k * ((1 if of_ramp else 2) * size * density + np.where(a == 0, 0.0, a * share))
        if n == 1:
            return b**k * share
        m = int(n) - 2
        polynomial = scipy.special.eval_hermitenorm(m, np.where(density > 0, ratio, 0.0))
        power = int(k) - m - 1
        scaled = np.exp(power * np.log(np.where(size > 0, size, 1.0)) + scipy.stats.norm.logpdf(ratio))
        found = (-1) ** m * np.sign(b) ** (k % 2) * np.where(polynomial == 0, 0.0, polynomial * scaled)
        return np.where((density > 0) & (size > 0), found, 0.0)

    return value


@_quiet
def _plane_monomial(c, d, i, j, s, m):
    radius = np.hypot(c, d)
    angle = np.arctan2(c, np.abs(d))
    value = np.sin(angle) ** i * np.cos(angle) ** j * (np.sign(d) if s else 1.0) / radius**m
    return np.where(radius > 0, value, 0.0)


def _lambert_w(x):
    found = scipy.special.lambertw(x)
    return np.where(np.abs(found.imag) > 0, np.nan, found.real)


def _jnp(kind: type, name: str, domain: str = "") -> ScalarFunction:
    """A function that NumPy and `jax.numpy` have under one name, with its derivatives."""
    return ScalarFunction(kind, "abs" if name == "abs" else f"jnp.{name}", getattr(np, name), domain=domain)


def _both(kind: type, function: Callable, arguments: str = "x", domain: str = "") -> ScalarFunction:
    """A function that is written alike for NumPy and JAX: `function` takes the module before its numbers."""
    numpy = _quiet(lambda *numbers: function(np, *numbers))
    return ScalarFunction(kind, kind.__name__, numpy, arguments, domain, lambda *numbers: function(jnp, *numbers))


def _own(kind: type, numpy: Callable, arguments: str = "x", domain: str = "", **options: Any) -> ScalarFunction:
    """A function of the module of values."""
    value = options.pop("value", None) or getattr(values, kind.__name__)
    return ScalarFunction(kind, value.__name__, numpy, arguments, domain, value, **options)


ROWS = (
    ScalarFunction(sympy.exp, "exp", _quiet(np.exp)),
    _jnp(sympy.log, "log", "x > 0"),
    _jnp(sympy.Abs, "abs"),
    _jnp(sympy.sign, "sign"),
    ScalarFunction(sympy.Heaviside, "jnp.heaviside", np.heaviside, "xx"),
    _jnp(sympy.floor, "floor"),
    _jnp(sympy.ceiling, "ceil"),
    _both(sympy.frac, lambda np, x: np.mod(x, 1.0)),
    _both(sympy.Mod, lambda np, x, y: np.mod(x, y), "xx", "y > 0"),
    _jnp(sympy.sin, "sin"),
    _jnp(sympy.cos, "cos"),
    _jnp(sympy.tan, "tan"),
    _both(sympy.sec, lambda np, x: 1 / np.cos(x)),
    _both(sympy.csc, lambda np, x: 1 / np.sin(x), domain="x != 0"),
    _both(sympy.cot, lambda np, x: 1 / np.tan(x), domain="x != 0"),
    _jnp(sympy.asin, "arcsin", "-1 <= x <= 1"),
    _jnp(sympy.acos, "arccos", "-1 <= x <= 1"),
    _jnp(sympy.atan, "arctan"),
    _own(sympy.acot, _quiet(lambda x: np.where(x == 0, np.pi / 2, np.arctan(np.divide(1.0, x))))),
    _both(sympy.asec, lambda np, x: np.arccos(np.divide(1.0, x)), domain="x <= -1 or x >= 1"),
    _both(sympy.acsc, lambda np, x: np.arcsin(np.divide(1.0, x)), domain="x <= -1 or x >= 1"),
    _both(sympy.atan2, lambda np, y, x: np.arctan2(y, x), "xx"),
    ScalarFunction(sympy.sinh, "sinh", _quiet(np.sinh)),
    ScalarFunction(sympy.cosh, "cosh", _quiet(np.cosh)),
    _jnp(sympy.tanh, "tanh"),
    _own(sympy.sech, _quiet(lambda x: 1 / np.cosh(x))),
    _own(sympy.csch, _quiet(lambda x: 1 / np.sinh(x)), domain="x != 0"),
    _both(sympy.coth, lambda np, x: 1 / np.tanh(x), domain="x != 0"),
    _jnp(sympy.asinh, "arcsinh"),
    _jnp(sympy.acosh, "arccosh", "x >= 1"),
    _jnp(sympy.atanh, "arctanh", "-1 < x < 1"),
    _both(sympy.asech, lambda np, x: np.arccosh(np.divide(1.0, x)), domain="0 < x <= 1"),
    _both(sympy.acsch, lambda np, x: np.arcsinh(np.divide(1.0, x)), domain="x != 0"),
    _both(sympy.acoth, lambda np, x: np.arctanh(np.divide(1.0, x)), domain="x < -1 or x > 1"),
    _own(LogCosh, _log_cosh, value=values.log_cosh),
    ScalarFunction(sympy.erf, "erf", lambda x: scipy.special.erf(x)),
    ScalarFunction(sympy.erfc, "erfc", lambda x: scipy.special.erfc(x)),
    _own(sympy.erfi, lambda x: scipy.special.erfi(x)),
    _own(sympy.erfinv, lambda x: scipy.special.erfinv(x), domain="-1 < x < 1", value=special.erfinv),
    _own(LogNormalCDF, _log_normal_cdf, "xn", value=values.log_normal_cdf),
    _own(sympy.gamma, _of_positive(lambda x: scipy.special.gamma(x)), domain="x > 0"),
    _own(sympy.loggamma, _of_positive(lambda x: scipy.special.gammaln(x)), domain="x > 0"),
    _own(sympy.polygamma, _polygamma, "nx", "x > 0, n = 0, 1, ..."),
    _own(sympy.factorial, _of_positive(lambda x: scipy.special.gamma(x), 1.0), domain="x > -1"),
    _own(sympy.binomial, lambda n, k: scipy.special.binom(n, k), "xx", "x, y, x - y > -1"),
    _own(sympy.beta, lambda x, y: scipy.special.beta(x, y), "xx", "x, y > 0"),
    _own(sympy.Ei, lambda x: scipy.special.expi(x), domain="x != 0", value=special.expi),
    _own(sympy.sinc, lambda x: np.sinc(np.divide(x, np.pi))),
    _own(sympy.jn, _spherical_bessel, "nx", "n = 0, 1, ...", value=values.spherical_jn),
    _own(sympy.besseli, lambda n, x: scipy.special.iv(n, x), "nx", "n whole", value=values.bessel_i),
    _own(sympy.LambertW, _lambert_w, domain="x >= -1/e", value=values.lambert_w),
    _own(SmoothedRamp, _smoothed(True), "xxnn", value=values.smoothed_ramp, is_shown=False),
    _own(SmoothedAbs, _smoothed(False), "xxnn", value=values.smoothed_abs, is_shown=False),
    _own(AngleBetween, lambda c, d: np.arctan2(c, np.abs(d)), "xx", value=values.angle_between, is_shown=False),
    _own(PlaneMonomial, _plane_monomial, "xxnnnn", value=values.plane_monomial, is_shown=False),
)
"""All rows, in the order of the page."""
TABLE: Mapping[type, ScalarFunction] = {row.kind: row for row in ROWS}
"""The row of each covered SymPy class."""
