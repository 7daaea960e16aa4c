"""Stationary points of any action of order parameters: minima and min-max points. No particular theory is assumed.

expression, domains, parameters -> Action -> minimise, stationary, search -> Solution -> follow -> xarray.Dataset
"""

import lazy_loader

# Names in __init__.pyi are imported lazily, on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
