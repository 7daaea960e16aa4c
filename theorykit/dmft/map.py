"""Mean-field map of a self-attention network: one step, starts, trajectories.

The attention `A` of the latest tokens generates the next token. Its overlaps with the
patterns join the keys and values in the context, a ring in which every token has the
slot of its position, and its query reads them.

A step is one orbit. `jax.vmap` maps it over batch axes, which are first in all results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from .. import checks, dynamics
from .._jit import usual_settings
from ..checks import checked_array, checked_choice, checked_whole_number, finite_array, is_traced
from ..codegen import compile_expressions
from ..codegen.compiled import CompiledFunction
from .derivation import derive
from .weights import FAMILIES, Weights, distinct_columns, positional_overlaps

OUTPUT, VALUE, QUERY, KEY = range(len(FAMILIES))
"""Indices of the four kinds of weights in `FAMILIES`."""

# Overlaps are means of signs, up to rounding.
_MOST = 1 + 1e-12


@lru_cache
def compiled(name: str) -> CompiledFunction:
    """Compile a result of the derivation."""
    expression = getattr(derive(), name)
    symbols = {each for each in expression.free_symbols if not each.is_integer}
    return compile_expressions(name, {name: expression}, sorted(symbols, key=str))


class Parameters(eqx.Module):
    """Parameters of the map, each a number or an array over a batch.

    - `beta`: inverse temperature of the output, Eq. (4).
    - `gamma`: inverse temperature of the attention, Eq. (3).
    - `epsilon`: share of the positions in the overlaps, from 0 to 1, Eq. (1).
    """

    beta: Float[Array, "*batch"]
    gamma: Float[Array, "*batch"]
    epsilon: Float[Array, "*batch"]

    def __init__(self, beta: ArrayLike, gamma: ArrayLike, epsilon: ArrayLike):
        self.beta, self.gamma = finite_array("beta", beta), finite_array("gamma", gamma)
        share = finite_array("epsilon", epsilon)
        said = checks.Requirement(f"epsilon must be from 0 to 1, got {epsilon}", (share >= 0) & (share <= 1))
        self.epsilon = checks.require(share, [said])
        if 0 in self.batch_shape:
            raise ValueError(f"parameters have no entries, their shape is {self.batch_shape}")

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Broadcast shape of the three parameters."""
        return jnp.broadcast_shapes(self.beta.shape, self.gamma.shape, self.epsilon.shape)


def attention_gain(inverse_temperature: ArrayLike, scale: float, patterns: int) -> ArrayLike:
    """Return gamma from the inverse temperature and the scale of attention scores."""
    checked_whole_number("patterns", patterns, least=1)
    return checked_array("inverse_temperature", inverse_temperature) * scale / np.sqrt(patterns)  # Eq. (3)


class State(eqx.Module):
    """State of the map. Rows are positions.

    - `attention`: attentions that generate the token at each position. The latest one
      is at `position`, the position of the next token.
    - `keys`, `values`: m^k and m^v of the stored tokens.
    - `tokens`: number of stored tokens, at most the context.
    """

    attention: Float[Array, "*batch context patterns"]
    keys: Float[Array, "*batch context patterns"]
    values: Float[Array, "*batch context patterns"]
    position: Int[Array, ""]
    tokens: Int[Array, ""]

    @property
    def latest(self) -> Float[Array, "*batch patterns"]:
        """The latest attention."""
        return self.attention[..., self.position, :]

    @property
    def window(self) -> Float[Array, "*batch context patterns"]:
        """The latest attentions, newest first, for `state_from_window`."""
        return in_reverse(self.attention, self.position)


# Axes of a batch of states, whose members have the same position.
STATES = State(0, 0, 0, None, None)


def in_reverse(rows: Array, position: Array) -> Array:
    """Convert rows by position to rows by age, and back. `position` has age 0."""
    return jnp.take(rows, (position - jnp.arange(rows.shape[-2])) % rows.shape[-2], axis=-2)


class SelfAttention(eqx.Module):
    """Self-attention with many neurons, a step of one `State`; Eqs. (2), (5), (6).

    Neurons whose output weights are equal up to a sign form one class, because tanh is
    odd in the mean of w^alpha tanh(beta w^o . A) over neurons.

    - `directions`: output weights +-1 of each class.
    - `moments`: sums of the weights of each class, with the signs of its neurons,
      divided by the number of all neurons.
    - `positional`: overlaps of positions with weights.
    """

    directions: Float[Array, "classes patterns"]
    moments: Float[Array, "families classes patterns"]
    positional: Float[Array, "context families patterns"]

    def __init__(self, directions: ArrayLike, moments: ArrayLike, positional: ArrayLike):
        self.directions = finite_array("directions", directions, "classes patterns")
        self.moments = finite_array("moments", moments, "families classes patterns")
        self.positional = finite_array("positional", positional, "context families patterns")
        shapes = self.directions.shape, self.moments.shape, self.positional.shape[1:]
        if shapes[1:] != ((len(FAMILIES), *shapes[0]), (len(FAMILIES), self.patterns)):
            raise ValueError(f"directions, moments and positional of shapes {shapes} do not fit together")

    @property
    def patterns(self) -> int:
        """M, number of patterns of each family of weights."""
        return self.directions.shape[1]

    @property
    def context(self) -> int:
        """Largest number of tokens that the attention reads, the period of positions."""
        return self.positional.shape[0]

    def __call__(self, state: State, parameters: Parameters) -> State:
        """Return the state after the next token."""
        return self.attend(state, parameters, self.token(parameters, state))

    def token(self, parameters: Parameters, state: State) -> Array:
        """Return the overlaps of the next token."""
        return self.overlaps(parameters, state.latest, self.positional[state.position])

    def overlaps(self, parameters: Parameters, attention: Array, positional: Array) -> Array:
        """Return m^o, m^v, m^q and m^k of the token after `attention`; Eq. (5).

        `positional` are the overlaps of its position (families, patterns).
        """

        def of_family(moments: Array, positional: Array) -> Array:
            given = {"Omega": self.directions, "C": moments, "A": attention[:, None], "r": positional[:, None]}
            found = compiled("overlap")(**given, beta=parameters.beta, epsilon=parameters.epsilon)
            return found["overlap"][:, 0]

        return jax.vmap(of_family)(self.moments, positional)

    def attend(self, state: State, parameters: Parameters, overlaps: Array) -> State:
        """Return the state after a token with these overlaps; Eq. (2)."""
        slot, following = state.position, (state.position + 1) % self.context
        keys, values = state.keys.at[slot].set(overlaps[KEY]), state.values.at[slot].set(overlaps[VALUE])
        tokens = jnp.minimum(state.tokens + 1, self.context)
        mask = jnp.where(jnp.arange(self.context) < tokens, 0.0, -jnp.inf)
        given = {"K": keys, "V": values, "q": overlaps[QUERY][:, None], "ell": mask[:, None]}
        attention = compiled("attention")(**given, gamma=parameters.gamma)["attention"][:, 0]
        return State(state.attention.at[following].set(attention), keys, values, following, tokens)


def self_attention_limit(weights: Weights, context: int) -> SelfAttention:
    """Return the limit of a network whose neurons are all repeated equally often.

    `context` is the largest number of tokens that the attention reads, at most
    2**position_bits.
    """
    signs, counts = distinct_columns(weights)
    signs = signs * signs[:, :1, :1].astype(float)  # a column and its negative are in one class
    directions, of_column = np.unique(signs[:, 0], axis=0, return_inverse=True)
    moments = np.zeros((len(directions), *signs.shape[1:]))
    np.add.at(moments, of_column.ravel(), counts[:, None, None] / counts.sum() * signs)
    return SelfAttention(directions, np.swapaxes(moments, 0, 1), positional_overlaps(weights, context))  # Eq. (6)


def self_attention_from_correlations(
    correlations: Mapping[tuple[int, ...], ArrayLike], positional: ArrayLike
) -> SelfAttention:
    """Return the network whose weights have given correlations.

    tanh is odd, so the map depends on the weights only through the means of products
    w^alpha_a w^o_b w^o_c ... with an odd number of output weights.

    Args:
        correlations: For an odd number of patterns (b, c, ...), from 0, the
            correlations of every weight with the product of these output weights
            (families, patterns). Missing ones are zero.
        positional: Overlaps of positions with weights (context, families, patterns).
    """
    patterns = np.shape(positional)[-1]
    signs = 1 - 2 * ((np.arange(2 ** (patterns - 1))[:, None] >> np.arange(patterns)[::-1]) & 1)
    moments = np.zeros((len(FAMILIES), *signs.shape))
    for subset, given in correlations.items():
        values = np.asarray(checked_array(f"correlations[{subset}]", given))
        if len(subset) % 2 == 0 or len(set(subset) & set(range(patterns))) < len(subset):
            raise ValueError(f"correlations must be of an odd number of the {patterns} patterns, got {subset}")
        if values.shape != (len(FAMILIES), patterns) or np.any(np.abs(values) > _MOST):
            raise ValueError(f"correlations[{subset}] must be (families, patterns) in [-1, 1], got {values}")
        moments += np.prod(signs[:, list(subset)], axis=1)[:, None] * values[:, None] / len(signs)
    return SelfAttention(signs, moments, positional)


def semantic_overlap(model: SelfAttention, parameters: Parameters, attention: Array) -> Array:
    """Return (1 - epsilon) <w tanh> (families, patterns) of the token after `attention`."""
    return model.overlaps(parameters, attention, jnp.zeros(model.positional.shape[1:]))


@usual_settings()
@eqx.filter_jit
def over_batch(function, out_axes, model: SelfAttention, parameters: Parameters, state: State, *keys: Array):
    """Map `function(model, parameters, state, *keys)` over the batch axes of all arguments."""
    checks.checked_instance("state", state, State, "as start returns it")
    expected, found = (model.context, model.patterns), state.attention.shape[-2:]
    if found != expected:
        raise ValueError(f"a state of {found} (tokens, patterns) does not fit a network of {expected}")
    shapes = parameters.batch_shape, state.attention.shape[:-2], *(key.shape for key in keys)
    batch = jnp.broadcast_shapes(*shapes)
    parameters = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, batch), parameters)
    rows = state.attention, state.keys, state.values
    rows = (jnp.broadcast_to(each, (*batch, *expected)) for each in rows)
    for _ in batch:
        function = jax.vmap(function, in_axes=(None, 0, STATES, *(0 for _ in keys)), out_axes=out_axes)
    return function(model, parameters, State(*rows, state.position, state.tokens), *keys)


# ---- starts


@usual_settings()
def start(
    model: SelfAttention, parameters: Parameters, prompt: ArrayLike, convention: Literal["token", "window"] = "token"
) -> State:
    """Return the state after a prompt.

    Args:
        model: The network.
        parameters: Parameters of the map.
        prompt: Overlaps of the prompt's semantic bits (families, patterns), such as
            `weights.prompt()`.
        convention: With "token", the prompt is stored like any token, at position 0.
            With "window", as in the published program, only its attention is kept, and
            the next token has position 0.
    """
    checked_choice("convention", convention, ("token", "window"))
    given = np.asarray(checked_array("prompt", prompt))
    if given.shape != model.moments.shape[::2] or np.any(np.abs(given) > _MOST):
        raise ValueError(f"prompt must be {model.moments.shape[::2]} overlaps in [-1, 1], got shape {given.shape}")
    share = parameters.epsilon[..., None, None]
    overlaps = (1 - share) * given + share * model.positional[0]  # Eq. (1)
    # The attention to a single token is its value.
    value, stored = overlaps[..., VALUE, :], int(convention == "token")
    position, blank = stored % model.context, jnp.zeros((*value.shape[:-1], model.context, model.patterns))
    attention = blank.at[..., position, :].set(value)
    keys = blank.at[..., 0, :].set(stored * overlaps[..., KEY, :])
    values = blank.at[..., 0, :].set(stored * value)
    return State(attention, keys, values, jnp.asarray(position), jnp.asarray(stored))


@usual_settings()
def state_from_window(
    model: SelfAttention, parameters: Parameters, window: ArrayLike, position: ArrayLike = 0
) -> State:
    """Return the state with given attentions. Keys and values follow from them.

    Args:
        model: The network.
        parameters: Parameters of the map.
        window: Attentions `(*batch, context, patterns)`, newest first, as `state.window`.
        position: Position of the next token.
    """
    window = jnp.asarray(checked_array("window", window))
    if window.shape[-2:] != (model.context, model.patterns):
        raise ValueError(f"window of shape {window.shape} must end in {(model.context, model.patterns)}")
    if not is_traced(position):
        checked_whole_number("position", position, least=0, most=model.context - 1)
    attention = in_reverse(window, jnp.asarray(position))
    state = State(attention, attention, attention, jnp.asarray(position), jnp.asarray(model.context))
    return over_batch(_cached, STATES, model, parameters, state)


def _cached(model: SelfAttention, parameters: Parameters, state: State) -> State:
    overlaps = jax.vmap(model.overlaps, in_axes=(None, 0, 0))(parameters, state.attention, model.positional)
    return State(state.attention, overlaps[:, KEY], overlaps[:, VALUE], state.position, state.tokens)


# ---- orbits


class Trajectory(eqx.Module):
    """Recorded tokens.

    - `attention`: the attentions, with the start first.
    - `overlaps`: m^o, m^v, m^q and m^k of every token.
    - `positions`: positions of the tokens.
    - `end`: the last state, from which to resume.
    """

    attention: Float[Array, "*batch times patterns"]
    overlaps: Float[Array, "*batch steps families patterns"]
    positions: Int[Array, " steps"]
    end: State


TRAJECTORIES = Trajectory(0, 0, None, STATES)


def run(model: SelfAttention, parameters: Parameters, start: State, *, steps: int) -> Trajectory:
    """Run `steps` tokens after `start`, and record every attention and overlap."""
    checked_whole_number("steps", steps, least=0)
    return over_batch(eqx.Partial(record, model.token, steps), TRAJECTORIES, model, parameters, start)


def record(token: Callable, steps: int, model: SelfAttention, parameters, start: State, *keys) -> Trajectory:
    """Record tokens whose overlaps are `token(parameters, state, *keys)`."""

    def one(state: State, keys: tuple):
        overlaps = token(parameters, state, *keys)
        after = model.attend(state, parameters, overlaps)
        return after, (after.latest, overlaps)

    keys = tuple(jax.random.split(key, steps) for key in keys)
    end, (attention, overlaps) = jax.lax.scan(one, start, keys, length=steps)
    positions = (start.position + jnp.arange(steps)) % model.context
    return Trajectory(jnp.concatenate([start.latest[None], attention]), overlaps, positions, end)


def advance(model: SelfAttention, parameters: Parameters, state: State, steps: ArrayLike) -> State:
    """Return the state after `steps` more tokens, any number without recompilation."""
    if not is_traced(steps):
        checked_whole_number("steps", steps, least=0)
    return over_batch(eqx.Partial(_advance, jnp.asarray(steps)), STATES, model, parameters, state)


def _advance(steps: Array, model: SelfAttention, parameters: Parameters, state: State) -> State:
    return jax.lax.fori_loop(0, steps, lambda _, at: model(at, parameters), state)


def lyapunov_spectrum(
    model: SelfAttention,
    parameters: Parameters,
    state: State,
    *,
    steps: int,
    exponents: int | None = None,
    blocks: int = 20,
    perturbations: ArrayLike | None = None,
) -> dynamics.LyapunovSpectrum:
    """Compute Lyapunov exponents per token, by `dynamics.lyapunov_spectrum`.

    Positions are periodic and have no exponents.

    Args:
        model, parameters: The network and the parameters of the map.
        state: States with a full context, after any transient.
        steps, exponents, blocks: As in `dynamics.lyapunov_spectrum`, in tokens.
        perturbations: Initial perturbations of the window (exponents, context,
            patterns), newest attention first. Exponents are in their order.
    """
    if not is_traced(state.tokens) and state.tokens < model.context:
        raise ValueError(f"state has {state.tokens} tokens in a context of {model.context}: advance it first")
    window, size = (model.context, model.patterns), model.context * model.patterns
    if perturbations is None:
        count = checked_whole_number("exponents", size if exponents is None else exponents, least=1, most=size)
        perturbations = np.random.default_rng(0).standard_normal((count, *window))
    drawn = np.asarray(checked_array("perturbations", perturbations, "exponents context patterns"))
    if drawn.shape[1:] != window or np.linalg.matrix_rank(drawn.reshape(len(drawn), -1)) < len(drawn):
        raise ValueError(f"perturbations must be independent (exponents, *{window}), got {drawn.shape}")
    return over_batch(eqx.Partial(_spectrum, drawn, steps, blocks), 0, model, parameters, state)


def _spectrum(drawn, steps, blocks, model, parameters, state) -> dynamics.LyapunovSpectrum:
    def from_window(window: Array) -> tuple[Array, ...]:
        at = state_from_window(model, parameters, window, state.position)
        return at.attention, at.keys, at.values

    # Cached keys and values move with the attentions that generated them.
    _, push = jax.linearize(from_window, state.window)
    tangents = State(*jax.vmap(push)(drawn), None, None)
    asked = {"steps": steps, "blocks": blocks, "coordinates": _attention, "perturbations": tangents}
    return dynamics.lyapunov_spectrum(model, state, parameters, **asked)


def _attention(state: State) -> Array:
    return state.attention


def stroboscope(
    model: SelfAttention,
    parameters: Parameters,
    scanned: Literal["beta", "gamma", "epsilon"] = "beta",
    tokens: int | None = None,
) -> eqx.Partial:
    """Return the map of a window over some tokens, a `step(window, value)` for `dynamics`.

    Windows are flat arrays (context * patterns,), newest attention first, at position 0.

    Args:
        model: The network.
        parameters: Parameters of the map, as numbers.
        scanned: Name of the parameter with the `value`.
        tokens: Number of tokens, by default the context, one turn of the positions. A
            multiple of the context unless `epsilon` is 0.
    """
    checked_choice("scanned", scanned, ("beta", "gamma", "epsilon"))
    tokens = checked_whole_number("tokens", model.context if tokens is None else tokens, least=1)
    if parameters.batch_shape:
        raise ValueError(f"parameters must be numbers, got a batch of shape {parameters.batch_shape}")
    if tokens % model.context and float(parameters.epsilon) != 0:
        raise ValueError(f"tokens={tokens} must be a multiple of the context, {model.context}, unless epsilon is 0")
    return eqx.Partial(_after, model, parameters, scanned, tokens)


def _after(model, parameters, scanned, tokens, window, value):
    parameters = eqx.tree_at(lambda at: getattr(at, scanned), parameters, jnp.asarray(value, float))
    window = jnp.reshape(window, (model.context, model.patterns))
    path = run(model, parameters, state_from_window(model, parameters, window), steps=tokens)
    return jnp.concatenate([path.attention[::-1], window[1:]])[: model.context].ravel()
