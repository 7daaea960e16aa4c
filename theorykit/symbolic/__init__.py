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
from .averages import GaussianAverage, with_nodes
from .differential import gradient
from .documents.document import Block, Equation, Heading, Text, as_latex, as_markdown
from .documents.rendering import latex
from .envelopes import moreau, proximal
from .functions import log_cosh, log_normal_cdf
from .gaussian_table import gaussian_average
from .matrix_functions import assume_positive_definite, entrywise, sum_of_entries
from .numeric import numeric_function

__all__ = [
    "Block",
    "Diagonal",
    "Equation",
    "GaussianAverage",
    "Heading",
    "Softmax",
    "SquareRoot",
    "Text",
    "as_latex",
    "as_markdown",
    "assume_positive_definite",
    "entrywise",
    "gaussian_average",
    "gradient",
    "inverse",
    "kronecker",
    "latex",
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
    "with_nodes",
]
