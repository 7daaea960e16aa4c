"""What the parameters of class labels are."""

import numpy as np

from theorykit import bpkr

from .values import Kind, array, instance, number, text

CLASSES = bpkr.Classes(("a", "b", "c"), "one-hot")
CLASS_LABELS = Kind(
    lambda: np.array(["a", "c", "b"]),
    {"a list of text": "text may be a class"},
    lambda: {"of pairs": np.array([["a", "b"]]), "of one more": np.array(["a", "b", "d"]), "complex": np.ones(3) + 1j},
)
OF_CLASSES = {
    "Classes.names": Kind(lambda: ("a", "b", "c"), also=lambda: {"twice": ("a", "a"), "one": ("a",)}),
    "Classes.coding": text("signs"),
    "Classes.encode.labels": CLASS_LABELS,
    "Classes.indices_of.labels": CLASS_LABELS,
    "Classes.decode.outputs": array(lambda: np.eye(3)),
    "Classes.probabilities.mean": array(lambda: np.eye(3)),
    "Classes.probabilities.variance": array(lambda: np.ones((3, 3)), also=lambda: {"negative": -np.eye(3)}),
    "Classes.log_probability.labels": CLASS_LABELS,
    "Classes.log_probability.mean": array(lambda: np.eye(3)),
    "Classes.log_probability.variance": array(lambda: np.ones((3, 3)), also=lambda: {"negative": -np.eye(3)}),
    "find_classes.labels": Kind(
        CLASS_LABELS.example,
        {"a list of text": "text", "an array of text": "text"},
        lambda: {"of pairs": np.array([["a", "b"]]), "alike": np.array(["a", "a"]), "complex": np.ones(3) + 1j},
    ),
    "find_classes.coding": Kind(lambda: "signs", {"None": "by the number of classes"}),
    "data_of_classes.labels": Kind(CLASS_LABELS.example, {"an array of text": "two classes", "a list of text": "text"}),
    "data_of_classes.test_labels": CLASS_LABELS,
    "data_of_classes.coding": Kind(lambda: "signs", {"None": "by the number of classes"}),
    "score_classes.classes": instance(lambda: CLASSES),
    "score_classes.labels": CLASS_LABELS,
    "score_classes.mean": array(lambda: np.eye(3)),
    "score_classes.variance": array(lambda: np.ones((3, 3)), also=lambda: {"negative": -np.eye(3)}),
    "score_classes.noise": number(0.1, least=0.0),
}
