"""Bring examples to a canonical form once: an equivalent set with a graded kernel, in sizes that data sets share.

Rotations of examples and directions without features leave the action unchanged. A row of zeros adds log T to the
energy for each of its labels, which `omitted` corrects.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...checks import is_in_traced_code, is_traced
from ...threads import MANY_ROWS, threads_for
from ..features.implicit import Features, ImplicitFeatures
from ..features.kernels import AbstractKernel, is_tabulated, kernel_of
from .data import Data

# Directions with a smaller fraction of the features' norm are dropped: its square in kernels is below rounding.
_NOTHING = 1e-9
# Round the number of features up to a multiple of width / 16, so that data of similar rank share compiled functions.
_SHAPES = 16


class Examples(eqx.Module):
    """The training examples that solvers use.

    - `kernel`: the kernel among them.
    - `labels`: y, with one row per (example, output).
    - `omitted`: number of labels in rows of zeros that are left out; negative if rows were added.
    - `error`: largest rounding error of a feature.
    - `directions`: directions of the input features that the kernel uses; None for all.
    - `adds_zeros`: whether sizes were rounded up to a `shared_size`.
    """

    kernel: AbstractKernel
    labels: Float[Array, "rows one"]
    omitted: Float[Array, ""]
    error: Float[Array, ""]
    directions: Float[Array, "width kept"] | None = None
    adds_zeros: bool = eqx.field(static=True, default=False)

    def tested(self, features: Features) -> Features:
        """Return features of test examples in the directions of these examples, without a check."""
        if isinstance(features, ImplicitFeatures):
            return features
        if self.directions is not None:
            return features @ self.directions
        missing = self.kernel.features.shape[2] - features.shape[2]
        return jnp.pad(features, ((0, 0), (0, 0), (0, missing))) if missing else features


def canonical(data: Data, outputs: int, temperature: Array | float) -> Examples:
    """Return the canonical form of checked training data. Traced data and kernels of tokens stay as they are.

    Examples are rotated to their principal axes. The kernel is then graded, and its Cholesky factors have full relative
    accuracy. Linearly dependent examples, and examples in excess of features, become rows of zeros, which are left out.

    Args:
        data: checked training data with labels.
        outputs: number of outputs.
        temperature: T. At T = 0 there are no rows of zeros.
    """
    features, labels = data.features, data.labels
    omitted, error = data.omitted, jnp.zeros(())
    if isinstance(features, ImplicitFeatures) or is_traced(features, labels, omitted):
        return Examples(kernel_of(features, outputs), labels.reshape(-1, 1), jnp.asarray(omitted, float), error)
    features, labels = np.asarray(features), np.asarray(labels).reshape(len(labels), -1)
    examples, paths, width = features.shape
    smallest, usual = min(examples, paths * width), min(examples, paths * width + 1)
    # Large sets are compressed, but not decomposed further, which would take longer than a solve.
    if examples > paths * width or smallest <= MANY_ROWS:
        features, labels, error = _in_principal_axes(features, labels, decomposes=smallest <= MANY_ROWS)
        omitted = omitted + float((examples - len(features)) * labels.shape[1])
    adds_zeros = usual * outputs <= MANY_ROWS and not is_in_traced_code(temperature) and bool(temperature > 0)
    directions = None
    if not is_tabulated(paths, shared_size(usual) if adds_zeros else len(features)):
        features, directions = _in_spanned_directions(features)
    if adds_zeros:
        # The size follows from the shape of the data and not from their rank, so that it needs no compilation.
        before, features = len(features), with_zeros(features, shared_size(usual), directions is None)
        labels = np.pad(labels, ((0, len(features) - before), (0, 0)))
        omitted = omitted - float((len(features) - before) * labels.shape[1])
    arrays = (np.asarray(each, dtype=np.float64) for each in (omitted, error))
    return Examples(
        kernel_of(features, outputs),
        jnp.asarray(labels.reshape(-1, 1)),
        *map(jnp.asarray, arrays),
        directions,
        adds_zeros,
    )


def _in_principal_axes(features: np.ndarray, labels: np.ndarray, decomposes: bool):
    """Rotate examples by an orthogonal matrix O, phi -> O phi and y -> O y, and leave out rows without features.

    The rows of O are the left singular vectors of the features, so the norm of each rotated row is a singular value.
    Rows with singular values below the rounding error are left out. One row of zeros has the labels that no feature
    explains. With `decomposes` false, the rotation is a QR factorisation alone.
    """
    examples, paths, width = features.shape
    columns, flat = paths * width, features.reshape(examples, -1)
    unexplained = np.zeros((1, labels.shape[1]))
    with threads_for(examples):
        if examples > columns:
            upper = np.linalg.qr(np.hstack([flat, labels]), mode="r")
            unexplained = np.linalg.norm(upper[columns:, columns:], axis=0, keepdims=True)
            flat, labels = upper[:columns, :columns], upper[:columns, columns:]
        size = np.linalg.norm(flat)
        error = np.finfo(np.float64).eps * size
        if decomposes:
            left, singular, right = np.linalg.svd(flat, full_matrices=False)
            error = np.finfo(np.float64).eps * singular[0]
            kept = singular > max(examples, columns) * error
            labels, rest = left.T @ labels, labels - left @ (left.T @ labels)
            lost = np.vstack([unexplained, rest, labels[~kept]])
            unexplained = np.linalg.norm(lost, axis=0, keepdims=True)
            flat, labels = singular[kept, None] * right[kept], labels[kept]
    if len(flat) < examples:
        flat, labels = np.vstack([flat, np.zeros(columns)]), np.vstack([labels, unexplained])
    return flat.reshape(-1, paths, width), labels, error


def shared_size(size: int) -> int:
    """Round a size up to 8, ..., 15 times a power of two, so that data sets of similar size share compiled functions.

    Less than an eighth is added.
    """
    step = 2 ** max(0, (size - 1).bit_length() - 4)
    return step * -(-size // step)


def with_zeros(
    features: Float[Array | np.ndarray, "examples paths features"], size: int, widens: bool = True
) -> np.ndarray:
    """Add examples of zeros up to a size, on the host, and features up to a `shared_size` if it `widens`."""
    examples, _, width = features.shape
    wider = shared_size(width) - width if widens else 0
    return np.pad(np.asarray(features), ((0, size - examples), (0, 0), (0, wider)))


def _in_spanned_directions(features: np.ndarray) -> tuple[np.ndarray, Array | None]:
    """Rotate the input features, and drop directions in which all features are zero, such as black pixels.

    Kernels do not change. Return the features and the kept directions, or None if nearly all would be kept.
    """
    width = features.shape[2]
    flat = features.reshape(-1, width)
    with threads_for(width):
        if len(flat) < width:
            flat = np.linalg.qr(flat.T, mode="r").T
        _, directions = np.linalg.eigh(flat.T @ flat)
        squares = np.sum((flat @ directions) ** 2, axis=0)
    step = max(1, width // _SHAPES)
    needed = int(np.sum(squares > _NOTHING**2 * np.sum(squares)))
    kept = step * -(-max(needed, 1) // step)
    if kept > width - step:
        return features, None
    # eigh puts the largest eigenvalues last.
    directions = directions[:, -kept:]
    return features @ directions, jnp.asarray(directions)
