"""Attention: softmax over keys of the bare input, the same in every layer; Eq. (3)."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...arguments import checked_sequence, is_traced
from ...precision import require_float64
from ..data.checks import finite_array

_ONE_A_LAYER = "arrays, one a layer that has heads"

Attention = Float[Array, "examples heads keys queries"]


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
    def logits(self, inputs: Float[Array, "examples tokens features"]) -> tuple[Attention, ...]:
        """Per layer, the scores (examples, heads, keys, queries) whose softmax over keys is the attention."""

    def __call__(self, inputs: Float[Array, "examples tokens features"]) -> tuple[Attention, ...]:
        """Per layer, the attention (examples, heads, keys, queries); each column sums to one.

        Raises `ValueError` where a score is beyond the range of double precision, and so its softmax unknown.
        """
        inputs = self._checked(inputs)
        return tuple(
            jax.nn.softmax(_checked_scores(scores, inputs), axis=2) for scores in self.logits(inputs)
        )  # Eq. (3)

    def _checked(self, inputs: ArrayLike) -> Array:
        """Inputs that the heads can act on; of traced ones the shape alone is checked."""
        require_float64()
        array = jnp.asarray(inputs) if is_traced(inputs) else finite_array("inputs", inputs, "examples tokens features")
        if array.ndim != 3 or (self.layers and array.shape[2] != self.input_features):
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

    def logits(self, inputs):
        inputs = self._checked(inputs)
        return tuple(jnp.einsum("psi,hij,ptj->phst", inputs, product, inputs) for product in self.products)


class ProjectionHeads(AbstractHeads):
    """Heads given by their query and key matrices (heads, G, features); scores are divided by sqrt(G)."""

    queries: tuple[Float[Array, "_ _ features"], ...] = eqx.field(converter=lambda layers: _layers("queries", layers))
    keys: tuple[Float[Array, "_ _ features"], ...] = eqx.field(converter=lambda layers: _layers("keys", layers))

    def __check_init__(self):
        shapes = [tuple(layer.shape for layer in layers) for layers in (self.queries, self.keys)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"queries and keys must have the same shapes, got {shapes[0]} and {shapes[1]}")
        _check_same_features("queries", self.queries)

    @property
    def layers(self):
        return self.queries

    def logits(self, inputs):
        inputs = self._checked(inputs)
        return tuple(
            jnp.einsum("phgs,phgt->phst", self._project(key, inputs), self._project(query, inputs))
            / jnp.sqrt(query.shape[1])
            for query, key in zip(self.queries, self.keys, strict=True)
        )

    @staticmethod
    def _project(matrix, inputs):
        return jnp.einsum("hgi,pti->phgt", matrix, inputs)


def _layers(name: str, values: Sequence[ArrayLike]) -> tuple[Array, ...]:
    """One array (heads, _, features) a layer; traced ones as they are, but for their shape."""
    require_float64()
    found = []
    for i, value in enumerate(checked_sequence(name, values, "arrays, one a layer that has heads")):
        known = not is_traced(value)
        array = finite_array(f"{name}[{i}]", value, "heads rows features") if known else jnp.asarray(value)
        if array.ndim != 3:
            raise ValueError(f"{name}[{i}] must have shape (heads, rows, features), got {array.shape}")
        found.append(array)
    return tuple(found)


def _check_same_features(name: str, layers: Sequence[Array]) -> None:
    sizes = sorted({layer.shape[-1] for layer in layers})
    if len(sizes) > 1:
        raise ValueError(f"{name} of different layers act on different numbers of features: {sizes}")


def _checked_scores(scores: Attention, inputs: Array) -> Attention:
    """`scores`, refused where one is not finite: the softmax of infinities is not a number."""
    if is_traced(scores) or bool(jnp.all(jnp.isfinite(scores))):
        return scores
    raise ValueError(
        f"inputs of magnitude {float(jnp.max(jnp.abs(inputs))):.3g} make scores beyond the range of double precision: "
        "rescale the inputs, or the queries and keys"
    )


def heads(
    *,
    key_query: Sequence[ArrayLike] | None = None,
    query: Sequence[ArrayLike] | None = None,
    key: Sequence[ArrayLike] | None = None,
) -> AbstractHeads:
    """The heads of all layers, one array for each that has heads: `key_query`, or both `query` and `key`."""
    if key_query is not None and query is None and key is None:
        key_query = checked_sequence("key_query", key_query, _ONE_A_LAYER)
        products = tuple(finite_array(f"key_query[{i}]", w, "heads features features") for i, w in enumerate(key_query))
        for i, product in enumerate(products):
            if product.shape[1] != product.shape[2]:
                raise ValueError(f"key_query[{i}] must have shape (heads, features, features), got {product.shape}")
        _check_same_features("key_query", products)
        return KeyQueryHeads(products)
    if key_query is None and query is not None and key is not None:
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
        return ProjectionHeads(queries, keys)
    raise ValueError("give either key_query=[...], or both query=[...] and key=[...]")


def attention(
    inputs: ArrayLike,
    *,
    key_query: Sequence[ArrayLike] | None = None,
    query: Sequence[ArrayLike] | None = None,
    key: Sequence[ArrayLike] | None = None,
) -> tuple[Attention, ...]:
    """The attention of every layer on `inputs` (examples, tokens, features), Eq. (3).

    Either `key_query`, one (heads, features, features) array a layer, the product K^T Q with the key index left; or
    `query` and `key`, (heads, G, features) each, whose scores are divided by sqrt(G). Layers without heads are left
    out. Returns, per layer, an array (examples, heads, keys, queries) that sums to one over keys.
    """
    inputs = finite_array("inputs", inputs, "examples tokens features")
    parameters = heads(key_query=key_query, query=query, key=key)
    for leaf in jax.tree.leaves(parameters):
        if leaf.shape[-1] != inputs.shape[-1]:
            raise ValueError(f"heads for {leaf.shape[-1]} features do not fit inputs of shape {inputs.shape}")
    return parameters(inputs)
