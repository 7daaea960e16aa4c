"""Contractions that exploit the symmetry of U_1 and the pairs of paths that it mixes, unlike generated code.

Each replaces an expression of the action with fewer operations; tests compare the two. A change dU_1 is given by its
entries on and above the diagonal, row by row, in the order of `pairs`.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Float

PathMatrix = Float[Array, "paths paths"]
"""A matrix between paths, such as U_1."""
Number = Float[Array, ""]
Blocks = tuple[Float[Array, "pairs features features"], Float[Array, "paths features"]]
"""Blocks X_ba, a <= b, of X = Phi^T (K + T I)^-1 Phi, and z = Phi^T (K + T I)^-1 y, per path."""


def pairs(paths: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the entries on and above the diagonal."""
    return np.triu_indices(paths)


def combine(u1: PathMatrix, kernels: Float[Array, "pairs rows rows"]) -> Float[Array, "rows rows"]:
    """Compute K from its derivatives in the entries of U_1 on and above the diagonal."""
    return (u1[pairs(len(u1))] @ kernels.reshape(len(kernels), -1)).reshape(kernels.shape[1:])


def blocks_of_features(
    features: Float[Array, "rows paths features"],
    resolvent: Float[Array, "rows rows"],
    representer: Float[Array, "rows one"],
) -> Blocks:
    """Compute the blocks X_ba and z from features, (K + T I)^-1 and (K + T I)^-1 y."""
    by_path = features.transpose(1, 2, 0)
    # Products in this order store the blocks one after another, as needed, without transposes.
    weighted = jnp.tensordot(by_path, resolvent, 1)
    blocks = jnp.concatenate([jnp.tensordot(weighted[a:], by_path[a], ((2,), (1,))) for a in range(len(by_path))])
    return blocks, jnp.einsum("pai,p->ai", features, representer[:, 0])


def blocks_of_moments(
    u1: PathMatrix,
    gram: Float[Array, "columns columns"],
    projection: Float[Array, "columns one"],
    temperature: ArrayLike,
) -> Blocks:
    """Compute X_ba and z from M = Phi^T Phi and b = Phi^T y."""
    paths, factor = len(u1), jnp.linalg.cholesky(u1)
    size = len(gram) // paths
    # Whiten by U_1 = C C^T, so that no entry is large: T I + (C^T (x) I) M (C (x) I).
    blocks = gram.reshape(paths, size, paths, size)
    white = jnp.einsum("aibj,ac,bd->cidj", blocks, factor, factor).reshape(gram.shape)
    root = jnp.linalg.cholesky(white + temperature * jnp.eye(len(gram)))
    inverse_factor = solve_triangular(factor, jnp.eye(paths), lower=True)
    small = cho_solve((root, True), white).reshape(blocks.shape)
    whole = jnp.einsum("cidj,ca,db->abji", small, inverse_factor, inverse_factor)
    right = jnp.einsum("ai,ac->ci", projection.reshape(paths, size), factor)
    readings = cho_solve((root, True), right.ravel()).reshape(paths, size)
    return whole[pairs(paths)], inverse_factor.T @ readings


def curvature_of_blocks(
    blocks: Float[Array, "pairs features features"], readings: Float[Array, "paths features"]
) -> Float[Array, "pairs pairs"]:
    """Compute the second derivative of E: -tr(X dW X dW') + 2 z^T dW X dW' z with dW = dU (x) I."""
    paths, (count, size, _) = len(readings), blocks.shape
    rows, columns = pairs(paths)
    index = np.zeros((paths, paths), dtype=int)
    index[rows, columns] = index[columns, rows] = np.arange(count)
    flat, flipped = blocks.reshape(count, -1), blocks.transpose(0, 2, 1).reshape(count, -1)
    same, crossed = flat @ flat.T, flat @ flipped.T
    # tr(X_da X_bc) = <X_ad, X_bc>, and blocks above the diagonal are transposes of blocks below it.
    one, other = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    a, b, c, d = rows[one], columns[one], rows[other], columns[other]

    def trace(p, q, r, s):
        """Return tr(X_pq X_rs)."""
        alike = (p <= q) == (r <= s)
        return jnp.where(alike, crossed[index[p, q], index[r, s]], same[index[p, q], index[r, s]])

    # tr(X V X V') sums over both orders of each pair: V = E_ab + E_ba, V' = E_cd + E_dc.
    of_logdet = 2 * (trace(d, a, b, c) + trace(c, a, b, d))
    # z_a^T X_bc z_d at [b, c, a, d].
    right = (blocks.reshape(-1, size) @ readings.T).reshape(count, size, paths)
    upper = jnp.einsum("di,kia->kad", readings, right)[index]
    above = np.tri(paths, dtype=bool).T[:, :, None, None]
    quartic = jnp.where(above, upper, upper.swapaxes(2, 3))
    both = quartic + quartic.swapaxes(0, 2)
    both = (both + both.swapaxes(1, 3)).transpose(2, 0, 1, 3)
    weight = np.where(rows == columns, 0.5, 1.0)
    of_misfit = 2 * weight[:, None] * both[rows, columns][:, rows, columns] * weight
    return of_misfit - weight[:, None] * of_logdet * weight


def blocks_cost(paths: int, size: int, assembly: int, evaluation: int) -> tuple[float, float]:
    """Estimate the cost of the curvature by blocks of `size` features, in evaluations, and its memory in bytes.

    `assembly` and `evaluation` are operation counts of the blocks and of one evaluation of the energy.
    """
    count = len(pairs(paths)[0])
    return (assembly + 4 * count**2 * size**2) / evaluation, 8.0 * (2 * count + paths**2) * size**2
