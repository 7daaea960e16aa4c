"""Orbits of any map: exponents and regimes, orbits over many parameters, cycles and their bifurcations."""

from .cycles import (  # noqa: F401  kinds of events, and the type of results
    NEIMARK_SACKER,
    PERIOD_DOUBLING,
    Cycle,
    Cycles,
    NoCycleError,
    cycle_near,
    double_period,
    find_cycle,
    follow,
)
from .orbits import LyapunovSpectrum, classify, kaplan_yorke_dimension, lyapunov_spectrum, orbits  # noqa: F401

__all__ = [
    "Cycles",
    "NoCycleError",
    "classify",
    "cycle_near",
    "double_period",
    "find_cycle",
    "follow",
    "kaplan_yorke_dimension",
    "lyapunov_spectrum",
    "orbits",
]
