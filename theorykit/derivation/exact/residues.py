"""Whole numbers modulo a prime, as entries of NumPy's object arrays: inverses, determinants, square roots, derivatives.

The entries of an array are Python's integers, which know no bounds. Matrices are as small as derivations are tried at.
"""

from functools import cache
from typing import Any

import numpy as np
from sympy import factorint
from sympy.ntheory import sqrt_mod

PRIME = 2**127 - 1_480_479_127
"""The prime: the largest of 127 bits that is 1 modulo 8 and modulo each odd prime below 20.

So -1 and the primes below 20 have square roots in the field, and the imaginary unit and the roots of small widths are
elements of it.
"""


class NotRational(NotImplementedError):
    """An expression is no rational function of its symbols, nor a sum of logarithms of them; it has what is said."""


class SingularPoint(ArithmeticError):
    """A denominator or a determinant is zero where an expression was to be evaluated."""


class Dual:
    """a + b e with e^2 = 0: a residue, and its derivative in a direction."""

    __slots__ = ("slope", "value")

    def __init__(self, value: int, slope: int):
        self.value, self.slope = value, slope

    def __add__(self, other):
        value, slope = _parts(other)
        return Dual(self.value + value, self.slope + slope)

    def __neg__(self):
        return Dual(-self.value, -self.slope)

    def __sub__(self, other):
        value, slope = _parts(other)
        return Dual(self.value - value, self.slope - slope)

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        value, slope = _parts(other)
        return Dual(self.value * value, self.value * slope + self.slope * value)

    __radd__, __rmul__ = __add__, __mul__

    def __mod__(self, prime):
        return Dual(self.value % prime, self.slope % prime)

    def __pow__(self, exponent, prime):
        if exponent == 0:
            return 1
        below = pow(self.value, exponent - 1, prime)
        return Dual(below * self.value, exponent * below * self.slope) % prime

    def __bool__(self):
        """Whether it has an inverse."""
        return bool(self.value)


def _parts(number) -> tuple[int, int]:
    return (number.value, number.slope) if isinstance(number, Dual) else (number, 0)


def slopes(entries: Any) -> Any:
    """The derivatives of a number, or of the entries of an array."""
    return _slopes_of_entries(entries) if isinstance(entries, np.ndarray) else _parts(entries)[1]


_slopes_of_entries = np.vectorize(lambda entry: _parts(entry)[1], otypes=[object])
dual = np.vectorize(Dual, otypes=[object])
"""The array of dual numbers of an array of values and one of slopes."""


def reciprocal(number: Any) -> Any:
    """1 / a."""
    if not number:
        raise SingularPoint("a denominator is zero")
    return pow(number, -1, PRIME)


def inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a square matrix, by Gauss-Jordan elimination."""
    size = len(matrix)
    rows = np.hstack([matrix, identity(size)])
    for column in range(size):
        _bring_up_pivot(rows, column)
        rows[column] = rows[column] * reciprocal(rows[column, column]) % PRIME
        others = [row for row in range(size) if row != column]
        rows[others] = (rows[others] - rows[others, column][:, None] * rows[column]) % PRIME
    return rows[:, size:]


def determinant(matrix: np.ndarray) -> Any:
    """The determinant of a square matrix that has an inverse, by Gaussian elimination."""
    rows, result = matrix.copy(), 1
    for column in range(len(rows)):
        result = _bring_up_pivot(rows, column) * result * rows[column, column] % PRIME
        if column == len(rows) - 1:
            break
        below = rows[column + 1 :, column] * reciprocal(rows[column, column]) % PRIME
        rows[column + 1 :] = (rows[column + 1 :] - below[:, None] * rows[column]) % PRIME
    return result


def _bring_up_pivot(rows: np.ndarray, column: int) -> int:
    """Exchange rows so that the diagonal entry of the column is not zero; the sign that a determinant takes by it."""
    pivot = next((row for row in range(column, len(rows)) if rows[row, column]), None)
    if pivot is None:
        raise SingularPoint("a determinant is zero")
    if pivot == column:
        return 1
    rows[[column, pivot]] = rows[[pivot, column]]
    return -1


def identity(size: int) -> np.ndarray:
    """The identity matrix."""
    result = np.zeros((size, size), dtype=object)
    np.fill_diagonal(result, 1)
    return result


@cache
def square_root(number: int) -> int:
    """A root of a whole number, so chosen that the root of a product is the product of roots."""
    if number < 0:
        return _root(-1) * square_root(-number) % PRIME
    result = 1
    for prime, power in factorint(number).items():
        result = result * pow(_root(prime), power, PRIME) % PRIME
    return result


@cache
def _root(number: int) -> int:
    root = sqrt_mod(number % PRIME, PRIME)
    if root is None:
        raise NotRational(f"the square root of {number}, which the field of the check lacks")
    return int(root)
