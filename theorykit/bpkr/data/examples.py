"""What of a user's examples is admitted: arrays with a row an example, and numbers that double precision can hold."""

import math
from collections.abc import Iterator
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import (
    Requirement,
    array_module,
    check_axes,
    check_dtype,
    checked_array,
    finite_array,
    is_traced,
    on_host,
    require,
    single_precision_note,
)
from ...precision import require_float64
from ...sharding import check_finite, is_sharded, over_examples
from ...threads import threads_for
from ..features.implicit import ImplicitFeatures, PathFeatures
from ..specification import layer_functions
from ..specification.architecture import Architecture, check_size, layer_forms, numbers_of_layers

# largest powers of ten: squares of order parameters and labels, and their products, stay within double precision
_ORDER_PARAMETERS, _LABELS, _MISFIT, _TEMPERATURE = 200.0, 75.0, 150.0, 300.0
_EPS = np.finfo(np.float64).eps


def examples_array(name: str, value: ArrayLike, axes: str) -> Array:
    """`finite_array` with a row an example, which stays on its devices if it is sharded."""
    if not is_sharded(value):
        return finite_array(name, value, axes)
    require_float64()
    array = layout_of_examples(name, value, axes).astype(jnp.float64)
    check_finite_examples(name, array)
    return array


def layout_of_examples(name: str, array: Array, axes: str) -> Array:
    """An array of JAX with a row an example: sharded over examples, or on one device."""
    check_dtype(name, array.dtype, array)
    check_axes(name, array.shape, axes)
    return over_examples(name, array) if is_sharded(array) else array.addressable_data(0)


def check_finite_examples(name: str, array: Array) -> None:
    """Refuse entries that are not finite, found where they are."""
    (check_finite if is_sharded(array) else checked_array)(name, array)


def labels_beside(features: PathFeatures, labels: ArrayLike, axes: str, name: str = "labels") -> Array:
    """Labels, one for each of the checked `features`, on their devices."""
    array = examples_array(name, labels, axes)
    if len(array) != len(features):
        raise ValueError(f"{name} has {len(array)} examples, {name.replace('labels', 'features')} has {len(features)}")
    if is_sharded(features):
        return jax.device_put(array, features.sharding)
    if is_sharded(array):
        raise ValueError(f"{name} are sharded over devices, but {name.replace('labels', 'features')} are not")
    return array


def computable(
    architecture: Architecture, known: PathFeatures, labels: Float[Array, "examples *outputs"]
) -> tuple[PathFeatures, Array]:
    """Features and labels, refused unless the kernel has a Cholesky factor at the temperature."""
    # features that are known are traced as soon as labels are that are not
    features, labels = require((known, labels), _are_moderate(architecture, labels))
    if is_traced(architecture) or isinstance(features, ImplicitFeatures):
        return features, labels
    if not is_traced(known):
        _check_independent(architecture, np.asarray(known))
    elif architecture.temperature == 0:
        return require((features, labels), [_is_independent(architecture, features)])
    return features, labels


def _are_moderate(architecture: Architecture, labels: Float[Array, "examples *outputs"]) -> Iterator[Requirement]:
    """That products of prior variances, of labels, and of temperatures are within double precision."""
    variances = [on_host(variance) for variance in architecture.prior_variances]
    numbers = array_module(variances)
    # of the order parameters of every layer, from the readout
    exponents = numbers.cumsum(numbers.stack([numbers.log10(variance) for variance in reversed(variances)]))
    too_large = "{} beyond what double precision can square; rescale the {}".format

    def of_variances(shown: str = "") -> str:
        return too_large(f"prior_variances{shown} make order parameters", "variances, or the features")

    yield Requirement(
        of_variances(),
        abs(exponents) <= _ORDER_PARAMETERS,
        lambda: of_variances(f" ({', '.join(f'{float(each):.3g}' for each in variances)})"),
    )
    temperature, labels = on_host(architecture.temperature), on_host(labels)
    beyond = "is beyond what double precision can compute with"
    yield Requirement(
        f"temperature {beyond}",
        temperature <= 10**_TEMPERATURE,
        lambda: f"temperature={float(temperature):.3g} {beyond}",
    )
    numbers, tiny = array_module(temperature, labels), np.finfo(np.float64).tiny
    largest = numbers.max(numbers.abs(labels))
    of_labels = numbers.log10(numbers.maximum(largest, tiny))
    # without a temperature, that of a temperature of one
    misfit = 2 * of_labels - numbers.where(temperature > 0, numbers.log10(numbers.maximum(temperature, tiny)), 0.0)
    message, are_moderate = too_large("labels and temperature make a misfit", "labels"), of_labels <= _LABELS
    yield Requirement(
        message,
        (largest == 0) | (are_moderate & (misfit <= _MISFIT)),
        lambda: too_large(
            f"labels of magnitude {largest:.3g} at temperature={float(temperature):.3g} make a misfit", "labels"
        ),
    )


# one after the other in a batch: XLA may wait for ever in a batch of factorisations on two cores
_singular_values = jax.custom_batching.sequential_vmap(lambda matrix: jnp.linalg.svd(matrix, compute_uv=False))


def _is_independent(architecture: Architecture, features: Float[Array, "examples paths features"]) -> Requirement:
    """As `_check_independent` at T = 0, of features that are traced."""
    examples, paths, input_features = features.shape
    message = "temperature=0 needs an invertible kernel, but the examples are linearly dependent"
    if examples > paths * input_features:
        return Requirement(message, False)
    weighted = jnp.einsum("pki,kj->pji", features, np.linalg.cholesky(prior_of_paths(architecture)))
    singular = _singular_values(jax.lax.stop_gradient(weighted).reshape(examples, paths * input_features))
    return Requirement(message, singular[-1] ** 2 > examples * _EPS * singular[0] ** 2)


def _check_independent(architecture: Architecture, features: Float[np.ndarray, "examples paths features"]) -> None:
    """Without a temperature to speak of, refuse examples that are linearly dependent: the kernel is singular then.

    Left to the Cholesky factorisation, rounding would let some singular kernels through.
    """
    # not by BLAS, whose threads would be in the way of those of XLA
    square, largest = np.einsum("pki,pki->", features, features), np.finfo(np.float64).max / features.size
    if not square <= largest and (magnitude := np.max(np.abs(features))) > math.sqrt(largest):
        raise ValueError(f"features of magnitude {magnitude:.3g} make a kernel beyond the range of double precision")
    temperature = float(architecture.temperature)
    examples, paths, input_features = features.shape
    prior, rounding = prior_of_paths(architecture), examples * _EPS
    # a bound of the kernel's trace, quicker to have
    if temperature > rounding * np.trace(prior) * square:
        return
    weighted = np.einsum("pki,kj->pji", features, np.linalg.cholesky(prior))
    if temperature > rounding * np.sum(weighted**2):
        return
    rank = paths * input_features
    needs = (
        "temperature=0 needs an invertible kernel, but"
        if temperature == 0
        else f"temperature={temperature:.3g} is lost beside a kernel that is not positive definite to double precision:"
    )
    if examples > rank:
        raise ValueError(
            f"{needs} {examples} examples exceed its rank, at most paths x features = {paths} x {input_features} = "
            f"{rank}; use a larger temperature"
        )
    with threads_for(examples):
        singular = np.linalg.svd(weighted.reshape(examples, rank), compute_uv=False)
    # the kernel's condition number is the square of the features'
    if singular[-1] ** 2 + temperature <= rounding * singular[0] ** 2:
        raise ValueError(
            f"{needs} the examples are linearly dependent (their singular values span {singular[-1]:.3g} to "
            f"{singular[0]:.3g}), as repeated examples are; remove them or use a larger temperature"
            f"{single_precision_note(features)}"
        )


def prior_of_paths(architecture: Architecture) -> Float[np.ndarray, "paths paths"]:
    """U_1 of one output at infinite width, of every token that is read."""
    check_size(architecture)
    leaves, structure = jax.tree.flatten((architecture.layers, architecture.widths, architecture.prior_variances))
    arrays = [np.asarray(leaf, dtype=np.float64) for leaf in leaves]
    shapes, contents = tuple(array.shape for array in arrays), tuple(array.tobytes() for array in arrays)
    return _prior_of_values(structure, shapes, contents, architecture.read_tokens)


# a solve at another temperature, or of other data, has the same
@lru_cache(maxsize=256)
def _prior_of_values(structure, shapes: tuple, contents: tuple[bytes, ...], read_tokens: int) -> np.ndarray:
    arrays = [np.frombuffer(each).reshape(shape) for each, shape in zip(contents, shapes, strict=True)]
    layers, widths, variances = jax.tree.unflatten(structure, arrays)
    # constants of the architecture, also where this runs inside a function that is being traced
    with jax.ensure_compile_time_eval():
        numbers = numbers_of_layers(layers, widths, variances[1:-1])
    # interpreted: to compile it would take longer than this ever does
    return layer_functions.interpret_prior_mean(layer_forms(layers), numbers, variances[-1] * np.eye(read_tokens))
