"""Training and test data."""

from dataclasses import replace
from typing import Any

import equinox as eqx

from ... import checks
from ..._compat import require_float64
from ..features.implicit import Features, ImplicitFeatures
from ..specification.activations import IDENTITY
from ..specification.architecture import Architecture, checked_architecture
from .classes import Classes, Labels, class_labels, vector_of_table


class Data(eqx.Module):
    """Training data and optional test data. `bpkr.Problem` checks them.

    - `features`: (examples, paths, features), as from `bpkr.path_features`.
    - `labels`: (examples,), also as a table, or (examples, outputs) for several outputs.
      `bpkr.kernel` does not need labels.
    - `test_features`, `test_labels`: the same for test examples.
    - `classes`: the classes that the labels encode, if any.
    """

    features: Any = None
    labels: Any = eqx.field(default=None, converter=vector_of_table)
    test_features: Any = None
    test_labels: Any = eqx.field(default=None, converter=vector_of_table)
    classes: Classes | None = eqx.field(static=True, default=None)

    @classmethod
    def of_classes(
        cls,
        features: Features | None,
        labels: Labels,
        test_features: Features | None = None,
        test_labels: Labels | None = None,
    ) -> "Data":
        """Make data from classes (examples,) as labels."""
        classes = Classes(tuple(sorted(set(class_labels("labels", labels)))))
        tested = None if test_labels is None else classes.encode(test_labels, "test_labels")
        return cls(features, classes.encode(labels), test_features, tested, classes)


def data_line(data: Data) -> str:
    line = checks.counted(len(data.features), "training example")
    if data.test_features is None:
        return line
    return f"{line}, {checks.counted(len(data.test_features), 'test example')}"


def check_data(architecture: Architecture, data: Data) -> Data:
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
                wanted = f"{shape} for {len(features)} examples and outputs={outputs}"
                raise ValueError(f"{names[1]} must have shape {wanted}, got {labels.shape}")
        parts |= {names[0]: features, names[1]: labels}
    if "test_features" in parts:
        check_same_width(parts["features"].shape[2], parts["test_features"], "test_features")
    return replace(data, **parts)


def check_same_width(width: int, others: Features, name: str) -> None:
    if others.shape[2] != width:
        raise ValueError(f"features have {width} input features, but {name} have {others.shape[2]}")


def checked_features(architecture: Architecture, features, name="features") -> Features:
    activations, wanted = (IDENTITY,), architecture.activations
    if architecture.between:
        wanted = tuple(architecture.layers[layer - 1].activation for layer in architecture.between)
    if isinstance(features, ImplicitFeatures):
        activations = features.activations
    else:
        features = checks.finite_array(name, features, "examples paths features")
    if activations != wanted:
        raise ValueError(f"{name} are for the activations {activations}, not {wanted}")
    rows = sum(architecture.overlap_sizes[level] for level in architecture.kernel_levels)
    if features.shape[1] * architecture.outputs != rows:
        raise ValueError(f"{name} must have {architecture.paths} paths, got shape {features.shape}")
    return features
