"""Mean-field map of a self-attention network: one step, starts, trajectories.

The attention `A` of the latest tokens generates the next token. Its overlaps with the
patterns join the keys and values in the context, and its query reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .. import checks
from .._jit import jit
from ..checks import checked_array, checked_choice, checked_whole_number, finite_array
from ..codegen import compile_expressions
from .derivation import derive
from .weights import KEY, QUERY, VALUE, Weights


@lru_cache
def compiled(name):
    expression = getattr(derive(), name)
    symbols = {each for each in expression.free_symbols if not each.is_integer}
    return compile_expressions(name, {name: expression}, sorted(symbols, key=str))


class Parameters(eqx.Module):
    """Parameters of the map, numbers or arrays of one shape; equations of arXiv:2406.07247.

    - `beta`: inverse temperature of the output, Eq. (4).
    - `gamma`: inverse temperature times scale of the attention scores, over sqrt(M), Eq. (3).
    - `epsilon`: share of the positions in the overlaps, from 0 to 1, Eq. (1).

    Raises:
        ValueError: If `epsilon` is out of range.
    """

    beta: Float[Array, "*batch"]
    gamma: Float[Array, "*batch"]
    epsilon: Float[Array, "*batch"]

    def __init__(self, beta: ArrayLike, gamma: ArrayLike, epsilon: ArrayLike):
        share, said = finite_array("epsilon", epsilon), f"epsilon must be from 0 to 1, got {epsilon}"
        share = checks.require(share, [checks.Requirement(said, (share >= 0) & (share <= 1))])
        given = finite_array("beta", beta), finite_array("gamma", gamma), share
        self.beta, self.gamma, self.epsilon = jnp.broadcast_arrays(*given)


class State(eqx.Module):
    """State of the map, newest first.

    - `attention`: the latest attentions. The first one generates the next token.
    - `keys`, `values`: m^k and m^v of the tokens before the next one.
    - `position`: position of the next token.
    - `tokens`: number of stored tokens, less than the context.
    """

    attention: Float[Array, "*batch context patterns"]
    keys: Float[Array, "*batch context-1 patterns"]
    values: Float[Array, "*batch context-1 patterns"]
    position: Int[Array, "*batch"]
    tokens: Int[Array, "*batch"]


class SelfAttention(eqx.Module):
    """Self-attention with many neurons, a map of a `State`; Eqs. (2), (5), (6).

    Neurons with equal output weights, up to a sign, form one class, as tanh is odd.

    - `directions`: output weights +-1 of each class.
    - `moments`: sums of the weights of each class, with the signs of its neurons,
      divided by the number of all neurons.
    - `positional`: overlaps of positions with weights.
    """

    directions: Float[Array, "classes patterns"]
    moments: Float[Array, "families classes patterns"]
    positional: Float[Array, "context families patterns"]

    @classmethod
    def from_weights(cls, weights: Weights, context: int) -> SelfAttention:
        """Return the limit of a network of many copies of every neuron.

        `context` is the largest number of tokens that the attention reads, at most
        2**position_bits.
        """
        bits = weights.positional.shape[-1]
        checked_whole_number("context", context, least=1, most=2**bits)
        signs, counts = weights.classes()
        signs = signs * signs[:, :1, :1].astype(float)  # a column and its negative are in one class
        directions, of_column = np.unique(signs[:, 0], axis=0, return_inverse=True)
        moments = np.zeros((len(directions), *signs.shape[1:]))
        np.add.at(moments, of_column.ravel(), counts[:, None, None] / counts.sum() * signs)
        # Positions are binary numbers, most significant bit first, with -1 for 0.
        code = 2.0 * ((np.arange(context)[:, None] >> np.arange(bits)[::-1]) & 1) - 1
        positional = np.einsum("fmp,lp->lfm", weights.positional, code) / bits
        moments = np.swapaxes(moments, 0, 1)  # Eq. (6)
        return cls(*map(jnp.asarray, (directions, moments, positional)))

    @classmethod
    def from_correlations(
        cls, correlations: Mapping[tuple[int, ...], ArrayLike], positional: ArrayLike
    ) -> SelfAttention:
        """Return the network whose weights have given correlations.

        Args:
            correlations: For an odd number of patterns (b, c, ...), from 0, the
                correlations of every weight with the product of these output weights
                (families, patterns). Missing ones are zero.
            positional: Overlaps of positions with weights (context, families, patterns).
        """
        positional = finite_array("positional", positional, "context families patterns")
        patterns = positional.shape[-1]
        numbers = np.arange(2 ** (patterns - 1))[:, None]
        signs = 1.0 - 2 * ((numbers >> np.arange(patterns)[::-1]) & 1)
        moments = np.zeros((4, *signs.shape))
        for subset, given in correlations.items():
            values = checked_array(f"correlations[{subset}]", given)
            if len(subset) % 2 == 0 or not set(subset) <= set(range(patterns)):
                raise ValueError(f"correlations must be of an odd number of patterns, got {subset}")
            if values.shape != (4, patterns):
                raise ValueError(f"correlations[{subset}] must be (4, {patterns}), got {values.shape}")
            product = np.prod(signs[:, list(subset)], axis=1) / len(signs)
            moments += product[:, None] * values[:, None]
        return cls(jnp.asarray(signs), jnp.asarray(moments), positional)

    @property
    def patterns(self) -> int:
        """M, number of patterns per family."""
        return self.directions.shape[1]

    @property
    def context(self) -> int:
        """Largest number of tokens that the attention reads, the period of positions."""
        return self.positional.shape[0]

    def start(
        self, parameters: Parameters, prompt: ArrayLike, convention: Literal["token", "window"] = "token"
    ) -> State:
        """Return the state after a prompt.

        Args:
            parameters: Parameters of the map.
            prompt: Overlaps of the prompt's semantic bits (families, patterns), such as
                `Weights.prompt()`.
            convention: With "token", the prompt is stored like any token, at position 0.
                With "window", as in the published program, only its attention is kept,
                and the next token has position 0.
        """
        checked_choice("convention", convention, ("token", "window"))
        given, shape = checked_array("prompt", prompt), (4, self.patterns)
        if given.shape != shape:
            raise ValueError(f"prompt must have shape {shape}, got {given.shape}")
        overlaps = (1 - parameters.epsilon) * given + parameters.epsilon * self.positional[0]  # Eq. (1)
        # The attention to a single token is its value.
        attention = jnp.zeros((self.context, self.patterns)).at[0].set(overlaps[VALUE])
        blank, stored = jnp.zeros_like(attention[1:]), int(convention == "token" and self.context > 1)
        kept = (blank.at[:1].set(stored * overlaps[family]) for family in (KEY, VALUE))
        position = int(convention == "token") % self.context
        return State(attention, *kept, jnp.asarray(position), jnp.asarray(stored))

    def resume(self, parameters: Parameters, window: ArrayLike, position: ArrayLike = 0) -> State:
        """Return the state with given attentions. Keys and values follow from them.

        Args:
            parameters: Parameters of the map.
            window: Attentions (context, patterns), newest first, as `State.attention`.
            position: Position of the next token.
        """
        window = jnp.asarray(checks.numeric_array("window", window))
        if window.shape != (shape := (self.context, self.patterns)):
            raise ValueError(f"window must be {shape}, got {window.shape}")
        places = (position - jnp.arange(self.context)) % self.context
        stored = jax.vmap(self.overlaps, in_axes=(None, 0, 0))(parameters, window[1:], places[1:])
        return State(window, stored[:, KEY], stored[:, VALUE], places[0], jnp.asarray(self.context - 1))

    def __call__(self, state: State, parameters: Parameters) -> State:
        """Return the state after the next token."""
        return self.attend(state, parameters, self.token(state, parameters))

    def token(self, state: State, parameters: Parameters, key: PRNGKeyArray | None = None) -> Array:
        """Return the overlaps (families, patterns) of the next token."""
        return self.overlaps(parameters, state.attention[0], state.position)

    def overlaps(self, parameters: Parameters, attention: ArrayLike, position: Array | None = None) -> Array:
        """Return m^o, m^v, m^q and m^k of the token after `attention`; Eq. (5).

        Without a position, return the semantic part, (1 - epsilon) <w tanh>.
        """

        def of_family(moments, positional):
            given = {"Omega": self.directions, "C": moments, "A": attention[:, None], "r": positional[:, None]}
            given |= {"beta": parameters.beta, "epsilon": parameters.epsilon}
            return compiled("overlap")(**given)["overlap"][:, 0]

        positional = jnp.zeros((4, self.patterns)) if position is None else self.positional[position]
        return jax.vmap(of_family)(self.moments, positional)

    def attend(self, state: State, parameters: Parameters, overlaps: Array) -> State:
        """Return the state after a token with these overlaps; Eq. (2)."""
        keys = jnp.concatenate([overlaps[KEY][None], state.keys])
        values = jnp.concatenate([overlaps[VALUE][None], state.values])
        mask = jnp.where(jnp.arange(self.context) <= state.tokens, 0.0, -jnp.inf)
        given = {"K": keys, "V": values, "q": overlaps[QUERY][:, None], "ell": mask[:, None]}
        attention = compiled("attention")(**given, gamma=parameters.gamma)["attention"].T
        attention = jnp.concatenate([attention, state.attention[:-1]])
        tokens = jnp.minimum(state.tokens + 1, self.context - 1)
        return State(attention, keys[:-1], values[:-1], (state.position + 1) % self.context, tokens)

    def coordinates(self, state: State) -> Array:
        """Return attentions, which determine the state. `dynamics` perturbs them."""
        return state.attention


class Trajectory(eqx.Module):
    """Recorded tokens.

    - `attention`: the attentions, with the start first.
    - `overlaps`: m^o, m^v, m^q and m^k of every token.
    - `end`: the last state, from which to resume.
    """

    attention: Float[Array, "*batch times patterns"]
    overlaps: Float[Array, "*batch steps families patterns"]
    end: State


@jit
def run(
    network: eqx.Module, start: State, parameters: Parameters, *, steps: int, key: PRNGKeyArray | None = None
) -> Trajectory:
    """Run one orbit. Return every attention and overlap, and the last state.

    Args:
        network: The map, or a `FiniteNetwork`.
        start: The state before the first token.
        parameters: Parameters of the map.
        steps: Number of tokens.
        key: Random key of the spins of a finite network.
    """
    checked_whole_number("steps", steps, least=0)
    checks.checked_instance("start", start, State, "as SelfAttention.start returns it")

    def one(state, key):
        overlaps = network.token(state, parameters, key)
        after = network.attend(state, parameters, overlaps)
        return after, (after.attention[0], overlaps)

    keys = None if key is None else jax.random.split(key, steps)
    end, (attention, overlaps) = jax.lax.scan(one, start, keys, length=steps)
    return Trajectory(jnp.concatenate([start.attention[:1], attention]), overlaps, end)


def stroboscope(
    network: SelfAttention,
    parameters: Parameters,
    scanned: Literal["beta", "gamma", "epsilon"] = "beta",
    tokens: int | None = None,
) -> eqx.Partial:
    """Return the map of a window over some tokens, a `step(window, value)` for `dynamics`.

    Windows are flat arrays (context * patterns,), newest attention first, at position 0.

    Args:
        network: The network.
        parameters: Parameters of the map, as numbers.
        scanned: Name of the parameter with the `value`.
        tokens: Number of tokens, by default the context, one turn of the positions. A
            multiple of the context unless `epsilon` is 0.
    """
    checked_choice("scanned", scanned, ("beta", "gamma", "epsilon"))
    tokens = checked_whole_number("tokens", network.context if tokens is None else tokens, least=1)
    if tokens % network.context and float(parameters.epsilon) != 0:
        raise ValueError(f"tokens={tokens} must be a multiple of {network.context}, the context")
    return eqx.Partial(_after, network, parameters, scanned, tokens)


def _after(network, parameters, scanned, tokens, window, value):
    parameters = eqx.tree_at(lambda at: getattr(at, scanned), parameters, jnp.asarray(value, float))
    state = network.resume(parameters, jnp.reshape(window, (network.context, network.patterns)))
    state = jax.lax.fori_loop(0, tokens, lambda _, at: network(at, parameters), state)
    return state.attention.ravel()
