"""Orbits of any map: cycles and their bifurcations, bases of tangent vectors, regimes, and time series."""

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
from .orthonormal import gram_schmidt, householder  # noqa: F401
from .regimes import classify, kaplan_yorke_dimension, kaplan_yorke_lower_bound  # noqa: F401
from .time_series import amplitude_spectrum, autocorrelation, detect_period, zero_one_test  # noqa: F401

__all__ = [
    "Cycles",
    "NoCycleError",
    "classify",
    "cycle_near",
    "detect_period",
    "double_period",
    "find_cycle",
    "follow",
    "gram_schmidt",
    "kaplan_yorke_dimension",
    "zero_one_test",
]
