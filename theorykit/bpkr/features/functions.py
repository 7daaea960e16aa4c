"""The function of hidden units itself, compiled from its expression."""

from functools import lru_cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...codegen import CompiledFunction, compile_expressions
from ..specification.activations import UNIT, Activation


def apply_to(activation: Activation, hidden: Float[Array, "..."]) -> Float[Array, "..."]:
    """phi of every entry."""
    if activation.is_linear:
        return hidden
    compiled = _compiled(activation)
    values = jax.vmap(lambda unit: jnp.asarray(compiled.call_from({UNIT: unit})["value"]))(hidden.ravel())
    return values.reshape(hidden.shape)


@lru_cache
def _compiled(activation: Activation) -> CompiledFunction:
    return compile_expressions("function", {"value": activation.function}, (UNIT,))
