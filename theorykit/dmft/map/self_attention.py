"""The mean-field map of a self-attention network, as an Equinox module whose parameters are given at every call.

    weights -> ColumnLaw, positional overlaps -> SelfAttention -> step(parameters, state) -> state

Any number of states are iterated side by side: arrays have batch axes last, and parameters broadcast against
them. A token is stored in the slot of its position; the context is a ring of as many slots, and a new token takes the
place of the one a whole context before it.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ...checks import (
    Requirement,
    array_module,
    checked_array,
    checked_instance,
    checked_number,
    checked_whole_number,
    finite_entries,
    is_traced,
    numeric_array,
    require,
    shown,
)
from ...codegen.batch import Matrix, column, long_matrix, matrix
from ...precision import require_float64
from ..weights.column_law import ColumnLaw, column_law
from ..weights.weights import FAMILIES, Weights, positional_overlaps
from . import compiled

OUTPUT, VALUE, QUERY, KEY = range(len(FAMILIES))
"""Places of the four kinds of weights in `FAMILIES`."""

# of parameters; overlaps are at most one, and there are far fewer patterns than would take scores to infinity
_LARGEST = 1e300
_NAMES = ("beta", "gamma", "epsilon")


class Parameters(eqx.Module):
    """The control parameters of the map, each a number or an array over a batch.

    - `beta`: inverse temperature of the output, Eq. (4). `gamma`: inverse temperature of the attention, Eq. (3).
    - `epsilon`: share of the positions in the overlaps, Eq. (1), from 0 to 1.

    Raises `TypeError` for what is no number, `ValueError` for numbers that are not finite, for shares that are not
    between 0 and 1, and for batch shapes that do not broadcast.
    """

    beta: Float[Array, "*batch"]
    gamma: Float[Array, "*batch"]
    epsilon: Float[Array, "*batch"]

    def __init__(self, beta: ArrayLike, gamma: ArrayLike, epsilon: ArrayLike):
        require_float64()
        given = {name: _numbers(name, value) for name, value in zip(_NAMES, (beta, gamma, epsilon), strict=True)}
        for name, values in given.items():
            if 0 in values.shape:
                raise ValueError(f"{name} is an empty array, of shape {values.shape}")
        arrays = {name: jnp.asarray(values, dtype=float) for name, values in given.items()}
        conditions = itertools.chain.from_iterable(in_range(name, values) for name, values in given.items())
        for name, array in require(arrays, conditions).items():
            setattr(self, name, array)
        common_batch_shape(beta=self.beta.shape, gamma=self.gamma.shape, epsilon=self.epsilon.shape)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape that the three broadcast to."""
        return jnp.broadcast_shapes(self.beta.shape, self.gamma.shape, self.epsilon.shape)


def _numbers(name: str, value: ArrayLike) -> Float[np.ndarray | Array, "..."]:
    array = numeric_array(name, value)
    return array if is_traced(array) else np.asarray(array)


def in_range(name: str, values: Float[np.ndarray | Array, "..."], called: str | None = None) -> Iterator[Requirement]:
    """The conditions on values of the parameter `name`, which errors may call otherwise."""
    called = name if called is None else called
    is_finite = array_module(values).isfinite(values)
    message = f"{called} must be finite"
    yield Requirement(message, is_finite, lambda: f"{message}, but {_counted(values, ~is_finite)}")
    moderate = abs(values) <= _LARGEST
    excess = "so large that scores may overflow"
    yield Requirement(
        f"{called} is {excess}", moderate, lambda: f"{called} = {values[~moderate].flat[0]:g} is {excess}"
    )
    if name == "epsilon":
        is_share = (values >= 0) & (values <= 1)
        share = f"{called} is a share between 0 and 1"
        yield Requirement(share, is_share, lambda: f"{share}, got {values[~is_share].flat[0]}")


def _counted(values: np.ndarray, wrong: np.ndarray | np.bool_) -> str:
    return f"{np.sum(wrong)} of {values.size} values are not: {np.asarray(values)[wrong].flat[0]}"


def attention_gain(inverse_temperature: ArrayLike, scale: float | int, patterns: int) -> ArrayLike:
    """gamma, from the inverse temperature of attention and the scale of its scores; Eq. (3).

    Raises `TypeError` or `ValueError` for what are no finite numbers, and fewer than one pattern.
    """
    inverse_temperature = checked_array("inverse_temperature", inverse_temperature)
    if not inverse_temperature.size:
        raise ValueError(f"inverse_temperature has no entry: shape {inverse_temperature.shape}")
    scale = checked_number("scale", scale)
    checked_whole_number("patterns", patterns, least=1)
    return inverse_temperature * scale / np.sqrt(patterns)


class State(eqx.Module):
    """The state of the map, for a batch of networks: the attention, and the keys and values in the context.

    - `attention`: A, one array over the batch for each pattern.
    - `keys`, `values`: m^k and m^v of the tokens in the context, `(context, *batch)` for each pattern, by position.
    - `position`: of the next token. `tokens`: how many have been stored, up to the context.

    Raises `ValueError` for shapes that do not fit each other.
    """

    attention: tuple[Float[Array, "*batch"], ...]
    keys: tuple[Float[Array, "context *batch"], ...]
    values: tuple[Float[Array, "context *batch"], ...]
    position: Int[Array, ""]
    tokens: Int[Array, ""]

    def __check_init__(self):
        shapes = {(name, jnp.shape(slots)) for name in ("keys", "values") for slots in getattr(self, name)}
        batches = {jnp.shape(entry) for entry in self.attention}
        counts = {len(self.attention), len(self.keys), len(self.values)}
        if len(counts) > 1 or 0 in counts or len(batches) > 1 or {shape[1:] for _, shape in shapes} != batches:
            raise ValueError(f"attention of shapes {batches} and {shapes} are not those of one state")
        if len({shape for _, shape in shapes}) > 1:
            raise ValueError(f"keys and values have different shapes: {shapes}")

    @property
    def context(self) -> int:
        """Slots of the context: the most tokens whose keys and values are kept."""
        return self.keys[0].shape[0]

    @property
    def patterns(self) -> int:
        """M, patterns of each family of weights."""
        return len(self.attention)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch of networks; empty for one."""
        return self.attention[0].shape


class SelfAttention(eqx.Module):
    """A self-attention network in the limit of many neurons; Eqs. (2), (5) of Poc-Lopez and Aguilera.

    - `directions`: `(classes, patterns)`, `moments`: `(families, classes, patterns)`; a `ColumnLaw`.
    - `positional`: `(context, families, patterns)`, overlaps of every position with the positional weights.
    """

    directions: Float[Array, "classes patterns"]
    moments: Float[Array, "families classes patterns"]
    positional: Float[Array, "context families patterns"]

    def __init__(self, law: ColumnLaw, positional: Float[np.ndarray, "context families patterns"]):
        require_float64()
        checked_instance("law", law, ColumnLaw, "as column_law(weights) returns it")
        positional = checked_array("positional", positional)
        if positional.shape[1:] != (len(FAMILIES), law.directions.shape[1]) or not len(positional):
            raise ValueError(
                f"positional overlaps of shape {positional.shape} do not fit a law of {law.directions.shape[1]} "
                "patterns; expected (context, families, patterns)"
            )
        self.directions, self.moments = jnp.asarray(law.directions), jnp.asarray(law.moments)
        self.positional = jnp.asarray(positional, dtype=float)

    @property
    def patterns(self) -> int:
        """M, patterns of each family of weights."""
        return self.directions.shape[1]

    @property
    def context(self) -> int:
        """The most tokens that attention reads; positions repeat after as many."""
        return self.positional.shape[0]

    def overlap(
        self, family: int, parameters: Parameters, attention: tuple[Array, ...], position: Int[Array, "*_"]
    ) -> tuple[Float[Array, "*batch"], ...]:
        """m of one family, by pattern, of the token at `position` that follows `attention`; Eq. (5).

        Raises `TypeError` or `ValueError` for attention of another number of patterns, and where there is no such
        family or position.
        """
        check_network(self, parameters)
        checked_whole_number("family", family, least=0, most=len(FAMILIES) - 1)
        attention = _checked_attention(attention)
        if len(attention) != self.patterns:
            raise ValueError(f"attention of {len(attention)} patterns does not fit a network of {self.patterns}")
        return self.unchecked_overlap(family, parameters, attention, _checked_positions(position, self.context))

    def unchecked_overlap(
        self, family: int, parameters: Parameters, attention: tuple[Array, ...], position: Int[Array, "*_"]
    ) -> tuple[Float[Array, "*batch"], ...]:
        """`overlap` of what is known to fit, for compiled loops: a check there would be one per token."""
        result = compiled.overlap()(
            Omega=matrix(self.directions),
            C=matrix(self.moments[family]),
            A=column(attention),
            r=column(tuple(jnp.moveaxis(self.positional[position, family], -1, 0))),
            beta=parameters.beta,
            epsilon=parameters.epsilon,
        )
        return result["m"].column

    def step(self, parameters: Parameters, state: State) -> State:
        """The next token: its query, key and value from the attention, and the attention that it pays.

        `state` has the batch shape of the parameters, or more axes. Raises `ValueError` where it is not one of this
        network.
        """
        state = checked_fit("state", state, State, self, parameters)
        if common_batch_shape(parameters=parameters.batch_shape, state=state.batch_shape) != state.batch_shape:
            raise ValueError(f"parameters have batch shape {parameters.batch_shape}, state only of {state.batch_shape}")
        return self.unchecked_step(parameters, state)

    def unchecked_step(self, parameters: Parameters, state: State) -> State:
        """`step` of what is known to fit, for compiled loops."""
        key, value, query = (
            self.unchecked_overlap(family, parameters, state.attention, state.position)
            for family in (KEY, VALUE, QUERY)
        )
        return attend(parameters, store(state, key, value), query)


def _checked_attention(attention: Any) -> tuple[Array, ...]:
    """Attentions by pattern, finite."""
    if not is_traced(attention):
        return tuple(jnp.atleast_1d(checked_array("attention", attention)))
    entries = tuple(numeric_array("attention", entry) for entry in attention)
    return require(entries, (finite_entries("attention", entry) for entry in entries))


def _checked_positions(position: ArrayLike, context: int) -> Int[Array, "*_"]:
    """Positions of tokens."""
    numeric_array("position", position)
    places = position if is_traced(position) else np.asarray(position)
    message = f"position must be whole numbers from 0 to {context - 1}"
    is_place = np.issubdtype(places.dtype, np.integer) and (places >= 0) & (places < context)
    return require(jnp.asarray(places), [Requirement(message, is_place, lambda: f"{message}, got {shown(position)}")])


def attend(parameters: Parameters, state: State, query: tuple[Array, ...]) -> State:
    """`state` with the attention of the token that was stored last, given its `query`; the position moves on by one."""
    result = compiled.attention()(q=column(query), gamma=parameters.gamma, **read_memory(state))
    position = (state.position + 1) % state.keys[0].shape[0]
    return State(result["A"].column, state.keys, state.values, position, state.tokens)


def store(state: State, key: tuple[Array, ...], value: tuple[Array, ...]) -> State:
    """`state` with the key and value of the token at `state.position` in the context."""
    keys = tuple(with_entry(slots, state.position, entry) for slots, entry in zip(state.keys, key, strict=True))
    values = tuple(with_entry(slots, state.position, entry) for slots, entry in zip(state.values, value, strict=True))
    tokens = jnp.minimum(state.tokens + 1, keys[0].shape[0])
    return State(state.attention, keys, values, state.position, tokens)


def with_entry(
    slots: Float[Array, "context *batch"], position: Int[Array, ""], entry: Float[Array, "*batch"]
) -> Float[Array, "context *batch"]:
    """`slots` with `entry` at a position that is one of the context."""
    return slots.at[position].set(entry, mode="promise_in_bounds")


def read_memory(state: State) -> dict[str, Matrix]:
    """Keys K and values V of the context, and the mask `ell` added to the scores: -inf where there is no token."""
    context, *batch = state.keys[0].shape
    live = jnp.where(jnp.arange(context) < state.tokens, 0.0, -jnp.inf)
    return {
        "K": long_matrix(state.keys),
        "V": long_matrix(state.values),
        "ell": long_matrix([live.reshape(context, *(1 for _ in batch))]),
    }


def semantic_overlap(
    model: SelfAttention, family: int, parameters: Parameters, attention: Float[Array, "patterns *batch"]
) -> Float[Array, "patterns *batch"]:
    """The part of one family's overlap that semantic bits contribute, after `attention`: (1 - epsilon) <w tanh>.

    Raises `TypeError` or `ValueError` for attention of another number of patterns, and batch shapes that do not
    broadcast.
    """
    check_network(model, parameters)
    checked_whole_number("family", family, least=0, most=len(FAMILIES) - 1)
    attention = jnp.asarray(checked_array("attention", attention))
    if attention.shape[:1] != (model.patterns,):
        raise ValueError(f"attention of shape {attention.shape} does not fit a network of {model.patterns} patterns")
    common_batch_shape(parameters=parameters.batch_shape, attention=attention.shape[1:])
    without_positions = eqx.tree_at(lambda at: at.positional, model, jnp.zeros_like(model.positional))
    return jnp.stack(
        without_positions.unchecked_overlap(family, parameters, tuple(attention), jnp.zeros((), dtype=int))
    )


def broadcast_to_batch(values: Float[Array, "*_"], leading: int, batch: tuple[int, ...]) -> Float[Array, "*_"]:
    """`values`, of so many `leading` axes before its batch axes, broadcast to the batch shape `batch`."""
    first, own = values.shape[:leading], values.shape[leading:]
    aligned = values.reshape(*first, *(1 for _ in range(len(batch) - len(own))), *own)
    return jnp.broadcast_to(aligned, (*first, *batch))


def map_batch(state: State, function: Callable[[Array, int], Array]) -> State:
    """`state` with `function` of each array over the batch and of how many axes it has before those of the batch."""
    return State(
        tuple(function(entry, 0) for entry in state.attention),
        *(tuple(function(slots, 1) for slots in family) for family in (state.keys, state.values)),
        state.position,
        state.tokens,
    )


def self_attention_limit(weights: Weights, context: int) -> SelfAttention:
    """The network of `weights` in the limit of many neurons, their columns repeated in proportion.

    Raises `TypeError` for what are no weights, `ValueError` where the positional bits cannot tell `context` positions
    apart.
    """
    checked_instance("weights", weights, Weights)
    return SelfAttention(column_law(weights), positional_overlaps(weights, context))


# how each kind of start is made, by its name
_MADE = {
    "State": "such as token_start(model, parameters, prompt), or state_from_window(model, parameters, window)",
    "Window": "such as discard_transient(model, parameters, start, steps), or trajectory.window(model)",
}


def checked_fit(name: str, start: Any, kind: type, model: Any, *parameters: Any) -> Any:
    """`start`, a state or window, if it is one of the network `model`, with a batch that fits `parameters` if given.

    `TypeError` where an argument is of another kind. `ValueError` where the context, the number of patterns, the
    position or the batch does not fit, or a number is not finite. Other weights of the same shapes are not
    noticed.
    """
    check_network(model, *parameters)
    checked_instance(name, start, kind, _MADE[kind.__name__])
    expected, found = (model.context, model.patterns), (start.context, start.patterns)
    if found != expected:
        raise ValueError(
            f"a {name} of {found} (tokens, patterns) does not fit a network of {expected}: it is of another network"
        )
    for given in parameters:
        common_batch_shape(**{"parameters": given.batch_shape, name: start.batch_shape})
    return require(start, _fits_content(name, start, model.context))


def check_network(model: Any, *parameters: Any) -> None:
    """Raise `TypeError` unless these are a network and its parameters, where there are any."""
    require_float64()
    checked_instance("model", model, SelfAttention, "as self_attention_limit(weights, context) returns it")
    for given in parameters:
        checked_instance("parameters", given, Parameters, "such as Parameters(beta, gamma, epsilon)")


def _fits_content(name: str, start: Any, context: int) -> Iterator[Requirement]:
    for leaf in jax.tree.leaves(start):
        yield Requirement(f"{name} has numbers that are not finite", array_module(leaf).isfinite(leaf))
    position = start.position if is_traced(start.position) else int(start.position)
    message = f"{name} is at a position that the context has not, which are 0 to {context - 1}"
    is_place = (position >= 0) & (position < context)
    yield Requirement(
        message, is_place, lambda: f"{name} is at position {position}, but the context has 0 to {context - 1}"
    )


def common_batch_shape(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that batch shapes broadcast to, by the names of the arguments that have them."""
    try:
        return jnp.broadcast_shapes(*shapes.values())
    except ValueError:
        told = ", ".join(f"{name} has {shape}" for name, shape in shapes.items())
        raise ValueError(f"batch shapes do not broadcast: {told}") from None
