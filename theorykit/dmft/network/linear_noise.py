"""How far networks of finitely many neurons stray from the mean field: Gaussian fluctuations of order 1/N.

    network -> fluctuations(network, parameters, start, steps) -> Fluctuations, to hold against run(network, ...)

Given the attention before it, the spins of a token are independent, so that its overlaps, which are sums over neurons,
have the mean of the map and the covariance Q / N of `MeanField.noise`. A deviation of the keys, values and attention
that the network remembers is carried on by the derivative J of the map along its orbit. To leading order in 1/N, as in
van Kampen's expansion in the size of a system, the covariance of deviations goes, with a token, from Sigma to
J Sigma J^T + H Q H^T / N, where H is how the state moves with the overlaps of that token.

The weights are those of the network, in the map and in the noise: only spins are random. Nothing here is of weights
that are drawn anew, whose law of columns would differ from that of the limit by N^(-1/2) too.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...checks import checked_instance, checked_whole_number
from ...codegen.batch import column, long_matrix
from ..map import compiled
from ..map.self_attention import (
    KEY,
    OUTPUT,
    QUERY,
    VALUE,
    Parameters,
    State,
    attend,
    checked_fit,
    store,
)
from ..map.trajectory import broadcast_to_parameters
from ..weights.weights import FAMILIES
from .finite_network import AbstractNetwork

# a state with its attention, keys and values, and the overlaps of a token: as one column of numbers, over a batch
Column = Float[Array, "_ *batch"]
Covariance = Float[Array, "_ _ *batch"]


class Fluctuations(eqx.Module):
    """Means and covariances of what independent networks of N neurons pay attention to, to first order in 1/N.

    - `mean`: `(steps + 1, patterns, *batch)`, the attention of the map, the start's first.
    - `attention`: `(steps + 1, patterns, patterns, *batch)`, its covariance at each token; zero at the start.
    - `overlaps`: `(steps, families, patterns, families, patterns, *batch)`, the covariance of m^o, m^v, m^q and m^k of
      every token but the prompt.
    - `neurons`: N, which all covariances are inverse to.

    Overlaps are at most one, so that no network deviates by more than two. Where the orbit is unstable the covariances
    grow beyond that, and mean nothing any more; beyond the range of double precision they are infinite.
    """

    mean: Float[Array, "times patterns *batch"]
    attention: Float[Array, "times patterns patterns *batch"]
    overlaps: Float[Array, "steps families patterns families patterns *batch"]
    neurons: Float[Array, ""]

    @property
    def attention_deviation(self) -> Float[Array, "times patterns *batch"]:
        """Standard deviation of each attention."""
        return _roots(jnp.einsum("tpp...->tp...", self.attention))

    @property
    def overlap_deviation(self) -> Float[Array, "steps families patterns *batch"]:
        """Standard deviation of each overlap."""
        return _roots(jnp.einsum("tfpfp...->tfp...", self.overlaps))

    @property
    def rms(self) -> Float[Array, "*batch"]:
        """Root mean square deviation of the attention, over the tokens after the start and patterns."""
        return jnp.sqrt(jnp.mean(self.attention_deviation[1:] ** 2, axis=(0, 1)))


def _roots(variances: Array) -> Array:
    """Square roots; of rounding below zero, zero."""
    return jnp.sqrt(jnp.maximum(variances, 0.0))


def fluctuations(network: AbstractNetwork, parameters: Parameters, start: State, *, steps: int) -> Fluctuations:
    """Covariances of the first `steps` tokens after `start`, over independent networks; what `run` samples.

    All networks begin with `start`, a state of `network.limit` in either convention. To first order in 1/N: the noise
    must stay small after the map has amplified it, which is so for any number of tokens on a stable cycle and N large
    enough, and for about log N / (2 lambda) tokens where the largest Lyapunov exponent lambda is positive.

    Raises `TypeError` or `ValueError` where `start` does not fit the network, and where there is no step.

        >>> import jax
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> weights = dmft.published_weights()
        >>> network = dmft.network.class_sum_network(weights, context=4, repeats=1000)  # 99,000 neurons
        >>> parameters = dmft.Parameters(beta=0.5, gamma=127.0, epsilon=0.02)
        >>> start = dmft.token_start(network.limit, parameters, dmft.pattern_prompt(weights))
        >>> found = dmft.network.fluctuations(network, parameters, start, steps=50)
        >>> found.attention_deviation.shape  # (tokens, patterns)
        (51, 3)
        >>> round(float(found.rms), 4)
        0.0019
    """
    checked_instance("network", network, AbstractNetwork, "as class_sum_network(weights, context) returns it")
    checked_whole_number("steps", steps, least=1)
    start = checked_fit("start", start, State, network.limit, parameters)
    return Fluctuations(*_fluctuations(network, parameters, start, steps), network.neurons)


@eqx.filter_jit
def _fluctuations(network: AbstractNetwork, parameters: Parameters, start: State, steps: int):
    start = broadcast_to_parameters(parameters, start)
    patterns, batch, size = start.patterns, start.batch_shape, len(_as_column(start))
    covariance = jnp.zeros((size, size, *batch))

    def token(at: tuple[State, Covariance, Bool[Array, "*batch"]], _):
        state, covariance, bounded = at
        joint = _side_by_side(covariance, _noise(network, parameters, state) / network.neurons)
        zero = jnp.zeros((len(FAMILIES) * patterns, *batch))
        _, push = jax.linearize(_token(network, parameters, state), _as_column(state), zero)
        carried = _carry(push, size, joint)
        bounded &= jnp.all(jnp.isfinite(carried), axis=(0, 1))
        carried = jnp.where(bounded, carried, 0.0)
        shown = jnp.where(bounded, carried, jnp.inf)
        state = network.limit.unchecked_step(parameters, state)
        kept = jnp.stack(state.attention), shown[:patterns, :patterns], shown[size:, size:]
        return (state, carried[:size, :size], bounded), kept

    begin = (start, covariance, jnp.ones(batch, dtype=bool))
    _, (mean, attention, overlaps) = jax.lax.scan(token, begin, None, length=steps)
    mean = jnp.concatenate([jnp.stack(start.attention)[None], mean])
    attention = jnp.concatenate([covariance[None, :patterns, :patterns], attention])
    families = (len(FAMILIES), patterns)
    return mean, attention, overlaps.reshape(steps, *families, *families, *batch)


def _as_column(state: State) -> Column:
    """All that a state remembers."""
    slots = (entry for family in (state.keys, state.values) for entry in family)
    return jnp.concatenate([jnp.stack(state.attention), *slots])


def _from_column(numbers: Column, like: State) -> State:
    """The state that remembers `numbers`, at the position of another."""
    patterns, context = like.patterns, like.context
    attention, slots = numbers[:patterns], numbers[patterns:].reshape(2, patterns, context, *numbers.shape[1:])
    return State(tuple(attention), tuple(slots[0]), tuple(slots[1]), like.position, like.tokens)


def _token(
    network: AbstractNetwork, parameters: Parameters, at: State
) -> Callable[[Column, Column], tuple[Column, Column]]:
    """The next state and the overlaps of its token, of a state near `at` and what the overlaps differ from the map by.

    Numbers in the order of `_as_column`; overlaps by family, then by pattern.
    """
    model = network.limit

    def token(numbers: Column, difference: Column) -> tuple[Column, Column]:
        state = _from_column(numbers, at)
        families = [
            model.unchecked_overlap(family, parameters, state.attention, at.position) for family in range(len(FAMILIES))
        ]
        overlaps = jnp.concatenate([jnp.stack(family) for family in families]) + difference
        of_family = overlaps.reshape(len(FAMILIES), state.patterns, *state.batch_shape)
        state = store(state, tuple(of_family[KEY]), tuple(of_family[VALUE]))
        return _as_column(attend(parameters, state, tuple(of_family[QUERY]))), overlaps

    return token


def _noise(network: AbstractNetwork, parameters: Parameters, state: State) -> Covariance:
    """N times the covariance of the overlaps of the token after `state`, given that state; Eq. (9)."""
    signs = network.signs.astype(float).reshape(*network.signs.shape, *(1 for _ in state.batch_shape))
    shares = network.shares.reshape(-1, *(1 for _ in state.batch_shape))
    columns = [signs[:, family, pattern] for family in range(len(FAMILIES)) for pattern in range(state.patterns)]
    found = compiled.noise()(
        Omega=long_matrix(columns[OUTPUT * state.patterns :][: state.patterns]),
        X=long_matrix(columns),
        Xbar=long_matrix([shares * each for each in columns]),
        A=column(state.attention),
        beta=parameters.beta,
        epsilon=parameters.epsilon,
    )["Q"]
    return jnp.stack([jnp.stack([jnp.broadcast_to(entry, state.batch_shape) for entry in row]) for row in found.grid])


def _side_by_side(first: Covariance, second: Covariance) -> Covariance:
    """The covariance of independent columns, one below the other."""
    a, b, batch = len(first), len(second), first.shape[2:]
    above = jnp.concatenate([first, jnp.zeros((a, b, *batch))], axis=1)
    return jnp.concatenate([above, jnp.concatenate([jnp.zeros((b, a, *batch)), second], axis=1)])


def _carry(push: Callable, size: int, covariance: Covariance) -> Covariance:
    """J S J^T of the linear function `push` of both parts of a column, the first of `size` numbers."""

    def carried(numbers: Column) -> Column:
        return jnp.concatenate(push(numbers[:size], numbers[size:]))

    half = jax.vmap(carried, in_axes=1, out_axes=1)(covariance)  # J S
    both = jax.vmap(carried)(half)  # of its rows
    return (both + jnp.swapaxes(both, 0, 1)) / 2
