"""Attention paths: the features that each path through the heads extracts from the input; Eq. (7)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
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
    is_traced,
    on_host,
    real_array,
    require,
    shown,
)
from ...compilation import jit, jit_and_keep
from ...settings import usual_settings
from ..features.implicit import ImplicitFeatures, PathFeatures
from ..features.token_kernels import rules_for
from ..specification import layer_functions
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layer_form import LayerForm
from .masks import Layout, checked_real_tokens

Readout = Literal["first", "last", "mean", "all"]
"""Which token the readout reads: the first, the last, the mean over tokens, or all with separate weights per token."""


class AttentionWarning(UserWarning):
    """Warns of attention that may be unintended, such as maps that are not a softmax or that attend to padding."""


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
        layout: "torch" if the last two axes of attention are (queries, keys). By default they are (keys, queries), and
            attention that sums to one over queries but not over keys raises an error. If it sums to one over neither,
            as in maps recorded with dropout, there is an `AttentionWarning`. "keys-first" accepts all of these.

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
    if layout is not None:
        checked_choice("layout", layout, get_args(Layout))
    inputs = finite_array("inputs", inputs, "examples tokens features")
    checked_architecture(architecture)
    real = None if real_tokens is None else checked_real_tokens("real_tokens", real_tokens, *inputs.shape[:2])
    read = _checked_readout(chosen_readout(architecture, readout, inputs.shape[1]), inputs.shape, real)
    layers = _checked_attention(attention, inputs.shape, architecture, layout, real)
    if architecture.is_linear:
        return unchecked_path_features(inputs, layers, architecture, read)
    readings = _readings(inputs, layers, architecture.with_arrays(), read)
    tokens = jnp.sqrt(architecture.prior_variances[0] / inputs.shape[2]) * inputs
    above = architecture.prior_variances[1 : len(architecture.activations)]
    variances = jnp.asarray(above, dtype=jnp.float64).reshape(-1)
    rules = rules_for(architecture.activations, variances, tokens)
    return ImplicitFeatures(tokens, readings, variances, architecture.activations, rules)


def unchecked_path_features(
    inputs: Float[Array, "examples tokens features"],
    attention: Sequence[Float[Array, "... _ keys queries"]],
    architecture: Architecture,
    read: Float[Array, "... tokens read"],
) -> Float[Array, "examples paths features"]:
    """Compute `path_features` without checks. `read` is from `readout_weights`."""
    # Numbers are arrays, so that one compilation serves all values.
    return _features(inputs, tuple(attention), architecture.with_arrays(), read)


@jit_and_keep
def _features(inputs, attention, architecture: Architecture, read) -> Float[Array, "examples paths features"]:
    scale = jnp.sqrt(architecture.prior_variances[0] / inputs.shape[2])
    return scale * _along_paths(lambda tokens, reading: reading.T @ tokens, inputs, attention, architecture, read)


@jit_and_keep
def _readings(inputs, attention, architecture: Architecture, read) -> Float[Array, "examples tokens paths"]:
    return _along_paths(lambda tokens, reading: reading, inputs, attention, architecture, read)


def _along_paths(
    of_reading: Callable[[Array, Array], Array], inputs, attention, architecture: Architecture, read
) -> Array:
    """Apply of_reading(tokens, how every path reads them (tokens x paths)) to every example, Eq. (7)."""
    forms, numbers = architecture.forms, architecture.layer_numbers()
    mixings = stack_heads(forms, architecture.heads, attention)

    def of_example(tokens, mixings, reading):
        for form in reversed(forms):
            reading = layer_functions.reading(form, numbers, reading, mixings.get(form.symbols.index))
        return of_reading(tokens, reading)

    return over_examples(of_example, mixings, read)(inputs, mixings, read)


def over_examples(
    of_example: Callable[..., Array], mixings: Mapping[int, Array], read: Float[Array, "... tokens read"]
) -> Callable[..., Array]:
    """Map a function of (tokens, mixings, read) over examples. Parts that examples share are computed once."""
    axes = {index: 0 if mixing.ndim == 3 else None for index, mixing in mixings.items()}
    return jax.vmap(of_example, in_axes=(0, axes, 0 if read.ndim == 3 else None))


def stack_heads(
    forms: Sequence[LayerForm], heads: Sequence[int], attention: Sequence[Float[Array, "... _ keys queries"]]
) -> Mapping[int, Float[Array, "... _ queries"]]:
    """Return Omega_l, the heads' attention stacked vertically, by layer number for every layer that has heads."""
    indices = [form.symbols.index for form, count in zip(forms, heads, strict=True) if count]
    layers = zip(indices, attention, strict=True)
    return {index: layer.reshape(*layer.shape[:-3], -1, layer.shape[-1]) for index, layer in layers}


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
    if is_traced(readout):
        raise TypeError(f"readout must not be traced, got {shown(readout)}")
    real_array("readout", readout)
    positions = np.asarray(readout)
    if not np.issubdtype(positions.dtype, np.integer) or positions.shape != (examples,):
        raise ValueError(
            f"readout must be one of {', '.join(map(repr, get_args(Readout)))}, or whole numbers ({examples},), one "
            f"position per example, got {shown(readout)}"
        )
    for example in np.flatnonzero((positions < 0) | (positions >= tokens)):
        raise ValueError(f"readout[{example}] must be one of the {tokens} tokens, from 0, got {positions[example]}")
    read = jax.nn.one_hot(positions, tokens)[..., None]
    if real is None:
        return read
    is_real, padding = on_host(real)[np.arange(examples), positions], "which is padding according to real_tokens"

    def known() -> str:
        example = int(np.argmin(is_real))
        return f"readout[{example}] is token {positions[example]}, {padding}"

    return require(read, [Requirement(f"readout is a token {padding}", is_real, known)])


def _checked_attention(
    attention: Any, shape: tuple[int, ...], architecture: Architecture, layout: Layout | None, real: Array | None
) -> tuple[Float[Array, "... _ keys queries"], ...]:
    counts = tuple(heads for heads in architecture.heads if heads)
    attention = checked_sequence("attention", attention, "arrays, one per layer that has heads")
    if len(attention) != len(counts):
        raise ValueError(
            f"attention has {counted(len(attention), 'layer')}, but the architecture has {len(counts)} with heads, "
            f"{counts}; give one array (examples, heads, keys, queries) for each, as bpkr.attention returns them"
        )
    examples, tokens, _ = shape
    order, layers = "queries keys" if layout == "torch" else "keys queries", []
    for i, (layer, heads) in enumerate(zip(attention, counts, strict=True)):
        name, shared = f"attention[{i}]", (heads, tokens, tokens)
        axes = f"examples heads {order}" if np.ndim(layer) == 4 else f"heads {order}"
        layer = finite_array(name, in_order_of_names(name, layer, axes))
        if layer.shape not in ((examples, *shared), shared):
            are_other = layer.shape[-3] != heads if layer.ndim >= 3 else False
            raise ValueError(
                f"{name} must have shape {(examples, *shared)}, or {shared} if it is the same for all examples, got "
                f"{layer.shape}{f': layers={counts} of the architecture are the numbers of heads' if are_other else ''}"
            )
        layer, conditions = jnp.swapaxes(layer, -1, -2) if layout == "torch" else layer, []
        if layout != "keys-first":
            # Require that a softmax is over keys, because libraries use (..., queries, keys).
            least, over_keys, over_queries = map(on_host, _sums(layer))
            if not is_traced(over_keys) and over_keys > _ONE and (over_queries > _ONE or least < 0):
                warnings.warn(
                    f"{name} is not a softmax: sums over keys differ from one by up to {over_keys:.2g}, and sums over "
                    f"queries by up to {over_queries:.2g}. Maps recorded in training mode include dropout; record them "
                    'in evaluation mode. If this is intended, as for gates and graphs, pass layout="keys-first"',
                    AttentionWarning,
                    stacklevel=4,
                )
            advice = 'pass layout="torch" if its axes are (queries, keys), or layout="keys-first" if this is intended'
            if layout == "torch":
                advice = "leave out layout, because its axes are (keys, queries) already"
            message = (
                f"{name} is transposed: it sums to one over queries, but a softmax sums to one over keys; {advice}"
            )
            conditions.append(Requirement(message, (least < 0) | (over_queries >= _ONE) | (over_keys <= _ONE)))
        if real is not None:
            conditions.append(_ignores_padding(name, layer, real))
        layers.append(require(layer, conditions))
    return tuple(layers)


@jit
def _sums(layer: Float[Array, "... heads keys queries"]) -> tuple[Array, Array, Array]:
    """Return the smallest entry, and the largest deviations from one of sums over keys and over queries."""
    sums = (jnp.max(jnp.abs(jnp.sum(layer, axis=axis) - 1)) for axis in (-2, -1))
    return jnp.min(layer), *sums


def _ignores_padding(name: str, layer: Float[Array, "... heads keys queries"], real: Array) -> Requirement:
    worst = on_host(_most_to_padding(layer, real))
    attend, advice = "real tokens attend to padding", "pass the same real tokens to bpkr.attention as the mask"

    def known() -> str:
        example = int(np.argmax(worst > _LEAK))
        return f"{name} of example {example}: {attend}, by up to {worst[example]:.3g}; {advice}"

    return Requirement(f"{name}: {attend}; {advice}", worst <= _LEAK, known)


@jit
def _most_to_padding(layer: Float[Array, "... heads keys queries"], real: Array) -> Float[Array, " examples"]:
    to_padding = jnp.where(~real[:, None, :, None] & real[:, None, None, :], jnp.abs(layer), 0.0)
    return jnp.max(to_padding, axis=(1, 2, 3))
