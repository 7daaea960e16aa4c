"""Solution curves of n equations in n + 1 unknowns, and the events along them.

System -> trace -> xarray.Dataset of points and events -> refine an event for other values
"""

from .system import System, refine
from .tracing import trace

__all__ = ["System", "refine", "trace"]
