"""Precision of the action in double precision: first-order effects of rounding in all factorised matrices.

A Cholesky factorisation gives entry (i, j) of a symmetric matrix A a rounding error of about eps sqrt(A_ii A_jj)
(Higham, Accuracy and Stability of Numerical Algorithms, chapter 10). For independent errors of random sign, log det A
then has an error of about eps |D A^-1 D|, with D = diag(A)^(1/2) and the Frobenius norm. The error of b^T A^-1 b is
about eps sum_i (A^-1 b)_i^2 A_ii. Both errors are invariant under scaling of rows and columns.
"""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ..features.kernels import PathMatrix
from ..specification.architecture import Architecture

Number = Float[Array, ""]

MACHINE = float(np.finfo(np.float64).eps)
# Safety factor, because the estimates assume random signs; with it they cover nearly all errors.
MARGIN = 4.0


def _inverse_of(factor: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """Compute A^-1 for A = C C^T, given C; its entries are the sensitivities of log det A."""
    return cho_solve((factor, True), jnp.eye(len(factor)))


def log_det_sensitivity(inverse: Float[Array, "n n"], scale: Float[Array, " n"]) -> Number:
    """Estimate the change of log det A due to independent relative errors of size one in A with diagonal `scale`."""
    root = jnp.sqrt(scale)
    return jnp.sqrt(jnp.sum((root[:, None] * inverse * root) ** 2))


def entropy_rounding(architecture: Architecture, factors: Sequence[Float[Array, "_ _"]]) -> Number:
    """Estimate the rounding error of the entropy per eps from all C_l. Each U_l = C_l C_l^T enters two layers."""
    below = [
        0.0,
        *(width * count for width, count in zip(architecture.relative_widths, architecture.branches, strict=False)),
    ]
    total = 0.0
    for factor, width, inner in zip(factors, architecture.relative_widths, below, strict=True):
        diagonal = jnp.sum(factor**2, axis=1)
        sensitivity = log_det_sensitivity(_inverse_of(factor), diagonal)
        total += (width + inner) * (sensitivity + jnp.sum(jnp.abs(jnp.log(diagonal))))
    return total


def kernel_rounding(
    u1: PathMatrix,
    value: Number,
    resolvent: Float[Array, "rows rows"],
    representer: Float[Array, " rows"],
    squares: Float[Array, "n examples"],
    labels: Float[Array, " rows"],
    temperature: ArrayLike,
    features_error: ArrayLike,
) -> Mapping[str, Number]:
    """Estimate the rounding errors per eps of the energy from the kernel that the "kernel" and the "labels" cause.

    `squares` are phi^pi . phi^pi for every path and example, the same for all outputs. `features_error` is the largest
    error of a feature.
    """
    norms = jnp.kron(jnp.sqrt(squares), jnp.eye(len(labels) // squares.shape[1]))
    # The size of the terms that are added up in the diagonal of the kernel.
    scale = jnp.einsum("ap,ab,bp->p", norms, jnp.abs(u1), norms) + temperature
    square, misfit = representer @ representer, representer @ labels
    # The norms |W^(1/2) Phi^T R| and |W^(1/2) Phi^T v|, with K = Phi W Phi^T.
    of_resolvent = _root(jnp.trace(resolvent) - temperature * jnp.sum(resolvent**2))
    of_representer = _root(misfit - temperature * square)
    misplaced = 2 * _root(len(u1) * jnp.max(jnp.abs(u1))) * features_error / MACHINE
    of_kernel = log_det_sensitivity(resolvent, scale) + misplaced * of_resolvent
    of_labels = jnp.sum(representer**2 * scale) + misplaced * jnp.sqrt(square) * of_representer
    # Add the rounding of the sum of log-determinant and misfit.
    return {"kernel": of_kernel + jnp.abs(value - misfit), "labels": of_labels + jnp.abs(misfit)}


def _root(square: Number) -> Number:
    """Return the root of a number that rounding can make negative."""
    return jnp.sqrt(jnp.maximum(square, 0.0))
