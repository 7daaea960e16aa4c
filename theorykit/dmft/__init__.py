"""Theory 2: dynamical mean-field theory of self-attention networks of +-1 neurons, a map to iterate.

    Weights -> ColumnLaw -> SelfAttention -> step, run -> Trajectory, LyapunovSpectrum

`derive` has the map from the generating functional of the network, and the functions that run are compiled from it.
"""

from . import network
from .derivation.derivation import MeanField, derive
from .derivation.document import render_latex, render_markdown
from .map.lyapunov import LyapunovSpectrum, local_exponents, lyapunov_spectrum
from .map.self_attention import (
    OUTPUT,
    Parameters,
    SelfAttention,
    State,
    attention_gain,
    self_attention_limit,
    semantic_overlap,
)
from .map.starts import Window, pattern_prompt, prompt, state_from_window, token_start, window_start
from .map.stroboscope import Stroboscope
from .map.trajectory import Trajectory, advance, discard_transient, run
from .network.finite_size import convergence
from .weights.column_law import ColumnLaw, column_law, correlations, law_from_correlations
from .weights.weights import FAMILIES, Weights, iid_weights, published_weights, segment_weights, weights_from_arrays

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
    "discard_transient",
    "iid_weights",
    "law_from_correlations",
    "local_exponents",
    "lyapunov_spectrum",
    "network",
    "pattern_prompt",
    "prompt",
    "published_weights",
    "render_latex",
    "render_markdown",
    "run",
    "segment_weights",
    "self_attention_limit",
    "semantic_overlap",
    "state_from_window",
    "token_start",
    "weights_from_arrays",
    "window_start",
]
