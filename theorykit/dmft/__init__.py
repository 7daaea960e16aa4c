"""Theory 2: dynamical mean-field theory of self-attention networks of +-1 neurons, a map to iterate.

    Weights -> ColumnLaw -> SelfAttention -> step, run -> Trajectory, LyapunovSpectrum

`derive` has the map from the generating functional of the network, and the functions that run are compiled from it.
`network` has networks of finitely many neurons, `diagrams` orbits over parameters.
"""

from . import network
from .derivation.derivation import MeanField as MeanField
from .derivation.derivation import derive
from .derivation.document import render_latex
from .derivation.document import render_markdown as render_markdown
from .lyapunov import LyapunovSpectrum as LyapunovSpectrum
from .lyapunov import local_exponents as local_exponents
from .lyapunov import lyapunov_spectrum
from .map import (
    OUTPUT as OUTPUT,
)
from .map import (
    Parameters,
    SelfAttention,
    State,
    Stroboscope,
    Window,
    advance,
    attention_gain,
    discard_transient,
    pattern_prompt,
    run,
    self_attention_limit,
    semantic_overlap,
    state_from_window,
    token_start,
    window_start,
)
from .map import Trajectory as Trajectory
from .map import prompt as prompt
from .network import convergence
from .weights import ColumnLaw as ColumnLaw
from .weights import Weights, iid_weights, published_weights, segment_weights, weights_from_arrays
from .weights import column_law as column_law
from .weights import correlations as correlations
from .weights import law_from_correlations as law_from_correlations

__all__ = [
    "Parameters",
    "SelfAttention",
    "State",
    "Stroboscope",
    "Weights",
    "Window",
    "advance",
    "attention_gain",
    "convergence",
    "derive",
    "discard_transient",
    "iid_weights",
    "lyapunov_spectrum",
    "network",
    "pattern_prompt",
    "published_weights",
    "render_latex",
    "run",
    "segment_weights",
    "self_attention_limit",
    "semantic_overlap",
    "state_from_window",
    "token_start",
    "weights_from_arrays",
    "window_start",
]
