"""Evaluate expressions exactly at random points modulo the cube of a prime, with degrees.

Two different rational functions agree modulo a prime p at a random point with probability at most their degree divided
by the prime (Schwartz-Zippel lemma). The rules of nodes are those of every algebra.

Numbers are residues modulo p^3, which are Python integers in NumPy object arrays. The digits beyond p replace limits:

- Derivatives are differences: f(x + p v) - f(x - p v) = 2 p f'(x) v modulo p^3, by Taylor's series. They are exact
  modulo p^2, so residuals are tested modulo p^2.
- The logarithm of a residue b is log(b^(p-1)) / (p-1), because b^(p-1) = 1 + p t (Fermat), and the series of
  log(1 + p t) ends modulo p^3. This p-adic logarithm maps products to sums and is a multiple of p. A sum
  g + c_1 log f_1 + ... of rational functions g, c_i and f_i thus vanishes if g does modulo p, and the logarithms do
  modulo p^2, by chance as rarely as their derivative c_1 f_1'/f_1 + ..., because second digits are random.

Symmetric symbols have symmetric values: an identity that holds for all positive definite matrices holds for all
symmetric ones. Scalar symbols have squares as values, so that their roots are residues. The constant pi is
transcendental, and is treated as a symbol.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache, reduce
from typing import Any, ClassVar

import numpy as np
import sympy as sp
from sympy import Basic, Expr, MatrixSymbol, Symbol, factorint
from sympy.core.numbers import ImaginaryUnit, Pi
from sympy.ntheory import sqrt_mod

from ..codegen.evaluate import Algebra, At
from ..symbolic.atoms import BoundVariable, SquareRoot, SymmetricSymbol

PRIME = 2**127 - 1_480_479_127
"""Largest 127-bit prime that is 1 modulo 8 and modulo odd primes below 20, so that -1 and these primes have roots."""
MODULUS = PRIME**3
# Largest number of rows of a matrix that is inverted in Python integers. This takes less than a second.
_MOST_ROWS = 64
# Sizes are below this number. Other residues are not, but by chance.
_LARGEST_SIZE = 10**6
# Marks of values that contain a logarithm, or a function that may be any function.
LOGARITHM, FUNCTION = "logarithm", "function"


class NotRational(NotImplementedError):
    """An expression is no rational function, and not linear in logarithms of such functions."""


class SingularPoint(ArithmeticError):
    """A denominator or a determinant is zero."""


@dataclass(frozen=True, slots=True)
class Residues:
    """A number or an array of numbers modulo the cube of the prime, P/q with the same denominator q for all entries.

    - `above`, `below`: bounds on the degrees of P and q in the randomly drawn numbers.
    - `marks`: whether the value contains a logarithm or any function.
    """

    entries: Any
    above: int = 0
    below: int = 0
    marks: frozenset[str] = frozenset()

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.entries)

    def __add__(self, other):
        # P/q + R/s = (P s + R q) / (q s).
        other = _residues(other)
        above = max(self.above + other.below, other.above + self.below)
        entries = (self.entries + other.entries) % MODULUS
        return Residues(entries, above, self.below + other.below, self.marks | other.marks)

    __radd__ = __add__

    def __neg__(self):
        return self.linear(operator.neg)

    def __sub__(self, other):
        return self + -other

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        return self.bilinear(operator.mul, _residues(other))

    __rmul__ = __mul__

    def __matmul__(self, other):
        return self.bilinear(operator.matmul, other)

    def __truediv__(self, other):
        return self * _residues(other) ** -1

    def __pow__(self, exponent):
        if exponent >= 0:
            return reduce(operator.mul, [self] * exponent, Residues(1))
        if LOGARITHM in self.marks:
            raise NotRational("a power of a logarithm")
        # The common denominator of the entries q/P is the product of all P.
        count = np.size(self.entries)
        inverted = np.vectorize(_reciprocal, otypes=[object])(self.entries)[()]
        return Residues(inverted, self.below + (count - 1) * self.above, count * self.above, self.marks) ** -exponent

    def __getitem__(self, index):
        return self.linear(lambda entries: entries[index])

    @property
    def T(self):
        return self.linear(np.transpose)

    def trace(self):
        return self.linear(np.trace)

    def linear(self, function: Callable) -> Residues:
        return Residues(function(self.entries) % MODULUS, self.above, self.below, self.marks)

    def bilinear(self, function: Callable, other: Residues) -> Residues:
        if LOGARITHM in self.marks & other.marks:
            raise NotRational("a product of logarithms")
        entries = function(self.entries, other.entries) % MODULUS
        return Residues(entries, self.above + other.above, self.below + other.below, self.marks | other.marks)

    def logarithm(self) -> Residues:
        """Return the p-adic logarithm of a number. Its degrees are those of the derivative."""
        if LOGARITHM in self.marks:
            raise NotRational("the logarithm of a logarithm")
        if self.entries % PRIME == 0:
            raise SingularPoint("the logarithm of zero")
        change = pow(self.entries, PRIME - 1, MODULUS) - 1
        found = (2 * change - change**2) * _reciprocal(2 * (PRIME - 1)) % MODULUS
        degree = self.above + self.below
        return Residues(found, degree, degree, self.marks | {LOGARITHM})

    @property
    def is_zero(self) -> bool:
        return not np.any(self.entries % PRIME**2 != 0)


def _residues(number: Residues | int) -> Residues:
    return Residues(number % MODULUS) if isinstance(number, int) else number


def _reciprocal(number: int) -> int:
    if number % PRIME == 0:
        raise SingularPoint("a denominator is zero")
    return pow(number, -1, MODULUS)


def eliminate(matrix: Residues, right: np.ndarray) -> tuple[Residues, Residues]:
    """Return the inverse of a square matrix, times integers, and its determinant, by Gauss-Jordan elimination."""
    size, above, below = matrix.shape[0], matrix.above, matrix.below
    if size > _MOST_ROWS:
        raise NotRational(f"a matrix of {size} rows, which would take too long to invert exactly")
    if LOGARITHM in matrix.marks:
        raise NotRational("the inverse of a matrix of logarithms")
    rows, determinant = np.hstack([matrix.entries, right]), 1
    for column in range(size):
        pivot = next((row for row in range(column, size) if rows[row, column] % PRIME), None)
        if pivot is None:
            raise SingularPoint("a determinant is zero")
        if pivot != column:
            rows[[column, pivot]], determinant = rows[[pivot, column]], -determinant
        determinant = determinant * rows[column, column] % MODULUS
        rows[column] = rows[column] * _reciprocal(rows[column, column]) % MODULUS
        # A determinant needs no zeros above the diagonal.
        others = [row for row in range(size) if row > column or (row < column and right.size)]
        rows[others, column:] = (rows[others, column:] - rows[others, column, None] * rows[column, column:]) % MODULUS
    # The inverse is the adjugate, whose entries are minors of size n - 1, divided by the determinant.
    solved = Residues(rows[:, size:], (size - 1) * above + below, size * above, matrix.marks)
    return solved, Residues(determinant, size * above, size * below, matrix.marks)


@cache
def square_root(number: int) -> int:
    """Return a square root of a whole number, chosen such that the root of a product is the product of roots."""
    result = 1
    for factor, power in factorint(number).items():  # -1 is a factor of negative numbers
        root = sqrt_mod(factor % PRIME, PRIME)
        if root is None:
            raise NotRational(f"the square root of {factor}, which the field of the check lacks")
        for _ in range(2):  # Newton's method
            root = (int(root) + factor * _reciprocal(int(root))) * _reciprocal(2) % MODULUS
        result = result * pow(root, power, MODULUS) % MODULUS
    return result


class Point(At):
    """Random values of symbols and expressions.

    - `sizes`: values of symbolic sizes.
    - `results`: values of functions that are not rational, by function and arguments.
    - `degrees`: bounds on the degrees of these arguments.
    - `origin`, `changed`: a point that differs only in symbols with these names. `values` are theirs, if not random.
    """

    def __init__(self, sizes: Mapping[Expr, int], seed: str):
        super().__init__({}, Field)
        self.sizes = {size: sp.Integer(number) for size, number in sizes.items()}
        self.generator, self.origin, self.changed = random.Random(seed), None, frozenset()
        self.results: dict[tuple, int] = {}
        self.degrees: set[int] = set()

    @property
    def xp(self):
        return _Arrays(self)

    def __call__(self, node: Basic) -> Residues:
        if node not in self.known:
            same = self.origin is not None and self.changed.isdisjoint(_names(node))
            self.known[node] = self.origin(node) if same else Field.rule(type(node))(node, self)
        return self.known[node]

    def where(self, values: Mapping[Basic, Residues | None]) -> Point:
        """Return a point with other values of symbols, random ones for None."""
        point = copy(self)
        point.known, point.origin, point.changed = {}, self, frozenset(symbol.name for symbol in values)
        of_sizes = {size: sp.Integer(value.entries) for size, value in values.items() if size in self.sizes}
        point.sizes = {**self.sizes, **of_sizes}
        point.values = {symbol: value for symbol, value in values.items() if value is not None}
        return point

    def draw(self, symbol: Symbol | MatrixSymbol) -> Point:
        if symbol in self.sizes:
            raise NotRational(f"another value of the size {symbol}")
        return self.where({symbol: None})

    def direction(self, symbol: Expr) -> Residues:
        """Draw a direction in which the value of a symbol may move."""
        if not symbol.is_Matrix:
            return Residues(self.generator.randrange(MODULUS), 1)
        entries = np.empty(tuple(map(self.size, symbol.shape)), dtype=object)
        for i, j in np.ndindex(*entries.shape):
            lower = isinstance(symbol, SymmetricSymbol) and j < i
            entries[i, j] = entries[j, i] if lower else self.generator.randrange(MODULUS)
        return Residues(entries, 1)

    def assignment(self, symbol: MatrixSymbol) -> Residues:
        raise NotRational("an odd or even function of entries")

    def slope(self, function: Callable[[Point], Residues], variable: Expr, direction: Residues) -> Residues:
        """Return the derivative of a function of points along a direction of a variable."""
        moved = [self.where({variable: self(variable) + step * direction}) for step in (PRIME, -PRIME)]
        for point in moved:
            point.results = dict(self.results)  # functions of what moves have unrelated values
        change = function(moved[0]) - function(moved[1])
        if np.any(change.entries % PRIME != 0):
            raise NotRational("a derivative of a function that is not rational")
        return Residues(change.entries // PRIME * _reciprocal(2), change.above, change.below, change.marks)

    def size(self, side: Expr) -> int:
        number = self(side).entries
        if number > _LARGEST_SIZE:
            raise NotRational(f"the size {side}, which has no whole number as its value")
        return number

    def root(self, expression: Expr) -> Residues:
        """Return the square root of a symbol, a number, or a product of them."""
        number = expression.xreplace(self.sizes)
        if number.is_Rational:
            return Residues(square_root(int(number.p * number.q))) / int(number.q)
        if expression.is_Mul:
            return reduce(operator.mul, map(self.root, expression.args))
        if expression.is_Pow and expression.exp.is_Integer:
            return self.root(expression.base) ** int(expression.exp)
        if not expression.is_Symbol and expression is not sp.pi:
            raise NotRational(f"the square root of {expression}")
        return self(sp.sqrt(expression))

    def function(self, variables, expression):
        """Return a function of entries, which may be any function: equal arguments give equal values."""
        if expression.free_symbols - set(variables):
            raise NotRational("a function of entries with parameters")
        return lambda *matrices: self.of_any_function(sp.Lambda(tuple(variables), expression), *matrices)

    def of_any_function(self, function: Any, *matrices: Residues) -> Residues:
        """Return fixed random residues for a function of these entries."""
        # Two arguments P/q and R/s are equal if P s - R q is zero.
        self.degrees.add(max(matrix.above for matrix in matrices) + max(matrix.below for matrix in matrices))

        def of_entries(*entries):
            if (function, entries) not in self.results:
                self.results[function, entries] = self.generator.randrange(MODULUS)
            return self.results[function, entries]

        found = np.vectorize(of_entries, otypes=[object])(*(matrix.entries for matrix in matrices))
        return Residues(found, 1, 0, frozenset([FUNCTION]))


def defined(point: Any, definitions: Iterable[tuple[Expr, Expr]]) -> Any:
    """Return a point with values for defined symbols. Each definition may use earlier symbols."""
    for symbol, value in definitions:
        point = point.where({symbol: point(value)})
    return point


@lru_cache(maxsize=65536)
def _names(node: Basic) -> frozenset[str]:
    # Include symbols in the sizes of matrices.
    own = (node.name,) if isinstance(node, (Symbol, MatrixSymbol)) else ()
    return frozenset(own).union(*map(_names, node.args))


@dataclass(frozen=True)
class _Arrays:
    """Functions of arrays of residues. Those of NumPy are linear."""

    point: Point

    def __getattr__(self, name: str) -> Any:
        if name not in ("eye", "zeros", "ones", "swapaxes", "diagonal", "reshape", "einsum", "split", "sum"):
            raise NotRational(name)

        def apply(*arguments, **options):
            given = [each for each in arguments if isinstance(each, Residues)]
            if not given:
                return Residues(getattr(np, name)(*arguments, dtype=object))
            entries = [each.entries if isinstance(each, Residues) else each for each in arguments]
            found = getattr(np, name)(*entries, **options)
            blocks = [given[0].linear(lambda _, each=each: each) for each in (found if name == "split" else [found])]
            return blocks if name == "split" else blocks[0]

        return apply

    def exp(self, exponents: Residues) -> Residues:
        return self.point.of_any_function("exp", exponents)

    def max(self, exponents: Residues, **options: Any) -> int:
        return 0  # exponentials of residues do not overflow


def _symbol(node, at):
    if node in at.values:
        return at.values[node]
    if node in at.sizes:
        return Residues(int(at.sizes[node]))
    return at.direction(node) if node.is_Matrix else at.root(node) ** 2


def _power(node, at):
    exponent = node.exp.xreplace(at.sizes)
    if exponent.is_Integer:
        return at(node.base) ** int(exponent)
    if not (2 * exponent).is_Integer:
        raise NotRational(f"a power {node.exp}")
    if exponent == sp.S.Half and (node.base is sp.pi or (node.base.is_Symbol and node.base not in at.sizes)):
        if node.base in at.values:
            raise NotRational(f"the square root of {node.base}")
        return at.direction(node.base)
    return at.root(node.base) ** int(2 * exponent)


def _matrix_product(node, at):
    matrices = [at(factor) for factor in node.args if factor.is_Matrix]
    numbers = [at(factor) for factor in node.args if not factor.is_Matrix]
    return reduce(operator.mul, numbers, reduce(operator.matmul, matrices))


def _matrix_power(node, at):
    if not node.exp.is_Integer or node.exp == 0:
        raise NotRational(f"a power {node.exp}")
    base = at(node.base) if node.exp > 0 else Field.inverse(node.base, at)
    return reduce(operator.matmul, [base] * abs(int(node.exp)))


def _refuse(node, at):
    raise NotRational(type(node).__name__)


class Field(Algebra):
    """Evaluate modulo the cube of the prime. Nodes that are not rational functions raise `NotRational`."""

    rules: ClassVar = {
        **dict.fromkeys((Basic, BoundVariable, sp.Piecewise, sp.MatrixBase, SquareRoot), _refuse),
        **dict.fromkeys((Symbol, MatrixSymbol), _symbol),
        Pi: lambda node, at: at.root(node) ** 2,
        ImaginaryUnit: lambda node, at: Residues(square_root(-1)),
        sp.Pow: _power,
        sp.MatMul: _matrix_product,
        sp.MatPow: _matrix_power,
        sp.log: lambda node, at: at(node.args[0]).logarithm(),
    }

    @staticmethod
    def number(number):
        if not number.is_Rational:
            raise NotRational(type(number).__name__)
        return Residues(int(number.p) * _reciprocal(int(number.q)) % MODULUS)

    @staticmethod
    def function(row, node, at):
        _refuse(node, at)

    @staticmethod
    def entrywise(function, *matrices):
        return function(*matrices)

    @staticmethod
    def inverse(matrix, at):
        value = at(matrix)
        return eliminate(value, np.eye(len(value.entries), dtype=object))[0]

    @staticmethod
    def log_det(matrix, at):
        value = at(matrix)
        return eliminate(value, np.empty((len(value.entries), 0), dtype=object))[1].logarithm()

    @staticmethod
    def trace(matrix, at):
        return at(matrix).trace()

    @staticmethod
    def kron(left, right):
        return left.bilinear(np.kron, right)

    @staticmethod
    def joined(blocks, axis):
        below = sum(block.below for block in blocks)
        above = max(block.above + below - block.below for block in blocks)
        entries = np.concatenate([block.entries for block in blocks], axis)
        return Residues(entries, above, below, frozenset().union(*(block.marks for block in blocks)))
