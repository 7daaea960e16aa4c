"""Orthonormal bases of a batch of subspaces, by two methods, and the logarithms of the diagonal of R.

Vectors are `(size, *batch)`, logarithms `(vectors, *batch)`; minus infinity for a vector in the span of those before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..checks import checked_array, checked_sequence
from ..precision import require_float64

Vectors = Sequence[Float[Array, "size *batch"]]
Basis = tuple[tuple[Float[Array, "size *batch"], ...], Float[Array, "vectors *batch"]]
Orthonormalise = Callable[[Vectors], Basis]

# so many vectors are orthonormalised pair by pair; more are in panels of so many, in a loop
_MOST_IN_PAIRS, _PANEL = 12, 4
# of numbers in the vectors that a loop goes through at once, so that they stay in a cache of a megabyte
_CACHED = 2**17


def gram_schmidt(vectors: Vectors) -> Basis:
    """Modified Gram-Schmidt: the fastest, though the last of strongly graded vectors lose their orthogonality.

    Vectors are `(size, *batch)`, at most `size` of them. Returns the basis, and the logarithms of the diagonal of R.
    """
    return _gram_schmidt(_checked(vectors))


def _gram_schmidt(vectors: Vectors) -> Basis:
    if len(vectors) <= _MOST_IN_PAIRS:
        basis, lengths = _pair_by_pair(vectors)
        return basis, jnp.log(jnp.stack(lengths))
    # in panels, in a loop, so that the time to compile it does not grow with the number of vectors
    count, size, *batch = len(vectors), *vectors[0].shape
    basis, lengths = _in_panels(jnp.stack(vectors).reshape(count, size, -1))
    return tuple(basis.reshape(count, size, *batch)), jnp.log(lengths.reshape(count, *batch))


def _pair_by_pair(vectors: Vectors) -> tuple[tuple[Float[Array, "size *batch"], ...], list[Float[Array, "*batch"]]]:
    """The basis, and the lengths that are left of the vectors."""
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
    """The same of many vectors, a part of the batch after the other. Zeros fill the last panel and the last part."""
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
        # the second time for what is no longer orthogonal to the others after strong cancellation
        units, first = _pair_by_pair(tuple(panel))
        units, second = _pair_by_pair(units)
        length = jnp.stack([a * b for a, b in zip(first, second, strict=True)])
        return basis.at[number].set(jnp.stack(units)), lengths.at[number].set(length)

    lengths = jnp.zeros((*panels.shape[:2], panels.shape[3]))
    return jax.lax.fori_loop(0, len(panels), one_panel, (jnp.zeros_like(panels), lengths))


def _inner_products(
    left: Float[Array, "left size *batch"], right: Float[Array, "right size *batch"]
) -> Float[Array, "left right *batch"]:
    # sums written out, which is compiled to code several times as fast as that of `jnp.sum`
    return reduce(add, (left[:, None, place] * right[None, :, place] for place in range(left.shape[1])))


def householder(vectors: Vectors) -> Basis:
    """Householder reflections, by LAPACK: orthogonal to rounding, however graded the vectors are, but slower.

    On a CPU not for several threads at once: batches of factorisations side by side may wait for each other for ever.
    """
    return _householder(_checked(vectors))


def _householder(vectors: Vectors) -> Basis:
    columns = jnp.moveaxis(jnp.stack(vectors, axis=1), (0, 1), (-2, -1))
    basis, triangle = jnp.linalg.qr(columns)
    diagonal = jnp.moveaxis(jnp.diagonal(triangle, axis1=-2, axis2=-1), -1, 0)
    return tuple(jnp.moveaxis(basis, (-2, -1), (1, 0))), jnp.log(jnp.abs(diagonal))


def unchecked(method: Orthonormalise) -> Orthonormalise:
    """`method` without its checks, if it is one of these two: in a compiled loop there would be one per token."""
    if method is gram_schmidt:
        return _gram_schmidt
    return _householder if method is householder else method


def _checked(vectors: Vectors) -> Vectors:
    require_float64()
    entries = checked_sequence("vectors", vectors, "arrays")
    known = tuple(jnp.asarray(checked_array("vectors", each)) for each in entries)
    shapes = {np.shape(each) for each in known}
    if len(shapes) != 1 or () in shapes or len(known) > min(shapes)[0]:
        raise ValueError(
            f"vectors must be (size, *batch), of one shape and at most size of them, got {len(known)} of {shapes}"
        )
    return known
