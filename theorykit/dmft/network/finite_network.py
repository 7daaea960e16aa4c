"""Networks of finitely many neurons, simulated token by token, to hold the mean field against.

    weights -> spin_network or class_sum_network -> run(network, parameters, start, key) -> SampledTrajectory

They start, remember and attend as the mean field does, and differ from it only in the overlaps of a new token: those of
a spin drawn for every neuron; or of a sum of spins drawn for every class of neurons with equal weights, by its binomial
law, which is exact and costs the same for any number of neurons.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8, PRNGKeyArray

from ...checks import checked_array, checked_instance, checked_key, checked_whole_number
from ...precision import require_float64
from ...settings import usual_settings
from ..map.self_attention import (
    KEY,
    OUTPUT,
    QUERY,
    VALUE,
    Parameters,
    SelfAttention,
    State,
    attend,
    checked_fit,
    map_batch,
    self_attention_limit,
    store,
)
from ..map.trajectory import broadcast_to_parameters
from ..weights.weights import Weights, columns


class Token(eqx.Module):
    """A token that was drawn.

    - `overlaps`: m^o, m^v, m^q and m^k, their positional part included.
    - `spins`: of every neuron, or the mean spin of every class of neurons.
    """

    overlaps: Float[Array, "families patterns *batch"]
    spins: Float[Array, "neurons *batch"]


class AbstractNetwork(eqx.Module):
    """Neurons, or classes of neurons with equal weights.

    - `signs`: the weights of each; `shares`: the part of all neurons that each stands for.
    - `limit`: the mean field that the network tends to if its neurons are repeated.
    """

    signs: eqx.AbstractVar[Int8[Array, "neurons families patterns"]]
    shares: eqx.AbstractVar[Float[Array, " neurons"]]
    limit: eqx.AbstractVar[SelfAttention]

    @property
    @abstractmethod
    def neurons(self) -> Float[Array, ""]:
        """N, the number of neurons."""

    @abstractmethod
    def unchecked_draw(
        self, fields: Float[Array, "neurons *batch"], key: PRNGKeyArray
    ) -> Float[Array, "neurons *batch"]:
        """`draw` of fields that are known to fit, for compiled loops."""

    def draw(self, fields: Float[Array, "neurons *batch"], key: PRNGKeyArray) -> Float[Array, "neurons *batch"]:
        """Spins in the fields beta h, or means of the spins of classes; Eq. (4).

        Raises `TypeError` or `ValueError` for fields of other neurons.
        """
        require_float64()
        checked_key("key", key)
        fields = jnp.asarray(checked_array("fields", fields))
        if fields.shape[:1] != self.shares.shape or 0 in fields.shape:
            raise ValueError(f"fields must be ({len(self.shares)}, *batch), got shape {fields.shape}")
        return self.unchecked_draw(fields, key)

    def token(self, parameters: Parameters, state: State, key: PRNGKeyArray) -> Token:
        """The token that follows `state`, which is one of `limit`, with the batch shape of the fields."""
        state = checked_fit("state", state, State, self.limit, parameters)
        checked_key("key", key)
        return self.unchecked_token(parameters, state, key)

    def unchecked_token(self, parameters: Parameters, state: State, key: PRNGKeyArray) -> Token:
        """`token` of what is known to fit, for compiled loops."""
        attention = jnp.stack(state.attention)
        spins = self.unchecked_draw(parameters.beta * _contract("nm,m...->n...", self.signs[:, OUTPUT], attention), key)
        semantic = _contract("nfm,n,n...->fm...", self.signs, self.shares, spins)
        positional = self.limit.positional[state.position].reshape(semantic.shape[:2] + (1,) * (spins.ndim - 1))
        return Token((1 - parameters.epsilon) * semantic + parameters.epsilon * positional, spins)  # Eq. (1)

    def step(self, parameters: Parameters, state: State, key: PRNGKeyArray) -> tuple[Token, State]:
        """The next token, and the state with the attention that it pays."""
        state = checked_fit("state", state, State, self.limit, parameters)
        checked_key("key", key)
        return self.unchecked_step(parameters, state, key)

    def unchecked_step(self, parameters: Parameters, state: State, key: PRNGKeyArray) -> tuple[Token, State]:
        """`step` of what is known to fit, for compiled loops."""
        token = self.unchecked_token(parameters, state, key)
        state = store(state, tuple(token.overlaps[KEY]), tuple(token.overlaps[VALUE]))
        return token, attend(parameters, state, tuple(token.overlaps[QUERY]))


def _contract(subscripts: str, *operands: Array) -> Array:
    """An einsum whose whole numbers are signs of weights."""
    return jnp.einsum(subscripts, *(operand.astype(float) for operand in operands))


class SpinNetwork(AbstractNetwork):
    """N neurons with a spin each; `spin_network` makes it."""

    signs: Int8[Array, "neurons families patterns"]
    shares: Float[Array, " neurons"]
    limit: SelfAttention

    @property
    def neurons(self):
        return jnp.asarray(len(self.shares), dtype=float)

    def unchecked_draw(self, fields, key):
        return jnp.where(jax.random.bernoulli(key, jax.nn.sigmoid(2 * fields)), 1.0, -1.0)  # Eq. (4)


class ClassSumNetwork(AbstractNetwork):
    """N neurons in classes of `counts`, of which only the sums of spins are drawn; `class_sum_network` makes it."""

    signs: Int8[Array, "classes families patterns"]
    shares: Float[Array, " classes"]
    limit: SelfAttention
    counts: Float[Array, " classes"]

    @property
    def neurons(self):
        return jnp.sum(self.counts)

    def unchecked_draw(self, fields, key):
        counts = self.counts.reshape(-1, *(1 for _ in fields.shape[1:]))
        return 2 * jax.random.binomial(key, counts, jax.nn.sigmoid(2 * fields)) / counts - 1  # Eq. (4), a class at once


def spin_network(weights: Weights, context: int) -> SpinNetwork:
    """The network of the neurons of `weights`, spin by spin: time and memory grow as their number.

    Raises `ValueError` where the positional bits cannot tell `context` positions apart.
    """
    limit, shares = self_attention_limit(weights, context), np.full(weights.neurons, 1 / weights.neurons)
    return SpinNetwork(jnp.asarray(np.moveaxis(weights.semantic, 2, 0)), jnp.asarray(shares), limit)


def class_sum_network(weights: Weights, context: int, repeats: int = 1) -> ClassSumNetwork:
    """The network in which every neuron of `weights` is there `repeats` times; exact in law, at a cost without N.

    Raises `TypeError` or `ValueError` where the positional bits cannot tell `context` positions apart, and for repeats
    that are no whole number from 1 on.
    """
    if checked_whole_number("repeats", repeats) < 1:
        raise ValueError(f"every neuron must be there once or more often, got repeats {repeats}")
    limit, (signs, counts) = self_attention_limit(weights, context), columns(weights)
    shares, counts = jnp.asarray(counts / weights.neurons), jnp.asarray(repeats * counts, dtype=float)
    return ClassSumNetwork(jnp.asarray(signs), shares, limit, counts)


class SampledTrajectory(eqx.Module):
    """What was drawn, one token after another; samples are the first batch axis.

    - `attention`: `(steps + 1, patterns, samples, *batch)`, the start's first.
    - `overlaps`: `(steps, families, patterns, samples, *batch)`, of every token but the prompt.
    - `end`: the state that the run may be taken up from.
    """

    attention: Float[Array, "times patterns samples *batch"]
    overlaps: Float[Array, "steps families patterns samples *batch"]
    end: State


@usual_settings()
def run(
    network: AbstractNetwork, parameters: Parameters, start: State, *, steps: int, samples: int = 1, key: PRNGKeyArray
) -> SampledTrajectory:
    """`steps` tokens after `start`, in each of `samples` independent networks; no two members of a batch share draws.

    `start` is a state of `network.limit`, in either convention. Raises `TypeError` or `ValueError` where it does not
    fit the network, and where there is nothing to run.
    """
    start = _checked_run(network, parameters, start, steps, samples, key)
    return SampledTrajectory(*_run(network, parameters, start, steps, samples, key, _overlaps))


@usual_settings()
def run_with_spins(
    network: AbstractNetwork, parameters: Parameters, start: State, *, steps: int, samples: int = 1, key: PRNGKeyArray
) -> tuple[SampledTrajectory, Float[Array, "steps neurons samples *batch"]]:
    """The path that `run` returns, and the spins of every token; mean spins where classes are drawn.

    Raises as `run` does.
    """
    start = _checked_run(network, parameters, start, steps, samples, key)
    attention, token, end = _run(network, parameters, start, steps, samples, key, _everything)
    return SampledTrajectory(attention, token.overlaps, end), token.spins


def _overlaps(token: Token) -> Float[Array, "families patterns *batch"]:
    return token.overlaps


def _everything(token: Token) -> Token:
    return token


def _checked_run(
    network: AbstractNetwork, parameters: Parameters, start: State, steps: int, samples: int, key: PRNGKeyArray
) -> State:
    checked_instance("network", network, AbstractNetwork, "as class_sum_network(weights, context) returns it")
    checked_whole_number("steps", steps)
    checked_whole_number("samples", samples)
    checked_key("key", key)
    if steps < 1 or samples < 1:
        raise ValueError(f"a run has a step and a sample at least, got {steps} steps and {samples} samples")
    return checked_fit("start", start, State, network.limit, parameters)


@eqx.filter_jit
def _run(network, parameters, start, steps, samples, key, kept):
    def token(state: State, key: PRNGKeyArray):
        token, state = network.unchecked_step(parameters, state, key)
        return state, (jnp.stack(state.attention), kept(token))

    start = _repeat(broadcast_to_parameters(parameters, start), samples)
    end, (attention, recorded) = jax.lax.scan(token, start, jax.random.split(key, steps))
    return jnp.concatenate([jnp.stack(start.attention)[None], attention]), recorded, end


def _repeat(state: State, samples: int) -> State:
    """`state` repeated along a new first batch axis."""
    return map_batch(state, lambda entry, axis: jnp.repeat(jnp.expand_dims(entry, axis), samples, axis))
