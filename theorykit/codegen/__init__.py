"""SymPy expression -> JAX function, and a NumPy interpreter of the same expression. Knows no theory.

The whole chain is `compile_expressions`: expressions -> `lower` (Program) -> `emit` (source) -> callable.
"""

from . import batch
from .emission import BATCH, MATRICES, CompiledFunction, Vocabulary, compile_expressions, emit
from .interpreter import interpret
from .lowering import check_covered, lower
from .names import check_name
from .program import Instruction, Program
from .quadrature.errors import average_errors, quadrature_error
from .sizes import bound_sizes

__all__ = [
    "BATCH",
    "MATRICES",
    "CompiledFunction",
    "Instruction",
    "Program",
    "Vocabulary",
    "average_errors",
    "batch",
    "bound_sizes",
    "check_covered",
    "check_name",
    "compile_expressions",
    "emit",
    "interpret",
    "lower",
    "quadrature_error",
]
