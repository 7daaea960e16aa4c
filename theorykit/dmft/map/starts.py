"""Where a run starts: from a prompt, in one of two conventions of how it is attended, or from a window of attentions.

In the token-exact convention the prompt is the token at position 0, remembered like any other. In that of a window,
used by the published program, it is attended by itself alone: its value is the first attention, it is not remembered,
and the token after it has position 0.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ...checks import (
    Requirement,
    check_is_whole,
    checked_array,
    checked_instance,
    checked_whole_number,
    finite_entries,
    is_traced,
    numeric_array,
    require,
)
from ...precision import require_float64
from ...settings import usual_settings
from ..weights.weights import FAMILIES, Weights
from .self_attention import (
    KEY,
    VALUE,
    Parameters,
    SelfAttention,
    State,
    broadcast_to_batch,
    check_network,
    checked_fit,
    store,
)

# of overlaps, which are means of signs
_ROUNDING = 1e-12

# overlaps of a prompt's semantic bits with the four families
Prompt = Float[np.ndarray, "families patterns"]


class Window(eqx.Module):
    """The latest attentions of a run, from which it can be taken up at the same or at other parameters.

    - `attention`: `(context, patterns, *batch)`, newest first; `position`: of the next token, from 0 to context - 1.

    Raises `TypeError` for what are no numbers, `ValueError` for numbers that are not finite, fewer than two axes, or a
    position that is none of the context.
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
        """Tokens of the window: those that attention reads."""
        return self.attention.shape[0]

    @property
    def patterns(self) -> int:
        """M, patterns of each family of weights."""
        return self.attention.shape[1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of the batch of networks; empty for one."""
        return self.attention.shape[2:]


def prompt(weights: Weights, bits: ArrayLike) -> Prompt:
    """The prompt of `bits` +-1, `(neurons + position_bits,)`, positional ones last and of position 0: all -1.

    Raises `TypeError` or `ValueError` for other bits.
    """
    checked_instance("weights", weights, Weights)
    bits = checked_array("bits", bits)
    if bits.shape != (weights.neurons + weights.position_bits,) or not np.isin(bits, (-1, 1)).all():
        raise ValueError(
            f"a prompt has {weights.neurons} semantic and {weights.position_bits} positional bits of +-1, got "
            f"bits of shape {bits.shape} from {bits.min(initial=np.inf):g} to {bits.max(initial=-np.inf):g}"
        )
    semantic, positional = np.split(bits.astype(float), [weights.neurons])
    if np.any(positional != -1):
        raise ValueError(f"a prompt stands at position 0, whose bits are all -1, not {positional.astype(int)}")
    return weights.semantic @ semantic / weights.neurons


def pattern_prompt(weights: Weights, family: int = 0, pattern: int = 0) -> Prompt:
    """The prompt whose semantic bits are a row of the weights, by default the first one of the output.

    Raises `TypeError` or `ValueError` for a family or pattern that the weights do not have.
    """
    checked_instance("weights", weights, Weights)
    checked_whole_number("family", family, least=0, most=len(FAMILIES) - 1)
    checked_whole_number("pattern", pattern, least=0, most=weights.patterns - 1)
    positional = -np.ones(weights.position_bits)
    return prompt(weights, np.concatenate([weights.semantic[family, pattern], positional]))


@usual_settings()
def token_start(model: SelfAttention, parameters: Parameters, of: Prompt) -> State:
    """The state after a prompt in the token-exact convention: it is remembered, and the next position is 1.

    Raises `TypeError` or `ValueError` for a prompt of another number of patterns.
    """
    overlaps = _first_overlaps(model, parameters, of)
    first = store(_blank(model, overlaps[VALUE]), overlaps[KEY], overlaps[VALUE])
    return eqx.tree_at(lambda at: at.position, first, jnp.asarray(1 % model.context))


@usual_settings()
def window_start(model: SelfAttention, parameters: Parameters, of: Prompt) -> State:
    """The state after a prompt in the window convention: nothing is remembered, and the next position is 0.

    Raises `TypeError` or `ValueError` for a prompt of another number of patterns.
    """
    return _blank(model, _first_overlaps(model, parameters, of)[VALUE])


@usual_settings()
def state_from_window(model: SelfAttention, parameters: Parameters, window: Window) -> State:
    """The state with the attentions of `window`, its keys and values those that follow from them.

    Raises `TypeError` or `ValueError` for a window that is not one of `model`, or whose batch shape does not fit.
    """
    window = checked_fit("window", window, Window, model, parameters)
    return unchecked_state(model, parameters, window.attention, window.position)


def unchecked_state(
    model: SelfAttention,
    parameters: Parameters,
    attention: Float[Array, "context patterns *batch"],
    position: Int[Array, ""],
) -> State:
    """`state_from_window` of what is known to fit, for compiled loops."""
    batch = jnp.broadcast_shapes(parameters.batch_shape, attention.shape[2:])
    attention = broadcast_to_batch(attention, 2, batch)
    ages = jnp.arange(1, model.context)
    positions = (position - ages) % model.context

    def slots(family: int) -> tuple[Float[Array, "context *batch"], ...]:
        flat = positions.reshape(-1, *(1 for _ in batch))
        found = model.unchecked_overlap(family, parameters, tuple(jnp.moveaxis(attention[1:], 1, 0)), flat)
        return tuple(jnp.zeros((model.context, *batch)).at[positions].set(entry) for entry in found)

    tokens = jnp.asarray(model.context)
    return State(tuple(attention[0]), slots(KEY), slots(VALUE), position % model.context, tokens)


def _first_overlaps(model: SelfAttention, parameters: Parameters, of: Prompt) -> list[tuple[Array, ...]]:
    check_network(model, parameters)
    of = checked_prompt("of", of, model)
    share, batch = parameters.epsilon, parameters.batch_shape
    semantic, positional = (each.reshape(*of.shape, *(1 for _ in batch)) for each in (of, model.positional[0]))
    mixed = (1 - share) * semantic + share * positional  # Eq. (1)
    return [tuple(family) for family in jnp.broadcast_to(mixed, (*of.shape, *batch))]


def checked_prompt(name: str, of: Any, model: SelfAttention) -> Prompt:
    """The overlaps of a prompt, if `model` has as many patterns; otherwise `TypeError` or `ValueError` by its name."""
    overlaps, expected = checked_array(name, of), (len(FAMILIES), model.patterns)
    if overlaps.shape != expected:
        raise ValueError(f"{name}: overlaps of a prompt are {expected}, got {overlaps.shape}")
    if np.max(np.abs(overlaps)) > 1 + _ROUNDING:
        raise ValueError(f"{name}: overlaps of a prompt are from -1 to 1, got {np.max(np.abs(overlaps)):g}")
    return overlaps


def _blank(model: SelfAttention, attention: tuple[Array, ...]) -> State:
    """No token is remembered, and the next position is 0."""
    slots = tuple(jnp.zeros((model.context, *entry.shape)) for entry in attention)
    return State(attention, slots, slots, jnp.asarray(0), jnp.asarray(0))
