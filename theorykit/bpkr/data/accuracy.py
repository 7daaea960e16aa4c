"""How often outputs have the signs of the labels."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...arguments import checked_array, is_traced, real_array
from ...precision import require_float64


def sign_accuracy(outputs: ArrayLike, labels: ArrayLike) -> Float[Array, "*batch"]:
    """The share of examples whose output has the sign of its label, 1 or -1.

    Examples are the last axis of `outputs` (..., examples), and of `labels`, (examples,) or with some of the axes
    before. NaN where an output is NaN, as predictions are of a solve that failed.

    Raises `TypeError` for what is no array of numbers, and `ValueError` where the shapes do not fit.
    """
    require_float64()
    outputs = outputs if is_traced(outputs) else real_array("outputs", outputs)
    labels = labels if is_traced(labels) else checked_array("labels", labels)
    if labels.ndim == 0 or labels.size == 0 or outputs.shape[-labels.ndim :] != labels.shape:
        raise ValueError(f"labels of shape {labels.shape} do not fit outputs of shape {outputs.shape}")
    right = jnp.where(jnp.isnan(outputs), jnp.nan, jnp.sign(outputs) == labels)
    return jnp.mean(right, axis=-1)


def are_signs(labels: ArrayLike | None) -> bool:
    """Whether labels are those of one output, each 1 or -1."""
    return labels is not None and np.ndim(labels) == 1 and bool(np.isin(labels, (-1.0, 1.0)).all())
