"""Orbits of any map: cycles and their bifurcations, bases of tangent vectors, regimes, and time series."""

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
from .orthonormal import gram_schmidt, householder  # noqa: F401
from .regimes import classify, kaplan_yorke_dimension, kaplan_yorke_lower_bound  # noqa: F401
from .time_series import amplitude_spectrum, autocorrelation, detect_period, zero_one_test  # noqa: F401

__all__ = [
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
