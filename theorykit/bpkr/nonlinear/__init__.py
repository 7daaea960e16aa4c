"""Nonlinear hidden units beyond the ansatz of `bpkr.derive`: functions with a mean, and nested kernels.

    problem = bpkr.Problem(architecture, data)
    theory = nonlinear.MeanProblem(problem)  # or NestedProblem
    solution = theory.solve()
    prediction = theory.predict(solution)

Both theories are ansaetze for numbers of examples proportional to the widths. `NonlinearAction.ansatz` lists their
assumptions.
"""

from .mean import MeanProblem, derive_with_mean
from .nested import NestedProblem, derive_nested
from .theory import NonlinearAction

__all__ = ["MeanProblem", "NestedProblem", "NonlinearAction", "derive_nested", "derive_with_mean"]
