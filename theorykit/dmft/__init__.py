"""Theory 2: dynamical mean-field theory of self-attention networks with +-1 neurons.

    weights or correlations -> SelfAttention, a step(state, parameters) -> run, theorykit.dynamics

In the limit of many neurons, the network is an iterated map. `derive` obtains it from the
generating functional; functions are compiled from it.
"""

from .derivation import MeanField, derive  # noqa: F401  a type of results
from .map import Parameters, SelfAttention, State, Trajectory, run, stroboscope  # noqa: F401
from .network import FiniteNetwork, Fluctuations, fluctuations  # noqa: F401
from .weights import KEY, OUTPUT, QUERY, VALUE, Weights  # noqa: F401

__all__ = [
    "FiniteNetwork",
    "Parameters",
    "SelfAttention",
    "Weights",
    "derive",
    "fluctuations",
    "run",
    "stroboscope",
]
