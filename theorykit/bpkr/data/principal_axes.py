"""Examples rotated into the principal axes of their features: the same action, without cancellation between examples.

An orthogonal matrix O that acts on examples, phi -> O phi and y -> O y, changes no energy and no order parameters. With
the left singular vectors of the features every row is as long as its singular value: the kernel is graded, which a
Cholesky factorisation handles to full relative accuracy, and examples that depend on others become rows of zeros.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...threads import threads_for


class RotatedExamples(eqx.Module):
    """Path features and labels in principal axes.

    - `features`, `labels`: of no more rows than there are axes, and one with what no feature explains of the labels.
    - `omitted`: how many rows were left out: without features or labels, they have the energy log T each.
    - `error`: how far a feature may be off, by the rounding of the rotation.
    """

    features: Float[Array, "rows paths features"]
    labels: Float[Array, "rows *outputs"]
    omitted: Float[Array, ""]
    error: Float[Array, ""]


def in_principal_axes(features: Float[Array, "examples paths features"], labels: Float[Array, "examples *outputs"]):
    """Rotate the examples, on the host; singular values that are rounding become zero."""
    flat, targets = np.asarray(features).reshape(len(features), -1), np.asarray(labels)
    with threads_for(len(flat)):
        left, singular, right = np.linalg.svd(flat, full_matrices=False)
    error = np.finfo(np.float64).eps * singular[0]
    rows = np.where(singular > max(flat.shape) * error, singular, 0.0)[:, None] * right
    rotated, omitted = left.T @ targets, 0
    if len(flat) > len(rows):
        unexplained = np.linalg.norm(targets - left @ rotated, axis=0, keepdims=True)
        rows, rotated = np.vstack([rows, np.zeros(rows.shape[1])]), np.concatenate([rotated, unexplained])
        omitted = (len(flat) - len(rows)) * (targets.size // len(targets))
    numbers = (rows.reshape(-1, *features.shape[1:]), rotated, float(omitted), float(error))
    return RotatedExamples(*(jnp.asarray(number, dtype=jnp.float64) for number in numbers))
