"""Tests of your own layers: one call that looks for mistakes, and Hypothesis strategies for tests that you write.

`check_layer` needs nothing beyond the package; `theorykit.testing.strategies` needs Hypothesis.
"""

import lazy_loader

# the names of __init__.pyi, each imported from its module when it is first asked for
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
