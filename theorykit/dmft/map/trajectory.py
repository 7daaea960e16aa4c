"""Orbits of the map: many at once, recorded or passed over."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from ...checks import Requirement, check_is_whole, checked_whole_number, is_traced, require
from ...settings import usual_settings
from .over_cores import over_cores
from .self_attention import Parameters, SelfAttention, State, broadcast_to_batch, checked_fit, map_batch
from .starts import Window

# tokens that are worth threads
_MANY = 10_000


class Trajectory(eqx.Module):
    """Attentions one token after another.

    - `attention`: `(steps + 1, patterns, *batch)`, the start's first.
    - `positions`: `(steps,)`, of the token that is between one attention and the next.
    - `end`: the state that the run may be taken up from.
    """

    attention: Float[Array, "times patterns *batch"]
    positions: Int[Array, " steps"]
    end: State

    def window(self, model: SelfAttention) -> Window:
        """The last attentions, as a start for other parameters.

        Raises `ValueError` where fewer were recorded than the context holds, or `model` is another network.
        """
        end = checked_fit("trajectory", self.end, State, model)
        if len(self.attention) < model.context:
            raise ValueError(f"{len(self.attention)} attentions were recorded, a window has {model.context}")
        return Window(self.attention[::-1][: model.context], end.position)

    def overlaps(self, model: SelfAttention, parameters: Parameters) -> Float[Array, "steps families patterns *batch"]:
        """m^o, m^v, m^q, m^k of every token of the run but the prompt.

        Raises `ValueError` where `model` is another network, or the batch shape of `parameters` does not fit.
        """
        checked_fit("trajectory", self.end, State, model, parameters)
        return _overlaps(model, parameters, self.attention[:-1], self.positions)


@usual_settings()
def advance(model: SelfAttention, parameters: Parameters, state: State, steps: Int[ArrayLike, ""]) -> State:
    """The state after `steps` more tokens, a number that may change without compiling anew; of large batches and many
    tokens on all cores.

    Raises `TypeError` or `ValueError` for a state that is not one of `model`, and for steps that are no whole number
    from 0 on.
    """
    state = checked_fit("state", state, State, model, parameters)
    if is_traced(steps):
        check_is_whole("steps", steps)
        steps = require(steps, [Requirement("steps must be at least 0", steps >= 0)])
    else:
        steps = checked_whole_number("steps", steps, least=0)
        if steps >= _MANY:
            return over_cores(lambda *at: _advance(model, *at, jnp.asarray(steps)), parameters, state)
    return _advance(model, parameters, state, jnp.asarray(steps))


@eqx.filter_jit
def _advance(model: SelfAttention, parameters: Parameters, state: State, steps: Int[Array, ""]) -> State:
    return jax.lax.fori_loop(
        0, steps, lambda _, at: model.unchecked_step(parameters, at), broadcast_to_parameters(parameters, state)
    )


@usual_settings()
def run(model: SelfAttention, parameters: Parameters, start: State, *, steps: int) -> Trajectory:
    """`steps` tokens after `start`, every attention recorded.

    Raises `TypeError` or `ValueError` for a start that is not a state of `model`, and for steps that are no whole
    number from 0 on.

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
    start = checked_fit("start", start, State, model, parameters)
    return _run(model, parameters, start, checked_whole_number("steps", steps, least=0))


@eqx.filter_jit
def _run(model: SelfAttention, parameters: Parameters, start: State, steps: int) -> Trajectory:
    start = broadcast_to_parameters(parameters, start)

    def token(state: State, _):
        after = model.unchecked_step(parameters, state)
        return after, (after.attention, state.position)

    end, (attention, positions) = jax.lax.scan(token, start, None, length=steps)
    every = [jnp.concatenate([first[None], rest]) for first, rest in zip(start.attention, attention, strict=True)]
    return Trajectory(jnp.stack(every, axis=1), positions, end)


@usual_settings()
def discard_transient(model: SelfAttention, parameters: Parameters, start: State, steps: int) -> Window:
    """The window of attentions that `start` has come to after `steps` tokens, a transient that is not recorded.

    Raises `TypeError` or `ValueError` for a start that is not a state of `model`, and for fewer steps than the context
    holds.
    """
    start = checked_fit("start", start, State, model, parameters)
    if checked_whole_number("steps", steps) < model.context:
        raise ValueError(f"a window has {model.context} attentions, and {steps} steps do not fill it")
    nearly = advance(model, parameters, start, jnp.asarray(steps - model.context))
    return run(model, parameters, nearly, steps=model.context).window(model)


def broadcast_to_parameters(parameters: Parameters, state: State) -> State:
    """`state`, broadcast to the batch shape of the parameters."""
    batch = jnp.broadcast_shapes(parameters.batch_shape, state.attention[0].shape)
    return map_batch(state, lambda entry, leading: broadcast_to_batch(entry, leading, batch))


@eqx.filter_jit
def _overlaps(model, parameters, attention, positions):
    flat = positions.reshape(-1, *(1 for _ in attention.shape[2:]))
    before = tuple(jnp.moveaxis(attention, 1, 0))
    families = [jnp.stack(model.unchecked_overlap(family, parameters, before, flat), axis=1) for family in range(4)]
    return jnp.stack(families, axis=1)
