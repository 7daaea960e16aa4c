"""Networks of finitely many neurons, spin by spin or by class sums, and how they converge to the map."""

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

__all__ = [
    "AbstractNetwork",
    "ClassSumNetwork",
    "SampledTrajectory",
    "SpinNetwork",
    "Token",
    "class_sum_network",
    "run",
    "run_with_spins",
    "spin_network",
]
