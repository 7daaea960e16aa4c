"""Attention paths: the features that each path of heads extracts from the input; Eq. (7)."""

from collections.abc import Sequence
from typing import Literal, get_args

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .architecture import Architecture
from .checks import finite_array

Readout = Literal["first", "last", "mean"]


def path_features(
    inputs: ArrayLike,
    attention: Sequence[ArrayLike],
    architecture: Architecture,
    readout: Readout = "last",
) -> Float[Array, "examples paths features"]:
    """The path features phi (examples, paths, features) of `inputs` (examples, tokens, features), Eq. (7).

    phi^pi = s_0 xi^pi / sqrt(N_0 H_1 ... H_L): each path's attended input, scaled so that the kernel is
    K = sum U_1^{pi pi'} phi^pi . phi^pi'. `attention` is what `attention` returns, `readout` the token that the network
    reads: the first, the last, or the mean over tokens. Paths are in the order of `Architecture.path_heads`.
    """
    inputs = finite_array("inputs", inputs, "examples tokens features")
    layers = _checked_attention(attention, inputs, architecture)
    examples, tokens, input_features = inputs.shape
    # weight of each token in the output, for each partial path from the readout down
    weights = jnp.broadcast_to(readout_weights(readout, tokens), (examples, 1, tokens))
    for layer in reversed(layers):
        weights = jnp.einsum("phst,pnt->phns", layer, weights).reshape(examples, -1, tokens)
    attended = jnp.einsum("pts,psi->pti", weights, inputs)  # Eq. (7)
    return jnp.sqrt(architecture.prior_variances[0] / (input_features * architecture.paths)) * attended


def readout_weights(readout: Readout, tokens: int) -> Float[Array, " tokens"]:
    """How much the network reads of each token: all of the first or the last, or the same of each."""
    if readout == "first":
        return jnp.zeros(tokens).at[0].set(1.0)
    if readout == "last":
        return jnp.zeros(tokens).at[-1].set(1.0)
    if readout == "mean":
        return jnp.full(tokens, 1 / tokens)
    raise ValueError(f"readout must be one of {get_args(Readout)}, got {readout!r}")


def _checked_attention(attention, inputs, architecture):
    if len(attention) != architecture.depth:
        raise ValueError(
            f"attention has {len(attention)} layers, but heads={architecture.heads} make {architecture.depth}; "
            "give one (examples, heads, keys, queries) array a layer, as bpkr.attention returns them"
        )
    examples, tokens, _ = inputs.shape
    layers = []
    for i, (layer, heads) in enumerate(zip(attention, architecture.heads, strict=True)):
        layer = finite_array(f"attention[{i}]", layer, "examples heads keys queries")
        if layer.shape != (examples, heads, tokens, tokens):
            raise ValueError(f"attention[{i}] must have shape {(examples, heads, tokens, tokens)}, got {layer.shape}")
        layers.append(layer)
    return layers
