"""Check theory 1 by sampling, compare the two, and learn queries and keys."""

from .chains import Schedule
from .queries_keys import QueryKeyPrior, maximise_evidence, sample_queries_keys
from .sample import MixingWarning, compare, sample

__all__ = [
    "MixingWarning",
    "QueryKeyPrior",
    "Schedule",
    "compare",
    "maximise_evidence",
    "sample",
    "sample_queries_keys",
]
