"""Nonlinear hidden units beyond the ansatz of `bpkr.derive`: functions with a mean, and order parameters in kernels.

    Architecture(embedding=...) -> path_features -> solve_with_mean, solve_nested -> saddle.Solution -> predict_...

Both are ansaetze for examples in proportion to the widths; `NonlinearAction.ansatz` says what they assume.
"""

from .mean import derive_with_mean, predict_with_mean, solve_with_mean
from .nested import derive_nested, predict_nested, solve_nested
from .theory import NonlinearAction

__all__ = [
    "NonlinearAction",
    "derive_nested",
    "derive_with_mean",
    "predict_nested",
    "predict_with_mean",
    "solve_nested",
    "solve_with_mean",
]
