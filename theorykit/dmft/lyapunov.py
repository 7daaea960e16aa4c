"""Lyapunov exponents of the map, from its derived Jacobian; Eq. (8) of Poc-Lopez and Aguilera.

The Jacobian of a window of attentions is block companion: one new block row, and the other attentions one place older.
Perturbations are kept by slot like the tokens that they come from, where getting older costs nothing, and what the
responses of older tokens are is remembered with them. The position clock is periodic and has no exponents but zero.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..codegen.lanes import Matrix, add, column, entrywise, matrix
from ..dynamics.orthonormal import Orthonormalise, householder
from . import compiled
from .self_attention import KEY, QUERY, VALUE, Parameters, SelfAttention, State, attended, in_lanes, remembered, stored
from .starts import Window, warm_start
from .trajectory import widened

Response = tuple[tuple[Float[Array, "context *lanes"], ...], ...]


class Tangent(eqx.Module):
    """Perturbations of a window of attentions, and how the tokens remembered respond to theirs.

    - `vectors`: each `(patterns * context, *lanes)`, by pattern, then by slot: an attention has the slot of the token
      that follows it.
    - `values`, `keys`: D^v and D^k of every token, `patterns x patterns` entries `(context, *lanes)`.
    """

    vectors: tuple[Float[Array, "size *lanes"], ...]
    values: Response
    keys: Response


class LyapunovSpectrum(eqx.Module):
    """Lyapunov exponents per token, largest first, natural logarithm.

    - `exponents`, `errors`: `(exponents, *lanes)`, with standard errors from the scatter of `blocks`.
    - `blocks`: `(blocks, exponents, *lanes)`, means over successive stretches of the orbit.
    """

    exponents: Float[Array, "exponents *lanes"]
    errors: Float[Array, "exponents *lanes"]
    blocks: Float[Array, "blocks exponents *lanes"]


def lyapunov_spectrum(
    model: SelfAttention,
    parameters: Parameters,
    window: Window,
    *,
    steps: int,
    exponents: int | None = None,
    every: int = 1,
    blocks: int = 20,
    orthonormalise: Orthonormalise = householder,
) -> LyapunovSpectrum:
    """The leading exponents of the orbit from `window` over `steps` tokens, all of them by default.

    Perturbations are made orthonormal `every` so many tokens, by `dynamics.householder` or, faster and in any number of
    threads, by `dynamics.gram_schmidt`. An exponent is minus infinity where the Jacobian is singular to rounding.
    Raises `ValueError` for numbers of steps, blocks or exponents that cannot be.
    """
    size = model.context * model.patterns
    exponents = size if exponents is None else exponents
    if not 1 <= exponents <= size:
        raise ValueError(f"a context of {model.context} tokens and {model.patterns} patterns has 1 to {size} exponents")
    if every < 1 or steps < every * blocks or steps % every or blocks < 2:
        raise ValueError(
            f"{steps} steps cannot be cut into {blocks} blocks of multiples of {every}; there must be two blocks at "
            "least, and the steps must be a multiple of the interval"
        )
    rounds = steps // every
    totals = _accumulated(model, parameters, window, jnp.asarray(rounds), exponents, every, blocks, orthonormalise)
    of_block = np.bincount(np.arange(rounds) * blocks // rounds, minlength=blocks) * every
    means = totals / of_block.reshape(-1, *(1 for _ in totals.shape[1:]))
    mean = jnp.sum(totals, axis=0) / steps
    scatter = jnp.where(jnp.isfinite(mean), means - mean, 0.0)
    errors = jnp.sqrt(jnp.sum(scatter**2, axis=0) / (blocks * (blocks - 1)))
    return LyapunovSpectrum(mean, errors, means)


@eqx.filter_jit
def local_exponents(
    model: SelfAttention,
    parameters: Parameters,
    window: Window,
    *,
    steps: int,
    exponents: int,
    orthonormalise: Orthonormalise = householder,
) -> Float[Array, "steps exponents *lanes"]:
    """The logarithms that exponents are means of, token by token."""
    start = _begun(model, parameters, window, exponents)

    def token(at, _):
        state, tangent = _tangent_step(model, parameters, *at)
        vectors, growth = orthonormalise(tangent.vectors)
        return (state, Tangent(vectors, tangent.values, tangent.keys)), growth

    return jax.lax.scan(token, start, None, length=steps)[1]


@eqx.filter_jit
def _accumulated(model, parameters, window, rounds, exponents, every, blocks, orthonormalise):
    state, tangent = _begun(model, parameters, window, exponents)
    totals = jnp.zeros((blocks, exponents, *state.attention[0].shape))

    def one_round(number: Int[Array, ""], at):
        state, tangent, totals = at
        for _ in range(every):
            state, tangent = _tangent_step(model, parameters, state, tangent)
        vectors, growth = orthonormalise(tangent.vectors)
        return state, Tangent(vectors, tangent.values, tangent.keys), totals.at[number * blocks // rounds].add(growth)

    return jax.lax.fori_loop(0, rounds, one_round, (state, tangent, totals))[2]


def _begun(model: SelfAttention, parameters: Parameters, window: Window, exponents: int) -> tuple[State, Tangent]:
    state = widened(parameters, warm_start(model, parameters, window))
    lanes = state.attention[0].shape
    context, patterns = model.context, model.patterns
    ages = (window.position - jnp.arange(context)) % context  # the slot of each attention, newest first
    past = jnp.moveaxis(in_lanes(window.attention, 2, lanes), 1, 0)
    by_slot = tuple(jnp.zeros_like(past).at[:, ages].set(past))
    values, keys = (_overlap_response(model, family, parameters, by_slot).grid for family in (VALUE, KEY))
    units = jnp.zeros((exponents, patterns, context, *lanes))
    order = np.arange(exponents)  # newest attention first, by pattern
    units = units.at[order, order % patterns, ages[order // patterns]].set(1.0)
    return state, Tangent(tuple(units.reshape(exponents, patterns * context, *lanes)), values, keys)


def _overlap_response(model: SelfAttention, family: int, parameters: Parameters, attention) -> Matrix:
    return compiled.overlap_response()(
        Omega=matrix(model.directions),
        C=matrix(model.moments[family]),
        A=column(attention),
        beta=parameters.beta,
        epsilon=parameters.epsilon,
    )["D"]


def _tangent_step(
    model: SelfAttention, parameters: Parameters, state: State, tangent: Tangent
) -> tuple[State, Tangent]:
    """One token further, perturbations with it, not yet orthonormal again."""
    slot = state.position
    key, value, query = (model.overlap(family, parameters, state.attention, slot) for family in (KEY, VALUE, QUERY))
    key_response, value_response, query_response = (
        _overlap_response(model, family, parameters, state.attention) for family in (KEY, VALUE, QUERY)
    )
    state = stored(state, key, value)
    values, keys = _with_token(tangent.values, slot, value_response), _with_token(tangent.keys, slot, key_response)
    jacobian = _jacobian(parameters, state, column(query), Matrix(values), Matrix(keys), query_response)
    following = _marks(state, slot + 1)
    vectors = tuple(_propagated(jacobian, following, vector) for vector in tangent.vectors)
    return attended(parameters, state, query), Tangent(vectors, values, keys)


def _with_token(kept: Response, slot: Int[Array, ""], new: Matrix) -> Response:
    """The responses kept, with that of a new token in its slot."""
    rows = zip(kept, new.grid, strict=True)
    return tuple(tuple(slots.at[slot].set(entry) for slots, entry in zip(*row, strict=True)) for row in rows)


def _jacobian(
    parameters: Parameters, state: State, query: Matrix, values: Matrix, keys: Matrix, query_response: Matrix
) -> Matrix:
    """How the next attention moves with the one that each token remembered was drawn from: a block a slot; Eq. (8)."""
    tokens, gamma = remembered(state), parameters.gamma
    attending = compiled.attention_response()(q=query, gamma=gamma, **tokens)
    ((weights,),), (row,) = attending["s"].grid, attending["G"].grid
    every = compiled.row_response()(s=weights, g=column(row), q=query, gamma=gamma, D_v=values, D_k=keys)["J"]
    newest = compiled.query_response()(G=attending["G"], K=tokens["K"], D_q=query_response, gamma=gamma)["J"]
    here = _marks(state, state.position)
    return add(every, entrywise(lambda entry: here * entry, newest))


def _marks(state: State, slot: Int[Array, ""]) -> Float[Array, "context *_"]:
    """One at `slot`, zero at all others."""
    context, *lanes = state.keys[0].shape
    marks = jnp.where(jnp.arange(context) == slot % context, 1.0, 0.0)
    return marks.reshape(context, *(1 for _ in lanes))


def _propagated(jacobian: Matrix, newest: Array, vector: Float[Array, "size *lanes"]) -> Float[Array, "size *lanes"]:
    """A perturbation one token on: the newest attention's, in place of the oldest one's, and the others as they are."""
    parts = jnp.split(vector, len(jacobian.grid))
    changes = [
        jnp.sum(sum(entry * part for entry, part in zip(row, parts, strict=True)), axis=0) for row in jacobian.grid
    ]
    return jnp.concatenate([jnp.where(newest > 0, new, old) for new, old in zip(changes, parts, strict=True)])
