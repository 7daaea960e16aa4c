"""Theory 1: attention paths and the action of their order parameters, by back-propagating kernel renormalisation.

Source: L. Tiberi, F. Mignacco, K. Irie, H. Sompolinsky, "Dissecting the Interplay of Attention Paths in a Statistical
Mechanics Theory of Transformers" (arXiv 2405.15926). Equation numbers in the code refer to this paper.
"""

import importlib

import lazy_loader

# Import each name of __init__.pyi from its module on first use.
_named, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name):
    # Packages on top of the theory
    is_above = name in ("sampling", "sweeps")
    return importlib.import_module(f"{__name__}.{name}") if is_above else _named(name)
