"""The sums of one batch, in NumPy alone: what a worker of `theorykit.bpkr.data.streaming` computes, and sends back."""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class BatchSums:
    """The fields of `FeatureStatistics` for one batch, or several."""

    gram: Float[np.ndarray, "columns columns"]
    projection: Float[np.ndarray, "columns outputs"]
    label_square: float
    examples: int
    paths: int
    digests: tuple[bytes, ...] = ()
    """The `batch_digest` of every batch, where they are wanted."""

    @property
    def kind(self) -> tuple[int, int, int]:
        """(paths, features, outputs)."""
        return (self.paths, len(self.gram) // self.paths, self.projection.shape[1])

    def plus(self, other: "BatchSums") -> "BatchSums":
        return BatchSums(
            gram=self.gram + other.gram,
            projection=self.projection + other.projection,
            label_square=self.label_square + other.label_square,
            examples=self.examples + other.examples,
            paths=self.paths,
            digests=self.digests + other.digests,
        )


def loaded_sums(number: int, load: Callable[[int], Any], digested: bool = False) -> BatchSums:
    """`batch_sums` of the batch that `load` reads or makes."""
    return batch_sums(number, load(number), digested)


def loaded_digest(number: int, load: Callable[[int], Any]) -> bytes:
    """`batch_digest` of the batch that `load` reads or makes."""
    return batch_digest(number, load(number))


def batch_digest(number: int, batch: Any) -> bytes:
    """A hash by which the values of a batch are known again, exactly; raises as `batch_sums` does."""
    digest = hashlib.sha256()
    for array in _checked(number, batch):
        digest.update(f"{array.shape} ".encode())
        digest.update(np.ascontiguousarray(array) + 0.0)  # -0.0 is 0
    return digest.digest()


def batch_sums(number: int, batch: Any, digested: bool = False) -> BatchSums:
    """The sums over batch `number`, a pair of features (examples, paths, features) and labels (examples, ...).

    Raises `ValueError`, naming the batch, for anything else, and for entries that are not finite.
    """
    features, labels = _checked(number, batch)
    examples, paths, width = features.shape
    flat, targets = features.reshape(examples, paths * width), labels.reshape(examples, -1)
    # what is not finite, or too large to square, is looked for in the sums, of which there are fewer
    with np.errstate(all="ignore"):
        gram, projection, square = flat.T @ flat, flat.T @ targets, float(np.sum(targets**2))
    if not (np.all(np.isfinite(gram)) and np.all(np.isfinite(projection)) and math.isfinite(square)):
        _refuse_values(number, features, labels)
    digests = (batch_digest(number, (features, labels)),) if digested else ()
    return BatchSums(gram, projection, square, examples, paths, digests)


def _checked(number: int, batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of batch `number` as float64 arrays, one for one."""
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise ValueError(f"batch {number} must be a pair (features, labels), got {type(batch).__name__}")
    features = _array(number, "features", batch[0], ("examples, paths, features",))
    labels = _array(number, "labels", batch[1], ("examples", "examples, outputs"))
    if len(features) != len(labels):
        raise ValueError(f"batch {number}: features has {len(features)} examples, labels has {len(labels)}")
    return features, labels


def _array(number: int, name: str, value: Any, layouts: tuple[str, ...]) -> np.ndarray:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"batch {number}: {name} is a masked array, whose mask would be lost")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"batch {number}: {name} must be real numbers, in rows of equal length") from None
    if array.dtype.kind not in "fiub":
        raise ValueError(f"batch {number}: {name} must be real numbers, got dtype {array.dtype}")
    if array.ndim not in {1 + layout.count(",") for layout in layouts} or 0 in array.shape:
        wanted = " or ".join(f"({layout})" for layout in layouts)
        raise ValueError(f"batch {number}: {name} must have shape {wanted}, none of them zero, got {array.shape}")
    return np.asarray(array, dtype=np.float64)


def _refuse_values(number: int, features: np.ndarray, labels: np.ndarray) -> None:
    for name, array in (("features", features), ("labels", labels)):
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            index = tuple(int(i) for i in bad[0])
            raise ValueError(
                f"batch {number}: {name} has {len(bad)} entries that are not finite, the first {array[index]} at index "
                f"{index} of the batch"
            )
    largest = max(float(np.max(np.abs(array))) for array in (features, labels))
    raise ValueError(f"batch {number}: products of values as large as {largest:.3g} are beyond double precision")
