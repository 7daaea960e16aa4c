"""Lower triangular matrices as vectors: coordinates of symmetric matrices, and of Cholesky factors.

Entries are in the order in which the rows of a square hold a triangle folded once: slices, reversals and products
alone, for gathers, scatters and selections take XLA long to compile.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

Entries = Float[Array, " entries"]
Lower = Float[Array, "size size"]


def filled(entries: Entries, size: int) -> Lower:
    """The lower triangular matrix with these entries."""
    return _unfolded(entries, size) * np.tri(size)


def entries_of(lower: Lower) -> Entries:
    """The entries of a lower triangular matrix; `filled` puts them back."""
    size = len(lower)
    # every entry is in the square once, and zero where it would be again
    again, whole = jnp.split(lower.ravel(), [size * (size - 1) // 2])
    return whole[::-1] + jnp.pad(again, (size, 0))


def filled_factor(entries: Entries, size: int) -> Lower:
    """The Cholesky factor with these entries, its diagonal by its logarithm: every vector is one."""
    folded = _unfolded(entries, size)
    diagonal, strictly_below = np.eye(size), np.tri(size, k=-1)
    return folded * strictly_below + jnp.exp(folded * diagonal) * diagonal


def entries_of_factor(factor: Lower) -> Entries:
    """The entries of a Cholesky factor, its diagonal by its logarithm; `filled_factor` puts them back."""
    size = len(factor)
    diagonal, strictly_below = np.eye(size), np.tri(size, k=-1)
    return entries_of(factor * strictly_below + jnp.log(factor * diagonal + (1.0 - diagonal)))


def _unfolded(entries: Entries, size: int) -> Float[Array, "size size"]:
    return jnp.concatenate([entries[size:], entries[::-1]]).reshape(size, size)
