"""SymPy expression -> JAX function, and a NumPy interpreter of the same expression. Knows no theory.

The whole chain is `compile_expressions`: expressions -> `lower` (Program) -> `emit` (source) -> callable.
"""

from .emission import CompiledFunction, compile_expressions, emit
from .interpreter import interpret
from .lowering import lower
from .program import Instruction, Program
from .sizes import bound_sizes

__all__ = [
    "CompiledFunction",
    "Instruction",
    "Program",
    "bound_sizes",
    "compile_expressions",
    "emit",
    "interpret",
    "lower",
]
