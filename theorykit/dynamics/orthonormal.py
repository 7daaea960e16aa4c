"""Orthonormal bases of a batch of subspaces, by two methods, and the logarithms of the diagonal of R.

Each vector has shape `(size, *batch)`, and the logarithms have shape `(vectors, *batch)`. The logarithm is minus
infinity for a vector in the span of previous vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..checks import checked_arguments, checked_array, checked_sequence
from ..precision import require_float64


def _vectors(name: str, value: Any) -> tuple[Array, ...]:
    require_float64()
    known = tuple(jnp.asarray(checked_array(name, each)) for each in checked_sequence(name, value, "arrays"))
    shapes = {np.shape(each) for each in known}
    if len(shapes) != 1 or () in shapes or len(known) > min(shapes)[0]:
        raise ValueError(
            f"{name} must be at most `size` arrays of the same shape (size, *batch), got {len(known)} of {shapes}"
        )
    return known


Vectors = Annotated[Sequence[Float[Array, "size *batch"]], _vectors]
Basis = tuple[tuple[Float[Array, "size *batch"], ...], Float[Array, "vectors *batch"]]
Orthonormalise = Callable[[Vectors], Basis]

# Up to this many vectors are orthonormalised pair by pair. More would take too long to compile.
_MOST_IN_PAIRS = 12
# Number of vectors in a panel. More than _MOST_IN_PAIRS vectors are processed in a loop over panels.
_PANEL = 4
# Number of values that a loop processes at once, so that they fit into a cache of one megabyte.
_CACHED = 2**17


@checked_arguments
def gram_schmidt(vectors: Vectors) -> Basis:
    """Orthonormalise by modified Gram-Schmidt, the fastest method. Strongly graded vectors lose orthogonality.

    Args:
        vectors: At most `size` vectors of shape `(size, *batch)`.

    Returns:
        The basis, and the logarithms `(vectors, *batch)` of the diagonal of R.
    """
    if len(vectors) <= _MOST_IN_PAIRS:
        basis, lengths = _pair_by_pair(vectors)
        return basis, jnp.log(jnp.stack(lengths))
    # A loop over panels keeps the compile time independent of the number of vectors.
    count, size, *batch = len(vectors), *vectors[0].shape
    basis, lengths = _in_panels(jnp.stack(vectors).reshape(count, size, -1))
    return tuple(basis.reshape(count, size, *batch)), jnp.log(lengths.reshape(count, *batch))


def _pair_by_pair(vectors: Sequence[Array]) -> tuple[tuple[Array, ...], list[Array]]:
    """Return the basis, and the length of each vector after the projections on previous vectors are removed."""
    rest, basis, lengths = list(vectors), [], []
    while rest:
        first, *others = rest
        length = jnp.sqrt(jnp.sum(first * first, axis=0))
        unit = first / jnp.where(length > 0, length, 1.0)
        rest = [vector - jnp.sum(unit * vector, axis=0) * unit for vector in others]
        basis.append(unit)
        lengths.append(length)
    return tuple(basis), lengths


@jax.jit
def _in_panels(
    vectors: Float[Array, "vectors size batch"],
) -> tuple[Float[Array, "vectors size batch"], Float[Array, "vectors batch"]]:
    """Orthonormalise many vectors in panels, one part of the batch at a time. Zeros pad the last panel and part."""
    count, size, batch = vectors.shape
    lanes = min(batch, max(8, 2 ** int(np.log2(_CACHED / (count * size)))))
    filled = jnp.pad(vectors, ((0, -count % _PANEL), (0, 0), (0, -batch % lanes)))
    parts = jnp.moveaxis(filled.reshape(-1, _PANEL, size, filled.shape[2] // lanes, lanes), 3, 0)
    basis, lengths = jax.lax.map(_panels, parts)
    basis, lengths = jnp.moveaxis(basis, 0, 3), jnp.moveaxis(lengths, 0, 2)
    return basis.reshape(filled.shape)[:count, :, :batch], lengths.reshape(-1, filled.shape[2])[:count, :batch]


def _panels(panels: Float[Array, "panels panel size lanes"]):

    def one_panel(number: Int[Array, ""], at):
        basis, lengths = at

        def without(earlier: Int[Array, ""], at):
            panel, along = at
            pairs = zip(panel, jnp.swapaxes(along, 0, 1), strict=True)
            units = basis[earlier]
            panel = jnp.stack([vector - reduce(add, map(mul, factors, units)) for vector, factors in pairs])
            return panel, _inner_products(basis[earlier + 1], panel)

        start = panels[number], _inner_products(basis[0], panels[number])
        panel, _ = jax.lax.fori_loop(0, number, without, start)
        # Orthonormalise twice, because strong cancellation leaves vectors that are not orthogonal to the others.
        units, first = _pair_by_pair(tuple(panel))
        units, second = _pair_by_pair(units)
        length = jnp.stack([a * b for a, b in zip(first, second, strict=True)])
        return basis.at[number].set(jnp.stack(units)), lengths.at[number].set(length)

    lengths = jnp.zeros((*panels.shape[:2], panels.shape[3]))
    return jax.lax.fori_loop(0, len(panels), one_panel, (jnp.zeros_like(panels), lengths))


def _inner_products(
    left: Float[Array, "left size *batch"], right: Float[Array, "right size *batch"]
) -> Float[Array, "left right *batch"]:
    # Explicit sums compile to code several times as fast as `jnp.sum`.
    return reduce(add, (left[:, None, place] * right[None, :, place] for place in range(left.shape[1])))


@checked_arguments
def householder(vectors: Vectors) -> Basis:
    """Orthonormalise by Householder reflections in LAPACK: slower, but accurate even for strongly graded vectors.

    Arguments and results are documented in `gram_schmidt`. On a CPU, do not call this function from several threads at
    once: concurrent batches of factorisations may deadlock.
    """
    columns = jnp.moveaxis(jnp.stack(vectors, axis=1), (0, 1), (-2, -1))
    basis, triangle = jnp.linalg.qr(columns)
    diagonal = jnp.moveaxis(jnp.diagonal(triangle, axis1=-2, axis2=-1), -1, 0)
    return tuple(jnp.moveaxis(basis, (-2, -1), (1, 0))), jnp.log(jnp.abs(diagonal))


def unchecked(method: Orthonormalise) -> Orthonormalise:
    """Return `method` without its checks, which a compiled loop would repeat for every token. Others are unchanged."""
    return method.__wrapped__ if method in (gram_schmidt, householder) else method
