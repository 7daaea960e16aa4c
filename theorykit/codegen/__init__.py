"""SymPy expression -> JAX function, and a NumPy interpreter of the same expression. Knows no theory.

The whole chain is `compile_expressions`: expressions -> `lower` (Program) -> `emit` (source) -> callable.
"""

from . import lanes
from .emission import LANES, MATRICES, CompiledFunction, Vocabulary, compile_expressions, emit
from .interpreter import interpret
from .lowering import lower
from .names import check_name
from .program import Instruction, Program
from .sizes import bound_sizes

__all__ = [
    "LANES",
    "MATRICES",
    "CompiledFunction",
    "Instruction",
    "Program",
    "Vocabulary",
    "bound_sizes",
    "check_name",
    "compile_expressions",
    "emit",
    "interpret",
    "lanes",
    "lower",
]
