"""The symbolic vocabulary: atoms, the matrix differential, what is known of structure, rendering. Knows no theory."""

from .atoms import (
    Diagonal,
    LogDet,
    PartialTrace,
    PositiveDefiniteSymbol,
    log_det,
    partial_trace,
    positive_definite,
    quadratic_form,
    trace,
)
from .differential import gradient
from .document import Equation, align_environment, markdown_sections
from .rendering import fold, latex
from .structure import is_positive_definite, is_positive_semidefinite

__all__ = [
    "Diagonal",
    "Equation",
    "LogDet",
    "PartialTrace",
    "PositiveDefiniteSymbol",
    "align_environment",
    "fold",
    "gradient",
    "is_positive_definite",
    "is_positive_semidefinite",
    "latex",
    "log_det",
    "markdown_sections",
    "partial_trace",
    "positive_definite",
    "quadratic_form",
    "trace",
]
