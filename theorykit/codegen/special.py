"""Elementwise scalar functions that generated code calls by name.

Functions in the table of `codegen.functions` have symbolic derivatives, so JAX uses the derivatives that are displayed.
"""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf as erf
from jax.scipy.special import erfc as erfc
from jaxtyping import Array
from sympy import Integer

from ..symbolic.numeric import slope_along
from .emission import differentiable, with_slopes
from .functions import ROWS, ScalarFunction
from .spectral_laws import spectral_average as spectral_average

# The derivatives of exp, cosh and sinh are set to zero beyond this number. Otherwise the derivative of 1/(1 + exp x)
# would be zero times infinity if exp x, or exp x times the derivative of x, overflows.
_LARGEST_EXPONENT = 690.0
# Rounding error of a difference, relative to its terms.
_ROUNDING = 4 * float(jnp.finfo(jnp.float64).eps)


def _bounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def value(number):
        inside = jnp.clip(number, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
        beyond = jnp.abs(number) > _LARGEST_EXPONENT
        return jnp.where(beyond, function(jax.lax.stop_gradient(number)), function(inside))

    return value


exp, cosh, sinh = map(_bounded, (jnp.exp, jnp.cosh, jnp.sinh))


def root_of_difference(*terms: Array | float) -> Array:
    """Return sqrt(Max(0, sum of terms)). Value and derivative are zero if the sum is below its rounding error.

    Kernels contain the square root of c_xx c_yy - c_xy^2, which vanishes for two equal examples.
    """
    number, size = sum(terms), reduce(jnp.maximum, map(jnp.abs, terms))
    inside = number > (_ROUNDING * size if len(terms) > 1 else 0.0)
    return jnp.where(inside, jnp.sqrt(jnp.where(inside, number, 1.0)), 0.0)


def arcsine_of_correlation(number: Array | float) -> Array:
    """Return asin(Max(-1, Min(1, number))), whose derivative is set to zero at and beyond -1 and 1."""
    inside = jnp.abs(number) < 1
    return jnp.where(inside, jnp.arcsin(jnp.where(inside, number, 0.0)), jnp.sign(number) * jnp.pi / 2)


def log_sum_exp(*terms: tuple[Array | float | int, Array | float | int]) -> Array:
    """Return the logarithm of the sum of c exp(u) over pairs (c, u)."""
    largest = jax.lax.stop_gradient(reduce(jnp.maximum, (exponent for _, exponent in terms)))
    values = [factor * jnp.exp(exponent - largest) for factor, exponent in terms]
    found = jnp.log(sum(values))
    ones = [type(factor) is type(exponent) is int and (factor, exponent) == (1, 0) for factor, exponent in terms]
    if any(ones):
        # The logarithm of one plus a small number would lose its digits.
        values.pop(ones.index(True))
        found = jnp.where(largest == 0, jnp.log1p(sum(values)), found)
    return largest + found


Terms = tuple[tuple[Array | float | int, Array | float | int], ...]
"""Pairs (c, u) that stand for the sum of c exp(u)."""


def product_of_exponentials(*factors: tuple[Terms, int]) -> Array:
    """Return the product of powers of sums of c exp(u) over pairs (c, u). Large exponents cancel first."""
    total, product = 0.0, 1.0
    for terms, power in factors:
        largest = jax.lax.stop_gradient(reduce(jnp.maximum, (exponent for _, exponent in terms)))
        total += power * largest
        product *= sum(factor * jnp.exp(exponent - largest) for factor, exponent in terms) ** power
    return product * jnp.exp(total)


Case = tuple[Callable[..., Any], Callable[..., Any]]
"""Condition and value of a case, as functions of the same numbers."""


def piecewise(numbers: Sequence[Array | float | int], *cases: Case) -> Array:
    """Return the value of the first case whose condition holds, or NaN.

    The derivative contains only this case. The derivative of another case may be infinite there, and zero times
    infinity would be NaN.
    """

    def value(*numbers):
        result = jnp.nan
        for condition, of_case in reversed(cases):
            result = jnp.where(condition(*numbers), of_case(*numbers), result)
        return jnp.asarray(result, float)

    def slope(i: int) -> Callable[..., Array]:
        slopes = [(condition, slope_along(of_case, i)) for condition, of_case in cases]
        return lambda *numbers: piecewise(numbers, *slopes)

    return with_slopes(value, slope)(*numbers)


def _of_row(row: ScalarFunction) -> Callable[..., Array]:
    @cache
    def of_others(known: tuple[tuple[int, int], ...], count: int) -> Callable[..., Array]:
        """Return the function of the other arguments for `known` whole numbers by position."""
        whole = dict(known)
        places = [i for i in range(count) if i not in whole]

        def arguments(numbers, as_number):
            given = iter(numbers)
            return [as_number(whole[i]) if i in whole else next(given) for i in range(count)]

        return differentiable(
            lambda *numbers: row.value(*arguments(numbers, int)),
            lambda *symbols: row.kind(*arguments(symbols, Integer)),
            [i + 1 for i in places],
        )

    def call(*arguments):
        known = {
            i: int(argument)
            for i, (letter, argument) in enumerate(zip(row.arguments, arguments, strict=False))
            if letter == "n" or (letter == "p" and isinstance(argument, int))
        }
        others = (argument for i, argument in enumerate(arguments) if i not in known)
        return of_others(tuple(known.items()), len(arguments))(*others)

    call.__name__ = row.text
    return call


globals().update({row.text: _of_row(row) for row in ROWS if row.value is not None})
