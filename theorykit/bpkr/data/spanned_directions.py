"""Path features in the directions of the input that the data have: the same kernels, of fewer features.

Kernels are scalar products of features, which a rotation of the input features does not change. Directions that no
example has along any path, such as pixels that are always black, cost as much as others and say nothing.
"""

import numpy as np
from jaxtyping import Float

from ...threads import threads_for

# a direction with a smaller share of the features' norm is left out: in kernels its square is far below rounding
_NOTHING = 1e-9
# numbers of features are rounded up to a multiple of this share, since every other shape is compiled anew
_SHAPES = 16


def in_spanned_directions(
    features: Float[np.ndarray, "examples paths features"],
) -> Float[np.ndarray, "examples paths kept"]:
    """The features after a rotation that leaves as few as possible, or as they are where that would leave about all."""
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
    # the directions of the largest eigenvalues come last
    return rotated[:, -kept:].reshape(examples, paths, kept)
