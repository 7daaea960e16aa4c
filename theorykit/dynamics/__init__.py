"""Orbits of maps: cycles and their bifurcations, bases of tangent vectors, regimes, time series. Knows no theory."""

from .branches import BRANCH_POINT as BRANCH_POINT
from .branches import FOLD as FOLD
from .branches import NEIMARK_SACKER as NEIMARK_SACKER
from .branches import PERIOD_DOUBLING as PERIOD_DOUBLING
from .branches import Branch as Branch
from .branches import Event as Event
from .branches import double_period, follow
from .cycles import Cycle as Cycle
from .cycles import NoCycleError, cycle_near, find_cycle
from .orthonormal import gram_schmidt
from .orthonormal import householder as householder
from .regimes import classify, kaplan_yorke_dimension
from .regimes import kaplan_yorke_lower_bound as kaplan_yorke_lower_bound
from .time_series import amplitude_spectrum as amplitude_spectrum
from .time_series import autocorrelation as autocorrelation
from .time_series import detect_period, zero_one_test
from .time_series import power_spectrum as power_spectrum

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
