"""Compile SymPy expressions to JAX functions, and evaluate them in NumPy. This package contains no theory.

One table of rules evaluates every node (`evaluate`), under an algebra: NumPy, JAX, or text that is pasted elsewhere.
"""

from .compiled import compile_expressions
from .errors import average_errors
from .literal import interpret

__all__ = ["average_errors", "compile_expressions", "interpret"]
