"""Contractions that exploit the symmetry of U_1 and the pairs of paths that it mixes, unlike generated code.

Each function computes an expression of the action with fewer operations; tests compare the two. A change dU_1 is given
by its entries on and above the diagonal, row by row, in the order of `pairs`.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Float

PathMatrix = Float[Array, "paths paths"]
"""A matrix between paths, such as U_1."""
Number = Float[Array, ""]
Blocks = tuple[Float[Array, "paths features paths features"], Float[Array, "paths features"]]
"""X = Phi^T (K + T I)^-1 Phi and z = Phi^T (K + T I)^-1 y, per path."""


def pairs(paths: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the entries on and above the diagonal."""
    return np.triu_indices(paths)


def kernels_of_pairs(
    one: Float[Array, "rows ... features"], other: Float[Array, "columns ... features"]
) -> Float[Array, "... rows columns"]:
    """Compute the kernel of each pair of paths, the derivative of K (Eq. 10) in an entry of U_1, from features."""
    return jnp.einsum("p...i,q...i->...pq", one, other)


def combine(u1: PathMatrix, kernels: Float[Array, "pairs rows rows"]) -> Float[Array, "rows rows"]:
    """Compute K from its derivatives in the entries of U_1 on and above the diagonal."""
    return (u1[pairs(len(u1))] @ kernels.reshape(len(kernels), -1)).reshape(kernels.shape[1:])


def blocks_of_features(
    features: Float[Array, "rows paths features"],
    resolvent: Float[Array, "rows rows"],
    representer: Float[Array, "rows one"],
) -> Blocks:
    """Compute X and z from features, (K + T I)^-1 and (K + T I)^-1 y."""
    rows, paths, size = features.shape
    flat = features.reshape(rows, -1)
    readings = jnp.einsum("pai,p->ai", features, representer[:, 0])
    return (flat.T @ resolvent @ flat).reshape(paths, size, paths, size), readings


def blocks_of_moments(
    u1: PathMatrix,
    gram: Float[Array, "columns columns"],
    projection: Float[Array, "columns one"],
    temperature: ArrayLike,
) -> Blocks:
    """Compute X and z from M = Phi^T Phi and b = Phi^T y."""
    paths, factor = len(u1), jnp.linalg.cholesky(u1)
    size = len(gram) // paths
    # Whiten by U_1 = C C^T, so that no entry is large: T I + (C^T (x) I) M (C (x) I).
    blocks = gram.reshape(paths, size, paths, size)
    white = jnp.einsum("aibj,ac,bd->cidj", blocks, factor, factor).reshape(gram.shape)
    root = jnp.linalg.cholesky(white + temperature * jnp.eye(len(gram)))
    inverse_factor = solve_triangular(factor, jnp.eye(paths), lower=True)
    small = cho_solve((root, True), white).reshape(blocks.shape)
    whole = jnp.einsum("cidj,ca,db->aibj", small, inverse_factor, inverse_factor)
    right = jnp.einsum("ai,ac->ci", projection.reshape(paths, size), factor)
    readings = cho_solve((root, True), right.ravel()).reshape(paths, size)
    return whole, inverse_factor.T @ readings


def curvature_of_blocks(
    blocks: Float[Array, "paths features paths features"], readings: Float[Array, "paths features"]
) -> Float[Array, "pairs pairs"]:
    """Compute the second derivative of E: -tr(X dW X dW') + 2 z^T dW X dW' z with dW = dU (x) I."""
    # For dU = E_ab and dU' = E_cd, which are not symmetric: -tr(X_da X_bc) + 2 z_a^T X_bc z_d.
    inner = jnp.einsum("ai,bicj,dj->abcd", readings, blocks, readings)
    # X_bc is the transpose of X_cb, so tr(X_da X_bc) is the inner product of X_da and X_cb.
    curvature = 2 * inner - _products_of_blocks(blocks).transpose(1, 3, 2, 0)
    rows, columns = pairs(len(readings))
    # Sum over both orders of each pair. Diagonal pairs have only one order, so `weight` halves them.
    curvature = (curvature + curvature.swapaxes(0, 1))[rows, columns]
    curvature = (curvature + curvature.swapaxes(1, 2))[:, rows, columns]
    weight = np.where(rows == columns, 0.5, 1.0)
    return weight[:, None] * curvature * weight


def _products_of_blocks(
    blocks: Float[Array, "paths features paths features"],
) -> Float[Array, "paths paths paths paths"]:
    """Compute the inner products of all pairs of blocks, [d, a, c, b] of X_da and X_cb, in a quarter of the operations.

    A block below the diagonal is the transpose of one above. A symmetric and an antisymmetric matrix are orthogonal.
    """
    paths, size = blocks.shape[:2]
    rows, columns = pairs(paths)
    upper, lower = blocks[rows, :, columns], blocks[columns, :, rows]
    first, second = np.triu_indices(size)
    weight = np.where(first == second, 0.5, 0.5**0.5)
    # With these weights the sum over entries on and above the diagonal is the sum over all entries.
    even, odd = (((upper + sign * lower)[:, first, second] * weight) for sign in (1, -1))
    even, odd = even @ even.T, odd @ odd.T
    position = np.zeros((paths, paths), dtype=int)
    position[rows, columns] = position[columns, rows] = np.arange(len(rows))
    sign, order = np.where(np.tri(paths, k=-1), -1.0, 1.0).ravel(), position.ravel()
    # Gather rows and then columns, because their combinations would be a large array of indices in the program.
    odd = sign[:, None] * odd[order][:, order] * sign
    return (even[order][:, order] + odd).reshape((paths,) * 4)


def curvature_of_kernels(
    kernels: Float[Array, "pairs rows rows"],
    resolvent: Float[Array, "rows rows"],
    representer: Float[Array, "rows one"],
) -> Float[Array, "pairs pairs"]:
    """Compute the second derivative of E: -tr(A R B R) + 2 v^T A R B v, for derivatives A and B of K from `kernels`.

    R is (K + T I)^-1, and v is (K + T I)^-1 y.
    """
    moved, readings = kernels @ resolvent, (kernels @ representer)[:, :, 0]
    flat, flipped = (each.reshape(len(kernels), -1) for each in (moved, moved.swapaxes(1, 2)))
    return 2 * readings @ resolvent @ readings.T - flat @ flipped.T


def blocks_cost(paths: int, size: int, assembly: float | int, evaluation: float | int) -> tuple[float, float]:
    """Estimate the cost of the curvature from blocks of `size` features, in evaluations, and its memory in bytes.

    `assembly` and `evaluation` are operation counts of the blocks and of one evaluation of the energy.
    """
    count = len(pairs(paths)[0])
    return (assembly + count**2 * size**2) / evaluation, 8.0 * (2 * count + paths**2) * size**2
