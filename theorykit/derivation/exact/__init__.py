"""Expressions evaluated exactly: at random points of a prime field, with bounds of their degrees.

Knows no theory, and nothing of rules. Two rational functions that agree at one such point agree everywhere, but for a
chance of their degree over the prime.
"""

from .point import ExactPoint, random_point
from .residues import PRIME, NotRational, SingularPoint
from .rules import ANY_FUNCTIONS
from .values import Logarithms, Residues, as_value

__all__ = [
    "ANY_FUNCTIONS",
    "PRIME",
    "ExactPoint",
    "Logarithms",
    "NotRational",
    "Residues",
    "SingularPoint",
    "as_value",
    "random_point",
]
