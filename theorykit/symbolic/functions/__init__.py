"""Scalar functions beyond SymPy's: kept whole, smoothed by a normal variable, and given by users."""

from .derivatives import JUMPING, partial_derivative
from .numeric import NumericFunction, numeric_function
from .smoothed import AngleBetween, PlaneMonomial, SmoothedAbs, SmoothedRamp, length
from .whole import LogCosh, LogNormalCDF, log_cosh, log_normal_cdf

__all__ = [
    "JUMPING",
    "AngleBetween",
    "LogCosh",
    "LogNormalCDF",
    "NumericFunction",
    "PlaneMonomial",
    "SmoothedAbs",
    "SmoothedRamp",
    "length",
    "log_cosh",
    "log_normal_cdf",
    "numeric_function",
    "partial_derivative",
]
