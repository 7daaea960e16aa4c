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
from .documents.page import Definition, as_html
from .documents.rendering import latex
from .functions import bivariate_normal_cdf, log_bivariate_normal_cdf, log_cosh, log_normal_cdf
from .gaussian_table import gaussian_average
from .matrix_functions import eigenvalue_sum, entrywise, spectral_function, sum_of_entries
from .numeric import numeric_function

__all__ = [
    "Block",
    "Definition",
    "Diagonal",
    "Equation",
    "GaussianAverage",
    "Heading",
    "Softmax",
    "SquareRoot",
    "Text",
    "as_html",
    "as_latex",
    "as_markdown",
    "bivariate_normal_cdf",
    "eigenvalue_sum",
    "entrywise",
    "gaussian_average",
    "gradient",
    "inverse",
    "kronecker",
    "latex",
    "log_bivariate_normal_cdf",
    "log_cosh",
    "log_det",
    "log_normal_cdf",
    "normal",
    "numeric_function",
    "partial_trace",
    "positive_definite",
    "positive_semidefinite",
    "quadratic_form",
    "spectral_function",
    "sum_of",
    "sum_of_entries",
    "symmetric",
    "trace",
    "with_nodes",
]
