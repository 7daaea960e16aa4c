"""Derivation engine: derivations state their steps, and claims are checked. It contains no theory."""

from . import solving
from .step import Derivation, Recorder, Step, Verification, derivation_blocks, verification_blocks

__all__ = [
    "Derivation",
    "Recorder",
    "Step",
    "Verification",
    "derivation_blocks",
    "solving",
    "verification_blocks",
]
