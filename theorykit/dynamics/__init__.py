"""Orbits of maps: cycles and their bifurcations, bases of tangent vectors, regimes, time series. Knows no theory."""

from .bifurcations import BRANCH_POINT, FOLD, NEIMARK_SACKER, PERIOD_DOUBLING, Event, double_period
from .continuation import Branch, follow
from .cycles import Cycle, NoCycleError, cycle_near, find_cycle
from .orthonormal import gram_schmidt, householder
from .regimes import classify, kaplan_yorke_dimension, kaplan_yorke_lower_bound
from .time_series import amplitude_spectrum, autocorrelation, detect_period, power_spectrum, zero_one_test

__all__ = [
    "BRANCH_POINT",
    "FOLD",
    "NEIMARK_SACKER",
    "PERIOD_DOUBLING",
    "Branch",
    "Cycle",
    "Event",
    "NoCycleError",
    "amplitude_spectrum",
    "autocorrelation",
    "classify",
    "cycle_near",
    "detect_period",
    "double_period",
    "find_cycle",
    "follow",
    "gram_schmidt",
    "householder",
    "kaplan_yorke_dimension",
    "kaplan_yorke_lower_bound",
    "power_spectrum",
    "zero_one_test",
]
