"""The attention heads of one layer of a trained transformer, and their attention on that layer's own inputs."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .. import bpkr
from ..arguments import checked_array
from ..precision import require_float64


class LayerNorm(eqx.Module):
    """A layer norm: features of zero mean and unit variance over each token, then `weight` times them plus `bias`.

    - `weight`, `bias`: (features,).
    - `epsilon`: what is added to the variance before its root is taken.
    """

    weight: Float[Array, " features"]
    bias: Float[Array, " features"]
    epsilon: float

    def __call__(self, inputs: ArrayLike) -> Float[Array, "examples tokens features"]:
        """The normalised `inputs` (examples, tokens, features)."""
        inputs = _checked_inputs(inputs, len(self.weight))
        centred = inputs - jnp.mean(inputs, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return self.weight * centred / jnp.sqrt(variance + self.epsilon) + self.bias


class CheckpointHeads(eqx.Module):
    """The attention heads of one layer, as `read_heads` reads them. Everything is float64.

    - `query`, `key`: (heads, G, features); scores are their products divided by sqrt(G).
    - `query_bias`, `key_bias`: (heads, G), zero where the model has none.
    - `norm`: the layer norm that the model applies to the layer's inputs first; None where it applies none.
    - `causal`: whether a token attends to itself and those before it only.
    - `layout`, `layer`, `layers`: how the checkpoint was read, which layer this is, from 0, and of how many.
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

    def normalise(self, inputs: ArrayLike) -> Float[Array, "examples tokens features"]:
        """What queries and keys act on: the layer's `inputs` (examples, tokens, features) after its norm, if any."""
        inputs = _checked_inputs(inputs, self.query.shape[2])
        return inputs if self.norm is None else self.norm(inputs)

    def attention(
        self, inputs: ArrayLike, *, mask: bpkr.Mask | None = None, isolated: bpkr.Isolated = "refuse"
    ) -> Float[Array, "examples heads keys queries"]:
        """The attention (examples, heads, keys, queries) on the layer's own `inputs` (examples, tokens, features).

        These are the hidden states that enter the layer, before its norm, which is applied here. `mask` and `isolated`
        are as in `bpkr.attention`; where the model is causal, the mask is that besides. Every column sums to one over
        keys.
        """
        given = mask if isinstance(mask, tuple) else () if mask is None else (mask,)
        masks = ("causal", *given) if self.causal else given
        (maps,) = bpkr.attention(
            self.normalise(inputs),
            query=[self.query],
            key=[self.key],
            query_bias=[self.query_bias],
            key_bias=[self.key_bias],
            mask=masks or None,
            isolated=isolated,
        )
        return maps


def _checked_inputs(inputs: ArrayLike, features: int) -> Float[Array, "examples tokens features"]:
    require_float64()
    inputs = jnp.asarray(checked_array("inputs", inputs, "examples tokens features"))
    if inputs.shape[2] != features:
        raise ValueError(f"inputs of shape {inputs.shape} do not fit a layer of {features} features")
    return inputs
