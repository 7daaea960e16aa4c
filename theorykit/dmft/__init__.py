"""Theory 2: dynamical mean-field theory of self-attention networks with +-1 neurons.

    Weights -> ColumnLaw -> SelfAttention -> run -> Trajectory, LyapunovSpectrum

In the limit of many neurons, the network is an iterated map. `derive` obtains the map from the generating functional,
and `run` and `lyapunov_spectrum` use functions compiled from it. `network` simulates networks of finite size, and
`diagrams` computes orbits over a range of parameters.
"""

import importlib
from typing import Any

from . import network
from .derivation.derivation import MeanField, derive  # noqa: F401  a type of results
from .derivation.document import render_latex, render_markdown  # noqa: F401
from .lyapunov import LyapunovSpectrum, lyapunov_spectrum  # noqa: F401
from .map import (  # noqa: F401
    OUTPUT,
    Parameters,
    SelfAttention,
    State,
    Stroboscope,
    Trajectory,
    Window,
    advance,
    attention_gain,
    discard_transient,
    pattern_prompt,
    prompt,
    run,
    self_attention_limit,
    semantic_overlap,
    state_from_window,
    token_start,
    window_start,
)
from .network import convergence
from .weights import (  # noqa: F401
    ColumnLaw,
    Weights,
    column_law,
    iid_weights,
    published_weights,
    segment_weights,
    weights_from_arrays,
)

__all__ = [
    "Parameters",
    "SelfAttention",
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


def __getattr__(name: str) -> Any:
    # Load `diagrams` on first use, because it imports the rest of the package.
    if name == "diagrams":
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
