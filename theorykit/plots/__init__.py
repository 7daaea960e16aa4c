"""Figures and tables from labelled results. Nothing is computed here but means over seeds and standard errors.

The functions that are exported each draw one panel for figures of one's own; the modules draw those of the experiments.
"""

import lazy_loader

from ..extras import needed

needed("matplotlib", "theorykit.plots")

# the names of __init__.pyi, each imported from its module when it is first asked for
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
