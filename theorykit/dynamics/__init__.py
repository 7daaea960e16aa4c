"""Orbits of any map: exponents and regimes, orbits over many parameters, cycles and their bifurcations."""

from .branches import (  # noqa: F401  kinds of events, and types of results
    BRANCH_POINT,
    FOLD,
    NEIMARK_SACKER,
    PERIOD_DOUBLING,
    Branch,
    Event,
    double_period,
    follow,
)
from .cycles import Cycle, NoCycleError, cycle_near, find_cycle  # noqa: F401
from .exponents import LyapunovSpectrum, classify, kaplan_yorke_dimension, lyapunov_spectrum  # noqa: F401
from .orbits import orbits

__all__ = [
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
