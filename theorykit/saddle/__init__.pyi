from .action import Action
from .branch import StationaryPoints, follow, near
from .diagnosis import ConvergenceWarning
from .domains import Between, Positive, PositiveDefinite, Real, Symmetric
from .phases import phase_diagram, transition
from .problem import NoDerivativeWarning
from .solution import Solution
from .solve import QuadratureWarning, SeveralSolutionsWarning, minimise, search, stationary

__all__ = [
    "Action",
    "Between",
    "ConvergenceWarning",
    "NoDerivativeWarning",
    "Positive",
    "PositiveDefinite",
    "QuadratureWarning",
    "Real",
    "SeveralSolutionsWarning",
    "Solution",
    "StationaryPoints",
    "Symmetric",
    "follow",
    "minimise",
    "near",
    "phase_diagram",
    "search",
    "stationary",
    "transition",
]
