"""Lyapunov exponents of the map, from its derived Jacobian; Eq. (8) of Poc-Lopez and Aguilera.

The Jacobian of the map on a window of `context` attentions is block companion: one row of blocks for the newest
attention, while every other attention moves to the next place. Perturbations are stored in the ring buffer of the
tokens, so that only the newest row is computed; the derivatives of older keys and values, which it needs, are stored
too. The position of the token is periodic: it would add exponents that are zero.
"""

import warnings
from collections.abc import Callable
from functools import partial, reduce
from operator import add as plus

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Shaped

from ...checks import checked_array, checked_function, checked_whole_number, first_line, has_entries, is_traced
from ...codegen.batch import Matrix, add, column, entrywise, length, matrix, squares
from ...dynamics.orthonormal import Orthonormalise, gram_schmidt, householder, unchecked
from ...settings import usual_settings
from . import compiled
from .over_cores import over_cores
from .resolution import Resolution, Sizes
from .self_attention import (
    KEY,
    QUERY,
    VALUE,
    Parameters,
    SelfAttention,
    State,
    attend,
    broadcast_to_batch,
    checked_fit,
    read_memory,
    store,
    with_entry,
)
from .starts import Window, unchecked_state
from .trajectory import broadcast_to_parameters

# growth a token, below which an exponent that is lost is as good as minus infinity
_KNOWN = -1.0
# of the random directions in which perturbations start
_SEED = 0

Response = tuple[tuple[Float[Array, "context *batch"], ...], ...]
"""The derivatives dm/dA of the overlaps m of every token in the context, by pattern of m, then of A."""


class Tangent(eqx.Module):
    """Tangent vectors at a window of attentions, and the derivatives D = dm/dA of the keys and values in the context.

    - `vectors`: by pattern, then by slot: an attention has the slot of the token that follows it.
    - `values`, `keys`: D^v and D^k of every token.
    """

    vectors: Float[Array, "exponents patterns context *batch"]
    values: Response
    keys: Response


class LyapunovSpectrum(eqx.Module):
    """Lyapunov exponents per token, largest first, natural logarithm.

    - `exponents`, `errors`: `(exponents, *batch)`, with standard errors from the scatter of `blocks`.
    - `blocks`: `(blocks, exponents, *batch)`, means over successive stretches of the orbit.
    - `unresolved`: `(exponents, *batch)`, where an exponent is minus infinity because double precision does not tell
      it, and not because the map annihilates the perturbation: nothing is known of it.
    """

    exponents: Float[Array, "exponents *batch"]
    errors: Float[Array, "exponents *batch"]
    blocks: Float[Array, "blocks exponents *batch"]
    unresolved: Bool[Array, "exponents *batch"]


@usual_settings()
def lyapunov_spectrum(
    model: SelfAttention,
    parameters: Parameters,
    window: Window,
    *,
    steps: int,
    exponents: int | ArrayLike | None = None,
    every: int | None = None,
    blocks: int = 20,
    orthonormalise: Orthonormalise = householder,
) -> LyapunovSpectrum:
    """The largest exponents of the orbit from `window` over `steps` tokens, all of them by default; largest first.

    `exponents` is how many, whose perturbations start in random directions, always the same; or the perturbations at
    the start, `(exponents, context, patterns)`, newest attention first: then exponents are in their order. They are
    made orthonormal `every` so many tokens, by default a quarter of the context or somewhat less, so that `steps` is a
    multiple; by `dynamics.householder` or, faster and with large batches on all cores, by `dynamics.gram_schmidt`.

    An exponent is minus infinity where, within as many tokens as the context, its perturbations come to be less than
    twice what may be rounding: the map annihilates them, or double precision cannot tell, which `unresolved` says, with
    a warning. They are left out from then on, so that exponents after it are those of the other perturbations alone.
    What rounding does to these is log 2 a context at most, and mostly far less.

    Raises `TypeError` or `ValueError` that names the argument, also for a window that is not one of `model`.
    """
    window = checked_fit("window", window, Window, model, parameters)
    every = _checked_interval(steps, every, blocks, model.context)
    rounds = steps // every
    perturbations = jnp.asarray(_perturbations(model, exponents))
    _check_method(orthonormalise, perturbations)
    accumulate = partial(_accumulate, model, perturbations, jnp.asarray(rounds), every, blocks, orthonormalise)
    if orthonormalise is gram_schmidt:
        totals, lost, floor = over_cores(accumulate, parameters, window)
    else:  # perhaps by LAPACK, of whose calls several at once may wait for ever
        totals, lost, floor = accumulate(parameters, window)
    of_block = np.bincount(np.arange(rounds) * blocks // rounds, minlength=blocks) * every
    means = totals / of_block.reshape(-1, *(1 for _ in totals.shape[1:]))
    is_chosen = _are_perturbations(exponents)
    if not is_chosen:  # an exponent is not above one that is lost
        lost, floor = jnp.cumsum(lost, axis=0) > 0, jax.lax.cummax(floor, axis=0)
    # where the map annihilates a perturbation, rounding is far smaller than those that shrink as usual
    unresolved = lost & (floor / model.context > _KNOWN)
    _warn_of_unresolved(unresolved)
    totals, means = (jnp.where(lost, -jnp.inf, values) for values in (totals, means))
    mean = jnp.sum(totals, axis=0) / steps
    scatter = jnp.where(jnp.isfinite(mean), means - mean, 0.0)
    errors = jnp.sqrt(jnp.sum(scatter**2, axis=0) / (blocks * (blocks - 1)))
    if is_chosen:
        return LyapunovSpectrum(mean, errors, means, unresolved)
    order = jnp.argsort(mean, axis=0, descending=True)
    mean, errors, unresolved = (jnp.take_along_axis(values, order, axis=0) for values in (mean, errors, unresolved))
    return LyapunovSpectrum(mean, errors, jnp.take_along_axis(means, order[None], axis=1), unresolved)


def _warn_of_unresolved(unresolved: Bool[Array, "exponents *batch"]) -> None:
    if is_traced(unresolved) or not np.any(unresolved):
        return
    warnings.warn(
        f"{np.sum(unresolved)} of {unresolved.size} Lyapunov exponents are minus infinity because double precision "
        "does not tell them, and nothing is known of them: the map multiplies rounding by too much, as at a very large "
        "gamma",
        stacklevel=4,
    )


@usual_settings()
def local_exponents(
    model: SelfAttention,
    parameters: Parameters,
    window: Window,
    *,
    steps: int,
    exponents: int | ArrayLike | None = None,
    orthonormalise: Orthonormalise = householder,
) -> Float[Array, "steps exponents *batch"]:
    """log R_jj of every token, whose means over tokens are the exponents; the largest mean first.

    `exponents`, and their order where perturbations are given, are as in `lyapunov_spectrum`; but logarithms of what
    rounding leaves are returned as they are. Raises as that does.
    """
    window = checked_fit("window", window, Window, model, parameters)
    steps = checked_whole_number("steps", steps, least=1)
    perturbations = jnp.asarray(_perturbations(model, exponents))
    _check_method(orthonormalise, perturbations)
    found = _local_exponents(model, parameters, window, perturbations, steps, orthonormalise)
    if _are_perturbations(exponents):
        return found
    order = jnp.argsort(jnp.mean(found, axis=0), axis=0, descending=True)
    return jnp.take_along_axis(found, order[None], axis=1)


def _checked_interval(steps: int, every: int | None, blocks: int, context: int) -> int:
    """How many tokens there are from one orthonormalisation to the next."""
    for name, value in (("steps", steps), ("blocks", blocks)):
        checked_whole_number(name, value)
    if every is None:  # the tokens of a group of `Resolution`, which are one to it
        most = max(1, min(context // 4, steps // max(blocks, 1)))
        every = max(number for number in range(1, most + 1) if steps % number == 0)
    checked_whole_number("every", every, least=1)
    if steps < every * blocks or steps % every or blocks < 2:
        raise ValueError(
            f"steps={steps} cannot be cut into {blocks} blocks of multiples of every={every}; there must be two blocks "
            "at least, and the steps must be a multiple of the interval"
        )
    return every


def _perturbations(
    model: SelfAttention, exponents: int | ArrayLike | None
) -> Float[np.ndarray, "exponents context patterns"]:
    """The perturbations at the start: those given, or random ones, of which the first are the same for any number."""
    shape = (model.context, model.patterns)
    if _are_perturbations(exponents):
        return _checked_perturbations(exponents, shape)
    size = model.context * model.patterns
    number = size if exponents is None else checked_whole_number("exponents", exponents)
    if not 1 <= number <= size:
        raise ValueError(
            f"a context of {model.context} tokens and {model.patterns} patterns has 1 to {size} exponents, got "
            f"exponents={number}"
        )
    # a unit vector may be one that the map annihilates, though others of the plane that it spans with the next are not
    drawn = np.random.default_rng(_SEED).standard_normal((number, size))
    return np.linalg.qr(drawn.T)[0].T.reshape(number, *shape)


def _are_perturbations(exponents: int | ArrayLike | None) -> bool:
    return has_entries(exponents) and not isinstance(exponents, str)


def _check_method(orthonormalise: Orthonormalise, perturbations: Float[Array, "exponents context patterns"]) -> None:
    """Raise `TypeError` or `ValueError` unless `orthonormalise` makes a basis of as many vectors, and their lengths."""
    checked_function("orthonormalise", orthonormalise)
    vectors = tuple(jax.ShapeDtypeStruct((each.size,), each.dtype) for each in perturbations)
    try:
        basis, lengths = jax.eval_shape(orthonormalise, vectors)
        fits = [each.shape for each in (*basis, lengths)] == [*(each.shape for each in vectors), (len(vectors),)]
    except Exception as error:
        raise ValueError(f"orthonormalise fails on vectors: {type(error).__name__}: {first_line(error)}") from error
    if not fits:
        raise ValueError("orthonormalise must return as many vectors as it is given, of their sizes, and their lengths")


def _checked_perturbations(given: ArrayLike, shape: tuple[int, int]) -> Float[np.ndarray, "exponents context patterns"]:
    vectors = checked_array("exponents", given)
    if vectors.shape[1:] != shape or not 1 <= len(vectors) <= np.prod(shape):
        raise ValueError(
            f"exponents, where they are perturbations, are (exponents, {shape[0]}, {shape[1]}), at most "
            f"{np.prod(shape)} of them; got shape {vectors.shape}"
        )
    if np.linalg.matrix_rank(vectors.reshape(len(vectors), -1)) < len(vectors):
        raise ValueError("exponents: the perturbations given are not independent of each other")
    return np.linalg.qr(vectors.reshape(len(vectors), -1).T)[0].T.reshape(vectors.shape)


@eqx.filter_jit
def _local_exponents(model, parameters, window, perturbations, steps, orthonormalise):
    start = _begin(model, parameters, window, perturbations)

    def token(at, _):
        state, tangent, _ = _tangent_step(model, parameters, *at)
        tangent, growth = _orthonormal(tangent, orthonormalise)
        return (state, tangent), growth

    return jax.lax.scan(token, start, None, length=steps)[1]


@eqx.filter_jit
def _accumulate(model, perturbations, rounds, every, blocks, orthonormalise, parameters, window):
    """Sums of log R_jj over each block of rounds, and which perturbations double precision does not resolve."""
    state, tangent = _begin(model, parameters, window, perturbations)
    size, count = model.context * model.patterns, len(perturbations)
    totals = jnp.zeros((blocks, count, *state.batch_shape))
    resolution = Resolution.begin(model.context, count, state.batch_shape, every)

    def one_round(number: Int[Array, ""], at):
        state, tangent, totals, resolution = at

        def token(_, at):
            state, tangent, resolution = at
            state, tangent, sizes = _tangent_step(model, parameters, state, tangent)
            return state, tangent, resolution.token(sizes, size)

        state, tangent, resolution = jax.lax.fori_loop(0, every, token, (state, tangent, resolution.enter(number)))
        tangent, growth, resolution = _resolved(tangent, resolution, orthonormalise)
        totals = totals.at[number * blocks // rounds].add(growth)
        return state, tangent, totals, resolution

    *_, totals, resolution = jax.lax.fori_loop(0, rounds, one_round, (state, tangent, totals, resolution))
    return totals, resolution.lost, resolution.floor


def _resolved(
    tangent: Tangent, resolution: Resolution, orthonormalise: Orthonormalise
) -> tuple[Tangent, Float[Array, "exponents *batch"], Resolution]:
    """`_orthonormal` without perturbations that are lost, which become zero.

    A vector that is but rounding is made a unit vector of some direction, and takes that direction from all vectors
    after it: soon the leading one. So it is made zero, and the others orthonormal again, until none further is lost.
    """

    def attempt(at):
        _, _, resolution, _ = at
        lost = resolution.lost
        vectors = jnp.where(_over_entries(lost), 0.0, tangent.vectors)
        basis, growth = _with_zeros(Tangent(vectors, tangent.values, tangent.keys), lost, orthonormalise)
        # those after the first may be found lost for the direction that it took
        new = resolution.unresolved(growth) & ~lost
        first = new & (jnp.cumsum(new, axis=0) == 1)
        return basis, growth, resolution.losing(lost | first), jnp.any(first)

    start = (tangent, jnp.zeros(resolution.lost.shape), resolution, jnp.asarray(True))
    tangent, growth, resolution, _ = jax.lax.while_loop(lambda at: at[3], attempt, start)
    return tangent, growth, resolution.grow(growth)


def _with_zeros(
    tangent: Tangent, are_zero: Bool[Array, "exponents *batch"], orthonormalise: Orthonormalise
) -> tuple[Tangent, Float[Array, "exponents *batch"]]:
    """`_orthonormal` where some vectors are zero and stay so."""
    if orthonormalise is gram_schmidt:
        return _orthonormal(tangent, orthonormalise)
    # others may replace a zero by a unit vector, as reflections do: zeros come last, where that takes nothing away
    order = jnp.argsort(are_zero, axis=0, stable=True)
    places = jnp.argsort(order, axis=0)
    in_order = jnp.take_along_axis(tangent.vectors, _over_entries(order), axis=0)
    found, growth = _orthonormal(Tangent(in_order, tangent.values, tangent.keys), orthonormalise)
    vectors = jnp.take_along_axis(found.vectors, _over_entries(places), axis=0)
    growth = jnp.where(are_zero, -jnp.inf, jnp.take_along_axis(growth, places, axis=0))
    return Tangent(jnp.where(_over_entries(are_zero), 0.0, vectors), tangent.values, tangent.keys), growth


def _over_entries(of_vectors: Shaped[Array, "exponents *batch"]) -> Shaped[Array, "exponents 1 1 *batch"]:
    """A number of each vector, with axes for the entries of vectors."""
    return jnp.expand_dims(of_vectors, (1, 2))


def _orthonormal(tangent: Tangent, orthonormalise: Orthonormalise) -> tuple[Tangent, Float[Array, "exponents *batch"]]:
    """`tangent` with orthonormal vectors of the same spans, and the logarithms of R_jj."""
    shape = tangent.vectors.shape
    flat = tangent.vectors.reshape(shape[0], shape[1] * shape[2], *shape[3:])
    basis, growth = unchecked(orthonormalise)(tuple(flat))
    return Tangent(jnp.stack(basis).reshape(shape), tangent.values, tangent.keys), growth


def _begin(
    model: SelfAttention,
    parameters: Parameters,
    window: Window,
    perturbations: Float[Array, "exponents context patterns"],
) -> tuple[State, Tangent]:
    state = broadcast_to_parameters(parameters, unchecked_state(model, parameters, window.attention, window.position))
    context, patterns = model.context, model.patterns
    ages = (window.position - jnp.arange(context)) % context  # the slot of each attention, newest first
    past = jnp.moveaxis(broadcast_to_batch(window.attention, 2, state.batch_shape), 1, 0)
    by_slot = tuple(jnp.zeros_like(past).at[:, ages].set(past))
    values, keys = (_overlap_response(model, family, parameters, by_slot).grid for family in (VALUE, KEY))
    count = len(perturbations)
    given = jnp.swapaxes(perturbations, 1, 2)[:, :, ages]  # a slot's age has the slot of that age
    units = jnp.zeros((count, patterns, context, *state.batch_shape))
    order = np.arange(count)
    units = units.at[order, order % patterns, ages[order // patterns]].set(1.0)
    # added to zeros of this origin: the loop that starts with them is compiled to code twice as fast on a CPU
    vectors = 0 * units + broadcast_to_batch(given, 3, state.batch_shape)
    return state, Tangent(vectors, values, keys)


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
) -> tuple[State, Tangent, Sizes]:
    """The next state, its tangent vectors J v, not orthonormalised, and norms of the Jacobian J for `Resolution`."""
    slot = state.position
    key, value, query = (
        model.unchecked_overlap(family, parameters, state.attention, slot) for family in (KEY, VALUE, QUERY)
    )
    key_response, value_response, query_response = (
        _overlap_response(model, family, parameters, state.attention) for family in (KEY, VALUE, QUERY)
    )
    state = store(state, key, value)
    values, keys = _with_token(tangent.values, slot, value_response), _with_token(tangent.keys, slot, key_response)
    following = (slot + 1) % model.context
    jacobian, terms = _jacobian(parameters, state, column(query), Matrix(values), Matrix(keys), query_response)
    vectors = tangent.vectors
    for pattern, row in enumerate(jacobian.grid):
        newest = _products(row, tangent.vectors)
        vectors = vectors.at[:, pattern, following].set(newest, mode="promise_in_bounds")
    sizes = Sizes(length(jacobian), terms, _marks(state, following))
    return attend(parameters, state, query), Tangent(vectors, values, keys), sizes


def _with_token(kept: Response, slot: Int[Array, ""], new: Matrix) -> Response:
    """The derivatives `kept` for the tokens in the context, with `new` in the slot of the newest token."""
    rows = zip(kept, new.grid, strict=True)
    return tuple(tuple(with_entry(slots, slot, entry) for slots, entry in zip(*row, strict=True)) for row in rows)


def _products(
    row: tuple[Float[Array, "context *batch"], ...], vectors: Float[Array, "exponents patterns context *batch"]
) -> Float[Array, "exponents *batch"]:
    """Of one row of the Jacobian with every vector: the new entry of J v, while all others keep their slots."""
    of_slots = (
        reduce(plus, (entries[slot] * vectors[:, pattern, slot] for pattern, entries in enumerate(row)))
        for slot in range(vectors.shape[2])
    )
    return reduce(plus, of_slots)


def _jacobian(
    parameters: Parameters, state: State, query: Matrix, values: Matrix, keys: Matrix, query_response: Matrix
) -> tuple[Matrix, Float[Array, "*batch"]]:
    """Derivative of the next attention in the attention that each token was drawn from, a block for each slot; Eq. (8).

    And a bound of the norms of the terms that the blocks are sums of.
    """
    tokens, gamma = read_memory(state), parameters.gamma
    attending = compiled.attention_response()(q=query, gamma=gamma, **tokens)
    ((weights,),), (row,) = attending["s"].grid, attending["G"].grid
    newest = compiled.query_response()(G=attending["G"], K=tokens["K"], D_q=query_response, gamma=gamma)["J"]

    def blocks(weights, row, values: Matrix, keys: Matrix, here) -> Matrix:
        every = compiled.row_response()(s=weights, g=column(row), q=query, gamma=gamma, D_v=values, D_k=keys)["J"]
        return add(every, entrywise(lambda entry: here * entry, newest))

    jacobian = _by_slots(blocks, weights, row, values, keys, _marks(state, state.position))
    largest_key = jnp.sqrt(jnp.max(squares(tokens["K"]), axis=0))
    by_scores = (
        length(query) * jnp.sqrt(jnp.sum(weights * squares(keys), axis=0))
        + largest_key * length(query_response)
        + (length(query) + largest_key) * _largest_response(parameters, len(row)) * jnp.sum(length(column(row)), axis=0)
    )
    terms = _largest_response(parameters, len(row)) + jnp.abs(gamma) * by_scores
    return jacobian, terms


def _by_slots(function: Callable[..., Matrix], *arguments) -> Matrix:
    """`function` of matrices and arrays over slots, itself a matrix over slots, in a loop over parts of them.

    A compiler merges what is computed into each of its uses, and computes it anew for every one; but not across loops.
    So what `function` reads is computed once, before the loop, and what it makes is computed once.
    """
    context = len(arguments[0])
    part = next(size for size in range(max(context // 2, 1), 0, -1) if context % size == 0)

    def of_part(start: Int[Array, ""]) -> tuple[tuple[Array, ...], ...]:
        parts = [_map_entries(lambda entry: jax.lax.dynamic_slice_in_dim(entry, start, part), of) for of in arguments]
        return function(*parts).grid

    def one_part(number: Int[Array, ""], made):
        start = number * part
        return jax.tree.map(
            lambda slots, new: jax.lax.dynamic_update_slice_in_dim(slots, new, start, 0), made, of_part(start)
        )

    shapes = jax.eval_shape(of_part, 0)
    empty = jax.tree.map(lambda entry: jnp.zeros((context, *entry.shape[1:])), shapes)
    return Matrix(jax.lax.fori_loop(0, context // part, one_part, empty))


def _map_entries(function: Callable[[Array], Array], of):
    """`function` of every entry of a matrix or tuple, or of an array."""
    return entrywise(function, of) if isinstance(of, Matrix) else jax.tree.map(function, of)


def _largest_response(parameters: Parameters, patterns: int) -> Float[Array, "*batch"]:
    """A bound of the norm of D, and of the terms of 1 - tanh^2 in it, which may itself be far smaller."""
    return patterns * (1 - parameters.epsilon) * jnp.abs(parameters.beta)


def _marks(state: State, slot: Int[Array, ""]) -> Float[Array, "context *_"]:
    """One at `slot`, zero at all others."""
    context, *batch = state.keys[0].shape
    marks = jnp.where(jnp.arange(context) == slot % context, 1.0, 0.0)
    return marks.reshape(context, *(1 for _ in batch))
