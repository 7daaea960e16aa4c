from .action import Action
from .branch import StationaryPoints, follow, near
from .diagnosis import ConvergenceWarning
from .domains import Between, Positive, PositiveDefinite, Real, Symmetric
from .phases import phase_diagram, transition
from .solution import Solution
from .solve import minimise, search, stationary

__all__ = [
    "Action",
    "Between",
    "ConvergenceWarning",
    "Positive",
    "PositiveDefinite",
    "Real",
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
