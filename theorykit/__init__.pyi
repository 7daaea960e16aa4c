from .cache import enable_cache
from .compilation import jit
from .precision import enable_float64
from .summaries import summary

__all__ = ["enable_cache", "enable_float64", "jit", "summary"]
__version__: str
