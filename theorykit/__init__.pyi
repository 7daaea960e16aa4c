from ._compat import enable_float64
from ._jit import jit

__all__ = ["enable_float64", "jit"]
__version__: str
