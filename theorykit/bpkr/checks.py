"""What the numerical entry points admit: shapes, finite numbers, positive definite order parameters, solvable kernels.

Concrete values are checked here and refused with a `ValueError` that names the value; traced values (inside jit or
vmap) are checked for shape here and for content when the compiled function runs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ..precision import require_float64
from .architecture import Architecture


def is_traced(*values) -> bool:
    """True if any leaf of `values` is a JAX tracer, whose content cannot be looked at."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def finite_array(name: str, value: ArrayLike, axes: str) -> Array:
    """`value` as a float64 array with as many axes as `axes` names, none of them empty, every entry finite."""
    require_float64()
    array = jnp.asarray(value, dtype=jnp.float64)
    names = axes.split()
    if array.ndim != len(names):
        raise ValueError(f"{name} must have shape ({', '.join(names)}), got {array.shape}")
    for axis, size in zip(names, array.shape, strict=True):
        if size == 0:
            raise ValueError(f"{name} has zero {axis}: shape {array.shape}")
    if is_traced(array):
        return eqx.error_if(array, ~jnp.all(jnp.isfinite(array)), f"{name} has entries that are not finite")
    bad = np.argwhere(~np.isfinite(np.asarray(array)))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name} has {len(bad)} entries that are not finite, the first {array[index]} at index {index}; "
            "check the data for missing values or a division by zero"
        )
    return array


def checked_features(architecture: Architecture, features: ArrayLike, name: str = "features") -> Array:
    """Path features (examples, paths, features) that fit the architecture."""
    array = finite_array(name, features, "examples paths features")
    if array.shape[1] != architecture.paths:
        raise ValueError(
            f"{name} has {array.shape[1]} paths (axis 1 of shape {array.shape}), but heads={architecture.heads} make "
            f"{architecture.paths}; the layout is (examples, paths, features), as bpkr.path_features returns it"
        )
    return array


def checked_data(architecture: Architecture, features: ArrayLike, labels: ArrayLike) -> tuple[Array, Array]:
    """Path features and their labels (examples,)."""
    features = checked_features(architecture, features)
    labels = finite_array("labels", labels, "examples")
    if len(labels) != len(features):
        raise ValueError(f"labels has {len(labels)} examples, features has {len(features)}")
    if not is_traced(architecture.temperature) and architecture.temperature == 0:
        examples, _, input_features = features.shape
        rank = architecture.paths * input_features
        if examples > rank:
            raise ValueError(
                f"temperature=0 needs an invertible kernel, but {examples} examples exceed its rank, at most "
                f"paths x features = {architecture.paths} x {input_features} = {rank}; use a positive temperature"
            )
    return features, labels


def checked_positive_definite(name: str, matrix: ArrayLike, size: int) -> Array:
    """A symmetric positive definite `size x size` matrix."""
    array = finite_array(name, matrix, "paths paths")
    if array.shape != (size, size):
        raise ValueError(f"{name} must have shape {(size, size)}, got {array.shape}")
    asymmetry = jnp.max(jnp.abs(array - array.T))
    smallest = jnp.linalg.eigvalsh((array + array.T) / 2)[0]
    asymmetric = asymmetry > 1e-8 * jnp.max(jnp.abs(array))
    if is_traced(array):
        array = eqx.error_if(array, asymmetric, f"{name} is not symmetric")
        return eqx.error_if(array, smallest <= 0, f"{name} is not positive definite")
    if asymmetric:
        raise ValueError(f"{name} is not symmetric: entries differ from the transpose's by up to {asymmetry:.3g}")
    if smallest <= 0:
        raise ValueError(
            f"{name} is not positive definite: smallest eigenvalue {smallest:.3g}; order parameters measured on fewer "
            "hidden units than paths are singular, for example"
        )
    return array


def checked_results(tree, architecture: Architecture):
    """Computed values as they are if all are finite; otherwise an error that says what makes the kernel singular."""
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
    message = (
        "the kernel K(U) + T I is not positive definite to double precision, so its Cholesky factor does not exist. "
        "Likely causes: a temperature that is zero or tiny beside the kernel (temperature={temperature}) with "
        "repeated or linearly dependent examples; or features or order parameters of extreme magnitude"
    )
    if is_traced(tree):
        return jax.tree.map(lambda leaf: eqx.error_if(leaf, ~finite, message.format(temperature="traced")), tree)
    if not finite:
        raise ValueError(message.format(temperature=architecture.temperature))
    return tree
