"""Derivations state their steps, and claims are checked. No theory is assumed."""

from . import solving
from .step import Derivation, Step

__all__ = [
    "Derivation",
    "Step",
    "solving",
]
