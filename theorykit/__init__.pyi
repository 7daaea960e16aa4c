from .cache import disable_cache, enable_cache
from .compilation import jit
from .precision import enable_float64
from .summaries import summary

__all__ = ["disable_cache", "enable_cache", "enable_float64", "jit", "summary"]
__version__: str
