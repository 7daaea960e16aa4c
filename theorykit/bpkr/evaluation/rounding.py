"""How well double precision knows the action: first-order effects of rounding in everything that was factorised.

A symmetric matrix A of which entry (i, j) carries a rounding error of about eps sqrt(A_ii A_jj), as a Cholesky
factorisation leaves it (Higham, Accuracy and Stability of Numerical Algorithms, chapter 10), has log det A known to
about eps |D A^-1 D| and b^T A^-1 b to about eps sum_i (A^-1 b)_i^2 A_ii, with D = diag(A)^(1/2) and the Frobenius norm:
independent errors of random sign. Neither changes when rows and columns are scaled.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float

from ..order_parameters.order_parameters import OrderParameters, readout_matrix
from ..specification.architecture import Architecture

MACHINE = float(np.finfo(np.float64).eps)
# what keeps nearly all errors below an estimate that takes their signs for random
MARGIN = 4.0


def inverse_of(matrix: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """A^-1, whose entries are the sensitivities of log det A."""
    return cho_solve((jnp.linalg.cholesky(matrix), True), jnp.eye(len(matrix)))


def log_det_sensitivity(inverse: Float[Array, "n n"], scale: Float[Array, " n"]) -> Float[Array, ""]:
    """Change of log det A by independent relative errors of size one in A, whose diagonal is `scale`."""
    root = jnp.sqrt(scale)
    return jnp.linalg.norm(root[:, None] * inverse * root)


def quadratic_sensitivity(solved: Float[Array, " n"], scale: Float[Array, " n"]) -> Float[Array, ""]:
    """Change of b^T A^-1 b by the same, given A^-1 b."""
    return jnp.sum(solved**2 * scale)


def entropy_rounding(architecture: Architecture, order_parameters: OrderParameters) -> Float[Array, ""]:
    """What rounding makes of the entropy at `order_parameters`, per eps: every U_l is factorised for two layers."""
    matrices = [*order_parameters.matrices, readout_matrix(order_parameters.readout)]
    inner = [
        0.0,
        *(width * branches for width, branches in zip(architecture.widths, architecture.branches, strict=False)),
    ]
    total = 0.0
    for matrix, width, below in zip(matrices, architecture.widths, inner, strict=True):
        sensitivity = log_det_sensitivity(inverse_of(matrix), jnp.diagonal(matrix))
        total += (width + below) * (sensitivity + jnp.sum(jnp.abs(jnp.log(jnp.diagonal(matrix)))))
    return total
