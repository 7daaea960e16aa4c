"""The attention heads of one layer of a trained transformer, and their attention on the inputs of that layer."""

from __future__ import annotations

from collections.abc import Iterator

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .. import bpkr
from .._compat import require_float64
from .._jit import usual_settings
from ..bpkr.network.attention import Layout, Mask
from ..checks import Requirement, checked_array, checked_flag, counted, require
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text

# Tolerance of the means and variances of normalised tokens, which may be in half precision.
_MADE = 2e-3
# Smallest relative change of normalised tokens by a second norm that is not a rounding error.
_CHANGED = 1e-2


class LayerNorm(DisplayMixin, eqx.Module):
    """A layer norm. It shifts and scales the features of each token to zero mean and unit variance.

    - `weight` (features,): factors of the normalised features.
    - `bias` (features,): added to the result.
    - `epsilon`: added to the variance before its square root is taken.
    """

    weight: Float[Array, " features"]
    bias: Float[Array, " features"]
    epsilon: float

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Layer norm** of {counted(len(self.weight), 'feature')}, epsilon {self.epsilon:g}")

    @usual_settings()
    def __call__(self, inputs: ArrayLike) -> Float[Array, "examples tokens features"]:
        """Normalise `inputs` (examples, tokens, features)."""
        inputs = _checked_inputs(inputs, len(self.weight))
        centred = inputs - jnp.mean(inputs, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return self.weight * centred / jnp.sqrt(variance + self.epsilon) + self.bias


class CheckpointHeads(DisplayMixin, eqx.Module):
    """The attention heads of one layer, as `read_heads` returns them. All arrays are float64.

    - `query`, `key` (heads, G, features): projections. Scores are products of queries and keys divided by sqrt(G).
    - `query_bias`, `key_bias` (heads, G): biases, zero if the model has none.
    - `norm`: the layer norm that the model applies to the inputs of the layer before attention, or None.
    - `causal`: whether a token attends only to itself and earlier tokens.
    - `layout`: the layout of the file.
    - `layer`: number of the layer, from 0.
    - `layers`: number of layers in the file.
    """

    query: Float[Array, "heads G features"]
    key: Float[Array, "heads G features"]
    query_bias: Float[Array, "heads G"]
    key_bias: Float[Array, "heads G"]
    norm: LayerNorm | None
    causal: bool = eqx.field(static=True)
    layout: str = eqx.field(static=True)
    layer: int = eqx.field(static=True)
    layers: int = eqx.field(static=True)

    def _view(self) -> Iterator[Block]:
        heads, size, features = self.query.shape
        where = f"layer {self.layer} of {self.layers}, counted from 0, read as {self.layout}"
        yield Text(
            f"**CheckpointHeads**: {counted(heads, 'head')} of size {size} on {counted(features, 'feature')}; {where}"
        )
        mask, norm = "causal" if self.causal else "none", "none" if self.norm is None else "applied to the inputs first"
        yield Table((("mask", mask), ("layer norm", norm)))

    @usual_settings()
    def normalise(self, inputs: ArrayLike) -> Float[Array, "examples tokens features"]:
        """Apply the layer's norm, if any. Queries and keys act on the result.

        Args:
            inputs: hidden states that enter the layer, before its norm, (examples, tokens, features).

        Raises:
            ValueError: the inputs have a wrong shape, or are normalised already.
        """
        inputs = _checked_inputs(inputs, self.query.shape[2])
        if self.norm is None:
            return inputs
        # A second norm would change scores silently.
        plain = (inputs - self.norm.bias) / jnp.where(self.norm.weight == 0, 1.0, self.norm.weight)
        means, variances = jnp.mean(plain, axis=-1), jnp.var(plain, axis=-1)
        was_made = jnp.all((jnp.abs(means) < _MADE) & (jnp.abs(variances - 1) < _MADE))
        again = self.norm(inputs)
        changes = jnp.max(jnp.abs(again - inputs)) > _CHANGED * jnp.max(jnp.abs(inputs))
        requirement = Requirement(
            "inputs are normalised already, as a hook on the attention module records them: call "
            "attention(..., normalised=True), or pass normalised=False if the layer applies its norm to them",
            ~(was_made & changes),
        )
        return require(again, [requirement])

    @usual_settings()
    def attention(
        self,
        inputs: ArrayLike,
        *,
        mask: Mask | None = None,
        real_tokens: ArrayLike | None = None,
        layout: Layout | None = None,
        normalised: bool | None = None,
    ) -> Float[Array, "examples heads keys queries"]:
        """Compute the attention of the layer on its inputs.

        Args:
            inputs: hidden states that enter the layer, (examples, tokens, features). The layer's norm, if any, is
                applied to them.
            mask, real_tokens, layout: see `bpkr.attention`. A causal model has the causal mask, and takes no other.
            normalised: whether the inputs were recorded after the layer's norm, at the input of its attention module.
                The norm is then skipped. By default inputs are taken as unnormalised, and raise an error if they are
                clearly outputs of the norm.

        Returns:
            Attention (examples, heads, keys, queries). Every column sums to one over keys.

        Raises:
            ValueError: the inputs have a wrong shape or look normalised, or `normalised` is True for a layer without a
                norm before attention.
        """
        if self.causal and not (mask is None or (isinstance(mask, str) and mask == "causal")):
            raise ValueError("mask must be left out for a causal model; mark padding with real_tokens")
        mask = "causal" if self.causal else mask
        if normalised is None:
            inputs = self.normalise(inputs)
        else:
            is_normalised, inputs = checked_flag("normalised", normalised), _checked_inputs(inputs, self.query.shape[2])
            if is_normalised and self.norm is None:
                raise ValueError("normalised=True needs a norm before attention, but this layer has none")
            inputs = inputs if is_normalised or self.norm is None else self.norm(inputs)
        (maps,) = bpkr.attention(
            inputs,
            query=[self.query],
            key=[self.key],
            query_bias=[self.query_bias],
            key_bias=[self.key_bias],
            mask=mask,
            real_tokens=real_tokens,
            layout=layout,
        )
        return maps


def _checked_inputs(inputs: ArrayLike, features: int) -> Float[Array, "examples tokens features"]:
    require_float64()
    inputs = jnp.asarray(checked_array("inputs", inputs, "examples tokens features"))
    if inputs.shape[2] != features:
        raise ValueError(f"inputs of shape {inputs.shape} must have the {features} features of the layer")
    return inputs
