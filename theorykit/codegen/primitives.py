"""Operations that generated code calls. They are small, pure and differentiable JAX functions."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float


class Factorised(NamedTuple):
    """A symmetric positive definite matrix and its lower Cholesky factor.

    Derivatives are with respect to the matrix, not the factor, so they need only solves.
    """

    matrix: Float[Array, "n n"]
    lower: Float[Array, "n n"]


def cholesky(matrix: Float[Array, "n n"]) -> Factorised:
    """Symmetrise the matrix and factorise it. The factor is NaN if the matrix is not positive definite."""
    symmetric = (matrix + matrix.T) / 2
    return Factorised(symmetric, jnp.linalg.cholesky(jax.lax.stop_gradient(symmetric), symmetrize_input=False))


@jax.custom_jvp
def log_det(of: Factorised) -> Float[Array, ""]:
    """Return log det A."""
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(of.lower)))


@log_det.defjvp
def _log_det_jvp(primals, tangents):
    (of,), (change,) = primals, tangents
    return log_det(of), jnp.sum(solve(of, jnp.eye(len(of.matrix))) * change.matrix)


def solve(of: Factorised, right: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return A^{-1} right."""

    def by_factor(_, right):
        return cho_solve((of.lower, True), right)

    return jax.lax.custom_linear_solve(lambda unknown: of.matrix @ unknown, right, by_factor, symmetric=True)


@jax.custom_jvp
def square_root(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Return the positive definite square root."""
    eigenvalues, vectors = jnp.linalg.eigh((matrix + matrix.T) / 2)
    return (vectors * jnp.sqrt(eigenvalues)) @ vectors.T


@square_root.defjvp
def _square_root_jvp(primals, tangents):
    # The change X of the root S solves S X + X S = change of the matrix. Unlike derivatives of eigenvectors, it is
    # finite for degenerate eigenvalues.
    (matrix,), (change,) = primals, tangents
    root = square_root(matrix)

    def solved(_, right):
        eigenvalues, vectors = jnp.linalg.eigh(jax.lax.stop_gradient(root))
        rotated = vectors.T @ right @ vectors
        return vectors @ (rotated / (eigenvalues[:, None] + eigenvalues)) @ vectors.T

    return root, jax.lax.custom_linear_solve(lambda x: root @ x + x @ root, change, solved, symmetric=True)


kron = jnp.kron
trace = jnp.trace
"""Return the trace."""
# tr(left^T right) as a contraction. For all pairs of two batches, this is one matrix product.
trace_of_product = jnp.vdot


def kron_left_matmul(left: Float[Array, "a b"], matrix: Float[Array, "m k"]) -> Float[Array, "n k"]:
    """Return (left (x) I) matrix."""
    blocks = matrix.reshape(left.shape[1], -1)
    return (left @ blocks).reshape(-1, matrix.shape[1])


def kron_right_matmul(right: Float[Array, "c d"], matrix: Float[Array, "m k"]) -> Float[Array, "n k"]:
    """Return (I (x) right) matrix."""
    blocks = matrix.reshape(-1, right.shape[1], matrix.shape[1])
    return jnp.einsum("cd,bdk->bck", right, blocks).reshape(-1, matrix.shape[1])


def diagonal(matrix: Float[Array, "n n"]) -> Float[Array, "n 1"]:
    """Return the diagonal as a column."""
    return jnp.diagonal(matrix)[:, None]


def diagonal_of_product(left: Float[Array, "k n"], right: Float[Array, "k n"]) -> Float[Array, "n 1"]:
    """Return diag(left^T right) as a column."""
    return jnp.sum(left * right, axis=0)[:, None]


def entrywise(function: Callable[..., Array | float | int], *matrices: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Apply `function` to corresponding entries."""
    return jnp.broadcast_to(function(*matrices), matrices[0].shape)


def sum_of_blocks(matrix: Float[Array, "m m"], outer: int) -> Float[Array, "n n"]:
    """Return the sum of the `outer` diagonal blocks, which is the partial trace over the first factor."""
    inner = matrix.shape[0] // outer
    return jnp.einsum("hahb->ab", matrix.reshape(outer, inner, outer, inner))


def trace_of_blocks(matrix: Float[Array, "m m"], inner: int) -> Float[Array, "n n"]:
    """Return the traces of all blocks of size `inner`, which are the partial trace over the second factor."""
    outer = matrix.shape[0] // inner
    return jnp.einsum("aibi->ab", matrix.reshape(outer, inner, outer, inner))


def sum_of_product_blocks(left: Float[Array, "k m"], right: Float[Array, "k m"], outer: int) -> Float[Array, "n n"]:
    """Return `sum_of_blocks(left^T right, outer)`."""
    shape = (left.shape[0], outer, left.shape[1] // outer)
    return jnp.einsum("pha,phb->ab", left.reshape(shape), right.reshape(shape))


def trace_of_product_blocks(left: Float[Array, "k m"], right: Float[Array, "k m"], inner: int) -> Float[Array, "n n"]:
    """Return `trace_of_blocks(left^T right, inner)`."""
    shape = (left.shape[0], left.shape[1] // inner, inner)
    return jnp.einsum("pai,pbi->ab", left.reshape(shape), right.reshape(shape))
