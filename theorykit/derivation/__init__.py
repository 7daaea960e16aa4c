"""Derivation engine: rules compute, steps record the results, and claims are checked. It contains no theory.

before -> rule -> Step(before, after, claim) -> Derivation -> verify
"""

from . import rules
from .step import Derivation, Recorder, Step, Verification, derivation_blocks, verification_blocks

__all__ = ["Derivation", "Recorder", "Step", "Verification", "derivation_blocks", "rules", "verification_blocks"]
