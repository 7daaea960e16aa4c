"""Mean-field map of a self-attention network: parameters, states, starts, trajectories, and whole turns of the map.

    weights -> ColumnLaw, positional overlaps -> SelfAttention -> advance(model, parameters, state, steps) -> state

Any number of states are iterated in parallel. Batch axes are the last axes of arrays, and parameters broadcast against
them. The context is a ring buffer, in which each token has the slot of its position.

A run starts from a window of attentions, or from a prompt in one of two conventions. In the token-exact convention, the
prompt is the token at position 0 and is stored like any other token. In the window convention, which the published
program uses, the prompt attends only to itself. Its value is the first attention, the prompt is not stored, and the
next token has position 0.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial, reduce
from typing import Annotated, Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ..checks import (
    Count,
    Index,
    Number,
    Requirement,
    array_module,
    check_is_number,
    check_is_whole,
    checked_arguments,
    checked_array,
    checked_instance,
    checked_whole_number,
    counted,
    finite_entries,
    is_traced,
    numeric_array,
    refuse_known,
    require,
)
from ..codegen import BATCH, CompiledFunction, compile_expressions
from ..codegen.batch import Matrix, column, long_matrix, matrix
from ..precision import require_float64
from ..settings import usual_settings
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..symbolic.documents.values import brief, curves
from .derivation.derivation import derive
from .weights import FAMILIES, ColumnLaw, Weights, column_law, positional_overlaps

OUTPUT, VALUE, QUERY, KEY = range(len(FAMILIES))
"""Indices of the four kinds of weights in `FAMILIES`."""

# Largest parameter. Scores do not overflow, because overlaps are at most one.
_LARGEST = 1e300
# Tolerance for the rounding of overlaps, which are means of signs.
_ROUNDING = 1e-12
# Smallest number of orbits for which a separate thread pays off.
_FEWEST = 64
# Smallest number of tokens for which threads pay off.
_MANY = 10_000
# Number of tokens in a plot.
_SHOWN = 120

Found, Kept = TypeVar("Found"), TypeVar("Kept")
Family = Annotated[int, partial(checked_whole_number, least=0, most=len(FAMILIES) - 1)]
Values = Annotated[Any, checked_array]

# Results of each compiled function: the letter in its formula, and the attribute of the derived theory.
_OUTPUTS = {
    "overlap": {"m": "overlap"},  # Eqs. (5), (6)
    "attention": {"A": "attention"},  # Eq. (2)
    "overlap_response": {"D": "overlap_response"},
    "attention_response": {"s": "attention_weights", "G": "attention_response"},
    "row_response": {"J": "row_response"},  # Eq. (8)
    "query_response": {"J": "query_response"},  # Eq. (8)
    "noise": {"Q": "noise"},  # Eq. (9)
}


@lru_cache
def compiled(name: str) -> CompiledFunction:
    """Compile a part of the derived map or of its responses, for one state or for a batch."""
    outputs = {letter: getattr(derive(), field) for letter, field in _OUTPUTS[name].items()}
    symbols = {symbol for expression in outputs.values() for symbol in expression.free_symbols if not symbol.is_integer}
    return compile_expressions(name, outputs, sorted(symbols, key=lambda symbol: symbol.name), BATCH)


class Parameters(DisplayMixin, eqx.Module):
    """Control parameters of the map, each a number or an array over a batch.

    - `beta`: inverse temperature of the output, Eq. (4).
    - `gamma`: inverse temperature of the attention, Eq. (3).
    - `epsilon`: share of the positions in the overlaps, from 0 to 1, Eq. (1).

    Example:
        >>> from theorykit import dmft
        >>> dmft.Parameters(beta=1.27, gamma=127.0, epsilon=0.02)
        Parameters of the map.
        beta     1.27  inverse temperature of the output
        gamma    127   inverse temperature of the attention
        epsilon  0.02  share of the positions
    """

    beta: Float[Array, "*batch"]
    gamma: Float[Array, "*batch"]
    epsilon: Float[Array, "*batch"]

    def __init__(self, beta: ArrayLike, gamma: ArrayLike, epsilon: ArrayLike):
        require_float64()
        given = {"beta": beta, "gamma": gamma, "epsilon": epsilon}
        given = {name: numeric_array(name, value) for name, value in given.items()}
        arrays = {name: jnp.asarray(values, dtype=float) for name, values in given.items()}
        conditions = [each for name, values in given.items() for each in _in_range(name, values)]
        for name, array in require(arrays, conditions).items():
            setattr(self, name, array)
        common_batch_shape(**{name: array.shape for name, array in arrays.items()})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Broadcast shape of the three parameters."""
        return jnp.broadcast_shapes(self.beta.shape, self.gamma.shape, self.epsilon.shape)

    def _view(self) -> Iterator[Block]:
        yield Text(f"Parameters of the map{_of_batch(self.batch_shape)}.")
        meanings = {
            "beta": "inverse temperature of the output",
            "gamma": "inverse temperature of the attention",
            "epsilon": "share of the positions",
        }
        yield Table(tuple((name, brief(getattr(self, name)), said) for name, said in meanings.items()))


def _of_batch(shape: tuple[int, ...]) -> str:
    return f", a batch of shape {shape}" if shape else ""


def _in_range(name: str, values: Any, called: str | None = None) -> Iterator[Requirement]:
    """Yield the conditions on values of the parameter `name`. Error messages use the name `called` if it is given."""
    called = name if called is None else called
    if 0 in values.shape:
        raise ValueError(f"{called} must not be empty, got shape {values.shape}")
    limits = {
        "finite": array_module(values).isfinite(values),
        "of a size at which scores do not overflow": abs(values) <= _LARGEST,
    }
    if name == "epsilon":
        limits["a share between 0 and 1"] = (values >= 0) & (values <= 1)
    for limit, holds in limits.items():
        message = f"{called} must be {limit}"

        def counted(message: str = message, holds: Any = holds) -> str:
            wrong = np.asarray(values)[~holds]
            return f"{message}, but {wrong.size} of {np.size(values)} values are not: {wrong.flat[0]:g}"

        yield Requirement(message, holds, counted)


@checked_arguments
def attention_gain(inverse_temperature: Values, scale: Number, patterns: Count) -> ArrayLike:
    """Return gamma from the inverse temperature of the attention and the scale of its scores; Eq. (3).

    Example:
        >>> from theorykit import dmft
        >>> float(dmft.attention_gain(2.0, 100.0, patterns=4))
        100.0
    """
    if not inverse_temperature.size:
        raise ValueError(f"inverse_temperature must not be empty, got shape {inverse_temperature.shape}")
    return inverse_temperature * scale / np.sqrt(patterns)  # Eq. (3)


class State(DisplayMixin, eqx.Module):
    """State of the map, for a batch of networks: the attention, and the keys and values in the context.

    - `attention`: A, as one array `(*batch)` per pattern.
    - `keys`, `values`: m^k and m^v of the tokens in the context, as one array `(context, *batch)` per pattern, ordered
      by position.
    - `position`: position of the next token.
    - `tokens`: number of stored tokens, at most the context.
    """

    attention: tuple[Float[Array, "*batch"], ...]
    keys: tuple[Float[Array, "context *batch"], ...]
    values: tuple[Float[Array, "context *batch"], ...]
    position: Int[Array, ""]
    tokens: Int[Array, ""]

    @property
    def context(self) -> int:
        """Number of slots of the context. Each slot stores the key and the value of a token."""
        return self.keys[0].shape[0]

    @property
    def patterns(self) -> int:
        """M, the number of patterns in each family of weights."""
        return len(self.attention)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of networks; empty for a single network."""
        return self.attention[0].shape

    def _view(self) -> Iterator[Block]:
        stored = f"{int(self.tokens)} of {self.context} tokens remembered"
        yield Text(f"State of the map, {stored}{_of_batch(self.batch_shape)}.")
        rows = [(f"attention to pattern {number}", brief(each)) for number, each in enumerate(self.attention, 1)]
        yield Table((*rows, ("position of the next token", str(int(self.position)))))
        yield Text("Continue with `dmft.run(model, parameters, state, steps=...)`.")


class Window(DisplayMixin, eqx.Module):
    """The most recent attentions of a run, from which it can be resumed with the same or other parameters.

    - `attention` `(context, patterns, *batch)`: attentions, newest first.
    - `position`: position of the next token, from 0 to context - 1.
    """

    attention: Float[Array, "context patterns *batch"]
    position: Int[Array, ""]

    def __init__(self, attention: ArrayLike, position: ArrayLike = 0):
        require_float64()
        attention = numeric_array("attention", attention)
        if np.ndim(attention) < 2 or 0 in np.shape(attention):
            raise ValueError(f"attention must be (context, patterns, *batch), got shape {np.shape(attention)}")
        conditions = [finite_entries("attention", attention)]
        if is_traced(position):
            check_is_whole("position", position)
            is_place = (position >= 0) & (position < len(attention))
            conditions.append(Requirement(f"position must be from 0 to {len(attention) - 1}", is_place))
        else:
            position = checked_whole_number("position", position, least=0, most=len(attention) - 1)
        arrays = jnp.asarray(attention, dtype=float), jnp.asarray(position, dtype=int)
        self.attention, self.position = require(arrays, conditions)

    @property
    def context(self) -> int:
        """Number of attentions in the window, one per token of the context."""
        return self.attention.shape[0]

    @property
    def patterns(self) -> int:
        """M, number of patterns of each family of weights."""
        return self.attention.shape[1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of networks; empty for a single network."""
        return self.attention.shape[2:]

    def _view(self) -> Iterator[Block]:
        yield Text(f"Window of the {self.context} most recent attentions{_of_batch(self.batch_shape)}.")
        rows = [
            (f"latest attention to pattern {number}", brief(each)) for number, each in enumerate(self.attention[0], 1)
        ]
        yield Table((*rows, ("position of the next token", str(int(self.position)))))
        yield Text(
            "Pass it to `dmft.lyapunov_spectrum`. `dmft.state_from_window(model, parameters, window)` returns a state "
            "for `dmft.run`."
        )


_FromState = Annotated[
    State,
    partial(checked_instance, kind=State, example="state_from_window(model, parameters, window) makes one of a Window"),
]


class SelfAttention(DisplayMixin, eqx.Module):
    """Self-attention network in the limit of many neurons; Eqs. (2), (5) of Poc-Lopez and Aguilera.

    - `directions` `(classes, patterns)`, `moments` `(families, classes, patterns)`: the fields of the `ColumnLaw` of
      the weights.
    - `positional` `(context, families, patterns)`: overlaps of each position with the positional weights.
    """

    directions: Float[Array, "classes patterns"]
    moments: Float[Array, "families classes patterns"]
    positional: Float[Array, "context families patterns"]

    @checked_arguments
    def __init__(self, law: ColumnLaw, positional: Values):
        require_float64()
        if positional.shape[1:] != (len(FAMILIES), law.directions.shape[1]) or not len(positional):
            shape = f"(context, {len(FAMILIES)}, {law.directions.shape[1]})"
            raise ValueError(f"positional must have shape {shape}, got {positional.shape}")
        self.directions, self.moments = jnp.asarray(law.directions), jnp.asarray(law.moments)
        self.positional = jnp.asarray(positional, dtype=float)

    @property
    def patterns(self) -> int:
        """M, number of patterns of each family of weights."""
        return self.directions.shape[1]

    @property
    def context(self) -> int:
        """Largest number of tokens that the attention reads. Positions have this period."""
        return self.positional.shape[0]

    def _view(self) -> Iterator[Block]:
        yield Text("Self-attention network of 1-bit neurons, in the limit of many neurons.")
        yield Table(
            (
                ("patterns of each family of weights", str(self.patterns)),
                ("tokens in the context", str(self.context)),
                ("classes of neurons with equal output weights", str(len(self.directions))),
            )
        )
        yield Text("Start with `dmft.token_start(model, parameters, prompt)`, then call `dmft.run`.")


@checked_arguments
def self_attention_limit(weights: Weights, context: int) -> SelfAttention:
    """Return the limit of the network of `weights` in which all its neurons are repeated equally often.

    Example:
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> dmft.self_attention_limit(dmft.published_weights(), context=4)
        Self-attention network of 1-bit neurons, in the limit of many neurons.
        patterns of each family of weights            3
        tokens in the context                         4
        classes of neurons with equal output weights  3
        Start with dmft.token_start(model, parameters, prompt), then call dmft.run.
    """
    return SelfAttention(column_law(weights), positional_overlaps(weights, context))


def fitting(name: str, start: Any, model: SelfAttention, *parameters: Parameters) -> Any:
    """Return `start`, a finite state or window, after checks that it fits `model` and the batch of `parameters`.

    A start of a network with the same shapes but other weights is not detected.
    """
    require_float64()
    expected, found = (model.context, model.patterns), (start.context, start.patterns)
    if found != expected:
        raise ValueError(f"a {name} of {found} (tokens, patterns) does not fit a network of {expected}")
    for given in parameters:
        common_batch_shape(**{"parameters": given.batch_shape, name: start.batch_shape})
    position = start.position if is_traced(start.position) else int(start.position)
    conditions = [
        Requirement(f"{name} must contain finite numbers", array_module(leaf).isfinite(leaf))
        for leaf in jax.tree.leaves(start)
    ]
    is_place = (position >= 0) & (position < model.context)
    message = f"{name} must be at a position from 0 to {model.context - 1}"
    return require(start, [*conditions, Requirement(message, is_place)])


def common_batch_shape(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast the shapes of the named arguments."""
    try:
        return jnp.broadcast_shapes(*shapes.values())
    except ValueError:
        told = ", ".join(f"{name} has {shape}" for name, shape in shapes.items())
        raise ValueError(f"batch shapes do not broadcast: {told}") from None


# ---- one token, without checks


def overlap(
    model: SelfAttention, family: int, parameters: Parameters, attention: tuple[Array, ...], position: Int[Array, "*_"]
) -> tuple[Float[Array, "*batch"], ...]:
    """Return m of one family, by pattern, for the token at `position` that follows `attention`; Eq. (5)."""
    result = compiled("overlap")(
        Omega=matrix(model.directions),
        C=matrix(model.moments[family]),
        A=column(attention),
        r=column(tuple(jnp.moveaxis(model.positional[position, family], -1, 0))),
        beta=parameters.beta,
        epsilon=parameters.epsilon,
    )
    return result["m"].column


def next_state(model: SelfAttention, parameters: Parameters, state: State) -> State:
    """Return the state after the next token, whose query, key and value follow from the current attention."""
    key, value, query = (
        overlap(model, family, parameters, state.attention, state.position) for family in (KEY, VALUE, QUERY)
    )
    return attend(parameters, store(state, key, value), query)


def attend(parameters: Parameters, state: State, query: tuple[Array, ...]) -> State:
    """Update the attention for the last stored token and its `query`, and advance the position."""
    result = compiled("attention")(q=column(query), gamma=parameters.gamma, **read_memory(state))
    position = (state.position + 1) % state.context
    return State(result["A"].column, state.keys, state.values, position, state.tokens)


def store(state: State, key: tuple[Array, ...], value: tuple[Array, ...]) -> State:
    """Store the key and value of the token at `state.position` in the context."""
    keys, values = with_token(state.keys, state.position, key), with_token(state.values, state.position, value)
    return State(state.attention, keys, values, state.position, jnp.minimum(state.tokens + 1, state.context))


def with_token(kept: Kept, position: Int[Array, ""], token: Any) -> Kept:
    """Store a token in the slot of its position, in arrays over the slots of the context."""
    return jax.tree.map(lambda slots, one: slots.at[position].set(one, mode="promise_in_bounds"), kept, token)


def read_memory(state: State) -> dict[str, Matrix]:
    """Return keys K and values V of the context, and the mask `ell` of the scores, which is -inf for empty slots."""
    context, *batch = state.keys[0].shape
    live = jnp.where(jnp.arange(context) < state.tokens, 0.0, -jnp.inf)
    return {
        "K": long_matrix(state.keys),
        "V": long_matrix(state.values),
        "ell": long_matrix([live.reshape(context, *(1 for _ in batch))]),
    }


@checked_arguments
def semantic_overlap(
    model: SelfAttention, family: Family, parameters: Parameters, attention: Values
) -> Float[Array, "patterns *batch"]:
    """Return the contribution of semantic bits to the overlap of one family, (1 - epsilon) <w tanh>.

    Args:
        model: The network in the limit of many neurons.
        family: Index of the family, such as `dmft.OUTPUT`.
        parameters: Parameters of the map.
        attention: The previous attention `(patterns, *batch)`.
    """
    require_float64()
    if attention.shape[:1] != (model.patterns,):
        raise ValueError(f"attention of shape {attention.shape} does not fit a network of {model.patterns} patterns")
    common_batch_shape(parameters=parameters.batch_shape, attention=attention.shape[1:])
    without_positions = eqx.tree_at(lambda at: at.positional, model, jnp.zeros_like(model.positional))
    attention = tuple(jnp.asarray(attention))
    return jnp.stack(overlap(without_positions, family, parameters, attention, jnp.zeros((), dtype=int)))


# ---- batches


def broadcast_to_batch(values: Array, leading: int, batch: tuple[int, ...]) -> Array:
    """Broadcast the batch axes of `values`, which follow `leading` other axes, to the shape `batch`."""
    first, own = values.shape[:leading], values.shape[leading:]
    aligned = values.reshape(*first, *(1 for _ in range(len(batch) - len(own))), *own)
    return jnp.broadcast_to(aligned, (*first, *batch))


def map_batch(state: State, function: Callable[[Array, int], Array]) -> State:
    """Apply `function` to each array over the batch, with the number of its axes before the batch axes."""
    keys, values = (tuple(function(slots, 1) for slots in family) for family in (state.keys, state.values))
    return State(tuple(function(entry, 0) for entry in state.attention), keys, values, state.position, state.tokens)


def broadcast_to_parameters(parameters: Parameters, state: State) -> State:
    """Broadcast `state` to the batch shape of the parameters."""
    batch = jnp.broadcast_shapes(parameters.batch_shape, state.batch_shape)
    return map_batch(state, lambda entry, leading: broadcast_to_batch(entry, leading, batch))


def over_cores(
    compute: Callable[[Parameters, Window | State], Found], parameters: Parameters, start: Window | State
) -> Found:
    """Run `compute(parameters, start)`, whose arrays have trailing batch axes, on all cores of a CPU.

    XLA runs a step of the map on one core, because its operations are small. The batch is not divided if it is small or
    traced, on an accelerator, or outside the main thread. `compute` must not call batched LAPACK, which may deadlock in
    threads.
    """
    batch = jnp.broadcast_shapes(parameters.batch_shape, start.batch_shape)
    orbits = max(batch, default=1)
    parts = min(os.cpu_count() or 1, orbits // _FEWEST)
    is_beside_others = threading.current_thread() is not threading.main_thread()
    if parts < 2 or is_beside_others or jax.default_backend() != "cpu" or is_traced(parameters, start):
        return compute(parameters, start)
    axis = batch.index(orbits) - len(batch)
    # Pad the last part. All parts then have the same shape, so that `compute` is compiled once.
    numbers = np.pad(np.arange(orbits), (0, -orbits % parts), mode="edge").reshape(parts, -1)

    @usual_settings()
    def of_part(part: np.ndarray) -> Found:
        def cut(values: Array, leading: int = 0) -> Array:
            is_same = values.ndim - leading < -axis or values.shape[axis] == 1
            return values if is_same else jnp.take(values, part, axis=axis)

        mine = map_batch(start, cut) if isinstance(start, State) else Window(cut(start.attention, 2), start.position)
        return compute(jax.tree.map(cut, parameters), mine)

    def joined(*arrays: Array) -> Array:
        if arrays[0].ndim < -axis:  # arrays without batch, such as the position, are the same in all parts
            return arrays[0]
        return jax.lax.slice_in_dim(jnp.concatenate(arrays, axis=axis), 0, orbits, axis=axis % arrays[0].ndim)

    with ThreadPoolExecutor(parts) as threads:
        found = list(threads.map(of_part, numbers))
    return jax.tree.map(joined, *found)


# ---- starts


@checked_arguments
def prompt(weights: Weights, bits: Values) -> Float[np.ndarray, "families patterns"]:
    """Return the prompt with the semantic `bits` +-1 `(neurons,)`, as overlaps with the four families of weights."""
    if bits.shape != (weights.neurons,) or not np.isin(bits, (-1, 1)).all():
        raise ValueError(f"bits must be {weights.neurons} semantic bits +-1, got shape {bits.shape}")
    return weights.semantic @ bits / weights.neurons


@checked_arguments
def pattern_prompt(weights: Weights, family: Family = 0, pattern: Index = 0) -> Float[np.ndarray, "families patterns"]:
    """Return the prompt whose semantic bits are a row of the weights, by default the first row of the output family.

    Example:
        >>> from theorykit import dmft
        >>> overlaps = dmft.pattern_prompt(dmft.published_weights())
        >>> overlaps[0].round(2)  # with the output patterns
        array([1.  , 0.33, 0.33])
    """
    checked_whole_number("pattern", pattern, most=weights.patterns - 1)
    return prompt(weights, weights.semantic[family, pattern])


@usual_settings()
@checked_arguments
def token_start(model: SelfAttention, parameters: Parameters, of: Values) -> State:
    """Return the state after a prompt, such as `pattern_prompt`. The prompt is stored, and the next position is 1."""
    overlaps = _first_overlaps(model, parameters, of)
    first = store(_blank(model, overlaps[VALUE]), overlaps[KEY], overlaps[VALUE])
    return eqx.tree_at(lambda at: at.position, first, jnp.asarray(1 % model.context))


@usual_settings()
@checked_arguments
def window_start(model: SelfAttention, parameters: Parameters, of: Values) -> State:
    """Return the state after a prompt, such as `pattern_prompt`. Only its attention is kept, at position 0.

    Example:
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> weights = dmft.published_weights()
        >>> model = dmft.self_attention_limit(weights, context=4)
        >>> parameters = dmft.Parameters(beta=0.5, gamma=127.0, epsilon=0.0)
        >>> start = dmft.window_start(model, parameters, dmft.pattern_prompt(weights))
        >>> int(start.tokens), int(start.position)  # nothing is stored yet
        (0, 0)
    """
    return _blank(model, _first_overlaps(model, parameters, of)[VALUE])


def _first_overlaps(model: SelfAttention, parameters: Parameters, of: Any) -> list[tuple[Array, ...]]:
    require_float64()
    if of.shape != (expected := (len(FAMILIES), model.patterns)):
        raise ValueError(f"of: overlaps of a prompt must be {expected}, got {of.shape}")
    of = require(of, [Requirement("of: overlaps of a prompt must be from -1 to 1", abs(of) <= 1 + _ROUNDING)])
    share, batch = parameters.epsilon, parameters.batch_shape
    semantic, positional = (each.reshape(*of.shape, *(1 for _ in batch)) for each in (of, model.positional[0]))
    mixed = (1 - share) * semantic + share * positional  # Eq. (1)
    return [tuple(family) for family in jnp.broadcast_to(mixed, (*of.shape, *batch))]


def _blank(model: SelfAttention, attention: tuple[Array, ...]) -> State:
    """Return a state without stored tokens, at position 0."""
    slots = tuple(jnp.zeros((model.context, *entry.shape)) for entry in attention)
    return State(attention, slots, slots, jnp.asarray(0), jnp.asarray(0))


@usual_settings()
@checked_arguments
def state_from_window(model: SelfAttention, parameters: Parameters, window: Window) -> State:
    """Return the state with the attentions of `window`, and the keys and values that follow from them.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> model = dmft.self_attention_limit(dmft.published_weights(), context=4)
        >>> parameters = dmft.Parameters(beta=0.5, gamma=127.0, epsilon=0.0)
        >>> state = dmft.state_from_window(model, parameters, dmft.Window(np.zeros((4, 3))))
        >>> int(state.tokens)  # the context is full
        4
    """
    window = fitting("window", window, model, parameters)
    return state_of(model, parameters, window.attention, window.position)


def state_of(model: SelfAttention, parameters: Parameters, attention: Array, position: Int[Array, ""]) -> State:
    """Compute `state_from_window` without checks."""
    batch = jnp.broadcast_shapes(parameters.batch_shape, attention.shape[2:])
    attention = broadcast_to_batch(attention, 2, batch)
    positions = (position - jnp.arange(1, model.context)) % model.context

    def slots(family: int) -> tuple[Array, ...]:
        flat = positions.reshape(-1, *(1 for _ in batch))
        found = overlap(model, family, parameters, tuple(jnp.moveaxis(attention[1:], 1, 0)), flat)
        return tuple(jnp.zeros((model.context, *batch)).at[positions].set(entry) for entry in found)

    tokens = jnp.asarray(model.context)
    return State(tuple(attention[0]), slots(KEY), slots(VALUE), position % model.context, tokens)


# ---- trajectories


def attention_table(attention: Array) -> Table:
    """List the last attention of (times, patterns, ...), and its range over the second half, by pattern."""
    settled = np.asarray(attention[len(attention) // 2 :])
    rows = [
        (f"pattern {number}", brief(settled[-1, number - 1]), f"{each.min():.4g} to {each.max():.4g}")
        for number, each in enumerate(np.moveaxis(settled, 1, 0), 1)
    ]
    return Table(tuple(rows), ("attention", "last", "range of the second half"))


def attention_curves(attention: Array, what: str = "attention") -> list[Text]:
    """Draw the last attentions of the first network of a batch, by pattern."""
    latest = np.asarray(attention[-_SHOWN:]).reshape(min(len(attention), _SHOWN), attention.shape[1], -1)[..., 0]
    named = {f"pattern {number}": values for number, values in enumerate(latest.T, 1)}
    return curves(named, f"{what} over the last {len(latest)} tokens")


class Trajectory(DisplayMixin, eqx.Module):
    """Result of `run`, which explains the attributes."""

    attention: Float[Array, "times patterns *batch"]
    positions: Int[Array, " steps"]
    end: State

    def _view(self) -> Iterator[Block]:
        yield Text(f"Trajectory of {counted(len(self.positions), 'token')}{_of_batch(self.end.batch_shape)}.")
        yield attention_table(self.attention)
        yield from attention_curves(self.attention)
        yield Text(
            "Pass `window(model)` to `dmft.lyapunov_spectrum`, and `end` to `dmft.run`. "
            "`overlaps(model, parameters)` returns the overlaps of all tokens."
        )

    @checked_arguments
    def window(self, model: SelfAttention) -> Window:
        """Return the last attentions, as a start for other parameters."""
        end = fitting("trajectory", self.end, model)
        if len(self.attention) < model.context:
            raise ValueError(f"a window needs {model.context} attentions, but only {len(self.attention)} were recorded")
        return Window(self.attention[::-1][: model.context], end.position)

    @checked_arguments
    def overlaps(self, model: SelfAttention, parameters: Parameters) -> Float[Array, "steps families patterns *batch"]:
        """Return m^o, m^v, m^q, m^k of every token of the run except the prompt."""
        fitting("trajectory", self.end, model, parameters)
        return _overlaps(model, parameters, self.attention[:-1], self.positions)


@eqx.filter_jit
def _overlaps(model, parameters, attention, positions):
    flat = positions.reshape(-1, *(1 for _ in attention.shape[2:]))
    before = tuple(jnp.moveaxis(attention, 1, 0))
    return jnp.stack(
        [jnp.stack(overlap(model, family, parameters, before, flat), axis=1) for family in range(len(FAMILIES))], axis=1
    )


@usual_settings()
@checked_arguments
def advance(model: SelfAttention, parameters: Parameters, state: _FromState, steps: Any) -> State:
    """Return the state after `steps` more tokens. Other numbers of steps do not recompile the function."""
    state = fitting("state", state, model, parameters)
    if is_traced(steps):
        check_is_whole("steps", steps)
        steps = require(steps, [Requirement("steps must be at least 0", steps >= 0)])
    elif checked_whole_number("steps", steps, least=0) >= _MANY:
        return over_cores(lambda *at: _advance(model, *at, jnp.asarray(steps)), parameters, state)
    return _advance(model, parameters, state, jnp.asarray(steps))


@eqx.filter_jit
def _advance(model, parameters, state, steps):
    start = broadcast_to_parameters(parameters, state)
    return jax.lax.fori_loop(0, steps, lambda _, at: next_state(model, parameters, at), start)


@usual_settings()
@checked_arguments
def run(model: SelfAttention, parameters: Parameters, start: _FromState, *, steps: Index) -> Trajectory:
    """Run `steps` tokens after `start`, and record every attention.

    Args:
        model: The network in the limit of many neurons.
        parameters: Parameters of the map.
        start: State from which to run.
        steps: Number of tokens.

    Returns:
        A trajectory with these attributes and methods:

        - `attention` `(steps + 1, patterns, *batch)`: the attentions, with the start first.
        - `positions` `(steps,)`: positions of the tokens.
        - `end`: the last state, from which to resume.
        - `window(model)`: the last attentions, as a start for other parameters.
        - `overlaps(model, parameters)` `(steps, families, patterns, *batch)`: m^o, m^v, m^q and m^k of every token.

    Example:
        >>> import jax
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> weights = dmft.iid_weights(patterns=3, neurons=100, position_bits=3, key=jax.random.key(0))
        >>> model = dmft.self_attention_limit(weights, context=4)
        >>> parameters = dmft.Parameters(beta=2.0, gamma=1.0, epsilon=0.1)
        >>> start = dmft.token_start(model, parameters, dmft.pattern_prompt(weights, 0))
        >>> dmft.run(model, parameters, start, steps=50).attention.shape  # (tokens, patterns)
        (51, 3)
    """
    return _run(model, parameters, fitting("start", start, model, parameters), steps)


@eqx.filter_jit
def _run(model, parameters, start, steps):
    start = broadcast_to_parameters(parameters, start)

    def token(state: State, _):
        after = next_state(model, parameters, state)
        return after, (after.attention, state.position)

    end, (attention, positions) = jax.lax.scan(token, start, None, length=steps)
    every = [jnp.concatenate([first[None], rest]) for first, rest in zip(start.attention, attention, strict=True)]
    return Trajectory(jnp.stack(every, axis=1), positions, end)


@usual_settings()
@checked_arguments
def discard_transient(model: SelfAttention, parameters: Parameters, start: _FromState, steps: int) -> Window:
    """Return the window of attentions after `steps` tokens from `start`. `steps` must be at least the context.

    Example:
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> weights = dmft.published_weights()
        >>> model = dmft.self_attention_limit(weights, context=4)
        >>> parameters = dmft.Parameters(beta=0.5, gamma=127.0, epsilon=0.0)  # hot: the output decays
        >>> start = dmft.window_start(model, parameters, dmft.pattern_prompt(weights))
        >>> window = dmft.discard_transient(model, parameters, start, steps=1000)
        >>> window.attention.shape, bool(abs(window.attention).max() < 1e-9)
        ((4, 3), True)
    """
    fitting("start", start, model, parameters)
    if steps < model.context:
        raise ValueError(f"steps must be at least the context, {model.context}, to fill a window, got {steps}")
    nearly = advance(model, parameters, start, steps - model.context)
    return run(model, parameters, nearly, steps=model.context).window(model)


# ---- the map over whole turns of the position clock


class Stroboscope(DisplayMixin, eqx.Module):
    """Map of a window of attentions over a fixed number of tokens, as a function of one parameter.

    Use it as the `step` of `theorykit.dynamics`, to find and follow cycles. Call it with `(context * patterns,)`
    attentions, newest first, and a value of the parameter `scanned`. It returns the attentions after `tokens` tokens.
    By default, this is a whole turn of the position clock, after which the map is the same again. One token is enough
    if `epsilon` is 0. Inside compiled functions, the result is NaN for an invalid state or value.
    """

    model: SelfAttention
    parameters: Parameters
    scanned: Literal["beta", "gamma", "epsilon"] = eqx.field(static=True)
    tokens: int = eqx.field(static=True)

    @checked_arguments
    def __init__(
        self,
        model: SelfAttention,
        parameters: Parameters,
        scanned: Literal["beta", "gamma", "epsilon"] = "beta",
        tokens: int | None = None,
    ):
        require_float64()
        if parameters.batch_shape:
            raise ValueError(f"parameters must be single numbers, got a batch of shape {parameters.batch_shape}")
        tokens = model.context if tokens is None else tokens
        if tokens < 1 or (tokens % model.context and float(parameters.epsilon) != 0):
            raise ValueError(
                f"after {counted(tokens, 'token')} the position clock of period {model.context} is not where it was; "
                "pass a multiple of the context as tokens, or epsilon = 0"
            )
        self.model, self.parameters, self.scanned, self.tokens = model, parameters, scanned, tokens

    def _view(self) -> Iterator[Block]:
        yield Text(
            f"Map of {counted(self.model.context, 'attention')} over {counted(self.tokens, 'token')}, a function of "
            f"{self.scanned}."
        )
        held = [name for name in ("beta", "gamma", "epsilon") if name != self.scanned]
        yield Table(tuple((name, brief(getattr(self.parameters, name))) for name in held))
        yield Text("It is the `step` of `dynamics.find_cycle` and `dynamics.follow`; `state(window)` is a first guess.")

    def __call__(self, state: ArrayLike, value: ArrayLike) -> Float[Array, " size"]:
        require_float64()
        size = self.model.context * self.model.patterns
        state = numeric_array("state", state)
        if jnp.shape(state) != (size,):
            raise ValueError(f"state must be {size} attentions of this network, got shape {jnp.shape(state)}")
        check_is_number("value", value)
        scanned = value if is_traced(value) else np.asarray(value, dtype=float)
        traced = refuse_known([finite_entries("state", state), *_in_range(self.scanned, scanned, "value")])
        scanned = jnp.asarray(scanned, dtype=float)
        parameters = eqx.tree_at(lambda at: getattr(at, self.scanned), self.parameters, scanned)
        after = _after(self.model, parameters, jnp.asarray(state), self.tokens)
        # Return NaN if a solver's step leaves the domain. Solvers recover from NaN, but not from an error.
        return reduce(lambda kept, at: jnp.where(jnp.all(at.holds), kept, jnp.nan), traced, after)

    @checked_arguments
    def state(self, window: Window) -> Float[Array, " size"]:
        """Return the state of a single window whose next token is at position 0."""
        window = fitting("window", window, self.model)
        if window.batch_shape:
            raise ValueError(f"window must be a single window, got a batch of shape {window.batch_shape}")
        if self.tokens % self.model.context == 0 and int(window.position) != 0:
            raise ValueError(f"the next token of window must be at position 0, got {int(window.position)}")
        return window.attention.ravel()


@eqx.filter_jit
def _after(model, parameters, state, tokens):
    window = state.reshape(model.context, model.patterns)
    path = _run(model, parameters, state_of(model, parameters, window, jnp.asarray(0)), tokens)
    return jnp.concatenate([path.attention[::-1], window[1:]])[: model.context].ravel()
