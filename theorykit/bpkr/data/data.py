"""Training and test data. `check_data` checks them against an architecture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ...checks import (
    Requirement,
    array_module,
    check_aligned,
    checked_instance,
    counted,
    finite_array,
    finite_entries,
    is_traced,
    on_host,
    require,
)
from ...precision import require_float64
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from ...symbolic.documents.values import data_size, number
from ..features.implicit import Features, ImplicitFeatures, PathFeatures
from ..specification.architecture import Architecture, checked_architecture, counted_paths
from .classes import Classes, Coding, Labels, encode_labels, find_classes
from .examples import computable
from .moments import Moments, equivalent_examples


class Data(DisplayMixin, eqx.Module):
    """Training data and optional test data. `bpkr.Problem` checks them against an architecture.

    - `features`: path features (examples, paths, features), as `bpkr.path_features` returns them.
    - `labels`: (examples,), or (examples, outputs) for several outputs. `bpkr.kernel` does not need labels.
    - `test_features`, `test_labels`: the same for test examples.
    - `classes`: the classes that the labels encode, if the data are from `Data.of_classes`.
    - `omitted`: number of further labels in rows without features and labels, if the data are from `Data.of_moments`.

    Example:
        >>> import numpy as np
        >>> from theorykit import bpkr
        >>> rng = np.random.default_rng(0)
        >>> bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        Data: 20 training examples
        form             array, 20 examples x 2 paths x 5 features
        training labels  1 output, -1 to 1
        memory           1.76 kB
    """

    features: Any = None
    labels: Any = None
    test_features: Any = None
    test_labels: Any = None
    classes: Classes | None = eqx.field(static=True, default=None)
    omitted: Any = 0.0
    replaces: int = eqx.field(static=True, default=0)

    def _view(self) -> Iterator[Block]:
        yield Text(f"**Data**: {data_line(self)}")
        yield Table(tuple(data_rows(self)))

    @property
    def label_count(self) -> Array | float:
        """Number of training labels, of all examples and outputs."""
        return np.size(self.labels) + self.omitted

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
        """Make data from class labels.

        Args:
            features: path features (examples, paths, features).
            labels: classes of any type that can be sorted, (examples,).
            test_features: path features of test examples.
            test_labels: classes of test examples, all of which must occur in `labels`.
            coding: how outputs encode the classes; see `bpkr.Classes`.

        Raises:
            ValueError: a label is missing, there is only one class, or a test label is not one of the classes.
        """
        check_aligned(features=features, labels=labels)
        check_aligned(test_features=test_features, test_labels=test_labels)
        classes = find_classes(labels, coding)
        tested = None if test_labels is None else encode_labels("test_labels", classes, test_labels)
        return cls(features, classes.encode(labels), test_features, tested, classes)

    @classmethod
    def of_moments(
        cls,
        moments: Moments,
        test_features: ArrayLike | None = None,
        test_labels: ArrayLike | None = None,
        classes: Classes | None = None,
    ) -> Data:
        """Make data from second moments: at most D + 1 examples with these moments, for D features of all paths.

        The cost of a solve does not depend on the number of examples.

        Args:
            moments: the sums over all training examples, such as `sum(map(bpkr.Moments.of, batches))`.
            test_features: path features of test examples.
            test_labels: their labels, as outputs.
            classes: the classes that the labels encode, if any.

        Raises:
            TypeError: `moments` is something else.
            ValueError: a sum is not finite, or the sums are traced.
        """
        checked_instance("moments", moments, Moments, "such as sum(map(bpkr.Moments.of, batches))")
        if is_traced(moments):
            raise ValueError("moments are traced: give features and labels instead, or call of_moments outside")
        names = ("gram", "projection", "label_square", "examples")
        require(moments, [finite_entries(f"moments: {name}", np.asarray(getattr(moments, name))) for name in names])
        features, labels, omitted = equivalent_examples(moments)
        return cls(features, labels, test_features, test_labels, classes, omitted, int(moments.examples))


def data_line(data: Data) -> str:
    """Return the numbers of training and test examples, in words."""
    train, tested = (0 if each is None else np.shape(each)[0] for each in (data.features, data.test_features))
    more = f", {counted(tested, 'test example')}" if tested else ""
    return f"{counted(data.replaces or train, 'training example')}{more}"


def data_rows(data: Data) -> Iterator[tuple[str, str]]:
    """Yield the form of the data, the labels or classes, and the memory in bytes as rows of a table."""
    kind = "kernels of tokens" if isinstance(data.features, ImplicitFeatures) else "array"
    sizes = zip(np.shape(data.features), ("example", "path", "feature"), strict=True)
    replaced = f", which replace {data.replaces:,} examples" if data.replaces else ""
    yield "form", f"{kind}, {' x '.join(counted(*size) for size in sizes)}{replaced}"
    for name, labels in (("training labels", data.labels), ("test labels", data.test_labels)):
        if labels is None:
            continue
        if data.classes is None:
            shape = np.shape(labels)
            yield name, f"{counted(shape[1] if len(shape) > 1 else 1, 'output')}, {number(labels)}"
        else:
            yield name, verbatim(data.classes._shares(labels))
    yield "memory", data_size(sum(getattr(leaf, "nbytes", 8) for leaf in jax.tree.leaves(data)))


def check_data(architecture: Architecture, data: Data) -> Data:
    """Return `data` as float64 arrays that fit the architecture and each other."""
    require_float64()
    checked_architecture(architecture)
    checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
    classes = data.classes
    if classes is not None:
        checked_instance("classes", classes, Classes, "as bpkr.Data.of_classes makes them")
        if classes.outputs != architecture.outputs:
            raise ValueError(
                f"{len(classes.names)} classes with coding {classes.coding} need {classes.outputs} outputs, but the "
                f"architecture has outputs={architecture.outputs}"
            )
    features, labels = _checked_examples(architecture, data.features, data.labels)
    test_features, test_labels = data.test_features, data.test_labels
    if test_features is not None:
        test_features, test_labels = _checked_examples(architecture, test_features, test_labels, "test_")
        check_same_width(features.shape[2], test_features, "test_features")
    elif test_labels is not None:
        raise ValueError("test_labels need test_features: pass both or neither")
    return Data(features, labels, test_features, test_labels, classes, data.omitted, data.replaces)


def _checked_examples(architecture: Architecture, features: Any, labels: Any, prefix: str = "") -> tuple[Any, Any]:
    """Return checked path features and labels, if any. Errors name them with a `prefix` such as "test_"."""
    check_aligned(**{f"{prefix}features": features, f"{prefix}labels": labels})
    checked = checked_features(architecture, features, f"{prefix}features")
    if labels is None:
        return checked, None
    axes = "examples" if architecture.outputs == 1 else "examples outputs"
    labels = finite_array(f"{prefix}labels", labels, axes)
    if len(labels) != len(checked):
        raise ValueError(f"{prefix}labels has {counted(len(labels), 'example')}, {prefix}features has {len(checked)}")
    if architecture.outputs not in (1, *labels.shape[1:]):
        raise ValueError(
            f"{prefix}labels of shape {labels.shape} have {labels.shape[1]} outputs, but the architecture has "
            f"outputs={architecture.outputs}"
        )
    return checked, labels


def check_same_width(width: int, others: Features, name: str) -> None:
    """Raise `ValueError` unless `others` have `width` input features."""
    if others.shape[2] != width:
        raise ValueError(f"features have {width} input features, but {name} have {others.shape[2]}")


def check_solvable(architecture: Architecture, data: Data) -> Data:
    """Require that the kernel of checked `data` has a Cholesky factor at the temperature."""
    if data.labels is None:
        return data
    if data.replaces and not is_traced(architecture.temperature) and not architecture.temperature > 0:
        raise ValueError(f"second moments need a positive temperature, got {architecture.temperature}")
    features, labels = computable(architecture, data.features, data.labels)
    return replace(data, features=features, labels=labels)


def checked_features(
    architecture: Architecture, features: ArrayLike | ImplicitFeatures, name: str = "features"
) -> PathFeatures:
    """Return path features (examples, paths, features) that fit the architecture."""
    activations = [activation.name for activation in architecture.activations]
    if isinstance(features, ImplicitFeatures):
        require_float64()
        if architecture.activations != features.activations:
            there = ", ".join(activation.name for activation in features.activations)
            raise ValueError(
                f"{name} are for the activations {there}, but the architecture has the activations "
                f"{', '.join(activations)}: compute them again with bpkr.path_features"
            )
        parts = {part: on_host(getattr(features, part)) for part in ("tokens", "readings", "variances")}
        message = "{} are not finite: entries of {} are infinite or not a number".format
        checked = require(
            features,
            [Requirement(message(name, part), array_module(each).isfinite(each)) for part, each in parts.items()],
        )
    else:
        checked = finite_array(name, features, "examples paths features")
        if not architecture.is_linear:
            raise ValueError(
                f"{name} are an array, but the architecture has nonlinear hidden units ({', '.join(activations)}): "
                "pass the result of bpkr.path_features for this architecture"
            )
    if checked.shape[1] != architecture.paths:
        raise ValueError(
            f"{name} has {counted(checked.shape[1], 'path')} (axis 1 of shape {checked.shape}), but "
            f"{counted_paths(architecture)}; the layout is (examples, paths, features), as bpkr.path_features returns "
            "it"
        )
    return checked
