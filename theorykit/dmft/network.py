"""Networks of finitely many neurons: samples of their orbits, and fluctuations to order 1/N.

Networks differ from the mean field only in the overlaps of a new token. Given the previous attention, spins are
independent, so the sum over a class of neurons with equal weights follows a binomial law. A draw is exact, at a cost
that does not depend on the number of neurons.

The overlaps of a token have the mean of the map and the covariance Q / N of `MeanField.noise`. To leading order in 1/N,
as in van Kampen's system-size expansion, each token changes the covariance of a network's state from Sigma to
J Sigma J^T + H Q H^T / N. J is the derivative of the map along its orbit, and H the derivative of the state with
respect to the overlaps of that token. Only spins are random: redrawing the weights would also change the map.
"""

from __future__ import annotations

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray

from .._jit import usual_settings
from ..checks import checked_instance, checked_whole_number, is_traced
from .map import (
    OUTPUT,
    STATES,
    Parameters,
    SelfAttention,
    State,
    Trajectory,
    check_fits,
    compiled,
    over_batch,
    self_attention_limit,
)
from .weights import FAMILIES, Weights, distinct_columns

__all__ = ["class_sum_network", "fluctuations", "run"]

# Standard deviation of an attention, a number from -1 to 1, above which the linear theory is not trusted.
_SMALL = 0.3


class FiniteNetwork(eqx.Module):
    """Network of finitely many neurons, in classes of neurons with equal weights.

    - `signs` (classes, families, patterns): weights of each class.
    - `counts` (classes,): number of neurons of each class.
    - `limit`: the mean field to which the network converges if its neurons are repeated.
    """

    signs: Float[Array, "classes families patterns"]
    counts: Float[Array, " classes"]
    limit: SelfAttention

    @property
    def neurons(self) -> Float[Array, ""]:
        """N, the number of neurons."""
        return jnp.sum(self.counts)


def class_sum_network(weights: Weights, context: int, repeats: int = 1) -> FiniteNetwork:
    """Return the network in which every neuron of `weights` is repeated.

    `context` is the largest number of tokens that the attention reads, and `repeats` the copies of every neuron.
    """
    checked_whole_number("repeats", repeats, least=1)
    limit, (signs, counts) = self_attention_limit(weights, context), distinct_columns(weights)
    return FiniteNetwork(jnp.asarray(signs, float), jnp.asarray(repeats * counts, float), limit)


@usual_settings()
@eqx.filter_jit
def run(
    network: FiniteNetwork,
    parameters: Parameters,
    start: State,
    *,
    steps: int,
    samples: int = 1,
    key: PRNGKeyArray,
) -> Trajectory:
    """Run independent samples of a network. The members of a batch also have independent spins.

    Args:
        network, parameters: The network and the parameters of the map.
        start: A state of `network.limit`, in either convention.
        steps, samples: Numbers of tokens and of samples.
        key: Random key of the spins.

    Returns:
        The trajectory of `dmft.run`, with batch axes (*batch, samples).
    """
    checked_instance("network", network, FiniteNetwork)
    check_fits(network.limit, parameters, start)
    for name, number in (("steps", steps), ("samples", samples)):
        checked_whole_number(name, number, least=1)
    model, shares = network.limit, network.counts / network.neurons

    def one(parameters: Parameters, start: State, key: PRNGKeyArray):
        def token(state: State, key: PRNGKeyArray):
            up = jax.nn.sigmoid(2 * parameters.beta * network.signs[:, OUTPUT] @ state.latest)
            spins = 2 * jax.random.binomial(key, network.counts, up) / network.counts - 1  # Eq. (4), one class at once
            semantic = jnp.einsum("nfm,n->fm", network.signs, shares * spins)
            share = parameters.epsilon
            overlaps = (1 - share) * semantic + share * model.positional[state.position]  # Eq. (1)
            after = model.attend(state, parameters, overlaps)
            return after, (after.latest, overlaps)

        end, (attention, overlaps) = jax.lax.scan(token, start, jax.random.split(key, steps))
        return jnp.concatenate([start.latest[None], attention]), overlaps, end

    batch = jnp.broadcast_shapes(parameters.batch_shape, start.attention.shape[:-2])
    parameters = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, batch)[..., None], parameters)
    keys = jax.random.split(key, (*batch, samples))
    start = jax.tree.map(lambda leaf: leaf[..., None, :, :] if leaf.ndim else leaf, start)
    attention, overlaps, end = over_batch(one, (0, 0, STATES), parameters, start, keys)
    return Trajectory(attention, overlaps, (start.position + jnp.arange(steps)) % model.context, end)


class Fluctuations(eqx.Module):
    """Result of `fluctuations`, which explains the attributes."""

    mean: Float[Array, "*batch times patterns"]
    attention: Float[Array, "*batch times patterns patterns"]
    overlaps: Float[Array, "*batch steps families patterns families patterns"]
    neurons: Float[Array, ""]

    @property
    def attention_deviation(self) -> Float[Array, "*batch times patterns"]:
        """Standard deviation of each attention."""
        # Clip variances at zero. Negative ones are rounding.
        return jnp.sqrt(jnp.maximum(jnp.einsum("...pp->...p", self.attention), 0.0))

    @property
    def overlap_deviation(self) -> Float[Array, "*batch steps families patterns"]:
        """Standard deviation of each overlap."""
        return jnp.sqrt(jnp.maximum(jnp.einsum("...fpfp->...fp", self.overlaps), 0.0))

    @property
    def rms(self) -> Float[Array, "*batch"]:
        """Root mean square deviation of the attention, over patterns and over the tokens after the start."""
        return jnp.sqrt(jnp.mean(self.attention_deviation[..., 1:, :] ** 2, axis=(-2, -1)))


@usual_settings()
def fluctuations(network: FiniteNetwork, parameters: Parameters, start: State, *, steps: int) -> Fluctuations:
    """Compute covariances over independent networks with the same start, which `run` samples.

    The result is of first order in 1/N: the noise must stay small after the map has amplified it. This holds for any
    number of tokens on a stable cycle if N is large enough, and for about log N / (2 lambda) tokens if the largest
    Lyapunov exponent lambda is positive. A warning is issued if a predicted deviation is not small compared to the
    range of attentions, from -1 to 1.

    Returns:
        Results with these attributes:

        - `mean` (*batch, steps + 1, patterns): the attention of the map, with the start first.
        - `attention` (*batch, steps + 1, patterns, patterns): covariance of the attention. Beyond double precision, it
          is infinite.
        - `overlaps` (*batch, steps, families, patterns, families, patterns): covariance of m^o, m^v, m^q and m^k of
          every token.
        - `neurons`: N, the number of neurons.
        - `attention_deviation`, `overlap_deviation`, `rms`: standard deviations, and their root mean square.
    """
    checked_instance("network", network, FiniteNetwork)
    check_fits(network.limit, parameters, start)
    checked_whole_number("steps", steps, least=1)
    found = Fluctuations(*_fluctuations(network, parameters, start, steps), network.neurons)
    if not is_traced(found) and (largest := float(jnp.max(found.attention_deviation))) > _SMALL:
        warnings.warn(
            f"the predicted standard deviation of attentions, which are at most 1, reaches {largest:.2g}: the network "
            "is too small, or the map too unstable, for an expansion to first order in 1/N",
            stacklevel=3,
        )
    return found


@eqx.filter_jit
def _fluctuations(network, parameters, start, steps):
    model, families = network.limit, (len(FAMILIES), network.limit.patterns)
    columns = network.signs.reshape(len(network.counts), -1)
    sums = columns * (network.counts / network.neurons)[:, None]

    def one(parameters: Parameters, start: State):
        def token(at, _):
            state, covariance, bounded = at
            floats, others = eqx.partition(state, eqx.is_inexact_array)
            numbers, unravel = ravel_pytree(floats)

            def following(numbers: Array, deviation: Array):
                """Return the numbers after a token, its overlaps, and the state."""
                here = eqx.combine(unravel(numbers), others)
                positional = model.positional[here.position]
                overlaps = model.overlaps(parameters, here.latest, positional) + deviation.reshape(families)
                after = model.attend(here, parameters, overlaps)
                changed = ravel_pytree(eqx.filter(after, eqx.is_inexact_array))[0]
                return jnp.concatenate([changed, after.latest, overlaps.ravel()]), after

            zero = jnp.zeros(families[0] * families[1])
            (J, H), after = jax.jacfwd(following, argnums=(0, 1), has_aux=True)(numbers, zero)
            given = {"Omega": network.signs[:, OUTPUT], "X": columns, "Xbar": sums, "A": state.latest[:, None]}
            Q = compiled("noise")(**given, beta=parameters.beta, epsilon=parameters.epsilon)["noise"]  # Eq. (9)
            carried = J @ covariance @ J.T + H @ Q @ H.T / network.neurons
            carried = (carried + carried.T) / 2
            bounded &= jnp.all(jnp.isfinite(carried))
            carried = jnp.where(bounded, carried, 0.0)
            shown = jnp.where(bounded, carried[len(numbers) :, len(numbers) :], jnp.inf)
            kept = after.latest, shown[: model.patterns, : model.patterns], shown[model.patterns :, model.patterns :]
            return (after, carried[: len(numbers), : len(numbers)], bounded), kept

        size = sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(start, eqx.is_inexact_array)))
        begin = start, jnp.zeros((size, size)), jnp.asarray(True)
        _, (mean, attention, overlaps) = jax.lax.scan(token, begin, None, length=steps)
        mean = jnp.concatenate([start.latest[None], mean])
        attention = jnp.concatenate([jnp.zeros_like(attention[:1]), attention])
        return mean, attention, overlaps.reshape(steps, *families, *families)

    return over_batch(one, 0, parameters, start)
