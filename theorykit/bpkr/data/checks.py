"""What the numerical entry points admit: shapes, finite numbers, positive definite order parameters, solvable kernels.

Concrete values are checked here and refused with a `ValueError` that names the value; traced values (inside jit or
vmap) are checked for shape here and for content when the compiled function runs.
"""

import math
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ...checks import (
    Requirement,
    array_module,
    check_aligned,
    check_axes,
    check_dtype,
    checked_array,
    is_traced,
    numeric_array,
    on_host,
    require,
    single_precision_note,
)
from ...precision import require_float64
from ...sharding import all_finite, check_finite, is_sharded, over_examples
from ...threads import threads_for
from ..features.implicit import Features, ImplicitFeatures, PathFeatures
from ..specification import layer_functions
from ..specification.architecture import (
    Architecture,
    check_size,
    checked_architecture,
    counted_paths,
    layer_forms,
    numbers_of_layers,
)
from .magnitudes import moderate_magnitudes

# largest asymmetry, relative to the largest entry, that counts as rounding
_SYMMETRY = 1e-8


def finite_array(name: str, value: ArrayLike, axes: str | None = None) -> Array:
    """`value` as a float64 array with as many axes as `axes` names, none of them empty, every entry finite."""
    require_float64()
    return jnp.asarray(checked_array(name, value, axes))


def float64_array(name: str, value: ArrayLike, axes: int | None = None) -> Array:
    """`value` as a float64 array of so many axes, finite or not: that is checked where it is used."""
    require_float64()
    array = jnp.asarray(numeric_array(name, value))
    if axes is not None and array.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got shape {array.shape}")
    return array


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


def checked_features(
    architecture: Architecture, features: ArrayLike | ImplicitFeatures, name: str = "features"
) -> PathFeatures:
    """Path features (examples, paths, features) that fit the architecture; sharded ones stay so."""
    checked_architecture(architecture)
    if isinstance(features, ImplicitFeatures):
        array = _checked_implicit(architecture, features, name)
    else:
        array = examples_array(name, features, "examples paths features")
        if not architecture.is_linear:
            raise ValueError(
                f"{name} are an array, but the architecture has nonlinear hidden units "
                f"({', '.join(activation.name for activation in architecture.activations)}): there are no features "
                "then, but kernels between paths; give what bpkr.path_features returns for this architecture"
            )
    if array.shape[1] != architecture.paths:
        raise ValueError(
            f"{name} has {array.shape[1]} paths (axis 1 of shape {array.shape}), but "
            f"{counted_paths(architecture)}; the layout is (examples, paths, features), "
            "as bpkr.path_features returns it"
        )
    return array


def _checked_implicit(architecture: Architecture, features: ImplicitFeatures, name: str) -> ImplicitFeatures:
    """Features by their kernels, of the functions of this architecture, every number finite."""
    require_float64()
    here, there = architecture.activations, features.activations
    if here != there:
        raise ValueError(
            f"{name} are of hidden units that pass through {', '.join(each.name for each in there)}, but those of the "
            f"architecture pass through {', '.join(each.name for each in here)}: make them anew with bpkr.path_features"
        )
    parts = {part: getattr(features, part) for part in ("tokens", "readings", "variances")}
    return require(
        features,
        (
            Requirement(
                f"{name} are not finite: {part} have entries that are infinite or not a number",
                array_module(array).isfinite(on_host(array)),
            )
            for part, array in parts.items()
        ),
    )


def check_same_input_features(features: Features, others: Features, name: str) -> None:
    """Refuse path features `others` unless they are of as many input features as `features`."""
    if features.shape[2] != others.shape[2]:
        raise ValueError(f"features have {features.shape[2]} input features, {name} {others.shape[2]}")


def checked_data(
    architecture: Architecture, features: ArrayLike | ImplicitFeatures, labels: ArrayLike
) -> tuple[PathFeatures, Float[Array, "examples *outputs"]]:
    """Path features and their labels on one device, whose kernel has a Cholesky factor at the temperature."""
    refuse_sharded(features=features, labels=labels)
    known, labels = checked_examples(architecture, features, labels)
    # features that are known are traced as soon as labels are that are not
    checked, labels = require((known, labels), moderate_magnitudes(architecture, labels))
    if is_traced(architecture) or isinstance(checked, ImplicitFeatures):
        return checked, labels
    if not is_traced(known):
        check_interpolation(architecture, np.asarray(known))
    elif architecture.temperature == 0:
        checked, labels = require((checked, labels), [_is_independent(architecture, checked)])
    return checked, labels


# one after the other in a batch: XLA may wait for ever in a batch of factorisations on two cores
_singular_values = jax.custom_batching.sequential_vmap(lambda matrix: jnp.linalg.svd(matrix, compute_uv=False))


def _is_independent(architecture: Architecture, features: Float[Array, "examples paths features"]) -> Requirement:
    """As `check_interpolation` at T = 0, of features that are traced."""
    examples, paths, input_features = features.shape
    message = "temperature=0 needs an invertible kernel, but the examples are linearly dependent"
    if examples > paths * input_features:
        return Requirement(message, False)
    weighted = jnp.einsum("pki,kj->pji", features, np.linalg.cholesky(_prior_of_paths(architecture)))
    singular = _singular_values(jax.lax.stop_gradient(weighted).reshape(examples, paths * input_features))
    return Requirement(message, singular[-1] ** 2 > examples * np.finfo(np.float64).eps * singular[0] ** 2)


def checked_training_and_test(
    architecture: Architecture,
    features: ArrayLike | ImplicitFeatures,
    labels: ArrayLike,
    test_features: ArrayLike | ImplicitFeatures,
) -> tuple[PathFeatures, Float[Array, "examples *outputs"], Features]:
    """`checked_data`, and path features of test examples of as many input features."""
    features, labels = checked_data(architecture, features, labels)
    test_features = checked_features(architecture, test_features, "test_features")
    check_same_input_features(features, test_features, "test_features")
    return features, labels, test_features


def checked_examples(
    architecture: Architecture, features: ArrayLike | ImplicitFeatures, labels: ArrayLike, prefix: str = ""
) -> tuple[PathFeatures, Float[Array, "examples *outputs"]]:
    """Path features and their labels, which errors call by these names after a `prefix` such as "test_"."""
    check_aligned(**{f"{prefix}features": features, f"{prefix}labels": labels})
    checked = checked_features(architecture, features, f"{prefix}features")
    axes = "examples" if architecture.outputs == 1 else "examples outputs"
    labels = labels_beside(checked, labels, axes, f"{prefix}labels")
    if architecture.outputs not in (1, *labels.shape[1:]):
        raise ValueError(
            f"{prefix}labels of shape {labels.shape} are for {labels.shape[1]} outputs, not {architecture.outputs}"
        )
    return checked, labels


def refuse_sharded(**arrays: ArrayLike | ImplicitFeatures | None) -> None:
    """Raise `ValueError` where one of the named arrays is sharded: the dense form has all examples on one device."""
    for name, array in arrays.items():
        if is_sharded(array):
            raise ValueError(
                f"{name} of shape {array.shape} are sharded over {len(array.sharding.device_set)} devices, but the "
                "dense form factorises the kernel of all examples on one. bpkr.solve_matrix_free and "
                "bpkr.estimate_energy take sharded arrays, and so does bpkr.statistics_on_devices, for "
                "bpkr.solve_from_statistics. JAX has no Cholesky factorisation over several devices; the package JAXMg "
                "has one for GPUs. jax.device_put(array, jax.devices()[0]) brings an array to one device"
            )


def check_interpolation(architecture: Architecture, features: Float[np.ndarray, "examples paths features"]) -> None:
    """Without a temperature to speak of, the kernel itself must be invertible: the examples linearly independent.

    Whether they are does not depend on the order parameters, nor on the number of outputs. Left to the Cholesky
    factorisation, rounding would let some singular kernels through.
    """
    # not by BLAS, whose threads would be in the way of those of XLA
    square = np.einsum("pki,pki->", features, features)
    if not square <= np.finfo(np.float64).max / features.size:
        _refuse_extreme(features)
    temperature = float(architecture.temperature)
    examples, paths, input_features = features.shape
    prior, rounding = _prior_of_paths(architecture), examples * np.finfo(np.float64).eps
    # a bound of the kernel's trace, quicker to have
    if temperature > rounding * np.trace(prior) * square:
        return
    weighted = np.einsum("pki,kj->pji", features, np.linalg.cholesky(prior))
    if temperature > rounding * np.sum(weighted**2):
        return
    rank = paths * input_features
    if temperature == 0:
        needs = "temperature=0 needs an invertible kernel, but"
    else:
        needs = (
            f"temperature={temperature:.3g} is lost beside a kernel that is not positive definite to double precision:"
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


def _refuse_extreme(features: Float[np.ndarray, "examples paths features"]) -> None:
    largest = np.max(np.abs(features))
    if largest > math.sqrt(np.finfo(np.float64).max / features.size):
        raise ValueError(f"features of magnitude {largest:.3g} make a kernel beyond the range of double precision")


def _prior_of_paths(architecture: Architecture) -> Float[np.ndarray, "paths paths"]:
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


def checked_positive_definite(
    name: str, matrix: ArrayLike, size: int, *, singular: bool = False
) -> Float[Array, "size size"]:
    """A symmetric positive definite `size x size` matrix; with `singular` a semidefinite one, up to rounding."""
    array = finite_array(name, matrix)
    if array.shape != (size, size):
        raise ValueError(f"{name} must have shape {(size, size)}, got {array.shape}")
    array = checked_symmetric(name, array)
    numbers = array if is_traced(matrix) else np.asarray(matrix, dtype=np.float64)
    values = array_module(numbers).linalg.eigvalsh(numbers)
    message = f"{name} is not positive {'semidefinite' if singular else 'definite'}"

    def known() -> str:
        measured = f"{message}: smallest eigenvalue {values[0]:.3g}"
        if singular:
            return measured
        return f"{measured}; order parameters measured on fewer hidden units than paths are singular, for example"

    return require(array, [Requirement(message, _are_positive(values, singular), known)])


def _are_positive(values: Array | np.ndarray, singular: bool) -> Array | np.bool_:
    """Whether sorted eigenvalues are positive, or, with `singular`, below zero by no more than rounding."""
    rounding = 8 * len(values) * np.finfo(np.float64).eps
    return values[0] >= -rounding * values[-1] if singular else values[0] > 0


def checked_symmetric(name: str, matrix: ArrayLike) -> Float[Array, "size size"]:
    """A symmetric matrix, up to rounding."""
    array = finite_array(name, matrix, "rows columns")
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} must be square, got {array.shape}")
    numbers = array if is_traced(matrix) else np.asarray(matrix, dtype=np.float64)
    asymmetry, message = abs(numbers - numbers.T).max(), f"{name} is not symmetric"
    is_symmetric = asymmetry <= _SYMMETRY * abs(numbers).max()
    known = f"{message}: entries differ from the transpose's by up to {{:.3g}}{{}}".format
    return require(
        array, [Requirement(message, is_symmetric, lambda: known(asymmetry, single_precision_note(numbers)))]
    )


def checked_results(tree, architecture: Architecture):
    """Computed values as they are if all are finite; otherwise an error that says what makes the kernel singular."""
    message = (
        "the kernel K(U) + T I is not positive definite to double precision, so its Cholesky factor does not exist. "
        "Likely causes: a temperature that is zero or tiny beside the kernel (temperature={temperature}) with "
        "repeated or linearly dependent examples; or features or order parameters of extreme magnitude"
    )
    return checked_finite(tree, architecture, message)


def checked_dual_results(tree, architecture: Architecture):
    """The same for values computed in the dual form."""
    message = (
        "T W^-1 + Phi^T Phi, with W = U_1 (x) I, is not positive definite to double precision, so its Cholesky factor "
        "does not exist. Likely causes: a temperature that is tiny beside the features (temperature={temperature}), "
        "some of which are linearly dependent; or features or order parameters of extreme magnitude"
    )
    return checked_finite(tree, architecture, message)


def checked_finite(tree, architecture: Architecture, message: str):
    """`tree`, refused with `message`, which may name the {temperature}, unless every entry is finite."""
    if is_traced(tree):
        finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))
        return jax.tree.map(lambda leaf: eqx.error_if(leaf, ~finite, message.format(temperature="traced")), tree)
    if not all(all_finite(leaf) if is_sharded(leaf) else np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(tree)):
        raise ValueError(message.format(temperature=architecture.temperature))
    return tree
