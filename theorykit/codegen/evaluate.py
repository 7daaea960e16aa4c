"""Evaluate expressions node by node, under an algebra that supplies the operations.

    expression -> At(values, algebra)(expression) -> value

There is one rule per kind of node: the method `value` of an atom of this package, or an entry of the table in this
module. An algebra may override rules. `Numpy` evaluates every node as written, and is the oracle. `Jax` exploits the
structure of products. `Source` records the text of the operations of `Jax`. The prime field of `theorykit.derivation`
proves identities.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, reduce
from typing import Any, ClassVar

import numpy as np
import sympy as sp
from sympy.core.numbers import ImaginaryUnit
from sympy.logic.boolalg import BooleanFalse, BooleanTrue
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.blockmatrix import BlockMatrix
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.matexpr import MatrixElement

from ..checks import shown
from ..symbolic.atoms import BoundVariable, EntryVariable
from ..symbolic.functions import InCases
from ..symbolic.stable import stable_form
from .functions import TABLE


class At:
    """Values of expressions at one point, under an algebra. Every node is evaluated once.

    - `values`: values of symbols by name, and of bound variables by the variable itself.
    - `algebra`: the operations.
    - `outer`: the point outside the average or the function whose variables have `values`.
    """

    def __init__(self, values: Mapping[Any, Any], algebra: Any, outer: At | None = None):
        self.values, self.algebra, self.outer = values, algebra, outer
        self.known: dict[Any, Any] = {}

    @property
    def xp(self) -> Any:
        """The module of array functions: `numpy`, `jax.numpy` or one with the same names."""
        return self.algebra.xp

    def __call__(self, node: sp.Basic) -> Any:
        """Return the value of a node. Raises `NotImplementedError`, which names a node without a rule."""
        point: At | None = self
        while point is not None:
            if node in point.known:
                return point.known[node]
            point = point.outer
        self.known[node] = self.algebra.rule(type(node))(node, self)
        return self.known[node]

    def once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return a value that several nodes share, such as a factor of a matrix without bound variables."""
        if self.outer is not None:
            return self.outer.once(key, compute)
        if key not in self.known:
            self.known[key] = compute()
        return self.known[key]

    def given(self, key: Any) -> Mapping[Any, Any]:
        """Return the innermost values that contain a name or a bound variable, or an empty mapping."""
        if key in self.values or self.outer is None:
            return self.values if key in self.values else {}
        return self.outer.given(key)

    def size(self, side: sp.Expr) -> Any:
        """Return the value of a size: a whole number, unless the algebra records text."""
        return self.algebra.size(self(side))

    def function(self, variables: Sequence[BoundVariable], expression: sp.Expr) -> Callable[..., Any]:
        """Return an expression as a function of its bound variables, which may be arrays.

        Subexpressions without these variables are evaluated here, before the function is called: values from inside a
        loop of a compiled function must not be used outside it.
        """
        pending, seen = [expression] if self.algebra.is_traced else [], set()
        while pending:
            node = pending.pop()
            if node in seen or not node.args or isinstance(node, sp.Lambda):
                continue
            seen.add(node)
            bound = {symbol for symbol in free_symbols(node) if isinstance(symbol, BoundVariable)}
            if not bound.isdisjoint(variables):
                pending += node.args
            elif isinstance(node, sp.Expr) and all(map(self.given, bound)):
                self(node)
        return lambda *numbers: At(dict(zip(variables, numbers, strict=True)), self.algebra, self)(expression)


@lru_cache(maxsize=2**16)
def free_symbols(node: sp.Basic) -> frozenset[sp.Expr]:
    """Return the symbols in a node that no average or function in it binds. Sizes of matrix symbols are left out."""
    if isinstance(node, (sp.Symbol, sp.MatrixSymbol)):
        return frozenset([node])
    return frozenset().union(*map(free_symbols, node.args)).difference(getattr(node, "bound_symbols", ()))


# Rules of SymPy's own nodes.

_ENTRY = EntryVariable("entry")


def _symbol(node, at):
    key = node if isinstance(node, BoundVariable) else node.name
    if found := at.given(key):
        return found[key]
    raise ValueError(f"values must be a mapping with a number or an array for {node.name}, got {shown(at.values)}")


def _fold(function: Callable) -> Callable:
    return lambda node, at: reduce(function, map(at, node.args))


def _of_module(name: str) -> Callable:
    return lambda node, at: reduce(getattr(at.xp, name), map(at, node.args))


def as_number(number: sp.Expr) -> float | int:
    """Convert a SymPy number to Python, or raise `ValueError` if it over- or underflows in double precision."""
    # All integers up to this number are exact in float64.
    if isinstance(number, sp.Integer) and abs(number.p) <= 2**53:
        return int(number)
    try:
        value = number.p / number.q if isinstance(number, sp.Rational) else float(number)
    except OverflowError:
        value = math.inf
    if math.isinf(value) and not number.is_infinite:
        raise ValueError(f"the number {sp.Float(number, 6)} exceeds the range of double precision, 1.8e308")
    if value == 0 and not number.is_zero:
        raise ValueError(f"the number {sp.Float(number, 6)} is below the range of double precision, 4.9e-324")
    return value


def _power(node, at):
    base, exponent = at(node.base), node.exp
    if exponent.is_Float and float(exponent).is_integer():
        exponent = sp.Integer(int(exponent))
    # Whole exponents and square roots have derivatives without a pole, and fewer rounding errors.
    if exponent.is_Rational and exponent.q == 2:
        base, exponent = at.xp.sqrt(base), sp.Integer(exponent.p)
    if exponent.is_Integer:
        return base if exponent == 1 else base ** at.algebra.number(exponent)
    return base ** at(exponent)


def _blocks(node, at):
    rows, columns = node.blocks.shape
    grid = [[at(node.blocks[i, j]) for j in range(columns)] for i in range(rows)]
    joined = [row[0] if columns == 1 else at.algebra.joined(row, -1) for row in grid]
    return joined[0] if rows == 1 else at.algebra.joined(joined, -2)


def _entrywise(node, at):
    (variable,), expression = node.function.variables, node.function.expr
    if not isinstance(variable, BoundVariable):
        variable, expression = _ENTRY, expression.xreplace({variable: _ENTRY})
    return at.algebra.entrywise(at.function((variable,), expression), at(node.expr))


def _scalar_function(node, at):
    return at.algebra.function(TABLE[type(node)], node, at)


def _in_cases(node, at):
    # Unlike x, these names are of no function around the node.
    variables = EntryVariable("first"), EntryVariable("second")
    return at.function(variables, node.in_cases(*variables))(*map(at, node.args[:2]))


def _in_stable_form(rule: Callable) -> Callable:
    def stable_rule(node, at):
        found = stable_form(node)
        return rule(node, at) if found is None else at(found)

    return stable_rule


RULES: dict[type, Callable[[Any, At], Any]] = {
    sp.Symbol: _symbol,
    sp.MatrixSymbol: _symbol,
    sp.Number: lambda node, at: at.algebra.number(node),
    sp.NumberSymbol: lambda node, at: at.algebra.number(node),
    ImaginaryUnit: lambda node, at: 1j,
    sp.Add: _fold(operator.add),
    sp.Mul: _in_stable_form(_fold(operator.mul)),
    sp.Pow: _in_stable_form(_power),
    BooleanTrue: lambda node, at: True,
    BooleanFalse: lambda node, at: False,
    sp.StrictGreaterThan: _fold(operator.gt),
    sp.GreaterThan: _fold(operator.ge),
    sp.StrictLessThan: _fold(operator.lt),
    sp.LessThan: _fold(operator.le),
    sp.Equality: _fold(operator.eq),
    sp.Unequality: _fold(operator.ne),
    sp.And: _of_module("logical_and"),
    sp.Or: _of_module("logical_or"),
    sp.Not: lambda node, at: at.xp.logical_not(at(node.args[0])),
    sp.Max: _of_module("maximum"),
    sp.Min: _of_module("minimum"),
    **dict.fromkeys(TABLE, _scalar_function),
    **dict.fromkeys((sp.log, sp.asin), _in_stable_form(_scalar_function)),
    InCases: _in_cases,
    sp.MatrixBase: lambda node, at: 1.0 * at.xp.array([list(map(at, row)) for row in node.tolist()]),
    MatrixElement: lambda node, at: at(node.parent)[..., int(node.i), int(node.j)],
    sp.Identity: lambda node, at: at.xp.eye(at.size(node.shape[0])),
    sp.ZeroMatrix: lambda node, at: at.xp.zeros(tuple(map(at.size, node.shape))),
    sp.OneMatrix: lambda node, at: at.xp.ones(tuple(map(at.size, node.shape))),
    BlockMatrix: _blocks,
    ElementwiseApplyFunction: _entrywise,
    DiagMatrix: lambda node, at: at(node.args[0]) * at.xp.eye(at.size(node.shape[0])),
    sp.Transpose: lambda node, at: at.xp.swapaxes(at(node.arg), -2, -1),
    sp.MatAdd: _fold(operator.add),
    # Algebras have their own rules of products, which are also of the classes Mul and Pow.
    **dict.fromkeys((sp.MatMul, sp.MatPow), lambda node, at: refuse(node, at)),
    sp.KroneckerProduct: lambda node, at: reduce(at.algebra.kron, map(at, node.args)),
    sp.Trace: lambda node, at: at.algebra.trace(node.arg, at),
}
"""The rule of each kind of SymPy node in most algebras. The rule of the closest base class applies."""


class Algebra:
    """Operations in which algebras may differ. All methods are static: an algebra has no state."""

    xp: Any = np
    rules: ClassVar[Mapping[type, Callable]] = {}
    """Rules of this algebra, which replace those of the table."""
    is_traced = False
    """Whether values may belong to a loop of a compiled function."""

    @classmethod
    @cache
    def rule(cls, kind: type[sp.Basic]) -> Callable[[Any, At], Any]:
        """Return the rule of the closest base class. Raises `NotImplementedError`, which names the kind."""
        for each in kind.__mro__:
            if each in cls.rules:
                return cls.rules[each]
            if "value" in vars(each):
                return each.value
            if each in RULES:
                return RULES[each]
        return refuse

    number: Callable = staticmethod(as_number)
    size: Callable = staticmethod(int)

    @staticmethod
    def stop_gradient(value: Any) -> Any:
        """Return a value on which derivatives do not depend."""
        return value

    @staticmethod
    def assumed_definite(matrix: Any) -> Any:
        """Return a matrix that is assumed to be positive definite."""
        return matrix


# What to write instead of a node that has no rule.
_REMEDIES = (
    (sp.Determinant, "write log(det(A)) as symbolic.log_det(A)"),
    (sp.Sum, "write sums over entries as traces, or with symbolic.sum_of_entries"),
    ((sp.Derivative, sp.Subs, sp.Integral, sp.Product), "evaluate it, for example with .doit()"),
    ((ImaginaryUnit, sp.conjugate, sp.re, sp.im, sp.arg), "declare its symbols with real=True"),
    (sp.DiracDelta, "it is not a function of numbers"),
    (sp.Function, "define it with symbolic.numeric_function(name, f), where f is JAX code"),
    (sp.MatrixExpr, "write it with sums, products, inverses, symbolic.entrywise and matrices of theorykit.symbolic"),
    (sp.Basic, "it is not a function of numbers"),
)


def refuse(node: sp.Basic, at: At | None = None) -> None:
    """Raise `NotImplementedError`, which names a node without a rule, and what to write instead."""
    remedy = next(each for kind, each in _REMEDIES if isinstance(node, kind))
    raise NotImplementedError(f"{type(node).__name__} (in {shown(node)}) is not covered: {remedy}")
