from ._compat import enable_float64
from ._jit import jit
from .summaries import summary

__all__ = ["enable_float64", "jit", "summary"]
__version__: str
