"""The second derivative of the energy in U_1, from how the resolvent couples the features of the paths.

A change dU_1 is given by its entries on and above the diagonal, row by row: `pairs`.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def pairs(paths: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries on and above the diagonal."""
    return np.triu_indices(paths)


def curvature_of_blocks(
    blocks: Float[Array, "pairs features features"], readings: Float[Array, "paths features"]
) -> Float[Array, "pairs pairs"]:
    """The second derivative of E from X = Phi^T (K + T I)^-1 Phi and z = Phi^T (K + T I)^-1 y.

    -tr(X dW X dW') + 2 z^T dW X dW' z with dW = dU (x) I. `blocks` are the blocks X_ab of the pairs a <= b.
    """
    paths, count = len(readings), len(blocks)
    rows, columns = pairs(paths)
    index = np.zeros((paths, paths), dtype=int)
    index[rows, columns] = index[columns, rows] = np.arange(count)
    flat, flipped = blocks.reshape(count, -1), blocks.transpose(0, 2, 1).reshape(count, -1)
    same, crossed = flat @ flat.T, flat @ flipped.T
    # tr(X_da X_bc) = <X_ad, X_bc>: blocks below the diagonal are transposes of those above
    first, second = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    a, b, c, d = rows[first], columns[first], rows[second], columns[second]

    def trace(p, q, r, s):
        """tr(X_pq X_rs)."""
        alike = (p <= q) == (r <= s)
        return jnp.where(alike, crossed[index[p, q], index[r, s]], same[index[p, q], index[r, s]])

    # over both orders of each pair: V = E_ab + E_ba, V' = E_cd + E_dc; tr(X V X V')
    spread = 2 * (trace(d, a, b, c) + trace(c, a, b, d))
    weight = np.where(rows == columns, 0.5, 1.0)
    spread = weight[:, None] * spread * weight
    return _misfit_curvature(blocks, readings, weight) - spread


def _misfit_curvature(blocks, readings, weight):
    paths = len(readings)
    rows, columns = pairs(paths)
    # full X, row block by row block; 2 z^T V X V' z
    size = blocks.shape[1]
    whole = jnp.zeros((paths, paths, size, size)).at[rows, columns].set(blocks)
    whole = whole.at[columns, rows].set(blocks.transpose(0, 2, 1))
    right = jnp.einsum("bcij,dj->bcdi", whole, readings)
    quartic = jnp.einsum("ai,bcdi->abcd", readings, right)
    both = quartic + quartic.transpose(1, 0, 2, 3)
    both = both + both.transpose(0, 1, 3, 2)
    return 2 * weight[:, None] * both[rows, columns][:, rows, columns] * weight


def blocks_cost(paths: int, size: int, assembly: int, evaluation: int) -> tuple[float, float]:
    """How many evaluations' work the curvature is, by blocks of `size` features, and how many bytes it takes.

    `assembly` and `evaluation`: operations, of the blocks and of one evaluation of the energy.
    """
    count = len(pairs(paths)[0])
    return (assembly + 4 * count**2 * size**2) / evaluation, 8.0 * (2 * count + paths**2) * size**2
