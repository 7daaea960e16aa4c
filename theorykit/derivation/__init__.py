"""The derivation engine: rules that compute, steps that record, claims that are checked. Knows no theory.

before -> rule -> Step(before, after, claim) -> Derivation -> verify
"""

from . import rules
from .step import Derivation, Recorder, Step, Verification, derivation_blocks, verification_blocks

__all__ = ["Derivation", "Recorder", "Step", "Verification", "derivation_blocks", "rules", "verification_blocks"]
