from .cache import enable_cache
from .precision import enable_float64

__all__ = ["enable_cache", "enable_float64"]
__version__: str
