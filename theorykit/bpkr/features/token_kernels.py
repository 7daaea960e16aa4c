"""Kernels of tokens under nonlinear embeddings: the covariance of hidden units after each function."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...codegen import CompiledFunction, compile_expressions
from ..specification.activations import BETWEEN, OTHER, OWN, Activation

# a variance of hidden units in place of zero, that of tokens of zeros, whose square is a number too
_LEAST = 1e-150


def token_kernel(
    activations: Sequence[Activation],
    variances: Float[Array, " above"],
    one: Float[Array, "tokens features"],
    other: Float[Array, "others features"],
) -> Float[Array, "tokens others"]:
    """The kernel between tokens, divided by the `variances` of the dense layers that it goes through.

    `activations` are those of the embedding and of the dense layers above it; tokens are in units in which their
    products are the covariance of the embedding's hidden units.
    """
    between = one @ other.T
    own, others = jnp.sum(one**2, axis=1), jnp.sum(other**2, axis=1)
    for activation, variance in zip(activations, [1.0, *variances], strict=True):
        function = _entrywise(activation)
        given = variance * own, variance * between, variance * others
        between = function(given[0][:, None], given[1], given[2][None, :])
        own, others = (function(each, each, each) for each in (given[0], given[2]))
    return between / jnp.prod(variances)


def token_means(activation: Activation, tokens: Float[Array, "tokens features"]) -> Float[Array, " tokens"]:
    """The mean of the hidden units of every token after the function of the embedding."""
    compiled = _compiled_mean(activation)
    own = jnp.maximum(jnp.sum(tokens**2, axis=1), _LEAST)
    return jax.vmap(lambda each: jnp.asarray(compiled.call_from({OWN: each})["mean"], dtype=jnp.float64))(own)


@lru_cache
def _compiled_mean(activation: Activation) -> CompiledFunction:
    return compile_expressions("mean", {"mean": activation.mean}, (OWN,))


@lru_cache
def _entrywise(activation: Activation) -> Callable[..., Array]:
    """The kernel of `activation` as a function of arrays (c_xx, c_xy, c_yy), which are broadcast."""
    compiled = compile_expressions("kernel", {"kernel": activation.kernel}, (OWN, BETWEEN, OTHER))

    def kernel(own, between, other):
        found = compiled.call_from({OWN: own, BETWEEN: between, OTHER: other})["kernel"]
        return jnp.asarray(found, dtype=jnp.float64)

    def of_arrays(own, between, other):
        own, between, other = jnp.broadcast_arrays(jnp.maximum(own, _LEAST), between, jnp.maximum(other, _LEAST))
        found = jax.vmap(kernel)(own.ravel(), between.ravel(), other.ravel())
        return found.reshape(between.shape)

    return of_arrays
