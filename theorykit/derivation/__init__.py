"""Derivation engine: derivations state their steps, and claims are checked. It contains no theory."""

from . import solving
from .step import Derivation, Step

__all__ = [
    "Derivation",
    "Step",
    "solving",
]
