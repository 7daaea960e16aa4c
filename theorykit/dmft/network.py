"""Networks of finitely many neurons: samples of orbits, and fluctuations to order 1/N.

Networks differ from the mean field only in the overlaps of a new token. Given the
previous attention, spins are independent, so the sum over a class of neurons with equal
weights follows a binomial law. A draw is exact, at a cost independent of N.

The overlaps of a token have the mean of the map and the covariance Q / N of
`MeanField.noise`. To leading order in 1/N (van Kampen's system-size expansion), a token
changes the covariance Sigma of the state to J Sigma J^T + H Q H^T / N. J and H are the
derivatives of the next state with respect to the state and to the overlaps. Only spins
are random: redrawing the weights would also change the map.
"""

from __future__ import annotations

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from ..checks import checked_whole_number, is_traced
from .map import (
    OUTPUT,
    TRAJECTORIES,
    Parameters,
    SelfAttention,
    State,
    Trajectory,
    compiled,
    over_batch,
    record,
    self_attention_limit,
)
from .weights import FAMILIES, Weights, distinct_columns

__all__ = ["class_sum_network", "fluctuations", "run"]

# Standard deviation of an attention, from -1 to 1, above which the linear theory fails.
_SMALL = 0.3


class FiniteNetwork(eqx.Module):
    """Network of finitely many neurons, in classes of neurons with equal weights.

    - `signs` (classes, families, patterns): weights of each class.
    - `counts` (classes,): number of neurons of each class.
    - `limit`: the mean field to which the network converges if neurons are repeated.
    """

    signs: Float[Array, "classes families patterns"]
    counts: Float[Array, " classes"]
    limit: SelfAttention

    @property
    def neurons(self) -> Float[Array, ""]:
        """N, the number of neurons."""
        return jnp.sum(self.counts)

    def token(self, parameters: Parameters, state: State, key: PRNGKeyArray) -> Array:
        """Draw the overlaps of the next token."""
        up = jax.nn.sigmoid(2 * parameters.beta * self.signs[:, OUTPUT] @ state.latest)
        # Eq. (4), one class at once
        spins = 2 * jax.random.binomial(key, self.counts, up) / self.counts - 1
        semantic = jnp.einsum("nfm,n->fm", self.signs, self.counts / self.neurons * spins)
        share = parameters.epsilon
        return (1 - share) * semantic + share * self.limit.positional[state.position]  # Eq. (1)


def class_sum_network(weights: Weights, context: int, repeats: int = 1) -> FiniteNetwork:
    """Return the network of `repeats` copies of every neuron of `weights`.

    `context` is the largest number of tokens that the attention reads.
    """
    checked_whole_number("repeats", repeats, least=1)
    signs, counts = distinct_columns(weights)
    limit = self_attention_limit(weights, context)
    return FiniteNetwork(jnp.asarray(signs, float), jnp.asarray(repeats * counts, float), limit)


def run(
    network: FiniteNetwork,
    parameters: Parameters,
    start: State,
    *,
    steps: int,
    samples: int = 1,
    key: PRNGKeyArray,
) -> Trajectory:
    """Run independent samples of a network.

    Args:
        network, parameters: The network and the parameters of the map.
        start: A state of `network.limit`, in either convention.
        steps, samples: Numbers of tokens and of samples.
        key: Random key of the spins.

    Returns:
        The trajectory of `dmft.run`, with batch axes `(*batch, samples)`.
    """
    checked_whole_number("steps", steps, least=1)
    checked_whole_number("samples", samples, least=1)
    batch = jnp.broadcast_shapes(parameters.batch_shape, start.attention.shape[:-2])
    parameters = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, batch)[..., None], parameters)
    start = jax.tree.map(lambda leaf: leaf[..., None, :, :] if leaf.ndim else leaf, start)
    sampled, keys = eqx.Partial(record, network.token, steps), jax.random.split(key, (*batch, samples))
    return over_batch(sampled, TRAJECTORIES, network.limit, parameters, start, keys)


class Fluctuations(eqx.Module):
    """Covariances over independent networks with the same start.

    - `mean`: the attention of the map, with the start first.
    - `attention`: covariance of each attention, infinite beyond double precision.
    - `overlaps`: covariance of m^o, m^v, m^q and m^k of every token.
    - `neurons`: N, the number of neurons.
    """

    mean: Float[Array, "*batch times patterns"]
    attention: Float[Array, "*batch times patterns patterns"]
    overlaps: Float[Array, "*batch steps families patterns families patterns"]
    neurons: Float[Array, ""]

    @property
    def attention_deviation(self) -> Float[Array, "*batch times patterns"]:
        """Standard deviation of each attention."""
        # Negative variances are rounding.
        return jnp.sqrt(jnp.maximum(jnp.einsum("...pp->...p", self.attention), 0.0))

    @property
    def overlap_deviation(self) -> Float[Array, "*batch steps families patterns"]:
        """Standard deviation of each overlap."""
        return jnp.sqrt(jnp.maximum(jnp.einsum("...fpfp->...fp", self.overlaps), 0.0))

    @property
    def rms(self) -> Float[Array, "*batch"]:
        """Root mean square deviation of the attentions after the start."""
        return jnp.sqrt(jnp.mean(self.attention_deviation[..., 1:, :] ** 2, axis=(-2, -1)))


def fluctuations(network: FiniteNetwork, parameters: Parameters, start: State, *, steps: int) -> Fluctuations:
    """Compute covariances of what `run` samples, to first order in 1/N.

    The noise must stay small after the map has amplified it: on a stable cycle for any
    number of tokens if N is large enough, and for about log N / (2 lambda) tokens if the
    largest Lyapunov exponent lambda is positive. A warning is issued if a deviation is
    not small compared to the range of attentions, from -1 to 1.
    """
    checked_whole_number("steps", steps, least=1)
    arrays = over_batch(eqx.Partial(_fluctuations, network, steps), 0, network.limit, parameters, start)
    found = Fluctuations(*arrays, network.neurons)
    if not is_traced(found) and (largest := float(jnp.max(found.attention_deviation))) > _SMALL:
        said = f"the predicted standard deviation of attentions, which are at most 1, reaches {largest:.2g}"
        warnings.warn(f"{said}: the expansion to first order in 1/N is not accurate", stacklevel=2)
    return found


def _fluctuations(network, steps, model, parameters, start):
    families, patterns = (len(FAMILIES), model.patterns), model.patterns
    columns = network.signs.reshape(len(network.counts), -1)
    sums = columns * (network.counts / network.neurons)[:, None]

    def numbers_of(state: State):
        floats, others = eqx.partition(state, eqx.is_inexact_array)
        return *ravel_pytree(floats), others

    def token(at, _):
        state, covariance, bounded = at
        numbers, unravel, others = numbers_of(state)

        def following(numbers: Array, deviation: Array):
            """Return the numbers after a token, its attention and overlaps, and the state."""
            here = eqx.combine(unravel(numbers), others)
            overlaps = model.overlaps(parameters, here.latest, model.positional[here.position])
            overlaps += deviation.reshape(families)
            after = model.attend(here, parameters, overlaps)
            return jnp.concatenate([numbers_of(after)[0], after.latest, overlaps.ravel()]), after

        zero = jnp.zeros(families[0] * families[1])
        (J, H), after = jax.jacfwd(following, argnums=(0, 1), has_aux=True)(numbers, zero)
        given = {"Omega": network.signs[:, OUTPUT], "X": columns, "Xbar": sums, "A": state.latest[:, None]}
        Q = compiled("noise")(**given, beta=parameters.beta, epsilon=parameters.epsilon)["noise"]  # Eq. (9)
        carried = J @ covariance @ J.T + H @ Q @ H.T / network.neurons
        carried = (carried + carried.T) / 2
        bounded &= jnp.all(jnp.isfinite(carried))
        carried = jnp.where(bounded, carried, 0.0)
        shown = jnp.where(bounded, carried[size:, size:], jnp.inf)
        kept = after.latest, shown[:patterns, :patterns], shown[patterns:, patterns:]
        return (after, carried[:size, :size], bounded), kept

    size = len(numbers_of(start)[0])
    begin = start, jnp.zeros((size, size)), jnp.asarray(True)
    _, (mean, attention, overlaps) = jax.lax.scan(token, begin, None, length=steps)
    mean = jnp.concatenate([start.latest[None], mean])
    attention = jnp.concatenate([jnp.zeros_like(attention[:1]), attention])
    return mean, attention, overlaps.reshape(steps, *families, *families)
