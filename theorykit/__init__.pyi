from .cache import enable_cache
from .compilation import jit
from .precision import enable_float64

__all__ = ["enable_cache", "enable_float64", "jit"]
__version__: str
