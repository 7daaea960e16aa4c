"""Intermediate form: a straight-line program of named matrix operations, in single-assignment form."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sympy import Expr, MatrixSymbol, Mul, Symbol, factor, pycode

from ..symbolic.numeric import NumericFunction

# These operations are written as operators. Every other is a function of `theorykit.codegen.primitives`.
OPERATORS = ("add", "matmul", "scale", "transpose")


@dataclass(frozen=True)
class Instruction:
    """`target = operation(operands)`. An operand is an argument, a size, an earlier target or a scalar formula."""

    target: str
    operation: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class SizeBinding:
    """Size read from an argument's shape: `size = argument.shape[axis] // divisor`."""

    size: str
    argument: str
    axis: int
    divisor: str


@dataclass(frozen=True)
class Program:
    """Function of named arrays and scalars, with the operands of its outputs, and users' functions by name."""

    name: str
    arguments: tuple[Expr, ...]
    sizes: tuple[SizeBinding, ...]
    instructions: tuple[Instruction, ...]
    outputs: Mapping[str, str]
    functions: Mapping[str, type[NumericFunction]] = field(default_factory=dict)

    def operands(self) -> list[str]:
        """Return the operands of all instructions and of the outputs."""
        return [*(operand for step in self.instructions for operand in step.operands), *self.outputs.values()]

    def operation_counts(self) -> Counter[str]:
        """Count how often each operation occurs."""
        return Counter(instruction.operation for instruction in self.instructions)


def bound_sizes(arguments: Iterable[Expr]) -> frozenset[Expr]:
    """Return the symbols whose values a function of `arguments` knows: scalar arguments and sizes."""
    names = {binding.size for binding in bind_sizes(arguments)}
    sides = {symbol for _, _, dimension in _dimensions(arguments) for symbol in dimension.free_symbols}
    return frozenset({symbol for symbol in sides if symbol.name in names} | {a for a in arguments if a.is_Symbol})


def bind_sizes(arguments: Iterable[Expr]) -> tuple[SizeBinding, ...]:
    """Bind every size symbol that the shapes determine, each after those it depends on.

    A dimension is a product of sizes, or of sums of them. Divided by another dimension, or by a product of known sizes,
    it may leave a single symbol, which is then known. Scalar arguments are known from the start.
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
        # Bind one at a time. Sizes that a shape states directly come before those that need a longer division.
        binding, size = min(found, key=lambda candidate: len(candidate[0].divisor))
        bindings[size] = binding
    return tuple(bindings.values())


def _quotients(dimension: Expr, texts: Mapping[Expr, str], known: Collection[Expr]) -> Iterator[tuple[Expr, str]]:
    """Yield unknown symbols that remain when `dimension` is divided by known sizes, with the divisor's text."""
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
