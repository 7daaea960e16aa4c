"""Draw labelled results: panels for your own figures, and complete figures."""

import lazy_loader

from .._compat import needed

needed("matplotlib", "theorykit.plots")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
