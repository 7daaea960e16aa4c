"""Draw figures of labelled results.

Each exported function draws one panel for your own figures. The modules draw complete figures.
"""

import lazy_loader

from .._compat import needed

needed("matplotlib", "theorykit.plots")

# Import each name of __init__.pyi from its module on first use.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
