"""Solution curves of n equations in n + 1 unknowns, and the events along them.

System -> trace -> xarray.Dataset of points and events -> refine an event for other values
"""

import lazy_loader

# Names in __init__.pyi are imported lazily, on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
