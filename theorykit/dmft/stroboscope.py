"""The map over whole turns of the position clock: autonomous, so that its fixed points and cycles can be followed."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .self_attention import Parameters, SelfAttention
from .starts import Window, warm_start

Scanned = Literal["beta", "gamma", "epsilon"]


class Stroboscope(eqx.Module):
    """A window of attentions, seen once in so many tokens, as a function of one parameter.

    Called with `(context * patterns,)` attentions, newest first, and the value of `scanned`, it returns those `tokens`
    later: a whole turn of the position clock by default. One token is enough where positions do not matter,
    `epsilon` = 0. It is the `step` that `theorykit.dynamics` finds and follows cycles of; a cycle of k turns has
    k * tokens tokens.
    """

    model: SelfAttention
    parameters: Parameters
    scanned: Scanned = eqx.field(static=True)
    tokens: int = eqx.field(static=True)

    def __init__(
        self, model: SelfAttention, parameters: Parameters, scanned: Scanned = "beta", tokens: int | None = None
    ):
        tokens = model.context if tokens is None else tokens
        if tokens < 1 or (tokens % model.context and float(parameters.epsilon) != 0):
            raise ValueError(
                f"after {tokens} tokens the position clock of {model.context} is not where it was, and with epsilon = "
                f"{parameters.epsilon} the map is then another; take a multiple of the context"
            )
        self.model, self.parameters, self.scanned, self.tokens = model, parameters, scanned, tokens

    def __call__(self, state: Float[Array, " size"], value: Float[Array, ""]) -> Float[Array, " size"]:
        parameters = eqx.tree_at(lambda at: getattr(at, self.scanned), self.parameters, value)
        window = Window(state.reshape(self.model.context, self.model.patterns))
        start = warm_start(self.model, parameters, window)
        recorded = min(self.tokens, self.model.context)

        def token(state, _):
            after = self.model.step(parameters, state)
            return after, jnp.stack(after.attention)

        _, attention = jax.lax.scan(token, start, None, length=self.tokens)
        newest = attention[::-1][:recorded]
        return jnp.concatenate([newest, window.attention[: self.model.context - recorded]]).ravel()

    def state(self, window: Window) -> Float[Array, " size"]:
        """The state of a window whose next token is at position 0.

        Raises `ValueError` for a window that is elsewhere on the position clock.
        """
        if self.tokens % self.model.context == 0 and int(window.position) != 0:
            raise ValueError(f"the window's next token is at position {int(window.position)}, not at 0")
        return window.attention.ravel()
