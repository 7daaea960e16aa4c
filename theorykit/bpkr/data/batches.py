"""The sums of a few batches, in NumPy alone: what a worker of `theorykit.bpkr.data.streaming` computes and sends."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...threads import threads_for

Batch = tuple[Any, Any] | Callable[[], tuple[Any, Any]]
"""Features (examples, paths, features) and labels (examples,) or (examples, outputs), or a function that returns both.
"""

SUMS = ("gram", "projection", "label_square", "examples")
LAYOUTS = {"features": ("examples, paths, features",), "labels": ("examples", "examples, outputs")}


class Source(ABC):
    """A batch that is read by whoever adds it up, in one part or in several that are held one after the other."""

    def called(self, number: int) -> str:
        """What messages call this batch, which has this number."""
        return f"batch {number}"

    @abstractmethod
    def parts(self, name: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
        """Pairs (features, labels), and what messages call each, of the batch that they call `name`."""


class PartialSum(NamedTuple):
    """The fields of `FeatureStatistics` for a few batches, the digest of each, and the name of the first."""

    moments: dict[str, Any]
    digests: tuple[bytes, ...]
    name: str


def sum_batches(first: int, batches: Sequence[Any], with_digests: bool) -> PartialSum:
    """The sums of batches from number `first` on; digests are empty if they are unwanted."""
    total, digests = None, []
    for number, batch in enumerate(batches, first):
        moments, digest = sum_batch(number, batch, with_digests)
        total = moments if total is None else add_moments(name_of(number, batch), total, moments)
        digests.append(digest)
    return PartialSum(total, tuple(digests), name_of(first, batches[0]))


def add_moments(name: str, total: dict[str, Any], moments: dict[str, Any]) -> dict[str, Any]:
    """Two sets of sums as one; `ValueError` where the batch `name`, whose the second are, is of another shape."""
    before, here = map(_shape, (total, moments))
    if before != here:
        raise ValueError(
            f"{name} does not fit those before it: its (paths, features, outputs) are {here}, theirs {before}"
        )
    return {**{name: total[name] + moments[name] for name in SUMS}, "paths": total["paths"]}


def _shape(moments: dict[str, Any]) -> tuple[int, int, int]:
    """(paths, features, outputs)."""
    columns, outputs = moments["projection"].shape
    return moments["paths"], columns // moments["paths"], outputs


def sum_batch(number: int, batch: Any, with_digest: bool) -> tuple[dict[str, Any], bytes]:
    """The fields of `FeatureStatistics` for batch `number`, and its `digest_of_batch`, or nothing if that is unwanted.

    Raises `ValueError` or `TypeError`, naming the batch, for what is no batch, and for entries that are not finite.
    """
    total, digest = None, hashlib.sha256()
    for name, features, labels in _arrays(number, batch):
        moments = _moments(name, features, labels)
        total = moments if total is None else add_moments(name, total, moments)
        if with_digest:
            _update(digest, features, labels)
    return total, digest.digest() if with_digest else b""


def _moments(name: str, features: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    examples, paths, width = features.shape
    flat, targets = features.reshape(examples, paths * width), labels.reshape(examples, -1)
    # what is not finite, or too large to square, is looked for in the sums, of which there are fewer
    with np.errstate(all="ignore"), threads_for(len(flat)):
        moments = {"gram": flat.T @ flat, "projection": flat.T @ targets, "label_square": np.sum(targets**2)}
    if not all(np.all(np.isfinite(moment)) for moment in moments.values()):
        _refuse_values(name, features, labels)
    return {**moments, "examples": examples, "paths": paths}


def digest_of_batch(number: int, batch: Any) -> bytes:
    """A hash by which the values of a batch are known again, exactly; raises as `sum_batch` does."""
    digest = hashlib.sha256()
    for _, features, labels in _arrays(number, batch):
        _update(digest, features, labels)
    return digest.digest()


def _update(digest: Any, *arrays: np.ndarray) -> None:
    for array in arrays:
        digest.update(f"{array.shape} ".encode())
        digest.update(np.ascontiguousarray(array) + 0.0)  # -0.0 is 0


def name_of(number: int, batch: Any) -> str:
    """What messages call a batch."""
    return batch.called(number) if isinstance(batch, Source) else f"batch {number}"


def _arrays(number: int, batch: Any) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Every part of a batch: its name, and features and labels as float64 arrays, one for one."""
    name = name_of(number, batch)
    parts = batch.parts(name) if isinstance(batch, Source) else [(name, batch() if callable(batch) else batch)]
    for part, pair in parts:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(f"{part} must be a pair (features, labels), got {type(pair).__name__}")
        features, labels = (_array(part, kind, value) for kind, value in zip(LAYOUTS, pair, strict=True))
        check_lengths(part, features.shape, labels.shape)
        yield part, features, labels


def check_shape(name: str, kind: str, shape: tuple[int, ...]) -> None:
    """Raise `ValueError` unless the features or the labels of the batch `name` may have this shape."""
    if len(shape) not in {1 + layout.count(",") for layout in LAYOUTS[kind]} or 0 in shape:
        wanted = " or ".join(f"({layout})" for layout in LAYOUTS[kind])
        raise ValueError(f"{name}: {kind} must have shape {wanted}, none of them zero, got {shape}")


def refuse_kernels(features: Any, function: str) -> None:
    """Raise `TypeError` for kernels between paths, as a nonlinear embedding makes them: they have no features."""
    # by its name: what it is made of imports JAX, for which a worker has no use
    if type(features).__name__ == "ImplicitFeatures":
        raise TypeError(
            f"{function} takes path features, and these are kernels between paths, of a function of hidden units. Use "
            "bpkr.solve, or features that have such products: bpkr.features_of_kernels(bpkr.path_kernels(architecture, "
            "features)), of a linear architecture"
        )


def check_lengths(name: str, features: tuple[int, ...], labels: tuple[int, ...]) -> None:
    """Raise `ValueError` unless features and labels of these shapes are of as many examples."""
    if features[0] != labels[0]:
        raise ValueError(f"{name}: features has {features[0]} examples, labels has {labels[0]}")


def _array(name: str, kind: str, value: Any) -> np.ndarray:
    is_plain = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "fiub"
    if not is_plain:
        refuse_kernels(value, "Data.of_batches")
        # imports JAX, for which a worker has no use otherwise
        from ...checks import in_order_of_names, real_array

        axes = LAYOUTS[kind][np.ndim(value) == 2 and kind == "labels"].replace(",", "")
        value = real_array(f"{name}: {kind}", in_order_of_names(f"{name}: {kind}", value, axes))
    check_shape(name, kind, value.shape)
    # of other strides, or between the places of numbers in memory, linear algebra rounds otherwise
    return np.require(value, np.float64, ["C", "A"])


def _refuse_values(name: str, features: np.ndarray, labels: np.ndarray) -> None:
    """Raise for what makes the sums of a batch other than finite."""
    from ...checks import checked_array

    for kind, array in zip(LAYOUTS, (features, labels), strict=True):
        checked_array(f"{name}: {kind}", array)
    largest = max(float(np.max(np.abs(array))) for array in (features, labels))
    raise ValueError(f"{name}: products of values as large as {largest:.3g} are beyond double precision")
