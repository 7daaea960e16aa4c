"""Published theories as actions: learned attention, learning in context, empirical risk, and nonlinear units.

Each theory states its source, and returns an `Action` that `theorykit.saddle` solves and follows. Two of them need
spectral laws of random matrices and the bivariate normal distribution, which are numeric functions.
"""

import lazy_loader

# Names in __init__.pyi are imported lazily, on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
