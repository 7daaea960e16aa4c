"""Lyapunov exponents of the map, from its derived Jacobian; Eq. (8) of Poc-Lopez and Aguilera.

The Jacobian of the map on a window of `context` attentions is a block companion matrix: it has one row of blocks for
the newest attention, and every other attention moves to the next place. Perturbations, and the derivatives of keys and
values, are stored in the ring buffer of the tokens, so that only the newest row is computed. The position of the token
is periodic. It is left out, because it would add zero exponents.

`Resolution` decides which perturbations double precision resolves. It computes a running error bound along with the
products of Jacobians and the QR factorisations. Householder QR is backward stable: Q R = J Q_old + E. Column j of E is
at most n^2 u times column j of J Q_old, where n is the size and u the unit of rounding (Higham, Accuracy and Stability
of Numerical Algorithms, Theorem 19.4). Computing J Q_old adds n u times the terms in the sums of its entries. Relative
to the previous vector, the vector j that token s produces therefore has, at a later token, the error

    |J_last ... J_(s+1)| (n^2 u |J_s| + n u |terms of J_s|)

The vector itself has grown by R_jj of s times ... times R_jj of the last token. The error is bounded by the norms of
the Jacobians' blocks along the orbit. If the errors of all tokens of a context exceed half of the vector, the
perturbation cannot be distinguished from a perturbation that the map annihilates. For all others, R_jj is correct to a
factor of 2 over a context, and exponents are correct to log 2 per context. Older errors need no bound: they are in
attentions that have left the window, or have grown like the perturbation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from operator import add as plus
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..checks import (
    Count,
    checked_arguments,
    checked_array,
    checked_instance,
    checked_whole_number,
    first_line,
    has_entries,
    is_traced,
)
from ..codegen.batch import Matrix, column, entrywise, length, matrix, squares
from ..dynamics.orthonormal import Orthonormalise, gram_schmidt, householder, unchecked
from ..dynamics.regimes import classify, kaplan_yorke_lower_bound
from ..settings import usual_settings
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..symbolic.documents.values import sketch
from .map import (
    KEY,
    QUERY,
    VALUE,
    Parameters,
    SelfAttention,
    State,
    Window,
    attend,
    broadcast_to_batch,
    broadcast_to_parameters,
    compiled,
    fitting,
    over_cores,
    overlap,
    read_memory,
    state_of,
    store,
    with_token,
)

# Do not report a lost exponent as unresolved if its growth per token is below this: it is as good as minus infinity.
_KNOWN = -1.0
# Number of exponents that a view lists.
_SHOWN = 6
# Seed of the random initial directions of perturbations.
_SEED = 0
# Unit of rounding in double precision.
_UNIT = float(jnp.finfo(jnp.float64).eps) / 2
# Number of groups of tokens in a context. In a shorter context, every token is a group.
_GROUPS = 4
# Bounds above this count as infinite, so that their products do not overflow.
_LARGEST = 1e150

Response = tuple[tuple[Float[Array, "context *batch"], ...], ...]
"""Derivatives dm/dA of the overlaps m of every token in the context, by pattern of m, then by pattern of A."""


_MADE_BY = "discard_transient(model, parameters, start, steps) or the window(model) of a Trajectory makes one"
_FromWindow = Annotated[Window, partial(checked_instance, kind=Window, example=_MADE_BY)]


class LyapunovSpectrum(DisplayMixin, eqx.Module):
    """Lyapunov exponents per token (natural logarithm), largest first.

    - `exponents` `(exponents, *batch)`: the exponents.
    - `errors` `(exponents, *batch)`: standard errors of the exponents, from the scatter of `blocks`.
    - `blocks` `(blocks, exponents, *batch)`: mean growth per token over successive stretches of the orbit.
    - `unresolved` `(exponents, *batch)`: whether an exponent is minus infinity because double precision does not
      resolve it, and not because the map annihilates the perturbation.
    """

    exponents: Float[Array, "exponents *batch"]
    errors: Float[Array, "exponents *batch"]
    blocks: Float[Array, "blocks exponents *batch"]
    unresolved: Bool[Array, "exponents *batch"]

    def _view(self) -> Iterator[Block]:
        count, *batch = self.exponents.shape
        leading = np.moveaxis(np.asarray(self.exponents), 0, -1)
        regimes = classify(self) if count > 1 else np.array("of one exponent")
        if batch:
            named, numbers = np.unique(regimes, return_counts=True)
            yield Text(
                f"{count} Lyapunov exponents per token of {regimes.size} orbits, a batch of shape {tuple(batch)}."
            )
            yield Table(
                tuple((str(name), str(n)) for name, n in zip(named, numbers, strict=True)), ("regime", "orbits")
            )
            yield Text("`dynamics.classify(spectrum)` returns the regime of every orbit.")
            return
        dimension = f"{float(kaplan_yorke_lower_bound(leading)):.4g}"
        dimension = dimension if np.sum(leading) < 0 else f"at least {dimension}"
        yield Text(f"The orbit is {regimes}. Kaplan-Yorke dimension: {dimension}.")
        shown = range(min(count, _SHOWN))
        rows = [(str(at + 1), f"{float(self.exponents[at]):.4g}", f"{float(self.errors[at]):.2g}") for at in shown]
        yield Table(tuple(rows), ("Lyapunov exponent", "per token", "standard error"))
        dots = "" if np.all(np.isfinite(self.exponents)) else "; dots are minus infinity"
        yield sketch(self.exponents, f"all {count} exponents{dots}")
        if hidden := int(np.sum(self.unresolved)):
            yield Text(f"Double precision does not resolve {hidden} exponents, which are set to minus infinity.")


@usual_settings()
@checked_arguments
def lyapunov_spectrum(
    model: SelfAttention,
    parameters: Parameters,
    window: _FromWindow,
    *,
    steps: int,
    exponents: Any = None,
    every: Count | None = None,
    blocks: int = 20,
    orthonormalise: Orthonormalise = householder,
) -> LyapunovSpectrum:
    """Compute the Lyapunov exponents of the orbit from `window`, largest first.

    An exponent is minus infinity if its perturbations fall below twice the rounding bound within a context. Either the
    map annihilates the perturbations, or double precision cannot resolve them. In the second case, the exponents are
    marked in `unresolved`, and a warning is issued. These perturbations are then left out, so that later exponents
    belong to the other perturbations alone. Rounding changes the other exponents by at most log 2 per context, and
    usually far less.

    Args:
        model: The network in the limit of many neurons.
        parameters: Parameters of the map.
        window: The attentions at which the orbit begins.
        steps: Number of tokens.
        exponents: Number of exponents, by default all. Perturbations then start in fixed random directions.
            Alternatively, the initial perturbations `(exponents, context, patterns)`, newest attention first; exponents
            are then returned in the order of the perturbations.
        every: Number of tokens between orthonormalisations. By default, a quarter of the context, or less so that it
            divides `steps`.
        blocks: Number of stretches of the orbit whose means give the errors.
        orthonormalise: `dynamics.householder`, or `dynamics.gram_schmidt`, which is faster and uses all cores for large
            batches.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import dmft
        >>> theorykit.enable_float64()
        >>> model = dmft.self_attention_limit(dmft.published_weights(patterns=1), context=1)
        >>> parameters = dmft.Parameters(beta=0.3, gamma=127.0, epsilon=0.0)
        >>> silence = dmft.Window(np.zeros((1, 1)))  # a fixed point
        >>> found = dmft.lyapunov_spectrum(model, parameters, silence, steps=400)
        >>> round(float(found.exponents[0]), 4)  # log(beta / 3)
        -2.3026
    """
    window = fitting("window", window, model, parameters)
    if every is None:  # a group of `Resolution` treats its tokens as one
        most = max(1, min(model.context // 4, steps // max(blocks, 1)))
        every = max(number for number in range(1, most + 1) if steps % number == 0)
    if steps < every * blocks or steps % every or blocks < 2:
        raise ValueError(
            f"steps={steps} must be a multiple of every={every}, one or more for each of blocks={blocks}, and "
            "blocks must be at least 2"
        )
    rounds = steps // every
    is_chosen = has_entries(exponents) and not isinstance(exponents, str)
    shape, size = (model.context, model.patterns), model.context * model.patterns
    if is_chosen:
        drawn = checked_array("exponents", exponents)
        if drawn.shape[1:] != shape or not 1 <= len(drawn) <= size:
            expected = f"(exponents, {shape[0]}, {shape[1]}), at most {size} of them"
            raise ValueError(f"exponents: perturbations must be {expected}, got shape {drawn.shape}")
        drawn = drawn.reshape(len(drawn), -1)
        if np.linalg.matrix_rank(drawn) < len(drawn):
            raise ValueError("exponents: the perturbations must be linearly independent")
    else:
        number = size if exponents is None else checked_whole_number("exponents", exponents, least=1, most=size)
        # Use random directions, because the map may annihilate a coordinate vector exactly. The first ones do not
        # depend on their number.
        drawn = np.random.default_rng(_SEED).standard_normal((number, size))
    vectors = tuple(jax.ShapeDtypeStruct((size,), jnp.float64) for _ in drawn)
    try:
        basis, lengths = jax.eval_shape(orthonormalise, vectors)
        fits = [each.shape for each in (*basis, lengths)] == [*(each.shape for each in vectors), (len(vectors),)]
    except Exception as error:
        raise ValueError(f"orthonormalise fails on vectors: {type(error).__name__}: {first_line(error)}") from error
    if not fits:
        raise ValueError("orthonormalise must return as many vectors as it gets, of the same shapes, and their lengths")
    perturbations = jnp.asarray(np.linalg.qr(drawn.T)[0].T.reshape(len(drawn), *shape))
    accumulate = partial(_accumulate, model, perturbations, jnp.asarray(rounds), every, blocks, orthonormalise)
    if orthonormalise is gram_schmidt:
        totals, lost, floor = over_cores(accumulate, parameters, window)
    else:  # concurrent LAPACK calls may deadlock
        totals, lost, floor = accumulate(parameters, window)
    of_block = np.bincount(np.arange(rounds) * blocks // rounds, minlength=blocks) * every
    means = totals / of_block.reshape(-1, *(1 for _ in totals.shape[1:]))
    if not is_chosen:  # no exponent is above a lost one
        lost, floor = jnp.cumsum(lost, axis=0) > 0, jax.lax.cummax(floor, axis=0)
    # Report an exponent as unresolved only if rounding grows at a usual rate. If the map annihilates a perturbation,
    # rounding is far smaller.
    unresolved = lost & (floor / model.context > _KNOWN)
    if not is_traced(unresolved) and np.any(unresolved):
        warnings.warn(
            f"{np.sum(unresolved)} of {unresolved.size} Lyapunov exponents are minus infinity because double precision "
            "does not resolve them: the map amplifies rounding errors too much, as at a very large gamma",
            stacklevel=4,
        )
    totals, means = (jnp.where(lost, -jnp.inf, values) for values in (totals, means))
    mean = jnp.sum(totals, axis=0) / steps
    scatter = jnp.where(jnp.isfinite(mean), means - mean, 0.0)
    errors = jnp.sqrt(jnp.sum(scatter**2, axis=0) / (blocks * (blocks - 1)))
    if is_chosen:
        return LyapunovSpectrum(mean, errors, means, unresolved)
    order = jnp.argsort(mean, axis=0, descending=True)
    mean, errors, unresolved = (jnp.take_along_axis(values, order, axis=0) for values in (mean, errors, unresolved))
    return LyapunovSpectrum(mean, errors, jnp.take_along_axis(means, order[None], axis=1), unresolved)


class Resolution(eqx.Module):
    """Bounds on the rounding errors in perturbations, by the group of tokens in which the errors arose.

    In a long context, a group of tokens is treated as one token whose Jacobian is the product of their Jacobians.

    - `vector` `(context, *batch)`: bounds by slot on a perturbation of length one at the start of the latest group.
    - `errors` `(groups, context, *batch)`: bounds by slot on the errors that arose in each group, propagated until now.
    - `growth` `(groups, exponents, *batch)`: logarithmic growth of perturbations since each group began.
    - `lost` `(exponents, *batch)`: perturbations that errors of a group have exceeded.
    - `floor` `(exponents, *batch)`: logarithm of the smallest growth over a context that could have been resolved when
      the perturbation was lost, or minus infinity if it was not lost.
    - `latest`: number of the latest group.
    - `rounds`: number of orthonormalisations in a group.
    """

    vector: Float[Array, "context *batch"]
    errors: Float[Array, "groups context *batch"]
    growth: Float[Array, "groups exponents *batch"]
    lost: Bool[Array, "exponents *batch"]
    floor: Float[Array, "exponents *batch"]
    latest: Int[Array, ""]
    rounds: int = eqx.field(static=True)

    @classmethod
    def begin(cls, context: int, exponents: int, batch: tuple[int, ...], every: int) -> Resolution:
        """Start at the beginning of an orbit. Perturbations are orthonormalised once per `every` tokens."""
        rounds = -(-context // (_GROUPS * every))
        groups = -(-context // (rounds * every)) + (rounds * every > 1)  # a context may begin within a group
        return cls(
            jnp.ones((context, *batch)),
            jnp.zeros((groups, context, *batch)),
            jnp.zeros((groups, exponents, *batch)),
            jnp.zeros((exponents, *batch), dtype=bool),
            jnp.full((exponents, *batch), -jnp.inf),
            jnp.asarray(0),
            rounds,
        )

    def enter(self, number: Int[Array, ""]) -> Resolution:
        """Prepare a round. A group that begins replaces the oldest group."""
        begins = number % self.rounds == 0
        latest = number // self.rounds % len(self.errors)
        fresh = begins & self._is(latest)
        return replace(
            self,
            vector=jnp.where(begins, 1.0, self.vector),
            errors=jnp.where(fresh, 0.0, self.errors),
            growth=jnp.where(fresh, 0.0, self.growth),
            latest=latest,
        )

    def token(self, blocks: Array, terms: Array, newest: Array, size: int) -> Resolution:
        """Propagate bounds through the Jacobian of a token, and add its rounding. Vectors have `size` numbers.

        `blocks` (context, *batch) are Frobenius norms of the Jacobian's blocks, `terms` (*batch) bounds all terms that
        they sum, and `newest` masks the slot of the attention that the token produces.
        """
        made = size * _UNIT * terms * jnp.max(self.vector, axis=0)
        vector = jnp.where(newest, jnp.minimum(jnp.sum(blocks * self.vector, axis=0), _LARGEST), self.vector)
        made = jnp.where(newest, made, 0.0) + size**2 * _UNIT * jnp.sqrt(jnp.sum(vector**2, axis=0))
        passed = jnp.minimum(jnp.sum(blocks * self.errors, axis=1, keepdims=True), _LARGEST)
        errors = jnp.where(newest, passed, self.errors) + jnp.where(self._is(self.latest), made, 0.0)
        return replace(self, vector=vector, errors=errors)

    def unresolved(self, growth: Float[Array, "exponents *batch"]) -> Bool[Array, "exponents *batch"]:
        """Return whether errors of any group exceed half of each vector, given the logarithms of R_jj of a round."""
        groups = zip(self.errors, self.growth + growth, strict=True)
        return jnp.any(jnp.stack([grown < self._least(errors) for errors, grown in groups]), axis=0)

    def _is(self, group: Int[Array, ""]) -> Bool[Array, "groups *_"]:
        """Return a mask of one group, with axes for slots and the batch."""
        return (jnp.arange(len(self.errors)) == group).reshape(-1, *(1 for _ in self.errors.shape[1:]))

    def _least(self, errors: Float[Array, "context *batch"]) -> Float[Array, "*batch"]:
        """Return the logarithm of the smallest resolvable growth if all groups have these errors."""
        return jnp.log(2 * len(self.errors) * jnp.sqrt(jnp.sum(errors**2, axis=0)))


class Tangent(eqx.Module):
    """Tangent vectors at a window of attentions, and the derivatives D = dm/dA of the keys and values in the context.

    - `vectors` (exponents, patterns, context, *batch): by pattern and slot. The slot of an attention is the slot of the
      token that follows it.
    - `values`, `keys`: D^v and D^k of every token.
    """

    vectors: Float[Array, "exponents patterns context *batch"]
    values: Response
    keys: Response


@eqx.filter_jit
def _accumulate(model, perturbations, rounds, every, blocks, orthonormalise, parameters, window):
    """Return sums of log R_jj over each block of rounds, and a mask of unresolved perturbations."""
    state = broadcast_to_parameters(parameters, state_of(model, parameters, window.attention, window.position))
    ages = (window.position - jnp.arange(model.context)) % model.context  # slot of each attention, newest first
    past = jnp.moveaxis(broadcast_to_batch(window.attention, 2, state.batch_shape), 1, 0)
    by_slot = tuple(jnp.zeros_like(past).at[:, ages].set(past))
    values, keys = (_overlap_response(model, family, parameters, by_slot).grid for family in (VALUE, KEY))
    given = jnp.swapaxes(perturbations, 1, 2)[:, :, ages]  # the slot of an age holds the attention of that age
    tangent = Tangent(broadcast_to_batch(given, 3, state.batch_shape), values, keys)
    size, count = model.context * model.patterns, len(perturbations)
    totals = jnp.zeros((blocks, count, *state.batch_shape))
    resolution = Resolution.begin(model.context, count, state.batch_shape, every)

    def token(_, at):
        state, tangent, resolution = at
        state, tangent, sizes = _tangent_step(model, parameters, state, tangent)
        return state, tangent, resolution.token(*sizes, size)

    def one_round(number, at):
        state, tangent, totals, resolution = at
        state, tangent, resolution = jax.lax.fori_loop(0, every, token, (state, tangent, resolution.enter(number)))
        vectors, growth, resolution = _resolved(tangent.vectors, resolution, orthonormalise)
        totals = totals.at[number * blocks // rounds].add(growth)
        return state, replace(tangent, vectors=vectors), totals, resolution

    *_, totals, resolution = jax.lax.fori_loop(0, rounds, one_round, (state, tangent, totals, resolution))
    return totals, resolution.lost, resolution.floor


def _resolved(
    vectors: Array, resolution: Resolution, orthonormalise: Orthonormalise
) -> tuple[Array, Array, Resolution]:
    """Apply `_orthonormal` without lost perturbations, which become zero.

    A vector of pure rounding would remove the leading direction from all vectors after it. It is therefore set to zero,
    and the other vectors are orthonormalised again, until no more are lost.
    """

    def attempt(at):
        _, _, resolution, _ = at
        lost = resolution.lost
        kept = jnp.where(lost[:, None, None], 0.0, vectors)
        if orthonormalise is gram_schmidt:
            basis, growth = _orthonormal(kept, orthonormalise)
        else:
            # Reflections may replace a zero vector by a unit vector. Put zeros last, where this does not affect others.
            order = jnp.argsort(lost, axis=0, stable=True)
            places = jnp.argsort(order, axis=0)
            basis, growth = _orthonormal(jnp.take_along_axis(kept, order[:, None, None], axis=0), orthonormalise)
            basis = jnp.take_along_axis(basis, places[:, None, None], axis=0)
            growth = jnp.where(lost, -jnp.inf, jnp.take_along_axis(growth, places, axis=0))
            basis = jnp.where(lost[:, None, None], 0.0, basis)
        # Mark only the first lost vector. Later vectors may appear lost only because of the direction that it removed.
        new = resolution.unresolved(growth) & ~lost
        first = new & (jnp.cumsum(new, axis=0) == 1)
        told = jnp.max(jnp.stack([resolution._least(errors) for errors in resolution.errors]), axis=0)
        floor = jnp.where(first, told, resolution.floor)
        return basis, growth, replace(resolution, lost=lost | first, floor=floor), jnp.any(first)

    start = (vectors, jnp.zeros(resolution.lost.shape), resolution, jnp.asarray(True))
    vectors, growth, resolution, _ = jax.lax.while_loop(lambda at: at[3], attempt, start)
    return vectors, growth, replace(resolution, growth=resolution.growth + growth)


def _orthonormal(vectors: Array, orthonormalise: Orthonormalise) -> tuple[Array, Array]:
    """Return orthonormal vectors with the same spans, and the logarithms of R_jj."""
    shape = vectors.shape
    basis, growth = unchecked(orthonormalise)(tuple(vectors.reshape(shape[0], shape[1] * shape[2], *shape[3:])))
    return jnp.stack(basis).reshape(shape), growth


def _overlap_response(model: SelfAttention, family: int, parameters: Parameters, attention) -> Matrix:
    return compiled("overlap_response")(
        Omega=matrix(model.directions),
        C=matrix(model.moments[family]),
        A=column(attention),
        beta=parameters.beta,
        epsilon=parameters.epsilon,
    )["D"]


def _tangent_step(
    model: SelfAttention, parameters: Parameters, state: State, tangent: Tangent
) -> tuple[State, Tangent, tuple[Array, Array, Array]]:
    """Return the next state, its tangent vectors J v before orthonormalisation, and sizes of J for `Resolution`."""
    slot, families = state.position, (KEY, VALUE, QUERY)
    key, value, query = (overlap(model, family, parameters, state.attention, slot) for family in families)
    key_response, value_response, query_response = (
        _overlap_response(model, family, parameters, state.attention) for family in families
    )
    state = store(state, key, value)
    values, keys = (
        with_token(kept, slot, new.grid)
        for kept, new in ((tangent.values, value_response), (tangent.keys, key_response))
    )
    following = (slot + 1) % model.context
    # Differentiate the next attention with respect to each token's attention, one block per slot; Eq. (8).
    tokens, gamma, of_query = read_memory(state), parameters.gamma, column(query)
    attending = compiled("attention_response")(q=of_query, gamma=gamma, **tokens)
    ((weights,),), (row,) = attending["s"].grid, attending["G"].grid
    newest = compiled("query_response")(G=attending["G"], K=tokens["K"], D_q=query_response, gamma=gamma)["J"]

    def blocks(weights, row, values: Matrix, keys: Matrix, here) -> Matrix:
        rows = {"s": weights, "g": column(row), "q": of_query, "gamma": gamma, "D_v": values, "D_k": keys}
        return compiled("row_response")(**rows)["J"] + entrywise(lambda entry: here * entry, newest)

    jacobian = _by_slots(blocks, weights, row, Matrix(values), Matrix(keys), _marks(state, slot))
    largest_key = jnp.sqrt(jnp.max(squares(tokens["K"]), axis=0))
    # Bound the norms of the terms whose sums are the blocks: the norm of D, and the terms of its factor 1 - tanh^2,
    # which may be far smaller than its terms.
    largest_response = len(row) * (1 - parameters.epsilon) * jnp.abs(parameters.beta)
    by_scores = (
        length(of_query) * jnp.sqrt(jnp.sum(weights * squares(Matrix(keys)), axis=0))
        + largest_key * length(query_response)
        + (length(of_query) + largest_key) * largest_response * jnp.sum(length(column(row)), axis=0)
    )
    terms, vectors = largest_response + jnp.abs(gamma) * by_scores, tangent.vectors
    for pattern, row in enumerate(jacobian.grid):
        # Compute one entry of J v. All others keep their slots.
        of_slots = (
            reduce(plus, (entries[at] * tangent.vectors[:, number, at] for number, entries in enumerate(row)))
            for at in range(model.context)
        )
        vectors = vectors.at[:, pattern, following].set(reduce(plus, of_slots), mode="promise_in_bounds")
    sizes = length(jacobian), terms, _marks(state, following) > 0
    return attend(parameters, state, query), Tangent(vectors, values, keys), sizes


def _by_slots(function: Callable[..., Matrix], *arguments) -> Matrix:
    """Apply `function` to a block of slots at a time, in a loop, and assemble the results along the axis of slots.

    The loop keeps XLA from fusing a computation into each of its consumers, and so from repeating it.
    """
    context = len(arguments[0])
    part = next(size for size in range(max(context // 2, 1), 0, -1) if context % size == 0)

    def of_part(start: Int[Array, ""]) -> tuple[tuple[Array, ...], ...]:
        def cut(entry: Array) -> Array:
            return jax.lax.dynamic_slice_in_dim(entry, start, part)

        parts = [entrywise(cut, of) if isinstance(of, Matrix) else jax.tree.map(cut, of) for of in arguments]
        return function(*parts).grid

    def one_part(number: Int[Array, ""], made):
        start = number * part
        return jax.tree.map(
            lambda slots, new: jax.lax.dynamic_update_slice_in_dim(slots, new, start, 0), made, of_part(start)
        )

    shapes = jax.eval_shape(of_part, 0)
    empty = jax.tree.map(lambda entry: jnp.zeros((context, *entry.shape[1:])), shapes)
    return Matrix(jax.lax.fori_loop(0, context // part, one_part, empty))


def _marks(state: State, slot: Int[Array, ""]) -> Float[Array, "context *_"]:
    """Return one at `slot`, and zero at all others."""
    context, *batch = state.keys[0].shape
    marks = jnp.where(jnp.arange(context) == slot % context, 1.0, 0.0)
    return marks.reshape(context, *(1 for _ in batch))
