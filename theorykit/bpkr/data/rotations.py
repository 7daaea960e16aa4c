"""Rotations of examples and features to principal directions, which leave the action unchanged."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...threads import threads_for

# Directions with a smaller share of the features' norm are dropped; in kernels its square is far below rounding.
_NOTHING = 1e-9
# Round numbers of features up to multiples of this share of the width, to reuse compiled functions.
_SHAPES = 16


class RotatedExamples(eqx.Module):
    """Path features and labels in principal axes.

    - `features`, `labels`: one row per axis at most, plus one row for the part of the labels that no feature explains.
    - `omitted`: number of rows left out. They have neither features nor labels, so each has the energy log T.
    - `error`: largest error of a feature, from rounding in the rotation.
    """

    features: Float[Array, "rows paths features"]
    labels: Float[Array, "rows *outputs"]
    omitted: Float[Array, ""]
    error: Float[Array, ""]


def in_principal_axes(features: Float[Array, "examples paths features"], labels: Float[Array, "examples *outputs"]):
    """Rotate the examples, on the host, by an orthogonal O: phi -> O phi and y -> O y.

    O holds the left singular vectors of the features, so the length of each row is its singular value. The kernel is
    then graded, and its Cholesky factors have full relative accuracy. Dependent examples become rows of zeros. Singular
    values that are only rounding become zero.
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
    return RotatedExamples(*(jnp.asarray(number, dtype=jnp.float64) for number in numbers))


def in_spanned_directions(
    features: Float[np.ndarray, "examples paths features"],
) -> Float[np.ndarray, "examples paths kept"]:
    """Rotate the input features to drop directions that no example has along any path, such as black pixels.

    Kernels stay as they are. If nearly all features would be left, they are returned unchanged.
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
    kept = min(flat.shape[1], step * -(-max(needed, 1) // step))
    if kept > width - step:
        return features
    # eigh puts the largest eigenvalues last.
    return rotated[:, -kept:].reshape(examples, paths, kept)
