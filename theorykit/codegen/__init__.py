"""SymPy expression -> JAX function, and a NumPy interpreter of the same expression. Knows no theory.

The whole chain is `compile_expressions`: expressions -> `lower` (Program) -> `emit` (source) -> callable.
"""

from .emission import BATCH, CompiledFunction, compile_expressions
from .errors import average_errors, quadrature_error
from .lowering import interpret

__all__ = ["BATCH", "CompiledFunction", "average_errors", "compile_expressions", "interpret", "quadrature_error"]
