"""Tests of user-defined layers: one call that looks for mistakes, and Hypothesis strategies for your own tests.

`check_layer` needs nothing beyond the package. `theorykit.testing.strategies` needs Hypothesis.
"""

import lazy_loader

# Names in __init__.pyi are imported lazily, on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
