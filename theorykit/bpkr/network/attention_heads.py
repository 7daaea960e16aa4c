"""Attention: softmax over keys of the bare input, the same in every layer; Eq. (3)."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ...checks import Requirement, check_aligned, checked_sequence, finite_array, on_host, require
from ...compilation import jit
from ...memory import check_fits
from ...settings import usual_settings
from .masks import Isolated, Layout, Mask, add_masks, named_parts

# arrays of the size of attention that are there at once
_COPIES = 2
_ONE_A_LAYER = "arrays, one a layer that has heads"

Attention = Float[Array, "examples heads keys queries"]
"""The attention of one layer; what a query pays to all keys sums to one."""


class AbstractHeads(eqx.Module):
    """The fixed parameters of every layer's attention heads."""

    @property
    @abc.abstractmethod
    def layers(self) -> tuple[Array, ...]:
        """One parameter array a layer, (heads, ..., features)."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Heads of each layer."""
        return tuple(len(layer) for layer in self.layers)

    @property
    def input_features(self) -> int:
        """Features of the tokens that the heads act on."""
        return self.layers[0].shape[-1]

    @abc.abstractmethod
    def unchecked_logits(self, inputs: Float[Array, "examples tokens features"]) -> tuple[Attention, ...]:
        """`logits` of inputs that are known to fit."""

    def logits(self, inputs: Float[Array, "examples tokens features"]) -> tuple[Attention, ...]:
        """Per layer, the scores (examples, heads, keys, queries) whose softmax over keys is the attention."""
        return self.unchecked_logits(self._checked(inputs))

    def unchecked(self, inputs: Float[Array, "examples tokens features"]) -> tuple[Attention, ...]:
        """Per layer, the attention without a mask on inputs that are known to fit, for compiled loops."""
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
        """Per layer, the attention (examples, heads, keys, queries); each column sums to one.

        `mask`, `isolated` and `layout` are as in `bpkr.attention`. Raises `ValueError` if a score is beyond the range
        of double precision.
        """
        check_aligned(inputs=inputs, **dict(named_parts(mask)))
        inputs = self._checked(inputs)
        examples, tokens, _ = inputs.shape
        check_fits(
            f"attention of {examples:,} examples, {sum(self.counts):,} heads and {tokens:,} tokens",
            8 * _COPIES * examples * sum(self.counts) * tokens**2,
            "compute it of fewer examples at a time",
        )
        scores, finite = _scores(self, inputs)
        beyond = "make scores beyond the range of double precision: rescale the inputs, or the queries and keys"
        scores = require(scores, [within_precision(inputs, beyond, finite)])
        return _softmax(scores, add_masks(mask, *inputs.shape[:2], self.counts, isolated, layout))

    def _checked(self, inputs: ArrayLike) -> Array:
        """Inputs that the heads can act on."""
        array = finite_array("inputs", inputs, "examples tokens features")
        if self.layers and array.shape[2] != self.input_features:
            features = self.input_features if self.layers else "features"
            raise ValueError(f"heads for {features} features do not fit inputs of shape {array.shape}")
        return array


class KeyQueryHeads(AbstractHeads):
    """Heads given by their key-query products K^T Q (heads, features, features), key index left; no 1/sqrt(G)."""

    products: tuple[Float[Array, "_ features features"], ...] = eqx.field(
        converter=lambda products: _layers("products", products)
    )

    def __check_init__(self):
        for i, product in enumerate(self.products):
            if product.shape[1] != product.shape[2]:
                raise ValueError(f"products[{i}] must have shape (heads, features, features), got {product.shape}")
        _check_same_features("products", self.products)

    @property
    def layers(self):
        return self.products

    def unchecked_logits(self, inputs):
        return tuple(jnp.einsum("psi,hij,ptj->phst", inputs, product, inputs) for product in self.products)


class ProjectionHeads(AbstractHeads):
    """Heads given by their query and key matrices (heads, G, features); scores are divided by sqrt(G).

    Biases (heads, G), where there are any, are added to queries and to keys before these are multiplied.
    """

    queries: tuple[Float[Array, "_ _ features"], ...] = eqx.field(converter=lambda layers: _layers("queries", layers))
    keys: tuple[Float[Array, "_ _ features"], ...] = eqx.field(converter=lambda layers: _layers("keys", layers))
    query_biases: tuple[Float[Array, "_ _"], ...] | None = eqx.field(
        default=None, converter=lambda layers: _biases("query_biases", layers)
    )
    key_biases: tuple[Float[Array, "_ _"], ...] | None = eqx.field(
        default=None, converter=lambda layers: _biases("key_biases", layers)
    )

    def __check_init__(self):
        shapes = [tuple(layer.shape for layer in layers) for layers in (self.queries, self.keys)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"queries and keys must have the same shapes, got {shapes[0]} and {shapes[1]}")
        _check_same_features("queries", self.queries)
        _check_biases("query_biases", self.query_biases, self.queries)
        _check_biases("key_biases", self.key_biases, self.keys)

    @property
    def layers(self):
        return self.queries

    def unchecked_logits(self, inputs):
        queries = _project(inputs, self.queries, self.query_biases)
        keys = _project(inputs, self.keys, self.key_biases)
        return tuple(
            jnp.einsum("phgs,phgt->phst", key, query) / jnp.sqrt(query.shape[2])
            for query, key in zip(queries, keys, strict=True)
        )


def _project(inputs, matrices, biases):
    """Per layer, the queries or the keys (examples, heads, G, tokens)."""
    projected = [jnp.einsum("hgi,pti->phgt", matrix, inputs) for matrix in matrices]
    if biases is None:
        return projected
    return [values + bias[:, :, None] for values, bias in zip(projected, biases, strict=True)]


def _layers(name: str, values: Sequence[ArrayLike]) -> tuple[Array, ...]:
    """One array (heads, _, features) a layer."""
    layers = checked_sequence(name, values, "arrays, one a layer that has heads")
    return tuple(finite_array(f"{name}[{i}]", value, "heads rows features") for i, value in enumerate(layers))


def _biases(name: str, values: Sequence[ArrayLike] | None) -> tuple[Array, ...] | None:
    """One array (heads, G) a layer, or None."""
    if values is None:
        return None
    layers = checked_sequence(name, values, _ONE_A_LAYER)
    return tuple(finite_array(f"{name}[{i}]", value, "heads G") for i, value in enumerate(layers))


def _check_biases(name: str, biases: Sequence[Array] | None, matrices: Sequence[Array]) -> None:
    if biases is None:
        return
    if len(biases) != len(matrices):
        raise ValueError(f"{name} has {len(biases)} layers, queries and keys have {len(matrices)}")
    for i, (bias, matrix) in enumerate(zip(biases, matrices, strict=True)):
        if bias.shape != matrix.shape[:2]:
            raise ValueError(f"{name}[{i}] must have shape (heads, G) = {matrix.shape[:2]}, got {bias.shape}")


def _check_same_features(name: str, layers: Sequence[Array]) -> None:
    sizes = sorted({layer.shape[-1] for layer in layers})
    if len(sizes) > 1:
        raise ValueError(f"{name} of different layers act on different numbers of features: {sizes}")


def within_precision(inputs: Array, beyond: str, finite: Bool[Array, "..."]) -> Requirement:
    """That what inputs make is finite; `beyond` says what is not, and what to do."""
    return Requirement(
        f"inputs {beyond}",
        on_host(finite),
        lambda: f"inputs of magnitude {float(np.max(np.abs(inputs))):.3g} {beyond}",
    )


@jit
def _scores(heads: AbstractHeads, inputs: Array) -> tuple[tuple[Array, ...], Bool[Array, ""]]:
    """The scores of every layer, and whether all are finite: the softmax of infinities is not a number."""
    scores = heads.unchecked_logits(inputs)
    return scores, jnp.all(jnp.array([jnp.all(jnp.isfinite(layer)) for layer in scores]))


@jit
def _softmax(scores: tuple[Array, ...], added: Array | None) -> tuple[Array, ...]:
    """The softmax over keys of every layer's scores, with the same numbers added to all."""
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
    """The heads of all layers, one array for each that has heads: `key_query`, or both `query` and `key`.

    `key_query` (heads, features, features) is the product K^T Q with the key index left; `query` and `key` are
    (heads, G, features), their scores are divided by sqrt(G), and to them belong `query_bias` and `key_bias`
    (heads, G), if there are any.
    """
    if key_query is not None and query is None and key is None:
        if query_bias is not None or key_bias is not None:
            raise ValueError("query_bias and key_bias belong to query=[...] and key=[...], not to key_query=[...]")
        return _key_query_heads(key_query)
    if key_query is None and query is not None and key is not None:
        return _projection_heads(query, key, query_bias, key_bias)
    raise ValueError("give either key_query=[...], or both query=[...] and key=[...]")


def _key_query_heads(key_query: Sequence[ArrayLike]) -> KeyQueryHeads:
    key_query = checked_sequence("key_query", key_query, _ONE_A_LAYER)
    products = tuple(finite_array(f"key_query[{i}]", w, "heads features features") for i, w in enumerate(key_query))
    for i, product in enumerate(products):
        if product.shape[1] != product.shape[2]:
            raise ValueError(f"key_query[{i}] must have shape (heads, features, features), got {product.shape}")
    _check_same_features("key_query", products)
    return KeyQueryHeads(products)


def _projection_heads(
    query: Sequence[ArrayLike],
    key: Sequence[ArrayLike],
    query_bias: Sequence[ArrayLike] | None,
    key_bias: Sequence[ArrayLike] | None,
) -> ProjectionHeads:
    query = checked_sequence("query", query, _ONE_A_LAYER)
    key = checked_sequence("key", key, _ONE_A_LAYER)
    if len(query) != len(key):
        raise ValueError(f"query has {len(query)} layers, key has {len(key)}")
    queries = tuple(finite_array(f"query[{i}]", w, "heads G features") for i, w in enumerate(query))
    keys = tuple(finite_array(f"key[{i}]", w, "heads G features") for i, w in enumerate(key))
    for i, (left, right) in enumerate(zip(queries, keys, strict=True)):
        if left.shape != right.shape:
            raise ValueError(f"query[{i}] and key[{i}] differ in shape: {left.shape} and {right.shape}")
    _check_same_features("query and key", queries)
    query_biases, key_biases = _biases("query_bias", query_bias), _biases("key_bias", key_bias)
    _check_biases("query_bias", query_biases, queries)
    _check_biases("key_bias", key_biases, keys)
    return ProjectionHeads(queries, keys, query_biases, key_biases)


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
    """The attention of every layer on `inputs` (examples, tokens, features), Eq. (3).

    Either `key_query`, one (heads, features, features) array a layer, the product K^T Q with the key index left; or
    `query` and `key`, (heads, G, features) each, whose scores are divided by sqrt(G), with biases `query_bias` and
    `key_bias` (heads, G) if there are any. Layers without heads are left out. Returns, per layer, an array (examples,
    heads, keys, queries) that sums to one over keys.

    `mask` says which keys a query may attend to, in every layer; keys come before queries, as in the result:

    - `"causal"`: none after itself;
    - whole numbers (examples,): how many tokens of each example are real, counted from the first, the others padding;
    - booleans (examples, tokens), or 0 and 1: which tokens are real;
    - booleans (examples, heads, keys, queries), True where attention is allowed, with 1 for axes that are the same, or
      (keys, queries) if all but these are;
    - numbers of that shape, which are added to the scores; -inf, or any number up to -10000, forbids;
    - a tuple of these, all of which hold.

    With `layout="torch"` the last two axes of such arrays are (queries, keys), as PyTorch and transformers have them;
    the result is keys first all the same. Masks (examples, 1, 1, keys) of transformers are understood without it. A
    mask by which queries attend to later tokens alone is refused, since it is a causal one in the other order, unless
    `layout="keys-first"` says that it is meant. So are booleans (tokens, tokens) of as many examples, which may say
    either which tokens are real or which keys are allowed.

    A query that may attend to no key is refused by its index, or attends to itself where `isolated` is "self".

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
