"""Rotate examples and features to principal directions, or add zeros, which leaves the action unchanged.

Rows of zeros add log T each to the action, which the energy subtracts. Other zeros add nothing.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...threads import threads_for

# Directions with a smaller fraction of the features' norm are dropped: its square in kernels is below rounding.
_NOTHING = 1e-9
# Round the number of features up to a multiple of width / 16, so that data of similar rank share compiled functions.
_SHAPES = 16


class TransformedExamples(eqx.Module):
    """Path features and labels in principal axes, or with additional rows of zeros.

    - `features` (rows, paths, features): in principal axes at most one row per axis, plus one row of zeros for the part
      of the labels that no feature explains.
    - `labels` (rows, ...): the labels in the same rows.
    - `omitted`: number of omitted labels, negative if rows were added. The features and labels in these rows are zero,
      so each label has the energy log T.
    - `error`: largest error of a feature from rounding in the rotation.
    """

    features: Float[Array, "rows paths features"]
    labels: Float[Array, "rows *outputs"]
    omitted: Float[Array, ""]
    error: Float[Array, ""]


def in_principal_axes(features: Float[Array, "examples paths features"], labels: Float[Array, "examples *outputs"]):
    """Rotate the examples, on the host, by an orthogonal matrix O: phi -> O phi and y -> O y.

    The rows of O are the left singular vectors of the features, so the norm of each rotated row is a singular value.
    The kernel is then graded, and its Cholesky factors have full relative accuracy. Linearly dependent examples become
    rows of zeros. Singular values below the rounding error are set to zero.
    """
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
    return TransformedExamples(*(jnp.asarray(number, dtype=jnp.float64) for number in numbers))


def shared_size(size: int) -> int:
    """Round a size up to 8, ..., 15 times a power of two, so that data sets of similar size share compiled functions.

    Less than an eighth is added.
    """
    step = 2 ** max(0, (size - 1).bit_length() - 4)
    return step * -(-size // step)


def with_zeros(
    features: Float[Array | np.ndarray, "examples paths features"], labels: Float[Array, "examples *outputs"]
) -> TransformedExamples:
    """Add examples and features of zeros, on the host, up to a `shared_size`. The temperature must be positive."""
    rows = features_with_zeros(features)
    added = len(rows) - len(labels)
    targets = np.pad(np.asarray(labels), ((0, added), *((0, 0),) * (labels.ndim - 1)))
    omitted = -added * (labels.size // len(labels))
    return TransformedExamples(rows, jnp.asarray(targets), jnp.asarray(float(omitted)), jnp.asarray(0.0))


def features_with_zeros(features: Float[Array | np.ndarray, "examples paths features"]) -> Float[Array, "_ paths _"]:
    """Add examples and features of zeros, on the host, up to a `shared_size`."""
    examples, _, width = features.shape
    added = (0, shared_size(examples) - examples), (0, 0), (0, shared_size(width) - width)
    return jnp.asarray(np.pad(np.asarray(features), added))


def in_spanned_directions(
    features: Float[np.ndarray, "examples paths features"],
) -> Float[np.ndarray, "examples paths kept"]:
    """Rotate the input features, and drop directions in which all features are zero, such as black pixels.

    Kernels do not change. If nearly all features would remain, they are returned unchanged.
    """
    examples, paths, width = features.shape
    flat = features.reshape(-1, width)
    with threads_for(width):
        if len(flat) < width:
            flat = np.linalg.qr(flat.T, mode="r").T
        _, directions = np.linalg.eigh(flat.T @ flat)
        rotated = flat @ directions
    squares = np.sum(rotated**2, axis=0)
    step = max(1, width // _SHAPES)
    needed = int(np.sum(squares > _NOTHING**2 * np.sum(squares)))
    # Round up to a multiple of `step`, so that compiled functions are shared.
    kept = min(flat.shape[1], step * -(-max(needed, 1) // step))
    if kept > width - step:
        return features
    # eigh puts the largest eigenvalues last.
    return rotated[:, -kept:].reshape(examples, paths, kept)
