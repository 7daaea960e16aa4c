"""Attention, with masks, and path features, which paths read; Eqs. (3) and (7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ... import checks
from ..._jit import jit, jit_and_keep, usual_settings
from ...checks import Requirement, array_module, on_host, require, shown
from ..features.implicit import ImplicitFeatures, PathFeatures, rules_for
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layers import layer_reading

Kind = Literal["softmax", "linear"]
Layout = Literal["keys-first", "torch"]
Mask = Literal["causal"] | ArrayLike
Attention = Float[Array, "examples heads keys queries"]
Readout = Literal["first", "last", "mean", "all"]
"""The token that is read; "all" have separate weights."""


# Libraries forbid attention by the lowest number of their precision.
_LOWEST = -1e4
# Attention to padding, and deviation of a softmax from one, in half precision.
_LEAK, _ONE = 1e-6, 1e-2


def _layers(name: str) -> Any:
    axes = "heads G" if name.endswith("bias") else "heads G features"

    def convert(layers):
        if layers is None:
            return None
        layers = checks.checked_sequence(name, layers, "arrays, one per layer with heads")
        each = enumerate(layers)
        return tuple(checks.finite_array(f"{name}[{i}]", layer, axes) for i, layer in each)

    return eqx.field(default=None, converter=convert)


class Heads(eqx.Module):
    """The heads of all layers, given by `key_query`, or by `query` and `key`.

    Scores are x_s^T K^T Q x_t, where K^T Q includes the factor 1/features of Eq. (3),
    or q . k / sqrt(G).

    Args:
        key_query: K^T Q (heads, features, features) per layer with heads.
        query, key: (heads, G, features) per layer with heads.
        query_bias, key_bias: (heads, G), added to queries and keys.
        kind: "linear" for attention equal to the scores, without the softmax.
    """

    key_query: Any = _layers("key_query")
    query: Any = _layers("query")
    key: Any = _layers("key")
    query_bias: Any = _layers("query_bias")
    key_bias: Any = _layers("key_bias")
    kind: Kind = eqx.field(default="softmax", static=True)

    def __check_init__(self):
        checks.checked_choice("kind", self.kind, get_args(Kind))
        given = {name: layers for name, layers in self.parameters().items() if layers is not None}
        is_product = set(given) == {"key_query"}
        if not is_product and ("key_query" in given or not {"query", "key"} <= set(given)):
            raise ValueError("give either key_query, or both query and key")
        first = self.key_query if is_product else self.query
        features = first[0].shape[2] if first else 0
        sizes = [(len(each), features if is_product else each.shape[1]) for each in first]
        for name, layers in given.items():
            more = () if name.endswith("bias") else (features,)
            wanted = [size + more for size in sizes]
            found = [layer.shape for layer in layers]
            if found != wanted:
                form = "(heads, features, features)" if is_product else f"{wanted}"
                raise ValueError(f"{name} must have the shapes {form}, got {found}")

    def parameters(self) -> dict[str, Any]:
        """Return the arrays of all layers by name; None if not given."""
        return {name: layers for name, layers in vars(self).items() if name != "kind"}

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.key_query or self.query or ()))

    @property
    def input_features(self) -> int:
        return (self.key_query or self.query)[0].shape[2]

    @usual_settings()
    def __call__(self, inputs: ArrayLike, mask: Mask | None = None, *, real_tokens=None, layout=None):
        """Compute the attention of every layer, as `bpkr.attention` does."""
        inputs = checks.finite_array("inputs", inputs, "examples tokens features")
        if self.counts and inputs.shape[2] != self.input_features:
            wanted = self.input_features
            raise ValueError(f"inputs must have the {wanted} features of heads, got shape {inputs.shape}")
        real = checked_real_tokens(real_tokens, *inputs.shape[:2])
        return _attention(self, inputs, added_scores(mask, real, inputs.shape, self.counts, layout))

    def unchecked(self, inputs: Array, added: Array | None = None) -> tuple[Attention, ...]:
        """Compute attention, with masks `added` to scores."""
        if self.key_query is not None:
            scores = [jnp.einsum("psi,hij,ptj->phst", inputs, each, inputs) for each in self.key_query]
        else:
            scores, none = [], [jnp.zeros((1, 1))] * len(self.query)
            biases = self.query_bias or none, self.key_bias or none
            for query, key, of_query, of_key in zip(self.query, self.key, *biases, strict=True):
                queries = jnp.einsum("hgi,pti->phgt", query, inputs) + of_query[..., None]
                keys = jnp.einsum("hgi,pti->phgt", key, inputs) + of_key[..., None]
                products = jnp.einsum("phgs,phgt->phst", keys, queries)
                scores.append(products / np.sqrt(query.shape[1]))
        if added is not None:
            scores = [layer + added for layer in scores]
        if self.kind == "linear":
            return tuple(jnp.where(jnp.isneginf(layer), 0.0, layer) for layer in scores)
        return tuple(jax.nn.softmax(layer, axis=2) for layer in scores)  # Eq. (3)


_attention = jit_and_keep(Heads.unchecked)


def attention(
    inputs: ArrayLike,
    *,
    mask: Mask | None = None,
    real_tokens: ArrayLike | None = None,
    layout: Layout | None = None,
    kind: Kind = "softmax",
    **parameters: Sequence[ArrayLike],
) -> tuple[Attention, ...]:
    """Compute the attention of every layer, Eq. (3).

    Args:
        inputs: (examples, tokens, features).
        mask: the keys to which a query can attend, by default all.

            - `"causal"`: no keys after the query.
            - booleans (keys, queries), or (examples, heads, keys, queries) with size 1
              for constant axes: True if attention is allowed.
            - floats of these shapes, added to scores. -10000 or less forbids attention.
        real_tokens: tokens that are not padding: booleans (examples, tokens), or their
            number (examples,) from the first. Nothing attends to padding, except
            padding without another key to itself.
        layout: "torch" if masks end with the axes (queries, keys). Only "keys-first"
            accepts a mask that looks causal in the other order.
        kind, parameters: as in `bpkr.Heads`. A mask that forbids linear attention sets
            it to zero.

    Returns:
        One array (examples, heads, keys, queries) per layer with heads.

    Raises:
        ValueError: an array does not fit, or a query has no key.
    """
    return Heads(**parameters, kind=kind)(inputs, mask, real_tokens=real_tokens, layout=layout)


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
    """Compute path features phi (examples, paths, features), Eq. (7).

    For attention, phi^pi = s_0 xi^pi / sqrt(N_0 H_1 ... H_L) with the attended input
    xi^pi, in the order of `Architecture.path_branches`. For a nonlinear embedding, the
    result holds kernels.

    Args:
        inputs: (examples, tokens, features).
        attention: any fixed numbers, such as recorded maps: (examples, heads, keys,
            queries), or (heads, keys, queries) for all examples, per layer with heads.
        readout: the token that is read, or its position in each example (examples,).
            By default "last", or "all" if the architecture has several `read_tokens`.
        real_tokens: as in `bpkr.attention`. No others are read.
        layout: "torch" if attention ends with the axes (queries, keys). Only
            "keys-first" accepts a softmax in the other order.
    """
    inputs = checks.finite_array("inputs", inputs, "examples tokens features")
    checked_architecture(architecture)
    examples, tokens, width = inputs.shape
    real = checked_real_tokens(real_tokens, examples, tokens)
    read = checked_reading(architecture, readout, examples, tokens, real)
    layers = _checked_attention(attention, inputs.shape, architecture, layout, real)
    # Numbers are arrays, so that one compilation serves all values.
    found = unchecked_path_features(inputs, layers, architecture.with_arrays(), read)
    if architecture.is_linear:
        return found
    embedded = jnp.sqrt(architecture.prior_variances[0] / width) * inputs
    above = architecture.prior_variances[1 : len(architecture.activations)]
    variances = jnp.asarray(above, dtype=jnp.float64).reshape(-1)
    rules = rules_for(architecture.activations, variances, embedded)
    return ImplicitFeatures(embedded, found, variances, architecture.activations, rules)


@jit_and_keep
def unchecked_path_features(inputs, attention, architecture: Architecture, read) -> Array:
    """Compute path features, or readings (examples, tokens, paths) of nonlinear units."""
    numbers = architecture.layer_numbers()

    def of_example(tokens, mixings, reading):
        for form in reversed(architecture.forms):
            reading = layer_reading(form, numbers, reading, mixings.get(form.symbols.index))
        if not architecture.is_linear:
            return reading
        return jnp.sqrt(architecture.prior_variances[0] / inputs.shape[2]) * (reading.T @ tokens)

    return over_examples(of_example, architecture, inputs, attention, read)


def over_examples(of_example: Callable, architecture: Architecture, inputs, attention, read):
    """Map of_example(tokens, stacked heads of layers by number, read) over examples."""
    layers = zip(architecture.forms, architecture.heads, strict=True)
    indices = [form.symbols.index for form, count in layers if count]
    stacked = [layer.reshape(*layer.shape[:-3], -1, layer.shape[-1]) for layer in attention]
    mixings = dict(zip(indices, stacked, strict=True))
    axes = {index: 0 if mixing.ndim == 3 else None for index, mixing in mixings.items()}
    in_axes = 0, axes, 0 if read.ndim == 3 else None
    return jax.vmap(of_example, in_axes)(inputs, mixings, read)


@jit
def readout_weights(readout: Readout, tokens: int, real=None) -> Float[Array, "... tokens read"]:
    """Return the weights of tokens; with `real` tokens, a matrix per example."""
    real = jnp.ones(tokens, dtype=bool) if real is None else real
    if readout == "all":
        return jnp.eye(tokens) * real[..., None] / np.sqrt(tokens)
    if readout == "mean":
        return (real / jnp.sum(real, axis=-1, keepdims=True))[..., None]
    place = jnp.argmax(real, axis=-1)
    if readout == "last":
        place = tokens - 1 - jnp.argmax(real[..., ::-1], axis=-1)
    return jax.nn.one_hot(place, tokens)[..., None]


def checked_reading(architecture: Architecture, readout: Any, examples: int, tokens: int, real=None) -> Array:
    """Return the weights of tokens for a name, or for positions (examples,)."""
    if readout is None or isinstance(readout, str):
        return readout_weights(chosen_readout(architecture, readout, tokens), tokens, real)
    positions = checks.finite_array("readout", readout, "examples")
    is_read = positions[:, None] == np.arange(tokens)
    is_valid = np.any(is_read if real is None else is_read & real, axis=1)
    if len(is_read) != examples or not np.all(is_valid):
        raise ValueError(f"readout must be a real token of each of {examples} examples")
    return jnp.asarray(is_read, dtype=float)[..., None]


def chosen_readout(architecture: Architecture, readout: Any, tokens: int) -> Readout:
    """Return `readout` or its default, which must fit the architecture."""
    if readout is None:
        readout = "all" if architecture.read_tokens > 1 else "last"
    checks.checked_choice("readout", readout, get_args(Readout))
    needed, given = tokens if readout == "all" else 1, architecture.read_tokens
    if given != needed:
        raise ValueError(f"readout={readout!r} needs read_tokens={needed}, got {given}")
    return readout


def checked_real_tokens(value, examples: int, tokens: int) -> Bool[Array, "_ _"] | None:
    if value is None:
        return None
    axes = "examples tokens" if np.ndim(value) == 2 else "examples"
    array = checks.numeric_array("real_tokens", value, axes)
    if array.shape not in ((examples,), (examples, tokens)):
        shapes = f"({examples},) or ({examples}, {tokens})"
        raise ValueError(f"real_tokens must have shape {shapes}, got {array.shape}")
    if array.ndim == 1:
        is_valid = (array >= 1) & (array <= tokens) & (array % 1 == 0)
        message = f"real_tokens must be whole numbers from 1 to {tokens}"
    else:
        is_valid = ((array == 0) | (array == 1)).all(axis=1) & (array != 0).any(axis=1)
        message = "real_tokens must be booleans, one of them True for each example"

    def known():
        example = np.argmin(is_valid)
        return f"{message}, got {array[example]} for example {example}"

    array = jnp.asarray(require(array, [Requirement(message, is_valid, known)]))
    return jnp.arange(tokens) < array[:, None] if array.ndim == 1 else array != 0


def added_scores(mask, real, shape, counts, layout) -> Array | None:
    """Return the terms that masks add to scores, with length 1 along constant axes."""
    examples, tokens, _ = shape
    axes = _axes(layout)
    if mask is None and real is None:
        return None
    if mask is None or isinstance(mask, str):
        is_causal = mask is not None and checks.checked_choice("mask", mask, ["causal"])
        mask = np.tri(tokens, k=0 if is_causal else tokens, dtype=bool).T
        layout = "keys-first"
    axes = f"examples heads {axes}" if np.ndim(mask) == 4 else axes
    array = checks.numeric_array("mask", mask, axes)
    array = array[None, None] if array.ndim == 2 else array
    for count in counts or (1,):
        whole = (examples, count, tokens, tokens)
        if any(size not in (1, most) for size, most in zip(array.shape, whole, strict=True)):
            shapes = f"{whole[2:]}, or {whole} or 1 for each size"
            raise ValueError(f"mask must have shape {shapes}, got {shown(mask)}")
    dtype, module = jnp.asarray(mask).dtype, array_module(array)
    if jnp.issubdtype(dtype, jnp.bool_):
        added = module.where(array != 0, 0.0, -np.inf)
    elif jnp.issubdtype(dtype, jnp.floating):
        message = "mask adds NaN or infinity to scores; use -inf to forbid attention"
        array = require(array, [Requirement(message, array < np.inf)])
        added = module.where(array <= _LOWEST, -np.inf, array)
    else:
        raise TypeError(f"mask must be booleans, or floats to add to scores, got {shown(mask)}")
    added = jnp.swapaxes(added, 2, 3) if layout == "torch" else added
    if layout != "keys-first" and added.shape[3] > 1:
        allowed = on_host(jnp.any(added > -jnp.inf, axis=(0, 1)))
        later = np.tri(tokens, k=-1) > 0
        message = (
            "mask allows queries to attend to later tokens, but not to earlier ones: "
            'pass its inverse, layout="torch", or layout="keys-first" if this is intended'
        )
        is_valid = (allowed & later.T).any() | ~(allowed & later).any()
        added = require(added, [Requirement(message, is_valid)])
    needs_key = np.True_
    if real is not None:
        added = jnp.where(real[:, None, :, None], added, -jnp.inf)
        needs_key = real[:, None, None, :]
    alone = jnp.all(jnp.isneginf(added), axis=2, keepdims=True)
    # Nothing attends to padding, but its own softmax must not be NaN.
    itself = alone & ~needs_key & np.eye(tokens, dtype=bool)
    has_key = Requirement("mask leaves a query without any key", on_host(~(alone & needs_key)))
    return require(jnp.where(itself, 0.0, added), [has_key])


def _checked_attention(attention, shape, architecture, layout, real) -> tuple[Array, ...]:
    axes, (examples, tokens, _) = _axes(layout), shape
    counts = tuple(heads for heads in architecture.heads if heads)
    attention = checks.checked_sequence("attention", attention, "arrays, one per layer with heads")
    if len(attention) != len(counts):
        raise ValueError(f"attention must have {len(counts)} arrays, got {len(attention)}")
    layers = []
    for i, (layer, heads) in enumerate(zip(attention, counts, strict=True)):
        name, shared = f"attention[{i}]", (heads, tokens, tokens)
        whole = (examples, *shared)
        of_examples = "examples " * (np.ndim(layer) == 4)
        layer = checks.finite_array(name, layer, f"{of_examples}heads {axes}")
        if layer.shape not in (whole, shared):
            raise ValueError(f"{name} must have shape {whole} or {shared}, got {layer.shape}")
        layer = jnp.swapaxes(layer, -1, -2) if layout == "torch" else layer
        is_transposed, leak = map(on_host, _judge(layer, real))
        is_valid = True if layout == "keys-first" else ~is_transposed
        which = f'{name} is transposed: it sums to one over queries; pass layout="torch"'
        requirements = [Requirement(which, is_valid)]
        requirements.append(Requirement(f"{name}: real tokens attend to padding", leak <= _LEAK))
        layers.append(require(layer, requirements))
    return tuple(layers)


@jit
def _judge(layer, real) -> tuple[Array, Array]:
    """Return whether only sums over queries are one, and the largest attention to padding."""
    off = (jnp.max(jnp.abs(jnp.sum(layer, axis=axis) - 1)) for axis in (-2, -1))
    of_keys, of_queries = off
    is_transposed = (of_queries <= _ONE) & ~(of_keys <= _ONE) & (jnp.min(layer) >= 0)
    if real is None:
        return is_transposed, jnp.zeros(())
    is_leak = ~real[:, None, :, None] & real[:, None, None, :]
    return is_transposed, jnp.max(jnp.where(is_leak, jnp.abs(layer), 0.0))


def _axes(layout) -> str:
    if layout is not None:
        checks.checked_choice("layout", layout, get_args(Layout))
    return "queries keys" if layout == "torch" else "keys queries"
