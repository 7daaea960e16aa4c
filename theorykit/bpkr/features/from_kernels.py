"""Path features from given kernels: feature vectors with these inner products."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import checked_array, single_precision_note
from ...compilation import jit
from ...precision import require_float64
from ...threads import threads_for

# Asymmetry and negative eigenvalues up to this share of the largest count as rounding.
_ROUNDING = 1e-10


def features_of_kernels(kernels: ArrayLike) -> Float[Array, "examples paths features"]:
    """Find path features (examples, paths, features) with inner products phi^pi_mu . phi^pi'_nu equal to `kernels`.

    `kernels` (paths, paths, examples, examples) are between every pair of paths, as `path_kernels` returns them. For
    one path (examples, examples) is enough, such as a measured kernel or the kernel of an infinitely wide network. Pass
    training and test examples together, and slice the features. The theory treats the layers above as linear; you must
    know whether that holds for the source of the kernels.

    Raises `ValueError` if the kernels are not symmetric or not positive semidefinite.
    """
    require_float64()
    array = np.asarray(checked_array("kernels", kernels), dtype=np.float64)
    array = array[None, None] if array.ndim == 2 else array
    if array.ndim != 4 or array.shape[0] != array.shape[1] or array.shape[2] != array.shape[3]:
        raise ValueError(
            f"kernels must be (paths, paths, examples, examples), or (examples, examples) of one path, got shape "
            f"{np.shape(kernels)}"
        )
    paths, examples = array.shape[1:3]
    gram = _gram(array)
    asymmetry, largest = np.max(np.abs(gram - gram.T)), np.max(np.abs(gram))
    if asymmetry > _ROUNDING * largest:
        raise ValueError(
            f"kernels are not symmetric: entries, and those of paths and examples exchanged, differ by {asymmetry:.3g}"
            f"{single_precision_note(array)}"
        )
    with threads_for(len(gram)):
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    if values[0] < -_ROUNDING * values[-1]:
        raise ValueError(
            f"kernels are not positive semidefinite: their smallest eigenvalue is {values[0]:.3g}, their largest "
            f"{values[-1]:.3g}, so that they are the products of no features{single_precision_note(array)}"
        )
    # Drop directions that exist only because of rounding.
    kept = max(1, int(np.sum(values > np.finfo(np.float64).eps * len(values) * values[-1])))
    return jnp.asarray(_root(values, vectors)[:, -kept:].reshape(examples, paths, kept))


@jit
def square_root(
    kernels: Float[Array, "paths paths examples examples"],
) -> Float[Array, "examples paths features"]:
    """Do the same without checks, with as many features as examples times paths; traceable."""
    paths, examples = kernels.shape[1:3]
    gram = _gram(kernels)
    return _root(*jnp.linalg.eigh((gram + gram.T) / 2)).reshape(examples, paths, -1)


def _gram(kernels):
    """Reshape to one row per (example, path), the path fastest."""
    paths, examples = kernels.shape[1:3]
    return kernels.transpose(2, 0, 3, 1).reshape(examples * paths, -1)


def _root(values, vectors):
    return vectors * values.clip(0.0) ** 0.5
