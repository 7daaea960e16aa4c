"""Intermediate form of a function: a straight-line program of named matrix operations, in single-assignment form."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sympy import Expr, MatrixSymbol, Mul, Symbol, factor, pycode

# Operations that are written as operators. All others are functions of `theorykit.codegen.primitives`.
OPERATORS = ("add", "matmul", "named", "scale", "transpose")


@dataclass(frozen=True)
class Instruction:
    """An instruction `target = operation(operands)`. Operands are arguments, sizes, earlier targets or formulas."""

    target: str
    operation: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class SizeBinding:
    """A size that is read from the shape of an argument: `size = argument.shape[axis] // divisor`."""

    size: str
    argument: str
    axis: int
    divisor: str


@dataclass(frozen=True)
class Program:
    """A function of named arrays and scalars.

    - `name`: name of the function.
    - `arguments`: symbols of its arguments.
    - `sizes`: sizes that are read from the shapes of arguments.
    - `instructions`: operations in order.
    - `outputs`: operands that are returned, by name.
    - `functions`: numeric functions and functions of losses, by name.
    """

    name: str
    arguments: tuple[Expr, ...]
    sizes: tuple[SizeBinding, ...]
    instructions: tuple[Instruction, ...]
    outputs: Mapping[str, str]
    functions: Mapping[str, Any] = field(default_factory=dict)

    def operands(self) -> list[str]:
        """Return the operands of all instructions and of the outputs."""
        return [*(operand for step in self.instructions for operand in step.operands), *self.outputs.values()]

    def operation_counts(self) -> Counter[str]:
        """Count how often each operation occurs."""
        return Counter(instruction.operation for instruction in self.instructions)


def bound_sizes(arguments: Iterable[Expr]) -> frozenset[Expr]:
    """Return the symbols whose values are known from `arguments`, which are scalar arguments and sizes."""
    names = {binding.size for binding in bind_sizes(arguments)}
    sides = {symbol for _, _, dimension in _dimensions(arguments) for symbol in dimension.free_symbols}
    return frozenset({symbol for symbol in sides if symbol.name in names} | {a for a in arguments if a.is_Symbol})


def bind_sizes(arguments: Iterable[Expr]) -> tuple[SizeBinding, ...]:
    """Bind every size symbol that the shapes determine. Each binding depends only on earlier ones.

    A dimension is a product of sizes, or of sums of sizes. If its quotient by another dimension, or by a product of
    known sizes, is a single symbol, this symbol becomes known. Scalar arguments are known from the start.
    """
    arguments = list(arguments)
    given = {argument for argument in arguments if isinstance(argument, Symbol)}
    dimensions = [(argument, axis, factor(dimension)) for argument, axis, dimension in _dimensions(arguments)]
    texts: dict[Expr, str] = {}
    for argument, axis, dimension in dimensions:
        texts.setdefault(dimension, f"{argument}.shape[{axis}]")
    bindings: dict[Expr, SizeBinding] = {}
    while found := [
        (SizeBinding(size.name, argument, axis, divisor), size)
        for argument, axis, dimension in dimensions
        for size, divisor in _quotients(dimension, texts, {*given, *bindings})
    ]:
        # Bind one size at a time. Sizes that are dimensions themselves come before sizes that need a division.
        binding, size = min(found, key=lambda candidate: len(candidate[0].divisor))
        bindings[size] = binding
    return tuple(bindings.values())


def _quotients(dimension: Expr, texts: Mapping[Expr, str], known: Collection[Expr]) -> Iterator[tuple[Expr, str]]:
    """Yield unknown symbols that are quotients of `dimension` and known sizes, with the text of the divisor."""
    product_of_known = Mul(*(part for part in Mul.make_args(dimension) if part.free_symbols <= set(known)))
    for divisor, text in [(product_of_known, pycode(product_of_known)), *texts.items()]:
        quotient = dimension / divisor
        if isinstance(quotient, Symbol) and quotient not in known:
            yield quotient, text


def _dimensions(arguments: Iterable[Expr]) -> Iterator[tuple[str, int, Expr]]:
    for argument in arguments:
        if isinstance(argument, MatrixSymbol):
            for axis, dimension in enumerate(argument.shape):
                yield argument.name, axis, dimension
