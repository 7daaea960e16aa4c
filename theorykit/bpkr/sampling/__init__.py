"""Check theory 1 by sampling: three samplers of one posterior, and a comparison with the theory."""

from .chains import Schedule
from .comparison import compare, deviations
from .sample import MixingWarning, sample

__all__ = ["MixingWarning", "Schedule", "compare", "deviations", "sample"]
