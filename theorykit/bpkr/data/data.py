"""The data of a theory and of its tests, together."""

from dataclasses import dataclass

from jax.typing import ArrayLike

from ...arguments import checked_instance
from ..specification.architecture import Architecture
from .checks import check_same_input_features, checked_examples, checked_features


@dataclass(frozen=True)
class Data:
    """Training data, and test data where there are any.

    - `features`, `test_features`: path features (examples, paths, features), as `bpkr.path_features` returns them.
    - `labels`, `test_labels`: (examples,), or (examples, outputs) of several outputs.

    They are checked where they meet an architecture.
    """

    features: ArrayLike
    labels: ArrayLike
    test_features: ArrayLike | None = None
    test_labels: ArrayLike | None = None


def check_data(architecture: Architecture, data: Data) -> Data:
    """`data` as float64 arrays; `ValueError` names what does not fit the architecture or the rest of the data."""
    checked_instance("data", data, Data, "such as bpkr.Data(features, labels)")
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
    return Data(features, labels, test_features, test_labels)
