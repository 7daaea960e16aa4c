"""Networks of finitely many neurons, and their fluctuations to order 1/N.

Given the previous attention, spins are independent, so the sum over a class of neurons
with equal weights is binomial. Draws are exact, at a cost independent of N.

The overlaps of a token have the mean of the map and the covariance Q / N of
`MeanField.noise`. To leading order in 1/N (van Kampen's system-size expansion), a token
changes the covariance Sigma of the state to J Sigma J^T + H Q H^T / N. J and H are the
derivatives of the next state with respect to the state and to the overlaps.
"""

from __future__ import annotations

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from .._jit import jit
from ..checks import checked_whole_number, is_traced
from .map import Parameters, SelfAttention, State, compiled
from .weights import OUTPUT, Weights

# Largest standard deviation of attentions that counts as small.
_SMALL = 0.3


class FiniteNetwork(eqx.Module):
    """Finitely many neurons, in classes of equal weights.

    - `signs` (classes, families, patterns): weights of each class.
    - `counts` (classes,): number of neurons of each class.
    - `limit`: the mean field, for many neurons.

    Args:
        weights: The weights.
        context: Largest number of tokens that the attention reads.
        repeats: Number of copies of every neuron of `weights`.
    """

    signs: Float[Array, "classes families patterns"]
    counts: Float[Array, " classes"]
    limit: SelfAttention

    def __init__(self, weights: Weights, context: int, repeats: int = 1):
        checked_whole_number("repeats", repeats, least=1)
        self.limit = SelfAttention.from_weights(weights, context)
        signs, counts = weights.classes()
        self.signs, self.counts = jnp.asarray(signs, float), jnp.asarray(repeats * counts, float)

    @property
    def neurons(self) -> Float[Array, ""]:
        """N, the number of neurons."""
        return jnp.sum(self.counts)

    def token(self, state: State, parameters: Parameters, key: PRNGKeyArray) -> Array:
        """Draw the overlaps (families, patterns) of the next token."""
        up = jax.nn.sigmoid(2 * parameters.beta * self.signs[:, OUTPUT] @ state.attention[0])
        # Eq. (4), one class at once
        spins = 2 * jax.random.binomial(key, self.counts, up) / self.counts - 1
        semantic = jnp.einsum("nfm,n->fm", self.signs, self.counts / self.neurons * spins)
        share = parameters.epsilon
        return (1 - share) * semantic + share * self.limit.positional[state.position]  # Eq. (1)

    def attend(self, state: State, parameters: Parameters, overlaps: Array) -> State:
        """Return the state after a token with these overlaps."""
        return self.limit.attend(state, parameters, overlaps)


class Fluctuations(eqx.Module):
    """Covariances over independent networks with the same start.

    - `mean`: the attention of the map, with the start first.
    - `attention`: covariance of each attention.
    - `overlaps`: covariance of m^o, m^v, m^q and m^k of every token.
    """

    mean: Float[Array, "*batch times patterns"]
    attention: Float[Array, "*batch times patterns patterns"]
    overlaps: Float[Array, "*batch steps families patterns families patterns"]

    @property
    def attention_deviation(self) -> Float[Array, "*batch times patterns"]:
        """Standard deviation of each attention."""
        # Negative variances are rounding.
        return jnp.sqrt(jnp.maximum(jnp.einsum("...pp->...p", self.attention), 0.0))

    @property
    def rms(self) -> Float[Array, "*batch"]:
        """Root mean square deviation of the attentions after the start."""
        return jnp.sqrt(jnp.mean(self.attention_deviation[..., 1:, :] ** 2, axis=(-2, -1)))


def fluctuations(network: FiniteNetwork, start: State, parameters: Parameters, *, steps: int) -> Fluctuations:
    """Return the covariances of samples of `run` to order 1/N.

    A warning tells if deviations of attentions are large. In chaos of exponent
    lambda, they stay small for about log N / (2 lambda) tokens.
    """
    checked_whole_number("steps", steps, least=1)
    found = _fluctuations(network, start, parameters, steps=steps)
    largest = jnp.max(found.attention_deviation)
    if not is_traced(largest) and not largest <= _SMALL:
        said = f"the predicted standard deviation of attentions, which are at most 1, reaches {largest:.2g}"
        warnings.warn(f"{said}: first order in 1/N is not accurate", stacklevel=2)
    return found


@jit
def _fluctuations(network, start, parameters, *, steps):
    model, patterns = network.limit, network.limit.patterns
    columns = network.signs.reshape(len(network.counts), -1)
    sums = columns * (network.counts / network.neurons)[:, None]
    numbers, unravel = ravel_pytree(eqx.filter(start, eqx.is_inexact_array))
    size = len(numbers)

    def token(at, _):
        state, covariance = at

        def following(numbers, deviation):
            here = eqx.combine(unravel(numbers), state)
            overlaps = model.token(here, parameters) + deviation.reshape(4, patterns)
            after = model.attend(here, parameters, overlaps)
            moved = ravel_pytree(eqx.filter(after, eqx.is_inexact_array))[0]
            return jnp.concatenate([moved, after.attention[0], overlaps.ravel()]), after

        numbers = ravel_pytree(eqx.filter(state, eqx.is_inexact_array))[0]
        derivatives = jax.jacfwd(following, argnums=(0, 1), has_aux=True)
        (J, H), after = derivatives(numbers, jnp.zeros(4 * patterns))
        given = {"Omega": network.signs[:, OUTPUT], "X": columns, "Xbar": sums, "A": state.attention[0][:, None]}
        Q = compiled("noise")(**given, beta=parameters.beta, epsilon=parameters.epsilon)["noise"]  # Eq. (9)
        carried = J @ covariance @ J.T + H @ Q @ H.T / network.neurons
        carried = (carried + carried.T) / 2
        return (after, carried[:size, :size]), (after.attention[0], carried[size:, size:])

    _, (mean, covariance) = jax.lax.scan(token, (start, jnp.zeros((size, size))), None, steps)
    mean = jnp.concatenate([start.attention[:1], mean])
    attention = jnp.pad(covariance[:, :patterns, :patterns], ((1, 0), (0, 0), (0, 0)))
    overlaps = covariance[:, patterns:, patterns:].reshape(steps, 4, patterns, 4, patterns)
    return Fluctuations(mean, attention, overlaps)
