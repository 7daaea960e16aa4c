"""Networks of finitely many neurons, spin by spin or by class sums, how far they stray from the map, and how fast they
converge to it."""

from .finite_network import (
    AbstractNetwork,
    ClassSumNetwork,
    SampledTrajectory,
    SpinNetwork,
    Token,
    class_sum_network,
    run,
    run_with_spins,
    spin_network,
)
from .linear_noise import Fluctuations, fluctuations

__all__ = [
    "AbstractNetwork",
    "ClassSumNetwork",
    "Fluctuations",
    "SampledTrajectory",
    "SpinNetwork",
    "Token",
    "class_sum_network",
    "fluctuations",
    "run",
    "run_with_spins",
    "spin_network",
]
