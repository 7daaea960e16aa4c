"""The map over whole turns of the position clock: autonomous, so that its fixed points and cycles can be followed."""

from functools import reduce
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import (
    check_is_number,
    checked_choice,
    checked_whole_number,
    finite_entries,
    is_traced,
    numeric_array,
    refuse_known,
)
from ...precision import require_float64
from .self_attention import Parameters, SelfAttention, check_network, checked_fit, in_range
from .starts import Window, unchecked_state

Scanned = Literal["beta", "gamma", "epsilon"]


class Stroboscope(eqx.Module):
    """A window of attentions, seen once in so many tokens, as a function of one parameter.

    Called with `(context * patterns,)` attentions, newest first, and the value of `scanned`, it returns those `tokens`
    later: a whole turn of the position clock by default. One token is enough where positions do not matter,
    `epsilon` = 0. Inside compiled functions the result is NaN where the state or the value is not one of the map's. It
    is the `step` that `theorykit.dynamics` finds and follows cycles of; a cycle of k turns has
    k * tokens tokens. Raises `TypeError` or `ValueError` where the position clock is elsewhere after `tokens`, where
    `scanned` is no parameter, and for parameters that are a batch.
    """

    model: SelfAttention
    parameters: Parameters
    scanned: Scanned = eqx.field(static=True)
    tokens: int = eqx.field(static=True)

    def __init__(
        self, model: SelfAttention, parameters: Parameters, scanned: Scanned = "beta", tokens: int | None = None
    ):
        check_network(model, parameters)
        checked_choice("scanned", scanned, get_args(Scanned))
        if parameters.batch_shape:
            raise ValueError(
                f"parameters of a stroboscope are single numbers, got a batch of shape {parameters.batch_shape}"
            )
        tokens = model.context if tokens is None else checked_whole_number("tokens", tokens)
        if tokens < 1 or (tokens % model.context and float(parameters.epsilon) != 0):
            raise ValueError(
                f"after {tokens} tokens the position clock of {model.context} is not where it was, and with epsilon = "
                f"{parameters.epsilon} the map is then another; take a multiple of the context"
            )
        self.model, self.parameters, self.scanned, self.tokens = model, parameters, scanned, tokens

    def __call__(self, state: Float[Array, " size"], value: Float[Array, ""]) -> Float[Array, " size"]:
        require_float64()
        size = self.model.context * self.model.patterns
        state = numeric_array("state", state)
        if jnp.shape(state) != (size,):
            raise ValueError(
                f"a state of this network is {size} attentions, {self.model.context} tokens of {self.model.patterns} "
                f"patterns, got shape {jnp.shape(state)}"
            )
        check_is_number("value", value)
        scanned = value if is_traced(value) else np.asarray(value, dtype=float)
        traced = refuse_known([finite_entries("state", state), *in_range(self.scanned, scanned, "value")])
        scanned = jnp.asarray(scanned, dtype=float)
        parameters = eqx.tree_at(lambda at: getattr(at, self.scanned), self.parameters, scanned)
        after = _after(self.model, parameters, jnp.asarray(state), self.tokens)
        # a solver's step may lead outside, and comes back from a value that is not finite, not from an error
        return reduce(lambda kept, at: jnp.where(jnp.all(at.holds), kept, jnp.nan), traced, after)

    def state(self, window: Window) -> Float[Array, " size"]:
        """The state of a window whose next token is at position 0.

        Raises `TypeError` or `ValueError` for a window of another network or that is a batch, and for one that is
        elsewhere on the position clock.
        """
        window = checked_fit("window", window, Window, self.model)
        if window.batch_shape:
            raise ValueError(f"the window of a state is a single one, got a batch of shape {window.batch_shape}")
        if self.tokens % self.model.context == 0 and int(window.position) != 0:
            raise ValueError(f"the window's next token is at position {int(window.position)}, not at 0")
        return window.attention.ravel()


@eqx.filter_jit
def _after(model: SelfAttention, parameters: Parameters, state: Float[Array, " size"], tokens: int):
    """The attentions of a window, so many tokens later; compiled once for all parameters."""
    window = state.reshape(model.context, model.patterns)
    start, recorded = unchecked_state(model, parameters, window, jnp.asarray(0)), min(tokens, model.context)

    def token(state, _):
        after = model.unchecked_step(parameters, state)
        return after, jnp.stack(after.attention)

    _, attention = jax.lax.scan(token, start, None, length=tokens)
    newest = attention[::-1][:recorded]
    return jnp.concatenate([newest, window[: model.context - recorded]]).ravel()
