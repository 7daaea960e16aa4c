"""Published theories as actions, which `theorykit.saddle` solves and follows.

Spectral laws of random matrices and the bivariate normal distribution are functions in
two of them, and for your own actions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
