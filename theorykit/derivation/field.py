"""The algebra of proofs: evaluate expressions exactly at random points of a prime field, with bounds on degrees.

Two different rational functions agree at such a point with probability at most their degree divided by the prime
(Schwartz-Zippel lemma). The rules of nodes are those of every algebra.

The value of a matrix symbol is a random matrix, which is symmetric if the symbol is. An identity of rational functions
that holds for all positive definite matrices holds for all symmetric matrices. The value of a scalar symbol is the
square of a random residue, so that its square root is also in the field. The constant pi is treated as a symbol,
because it is transcendental.

Residues are Python integers, which cannot overflow, in NumPy object arrays.
"""

import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, reduce
from math import lcm
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sympy as sp
from sympy import Basic, Expr, MatrixSymbol, Mul, S, Symbol, expand, factorint
from sympy.core.numbers import ImaginaryUnit, Pi
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.ntheory import sqrt_mod

from ..codegen.evaluate import Algebra, At, refuse
from ..symbolic.atoms import BoundVariable, Softmax, SymmetricSymbol

PRIME = 2**127 - 1_480_479_127
"""Largest 127-bit prime that is 1 modulo 8 and modulo odd primes below 20, so that -1 and these primes have roots."""
# Largest number of rows of a matrix that is inverted in Python integers. This takes less than a tenth of a second.
_MOST_ROWS = 64


class NotRational(NotImplementedError):
    """An expression is neither a rational function of its symbols nor a sum of logarithms of such functions."""


class SingularPoint(ArithmeticError):
    """A denominator or a determinant is zero."""


class _Arithmetic:
    # Derive the other operations from addition, multiplication and negation.
    __slots__ = ()

    def __radd__(self, other):
        return self + other

    def __sub__(self, other):
        return self + -as_value(other)

    def __rsub__(self, other):
        return -self + other

    def __rmul__(self, other):
        return self * other


class Dual(_Arithmetic):
    """Dual number a + b e with e^2 = 0: a residue or an array of residues a, and its directional derivative b."""

    __slots__ = ("slope", "value")
    # Arrays leave operations with dual numbers to this class.
    __array_ufunc__ = None

    def __init__(self, value: int | np.ndarray, slope: int | np.ndarray):
        self.value, self.slope = value, slope

    def __add__(self, other):
        value, slope = _parts(other)
        return Dual(self.value + value, self.slope + slope)

    def __neg__(self):
        return Dual(-self.value, -self.slope)

    def __sub__(self, other):
        return self + -other

    def __mul__(self, other):
        return _bilinear(operator.mul, self, other)

    def __matmul__(self, other):
        return _bilinear(operator.matmul, self, other)

    def __rmatmul__(self, other):
        return _bilinear(operator.matmul, other, self)

    def __mod__(self, prime):
        return Dual(self.value % prime, self.slope % prime)

    def __pow__(self, exponent, prime):
        if exponent == 0:
            return 1
        below = pow(self.value, exponent - 1, prime)
        return Dual(below * self.value, exponent * below * self.slope) % prime

    def __bool__(self):
        return bool(self.value)


def _parts(number):
    return (number.value, number.slope) if isinstance(number, Dual) else (number, 0)


def _linear(function, entries):
    return Dual(function(entries.value), function(entries.slope)) if isinstance(entries, Dual) else function(entries)


def _bilinear(function, left, right):
    """Apply a product of two numbers or arrays, with the product rule for dual numbers."""
    if not isinstance(right, Dual):
        return _linear(lambda part: function(part, right), left)
    if not isinstance(left, Dual):
        return _linear(lambda part: function(left, part), right)
    slope = function(left.value, right.slope) + function(left.slope, right.value)
    return Dual(function(left.value, right.value), slope)


def _reciprocal(number: Any) -> Any:
    if not number:
        raise SingularPoint("a denominator is zero")
    return pow(number, -1, PRIME)


def inverse(matrix: np.ndarray | Dual) -> np.ndarray | Dual:
    """Invert a square matrix by Gauss-Jordan elimination."""
    if isinstance(matrix, Dual):
        inverted = inverse(matrix.value)
        return Dual(inverted, -inverted @ (matrix.slope @ inverted % PRIME) % PRIME)
    size = len(matrix)
    rows = np.hstack([matrix, np.eye(size, dtype=int).astype(object)])
    for column in range(size):
        _bring_up_pivot(rows, column)
        rows[column] = rows[column] * _reciprocal(rows[column, column]) % PRIME
        others = [row for row in range(size) if row != column]
        rows[others] = (rows[others] - rows[others, column][:, None] * rows[column]) % PRIME
    return rows[:, size:]


def determinant(matrix: np.ndarray | Dual) -> Any:
    """Return the determinant of an invertible square matrix by Gaussian elimination."""
    if isinstance(matrix, Dual):
        value = determinant(matrix.value)
        return Dual(value, value * np.trace(inverse(matrix.value) @ matrix.slope) % PRIME)
    rows, result = matrix.copy(), 1
    for column in range(len(rows)):
        result = _bring_up_pivot(rows, column) * result * rows[column, column] % PRIME
        if column < len(rows) - 1:
            below = rows[column + 1 :, column] * _reciprocal(rows[column, column]) % PRIME
            rows[column + 1 :] = (rows[column + 1 :] - below[:, None] * rows[column]) % PRIME
    return result


def _bring_up_pivot(rows: np.ndarray, column: int) -> int:
    # Exchange rows so that the diagonal entry is not zero. Return the sign by which this changes a determinant.
    pivot = next((row for row in range(column, len(rows)) if rows[row, column]), None)
    if pivot is None:
        raise SingularPoint("a determinant is zero")
    if pivot == column:
        return 1
    rows[[column, pivot]] = rows[[pivot, column]]
    return -1


@cache
def square_root(number: int) -> int:
    """Return a square root of a whole number, chosen such that the root of a product is the product of roots."""
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


@dataclass(frozen=True, slots=True)
class Residues(_Arithmetic):
    """A number or a matrix of numbers modulo the prime, P/q with the same denominator q for all entries.

    - `entries`: the residues.
    - `above`: bound on the degree of P in the randomly drawn numbers.
    - `below`: bound on the degree of q.
    """

    entries: Any
    above: int = 0
    below: int = 0

    @property
    def is_matrix(self) -> bool:
        """Return whether this is a matrix instead of a number."""
        return isinstance(_parts(self.entries)[0], np.ndarray)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and the number of columns."""
        return _parts(self.entries)[0].shape

    def __add__(self, other):
        other = as_value(other)
        if not isinstance(other, Residues):
            return NotImplemented
        # P/q + R/s = (P s + R q) / (q s).
        above = max(self.above + other.below, other.above + self.below)
        return Residues((self.entries + other.entries) % PRIME, above, self.below + other.below)

    def __neg__(self):
        return Residues(-self.entries % PRIME, self.above, self.below)

    def __mul__(self, other):
        other = as_value(other)
        if not isinstance(other, Residues):
            return NotImplemented
        entries = _bilinear(operator.mul, self.entries, other.entries)
        return Residues(entries % PRIME, self.above + other.above, self.below + other.below)

    def __matmul__(self, other):
        return Residues(self.entries @ other.entries % PRIME, self.above + other.above, self.below + other.below)

    def __getitem__(self, index):
        return self.linear(lambda entries: entries[index])

    @property
    def T(self):
        """Return the transpose."""
        return self.linear(np.transpose)

    def trace(self):
        """Return the trace."""
        return self.linear(np.trace)

    def linear(self, function):
        """Apply a function that is linear in the entries and has integer coefficients."""
        return Residues(_linear(function, self.entries) % PRIME, self.above, self.below)

    def power(self, exponent: int):
        """Return an integer power of a number or of a square matrix."""
        if exponent < 0:
            return self.inverse().power(-exponent)
        if not self.is_matrix:
            return Residues(pow(self.entries, exponent, PRIME), exponent * self.above, exponent * self.below)
        return reduce(lambda result, _: result @ self, range(exponent - 1), self)

    def inverse(self):
        """Invert a number or a square matrix."""
        if not self.is_matrix:
            return Residues(_reciprocal(self.entries), self.below, self.above)
        # The inverse is the adjugate, whose entries are minors of size n - 1, divided by the determinant of degree n.
        size = self._rows()
        return Residues(inverse(self.entries), (size - 1) * self.above + self.below, size * self.above)

    def _rows(self) -> int:
        rows = self.shape[0]
        if rows > _MOST_ROWS:
            raise NotRational(f"a matrix of {rows} rows, which would take too long to invert exactly")
        return rows

    def logarithm(self):
        """Return the logarithm of a number or of the determinant of a matrix."""
        if self.is_matrix:
            size = self._rows()
            return Residues(determinant(self.entries), size * self.above, size * self.below).logarithm()
        if not self.entries:
            raise SingularPoint("the logarithm of zero")
        return Logarithms(Residues(0), {S.One: (_Power(self, Fraction(1)),)})

    def slope(self, _=None):
        """Return the derivative, if the entries are dual numbers."""
        # (P/q)' = (P' q - P q') / q^2.
        return Residues(_parts(self.entries)[1], self.above + self.below, 2 * self.below)

    def zeros(self) -> Iterator["Residues"]:
        """Yield the residues that must vanish for this value to vanish, which is only the value itself."""
        yield self

    @property
    def is_zero(self) -> bool:
        """Return whether every entry is zero."""
        return not np.any(self.entries != 0)


class _Power(NamedTuple):
    base: Residues
    exponent: Fraction


@dataclass(frozen=True, slots=True)
class Logarithms(_Arithmetic):
    """A number plus a sum of logarithms, with monomials of symbols as coefficients.

    - `rest`: the number.
    - `powers`: for each monomial, the arguments of its logarithms as powers of numbers.

    Different monomials are linearly independent over the rational numbers. The sum of logarithms therefore vanishes
    only if the product of powers is 1 for each monomial.
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

    def __neg__(self):
        return self.times({S.One: Fraction(-1)}, Residues(-1 % PRIME))

    def __mul__(self, other):
        if isinstance(other, int):
            return self.times({S.One: Fraction(other)}, as_value(other))
        raise NotRational("a logarithm that is not multiplied by a polynomial of symbols")

    def power(self, exponent: int):
        """Raise `NotRational`, because a power is not a sum of logarithms."""
        raise NotRational("a power of a logarithm")

    def logarithm(self):
        """Raise `NotRational`, because the logarithm of a logarithm is not a sum of logarithms."""
        raise NotRational("the logarithm of a logarithm")

    def times(self, coefficients: Mapping[Expr, Fraction], value: Residues):
        """Multiply by a polynomial of symbols, given by its coefficients and its value."""
        powers: dict[Expr, tuple[_Power, ...]] = {}
        for own, product in self.powers.items():
            for monomial, coefficient in coefficients.items():
                scaled = [_Power(base, coefficient * exponent) for base, exponent in product]
                powers[own * monomial] = (*powers.get(own * monomial, ()), *scaled)
        return Logarithms(self.rest * value, powers)

    def slope(self, evaluate):
        """Return the derivative, if the entries are dual numbers. `evaluate` gives the value of a monomial."""
        # (c log b)' = c b' / b. `base.entries` are dual numbers with value b.
        total = self.rest.slope()
        for monomial, product in self.powers.items():
            for base, exponent in product:
                value = Residues(getattr(base.entries, "value", base.entries), base.above, base.below)
                total += evaluate(monomial) * _fraction(exponent) * base.slope() * value.inverse()
        return total

    def zeros(self) -> Iterator[Residues]:
        """Yield the residues that must vanish for this value to vanish: `rest`, and each product of powers minus 1."""
        # Raise the products to a power that makes all exponents integers. For positive numbers this is equivalent.
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


Value = Residues | Logarithms


@lru_cache
def _fraction(number: Fraction) -> Residues:
    return Residues(number.numerator * _reciprocal(number.denominator % PRIME) % PRIME)


def as_value(number: Any) -> Value:
    """Convert a Python integer to a value, and return values unchanged."""
    return Residues(number % PRIME) if isinstance(number, int) else number


ANY_FUNCTIONS = (sp.Lambda, Softmax)
"""Functions that may be any functions: a proof uses only that equal arguments give equal values."""


class Point(At):
    """Random values of symbols and expressions.

    - `sizes`: values of symbolic sizes by name.
    - `generator`: source of random numbers.
    - `drawn`: random values by symbol and shape, shared by all points that are made from one.
    - `results`: values of functions that are not rational, by function and arguments.
    - `degrees`: bounds on the degrees of these arguments.
    - `given`, `roots`: values of symbols that replace random values, and square roots of scalars among them.
    - `origin`, `changed`: a point that differs only in symbols with these names.
    """

    def __init__(self, sizes: Mapping[str, int], generator: random.Random):
        super().__init__({}, Field)
        self.sizes, self.generator = sizes, generator
        self.drawn: dict[tuple, Residues] = {}
        self.results: dict[tuple, Any] = {}
        self.degrees: set[int] = set()
        self.given: dict[Basic, Value] = {}
        self.roots: dict[Basic, Residues] = {}
        self.origin: Point | None = None
        self.changed: frozenset[str] = frozenset()

    def __call__(self, node: Basic) -> Value:
        """Evaluate an expression. Raises `NotRational`, which names a part that is not a rational function."""
        if node not in self.known:
            same = self.origin is not None and self.changed.isdisjoint(_names(node))
            self.known[node] = self.origin(node) if same else Field.rule(type(node))(node, self)
        return self.known[node]

    def where(self, values: Mapping[Basic, Value | int]) -> "Point":
        """Return a point with other values of symbols, or other whole numbers for sizes."""
        numbers = {symbol.name: value for symbol, value in values.items() if isinstance(value, int)}
        point = Point({**self.sizes, **numbers}, self.generator)
        point.drawn, point.results, point.degrees = self.drawn, self.results, self.degrees
        given = {symbol: value for symbol, value in values.items() if not isinstance(value, int)}
        point.given = {**self.given, **given}
        point.roots = {symbol: root for symbol, root in self.roots.items() if symbol not in given}
        point.origin, point.changed = self, frozenset(symbol.name for symbol in values)
        return point

    def define(self, definitions: Iterable[tuple[Expr, Expr]]) -> "Point":
        """Return a point with values for defined symbols. Each definition may use earlier symbols."""
        point = self
        for symbol, value in definitions:
            point = point.where({symbol: point(value)})
        return point

    def fresh(self, shape: tuple[int, ...], symmetric: bool = False) -> Residues:
        """Draw a random number or matrix."""
        if not shape:
            return Residues(self.generator.randrange(PRIME), 1)
        entries = np.empty(shape, dtype=object)
        for i, j in np.ndindex(*shape):
            lower = symmetric and j < i
            entries[i, j] = entries[j, i] if lower else self.generator.randrange(PRIME)
        return Residues(entries, 1)

    def draw(self, symbol: Symbol | MatrixSymbol) -> "Point":
        """Return a point with another random value for a symbol."""
        if isinstance(symbol, MatrixSymbol):
            return self.where({symbol: self.direction(symbol)})
        if symbol.name in self.sizes:
            raise NotRational(f"another value of the size {symbol}")
        root = self.fresh(())
        moved = self.where({symbol: root.power(2)})
        moved.roots = {**moved.roots, symbol: root}
        return moved

    def scaled(self, symbol: Symbol, factor: int) -> "Point":
        """Return a point with a scalar symbol multiplied by a whole number."""
        is_size = symbol.name in self.sizes
        return self.where({symbol: factor * (self.sizes[symbol.name] if is_size else self(symbol))})

    def direction(self, symbol: Symbol | MatrixSymbol) -> Residues:
        """Draw a direction in which the value of a symbol may move."""
        if not isinstance(symbol, MatrixSymbol):
            return self.fresh(())
        return self.fresh(tuple(map(self.size, symbol.shape)), isinstance(symbol, SymmetricSymbol))

    def is_zero(self, value: Value) -> bool:
        """Return whether a value vanishes."""
        return all(each.is_zero for each in value.zeros())

    def symmetric_matrix(self, size: int) -> Residues:
        """Draw a random symmetric matrix."""
        return self.fresh((size, size), symmetric=True)

    def assignment(self, symbol: MatrixSymbol) -> Residues:
        """Raise `NotRational`: a matrix of signs has no random point of the field."""
        raise NotRational("an odd or even function of entries")

    def slope(
        self,
        expression: Expr,
        variable: Symbol | MatrixSymbol,
        direction: Residues,
        definitions: Iterable[tuple[Expr, Expr]] = (),
    ) -> Value:
        """Return the derivative of a scalar along a direction of a number or a matrix, by dual numbers."""
        at = self(variable)
        moved = Residues(Dual(at.entries, direction.entries), max(at.above, direction.above + at.below), at.below)
        return self.where({variable: moved}).define(definitions)(expression).slope(self)

    def size(self, side: Expr) -> int:
        """Return the value of a size."""
        number = self.number(side)
        if number is None or number.denominator != 1:
            raise NotRational(f"the size {side}, which has no whole number as its value")
        return int(number)

    def number(self, expression: Expr) -> Fraction | None:
        """Return the value of an expression of numbers and sizes, or None for other expressions."""
        if isinstance(expression, sp.Rational):
            return Fraction(int(expression.p), int(expression.q))
        if isinstance(expression, Symbol):
            is_size = expression.name in self.sizes and expression not in self.given
            return Fraction(self.sizes[expression.name]) if is_size else None
        if not isinstance(expression, (sp.Add, Mul, sp.Pow)):
            return None
        numbers = [self.number(argument) for argument in expression.args]
        if None in numbers:
            return None
        if isinstance(expression, sp.Add):
            return sum(numbers)
        if isinstance(expression, Mul):
            return np.prod(numbers)
        base, exponent = numbers
        return base ** int(exponent) if exponent.denominator == 1 and (base or exponent >= 0) else None

    def root(self, expression: Expr) -> Residues:
        """Return the square root of a symbol, a number, or a product of them."""
        if (number := self.number(expression)) is not None:
            root = square_root(number.numerator * number.denominator)
            return Residues(root) * _fraction(Fraction(1, number.denominator))
        if isinstance(expression, Mul):
            return reduce(operator.mul, map(self.root, expression.args))
        if isinstance(expression, sp.Pow) and expression.exp.is_Integer:
            return self.root(expression.base).power(int(expression.exp))
        if expression in self.roots:
            return self.roots[expression]
        if not (expression.is_Symbol or expression.is_NumberSymbol) or expression in self.given:
            raise NotRational(f"the square root of {expression}")
        if (expression, ()) not in self.drawn:
            self.drawn[expression, ()] = self.fresh(())
        return self.drawn[expression, ()]

    def coefficients(self, expression: Expr) -> Mapping[Expr, Fraction]:
        """Return the rational coefficients of a polynomial of symbols and their square roots, by monomial."""
        if (number := self.number(expression)) is not None:
            return {S.One: number}
        sizes = {
            symbol: sp.Integer(self.sizes[symbol.name])
            for symbol in expression.free_symbols
            if isinstance(symbol, Symbol) and self.number(symbol) is not None
        }
        coefficients = {}
        for monomial, coefficient in expand(expression.xreplace(sizes)).as_coefficients_dict().items():
            powers = [factor.as_base_exp() for factor in Mul.make_args(monomial)]
            if not coefficient.is_Rational or not all(self._is_independent(*power) for power in powers):
                raise NotRational(f"a logarithm times {expression}, which is not a polynomial of symbols")
            coefficients[monomial] = Fraction(int(coefficient.p), int(coefficient.q))
        return coefficients

    def _is_independent(self, base: Expr, exponent: Expr) -> bool:
        """Return whether a power belongs in a monomial. SymPy also keeps square roots of square-free numbers there."""
        if base.is_Symbol:
            return base not in self.given and exponent.is_Rational
        return base == 1 or (base.is_Integer and base > 0 and exponent == S.Half)

    def function(self, variables, expression):
        """Return a function of entries, which may be any function: equal arguments give equal values."""
        if expression.free_symbols - set(variables):
            raise NotRational("a function of entries with parameters")
        return lambda *matrices: self.of_any_function(sp.Lambda(tuple(variables), expression), *matrices)

    def of_any_function(self, function: Any, *matrices: Residues) -> Residues:
        """Return fixed random residues for a function of these entries, so that identities hold for every function."""
        if any(isinstance(matrix.entries, Dual) for matrix in matrices):
            raise NotRational("a derivative of a function that is not rational")
        # Two arguments P/q and R/s are equal if P s - R q is zero.
        self.degrees.add(max(matrix.above for matrix in matrices) + max(matrix.below for matrix in matrices))

        def of_entries(*entries):
            if (function, entries) not in self.results:
                self.results[function, entries] = self.generator.randrange(PRIME)
            return self.results[function, entries]

        return Residues(np.vectorize(of_entries, otypes=[object])(*(matrix.entries for matrix in matrices)), 1)


@lru_cache(maxsize=65536)
def _names(node: Basic) -> frozenset[str]:
    # Include symbols in the sizes of matrices.
    own = (node.name,) if isinstance(node, (Symbol, MatrixSymbol)) else ()
    return frozenset(own).union(*map(_names, node.args))


def random_point(sizes: Mapping[Expr, int], seed: str) -> Point:
    """Draw a random point from a seed, which is text."""
    return Point({size.name: number for size, number in sizes.items()}, random.Random(seed))


class _Module:
    """The functions of arrays of residues that rules use. All are linear but exp, which may be any function."""

    eye = staticmethod(lambda size: Residues(np.eye(size, dtype=int).astype(object)))
    zeros = staticmethod(lambda shape: Residues(np.full(shape, 0, dtype=object)))
    ones = staticmethod(lambda shape: Residues(np.full(shape, 1, dtype=object)))
    swapaxes = staticmethod(lambda matrix, *_: matrix.T)
    diagonal = staticmethod(lambda matrix, *_: matrix.linear(np.diag))
    reshape = staticmethod(lambda matrix, shape: matrix.linear(lambda entries: entries.reshape(shape)))

    def __getattr__(self, name: str) -> Any:
        raise NotRational(name)

    @staticmethod
    def einsum(formula: str, blocks: "Residues") -> "Residues":
        """Trace over the first or the second pair of indices."""
        axes = (0, 2) if formula.startswith("...ha") else (1, 3)
        return blocks.linear(lambda entries: np.trace(entries, axis1=axes[0], axis2=axes[1]))

    @staticmethod
    def split(matrix: "Residues", count: int, axis: int) -> "list[Residues]":
        """Split a matrix into blocks."""
        return [matrix.linear(lambda entries, i=i: np.split(entries, count, axis)[i]) for i in range(count)]

    @staticmethod
    def sum(matrix: "Residues", axis: Any, keepdims: bool = False) -> "Residues":
        """Sum the entries."""
        return matrix.linear(lambda entries: np.sum(entries, axis=axis, keepdims=keepdims))


def _symbol(node, at):
    if isinstance(node, BoundVariable):
        raise NotRational(f"the bound variable {node}")
    if node in at.given:
        return at.given[node]
    if isinstance(node, MatrixSymbol):
        key = node, tuple(map(at.size, node.shape))
        if key not in at.drawn:
            at.drawn[key] = at.direction(node)
        return at.drawn[key]
    return Residues(at.sizes[node.name] % PRIME) if node.name in at.sizes else at.root(node).power(2)


def _number(node, at):
    if (number := at.number(node)) is None:
        raise NotRational(type(node).__name__)
    return _fraction(number)


def _product(node, at):
    values = list(map(at, node.args))
    held = [i for i, value in enumerate(values) if isinstance(value, Logarithms)]
    if not held:
        return reduce(lambda left, right: left @ right if left.is_matrix and right.is_matrix else left * right, values)
    if len(held) > 1 or node.is_Matrix:
        raise NotRational("a product of logarithms, or of a logarithm and a matrix")
    coefficient = Mul(*(argument for i, argument in enumerate(node.args) if i != held[0]))
    return values[held[0]].times(at.coefficients(coefficient), at(coefficient))


def _power(node, at):
    exponent = at.number(node.exp)
    if exponent is None or exponent.denominator > 2 - node.is_Matrix or (node.is_Matrix and exponent == 0):
        raise NotRational(f"a power {node.exp}")
    if exponent.denominator == 1:
        return at(node.base).power(int(exponent))
    return at.root(node.base).power(int(2 * exponent))


def _softmax(node, at):
    # The softmax of any function in the place of exp.
    weights = at.of_any_function(Softmax, at(node.column))
    return weights * weights.linear(np.sum).inverse()


class Field(Algebra):
    """Evaluate modulo the prime. Nodes that are not rational functions raise `NotRational`."""

    xp = _Module()
    rules: ClassVar = {
        **dict.fromkeys((Symbol, MatrixSymbol), _symbol),
        **dict.fromkeys((sp.Number, sp.NumberSymbol), _number),
        Pi: lambda node, at: at.root(node).power(2),
        ImaginaryUnit: lambda node, at: Residues(square_root(-1)),
        **dict.fromkeys((Mul, sp.MatMul), _product),
        **dict.fromkeys((sp.Pow, sp.MatPow, sp.Inverse), _power),
        sp.log: lambda node, at: at(node.args[0]).logarithm(),
        DiagMatrix: lambda node, at: at(node.args[0]).linear(lambda column: np.diag(column[:, 0])),
        Softmax: _softmax,
    }

    @classmethod
    @cache
    def rule(cls, kind: type[Basic]) -> Callable:
        """Return the rule of the closest base class."""
        found = super().rule(kind)
        return _refuse if found is refuse else found

    @staticmethod
    def entrywise(function: Callable, *matrices: Residues) -> Residues:
        """Apply a function of entries."""
        return function(*matrices)

    @staticmethod
    def joined(blocks: "Iterable[Residues]", axis: int) -> Residues:
        """Concatenate matrices. The product of all denominators is their common denominator."""
        blocks = list(blocks)
        below = sum(block.below for block in blocks)
        above = max(block.above + below - block.below for block in blocks)
        entries = [block.entries for block in blocks]
        if any(isinstance(each, Dual) for each in entries):
            parts = [_parts(each * Dual(1, 0)) for each in entries]
            return Residues(Dual(*(np.concatenate([each[i] for each in parts], axis) for i in (0, 1))), above, below)
        return Residues(np.concatenate(entries, axis), above, below)

    @staticmethod
    def kron(left: Residues, right: Residues) -> Residues:
        """Return the Kronecker product."""
        entries = _bilinear(np.kron, left.entries, right.entries) % PRIME
        return Residues(entries, left.above + right.above, left.below + right.below)

    @staticmethod
    def log_det(matrix: Expr, at: Point) -> "Logarithms":
        """Return the log-determinant, of which the argument of the logarithm is known."""
        return at(matrix).logarithm()

    @staticmethod
    def trace(matrix: Expr, at: Point) -> Residues:
        """Return the trace."""
        return at(matrix).trace()

    @staticmethod
    def function(row: Any, node: Expr, at: Point) -> Any:
        """Raise `NotRational`."""
        return _refuse(node, at)

    piecewise = average = staticmethod(lambda node, at: _refuse(node, at))

    @staticmethod
    def square_root(matrix: Expr, at: Point) -> Any:
        """Raise `NotRational`."""
        raise NotRational("SquareRoot")


def _refuse(node, at):
    raise NotRational(type(node).__name__)
