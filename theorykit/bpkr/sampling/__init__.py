"""Check theory 1 by sampling: three samplers of one posterior, and a comparison with the theory.

`sample_order_parameters` draws from the exact posterior of the order parameters at finite width. `sample_weights` (by
NUTS) and `sample_weights_by_gibbs` draw the weights of the finite network and do not use order parameters.
"""

from .comparison import compare, deviations
from .results import MixingWarning
from .sample import network_of, sample_order_parameters, sample_weights, sample_weights_by_gibbs
from .settings import NoUTurn, Schedule

__all__ = [
    "MixingWarning",
    "NoUTurn",
    "Schedule",
    "compare",
    "deviations",
    "network_of",
    "sample_order_parameters",
    "sample_weights",
    "sample_weights_by_gibbs",
]
