"""Operations that generated code calls. They are small, pure and differentiable JAX functions."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from .gaussian_means import adaptive_gaussian_mean, adaptive_gaussian_means, gaussian_mean  # noqa: F401
from .spectral import eigendecomposition, eigenvalue_sum, spectral_function  # noqa: F401

Scalar = Float[Array, ""] | float | int


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


identity = jnp.eye
kron = jnp.kron
trace = jnp.trace
"""Return the trace."""
# tr(left^T right) as a contraction. For all pairs of two batches, this is one matrix product.
trace_of_product = jnp.vdot
sum_of_entries = jnp.sum
"""Return the sum of all entries."""


def zeros(rows: int, columns: int) -> Float[Array, "n m"]:
    """Return the zero matrix."""
    return jnp.zeros((rows, columns))


def add_identity(matrix: Float[Array, "n n"], scale: Scalar) -> Float[Array, "n n"]:
    """Return matrix + scale I."""
    return matrix + scale * jnp.eye(matrix.shape[0])


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


def scale_rows(by: Float[Array, "n 1"], matrix: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """Return diag(by) matrix."""
    return by * matrix


def diagonal_matrix(of: Float[Array, "n 1"]) -> Float[Array, "n n"]:
    """Return diag(of)."""
    return jnp.diag(of[:, 0])


def softmax(of: Float[Array, "n 1"]) -> Float[Array, "n 1"]:
    """Return the softmax of a column."""
    return jax.nn.softmax(of, axis=0)


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


def ones(rows: int, columns: int) -> Float[Array, "n m"]:
    """Return the matrix of ones."""
    return jnp.ones((rows, columns))


def stacked(matrix: Float[Array, "n m"], blocks: int) -> Float[Array, "k l"]:
    """Turn [A_1 | ... | A_k] into [A_1; ...; A_k]."""
    rows, columns = matrix.shape
    parts = matrix.reshape(rows, blocks, columns // blocks)
    return parts.transpose(1, 0, 2).reshape(rows * blocks, -1)


def side_by_side(matrix: Float[Array, "n m"], blocks: int) -> Float[Array, "k l"]:
    """Turn [A_1; ...; A_k] into [A_1 | ... | A_k]."""
    rows, columns = matrix.shape
    parts = matrix.reshape(blocks, rows // blocks, columns)
    return parts.transpose(1, 0, 2).reshape(-1, blocks * columns)


def beside(*matrices: Float[Array, "_ _"]) -> Float[Array, "n m"]:
    """Return [A | B | ...]."""
    return jnp.concatenate(matrices, axis=1)


def below(*matrices: Float[Array, "_ _"]) -> Float[Array, "n m"]:
    """Return [A; B; ...]."""
    return jnp.concatenate(matrices, axis=0)


def leading_block(matrix: Float[Array, "n n"], size: int) -> Float[Array, "m m"]:
    """Return the first `size` rows and columns."""
    return matrix[:size, :size]


def trailing_block(matrix: Float[Array, "n n"], size: int) -> Float[Array, "m m"]:
    """Return the rows and columns after the first `size`."""
    return matrix[size:, size:]
