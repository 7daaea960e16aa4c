"""Attention paths: the features that each path through the heads extracts from the input; Eq. (7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ...checks import (
    Requirement,
    check_aligned,
    checked_choice,
    checked_sequence,
    counted,
    finite_array,
    in_order_of_names,
    on_host,
    require,
    shown,
)
from ...compilation import jit, jit_and_keep
from ...settings import usual_settings
from ..features.implicit import ImplicitFeatures, PathFeatures, rules_for
from ..specification import layer_functions
from ..specification.architecture import Architecture, checked_architecture
from .attention import Layout, checked_real_tokens

Readout = Literal["first", "last", "mean", "all"]
"""Which token the readout reads: the first, the last, the mean over tokens, or all with separate weights per token."""


class AttentionWarning(UserWarning):
    """Warns of attention that may be unintended, such as attention to padding."""


# Accept this much attention to padding, because masks in half precision leak.
_LEAK = 1e-6
# Accept sums of a softmax that differ from one by this much, because maps in half precision do.
_ONE = 1e-2


@usual_settings()
def path_features(
    inputs: ArrayLike,
    attention: Sequence[ArrayLike],
    architecture: Architecture,
    readout: Readout | ArrayLike | None = None,
    *,
    real_tokens: ArrayLike | None = None,
    layout: Layout | None = None,
) -> PathFeatures:
    """Compute the path features phi (examples, paths, features) of `inputs` (examples, tokens, features), Eq. (7).

    For layers of attention, phi^pi = s_0 xi^pi / sqrt(N_0 H_1 ... H_L), with the attended input xi^pi of each path. The
    scale is such that the kernel is K = sum U_1^{pi pi'} phi^pi . phi^pi'. Paths are in the order of
    `Architecture.path_branches`. A nonlinear embedding has no feature vectors, so it returns `ImplicitFeatures`, which
    hold kernels.

    Args:
        inputs: (examples, tokens, features).
        attention: one array (examples, heads, keys, queries) per layer that has heads, as `bpkr.attention` returns it,
            or (heads, keys, queries) for all examples. Any fixed numbers are allowed: maps recorded from a trained
            transformer, gates, powers of a graph's adjacency matrix, shifts.
        architecture: the architecture.
        readout: the token that the network reads: "first", "last", the "mean" over tokens, or one position per example
            (examples,), counted from 0. "all" reads every token with separate weights, and needs an architecture with
            as many `read_tokens`. The default is "last", or "all" if the architecture reads several tokens.
        real_tokens: which tokens are not padding, as booleans (examples, tokens), or as the number (examples,) of real
            tokens, counted from the first. "first", "last" and "mean" then use only real tokens.
        layout: "torch" if the last two axes of attention are (queries, keys); otherwise they are (keys, queries).
            Attention that sums to one over queries but not over keys raises an error, because it looks like a softmax
            in the other order; "keys-first" accepts it.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> inputs = np.random.default_rng(0).normal(size=(6, 4, 3))
        >>> uniform = np.full((2, 4, 4), 1 / 4)  # two heads that attend equally to all four tokens
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> features = bpkr.path_features(inputs, [uniform], arch)
        >>> features.shape, bool(np.allclose(features[:, 0], inputs.mean(axis=1) / np.sqrt(3 * 2)))
        ((6, 2, 3), True)
    """
    parts = attention if isinstance(attention, (list, tuple)) else ()
    maps = {f"attention[{i}]": layer for i, layer in enumerate(parts)}
    check_aligned(inputs=inputs, **maps, real_tokens=real_tokens, readout=readout)
    inputs = finite_array("inputs", inputs, "examples tokens features")
    checked_architecture(architecture)
    real = None if real_tokens is None else checked_real_tokens("real_tokens", real_tokens, *inputs.shape[:2])
    read = _checked_readout(chosen_readout(architecture, readout, inputs.shape[1]), inputs.shape, real)
    layers = _checked_attention(attention, inputs.shape, architecture, layout, real)
    # Numbers are arrays, so that one compilation serves all values.
    found = unchecked_path_features(inputs, layers, architecture.with_arrays(), read)
    if architecture.is_linear:
        return found
    tokens = jnp.sqrt(architecture.prior_variances[0] / inputs.shape[2]) * inputs
    above = architecture.prior_variances[1 : len(architecture.activations)]
    variances = jnp.asarray(above, dtype=jnp.float64).reshape(-1)
    rules = rules_for(architecture.activations, variances, tokens)
    return ImplicitFeatures(tokens, found, variances, architecture.activations, rules)


@jit_and_keep
def unchecked_path_features(
    inputs: Float[Array, "examples tokens features"],
    attention: tuple[Float[Array, "... _ keys queries"], ...],
    architecture: Architecture,
    read: Float[Array, "... tokens read"],
) -> Array:
    """Compute path features (examples, paths, features) without checks, Eq. (7). `read` is from `readout_weights`.

    With nonlinear hidden units, return how paths read the tokens (examples, tokens, paths).
    """
    numbers = architecture.layer_numbers()

    def of_example(tokens, mixings, reading):
        for form in reversed(architecture.forms):
            reading = layer_functions.reading(form, numbers, reading, mixings.get(form.symbols.index))
        return reading.T @ tokens if architecture.is_linear else reading

    found = over_examples(of_example, architecture, inputs, attention, read)
    return jnp.sqrt(architecture.prior_variances[0] / inputs.shape[2]) * found if architecture.is_linear else found


def over_examples(
    of_example: Callable[..., Array],
    architecture: Architecture,
    inputs: Float[Array, "examples tokens features"],
    attention: Sequence[Float[Array, "... _ keys queries"]],
    read: Float[Array, "... tokens read"],
) -> Array:
    """Map of_example(tokens, mixings, read) over examples. Parts that all examples share are computed once.

    `mixings` has Omega_l, the heads' attention stacked vertically, by the number of the layer.
    """
    indices = [form.symbols.index for form, count in zip(architecture.forms, architecture.heads, strict=True) if count]
    stacked = [layer.reshape(*layer.shape[:-3], -1, layer.shape[-1]) for layer in attention]
    mixings = dict(zip(indices, stacked, strict=True))
    axes = {index: 0 if mixing.ndim == 3 else None for index, mixing in mixings.items()}
    return jax.vmap(of_example, in_axes=(0, axes, 0 if read.ndim == 3 else None))(inputs, mixings, read)


@jit
def readout_weights(
    readout: Readout, tokens: int, real: Bool[Array, "examples tokens"] | None = None
) -> Float[Array, "... tokens read"]:
    """Return the weight with which the network reads each token: one token, or all tokens equally.

    The result has one column, or one per token for "all". With `real` tokens, it has one such matrix per example.
    """
    real = jnp.ones(tokens, dtype=bool) if real is None else real
    if readout == "all":
        return jnp.eye(tokens) * real[..., None] / np.sqrt(tokens)
    if readout == "first":
        return jax.nn.one_hot(jnp.argmax(real, axis=-1), tokens)[..., None]
    if readout == "last":
        return jax.nn.one_hot(tokens - 1 - jnp.argmax(real[..., ::-1], axis=-1), tokens)[..., None]
    return (real / jnp.sum(real, axis=-1, keepdims=True))[..., None]


def chosen_readout(architecture: Architecture, readout: Any, tokens: int) -> Any:
    """Return `readout` or its default, after checking that the architecture has readout weights for its tokens."""
    if readout is None:
        readout = "all" if architecture.read_tokens > 1 else "last"
    needed = tokens if isinstance(readout, str) and readout == "all" else 1
    if architecture.read_tokens != needed:
        raise ValueError(
            f"readout={shown(readout)} of inputs with {counted(tokens, 'token')} needs an architecture with "
            f"read_tokens={needed}, got read_tokens={architecture.read_tokens}"
        )
    return readout


def _checked_readout(readout: Readout | ArrayLike, shape: tuple[int, ...], real: Array | None) -> Array:
    examples, tokens, _ = shape
    if isinstance(readout, str):
        return readout_weights(checked_choice("readout", readout, get_args(Readout)), tokens, real)
    positions = finite_array("readout", readout, "examples")
    if positions.shape != (examples,):
        raise ValueError(f"readout must have one position per example, ({examples},), got {shown(readout)}")
    is_read = positions[:, None] == np.arange(tokens)
    fit = on_host(jnp.any(is_read if real is None else is_read & real, axis=1))
    message = f"must be the number of a real token, from 0 to {tokens - 1}"

    def known() -> str:
        example = int(np.argmin(fit))
        return f"readout[{example}] {message}, got {positions[example]:g}"

    read = jnp.asarray(is_read, dtype=jnp.float64)[..., None]
    return require(read, [Requirement(f"each entry of readout {message}", fit, known)])


def _checked_attention(
    attention: Any, shape: tuple[int, ...], architecture: Architecture, layout: Layout | None, real: Array | None
) -> tuple[Float[Array, "... _ keys queries"], ...]:
    if layout is not None:
        checked_choice("layout", layout, get_args(Layout))
    attention = checked_sequence("attention", attention, "arrays, one per layer that has heads")
    counts = tuple(heads for heads in architecture.heads if heads)
    if len(attention) != len(counts):
        raise ValueError(
            f"attention has {counted(len(attention), 'layer')}, but the architecture has {len(counts)} with heads, "
            f"{counts}; give one array (examples, heads, keys, queries) for each, as bpkr.attention returns them"
        )
    order, other = ("queries keys", "keys-first") if layout == "torch" else ("keys queries", "torch")
    layers = []
    for i, (layer, heads) in enumerate(zip(attention, counts, strict=True)):
        name, shared = f"attention[{i}]", (heads, shape[1], shape[1])
        axes = f"examples heads {order}" if np.ndim(layer) == 4 else f"heads {order}"
        layer = finite_array(name, in_order_of_names(name, layer, axes))
        if layer.shape not in ((shape[0], *shared), shared):
            raise ValueError(
                f"{name} must have shape {(shape[0], *shared)}, or {shared} if it is the same for all examples, with "
                f"the heads of the architecture, got {layer.shape}"
            )
        layer = jnp.swapaxes(layer, -1, -2) if layout == "torch" else layer
        is_softmax, is_transposed, to_padding = map(on_host, _judge(layer, real))
        requirements = []
        if layout != "keys-first":
            message = (
                f"{name} is transposed: it sums to one over queries, but a softmax sums to one over keys; pass "
                f'layout="{other}" if its axes are in the other order, or keys before queries and layout="keys-first" '
                "if this is intended"
            )
            requirements.append(Requirement(message, is_softmax | ~is_transposed))
        if real is not None:
            message = f"{name}: real tokens attend to padding; pass the same real_tokens to bpkr.attention"
            requirements.append(Requirement(message, to_padding <= _LEAK))
        layers.append(require(layer, requirements))
    return tuple(layers)


@jit
def _judge(layer: Float[Array, "... heads keys queries"], real: Array | None) -> tuple[Array, Array, Array]:
    """Return whether sums over keys, and over queries, are one, and the largest attention to padding."""
    over_keys, over_queries = (jnp.max(jnp.abs(jnp.sum(layer, axis=axis) - 1)) <= _ONE for axis in (-2, -1))
    is_transposed = over_queries & (jnp.min(layer) >= 0)
    if real is None:
        return over_keys, is_transposed, jnp.zeros(())
    to_padding = jnp.where(~real[:, None, :, None] & real[:, None, None, :], jnp.abs(layer), 0.0)
    return over_keys, is_transposed, jnp.max(to_padding)
