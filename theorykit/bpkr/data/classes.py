"""Encode class labels as outputs of a network, and score predicted classes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpy.typing import NDArray

from ...checks import (
    checked_array,
    checked_choice,
    checked_instance,
    checked_number,
    counted,
    is_traced,
    numeric_array,
    refuse_traced,
    shown,
)
from ...compilation import jit
from ...memory import check_fits
from ...precision import require_float64
from ...settings import usual_settings
from ...symbolic.documents.display import DisplayMixin
from ...symbolic.documents.document import Block, Table, Text, verbatim
from . import largest_output

Coding = Literal["signs", "one-hot"]
Labels = Iterable[Any]
"""Class labels (examples,): a sequence, an array, or a column of pandas."""

# Largest number of different labels that we take for class numbers, and largest confusion matrix that we show.
_MOST_NUMBERED = 20
# Largest number of classes that are listed in words.
_LISTED = 8
# Negative variances below this fraction of the largest variance are rounding errors.
_ROUNDING = 1e-10
# Smallest standard deviation relative to the mean, so that divisions by it do not overflow.
_CERTAIN = 1e-60
# Labels that deviate from their mean by less than this fraction of the largest are equal up to rounding.
_CONSTANT = 1e-12
# Valid types of labels, and their names in messages.
_KINDS = ((str, "text"), (bytes, "bytes"), (bool, "booleans"), ((int, float), "numbers"))


@dataclass(frozen=True, repr=False)
class Classes(DisplayMixin):
    """The classes of a task and their coding as outputs of a network.

    - `names`: the sorted classes, of the same type as the labels.
    - `coding`: "signs" or "one-hot". "signs" encodes two classes as a single output, -1 for the first and 1 for the
      second. It encodes three or more classes as one output per class, 1 for the class of the example and -1 for the
      others. "one-hot" encodes any number of classes as one output per class, with 1 and 0.
    """

    names: tuple[Any, ...]
    coding: Coding

    def __post_init__(self):
        checked_choice("coding", self.coding, get_args(Coding))
        if not isinstance(self.names, tuple) or len(self.names) < 2 or len(set(self.names)) < len(self.names):
            raise ValueError(f"names must be a tuple of at least two different classes, got {shown(self.names)}")

    def _view(self) -> Iterator[Block]:
        low = -1 if self.coding == "signs" else 0
        meaning = f"-1 for {self.names[0]!r}, 1 for {self.names[1]!r}"
        if self.outputs > 1:
            meaning = f"one per class, 1 for the class and {low} for the others"
        yield Text(f"**Classes**: {verbatim(_listed(self.names))}")
        outputs = f"{counted(self.outputs, 'output')}: {verbatim(meaning)}"
        yield Table((("classes", f"{len(self.names):,}"), ("outputs", outputs)))

    @property
    def outputs(self) -> int:
        """Number of outputs that encode these classes."""
        return 1 if self.coding == "signs" and len(self.names) == 2 else len(self.names)

    def _shares(self, labels: Float[Array | np.ndarray, "examples *outputs"]) -> str:
        """Describe the number of labels of each class."""
        counts = np.bincount(self._nearest(np.asarray(labels)), minlength=len(self.names))
        words = [f"{name!r}: {count:,}" for name, count in zip(self.names, counts.tolist(), strict=True)]
        return ", ".join(words[:_LISTED]) + (f", and {len(words) - _LISTED} more" if len(words) > _LISTED else "")

    @usual_settings()
    def encode(self, labels: Labels) -> Float[Array, "examples *outputs"]:
        """Encode `labels` (examples,) as outputs (examples,), or (examples, outputs) for several outputs."""
        return encode_labels("labels", self, labels)

    def indices_of(self, labels: Labels) -> Int[Array, " examples"]:
        """Return the index of each label in `names`, from 0."""
        return _indices_of("labels", self, labels)

    def decode(self, outputs: ArrayLike) -> NDArray[Any]:
        """Return the nearest classes (examples,) to `outputs`, which have the shape that `encode` returns."""
        return np.array(self.names)[np.asarray(self._nearest(self._checked("outputs", outputs)))]

    @usual_settings()
    def probabilities(self, mean: ArrayLike, variance: ArrayLike) -> Float[Array, "examples classes"]:
        """Return the probability that each class is the nearest one to independent Gaussian outputs.

        Args:
            mean: means of the outputs, (examples,) or (examples, outputs), for example from a `Prediction`.
            variance: variances of the outputs, of the same shape. Add the temperature to include the labels' noise.
        """
        mean, deviation = self._moments(mean, variance)
        if self.outputs == 1:
            return jnp.stack([norm.cdf(-mean / deviation), norm.cdf(mean / deviation)], axis=1)
        return largest_output.probabilities(mean, deviation)

    @usual_settings()
    def log_probability(self, labels: Labels, mean: ArrayLike, variance: ArrayLike) -> Float[Array, " examples"]:
        """Return the log probability of each example's true class. It is accurate for any small probability.

        Args:
            labels: true classes (examples,).
            mean: means of the outputs, (examples,) or (examples, outputs).
            variance: variances of the outputs, of the same shape.
        """
        return self._log_probability(self.indices_of(labels), *self._moments(mean, variance))

    def _log_probability(self, indices: ArrayLike, mean: Array, deviation: Array) -> Array:
        if self.outputs == 1:
            return _log_probability_of_signs(indices, mean, deviation)
        return largest_output.log_probability(mean, deviation, jnp.asarray(indices))

    def _moments(self, mean: ArrayLike, variance: ArrayLike) -> tuple[Array, Array]:
        # Return the means, and standard deviations that are all positive.
        mean, variance = self._checked("mean", mean), self._checked("variance", variance)
        if mean.shape != variance.shape or bool(_is_negative(variance)):
            raise ValueError(f"variance must have the shape of mean, {mean.shape}, and must not be negative")
        return mean, _deviation(mean, variance)

    def _nearest(self, outputs: Float[Array | np.ndarray, "examples *outputs"]) -> Int[Array | np.ndarray, " examples"]:
        return (outputs > 0).astype(int) if self.outputs == 1 else outputs.argmax(axis=1)

    def _checked(self, name: str, outputs: ArrayLike) -> Array:
        require_float64()
        array = jnp.asarray(checked_array(name, outputs, "examples" if self.outputs == 1 else "examples outputs"))
        if self.outputs > 1 and array.shape[1] != self.outputs:
            raise ValueError(f"{name} of shape {array.shape} must have {self.outputs} outputs, as the classes do")
        return array


def encode_labels(name: str, classes: Classes, labels: Labels) -> Float[Array, "examples *outputs"]:
    """Encode labels like `classes.encode`. Errors call the labels `name`."""
    require_float64()
    indices = _indices_of(name, classes, labels)
    if classes.outputs == 1:
        return 2.0 * indices - 1.0
    check_fits(
        f"one output for each of {len(classes.names):,} classes, of {len(indices):,} examples,",
        8 * 3 * len(classes.names) * len(indices),
        f"if {name} are numbers rather than classes, do not encode them",
    )
    low = -1.0 if classes.coding == "signs" else 0.0
    return jnp.where(indices[:, None] == jnp.arange(len(classes.names)), 1.0, low)


def _indices_of(name: str, classes: Classes, labels: Labels) -> Int[Array, " examples"]:
    places = {known: index for index, known in enumerate(classes.names)}
    entries = _entries(name, labels)
    for example, label in enumerate(entries):
        if label not in places:
            raise ValueError(f"{name}[{example}] is {label!r}, not one of the classes {_listed(classes.names)}")
    return jnp.asarray([places[label] for label in entries])


def find_classes(labels: Labels, coding: Coding | None = None) -> Classes:
    """Find the classes among labels, which can have any type that can be sorted.

    Args:
        labels: one label per example, (examples,).
        coding: how outputs encode the classes; see `Classes`. The default is "signs" for two classes and "one-hot" for
            three or more.

    Raises:
        TypeError: the labels are not text, numbers, booleans or bytes, or are of several types.
        ValueError: a label is missing, or all labels are equal.

    Example:
        >>> from theorykit import bpkr
        >>> classes = bpkr.find_classes(["dog", "cat", "dog"])
        >>> classes.names
        ('cat', 'dog')
    """
    names = tuple(sorted(set(_entries("labels", labels))))
    if len(names) < 2:
        raise ValueError(f"labels are all {names[0]!r}: there must be at least two classes")
    default: Coding = "signs" if len(names) == 2 else "one-hot"
    return Classes(names, default if coding is None else coding)


def _entries(name: str, labels: Labels) -> list[Any]:
    """Return labels as Python strings, bytes, booleans or numbers, all of one type."""

    def refuse(example: int, label: str) -> None:
        raise ValueError(f"{name}[{example}] is {label}, which is not a class: remove examples with missing labels")

    refuse_traced("a function of class labels", labels, reason="reads the labels in Python", anywhere=False)
    # Do not convert lists to NumPy arrays, which would turn None or numbers among strings into strings, and merge large
    # whole numbers.
    is_list = isinstance(labels, (list, tuple, np.ma.MaskedArray))
    array = None if is_list else np.asarray(labels)
    if array is None:
        # A single masked label is a zero-dimensional array.
        entries = [] if np.ma.isMaskedArray(labels) and not labels.ndim else list(labels)
    else:
        entries = array.tolist() if array.dtype.kind in "biufcUSTO" else []
    column = "" if array is None or array.ndim != 2 else ": pass one column of it"
    wrong = f"{name} must be class labels (examples,), text or numbers, got {shown(labels)}{column}"
    if not isinstance(entries, list) or not entries:
        raise TypeError(wrong)
    kinds: dict[str, Any] = {}
    for example, label in enumerate(entries):
        if label is np.ma.masked:
            refuse(example, "masked")
        if isinstance(label, (np.generic, np.ndarray, Array)) and label.ndim == 0:
            label = entries[example] = label.item()
        is_missing = label is None or type(label).__name__ in ("NAType", "NaTType")  # from pandas
        is_empty = isinstance(label, (str, bytes)) and not label
        if is_missing or is_empty or (isinstance(label, float) and not math.isfinite(label)):
            refuse(example, shown(label))
        kind = next((kind for types, kind in _KINDS if isinstance(label, types)), None)
        if kind is None:
            raise TypeError(wrong)
        kinds.setdefault(kind, label)
    if len(kinds) > 1:
        listed = ", ".join(f"{kind} such as {shown(label)}" for kind, label in kinds.items())
        raise TypeError(f"{name} must be of one type, text or numbers, got {listed}")
    return entries


@dataclass(frozen=True, repr=False)
class ClassScores(DisplayMixin):
    """Scores of predicted classes.

    - `accuracy`: fraction of examples with the right class.
    - `accuracy_error`: standard error of `accuracy`.
    - `confusion` (true class, predicted class): numbers of examples.
    - `log_loss`: mean of -ln P(true class).
    - `log_loss_error`: standard error of `log_loss`.
    """

    accuracy: float
    accuracy_error: float
    confusion: Int[np.ndarray, "classes classes"]
    log_loss: float
    log_loss_error: float

    def _view(self) -> Iterator[Block]:
        examples, classes = int(self.confusion.sum()), range(1, len(self.confusion) + 1)
        yield Text(f"**Class scores** of {counted(examples, 'example')}")
        rows = {"accuracy": (self.accuracy, self.accuracy_error), "log loss": (self.log_loss, self.log_loss_error)}
        yield Table(tuple((name, f"{value:.4f} +- {error:.4f}") for name, (value, error) in rows.items()))
        if len(classes) <= _MOST_NUMBERED:
            header = ("true class", *(f"predicted {place}" for place in classes))
            yield Table(tuple((str(i), *map(str, row)) for i, row in zip(classes, self.confusion, strict=True)), header)


@usual_settings()
def score_classes(
    classes: Classes, labels: Labels, mean: ArrayLike, variance: ArrayLike, *, noise: float = 0.0
) -> ClassScores:
    """Score how well Gaussian predictions of outputs predict classes.

    Args:
        classes: the classes and their coding.
        labels: true classes (examples,).
        mean: means of the outputs, (examples,) or (examples, outputs), for example from a `Prediction`.
        variance: variances of the outputs, of the same shape.
        noise: variance of the labels about the outputs, which is the temperature.

    Returns:
        Accuracy and log loss with standard errors, and the confusion matrix.
    """
    checked_instance("classes", classes, Classes, "as bpkr.find_classes returns them")
    refuse_traced("score_classes", mean, variance, noise, reason="returns numbers of Python", anywhere=False)
    return score_indices(classes, classes.indices_of(labels), mean, variance, noise)


def score_indices(
    classes: Classes, truth: Int[Array | np.ndarray, " examples"], mean: ArrayLike, variance: ArrayLike, noise: float
) -> ClassScores:
    """Score like `score_classes`, from the indices of the true classes."""
    noise = checked_number("noise", noise, least=0.0)
    mean, deviation = classes._moments(mean, checked_array("variance", variance) + noise)
    if len(truth) != len(mean):
        raise ValueError(f"labels has {counted(len(truth), 'example')}, but mean has {len(mean)}")
    # Count on the host. With JAX, each operation would be compiled.
    truth, found = np.asarray(truth), classes._nearest(np.asarray(mean))
    confusion = np.zeros((len(classes.names),) * 2, dtype=int)
    np.add.at(confusion, (truth, found), 1)
    losses = -np.asarray(classes._log_probability(truth, mean, deviation))
    return ClassScores(*mean_and_error((truth == found).astype(float)), confusion, *mean_and_error(losses))


@jit
def _log_probability_of_signs(indices, mean, deviation):
    return norm.logcdf(jnp.where(indices == 1, mean, -mean) / deviation)


@jit
def _is_negative(variance):
    return jnp.any(variance < -_ROUNDING * jnp.max(jnp.abs(variance), initial=0))


@jit
def _deviation(mean, variance):
    return jnp.maximum(jnp.sqrt(jnp.maximum(variance, 0.0)), _CERTAIN * jnp.maximum(jnp.abs(mean), 1.0))


def mean_and_error(values: Float[np.ndarray, " examples"]) -> tuple[float, float]:
    """Return the mean and its standard error."""
    return float(np.mean(values)), float(np.std(values) / np.sqrt(len(values)))


def r_squared(predicted: Float[np.ndarray, "..."], labels: Float[np.ndarray, "..."]) -> float:
    """Return the fraction of the labels' variance that is explained, averaged over outputs.

    It is NaN if all labels of an output are equal up to rounding, as in scikit-learn.
    """
    missed, spread = (np.mean((labels - other) ** 2, axis=0) for other in (predicted, np.mean(labels, axis=0)))
    is_constant = spread <= (_CONSTANT * np.max(np.abs(labels), axis=0)) ** 2
    return float(np.mean(1 - missed / np.where(is_constant, np.nan, spread)))


def _listed(names: Any) -> str:
    shown_names = ", ".join(repr(name) for name in list(names)[:_LISTED])
    return shown_names if len(names) <= _LISTED else f"{shown_names}, ..."


class LabelsWarning(UserWarning):
    """Labels that are treated as numbers look like class numbers, or have a mean far from zero."""


def warn_of_class_numbers(labels: Any, stacklevel: int) -> None:
    """Warn about labels 0, 1, 2, ... of a single output, which are treated as numbers."""
    if is_traced(labels):
        return
    try:
        array = checked_array("labels", labels, "examples")
    except (TypeError, ValueError):  # Later checks raise this error.
        return
    values, counts = np.unique(array, return_counts=True)
    if not np.array_equal(values, np.arange(len(values))) or not 2 <= len(values) <= _MOST_NUMBERED or counts.min() < 2:
        return
    warnings.warn(
        f"labels 0 to {len(values) - 1} of one output are treated as numbers; if they are classes, use "
        "bpkr.Data.of_classes, bpkr.Model(classes=True), or `classes = true` on the command line",
        LabelsWarning,
        stacklevel=stacklevel + 1,
    )


def are_classes(labels: ArrayLike | None) -> bool:
    """Check whether labels encode classes, with a single output -1 or 1, or one output 1 and all others 0 or -1."""
    if labels is None:
        return False
    array = np.asarray(labels)
    if array.ndim == 1:
        return bool(np.isin(array, (-1.0, 1.0)).all())
    others = np.sort(array, axis=1)[:, :-1]
    return bool((array.max(axis=1) == 1).all() and ((others == 0).all() or (others == -1).all()))


def outputs_as_classes(labels: Float[np.ndarray, "examples *outputs"]) -> tuple[Classes, Int[np.ndarray, " examples"]]:
    """Return numbered classes for labels that `are_classes`, and the class index of each example."""
    if labels.ndim == 1:
        return Classes((-1, 1), "signs"), (labels > 0).astype(int)
    return Classes(tuple(range(labels.shape[1])), "one-hot"), np.argmax(labels, axis=1)


@usual_settings()
def sign_accuracy(outputs: ArrayLike, labels: ArrayLike) -> Float[Array, "*batch"]:
    """Return the fraction of examples whose output has the sign of its label, or NaN if an output is NaN.

    Args:
        outputs: outputs of networks, (..., examples).
        labels: 1 or -1 per example, (examples,), optionally with some of the preceding axes.

    Raises:
        ValueError: the shapes do not fit.

    Example:
        >>> import numpy as np
        >>> from theorykit import bpkr
        >>> float(bpkr.sign_accuracy(np.array([0.3, -2.0, 0.1, -0.2]), np.array([1, -1, -1, -1])))
        0.75
    """
    require_float64()
    outputs, labels = numeric_array("outputs", outputs), checked_array("labels", labels)
    if labels.ndim == 0 or labels.size == 0 or outputs.shape[-labels.ndim :] != labels.shape:
        raise ValueError(f"labels of shape {labels.shape} do not fit outputs of shape {outputs.shape}")
    return _share_of_signs(outputs, labels)


def class_accuracy(
    outputs: Float[Array | np.ndarray, "..."], labels: Float[Array | np.ndarray, "examples *outputs"]
) -> Float[Array, "*batch"]:
    """Return `sign_accuracy`, or for several outputs the fraction of examples whose largest output is right."""
    if labels.ndim == 1:
        return sign_accuracy(outputs, labels)
    return _share(jnp.argmax(outputs, axis=-1) == jnp.argmax(labels, axis=-1), jnp.isnan(outputs).any(axis=-1))


@jit
def _share_of_signs(outputs, labels):
    return _share(jnp.sign(outputs) == labels, jnp.isnan(outputs))


def _share(right: Array, is_unknown: Array) -> Float[Array, "*batch"]:
    return jnp.mean(jnp.where(is_unknown, jnp.nan, right), axis=-1)
