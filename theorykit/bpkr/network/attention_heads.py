"""Attention: a softmax over keys, computed from the bare input in every layer; Eq. (3)."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ...checks import Requirement, check_aligned, checked_sequence, counted, finite_array, on_host, require
from ...compilation import jit_and_keep
from ...memory import check_fits
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import number
from .masks import Isolated, Layout, Mask, add_masks, named_parts

# Peak memory as a multiple of the size of the attention arrays.
_COPIES = 2

Attention = Float[Array, "examples heads keys queries"]
"""The attention of one layer, which sums to one over keys for each query."""


class AbstractHeads(DisplayMixin, eqx.Module):
    """The fixed parameters of the attention heads in all layers."""

    @property
    @abc.abstractmethod
    def layers(self) -> tuple[Array, ...]:
        """One parameter array (heads, ..., features) per layer."""

    def _view(self) -> Iterator[Block]:
        name = verbatim(type(self).__name__)
        yield Text(f"**{name}** of {counted(len(self.layers), 'layer')}, on {counted(self.input_features, 'feature')}")
        yield Table(tuple(array_rows(self)), ("array", "shape", "root mean square"))

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of heads of each layer."""
        return tuple(len(layer) for layer in self.layers)

    @property
    def input_features(self) -> int:
        """Number of features of the tokens on which the heads act."""
        return self.layers[0].shape[-1]

    @abc.abstractmethod
    def unchecked_logits(self, inputs: Float[Array, "examples tokens features"]) -> tuple[Attention, ...]:
        """Return the scores (examples, heads, keys, queries) per layer, without checks of the inputs."""

    def unchecked(self, inputs: Float[Array, "examples tokens features"]) -> tuple[Attention, ...]:
        """Return the attention of each layer without masks and checks, for compiled loops."""
        return _softmax(self.unchecked_logits(inputs), None)

    @usual_settings()
    def __call__(
        self,
        inputs: ArrayLike,
        mask: Mask | None = None,
        *,
        isolated: Isolated = "refuse",
        layout: Layout | None = None,
    ) -> tuple[Attention, ...]:
        """Return the attention (examples, heads, keys, queries) of each layer, which sums to one over keys.

        Args:
            inputs: (examples, tokens, features).
            mask, isolated, layout: as in `bpkr.attention`.

        Raises:
            ValueError: the inputs or the mask do not fit, or a score exceeds the range of double precision.
        """
        check_aligned(inputs=inputs, **dict(named_parts(mask)))
        inputs = finite_array("inputs", inputs, "examples tokens features")
        examples, tokens, features = inputs.shape
        if self.layers and features != self.input_features:
            raise ValueError(
                f"heads for {counted(self.input_features, 'feature')} do not fit inputs of shape {inputs.shape}"
            )
        check_fits(
            f"attention of {examples:,} examples, {sum(self.counts):,} heads and {tokens:,} tokens",
            8 * _COPIES * examples * sum(self.counts) * tokens**2,
            "compute it for fewer examples at a time",
        )
        scores, finite = _scores(self, inputs)
        beyond = "lead to scores beyond the range of double precision; rescale the inputs, or the queries and keys"
        scores = require(scores, [within_precision(inputs, beyond, finite)])
        return _softmax(scores, add_masks(mask, examples, tokens, self.counts, isolated, layout))


class KeyQueryHeads(AbstractHeads):
    """Heads given by their key-query products K^T Q (heads, features, features), with the key index on the left.

    Scores are not divided by sqrt(G).
    """

    key_query: tuple[Float[Array, "_ features features"], ...]

    def __init__(self, key_query: Sequence[ArrayLike]):
        self.key_query = _arrays("key_query", key_query, "heads features features")
        for i, product in enumerate(self.key_query):
            if product.shape[1] != product.shape[2]:
                raise ValueError(f"key_query[{i}] must have shape (heads, features, features), got {product.shape}")

    @property
    def layers(self):
        return self.key_query

    def unchecked_logits(self, inputs):
        return tuple(jnp.einsum("psi,hij,ptj->phst", inputs, product, inputs) for product in self.key_query)


class ProjectionHeads(AbstractHeads):
    """Heads given by their query and key matrices. Scores are divided by sqrt(G).

    - `query`, `key`: one matrix (heads, G, features) per layer.
    - `query_bias`, `key_bias`: one array (heads, G) per layer, added to queries and keys, or None.
    """

    query: tuple[Float[Array, "_ _ features"], ...]
    key: tuple[Float[Array, "_ _ features"], ...]
    query_bias: tuple[Float[Array, "_ _"], ...] | None
    key_bias: tuple[Float[Array, "_ _"], ...] | None

    def __init__(
        self,
        query: Sequence[ArrayLike],
        key: Sequence[ArrayLike],
        query_bias: Sequence[ArrayLike] | None = None,
        key_bias: Sequence[ArrayLike] | None = None,
    ):
        self.query = _arrays("query", query, "heads G features")
        self.key = _arrays("key", key, "heads G features", self.query)
        self.query_bias, self.key_bias = (
            None if biases is None else _arrays(name, biases, "heads G", self.query)
            for name, biases in (("query_bias", query_bias), ("key_bias", key_bias))
        )

    @property
    def layers(self):
        return self.query

    def unchecked_logits(self, inputs):
        def projected(matrices, biases):
            values = [jnp.einsum("hgi,pti->phgt", matrix, inputs) for matrix in matrices]
            return values if biases is None else [v + bias[:, :, None] for v, bias in zip(values, biases, strict=True)]

        pairs = zip(projected(self.query, self.query_bias), projected(self.key, self.key_bias), strict=True)
        return tuple(jnp.einsum("phgs,phgt->phst", key, query) / jnp.sqrt(query.shape[2]) for query, key in pairs)


def array_rows(module: eqx.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the name, shape and root mean square of every array of `module`, as rows of a table."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        shape = " x ".join(map(str, np.shape(leaf))) or "number"
        yield verbatim(jax.tree_util.keystr(path)[1:]), shape, number(np.sqrt(np.mean(np.square(leaf))), 4)


def _arrays(
    name: str, values: Sequence[ArrayLike], axes: str, queries: tuple[Array, ...] | None = None
) -> tuple[Array, ...]:
    """Check one array per layer that has heads. If `queries` are given, check that the sizes agree with theirs."""
    layers = checked_sequence(name, values, "arrays, one per layer that has heads")
    arrays = tuple(finite_array(f"{name}[{i}]", value, axes) for i, value in enumerate(layers))
    if queries is None:
        if len(sizes := sorted({array.shape[-1] for array in arrays})) > 1:
            raise ValueError(f"{name} must act on the same number of features in all layers, got {sizes}")
        return arrays
    shapes, needed = [array.shape for array in arrays], [each.shape[: len(axes.split())] for each in queries]
    if shapes != needed:
        raise ValueError(f"{name} must have the shapes {needed}, to fit query, got {shapes}")
    return arrays


def within_precision(inputs: Array, beyond: str, finite: Bool[Array, "..."]) -> Requirement:
    """Require finite results. `beyond` describes the error and its remedy."""
    return Requirement(
        f"inputs {beyond}", on_host(finite), lambda: f"inputs of magnitude {float(np.max(np.abs(inputs))):.3g} {beyond}"
    )


@jit_and_keep
def _scores(heads: AbstractHeads, inputs: Array) -> tuple[tuple[Array, ...], Bool[Array, ""]]:
    """Return the scores of every layer, and whether all are finite, because a softmax of infinities is NaN."""
    scores = heads.unchecked_logits(inputs)
    return scores, jnp.all(jnp.array([jnp.all(jnp.isfinite(layer)) for layer in scores]))


@jit_and_keep
def _softmax(scores: tuple[Array, ...], added: Array | None) -> tuple[Array, ...]:
    # jax.nn.softmax subtracts the largest score, so that large scores do not overflow.
    shifted = scores if added is None else [layer + added for layer in scores]
    return tuple(jax.nn.softmax(layer, axis=2) for layer in shifted)  # Eq. (3)


def heads(
    *,
    key_query: Sequence[ArrayLike] | None = None,
    query: Sequence[ArrayLike] | None = None,
    key: Sequence[ArrayLike] | None = None,
    query_bias: Sequence[ArrayLike] | None = None,
    key_bias: Sequence[ArrayLike] | None = None,
) -> AbstractHeads:
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
    if key_query is not None and query is key is query_bias is key_bias is None:
        return KeyQueryHeads(key_query)
    if key_query is None and query is not None and key is not None:
        return ProjectionHeads(query, key, query_bias, key_bias)
    raise ValueError(
        "give either key_query=[...], or both query=[...] and key=[...], with or without query_bias and key_bias"
    )


@usual_settings()
def attention(
    inputs: ArrayLike,
    *,
    key_query: Sequence[ArrayLike] | None = None,
    query: Sequence[ArrayLike] | None = None,
    key: Sequence[ArrayLike] | None = None,
    query_bias: Sequence[ArrayLike] | None = None,
    key_bias: Sequence[ArrayLike] | None = None,
    mask: Mask | None = None,
    isolated: Isolated = "refuse",
    layout: Layout | None = None,
) -> tuple[Attention, ...]:
    """Compute the attention of every layer on `inputs` (examples, tokens, features), Eq. (3).

    Args:
        inputs: (examples, tokens, features).
        key_query, query, key, query_bias, key_bias: as in `bpkr.heads`, one array per layer that has heads.
        mask: which keys a query can attend to, in every layer. Like the result, arrays have keys before queries. A mask
            is one of these:

            - `"causal"`: no keys after the query itself.
            - whole numbers (examples,): the number of real tokens of each example. The tokens after them are padding.
            - booleans (examples, tokens), or 0 and 1: which tokens are real.
            - booleans (examples, heads, keys, queries): True if attention is allowed. Use size 1 for axes along which
              the mask is constant, or the shape (keys, queries) if it is the same for all examples and heads.
            - numbers of these shapes, which are added to the scores. -inf, or any number at or below -10000, forbids
              attention.
            - a tuple of these, which all apply.
        isolated: by default a query without any key raises an error. With "self" it attends to itself.
        layout: with "torch" the last two axes of masks are (queries, keys), as in PyTorch and transformers. Masks
            (examples, 1, 1, keys) of transformers need no `layout`. A mask that lets queries attend only to later
            tokens raises an error, because it looks like a causal mask in the other order; "keys-first" accepts it.

    Returns:
        One array (examples, heads, keys, queries) per layer that has heads. It sums to one over keys.

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
    parameters = heads(key_query=key_query, query=query, key=key, query_bias=query_bias, key_bias=key_bias)
    return parameters(inputs, mask, isolated=isolated, layout=layout)
