"""Figures and tables from labelled results.

The exported functions each draw one panel, for your own figures; the modules draw whole figures.
"""

import lazy_loader

from ..extras import needed

needed("matplotlib", "theorykit.plots")

# the names of __init__.pyi, each imported from its module when it is first asked for
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
