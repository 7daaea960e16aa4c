"""Mean-field map of a self-attention network: one step, starts, and trajectories.

    weights or correlations -> SelfAttention, a step(state, parameters) -> State; run, advance, lyapunov_spectrum

The attention `A` of the latest tokens generates the next token. Its overlaps with the patterns join the keys and values
in the context, a ring in which every token has the slot of its position, and its query reads them.

A step is one orbit. Functions of `Parameters` with batch axes are mapped over these axes by `jax.vmap`; batch axes are
first in all results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from .. import dynamics
from .._compat import require_float64
from .._jit import usual_settings
from ..checks import checked_array, checked_choice, checked_instance, checked_whole_number, is_traced, numeric_array
from ..codegen import CompiledFunction, compile_expressions
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table
from ..symbolic.documents.values import brief
from .derivation import derive
from .weights import FAMILIES, Weights, distinct_columns, positional_overlaps

OUTPUT, VALUE, QUERY, KEY = range(len(FAMILIES))
"""Indices of the four kinds of weights in `FAMILIES`."""

# Tolerance for the rounding of overlaps, which are means of signs.
_ROUNDING = 1e-12


@lru_cache
def compiled(name: str) -> CompiledFunction:
    """Compile a result of the derivation."""
    expression = getattr(derive(), name)
    symbols = {symbol for symbol in expression.free_symbols if not symbol.is_integer}
    return compile_expressions(name, {name: expression}, sorted(symbols, key=lambda symbol: symbol.name))


class Parameters(DisplayMixin, eqx.Module):
    """Control parameters of the map, each a number or an array over a batch.

    - `beta`: inverse temperature of the output, Eq. (4).
    - `gamma`: inverse temperature of the attention, Eq. (3).
    - `epsilon`: share of the positions in the overlaps, from 0 to 1, Eq. (1).
    """

    beta: Float[Array, "*batch"]
    gamma: Float[Array, "*batch"]
    epsilon: Float[Array, "*batch"]

    def __init__(self, beta: ArrayLike, gamma: ArrayLike, epsilon: ArrayLike):
        require_float64()
        for name, given in (("beta", beta), ("gamma", gamma), ("epsilon", epsilon)):
            values = numeric_array(name, given)
            if not is_traced(values):
                wrong = ~np.isfinite(values) | ((name == "epsilon") & ((values < 0) | (values > 1)))
                if 0 in values.shape or np.any(wrong):
                    kind = "between 0 and 1" if name == "epsilon" else "finite"
                    raise ValueError(
                        f"{name} must be {kind}, got {np.asarray(values)[wrong] if wrong.size else values}"
                    )
            setattr(self, name, jnp.asarray(values, dtype=float))
        jnp.broadcast_shapes(self.beta.shape, self.gamma.shape, self.epsilon.shape)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Broadcast shape of the three parameters."""
        return jnp.broadcast_shapes(self.beta.shape, self.gamma.shape, self.epsilon.shape)

    def _view(self) -> Iterator[Block]:
        yield Table(tuple((name, brief(getattr(self, name))) for name in ("beta", "gamma", "epsilon")))


def attention_gain(inverse_temperature: ArrayLike, scale: float, patterns: int) -> ArrayLike:
    """Return gamma from the inverse temperature of the attention and the scale of its scores; Eq. (3).

    Example:
        >>> from theorykit import dmft
        >>> float(dmft.attention_gain(2.0, 100.0, patterns=4))
        100.0
    """
    checked_whole_number("patterns", patterns, least=1)
    return checked_array("inverse_temperature", inverse_temperature) * scale / np.sqrt(patterns)  # Eq. (3)


class State(eqx.Module):
    """State of the map: the latest attentions, and the keys and values in the context, by position.

    - `attention` (*batch, context, patterns): at each position, the attention that generates its token. The latest one,
      at `position`, generates the next token.
    - `keys`, `values` (*batch, context, patterns): m^k and m^v of the token at each position.
    - `position`: position of the next token.
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
        """The latest attentions, newest first. `state_from_window` resumes from them with other parameters."""
        return in_reverse(self.attention, self.position)

    def _of_batch(self, shape: tuple[int, ...]) -> State:
        """Return the state of every member of a batch."""
        floats = (self.attention, self.keys, self.values)
        return State(*(jnp.broadcast_to(x, (*shape, *x.shape[-2:])) for x in floats), self.position, self.tokens)


# Axes of a batch of states, whose members have the same position.
STATES = State(0, 0, 0, None, None)


def in_reverse(rows: Float[Array, "*batch context patterns"], position: Int[Array, ""]) -> Array:
    """Convert rows by position to rows by age, and back: the row at `position` has age 0."""
    return jnp.take(rows, (position - jnp.arange(rows.shape[-2])) % rows.shape[-2], axis=-2)


class SelfAttention(eqx.Module):
    """Self-attention network in the limit of many neurons, a map of one `State`; Eqs. (2), (5), (6).

    The mean of w^alpha tanh(beta w^o . A) over neurons is a sum over classes of neurons whose output weights are equal
    up to a sign, because tanh is odd.

    - `directions` (classes, patterns): output weights +-1 of each class.
    - `moments` (families, classes, patterns): sums of the weights of the neurons in each class, with the signs of the
      neurons, divided by the number of all neurons.
    - `positional` (context, families, patterns): overlaps of each position with the positional weights.
    """

    directions: Float[Array, "classes patterns"]
    moments: Float[Array, "families classes patterns"]
    positional: Float[Array, "context families patterns"]

    def __init__(self, directions: ArrayLike, moments: ArrayLike, positional: ArrayLike):
        require_float64()
        self.directions = jnp.asarray(checked_array("directions", directions, "classes patterns"), float)
        self.moments = jnp.asarray(checked_array("moments", moments), float)
        self.positional = jnp.asarray(checked_array("positional", positional), float)
        families = (len(FAMILIES), self.patterns)
        if self.moments.shape != (len(FAMILIES), *self.directions.shape):
            raise ValueError(f"moments of shape {self.moments.shape} do not fit directions {self.directions.shape}")
        if self.positional.shape[1:] != families or not self.context:
            raise ValueError(f"positional must be (context, *{families}), got shape {self.positional.shape}")

    @property
    def patterns(self) -> int:
        """M, number of patterns of each family of weights."""
        return self.directions.shape[1]

    @property
    def context(self) -> int:
        """Largest number of tokens that the attention reads. Positions have this period."""
        return self.positional.shape[0]

    def __call__(self, state: State, parameters: Parameters) -> State:
        """Return the state after the next token."""
        overlaps = self.overlaps(parameters, state.latest, self.positional[state.position])
        return self.attend(state, parameters, overlaps)

    def overlaps(
        self, parameters: Parameters, attention: Float[Array, " patterns"], positional: ArrayLike
    ) -> Float[Array, "families patterns"]:
        """Return m^o, m^v, m^q and m^k of the token after `attention`, at a position with these overlaps; Eq. (5)."""

        def of_family(moments: Array, positional: Array) -> Array:
            given = {"Omega": self.directions, "C": moments, "A": attention[:, None], "r": positional[:, None]}
            found = compiled("overlap")(**given, beta=parameters.beta, epsilon=parameters.epsilon)
            return found["overlap"][:, 0]

        return jax.vmap(of_family)(self.moments, positional)

    def attend(self, state: State, parameters: Parameters, overlaps: Float[Array, "families patterns"]) -> State:
        """Return the state after a token with these overlaps: store it, and update the attention; Eq. (2)."""
        slot, following = state.position, (state.position + 1) % self.context
        keys, values = state.keys.at[slot].set(overlaps[KEY]), state.values.at[slot].set(overlaps[VALUE])
        tokens = jnp.minimum(state.tokens + 1, self.context)
        mask = jnp.where(jnp.arange(self.context) < tokens, 0.0, -jnp.inf)
        given = {"K": keys, "V": values, "q": overlaps[QUERY][:, None], "ell": mask[:, None]}
        attention = compiled("attention")(**given, gamma=parameters.gamma)["attention"][:, 0]
        return State(state.attention.at[following].set(attention), keys, values, following, tokens)


def self_attention_limit(weights: Weights, context: int) -> SelfAttention:
    """Return the limit of the network of `weights` in which all its neurons are repeated equally often.

    `context` is the largest number of tokens that the attention reads, at most 2**position_bits.
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
    """Return the network whose weights have given correlations, without the weights themselves.

    tanh is odd, so the map depends on the weights only through <w^alpha_a w^o_b w^o_c ...> with an odd number of output
    weights: one for one or two patterns, one and three for three patterns.

    Args:
        correlations: For each odd number of patterns (b, c, ...), counted from 0, the correlations of every weight with
            the product of these output weights (families, patterns). Missing ones are zero.
        positional: Overlaps of each position with the positional weights (context, families, patterns).
    """
    patterns = np.shape(positional)[-1]
    signs = 1 - 2 * ((np.arange(2 ** (patterns - 1))[:, None] >> np.arange(patterns)[::-1]) & 1)
    moments = np.zeros((len(FAMILIES), *signs.shape))
    for subset, given in correlations.items():
        values = np.asarray(checked_array(f"correlations[{subset}]", given))
        if len(subset) % 2 == 0 or not set(subset) <= set(range(patterns)) or len(set(subset)) < len(subset):
            raise ValueError(f"correlations must be of an odd number of the {patterns} patterns, got {subset}")
        if values.shape != (len(FAMILIES), patterns) or np.any(np.abs(values) > 1 + _ROUNDING):
            raise ValueError(f"correlations[{subset}] must be (families, patterns) in [-1, 1], got {values.shape}")
        moments += np.prod(signs[:, list(subset)], axis=1)[:, None] * values[:, None] / len(signs)
    return SelfAttention(signs, moments, positional)


def semantic_overlap(
    model: SelfAttention, parameters: Parameters, attention: Float[Array, " patterns"]
) -> Float[Array, "families patterns"]:
    """Return the overlaps of the token after `attention` without the share of positions, (1 - epsilon) <w tanh>."""
    return model.overlaps(parameters, attention, jnp.zeros(model.positional.shape[1:]))


def over_batch(function: Callable, out_axes: Any, parameters: Parameters, state: State, *more: Array) -> Any:
    """Map `function(parameters, state, *more)` over the batch axes of all arguments."""
    shapes = (parameters.batch_shape, state.attention.shape[:-2], *(each.shape for each in more))
    batch = jnp.broadcast_shapes(*shapes)
    parameters = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, batch), parameters)
    for _ in batch:
        function = jax.vmap(function, in_axes=(0, STATES, *(0 for _ in more)), out_axes=out_axes)
    return function(parameters, state._of_batch(batch), *more)


def check_fits(model: SelfAttention, parameters: Parameters, state: State) -> None:
    """Raise an error unless the arguments are of their types, and the state has the shape of the network."""
    checked_instance("model", model, SelfAttention)
    checked_instance("parameters", parameters, Parameters)
    checked_instance("state", state, State, "as start returns it")
    expected, found = (model.context, model.patterns), state.attention.shape[-2:]
    if found != expected:
        raise ValueError(f"a state of {found} (tokens, patterns) does not fit a network of {expected}")


# ---- starts


@usual_settings()
def start(
    model: SelfAttention,
    parameters: Parameters,
    prompt: ArrayLike,
    convention: Literal["token", "window"] = "token",
) -> State:
    """Return the state after a prompt.

    Args:
        model: The network.
        parameters: Parameters of the map.
        prompt: Overlaps of the prompt's semantic bits (families, patterns), such as `pattern_prompt(weights)`.
        convention: With "token", the prompt is stored like any token, at position 0. With "window", as in the published
            program, only its attention is kept, and the next token has position 0.
    """
    checked_choice("convention", convention, ("token", "window"))
    given = np.asarray(checked_array("prompt", prompt))
    if given.shape != model.moments.shape[::2] or np.any(np.abs(given) > 1 + _ROUNDING):
        raise ValueError(f"prompt must be {model.moments.shape[::2]} overlaps in [-1, 1], got shape {given.shape}")
    share = parameters.epsilon[..., None, None]
    overlaps = (1 - share) * given + share * model.positional[0]  # Eq. (1)
    value, key = (overlaps[..., family, :] for family in (VALUE, KEY))
    blank = jnp.zeros((*value.shape[:-1], model.context, model.patterns))
    if convention == "window":
        return State(blank.at[..., 0, :].set(value), blank, blank, jnp.asarray(0), jnp.asarray(0))
    following = 1 % model.context
    return State(
        blank.at[..., following, :].set(value),
        blank.at[..., 0, :].set(key),
        blank.at[..., 0, :].set(value),
        jnp.asarray(following),
        jnp.asarray(1),
    )


@usual_settings()
def state_from_window(
    model: SelfAttention, parameters: Parameters, window: ArrayLike, position: ArrayLike = 0
) -> State:
    """Return the state with given attentions, and the keys and values that follow from them.

    Args:
        model: The network.
        parameters: Parameters of the map.
        window: Attentions (*batch, context, patterns), newest first, such as `state.window`.
        position: Position of the next token.
    """
    window = jnp.asarray(checked_array("window", window), float)
    if window.shape[-2:] != (model.context, model.patterns):
        raise ValueError(f"window of shape {window.shape} must end in {(model.context, model.patterns)}")
    if not is_traced(position):
        checked_whole_number("position", position, least=0, most=model.context - 1)
    position = jnp.asarray(position)
    attention = in_reverse(window, position)
    batch = jnp.broadcast_shapes(parameters.batch_shape, window.shape[:-2])
    state = State(attention, attention, attention, position, jnp.asarray(model.context))

    def cached(parameters: Parameters, state: State) -> State:
        overlaps = jax.vmap(model.overlaps, in_axes=(None, 0, 0))(parameters, state.attention, model.positional)
        return eqx.tree_at(lambda at: (at.keys, at.values), state, (overlaps[:, KEY], overlaps[:, VALUE]))

    return over_batch(cached, STATES, parameters, state._of_batch(batch))


# ---- orbits


class Trajectory(eqx.Module):
    """Result of `run`, which explains the attributes."""

    attention: Float[Array, "*batch times patterns"]
    overlaps: Float[Array, "*batch steps families patterns"]
    positions: Int[Array, " steps"]
    end: State


@usual_settings()
@eqx.filter_jit
def run(model: SelfAttention, parameters: Parameters, start: State, *, steps: int) -> Trajectory:
    """Run `steps` tokens after `start`, and record every attention and overlap.

    Returns:
        A trajectory with these attributes:

        - `attention` (*batch, steps + 1, patterns): the attentions, with the start first.
        - `overlaps` (*batch, steps, families, patterns): m^o, m^v, m^q and m^k of every token.
        - `positions` (steps,): positions of the tokens.
        - `end`: the last state, from which to resume.

    Example:
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> weights = dmft.published_weights()
        >>> model = dmft.self_attention_limit(weights, context=4)
        >>> parameters = dmft.Parameters(beta=[0.5, 1.4], gamma=127.0, epsilon=0.02)
        >>> start = dmft.start(model, parameters, dmft.pattern_prompt(weights))
        >>> dmft.run(model, parameters, start, steps=50).attention.shape  # (orbits, tokens, patterns)
        (2, 51, 3)
    """
    check_fits(model, parameters, start)
    checked_whole_number("steps", steps, least=0)

    def one(parameters: Parameters, start: State) -> tuple[Array, Array, State]:
        def token(state: State, _):
            overlaps = model.overlaps(parameters, state.latest, model.positional[state.position])
            after = model.attend(state, parameters, overlaps)
            return after, (after.latest, overlaps)

        end, (attention, overlaps) = jax.lax.scan(token, start, None, length=steps)
        return jnp.concatenate([start.latest[None], attention]), overlaps, end

    attention, overlaps, end = over_batch(one, (0, 0, STATES), parameters, start)
    return Trajectory(attention, overlaps, (start.position + jnp.arange(steps)) % model.context, end)


@usual_settings()
def advance(model: SelfAttention, parameters: Parameters, state: State, steps: ArrayLike) -> State:
    """Return the state after `steps` more tokens. Other numbers of steps do not recompile the function."""
    check_fits(model, parameters, state)
    if not is_traced(steps):
        checked_whole_number("steps", steps, least=0)
    return _advance(model, parameters, state, jnp.asarray(steps))


@eqx.filter_jit
def _advance(model: SelfAttention, parameters: Parameters, state: State, steps: Array) -> State:
    def one(parameters: Parameters, state: State) -> State:
        return jax.lax.fori_loop(0, steps, lambda _, at: model(at, parameters), state)

    return over_batch(one, STATES, parameters, state)


@usual_settings()
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
    """Compute the Lyapunov exponents per token of the orbits from `state`, by `dynamics.lyapunov_spectrum`.

    Positions are periodic and have no exponents.

    Args:
        model, parameters: The network and the parameters of the map.
        state: States with a full context, after any transient.
        steps, exponents, blocks: As in `dynamics.lyapunov_spectrum`, in tokens.
        perturbations: Initial perturbations of the window (exponents, context, patterns), newest attention first.
            Exponents are then in their order.
    """
    check_fits(model, parameters, state)
    if not is_traced(state.tokens) and state.tokens < model.context:
        raise ValueError(
            f"state must have a full context of {model.context} tokens, but has {state.tokens}: advance it"
        )
    size = model.context * model.patterns
    if perturbations is None:
        count = size if exponents is None else checked_whole_number("exponents", exponents, least=1, most=size)
        drawn = np.random.default_rng(0).standard_normal((count, model.context, model.patterns))
    else:
        drawn = checked_array("perturbations", perturbations)
        is_basis = drawn.shape[1:] == (model.context, model.patterns)
        if not is_basis or np.linalg.matrix_rank(drawn.reshape(-1, size)) < len(drawn):
            raise ValueError(f"perturbations must be independent (exponents, context, patterns), got {drawn.shape}")
    return _spectrum(model, parameters, state, drawn, steps, blocks)


@eqx.filter_jit
def _spectrum(model, parameters, state, drawn, steps, blocks) -> dynamics.LyapunovSpectrum:
    def one(parameters: Parameters, state: State) -> dynamics.LyapunovSpectrum:
        def from_window(window: Array) -> tuple[Array, ...]:
            at = state_from_window(model, parameters, window, state.position)
            return at.attention, at.keys, at.values

        # Cached keys and values move with the attentions that generated them.
        _, push = jax.linearize(from_window, state.window)
        tangents = State(*jax.vmap(push)(drawn), None, None)
        of_window = {"coordinates": _attention, "perturbations": tangents}
        return dynamics.lyapunov_spectrum(model, state, parameters, steps=steps, blocks=blocks, **of_window)

    return over_batch(one, 0, parameters, state)


def _attention(state: State) -> Array:
    return state.attention


def stroboscope(
    model: SelfAttention,
    parameters: Parameters,
    scanned: Literal["beta", "gamma", "epsilon"] = "beta",
    tokens: int | None = None,
) -> eqx.Partial:
    """Return the map of a window of attentions over some tokens, as a function of one parameter.

    It is a `step(window, value)` for `theorykit.dynamics`. Windows are flat arrays (context * patterns,), newest
    attention first, at position 0.

    Args:
        model: The network.
        parameters: Parameters of the map, as numbers.
        scanned: Name of the parameter.
        tokens: Number of tokens. The default is the context, one turn of the positions. It must be a multiple of the
            context unless `epsilon` is 0.
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
    state = state_from_window(model, parameters, window, jnp.asarray(0))
    path = run(model, parameters, state, steps=tokens)
    return jnp.concatenate([path.attention[::-1], window[1:]])[: model.context].ravel()
