"""A random point of a prime field, and the values of expressions there: exact, where numbers of a computer round.

Sizes are the whole numbers that they are given as. Every matrix symbol is a random matrix, symmetric where it is
declared so: an identity of rational functions that holds on all positive definite matrices holds on all symmetric ones.
A scalar symbol is the square of a random residue, so that its square root is an element of the field too. The constant
pi is a symbol as any other: it is transcendental.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from sympy import Add, Basic, Expr, Integer, MatrixSymbol, Mul, Pow, Symbol, expand
from sympy import Rational as RationalNumber

from ...symbolic.atoms import SymmetricSymbol
from . import residues
from .residues import PRIME, NotRational
from .rules import rule_for
from .values import Logarithms, Residues, fraction

Value = Residues | Logarithms


@dataclass(frozen=True)
class _Draws:
    """What was drawn for symbols, of what shape: each when it is first asked for.

    `results`: of functions that are no rational ones, by their arguments; `degrees`: bounds of those of the arguments.
    """

    generator: random.Random
    drawn: dict = field(default_factory=dict)
    results: dict = field(default_factory=dict)
    degrees: set = field(default_factory=set)

    def known(self, symbol: Basic, shape: tuple[int, ...]) -> Residues:
        """The value of a matrix symbol, or the square root of that of a scalar symbol."""
        if (symbol, shape) not in self.drawn:
            self.drawn[symbol, shape] = self.fresh(shape, isinstance(symbol, SymmetricSymbol))
        return self.drawn[symbol, shape]

    def fresh(self, shape: tuple[int, ...], symmetric: bool = False) -> Residues:
        """Another one."""
        if not shape:
            return Residues(self.generator.randrange(PRIME), 1)
        entries = np.empty(shape, dtype=object)
        for i, j in np.ndindex(*shape):
            lower = symmetric and j < i
            entries[i, j] = entries[j, i] if lower else self.generator.randrange(PRIME)
        return Residues(entries, 1)


@dataclass(frozen=True)
class ExactPoint:
    """Values of symbols, and of the expressions of them that have been evaluated.

    - `sizes`: whole numbers by name.
    - `given`: symbols that have another value than the one that was drawn; `roots`: the square roots of scalars.
    - `origin`: the point that it differs from in symbols of the names `changed` alone.
    """

    sizes: Mapping[str, int]
    draws: _Draws
    given: Mapping[Basic, Value] = field(default_factory=dict)
    roots: Mapping[Basic, Residues] = field(default_factory=dict)
    origin: "ExactPoint | None" = None
    changed: frozenset[str] = frozenset()

    @cached_property
    def _values(self) -> dict[Basic, Value]:
        return {}

    @cached_property
    def _numbers(self) -> dict[Basic, Fraction | None]:
        return {}

    def __call__(self, node: Basic) -> Value:
        """The value of an expression; `NotRational` names what it has in it that is no rational function."""
        if node not in self._values:
            same = self._is_as_before(node)
            self._values[node] = self.origin(node) if same else rule_for(type(node))(node, self)
        return self._values[node]

    def _is_as_before(self, node: Basic) -> bool:
        return self.origin is not None and self.changed.isdisjoint(_names(node))

    def symbol(self, symbol: Basic) -> Value:
        """The value of a symbol."""
        if symbol in self.given:
            return self.given[symbol]
        if isinstance(symbol, MatrixSymbol):
            return self.draws.known(symbol, self.shape(symbol))
        if symbol.name in self.sizes:
            return Residues(self.sizes[symbol.name] % PRIME)
        return self.root(symbol).power(2)

    def shape(self, matrix: Expr) -> tuple[int, int]:
        """The shape of a matrix expression, in whole numbers."""
        return tuple(map(self.size, matrix.shape))

    def size(self, size: Expr) -> int:
        """The value of a size."""
        number = self.number(size)
        if number is None or number.denominator != 1:
            raise NotRational(f"the size {size}, of which no whole number is given")
        return int(number)

    def number(self, expression: Expr) -> Fraction | None:
        """A number made of numbers and sizes, as it is; None of another expression."""
        if expression not in self._numbers:
            same = self._is_as_before(expression)
            self._numbers[expression] = self.origin.number(expression) if same else self._number(expression)
        return self._numbers[expression]

    def _number(self, expression: Expr) -> Fraction | None:
        if isinstance(expression, RationalNumber):
            return Fraction(int(expression.p), int(expression.q))
        if isinstance(expression, Symbol):
            known = expression.name in self.sizes and expression not in self.given
            return Fraction(self.sizes[expression.name]) if known else None
        if not isinstance(expression, (Add, Mul, Pow)):
            return None
        numbers = [self.number(argument) for argument in expression.args]
        if None in numbers:
            return None
        if isinstance(expression, Add):
            return sum(numbers)
        if isinstance(expression, Mul):
            return np.prod(numbers)
        base, exponent = numbers
        return base ** int(exponent) if exponent.denominator == 1 and (base or exponent >= 0) else None

    def root(self, expression: Expr) -> Residues:
        """The square root of a scalar: of a symbol, a number, or a product of them."""
        number = self.number(expression)
        if number is not None:
            root = residues.square_root(number.numerator * number.denominator)
            return Residues(root) * fraction(Fraction(1, number.denominator))
        if isinstance(expression, Mul):
            product = Residues(1)
            for factor in expression.args:
                product *= self.root(factor)
            return product
        if isinstance(expression, Pow) and (exponent := self.number(expression.exp)) and exponent.denominator == 1:
            return self.root(expression.base).power(int(exponent))
        if expression in self.roots:
            return self.roots[expression]
        if (not expression.is_Symbol and not expression.is_NumberSymbol) or expression in self.given:
            raise NotRational(f"the square root of {expression}")
        return self.draws.known(expression, ())

    def coefficients(self, expression: Expr) -> Mapping[Expr, Fraction]:
        """A polynomial of symbols, and of their square roots, as rational numbers by monomial."""
        if (number := self.number(expression)) is not None:
            return {Integer(1): number}
        sizes = {
            symbol: Integer(self.sizes[symbol.name]) for symbol in expression.free_symbols if self._is_size(symbol)
        }
        coefficients = {}
        for monomial, coefficient in expand(expression.xreplace(sizes)).as_coefficients_dict().items():
            powers = [factor.as_base_exp() for factor in Mul.make_args(monomial)]
            if not coefficient.is_Rational or not all(self._is_independent(*power) for power in powers):
                raise NotRational(f"a logarithm times {expression}, which is no polynomial of symbols")
            coefficients[monomial] = Fraction(int(coefficient.p), int(coefficient.q))
        return coefficients

    def _is_size(self, symbol: Basic) -> bool:
        return isinstance(symbol, Symbol) and self.number(symbol) is not None

    def _is_independent(self, base: Expr, exponent: Expr) -> bool:
        """Whether powers of it stand in a monomial; SymPy leaves square roots of square-free numbers alone there."""
        if base.is_Symbol:
            return base not in self.given and exponent.is_Rational
        return base == 1 or (base.is_Integer and base > 0 and exponent == RationalNumber(1, 2))

    def of_any_function(
        self, function: Basic | type[Basic], arguments: tuple, degree: int, column: bool = False
    ) -> Any:
        """A random residue for a function of these arguments, always the same: what holds so holds of every function.

        `degree` bounds that of a difference of two arguments. Of a `column`, the function is a column too.
        """
        if any(isinstance(argument, residues.Dual) for argument in arguments):
            raise NotRational("a derivative of a function that is not rational")
        self.draws.degrees.add(degree)
        results = self.draws.results
        if (function, arguments) not in results:
            shape = (len(arguments), 1) if column else ()
            results[function, arguments] = self.draws.fresh(shape).entries
        return results[function, arguments]

    @property
    def has_results(self) -> bool:
        """Whether any function that is not rational has been evaluated at this point."""
        return bool(self.draws.results)

    @property
    def degree_of_collisions(self) -> int:
        """The chance, times the prime, that two arguments of a function are the same here and nowhere else."""
        count = len(self.draws.results)
        return count * (count - 1) // 2 * max(self.draws.degrees, default=0)

    def where(self, values: Mapping[Basic, Value | int]) -> "ExactPoint":
        """With these values of symbols: whole numbers of sizes."""
        sizes = {symbol.name: value for symbol, value in values.items() if isinstance(value, int)}
        given = {symbol: value for symbol, value in values.items() if not isinstance(value, int)}
        roots = {symbol: root for symbol, root in self.roots.items() if symbol not in given}
        changed = frozenset(symbol.name for symbol in values)
        return ExactPoint({**self.sizes, **sizes}, self.draws, {**self.given, **given}, roots, self, changed)

    def define(self, definitions: Iterable[tuple[Expr, Expr]]) -> "ExactPoint":
        """With the values of symbols that stand for others; a definition may use the ones before it."""
        point = self
        for symbol, value in definitions:
            point = point.where({symbol: point(value)})
        return point

    def draw(self, symbol: Symbol | MatrixSymbol) -> "ExactPoint":
        """With another random value for a symbol."""
        if isinstance(symbol, MatrixSymbol):
            return self.where({symbol: self.draws.fresh(self.shape(symbol), isinstance(symbol, SymmetricSymbol))})
        if symbol.name in self.sizes:
            raise NotRational(f"another value of the size {symbol}")
        root = self.draws.fresh(())
        moved = self.where({symbol: root.power(2)})
        return replace(moved, roots={**moved.roots, symbol: root})

    def scaled(self, symbol: Symbol, factor: int) -> "ExactPoint":
        """With a scalar symbol a whole number of times as large."""
        if symbol.name in self.sizes:
            return self.where({symbol: factor * self.sizes[symbol.name]})
        return self.where({symbol: factor * self(symbol)})

    def symmetric_matrix(self, size: int) -> Residues:
        """A random symmetric matrix."""
        return self.draws.fresh((size, size), symmetric=True)

    def slope(self, expression: Expr, variable: MatrixSymbol, direction: Residues) -> Value:
        """The derivative of a scalar in a direction of a matrix: by dual numbers, so exactly."""
        at = self(variable)
        moved = Residues(
            residues.dual(at.entries, direction.entries), max(at.above, direction.above + at.below), at.below
        )
        value = self.where({variable: moved})(expression)
        return value.slope(self) if isinstance(value, Logarithms) else value.slope()


@lru_cache(maxsize=65536)
def _names(node: Basic) -> frozenset[str]:
    """The names of symbols in an expression, those in the sizes of matrices too."""
    own = (node.name,) if isinstance(node, (Symbol, MatrixSymbol)) else ()
    return frozenset(own).union(*map(_names, node.args))


def random_point(sizes: Mapping[Expr, int], seed: str) -> ExactPoint:
    """A point that is drawn at random, the same for the same text `seed`."""
    return ExactPoint({size.name: number for size, number in sizes.items()}, _Draws(random.Random(seed)))
