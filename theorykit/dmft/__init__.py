"""Theory 2: dynamical mean-field theory of self-attention networks with +-1 neurons.

    weights or correlations -> SelfAttention, a step(state, parameters) -> run, lyapunov_spectrum, dynamics.orbits

In the limit of many neurons, the network is an iterated map. `derive` obtains it from the generating functional, and
all functions use code compiled from it. `network` simulates networks of finite size.
"""

from . import network
from .derivation import MeanField, derive  # noqa: F401  a type of results
from .map import (  # noqa: F401
    OUTPUT,
    Parameters,
    SelfAttention,
    State,
    Trajectory,
    advance,
    attention_gain,
    lyapunov_spectrum,
    run,
    self_attention_from_correlations,
    self_attention_limit,
    semantic_overlap,
    start,
    state_from_window,
    stroboscope,
)
from .weights import Weights

__all__ = [
    "Parameters",
    "SelfAttention",
    "Weights",
    "advance",
    "attention_gain",
    "derive",
    "lyapunov_spectrum",
    "network",
    "run",
    "self_attention_from_correlations",
    "self_attention_limit",
    "semantic_overlap",
    "start",
    "state_from_window",
    "stroboscope",
]
