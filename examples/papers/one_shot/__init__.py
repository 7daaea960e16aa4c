"""Figs. 3, 6 and 7 of Tiberi et al.: one-shot image classification in context, from images to pruned heads.

images -> train -> queries and keys -> theory at every width and temperature -> U compared, heads scored and removed
"""

from .settings import PAPER, SMALL, OneShot, Strokes, Variant
from .stages import run

__all__ = ["PAPER", "SMALL", "OneShot", "Strokes", "Variant", "run"]
