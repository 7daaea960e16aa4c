"""The derivation engine: rules that compute, steps that record, claims that are checked. Knows no theory.

before -> rule -> Step(before, after, claim) -> Derivation -> verify
"""

from . import claims, rules
from .document import derivation_blocks, verification_blocks, verified_blocks
from .entries import entrywise, log_cosh, sum_of_entries
from .step import Derivation, Evidence, Recorder, Step, Verification

__all__ = [
    "Derivation",
    "Evidence",
    "Recorder",
    "Step",
    "Verification",
    "claims",
    "derivation_blocks",
    "entrywise",
    "log_cosh",
    "rules",
    "sum_of_entries",
    "verification_blocks",
    "verified_blocks",
]
