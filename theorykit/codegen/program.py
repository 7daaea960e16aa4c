"""The intermediate form: a straight-line program of named matrix operations, in single-assignment form.

Stage 3 of `SymPy expression -> lowering -> Program -> emission -> compiled function`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import Expr

from ..symbolic.functions.numeric import NumericFunction

# the operations that are written as operators; every other is a function of `theorykit.codegen.primitives`
OPERATORS = ("add", "matmul", "scale", "transpose")


@dataclass(frozen=True)
class Instruction:
    """`target = operation(operands)`. An operand is an argument, a size, an earlier target or a scalar formula."""

    target: str
    operation: str
    operands: tuple[str, ...]


@dataclass(frozen=True)
class SizeBinding:
    """A size read off an argument's shape: `size = argument.shape[axis] // divisor`."""

    size: str
    argument: str
    axis: int
    divisor: str


@dataclass(frozen=True)
class Program:
    """A function of named arrays and scalars; `outputs` maps each result's name to the operand that holds it, and
    `functions` the names of users' functions to them."""

    name: str
    arguments: tuple[Expr, ...]
    sizes: tuple[SizeBinding, ...]
    instructions: tuple[Instruction, ...]
    outputs: Mapping[str, str]
    functions: Mapping[str, type[NumericFunction]] = field(default_factory=dict)

    def operation_counts(self) -> Counter[str]:
        """How often each operation occurs."""
        return Counter(instruction.operation for instruction in self.instructions)
