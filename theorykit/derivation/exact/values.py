"""Values of rational functions at a random point of a prime field, with bounds of their degrees, and of logarithms.

A value is P/q: one denominator q for all entries of a matrix. The degrees of P and q, as polynomials of what was drawn
at random, bound how likely it is that a function which is not zero has the value zero: by degree over prime
(Schwartz and Zippel).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from sympy import Expr, S

from .residues import PRIME, NotRational, SingularPoint, determinant, inverse, reciprocal, slopes

# of a matrix that is inverted in Python's whole numbers, in less than a tenth of a second
_MOST_ROWS = 64


@dataclass(frozen=True, slots=True)
class Residues:
    """A number, or a matrix of numbers, modulo the prime; bounds of the degrees of numerator and denominator."""

    entries: Any
    above: int = 0
    below: int = 0

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix, of one entry or more, and no number."""
        return isinstance(self.entries, np.ndarray)

    @property
    def shape(self) -> tuple[int, int]:
        """That of the matrix."""
        return self.entries.shape

    def __add__(self, other):
        other = as_value(other)
        if not isinstance(other, Residues):
            return NotImplemented
        above = max(self.above + other.below, other.above + self.below)
        return Residues((self.entries + other.entries) % PRIME, above, self.below + other.below)

    __radd__ = __add__

    def __neg__(self):
        return Residues(-self.entries % PRIME, self.above, self.below)

    def __sub__(self, other):
        return self + -as_value(other)

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        other = as_value(other)
        if not isinstance(other, Residues):
            return NotImplemented
        if self.is_matrix and other.is_matrix:
            raise NotRational("a product of matrices, entry by entry")
        if other.is_matrix:
            self, other = other, self
        return Residues(self.entries * other.entries % PRIME, self.above + other.above, self.below + other.below)

    __rmul__ = __mul__

    def __matmul__(self, other):
        return Residues(self.entries @ other.entries % PRIME, self.above + other.above, self.below + other.below)

    def __getitem__(self, index):
        return self.linear(lambda entries: entries[index])

    @property
    def T(self):
        """The transpose."""
        return Residues(self.entries.T, self.above, self.below)

    def trace(self):
        """The trace."""
        return self.linear(np.trace)

    def linear(self, function):
        """A function that is linear in the entries, with whole numbers as its coefficients."""
        return Residues(function(self.entries) % PRIME, self.above, self.below)

    def power(self, exponent: int):
        """A whole power of a number, or of a square matrix."""
        if exponent < 0:
            return self.inverse().power(-exponent)
        if not self.is_matrix:
            return Residues(pow(self.entries, exponent, PRIME), exponent * self.above, exponent * self.below)
        result = self
        for _ in range(exponent - 1):
            result = result @ self
        return result

    def inverse(self):
        """The inverse of a number, or of a square matrix: cofactors over the determinant."""
        if not self.is_matrix:
            return Residues(reciprocal(self.entries), self.below, self.above)
        size = self._rows
        return Residues(inverse(self.entries), (size - 1) * self.above + self.below, size * self.above)

    @property
    def _rows(self) -> int:
        rows = len(self.entries)
        if rows > _MOST_ROWS:
            raise NotRational(f"a matrix of {rows} rows, which takes long to invert exactly")
        return rows

    def log_determinant(self):
        """The logarithm of the determinant of a matrix."""
        size = self._rows
        return Residues(determinant(self.entries), size * self.above, size * self.below).logarithm()

    def logarithm(self):
        """The logarithm of a number."""
        if not self.entries:
            raise SingularPoint("the logarithm of zero")
        return Logarithms(Residues(0), {S.One: (_Power(self, Fraction(1)),)})

    def slope(self):
        """The derivative, where the entries are dual numbers."""
        return Residues(slopes(self.entries), self.above + self.below, 2 * self.below)

    def zeros(self) -> Iterator["Residues"]:
        """What must be zero for it to be: itself."""
        yield self

    @property
    def is_zero(self) -> bool:
        """Whether every entry is."""
        return not np.any(self.entries != 0)


class _Power(NamedTuple):
    """A number to a rational power."""

    base: Residues
    exponent: Fraction


@dataclass(frozen=True, slots=True)
class Logarithms:
    """A number plus a sum of logarithms: for each monomial of symbols, which multiplies them, powers of numbers.

    Different monomials are linearly independent over the rational numbers, so that each must have the product 1.
    """

    rest: Residues
    powers: Mapping[Expr, tuple[_Power, ...]]

    def __add__(self, other):
        other = as_value(other)
        if isinstance(other, Residues):
            return Logarithms(self.rest + other, self.powers)
        powers = dict(self.powers)
        for monomial, added in other.powers.items():
            powers[monomial] = (*powers.get(monomial, ()), *added)
        return Logarithms(self.rest + other.rest, powers)

    __radd__ = __add__

    def __neg__(self):
        return self.times({S.One: Fraction(-1)}, Residues(-1 % PRIME))

    def __sub__(self, other):
        return self + -as_value(other)

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        if isinstance(other, int):
            return self.times({S.One: Fraction(other)}, as_value(other))
        raise NotRational("a logarithm, multiplied by what is no polynomial of symbols")

    __rmul__ = __mul__

    def power(self, exponent: int):
        """It has none that is a sum of logarithms."""
        raise NotRational("a power of a logarithm")

    def times(self, coefficients: Mapping[Expr, Fraction], value: Residues):
        """Multiplied by a polynomial of symbols, of these coefficients and of this value."""
        powers: dict[Expr, tuple[_Power, ...]] = {}
        for own, product in self.powers.items():
            for monomial, coefficient in coefficients.items():
                scaled = [_Power(base, coefficient * exponent) for base, exponent in product]
                powers[own * monomial] = (*powers.get(own * monomial, ()), *scaled)
        return Logarithms(self.rest * value, powers)

    def slope(self, evaluate):
        """The derivative, where the entries are dual numbers; `evaluate` gives the value of a monomial."""
        total = self.rest.slope()
        for monomial, product in self.powers.items():
            for base, exponent in product:
                value = Residues(getattr(base.entries, "value", base.entries), base.above, base.below)
                total += evaluate(monomial) * fraction(exponent) * base.slope() * value.inverse()
        return total

    def zeros(self) -> Iterator[Residues]:
        """What must be zero for it to be: the number beside the logarithms, and of each product what it is beyond 1.

        The product is raised to the power that makes its exponents whole; of positive numbers, that changes nothing.
        """
        yield self.rest
        for product in self.powers.values():
            whole = lcm(*(exponent.denominator for _, exponent in product))
            numerator, denominator = Residues(1), Residues(1)
            for base, exponent in product:
                power = int(exponent * whole)
                if power > 0:
                    numerator *= base.power(power)
                elif power < 0:
                    denominator *= base.power(-power)
            yield numerator - denominator


@lru_cache
def fraction(number: Fraction) -> Residues:
    """A rational number."""
    return Residues(number.numerator * reciprocal(number.denominator % PRIME) % PRIME)


def as_value(number: Any) -> Residues | Logarithms:
    """A value; a whole number of Python becomes one."""
    return Residues(number % PRIME) if isinstance(number, int) else number
