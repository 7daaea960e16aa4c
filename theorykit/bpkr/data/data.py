"""The data of a theory and of its tests, in whatever form they come.

They are checked when they meet an architecture. `check_data` checks shapes and finite numbers, `check_solvable` that
double precision can square the magnitudes and that the kernel has a Cholesky factor at the temperature.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

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
    checked_instance,
    is_traced,
    on_host,
    require,
    single_precision_note,
)
from ...precision import require_float64
from ...sharding import is_sharded
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
from .classes import Classes, Coding, Labels, encode_labels, find_classes
from .examples import examples_array, labels_beside
from .magnitudes import moderate_magnitudes
from .statistics import FeatureStatistics, checked_statistics, sum_on_devices
from .streaming import sum_arrays, sum_batches_of, sum_files


class Data(eqx.Module):
    """Training data, and test data where there are any.

    - `features`, `test_features`: path features (examples, paths, features), as `bpkr.path_features` returns them.
      Arrays may be sharded over examples; only the matrix-free solver takes sharded ones.
    - `labels`, `test_labels`: (examples,), or (examples, outputs) for several outputs. `bpkr.kernel` needs none.
    - `classes`: the classes that the labels stand for, if `Data.of_classes` encoded them.
    - `moments`: second moments of features and labels in place of the training arrays. `Data.of_arrays`, `of_batches`,
      `of_files` and `of_devices` sum them in one pass; the cost of a solve does not depend on the number of examples.

    Data are checked when they meet an architecture, in `bpkr.Problem`.
    """

    features: Any = None
    labels: Any = None
    test_features: Any = None
    test_labels: Any = None
    classes: Classes | None = eqx.field(static=True, default=None)
    moments: FeatureStatistics | None = None

    @property
    def training(self) -> "Data":
        """The training data alone: what a solve is compiled for."""
        return Data(self.features, self.labels, moments=self.moments)

    @classmethod
    def of_classes(
        cls,
        features: ArrayLike | ImplicitFeatures,
        labels: Labels,
        test_features: ArrayLike | ImplicitFeatures | None = None,
        test_labels: Labels | None = None,
        *,
        coding: Coding | None = None,
    ) -> "Data":
        """Make data of class labels (examples,), text or numbers, which become outputs.

        Args:
            features, test_features: path features (examples, paths, features).
            labels, test_labels: one class per example. The classes are those of the training labels.
            coding: how outputs stand for classes, see `bpkr.Classes`.

        Raises:
            ValueError: a test label is none of the classes.
        """
        check_aligned(features=features, labels=labels)
        check_aligned(test_features=test_features, test_labels=test_labels)
        classes = find_classes(labels, coding)
        tested = None if test_labels is None else encode_labels("test_labels", classes, test_labels)
        return cls(features, classes.encode(labels), test_features, tested, classes)

    @classmethod
    def of_moments(
        cls,
        moments: FeatureStatistics,
        test_features: ArrayLike | ImplicitFeatures | None = None,
        test_labels: ArrayLike | None = None,
    ) -> "Data":
        """Make data of second moments, such as the sum of those of two data sets."""
        return cls(None, None, test_features, test_labels, moments=moments)

    @classmethod
    def of_arrays(cls, features: Any, labels: Any, **options: Any) -> "Data":
        """Sum the moments of arrays that can be sliced, also on disk; see `sum_arrays` for the options."""
        return cls.of_moments(sum_arrays(features, labels, **options))

    @classmethod
    def of_batches(cls, batches: Iterable[Any], **options: Any) -> "Data":
        """Sum the moments of an iterable of batches; see `sum_batches_of` for the options."""
        return cls.of_moments(sum_batches_of(batches, **options))

    @classmethod
    def of_files(cls, files: Iterable[Any], **options: Any) -> "Data":
        """Sum the moments of many files; see `sum_files` for the options."""
        return cls.of_moments(sum_files(files, **options))

    @classmethod
    def of_devices(cls, features: Array, labels: ArrayLike) -> "Data":
        """Sum the moments of an array of JAX where it lies, sharded over examples or not; see `sum_on_devices`."""
        return cls.of_moments(sum_on_devices(features, labels))


def check_data(architecture: Architecture, data: Data) -> Data:
    """Return `data` as float64 arrays that fit the architecture and each other.

    Traced values are checked for shapes here, and for their content when the compiled function runs.
    """
    require_float64()
    checked_architecture(architecture)
    checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
    classes, moments = data.classes, data.moments
    if classes is not None:
        checked_instance("classes", classes, Classes, "as bpkr.Data.of_classes makes them")
        if classes.outputs != architecture.outputs:
            raise ValueError(
                f"{len(classes.names)} classes, coded by {classes.coding}, are {classes.outputs} outputs, but the "
                f"architecture has outputs={architecture.outputs}"
            )
    if moments is None:
        features, labels = _checked_examples(architecture, data.features, data.labels)
        width = features.shape[2]
    elif data.features is not None or data.labels is not None:
        raise ValueError("moments stand for the training data: give no features and labels with them")
    else:
        features, labels, moments = None, None, checked_statistics(architecture, moments)
        width = moments.features
    test_features, test_labels = data.test_features, data.test_labels
    if test_features is not None:
        test_features, test_labels = _checked_examples(architecture, test_features, test_labels, "test_")
        check_same_width(width, test_features, "test_features")
    elif test_labels is not None:
        raise ValueError("there are test_labels, but no test_features to predict them from")
    return Data(features, labels, test_features, test_labels, classes, moments)


def _checked_examples(architecture: Architecture, features: Any, labels: Any, prefix: str = "") -> tuple[Any, Any]:
    """Path features and their labels, or None for no labels; errors name both after a `prefix` such as "test_"."""
    check_aligned(**{f"{prefix}features": features, f"{prefix}labels": labels})
    checked = checked_features(architecture, features, f"{prefix}features")
    if labels is None:
        return checked, None
    axes = "examples" if architecture.outputs == 1 else "examples outputs"
    labels = labels_beside(checked, labels, axes, f"{prefix}labels")
    if architecture.outputs not in (1, *labels.shape[1:]):
        raise ValueError(
            f"{prefix}labels of shape {labels.shape} are for {labels.shape[1]} outputs, not {architecture.outputs}"
        )
    return checked, labels


def check_same_width(width: int, others: Features, name: str) -> None:
    """Refuse features `others` unless they have `width` input features."""
    if others.shape[2] != width:
        raise ValueError(f"features have {width} input features, {name} {others.shape[2]}")


def check_solvable(architecture: Architecture, data: Data) -> Data:
    """Return checked data, refused unless the kernel has a Cholesky factor at the temperature."""
    known, labels = data.features, data.labels
    if labels is None or is_sharded(known):
        return data
    # features that are known are traced as soon as labels are that are not
    features, labels = require((known, labels), moderate_magnitudes(architecture, labels))
    if is_traced(architecture) or isinstance(features, ImplicitFeatures):
        return replace(data, features=features, labels=labels)
    if not is_traced(known):
        check_interpolation(architecture, np.asarray(known))
    elif architecture.temperature == 0:
        features, labels = require((features, labels), [_is_independent(architecture, features)])
    return replace(data, features=features, labels=labels)


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
