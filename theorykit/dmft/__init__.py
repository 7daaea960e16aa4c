"""Theory 2: dynamical mean-field theory of self-attention networks of +-1 neurons, a map to iterate.

    Weights -> ColumnLaw -> SelfAttention -> step, run -> Trajectory, LyapunovSpectrum

`derive` has the map from the generating functional of the network, and the functions that run are compiled from it.
"""

from . import network
from .column_law import ColumnLaw, column_law, correlations, law_from_correlations
from .derive import MeanField, derive
from .finite_size import convergence
from .lyapunov import LyapunovSpectrum, local_exponents, lyapunov_spectrum
from .self_attention import OUTPUT, Parameters, SelfAttention, State, attention_gain, mean_field, semantic_overlap
from .starts import Window, pattern_prompt, prompt, token_start, warm_start, window_start
from .stroboscope import Stroboscope
from .trajectory import Trajectory, advance, run, settled
from .weights import FAMILIES, Weights, iid_weights, published_weights, segment_weights, weights_from_arrays

__all__ = [
    "FAMILIES",
    "OUTPUT",
    "ColumnLaw",
    "LyapunovSpectrum",
    "MeanField",
    "Parameters",
    "SelfAttention",
    "State",
    "Stroboscope",
    "Trajectory",
    "Weights",
    "Window",
    "advance",
    "attention_gain",
    "column_law",
    "convergence",
    "correlations",
    "derive",
    "iid_weights",
    "law_from_correlations",
    "local_exponents",
    "lyapunov_spectrum",
    "mean_field",
    "network",
    "pattern_prompt",
    "prompt",
    "published_weights",
    "run",
    "segment_weights",
    "semantic_overlap",
    "settled",
    "token_start",
    "warm_start",
    "weights_from_arrays",
    "window_start",
]
