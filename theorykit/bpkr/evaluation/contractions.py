"""Contractions that exploit the symmetry of U_1 and the pairs of paths that it mixes, unlike generated code.

Each function computes an expression of the action with fewer operations; tests compare the two. A change dU_1 is given
by its entries on and above the diagonal, row by row, in the order of `pairs`.

All outputs have the same features. With C outputs, U_1 and the kernel K of the rows (example, output) consist of C x C
matrices, but features and `pair_kernels` have one row per example:

    K_{(mu c)(nu d)} = sum_{pi pi'} U_1^{(pi c)(pi' d)} phi^pi_mu . phi^pi'_nu.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.typing import ArrayLike
from jaxtyping import Array, Float

PathMatrix = Float[Array, "paths paths"]
"""A matrix between paths, such as U_1."""
PairKernels = Float[Array, "pairs examples examples"]
"""Kernels of the pairs of paths on and above the diagonal, see `pair_kernels`."""
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


def pair_kernels(features: Float[Array, "examples n features"]) -> PairKernels:
    """Compute the kernel of each pair of paths on and above the diagonal, and half of it on the diagonal."""
    rows, columns = pairs(features.shape[1])
    weight = np.where(rows == columns, 0.5, 1.0)
    return kernels_of_pairs(features[:, rows] * weight[:, None], features[:, columns])


def combine(u1: PathMatrix, kernels: PairKernels) -> Float[Array, "rows rows"]:
    """Compute K from `pair_kernels`. The pairs below the diagonal give the transpose of those above."""
    paths = math.isqrt(2 * len(kernels))
    rows, columns = pairs(paths)
    weights = _by_output(u1, paths)[rows, :, columns].reshape(len(kernels), -1)
    half = _by_row((weights.T @ kernels.reshape(len(kernels), -1)).reshape(-1, *kernels.shape[1:]))
    return half + half.T


def kernel_of_features(u1: PathMatrix, features: Float[Array, "examples n features"]) -> Float[Array, "rows rows"]:
    """Compute K from features."""
    half = jnp.einsum("pai,acbd->cdpbi", features, _by_output(u1, features.shape[1]))
    return _by_row(jnp.einsum("cdpbi,qbi->cdpq", half, features).reshape(-1, len(features), len(features)))


def _by_output(u1: PathMatrix, paths: int) -> Float[Array, "n outputs n outputs"]:
    return u1.reshape(paths, len(u1) // paths, paths, -1)


def _by_row(blocks: Float[Array, "pairs examples examples"]) -> Float[Array, "rows rows"]:
    """Return the matrix of the rows (example, output) from its blocks for each pair of outputs."""
    outputs, examples = math.isqrt(len(blocks)), blocks.shape[1]
    by_output = blocks.reshape(outputs, outputs, examples, examples)
    return by_output.transpose(2, 0, 3, 1).reshape(outputs * examples, -1)


def blocks_of_features(
    features: Float[Array, "examples n features"],
    resolvent: Float[Array, "rows rows"],
    representer: Float[Array, "rows one"],
) -> Blocks:
    """Compute X and z from features, (K + T I)^-1 and (K + T I)^-1 y."""
    examples, paths, size = features.shape
    outputs, flat = len(resolvent) // examples, features.reshape(examples, -1)
    readings = jnp.einsum("pai,pc->aci", features, representer.reshape(examples, outputs))
    half = flat.T @ resolvent.reshape(examples, -1)
    half = half.reshape(-1, outputs, examples, outputs).swapaxes(2, 3).reshape(-1, examples)
    whole = (half @ flat).reshape(paths, size, outputs, outputs, paths, size).transpose(0, 2, 1, 4, 3, 5)
    return whole.reshape(paths * outputs, size, -1, size), readings.reshape(-1, size)


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
    blocks: Float[Array, "paths features paths features"],
    readings: Float[Array, "paths features"],
    has_log_determinant: bool = True,
) -> Float[Array, "pairs pairs"]:
    """Compute the second derivative of E: -tr(X dW X dW') + 2 z^T dW X dW' z with dW = dU (x) I.

    The trace is the part of the log-determinant.
    """
    # For dU = E_ab and dU' = E_cd, which are not symmetric: -tr(X_da X_bc) + 2 z_a^T X_bc z_d.
    inner = jnp.einsum("ai,bicj,dj->abcd", readings, blocks, readings)
    # X_bc is the transpose of X_cb, so tr(X_da X_bc) is the inner product of X_da and X_cb.
    curvature = 2 * inner
    rows, columns = pairs(len(readings))
    if has_log_determinant:
        # Compute these products, [d, a, c, b], in a quarter of the operations. A block below the diagonal is the
        # transpose of one above. A symmetric and an antisymmetric matrix are orthogonal.
        paths, size = blocks.shape[:2]
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
        products = (even[order][:, order] + odd).reshape((paths,) * 4)
        curvature = curvature - products.transpose(1, 3, 2, 0)
    # Sum over both orders of each pair. Diagonal pairs have only one order, so `weight` halves them.
    curvature = (curvature + curvature.swapaxes(0, 1))[rows, columns]
    curvature = (curvature + curvature.swapaxes(1, 2))[:, rows, columns]
    weight = np.where(rows == columns, 0.5, 1.0)
    return weight[:, None] * curvature * weight


def curvature_of_kernels(
    kernels: PairKernels,
    resolvent: Float[Array, "rows rows"],
    representer: Float[Array, "rows one"],
    has_log_determinant: bool = True,
) -> Float[Array, "entries entries"]:
    """Compute the second derivative of E: -tr(A R B R) + 2 v^T A R B v, from `pair_kernels`.

    The trace is the part of the log-determinant. R is (K + T I)^-1, and v is (K + T I)^-1 y. For outputs c and d and a
    kernel k, the derivative A of K is k (x) e_c e_d^T plus its transpose.
    """
    count, examples, _ = kernels.shape
    outputs, paths = len(resolvent) // examples, math.isqrt(2 * count)
    blocks, solved = resolvent.reshape(examples, outputs, examples, outputs), representer.reshape(examples, outputs)
    if outputs == 1:
        kernels = (kernels + kernels.swapaxes(1, 2)) / 2
    side, shape = count * outputs**2, (count, outputs, outputs)
    right = jnp.einsum("kpq,qdre->kdepr", kernels, blocks)
    flat, flipped = right.reshape(side, -1), right.swapaxes(3, 4).reshape(side, -1)
    # For k (x) e_c e_d^T and k' (x) e_c' e_d'^T: tr(k R_dc' k' R_d'c) with indices [k, d, c', k', d', c].
    trace = (flat @ flipped.T).reshape(2 * shape).transpose(0, 5, 1, 3, 2, 4)
    if outputs == 1:
        # The kernels are symmetric, so the transpose of k' adds the same.
        trace = 2 * trace
    else:
        # tr(k R_dd' k'^T R_c'c) with indices [k, d, d', k', c, c'].
        left = jnp.einsum("pcqe,kqr->kcepr", blocks, kernels).reshape(side, -1)
        trace = trace + (flat @ left.T).reshape(2 * shape).transpose(0, 4, 1, 3, 5, 2)
    # Choose the entries of U_1 on and above the diagonal. Outputs are fastest.
    (a, c), (b, d) = (np.divmod(index, outputs) for index in pairs(paths * outputs))
    kernel = np.zeros((paths, paths), dtype=int)
    kernel[pairs(paths)] = np.arange(count)
    chosen = np.ravel_multi_index((kernel[a, b], c, d), shape)
    # Entries of one path have half of its kernel from each order of the outputs.
    weight = np.where((a == b) & (c < d), 2.0, 1.0)
    unit = jnp.eye(outputs)
    # A v is k v_d in the rows of output c, plus k^T v_c in the rows of d.
    readings = jnp.einsum("kpq,qd,ce->kcdpe", kernels, solved, unit)
    readings += jnp.einsum("kqp,qc,de->kcdpe", kernels, solved, unit)
    readings = readings.reshape(side, -1)[chosen]
    curvature = readings @ resolvent @ readings.T
    if has_log_determinant:
        curvature = curvature - trace.reshape(side, side)[chosen][:, chosen]
    return 2 * weight[:, None] * curvature * weight


def blocks_cost(paths: int, size: int, assembly: float | int, evaluation: float | int) -> tuple[float, float]:
    """Estimate the cost of the curvature from blocks of `size` features, in evaluations, and its memory in bytes.

    `assembly` and `evaluation` are operation counts of the blocks and of one evaluation of the energy.
    """
    count = len(pairs(paths)[0])
    return (assembly + count**2 * size**2) / evaluation, 8.0 * (2 * count + paths**2) * size**2
