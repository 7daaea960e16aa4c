"""Attention: a softmax over keys, computed from the bare input in every layer, with masks; Eq. (3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ...checks import (
    Requirement,
    array_module,
    check_aligned,
    checked_choice,
    checked_sequence,
    counted,
    finite_array,
    in_order_of_names,
    is_traced,
    numeric_array,
    on_host,
    require,
    shown,
)
from ...compilation import jit_and_keep
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number

Layout = Literal["keys-first", "torch"]
"""The order of the last two axes of attention and masks: (keys, queries), or (queries, keys) as in PyTorch."""
Mask = Literal["causal"] | ArrayLike
"""Which keys a query can attend to; see `attention`."""
Attention = Float[Array, "examples heads keys queries"]
"""The attention of one layer, which sums to one over keys for each query."""

# Treat lower numbers as -inf. To forbid attention, libraries add the lowest number of their precision, such as -6e4.
_LOWEST = -1e4


class Heads(DisplayMixin, eqx.Module):
    """The fixed parameters of the attention heads in all layers, made by `heads`.

    - `key_query`: products K^T Q (heads, features, features) of every layer that has heads, or None.
    - `query`, `key`: matrices (heads, G, features) of every layer that has heads, or None.
    - `query_bias`, `key_bias`: (heads, G), added to queries and keys, or None.
    """

    key_query: tuple[Float[Array, "_ features features"], ...] | None = None
    query: tuple[Float[Array, "_ _ features"], ...] | None = None
    key: tuple[Float[Array, "_ _ features"], ...] | None = None
    query_bias: tuple[Float[Array, "_ _"], ...] | None = None
    key_bias: tuple[Float[Array, "_ _"], ...] | None = None

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Heads** of {counted(len(self.counts), 'layer')}")
        yield Table(tuple(array_rows(self)), ("array", "shape", "root mean square"))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of heads of each layer that has heads."""
        return tuple(len(layer) for layer in self.key_query or self.query or ())

    @property
    def input_features(self) -> int:
        """Number of features of the tokens on which the heads act."""
        return (self.key_query or self.query)[0].shape[-1]

    @usual_settings()
    def __call__(
        self,
        inputs: ArrayLike,
        mask: Mask | None = None,
        *,
        real_tokens: ArrayLike | None = None,
        layout: Layout | None = None,
    ) -> tuple[Attention, ...]:
        """Compute the attention of every layer. Arguments and result are those of `bpkr.attention`."""
        check_aligned(inputs=inputs, mask=mask, real_tokens=real_tokens)
        inputs = finite_array("inputs", inputs, "examples tokens features")
        if self.counts and inputs.shape[2] != self.input_features:
            raise ValueError(
                f"heads for {counted(self.input_features, 'feature')} do not fit inputs of shape {inputs.shape}"
            )
        real = None if real_tokens is None else checked_real_tokens("real_tokens", real_tokens, *inputs.shape[:2])
        return _attention(self, inputs, _added_scores(mask, real, *inputs.shape[:2], self.counts, layout))

    def unchecked(
        self,
        inputs: Float[Array, "examples tokens features"],
        added: Float[Array, "examples heads keys queries"] | None = None,
    ) -> tuple[Attention, ...]:
        """Compute the attention of every layer without checks, for compiled loops. Scores are `added` to its own."""
        if self.key_query is not None:
            scores = [jnp.einsum("psi,hij,ptj->phst", inputs, product, inputs) for product in self.key_query]
        else:
            scores = []
            for i, (query, key) in enumerate(zip(self.query, self.key, strict=True)):
                queries, keys = (jnp.einsum("hgi,pti->phgt", matrix, inputs) for matrix in (query, key))
                if self.query_bias is not None:
                    queries = queries + self.query_bias[i][:, :, None]
                if self.key_bias is not None:
                    keys = keys + self.key_bias[i][:, :, None]
                scores.append(jnp.einsum("phgs,phgt->phst", keys, queries) / jnp.sqrt(query.shape[1]))
        if added is not None:
            scores = [layer + added for layer in scores]
        # jax.nn.softmax subtracts the largest score, so that large scores do not overflow.
        return tuple(jax.nn.softmax(layer, axis=2) for layer in scores)  # Eq. (3)


@jit_and_keep
def _attention(heads: Heads, inputs: Array, added: Array | None) -> tuple[Attention, ...]:
    return heads.unchecked(inputs, added)


def array_rows(module: eqx.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the name, shape and root mean square of every array of `module`, as rows of a table."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        shape = " x ".join(map(str, np.shape(leaf))) or "number"
        yield verbatim(jax.tree_util.keystr(path)[1:]), shape, number(np.sqrt(np.mean(np.square(leaf))), 4)


def heads(
    *,
    key_query: Sequence[ArrayLike] | None = None,
    query: Sequence[ArrayLike] | None = None,
    key: Sequence[ArrayLike] | None = None,
    query_bias: Sequence[ArrayLike] | None = None,
    key_bias: Sequence[ArrayLike] | None = None,
) -> Heads:
    """Make the heads of all layers, from `key_query`, or from both `query` and `key`.

    Args:
        key_query: K^T Q (heads, features, features) per layer that has heads, with the key index on the left.
        query, key: (heads, G, features) per layer that has heads. Scores are divided by sqrt(G).
        query_bias, key_bias: (heads, G) per layer, added to queries and keys.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> heads = bpkr.heads(key_query=[rng.normal(size=(2, 3, 3))])
        >>> [layer.shape for layer in heads(rng.normal(size=(6, 4, 3)))]  # (examples, heads, keys, queries)
        [(6, 2, 4, 4)]
    """
    given = {"key_query": key_query, "query": query, "key": key, "query_bias": query_bias, "key_bias": key_bias}
    given = {name: layers for name, layers in given.items() if layers is not None}
    if set(given) != {"key_query"} and not {"query", "key"} <= set(given) <= {"query", "key", "query_bias", "key_bias"}:
        raise ValueError(
            "give either key_query=[...], or both query=[...] and key=[...], with or without query_bias and key_bias"
        )
    found = {}
    for name, layers in given.items():
        axes = "heads G" if name.endswith("bias") else "heads G features"
        layers = checked_sequence(name, layers, "arrays, one per layer that has heads")
        found[name] = tuple(finite_array(f"{name}[{i}]", layer, axes) for i, layer in enumerate(layers))
    first = found.get("query", found.get("key_query"))
    for name, layers in found.items():
        if len(layers) != len(first):
            raise ValueError(f"{name} must have {counted(len(first), 'layer')}, as query, got {len(layers)}")
        for i, layer in enumerate(layers):
            features = first[0].shape[2]
            shape = len(first[i]), features if name == "key_query" else first[i].shape[1], features
            if layer.shape != shape[: layer.ndim]:
                raise ValueError(f"{name}[{i}] must have shape {shape[: layer.ndim]}, got {layer.shape}")
    return Heads(**found)


@usual_settings()
def attention(
    inputs: ArrayLike,
    *,
    mask: Mask | None = None,
    real_tokens: ArrayLike | None = None,
    layout: Layout | None = None,
    **parameters: Sequence[ArrayLike],
) -> tuple[Attention, ...]:
    """Compute the attention of every layer on `inputs` (examples, tokens, features), Eq. (3).

    Args:
        inputs: (examples, tokens, features).
        mask: which keys a query can attend to, in every layer. Without it, a query attends to all keys.

            - `"causal"`: no keys after the query itself.
            - booleans (keys, queries), or (examples, heads, keys, queries) with size 1 for axes along which the mask is
              constant: True if attention is allowed.
            - floats of these shapes, which are added to the scores. -inf, or any number at or below -10000, forbids
              attention.
        real_tokens: which tokens are not padding, as booleans (examples, tokens), or as the number (examples,) of real
            tokens, counted from the first. No token attends to padding, except that padding without another key
            attends to itself.
        layout: with "torch" the last two axes of masks are (queries, keys), as in PyTorch and transformers. A mask that
            lets queries attend only to later tokens raises an error, because it looks like a causal mask in the other
            order; "keys-first" accepts it.
        parameters: `key_query`, or `query` and `key` and their biases, as in `bpkr.heads`.

    Returns:
        One array (examples, heads, keys, queries) per layer that has heads. It sums to one over keys.

    Raises:
        ValueError: an array does not fit, or a query has no key to attend to.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> inputs = rng.normal(size=(6, 4, 3))  # (examples, tokens, features)
        >>> (attention,) = bpkr.attention(inputs, key_query=[rng.normal(size=(2, 3, 3))], mask="causal")
        >>> attention.shape
        (6, 2, 4, 4)
    """
    return heads(**parameters)(inputs, mask, real_tokens=real_tokens, layout=layout)


def checked_real_tokens(name: str, value: ArrayLike, examples: int, tokens: int) -> Bool[Array, "examples tokens"]:
    """Find the real tokens from their number (examples,), counted from the first, or booleans (examples, tokens)."""
    array = numeric_array(name, in_order_of_names(name, value, "examples tokens"))
    if array.shape not in ((examples,), (examples, tokens)):
        raise ValueError(
            f"{name} must be the number of real tokens of each example ({examples},), or booleans "
            f"({examples}, {tokens}) that mark real tokens, got {shown(value)}"
        )
    if array.ndim == 1:
        fit = (array >= 1) & (array <= tokens) & (array % 1 == 0)
        message = f"must be a whole number from 1 to the {tokens} tokens of inputs"
    else:
        fit = ((array == 0) | (array == 1)).all(axis=1) & (array != 0).any(axis=1)
        message = "must be True or False for each token, and True for at least one"

    def known() -> str:
        index = int(np.argmin(fit))
        return f"{name}[{index}] {message}, got {array[index]}"

    array = jnp.asarray(require(array, [Requirement(f"each entry of {name} {message}", fit, known)]))
    return jnp.arange(tokens) < array[:, None] if array.ndim == 1 else array != 0


def _added_scores(
    mask: Mask | None, real: Array | None, examples: int, tokens: int, counts: Sequence[int], layout: Layout | None
) -> Float[Array, "examples heads keys queries"] | None:
    """Return the terms that masks add to the scores, -inf if attention is forbidden. Constant axes have length 1."""
    if layout is not None:
        checked_choice("layout", layout, get_args(Layout))
    if mask is None and real is None:
        return None
    if mask is None:
        added = jnp.zeros((1, 1, tokens, tokens))
    elif isinstance(mask, str):
        checked_choice("mask", mask, ["causal"])
        added = jnp.where(np.tri(tokens).T, 0.0, -jnp.inf)[None, None]
    else:
        added = _scores_of_array(mask, examples, tokens, counts, layout)
    if real is not None:
        added = jnp.where(real[:, None, :, None], added, -jnp.inf)
    alone = jnp.all(jnp.isneginf(added), axis=2, keepdims=True)
    if real is not None:
        # No real token attends to padding, so its attention does not matter, but its softmax must not be NaN.
        is_padding = ~real[:, None, None, :]
        added = jnp.where(alone & is_padding & np.eye(tokens, dtype=bool), 0.0, added)
        alone = alone & ~is_padding
    alone = on_host(alone)
    message = (
        'without any key to attend to; mark padding with real_tokens, and pass layout="torch" if the axes of the mask '
        "are (queries, keys)"
    )

    def known() -> str:
        example, head, _, query = map(int, np.argwhere(alone)[0])
        return f"mask leaves query {query} of example {example}, head {head}, counted from 0, {message}"

    return require(added, [Requirement(f"mask leaves a query {message}", ~alone, known)])


def _scores_of_array(
    mask: ArrayLike, examples: int, tokens: int, counts: Sequence[int], layout: Layout | None
) -> Float[Array, "examples heads keys queries"]:
    order, other = ("queries keys", "keys-first") if layout == "torch" else ("keys queries", "torch")
    mask = in_order_of_names("mask", mask, f"examples heads {order}" if np.ndim(mask) == 4 else order)
    dtype, array = (mask if is_traced(mask) else np.asarray(mask)).dtype, numeric_array("mask", mask)
    array = array[None, None] if array.ndim == 2 else array
    for count in counts or (1,):
        whole = (examples, count, tokens, tokens)
        if array.ndim != 4 or any(size not in (1, full) for size, full in zip(array.shape, whole, strict=True)):
            raise ValueError(
                f'mask must be "causal", or have shape {whole[2:]}, or {whole} with size 1 for constant axes, with '
                f"{order.replace(' ', ' before ')}, got {shown(mask)}; pass numbers of real tokens as real_tokens"
            )
    module = array_module(array)
    if jnp.issubdtype(dtype, jnp.bool_):
        added = module.where(array != 0, 0.0, -np.inf)
    elif jnp.issubdtype(dtype, jnp.floating):
        message = "mask adds NaN or infinity to scores; use -inf to forbid attention"
        array = require(array, [Requirement(message, array < np.inf)])
        added = module.where(array <= _LOWEST, -np.inf, array)
    else:
        raise TypeError(f"mask must be booleans, or floats that are added to the scores, got {shown(mask)}")
    added = jnp.swapaxes(added, 2, 3) if layout == "torch" else added
    if layout == "keys-first" or added.shape[3] == 1:
        return jnp.asarray(added)
    # A causal mask with its axes in the other order lets queries attend only to later tokens.
    allowed, is_earlier = on_host(jnp.any(added > -jnp.inf, axis=(0, 1))), np.tri(tokens, k=-1).T > 0
    is_valid = (allowed & is_earlier).any() | ~(allowed & is_earlier.T).any()
    message = (
        "mask allows queries to attend to later tokens, but not to earlier ones: its axes are in the other order, or "
        f'True marks forbidden keys. Pass layout="{other}", or the inverse mask. If the mask is correct, pass it as '
        '(keys, queries) with layout="keys-first"'
    )
    return jnp.asarray(require(added, [Requirement(message, is_valid)]))
