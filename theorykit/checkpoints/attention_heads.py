"""The attention heads of one layer of a trained transformer, and their attention on that layer's own inputs."""

import equinox as eqx
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from .. import bpkr
from ..checks import Requirement, checked_array, checked_flag, require
from ..precision import require_float64
from ..settings import usual_settings

# means and variances of tokens that a norm made, in half precision; and a change that is more than rounding
_MADE, _CHANGED = 2e-3, 1e-2


class LayerNorm(eqx.Module):
    """A layer norm: features of zero mean and unit variance over each token, then `weight` times them plus `bias`.

    - `weight`, `bias`: (features,).
    - `epsilon`: what is added to the variance before its root is taken.
    """

    weight: Float[Array, " features"]
    bias: Float[Array, " features"]
    epsilon: float

    @usual_settings()
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

    @usual_settings()
    def normalise(self, inputs: ArrayLike) -> Float[Array, "examples tokens features"]:
        """Apply the layer's norm, if it has one: queries and keys act on the result.

        Args:
            inputs: (examples, tokens, features), the hidden states that enter the layer, before its norm.

        Raises:
            ValueError: the inputs do not fit, or are normalised already, so that a second norm would change them.
        """
        inputs = _checked_inputs(inputs, self.query.shape[2])
        if self.norm is None:
            return inputs
        return self.norm(require(inputs, [self._not_normalised_yet(inputs)]))

    @usual_settings()
    def attention(
        self,
        inputs: ArrayLike,
        *,
        mask: bpkr.Mask | None = None,
        isolated: bpkr.Isolated = "refuse",
        layout: bpkr.Layout | None = None,
        normalised: bool | None = None,
    ) -> Float[Array, "examples heads keys queries"]:
        """Compute the attention of the layer on its own inputs.

        Args:
            inputs: (examples, tokens, features), the hidden states that enter the layer. The layer's norm, if it has
                one, is applied here.
            mask: as in `bpkr.attention`. A causal model adds the causal mask.
            isolated: as in `bpkr.attention`.
            layout: order of the axes of `mask`, as in `bpkr.attention`.
            normalised: True if the inputs were recorded after the layer's norm, at the input of its attention module;
                the norm is then left out. False if they were recorded before it. By default they are taken to be
                before it, and inputs that the norm has certainly made are refused.

        Returns:
            (examples, heads, keys, queries); every column sums to one over keys.

        Raises:
            ValueError: the inputs do not fit, or look normalised and `normalised` is not given; or `normalised` is True
                for a layer that has no norm before its attention.
        """
        given = mask if isinstance(mask, tuple) else () if mask is None else (mask,)
        masks = ("causal", *given) if self.causal else given
        (maps,) = bpkr.attention(
            self._normalised(inputs, normalised),
            query=[self.query],
            key=[self.key],
            query_bias=[self.query_bias],
            key_bias=[self.key_bias],
            mask=masks or None,
            isolated=isolated,
            layout=layout,
        )
        return maps

    def _normalised(self, inputs: ArrayLike, normalised: bool | None) -> Float[Array, "examples tokens features"]:
        if normalised is None:
            return self.normalise(inputs)
        if self.norm is None and checked_flag("normalised", normalised):
            raise ValueError(
                "normalised=True is for layers with a norm before attention, and this one has none: leave it out, the "
                "hidden states that enter the layer are the inputs of its attention module"
            )
        inputs = _checked_inputs(inputs, self.query.shape[2])
        return inputs if self.norm is None or checked_flag("normalised", normalised) else self.norm(inputs)

    def _not_normalised_yet(self, inputs: Float[Array, "examples tokens features"]) -> Requirement:
        """That inputs are not what the norm makes: zero mean and unit variance, then `weight` and `bias`."""
        norm = self.norm
        plain = (inputs - norm.bias) / jnp.where(norm.weight == 0, 1.0, norm.weight)
        means, variances = jnp.mean(plain, axis=-1), jnp.var(plain, axis=-1)
        was_made = jnp.all((jnp.abs(means) < _MADE) & (jnp.abs(variances - 1) < _MADE))
        changes = jnp.max(jnp.abs(norm(inputs) - inputs)) > _CHANGED * jnp.max(jnp.abs(inputs))
        return Requirement(
            "inputs are normalised already: they are what this layer's norm makes, as a hook on its attention module "
            "records them. Give attention(..., normalised=True); or normalised=False, if they do enter the layer so",
            ~(was_made & changes),
        )


def _checked_inputs(inputs: ArrayLike, features: int) -> Float[Array, "examples tokens features"]:
    require_float64()
    inputs = jnp.asarray(checked_array("inputs", inputs, "examples tokens features"))
    if inputs.shape[2] != features:
        raise ValueError(f"inputs of shape {inputs.shape} do not fit a layer of {features} features")
    return inputs
