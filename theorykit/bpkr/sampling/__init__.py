"""Check theory 1 by sampling, and compare the two."""

from .chains import Schedule
from .sample import MixingWarning, compare, sample

__all__ = ["MixingWarning", "Schedule", "compare", "sample"]
