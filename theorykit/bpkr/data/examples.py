"""Arrays with one row per example: checked, and left on their devices if they are sharded over examples."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array

from ...checks import check_axes, check_dtype, checked_array, finite_array
from ...precision import require_float64
from ...sharding import check_finite, is_sharded, over_examples
from ..features.implicit import PathFeatures


def examples_array(name: str, value: ArrayLike, axes: str) -> Array:
    """`finite_array` with a row an example, which stays on its devices where it is sharded over examples."""
    if not is_sharded(value):
        return finite_array(name, value, axes)
    require_float64()
    array = layout_of_examples(name, value, axes).astype(jnp.float64)
    check_finite_examples(name, array)
    return array


def layout_of_examples(name: str, array: Array, axes: str) -> Array:
    """An array of JAX that holds numbers, with a row an example: sharded over examples, or on one device."""
    check_dtype(name, array.dtype, array)
    check_axes(name, array.shape, axes)
    return over_examples(name, array) if is_sharded(array) else array.addressable_data(0)


def check_finite_examples(name: str, array: Array) -> None:
    """Raise `ValueError` for entries that are not finite, found where they are."""
    (check_finite if is_sharded(array) else checked_array)(name, array)


def labels_beside(features: PathFeatures, labels: ArrayLike, axes: str, name: str = "labels") -> Array:
    """Labels, one row for one of the checked `features`, on the devices of these."""
    array = examples_array(name, labels, axes)
    if len(array) != len(features):
        raise ValueError(f"{name} has {len(array)} examples, {name.replace('labels', 'features')} has {len(features)}")
    if is_sharded(features):
        return jax.device_put(array, features.sharding)
    if is_sharded(array):
        raise ValueError(f"{name} are sharded over devices, but {name.replace('labels', 'features')} are not")
    return array
