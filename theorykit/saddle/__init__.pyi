from .action import Action, render_latex, render_markdown
from .boundaries import PhaseBoundary, PhaseDiagram, Transition, phase_diagram, transition
from .branch import SolutionBranch, follow
from .diagnosis import ConvergenceWarning
from .domains import Between, Positive, PositiveDefinite, Real, Symmetric
from .implicit import NoDerivativeWarning
from .solution import Solution
from .solve import QuadratureWarning, SeveralSolutionsWarning, minimise, search, stationary

__all__ = [
    "Action",
    "Between",
    "ConvergenceWarning",
    "NoDerivativeWarning",
    "PhaseBoundary",
    "PhaseDiagram",
    "Positive",
    "PositiveDefinite",
    "QuadratureWarning",
    "Real",
    "SeveralSolutionsWarning",
    "Solution",
    "SolutionBranch",
    "Symmetric",
    "Transition",
    "follow",
    "minimise",
    "phase_diagram",
    "render_latex",
    "render_markdown",
    "search",
    "stationary",
    "transition",
]
