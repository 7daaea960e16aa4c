"""Attention paths: the features that each path of heads extracts from the input; Eq. (7)."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...arguments import checked_choice, checked_sequence, shown
from ..data.checks import finite_array
from ..specification import layer_functions
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layer_form import LayerForm

Readout = Literal["first", "last", "mean"]


def path_features(
    inputs: ArrayLike,
    attention: Sequence[ArrayLike],
    architecture: Architecture,
    readout: Readout = "last",
) -> Float[Array, "examples paths features"]:
    """The path features phi (examples, paths, features) of `inputs` (examples, tokens, features), Eq. (7).

    phi^pi = s_0 xi^pi / sqrt(N_0 H_1 ... H_L) for layers of attention: each path's attended input, scaled so that the
    kernel is K = sum U_1^{pi pi'} phi^pi . phi^pi'. Other kinds of layers bring their forward map's own scale.
    `attention` is what `attention` returns, one array for each layer that has heads: empty where none has. `readout`
    is the token that the network reads: the first, the last, or the mean over tokens. Paths are in the order of
    `Architecture.path_branches`.
    """
    inputs = finite_array("inputs", inputs, "examples tokens features")
    checked_choice("readout", readout, get_args(Readout))
    checked_architecture(architecture)
    return unchecked_path_features(inputs, _checked_attention(attention, inputs, architecture), architecture, readout)


def unchecked_path_features(
    inputs: Float[Array, "examples tokens features"],
    attention: Sequence[Float[Array, "examples _ keys queries"]],
    architecture: Architecture,
    readout: Readout,
) -> Float[Array, "examples paths features"]:
    """`path_features` of arrays that are known to fit; not finite where they are not."""
    forms, numbers = architecture.forms, architecture.layer_numbers()
    last = readout_weights(readout, inputs.shape[1])[:, None]

    def of_example(tokens, mixings):
        reading = last
        for form in reversed(forms):
            reading = layer_functions.reading(form, numbers, reading, mixings.get(form.symbols.index))
        return reading.T @ tokens  # Eq. (7)

    attended = jax.vmap(of_example)(inputs, stack_heads(forms, architecture.heads, attention))
    return jnp.sqrt(architecture.prior_variances[0] / inputs.shape[2]) * attended


def stack_heads(
    forms: Sequence[LayerForm], heads: Sequence[int], attention: Sequence[Float[Array, "examples _ keys queries"]]
) -> Mapping[int, Float[Array, "examples _ queries"]]:
    """Omega_l by the number of the layer, for every layer that has heads: the heads' attention one below the other."""
    indices = [form.symbols.index for form, count in zip(forms, heads, strict=True) if count]
    layers = zip(indices, attention, strict=True)
    return {index: layer.reshape(len(layer), -1, layer.shape[3]) for index, layer in layers}


def readout_weights(readout: Readout, tokens: int) -> Float[Array, " tokens"]:
    """How much the network reads of each token: all of the first or the last, or the same of each."""
    if readout == "first":
        return jnp.zeros(tokens).at[0].set(1.0)
    if readout == "last":
        return jnp.zeros(tokens).at[-1].set(1.0)
    if readout == "mean":
        return jnp.full(tokens, 1 / tokens)
    raise ValueError(f"readout must be one of {get_args(Readout)}, got {shown(readout)}")


def _checked_attention(attention, inputs, architecture):
    counts = tuple(heads for heads in architecture.heads if heads)
    attention = checked_sequence("attention", attention, "arrays, one a layer that has heads")
    if len(attention) != len(counts):
        raise ValueError(
            f"attention has {len(attention)} layers, but {len(counts)} layers have heads, {counts}; give one "
            "(examples, heads, keys, queries) array for each of them, as bpkr.attention returns them"
        )
    examples, tokens, _ = inputs.shape
    layers = []
    for i, (layer, heads) in enumerate(zip(attention, counts, strict=True)):
        layer = finite_array(f"attention[{i}]", layer, "examples heads keys queries")
        if layer.shape != (examples, heads, tokens, tokens):
            raise ValueError(f"attention[{i}] must have shape {(examples, heads, tokens, tokens)}, got {layer.shape}")
        layers.append(layer)
    return layers
