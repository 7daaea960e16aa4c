"""Check theory 1 by sampling, and compare the two."""

from .chains import Schedule
from .comparison import compare, deviations
from .sample import MixingWarning, sample

__all__ = ["MixingWarning", "Schedule", "compare", "deviations", "sample"]
