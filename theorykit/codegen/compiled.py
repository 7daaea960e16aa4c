"""Compile expressions to a JAX function of named arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import sympy as sp
from sympy import Expr, MatrixSymbol, Symbol
from sympy.core.symbol import Str
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..checks import by_name, checked_instance, checked_sequence, shown
from ..symbolic.atoms import BoundVariable, LogDet, SquareRoot, check_matrices_are_fixed
from ..symbolic.averages import GaussianAverage
from ..symbolic.matrix_functions import Entrywise, factors_of_power, is_positive_definite
from .evaluate import At, as_number, free_symbols, refuse
from .jax_algebra import Jax
from .sizes import bound_sizes, sizes_of
from .source import source_of

# Parts of nodes that have no value of their own.
_STRUCTURE = (ExprCondPair, sp.Lambda, sp.MatrixBase, sp.Tuple)


@dataclass(frozen=True, repr=False, eq=False)
class CompiledFunction:
    """A pure JAX function of named arrays and numbers. It returns a dictionary.

    - `name`: its name.
    - `outputs`: the expressions that it evaluates, by name.
    - `arguments`: the symbols of its arguments.
    """

    name: str
    outputs: Mapping[str, Expr]
    arguments: tuple[Expr, ...]

    def __call__(self, /, **arguments: Any) -> dict[str, Any]:
        names = {each.name for each in self.arguments}
        if arguments.keys() != names:
            wanted, given = (", ".join(sorted(each)) for each in (names, arguments))
            raise TypeError(f"{self.name} takes the arguments {wanted}, got {given}")
        at = At({**arguments, **sizes_of(self.arguments, arguments, Jax)}, Jax)
        return {name: at(expression) for name, expression in self.outputs.items()}

    def call_from(self, values: Mapping[str | Expr, Any]) -> dict[str, Any]:
        """Call the function with arguments from `values`, by symbol or by name. Other entries are ignored."""
        given = by_name("values", values, "numbers and arrays by name")
        return self(**{each.name: given[each.name] for each in self.arguments if each.name in given})

    @cached_property
    def source(self) -> str:
        """Python source of the function that imports nothing but `jax` and can be pasted into other code."""
        return self.source_with({})

    def source_with(self, names: Mapping[Expr, str]) -> str:
        """Return the source with names for subexpressions, such as the kernel."""
        return source_of(self.name, self.outputs, self.arguments, names)

    def __repr__(self) -> str:
        return f"{self.name}(*, {', '.join(each.name for each in self.arguments)}) -> {', '.join(self.outputs)}"


def compile_expressions(name: str, outputs: Mapping[str, Expr], arguments: Sequence[Expr]) -> CompiledFunction:
    """Compile expressions to one JAX function.

    Args:
        name: name of the function.
        outputs: expressions by name. The function returns their values in a dictionary.
        arguments: symbols that become arguments of the function, by name.

    Raises:
        ValueError: a symbol is neither an argument nor a size of an argument, or two symbols have the same name.
        NotImplementedError: an expression contains a function that is not covered. The message suggests a replacement.

    Example:
        >>> import jax.numpy as jnp
        >>> from sympy import MatrixSymbol, Trace, symbols
        >>> from theorykit.codegen import compile_expressions
        >>> n = symbols("n", integer=True, positive=True)
        >>> A = MatrixSymbol("A", n, n)
        >>> square = compile_expressions("square", {"trace": Trace(A * A.T)}, [A])
        >>> float(square(A=jnp.eye(3))["trace"])
        3.0
    """
    checked_instance("name", name, str)
    arguments = tuple(checked_sequence("arguments", arguments, "SymPy symbols"))
    for i, argument in enumerate(arguments):
        checked_instance(f"arguments[{i}]", argument, (Symbol, MatrixSymbol))
    for output, expression in checked_instance("outputs", outputs, Mapping, "expressions by name").items():
        check_covered(checked_instance(f"outputs[{shown(output)}]", expression, Expr, "a SymPy expression"))
    if repeated := sorted({a.name for i, a in enumerate(arguments) if a in arguments[:i]}):
        raise ValueError(f"{name}: arguments occur twice: {', '.join(repeated)}")
    sides = {size for argument in arguments for side in getattr(argument, "shape", ()) for size in side.free_symbols}
    wanted = {symbol for expression in outputs.values() for symbol in symbols_of(expression)}
    named: dict[str, Expr] = {}
    for symbol in sorted({*arguments, *sides, *wanted}, key=lambda symbol: symbol.name):
        if isinstance(symbol, sp.Dummy):
            raise ValueError(f"{name}: the dummy symbol {symbol} has no unique name; use a Symbol")
        # Values are given by name, which could not distinguish such symbols.
        if (other := named.setdefault(symbol.name, symbol)) != symbol:
            raise ValueError(
                f"{name}: two different symbols are named {symbol.name!r} ({sp.srepr(other)}, and {sp.srepr(symbol)}); "
                "rename one, or give both the same assumptions and shape"
            )
    known = {*arguments, *bound_sizes(arguments)}
    if unknown := sorted(symbol.name for symbol in wanted if symbol not in known):
        raise ValueError(f"{name}: the symbols {unknown} are neither arguments nor sizes that the arguments determine")
    return CompiledFunction(name, dict(outputs), arguments)


def symbols_of(expression: Expr) -> set[Expr]:
    """Return the symbols whose values an expression needs. Bound variables, and sizes of symbols, are left out."""
    return {symbol for symbol in free_symbols(expression) if not isinstance(symbol, BoundVariable)}


@lru_cache(maxsize=4096)
def _check_definite(matrix: MatrixExpr) -> None:
    if not is_positive_definite(matrix):
        raise NotImplementedError(
            f"{matrix} is not provably positive definite, as solves, log-determinants and square roots require; "
            "declare its symbols with positive_definite(...), and the regulariser with positive=True; if it is "
            "positive definite only at the solution, use symbolic.assume_positive_definite(...)"
        )


def check_covered(expression: Expr) -> None:
    """Raise an error for a node that cannot be compiled, with a suggestion what to write instead.

    It is a `NotImplementedError` if there is no rule, and a `ValueError` for a number that double precision cannot
    hold.
    """
    pending: list[sp.Basic] = [expression]
    seen: set[sp.Basic] = set()
    while pending:
        node = pending.pop()
        if node in seen or isinstance(node, (MatrixSymbol, Str)):
            continue
        seen.add(node)
        parts = node.args
        if isinstance(node, (sp.Number, sp.NumberSymbol, sp.core.numbers.ImaginaryUnit)):
            if not node.is_real:
                raise ValueError(f"{node} is not a real number: actions are finite and real")
            as_number(node)
        elif isinstance(node, GaussianAverage):
            check_matrices_are_fixed(node.integrand)
            parts = (node.integrand, node.side)
        elif isinstance(node, (ElementwiseApplyFunction, Entrywise)):
            check_matrices_are_fixed(node.function.expr)
        elif isinstance(node, (sp.Inverse, LogDet, SquareRoot)):
            _check_definite(node.args[0])
        elif isinstance(node, sp.MatPow):
            parts = factors_of_power(node)
        elif not isinstance(node, _STRUCTURE) and Jax.rule(type(node)) is refuse:
            refuse(node)
        pending += parts
