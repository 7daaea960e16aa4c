"""The mean-field map of a self-attention network, as an Equinox module whose parameters are given at every call.

    weights -> ColumnLaw, positional overlaps -> SelfAttention -> step(parameters, state) -> state

Any number of states are iterated side by side: arrays have the axes of lanes last, and parameters broadcast against
them. A token is stored in the slot of its position; the context is a ring of as many slots, and a new token takes the
place of the one a whole context before it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ..codegen.lanes import Matrix, column, long_matrix, matrix
from ..precision import require_float64
from . import compiled
from .column_law import ColumnLaw, column_law
from .weights import FAMILIES, Weights, positional_overlaps

OUTPUT, VALUE, QUERY, KEY = range(len(FAMILIES))

# of parameters; overlaps are at most one, and there are far fewer patterns than would take scores to infinity
_LARGEST = 1e300


class Parameters(eqx.Module):
    """What a network is run with; each a number, or an array over lanes.

    - `beta`: inverse temperature of the output, Eq. (4). `gamma`: inverse temperature of the attention, Eq. (3).
    - `epsilon`: share of the positions in the overlaps, Eq. (1), from 0 to 1.

    Raises `ValueError` for numbers that are not finite, or shares that are not between 0 and 1.
    """

    beta: Float[Array, "*lanes"]
    gamma: Float[Array, "*lanes"]
    epsilon: Float[Array, "*lanes"]

    def __init__(self, beta: ArrayLike, gamma: ArrayLike, epsilon: ArrayLike):
        require_float64()
        for name, value in (("beta", beta), ("gamma", gamma), ("epsilon", epsilon)):
            if not isinstance(value, jax.core.Tracer):
                _refuse_values(name, np.asarray(value))
            setattr(self, name, jnp.asarray(value, dtype=float))

    @property
    def lanes(self) -> tuple[int, ...]:
        """The shape that the three broadcast to."""
        return jnp.broadcast_shapes(self.beta.shape, self.gamma.shape, self.epsilon.shape)


def _refuse_values(name: str, values: np.ndarray) -> None:
    wrong = values[~np.isfinite(values)]
    if wrong.size:
        raise ValueError(f"{name} must be finite, but {wrong.size} of {values.size} values are not: {wrong.flat[0]}")
    if np.any(np.abs(values) > _LARGEST):
        raise ValueError(f"{name} = {values[np.abs(values) > _LARGEST].flat[0]:g} is so large that scores may overflow")
    outside = values[(values < 0) | (values > 1)]
    if name == "epsilon" and outside.size:
        raise ValueError(f"epsilon is a share between 0 and 1, got {outside.flat[0]}")


def attention_gain(inverse_temperature: ArrayLike, scale: float | int, patterns: int) -> ArrayLike:
    """gamma, from the inverse temperature of attention and the scale of its scores; Eq. (3)."""
    return inverse_temperature * scale / np.sqrt(patterns)


class State(eqx.Module):
    """Where many networks stand: their attentions, and the keys and values that they remember.

    - `attention`: A, one array over lanes a pattern.
    - `keys`, `values`: m^k and m^v of the tokens remembered, `(context, *lanes)` a pattern, by position.
    - `position`: of the next token. `tokens`: how many have been stored, up to the context.
    """

    attention: tuple[Float[Array, "*lanes"], ...]
    keys: tuple[Float[Array, "context *lanes"], ...]
    values: tuple[Float[Array, "context *lanes"], ...]
    position: Int[Array, ""]
    tokens: Int[Array, ""]


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
        if positional.shape[1:] != (len(FAMILIES), law.directions.shape[1]):
            raise ValueError(
                f"positional overlaps of shape {positional.shape} do not fit a law of {law.directions.shape[1]} "
                "patterns; expected (context, families, patterns)"
            )
        self.directions, self.moments = jnp.asarray(law.directions), jnp.asarray(law.moments)
        self.positional = jnp.asarray(positional, dtype=float)

    @property
    def patterns(self) -> int:
        return self.directions.shape[1]

    @property
    def context(self) -> int:
        return self.positional.shape[0]

    def overlap(
        self, family: int, parameters: Parameters, attention: tuple[Array, ...], position: Int[Array, "*_"]
    ) -> tuple[Float[Array, "*lanes"], ...]:
        """m of one family, by pattern, of the token at `position` that follows `attention`; Eq. (5)."""
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
        """The next token: its query, key and value from the attention, and the attention that it pays."""
        key, value, query = (
            self.overlap(family, parameters, state.attention, state.position) for family in (KEY, VALUE, QUERY)
        )
        return attended(parameters, stored(state, key, value), query)


def attended(parameters: Parameters, state: State, query: tuple[Array, ...]) -> State:
    """The state with the attention that the token at its position pays, stored before, and the position after it."""
    result = compiled.attention()(q=column(query), gamma=parameters.gamma, **remembered(state))
    position = (state.position + 1) % state.keys[0].shape[0]
    return State(result["A"].column, state.keys, state.values, position, state.tokens)


def stored(state: State, key: tuple[Array, ...], value: tuple[Array, ...]) -> State:
    """`state` with the token at its position remembered."""
    keys = tuple(slots.at[state.position].set(entry) for slots, entry in zip(state.keys, key, strict=True))
    values = tuple(slots.at[state.position].set(entry) for slots, entry in zip(state.values, value, strict=True))
    tokens = jnp.minimum(state.tokens + 1, keys[0].shape[0])
    return State(state.attention, keys, values, state.position, tokens)


def remembered(state: State) -> dict[str, Matrix]:
    """Keys, values, and the logarithms of zero and one that leave out slots with no token yet."""
    context, *lanes = state.keys[0].shape
    live = jnp.where(jnp.arange(context) < state.tokens, 0.0, -jnp.inf)
    return {
        "K": long_matrix(state.keys),
        "V": long_matrix(state.values),
        "ell": long_matrix([live.reshape(context, *(1 for _ in lanes))]),
    }


def semantic_overlap(
    model: SelfAttention, family: int, parameters: Parameters, attention: Float[Array, "patterns *lanes"]
) -> Float[Array, "patterns *lanes"]:
    """What the semantic bits of the token after `attention` have of one family's overlap: (1 - epsilon) <w tanh>."""
    without_positions = eqx.tree_at(lambda at: at.positional, model, jnp.zeros_like(model.positional))
    return jnp.stack(without_positions.overlap(family, parameters, tuple(attention), jnp.zeros((), dtype=int)))


def in_lanes(values: Float[Array, "*_"], leading: int, lanes: tuple[int, ...]) -> Float[Array, "*_"]:
    """`values`, of so many `leading` axes before those of lanes, in all of `lanes`."""
    first, own = values.shape[:leading], values.shape[leading:]
    aligned = values.reshape(*first, *(1 for _ in range(len(lanes) - len(own))), *own)
    return jnp.broadcast_to(aligned, (*first, *lanes))


def mean_field(weights: Weights, context: int) -> SelfAttention:
    """The network of `weights` in the limit of many neurons, their columns repeated in proportion.

    Raises `ValueError` where the positional bits cannot tell `context` positions apart.
    """
    return SelfAttention(column_law(weights), positional_overlaps(weights, context))
