"""The data of a theory and of its tests, together."""

from dataclasses import dataclass

from jax.typing import ArrayLike

from ...checks import check_aligned, checked_instance
from ..features.implicit import ImplicitFeatures
from ..specification.architecture import Architecture
from .checks import check_same_input_features, checked_examples, checked_features, refuse_sharded
from .classes import Classes, Coding, Labels, encode_labels, find_classes


@dataclass(frozen=True)
class Data:
    """Training data, and test data where there are any.

    - `features`, `test_features`: path features (examples, paths, features), as `bpkr.path_features` returns them.
    - `labels`, `test_labels`: (examples,), or (examples, outputs) of several outputs.
    - `classes`: what the labels stand for, where `data_of_classes` has made them of class labels.

    They are checked where they meet an architecture.
    """

    features: ArrayLike | ImplicitFeatures
    labels: ArrayLike
    test_features: ArrayLike | ImplicitFeatures | None = None
    test_labels: ArrayLike | None = None
    classes: Classes | None = None


def data_of_classes(
    features: ArrayLike | ImplicitFeatures,
    labels: Labels,
    test_features: ArrayLike | ImplicitFeatures | None = None,
    test_labels: Labels | None = None,
    *,
    coding: Coding | None = None,
) -> Data:
    """`Data` of class labels (examples,), text or numbers, which become outputs; see `bpkr.Classes` for `coding`.

    The classes are those of the training labels; `ValueError` for a test label that is none of them.
    """
    check_aligned(features=features, labels=labels)
    check_aligned(test_features=test_features, test_labels=test_labels)
    classes = find_classes(labels, coding)
    tested = None if test_labels is None else encode_labels("test_labels", classes, test_labels)
    return Data(features, classes.encode(labels), test_features, tested, classes)


def check_data(architecture: Architecture, data: Data) -> Data:
    """`data` as float64 arrays; `ValueError` names what does not fit the architecture or the rest of the data."""
    checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
    arrays = ("features", "labels", "test_features", "test_labels")
    refuse_sharded(**{name: getattr(data, name) for name in arrays})
    if data.classes is not None:
        checked_instance("classes", data.classes, Classes, "as bpkr.data_of_classes makes them")
        if data.classes.outputs != architecture.outputs:
            raise ValueError(
                f"{len(data.classes.names)} classes, coded by {data.classes.coding}, are {data.classes.outputs} "
                f"outputs, but the architecture has outputs={architecture.outputs}"
            )
    features, labels = checked_examples(architecture, data.features, data.labels)
    test_features, test_labels = data.test_features, data.test_labels
    if test_labels is not None:
        if test_features is None:
            raise ValueError("there are test_labels, but no test_features to predict them from")
        test_features, test_labels = checked_examples(architecture, test_features, test_labels, "test_")
    elif test_features is not None:
        test_features = checked_features(architecture, test_features, "test_features")
    if test_features is not None:
        check_same_input_features(features, test_features, "test_features")
    return Data(features, labels, test_features, test_labels, data.classes)
