"""Orthonormal bases of a batch of subspaces, by two methods: vectors are `(size, *batch)`.

Both return the basis and the logarithms of the diagonal of R, `(vectors, *batch)`; minus infinity where a vector is in
the span of those before it.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..arguments import checked_array, checked_sequence, is_traced
from ..precision import require_float64

Vectors = Sequence[Float[Array, "size *batch"]]
Basis = tuple[tuple[Float[Array, "size *batch"], ...], Float[Array, "vectors *batch"]]
Orthonormalise = Callable[[Vectors], Basis]


def gram_schmidt(vectors: Vectors) -> Basis:
    """Modified Gram-Schmidt: the fastest, though the last of strongly graded vectors lose their orthogonality.

    It is unrolled over pairs of vectors: more than a few dozen take long to compile.
    """
    rest, basis, lengths = list(_checked(vectors)), [], []
    while rest:
        first, *others = rest
        length = jnp.sqrt(jnp.sum(first * first, axis=0))
        unit = first / jnp.where(length > 0, length, 1.0)
        rest = [vector - jnp.sum(unit * vector, axis=0) * unit for vector in others]
        basis.append(unit)
        lengths.append(length)
    return tuple(basis), jnp.log(jnp.stack(lengths))


def householder(vectors: Vectors) -> Basis:
    """Householder reflections, by LAPACK: orthogonal to rounding, however graded the vectors are, but slower.

    On a CPU not for several threads at once: batches of factorisations that run side by side may wait for each other
    for ever.
    """
    columns = jnp.moveaxis(jnp.stack(_checked(vectors), axis=1), (0, 1), (-2, -1))
    basis, triangle = jnp.linalg.qr(columns)
    diagonal = jnp.moveaxis(jnp.diagonal(triangle, axis1=-2, axis2=-1), -1, 0)
    return tuple(jnp.moveaxis(basis, (-2, -1), (1, 0))), jnp.log(jnp.abs(diagonal))


def _checked(vectors: Vectors) -> Vectors:
    """The vectors, of one shape and no more of them than they have numbers."""
    require_float64()
    entries = checked_sequence("vectors", vectors, "arrays")
    # a look at traced numbers would be one at every token of a compiled loop
    known = tuple(each if is_traced(each) else jnp.asarray(checked_array("vectors", each)) for each in entries)
    shapes = {np.shape(each) for each in known}
    if len(shapes) != 1 or () in shapes or len(known) > min(shapes)[0]:
        raise ValueError(
            f"vectors must be (size, *batch), of one shape and at most size of them, got {len(known)} of {shapes}"
        )
    return known
