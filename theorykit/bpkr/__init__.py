"""Theory 1: attention paths and the action of their order parameters, by back-propagating kernel renormalisation.

Source: L. Tiberi, F. Mignacco, K. Irie, H. Sompolinsky, "Dissecting the Interplay of Attention Paths in a Statistical
Mechanics Theory of Transformers" (arXiv 2405.15926). Equation numbers in the code refer to this paper.

    Architecture -> derive -> Action -> compiled function -> evaluate / solve -> OrderParameters -> predict, observables
"""

import importlib
from typing import Any

import lazy_loader

# The names of __init__.pyi, each imported from its module at its first use.
_named, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
# Packages on top of the theory, which are imported at their first use.
_ABOVE = ("nonlinear", "sampling", "sweeps")


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}") if name in _ABOVE else _named(name)
