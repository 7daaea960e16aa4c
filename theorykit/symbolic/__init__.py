"""The symbolic vocabulary: atoms, algebra, the matrix differential, rendering. Knows no theory."""

from .algebra import as_number, expanded, from_terms, inverse, kronecker, matrix_terms, normal, reduced, transposed
from .atoms import (
    Diagonal,
    LogDet,
    PartialTrace,
    PositiveDefiniteSymbol,
    SquareRoot,
    log_det,
    partial_trace,
    positive_definite,
    quadratic_form,
    split_coefficient,
    trace,
)
from .blocks import PrincipalBlock, SideBySide, Stacked, below, beside, embedded, principal_block
from .differential import gradient
from .document import Block, Equation, Heading, Items, Text, align_environment, as_latex, as_markdown
from .rendering import fold, latex
from .structure import is_positive_definite, is_positive_semidefinite

__all__ = [
    "Block",
    "Diagonal",
    "Equation",
    "Heading",
    "Items",
    "LogDet",
    "PartialTrace",
    "PositiveDefiniteSymbol",
    "PrincipalBlock",
    "SideBySide",
    "SquareRoot",
    "Stacked",
    "Text",
    "align_environment",
    "as_latex",
    "as_markdown",
    "as_number",
    "below",
    "beside",
    "embedded",
    "expanded",
    "fold",
    "from_terms",
    "gradient",
    "inverse",
    "is_positive_definite",
    "is_positive_semidefinite",
    "kronecker",
    "latex",
    "log_det",
    "matrix_terms",
    "normal",
    "partial_trace",
    "positive_definite",
    "principal_block",
    "quadratic_form",
    "reduced",
    "split_coefficient",
    "trace",
    "transposed",
]
