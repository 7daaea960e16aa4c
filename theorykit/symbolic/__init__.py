"""Symbolic vocabulary: atoms, matrix algebra, the matrix differential and documents. No theory is assumed."""

from .algebra import inverse, kronecker, normal, sum_of
from .atoms import (
    Diagonal,
    Softmax,
    SquareRoot,
    log_det,
    partial_trace,
    positive_definite,
    positive_semidefinite,
    quadratic_form,
    symmetric,
    trace,
)
from .averages import GaussianAverage
from .differential import gradient
from .envelopes import moreau, proximal
from .functions import log_cosh, log_normal_cdf
from .gaussian_table import gaussian_average
from .matrix_functions import assume_positive_definite, entrywise, sum_of_entries
from .numeric import numeric_function

__all__ = [
    "Diagonal",
    "GaussianAverage",
    "Softmax",
    "SquareRoot",
    "assume_positive_definite",
    "entrywise",
    "gaussian_average",
    "gradient",
    "inverse",
    "kronecker",
    "log_cosh",
    "log_det",
    "log_normal_cdf",
    "moreau",
    "normal",
    "numeric_function",
    "partial_trace",
    "positive_definite",
    "positive_semidefinite",
    "proximal",
    "quadratic_form",
    "sum_of",
    "sum_of_entries",
    "symmetric",
    "trace",
]
