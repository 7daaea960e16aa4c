"""Compile SymPy expressions to JAX functions, and interpret them in NumPy. This package contains no theory.

The pipeline is `compile_expressions`: expressions -> `lower` (Program) -> `emit` (source) -> callable.
"""

from .emission import BATCH, CompiledFunction, compile_expressions
from .errors import average_errors, quadrature_error
from .lowering import interpret

__all__ = ["BATCH", "CompiledFunction", "average_errors", "compile_expressions", "interpret", "quadrature_error"]
