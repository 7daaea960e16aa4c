"""Exact block Gibbs sampling of all weights.

The network is linear in each block of weights given the others, so each conditional is Gaussian. One linear solve draws
from it by Matheron's rule,

    w = w_0 + A^T (A A^T + T I)^-1 (y - A w_0 - e),

where w_0 is a draw from the prior of the block, e is a draw of the labels' noise, and A (labels x weights of the block)
is the design matrix of the block. Blocks are whitened, so that their prior is N(0, I).
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float, PRNGKeyArray

from ..evaluation.formulas import flat_features
from ..network.network import read_paths
from .posterior import WeightPosterior, White, read, split_weights


class _State(eqx.Module):
    white: White
    key: PRNGKeyArray


class Gibbs(eqx.Module):
    """Sweep over embedding, layers and readout. The state has the whitened weights and the key of the next draw."""

    posterior: WeightPosterior

    def start(self, key: PRNGKeyArray) -> _State:
        key, prior_key = jax.random.split(key)
        return _State(split_weights(self.posterior.start(prior_key), self.posterior.shapes), key)

    def step(self, state: _State) -> _State:
        key, embedding_key, *block_keys = jax.random.split(state.key, len(state.white) + 1)
        first, features = self.posterior.path_weights(state.white)[0], self.posterior.features
        paths, width = features.shape[1], len(state.white[0])
        by_output = first.reshape(paths, -1, width) / jnp.sqrt(width)
        flat = flat_features(self.posterior.architecture, features)
        by_row = flat.reshape(len(flat), len(first), -1)
        # If there are more hidden units than paths, this is cheaper than forming the design matrix.
        mixed = jnp.einsum("ab,pbi->pai", first @ first.T / width, by_row)
        embedding = self._draw(
            state.white[0],
            gram=flat @ mixed.reshape(flat.shape).T,
            outputs=lambda embedding: read_paths(first, embedding, features),
            transposed=lambda representer: jnp.einsum("kcn,pki,pc->ni", by_output, features, representer),
            key=embedding_key,
        )
        white = (embedding, *state.white[1:])
        # The path weights multiply V^0 phi / sqrt(N_1).
        readings = jnp.einsum("ni,pki->pkn", embedding, self.posterior.features) / jnp.sqrt(len(embedding))
        for block, block_key in enumerate(block_keys, 1):
            drawn = self._layer(block, white, readings, block_key)
            white = (*white[:block], drawn, *white[block + 1 :])
        return _State(white, key)

    def draw(self, state: _State) -> Mapping[str, Array]:
        coordinates = jnp.concatenate([block.ravel() for block in state.white])
        return {**self.posterior.record(coordinates), "lp": self.posterior.log_density(coordinates)}

    def _layer(self, block: int, white: White, readings: Array, key: PRNGKeyArray) -> Float[Array, "rows columns"]:
        def first(own):
            return self.posterior.path_weights((*white[:block], own, *white[block + 1 :]))[0]

        _, transposed_first = jax.vjp(first, white[block])
        # The derivative of an output in w^(1) has the readings in the rows of this output, and zeros elsewhere.
        rows = flat_features(self.posterior.architecture, readings)
        by_label = rows.reshape(*self.posterior.labels.shape, -1, readings.shape[2])
        (design,) = jax.vmap(jax.vmap(transposed_first))(by_label)
        flat = design.reshape(self.posterior.labels.size, -1)
        return self._draw(
            white[block],
            gram=flat @ flat.T,
            outputs=lambda own: read(first(own), readings),
            transposed=lambda representer: jnp.einsum("pcmn,pc->mn", design, representer),
            key=key,
        )

    def _draw(
        self,
        block: Float[Array, "rows columns"],
        *,
        gram: Float[Array, "labels labels"],
        outputs: Callable[[Array], Array],
        transposed: Callable[[Array], Array],
        key: PRNGKeyArray,
    ) -> Float[Array, "rows columns"]:
        """Draw a block shaped like `block` from its conditional. `outputs` applies A, `transposed` applies A^T."""
        prior_key, noise_key = jax.random.split(key)
        temperature, labels = self.posterior.architecture.temperature, self.posterior.labels
        prior = jax.random.normal(prior_key, block.shape)
        noise = jnp.sqrt(temperature) * jax.random.normal(noise_key, labels.shape)
        factor = jnp.linalg.cholesky(gram + temperature * jnp.eye(labels.size))
        representer = cho_solve((factor, True), (labels - outputs(prior) - noise).ravel())
        return prior + transposed(representer.reshape(labels.shape))
