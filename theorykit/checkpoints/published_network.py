"""The network of Tiberi et al., arXiv 2405.15926, as its published program saves it, turned into that of the theory.

Theirs divides by the root of the number of heads, and not by those of the widths, by which the theory's Eqs. (1), (2)
and (4) divide: here the weights are multiplied by these.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import bpkr
from ..checks import shown
from ..precision import require_float64
from .layouts import Source
from .reading import find_layout, open_checkpoint, read_heads

_LAYOUT = "attention_paths"
_EMBEDDING, _READOUT = "learned_input_layer", "readout_layer"


def read_network_weights(
    checkpoint: Mapping[str, Any] | str | Path, *, heads: int | None = None
) -> tuple[tuple[Float[Array, "_ _"], ...], bpkr.AbstractHeads]:
    """All weights of a network in the layout "attention_paths", and its heads, for `bpkr.network_of_weights`.

    - `checkpoint`, `heads`: as for `read_heads`; all layers have as many heads.

    Returns the embedding V^0 (N_1, N_0), every layer's V_l (N_{l+1}, heads N_l), and the readout a (outputs, N_a), such
    that the theory's network of these weights puts out what theirs does; and the heads, which act on the bare input. An
    embedding that is not there is the identity. The file does not say whether layers have skip connections, nor which
    token is read: the architecture and `readout` of `bpkr.network_of_weights` do.

    Raises as `read_heads`, and `ValueError` for biases or projections after attention, which the theory's network has
    not.
    """
    require_float64()
    arrays, called, _ = open_checkpoint(checkpoint)
    found = find_layout(arrays, called, _LAYOUT)
    if sorted(found.stems) != list(range(len(found.stems))):
        raise ValueError(f"{called} has the layers {sorted(found.stems)}, with others missing between them")
    source = Source(arrays, called, found.prefix)
    _refuse_others(source, found.stems)
    layers = [read_heads(arrays, layer=layer, layout=_LAYOUT, heads=heads) for layer in sorted(found.stems)]
    values = [_value(Source(arrays, called, found.stems[layer]), len(each.query)) for layer, each in enumerate(layers)]
    features = layers[0].query.shape[2]
    embedding = source.matrix(f"{_EMBEDDING}.weight") if source.has(f"{_EMBEDDING}.weight") else np.eye(features)
    weights = (math.sqrt(features) * embedding, *values, _times_root_of_columns(source.matrix(f"{_READOUT}.weight")))
    _check_chain(weights, [len(each.query) for each in layers], features, called)
    projections = bpkr.heads(query=[each.query for each in layers], key=[each.key for each in layers])
    return tuple(jnp.asarray(weight) for weight in weights), projections


def _refuse_others(source: Source, stems: Mapping[int, str]) -> None:
    """Raise `ValueError` for what the theory's network has not."""
    maps = ("to_q", "to_k", "to_v", "to_out")
    biased = [f"{source.prefix}{name}" for name in (_EMBEDDING, _READOUT)]
    biased += [f"{stem}{name}" for stem in stems.values() for name in maps]
    for name in (f"{each}.bias" for each in biased):
        if name in source.arrays:
            raise ValueError(f"{source.called} has {shown(name)}: the theory's network has no biases")
    for name in (f"{stem}to_out.weight" for stem in stems.values()):
        if name in source.arrays:
            raise ValueError(
                f"{source.called} has {shown(name)}: the theory's heads are summed, not projected after that"
            )


def _value(source: Source, heads: int) -> Float[np.ndarray, "nextwidth columns"]:
    """V_l, its heads' blocks side by side, of rows (heads N_{l+1}) below each other."""
    stacked = source.matrix("to_v.weight")
    if len(stacked) % heads:
        raise ValueError(
            f"heads={heads} does not divide the {len(stacked)} rows of {shown(source.prefix + 'to_v.weight')} in "
            f"{source.called}"
        )
    blocks = _times_root_of_columns(stacked).reshape(heads, -1, stacked.shape[1])
    return blocks.transpose(1, 0, 2).reshape(blocks.shape[1], -1)


def _times_root_of_columns(matrix: Float[np.ndarray, "rows columns"]) -> Float[np.ndarray, "rows columns"]:
    return math.sqrt(matrix.shape[1]) * matrix


def _check_chain(weights: tuple[np.ndarray, ...], heads: list[int], features: int, called: str) -> None:
    """Raise `ValueError` unless each layer takes what the one before it puts out."""
    widths = [features]
    for number, (weight, count) in enumerate(zip(weights, (1, *heads, 1), strict=True)):
        if weight.shape[1] != count * widths[-1]:
            raise ValueError(
                f"{called} does not fit together: matrix {number} of {len(weights)}, from the input, is for "
                f"{weight.shape[1] // count} features, and {widths[-1]} come in"
            )
        widths.append(weight.shape[0])
