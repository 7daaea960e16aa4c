"""Training and test data, and their checks against an architecture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike

from ... import checks
from ..._compat import require_float64, threads_for
from ..features.implicit import Features, ImplicitFeatures, PathFeatures
from ..specification.activations import IDENTITY
from ..specification.architecture import Architecture, checked_architecture
from .classes import Classes, Labels, class_labels


class Data(eqx.Module):
    """Training data and optional test data. `bpkr.Problem` checks them.

    - `features`: (examples, paths, features), as from `bpkr.path_features`.
    - `labels`: (examples,), or (examples, outputs) for several outputs.
      `bpkr.kernel` does not need labels.
    - `test_features`, `test_labels`: the same for test examples.
    - `classes`: the classes that the labels encode, if any.
    - `replaces`: number of examples that `of_batches` replaced.
    """

    features: Any = None
    labels: Any = None
    test_features: Any = None
    test_labels: Any = None
    classes: Classes | None = eqx.field(static=True, default=None)
    replaces: int = eqx.field(static=True, default=0)

    @property
    def examples(self) -> int:
        return self.replaces or len(self.features)

    @classmethod
    def of_classes(
        cls,
        features: ArrayLike | ImplicitFeatures,
        labels: Labels,
        test_features: ArrayLike | ImplicitFeatures | None = None,
        test_labels: Labels | None = None,
    ) -> Data:
        """Make data from class labels.

        Args:
            features, test_features: (examples, paths, features).
            labels, test_labels: classes (examples,).
        """
        classes = Classes(tuple(sorted(set(class_labels("labels", labels)))))
        tested = None if test_labels is None else classes.encode(test_labels, "test_labels")
        return cls(features, classes.encode(labels), test_features, tested, classes)

    @classmethod
    def of_batches(
        cls,
        batches: Iterable[tuple[ArrayLike, ArrayLike]],
        test_features: ArrayLike | None = None,
        test_labels: ArrayLike | None = None,
        classes: Classes | None = None,
    ) -> Data:
        """Make data from batches, for more examples than memory holds.

        QR factorisations rotate the examples, which leaves the action unchanged. For D
        features of all paths and C outputs, at most D + C examples are left.

        Args:
            batches: pairs of features and labels, as in `Data`.
            test_features, test_labels, classes: as in `Data`.

        Raises:
            ValueError: an array is not finite, or shapes do not match.
        """
        waiting, shapes, total = [], None, 0
        for features, labels in batches:
            features = checks.checked_array("features", features, "examples paths features")
            labels = checks.checked_array("labels", labels)
            here = features.shape[1:], labels.shape[1:]
            if features.shape[:1] != labels.shape[:1] or here != (shapes or here):
                wrong = f"{features.shape} and {labels.shape}"
                raise ValueError(f"a batch has shapes {wrong}, the first {shapes}")
            parts = [array.reshape(len(array), -1) for array in (features, labels)]
            waiting, shapes, total = [*waiting, np.hstack(parts)], here, total + len(features)
            if sum(map(len, waiting)) > 2 * waiting[0].shape[1]:
                waiting = [_triangular(waiting)]
        if shapes is None:
            raise ValueError("batches must have at least one pair (features, labels)")
        features, labels = np.hsplit(_triangular(waiting), [int(np.prod(shapes[0]))])
        features, labels = features.reshape(-1, *shapes[0]), labels.reshape(-1, *shapes[1])
        return cls(features, labels, test_features, test_labels, classes, total)


def _triangular(parts: list[np.ndarray]) -> np.ndarray:
    rows = np.concatenate(parts)
    with threads_for(rows.shape[1]):
        return np.linalg.qr(rows, mode="r")


def data_line(data: Data) -> str:
    line = checks.counted(data.examples, "training example")
    if data.test_features is None:
        return line
    return f"{line}, {checks.counted(len(data.test_features), 'test example')}"


def check_data(architecture: Architecture, data: Data) -> Data:
    """Return `data` as float64 arrays that fit the architecture and each other."""
    require_float64()
    checked_architecture(architecture)
    checks.checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
    parts, outputs = {}, architecture.outputs
    for prefix in ("", "test_"):
        names = f"{prefix}features", f"{prefix}labels"
        features, labels = (getattr(data, name) for name in names)
        if features is None and prefix:
            if labels is not None:
                raise ValueError("test_labels need test_features")
            continue
        features = checked_features(architecture, features, names[0])
        if labels is not None:
            labels = checks.finite_array(names[1], labels)
            shape = (len(features), outputs)[: 1 if outputs == 1 else 2]
            if labels.shape != shape:
                wanted = f"{shape} for outputs={outputs}"
                raise ValueError(f"{names[1]} must have shape {wanted}, got {labels.shape}")
        parts |= {names[0]: features, names[1]: labels}
    if "test_features" in parts:
        check_same_width(parts["features"].shape[2], parts["test_features"], "test_features")
    return replace(data, **parts)


def check_same_width(width: int, others: Features, name: str) -> None:
    if others.shape[2] != width:
        raise ValueError(f"features have {width} input features, but {name} have {others.shape[2]}")


def checked_features(architecture: Architecture, features, name="features") -> PathFeatures:
    activations, wanted = (IDENTITY,), architecture.activations
    if architecture.between:
        wanted = tuple(architecture.layers[layer - 1].activation for layer in architecture.between)
    if isinstance(features, ImplicitFeatures):
        activations = features.activations
    else:
        features = checks.finite_array(name, features, "examples paths features")
    if activations != wanted:
        raise ValueError(f"{name} are for the activations {activations}, not {wanted}")
    if features.shape[1] != architecture.kernel_paths:
        raise ValueError(f"{name} must have {architecture.paths} paths, got shape {features.shape}")
    return features
