"""Where a run starts: from a prompt, in one of two conventions of how it is attended, or from a window of attentions.

In the token-exact convention the prompt is the token at position 0, remembered like any other. In that of a window,
used by the published program, it is attended by itself alone: its value is the first attention, it is not remembered,
and the token after it has position 0.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from .self_attention import KEY, VALUE, Parameters, SelfAttention, State, in_lanes
from .weights import FAMILIES, Weights

# overlaps of a prompt's semantic bits with the four families
Prompt = Float[np.ndarray, "families patterns"]


class Window(eqx.Module):
    """The latest attentions of a run, from which it can be taken up at the same or at other parameters.

    - `attention`: `(context, patterns, *lanes)`, newest first; `position`: of the next token.
    """

    attention: Float[Array, "context patterns *lanes"]
    position: Int[Array, ""]

    def __init__(self, attention: ArrayLike, position: ArrayLike = 0):
        self.attention, self.position = jnp.asarray(attention, dtype=float), jnp.asarray(position, dtype=int)


def prompt(weights: Weights, bits: ArrayLike) -> Prompt:
    """The prompt of `bits` +-1, `(neurons + position_bits,)`, positional ones last and of position 0: all -1.

    Raises `ValueError` for other bits.
    """
    bits = np.asarray(bits)
    if bits.shape != (weights.neurons + weights.position_bits,) or not np.isin(bits, (-1, 1)).all():
        raise ValueError(
            f"a prompt has {weights.neurons} semantic and {weights.position_bits} positional bits of +-1, got "
            f"{bits.shape} from {bits.min()} to {bits.max()}"
        )
    semantic, positional = np.split(bits.astype(float), [weights.neurons])
    if np.any(positional != -1):
        raise ValueError(f"a prompt stands at position 0, whose bits are all -1, not {positional.astype(int)}")
    return weights.semantic @ semantic / weights.neurons


def pattern_prompt(weights: Weights, family: int = 0, pattern: int = 0) -> Prompt:
    """The prompt whose semantic bits are a row of the weights, by default the first one of the output."""
    positional = -np.ones(weights.position_bits)
    return prompt(weights, np.concatenate([weights.semantic[family, pattern], positional]))


def token_start(model: SelfAttention, parameters: Parameters, of: Prompt) -> State:
    """The state after a prompt in the token-exact convention: it is remembered, and the next position is 1."""
    overlaps = _first_overlaps(model, parameters, of)
    empty = _blank(model, overlaps[VALUE], position=1 % model.context, tokens=1)
    keys, values = (
        tuple(slots.at[0].set(entry) for slots, entry in zip(blank, overlaps[family], strict=True))
        for blank, family in ((empty.keys, KEY), (empty.values, VALUE))
    )
    return State(empty.attention, keys, values, empty.position, empty.tokens)


def window_start(model: SelfAttention, parameters: Parameters, of: Prompt) -> State:
    """The state after a prompt in the window convention: nothing is remembered, and the next position is 0."""
    return _blank(model, _first_overlaps(model, parameters, of)[VALUE], position=0, tokens=0)


def warm_start(model: SelfAttention, parameters: Parameters, window: Window) -> State:
    """The state with the attentions of `window`, its keys and values those that follow from them.

    Raises `ValueError` for a window of another length than the context, or of another number of patterns.
    """
    expected, found = (model.context, model.patterns), window.attention.shape[:2]
    if found != expected:
        raise ValueError(f"a window of {found} (tokens, patterns) does not fit a network of {expected}")
    lanes = jnp.broadcast_shapes(parameters.lanes, window.attention.shape[2:])
    attention = in_lanes(window.attention, 2, lanes)
    ages = jnp.arange(1, model.context)
    positions = (window.position - ages) % model.context

    def slots(family: int) -> tuple[Float[Array, "context *lanes"], ...]:
        flat = positions.reshape(-1, *(1 for _ in lanes))
        found = model.overlap(family, parameters, tuple(jnp.moveaxis(attention[1:], 1, 0)), flat)
        return tuple(jnp.zeros((model.context, *lanes)).at[positions].set(entry) for entry in found)

    tokens = jnp.asarray(model.context)
    return State(tuple(attention[0]), slots(KEY), slots(VALUE), window.position % model.context, tokens)


def _first_overlaps(model: SelfAttention, parameters: Parameters, of: Prompt) -> list[tuple[Array, ...]]:
    if np.shape(of) != (len(FAMILIES), model.patterns):
        raise ValueError(f"overlaps of a prompt are {(len(FAMILIES), model.patterns)}, got {np.shape(of)}")
    share, lanes = parameters.epsilon, parameters.lanes
    mixed = ((1 - share) * semantic + share * positional for semantic, positional in _pairs(of, model))  # Eq. (1)
    flat = [jnp.broadcast_to(entry, lanes) for entry in mixed]
    return [tuple(flat[i : i + model.patterns]) for i in range(0, len(flat), model.patterns)]


def _pairs(of: Prompt, model: SelfAttention):
    return zip(np.ravel(of), jnp.ravel(model.positional[0]), strict=True)


def _blank(model: SelfAttention, attention: tuple[Array, ...], position: int, tokens: int) -> State:
    slots = tuple(jnp.zeros((model.context, *entry.shape)) for entry in attention)
    return State(attention, slots, slots, jnp.asarray(position), jnp.asarray(tokens))
