"""Compute path features from given kernels, as feature vectors whose inner products are the kernels."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import checked_array, single_precision_note
from ...precision import require_float64

# Asymmetries and negative eigenvalues up to this fraction of the largest value are treated as rounding errors.
_ROUNDING = 1e-10


def features_of_kernels(kernels: ArrayLike) -> Float[Array, "examples paths features"]:
    """Find path features with inner products phi^pi_mu . phi^pi'_nu equal to `kernels`.

    Pass training and test examples together, and slice the features. The theory treats the layers above as linear, so
    check that this is valid for the source of your kernels.

    Args:
        kernels: (paths, paths, examples, examples). For a single path you can pass
            (examples, examples), such as a measured kernel or the kernel of an infinitely wide network.

    Returns:
        Path features (examples, paths, features).

    Raises:
        ValueError: the kernels are not symmetric or not positive semidefinite.
    """
    require_float64()
    array = np.asarray(checked_array("kernels", kernels), dtype=np.float64)
    array = array[None, None] if array.ndim == 2 else array
    if array.ndim != 4 or array.shape[0] != array.shape[1] or array.shape[2] != array.shape[3]:
        raise ValueError(
            f"kernels must have shape (paths, paths, examples, examples), or (examples, examples) for one path, got "
            f"{np.shape(kernels)}"
        )
    paths, examples = array.shape[1:3]
    # One row per (example, path), the path fastest.
    gram = array.transpose(2, 0, 3, 1).reshape(examples * paths, -1)
    asymmetry, largest = np.max(np.abs(gram - gram.T)), np.max(np.abs(gram))
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    if asymmetry > _ROUNDING * largest or values[0] < -_ROUNDING * values[-1]:
        raise ValueError(
            f"kernels must be symmetric and positive semidefinite, but exchanging both paths and examples changes "
            f"entries by up to {asymmetry:.3g}, and eigenvalues range from {values[0]:.3g} to {values[-1]:.3g}"
            f"{single_precision_note(array)}"
        )
    # Drop directions that exist only because of rounding.
    kept = max(1, int(np.sum(values > np.finfo(np.float64).eps * len(values) * values[-1])))
    features = vectors * np.sqrt(values.clip(0.0))
    return jnp.asarray(features[:, -kept:].reshape(examples, paths, kept))
