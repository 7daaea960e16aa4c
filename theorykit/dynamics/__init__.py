"""Orbits of any map: exponents, regimes, orbits over many parameters, cycles, bifurcations."""

from .cycles import Cycles, cycle_near, double_period, find_cycle, follow
from .orbits import advance, classify, kaplan_yorke_dimension, lyapunov_spectrum, orbits

__all__ = [
    "Cycles",
    "advance",
    "classify",
    "cycle_near",
    "double_period",
    "find_cycle",
    "follow",
    "kaplan_yorke_dimension",
    "lyapunov_spectrum",
    "orbits",
]
