"""How often outputs say the class of their label."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import checked_array, numeric_array
from ...precision import require_float64
from ...settings import usual_settings


@usual_settings()
def sign_accuracy(outputs: ArrayLike, labels: ArrayLike) -> Float[Array, "*batch"]:
    """The share of examples whose output has the sign of its label, 1 or -1.

    Examples are the last axis of `outputs` (..., examples), and of `labels`, (examples,) or with some of the axes
    before. NaN where an output is NaN, as predictions are of a solve that failed.

    Raises `TypeError` for what is no array of numbers, and `ValueError` where the shapes do not fit.

        >>> import numpy as np
        >>> from theorykit import bpkr
        >>> float(bpkr.sign_accuracy(np.array([0.3, -2.0, 0.1, -0.2]), np.array([1, -1, -1, -1])))
        0.75
    """
    require_float64()
    outputs, labels = numeric_array("outputs", outputs), checked_array("labels", labels)
    if labels.ndim == 0 or labels.size == 0 or outputs.shape[-labels.ndim :] != labels.shape:
        raise ValueError(f"labels of shape {labels.shape} do not fit outputs of shape {outputs.shape}")
    right = jnp.where(jnp.isnan(outputs), jnp.nan, jnp.sign(outputs) == labels)
    return jnp.mean(right, axis=-1)


def class_accuracy(
    outputs: Float[Array | np.ndarray, "..."], labels: Float[Array | np.ndarray, "examples *outputs"]
) -> Float[Array, "*batch"]:
    """The share of examples whose output says the class of its label, where `are_classes(labels)`.

    `outputs` is (..., examples) of one output, whose sign is the class, and else (..., examples, outputs), of which the
    largest is. NaN where an output is NaN.
    """
    if labels.ndim == 1:
        return sign_accuracy(outputs, labels)
    right = jnp.argmax(outputs, axis=-1) == jnp.argmax(labels, axis=-1)
    return jnp.mean(jnp.where(jnp.isnan(outputs).any(axis=-1), jnp.nan, right), axis=-1)


def are_classes(labels: ArrayLike | None) -> bool:
    """Whether labels stand for classes: of one output each 1 or -1; of several one of each example's 1, others equal.

    These others are 0 for all examples, or -1 for all.
    """
    if labels is None:
        return False
    array = np.asarray(labels)
    if array.ndim == 1:
        return bool(np.isin(array, (-1.0, 1.0)).all())
    others = np.sort(array, axis=1)[:, :-1]
    return bool((array.max(axis=1) == 1).all() and ((others == 0).all() or (others == -1).all()))
