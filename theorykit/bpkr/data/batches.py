"""The sums of a few batches, in NumPy alone: what a worker of `theorykit.bpkr.data.streaming` computes and sends."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Batch = tuple[Any, Any] | Callable[[], tuple[Any, Any]]
"""Features (examples, paths, features) and labels (examples,) or (examples, outputs), or a function that returns both.
"""

SUMS = ("gram", "projection", "label_square", "examples")
_LAYOUTS = {"features": ("examples, paths, features",), "labels": ("examples", "examples, outputs")}


def sum_batches(first: int, batches: Sequence[Any], with_digests: bool) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """The fields of `FeatureStatistics` for batches from number `first` on, and `sum_batch`'s digest of each."""
    total, digests = None, []
    for number, batch in enumerate(batches, first):
        moments, digest = sum_batch(number, batch, with_digests)
        total = moments if total is None else add_moments(number, total, moments)
        digests.append(digest)
    return total, tuple(digests)


def add_moments(number: int, total: dict[str, Any], moments: dict[str, Any]) -> dict[str, Any]:
    """Two sets of sums as one; `ValueError` where batch `number`, whose the second are, is of another shape."""
    before, here = map(_shape, (total, moments))
    if before != here:
        raise ValueError(
            f"batch {number} does not fit those before it: its (paths, features, outputs) are {here}, theirs {before}"
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
    features, labels = _read(number, batch)
    examples, paths, width = features.shape
    flat, targets = features.reshape(examples, paths * width), labels.reshape(examples, -1)
    # what is not finite, or too large to square, is looked for in the sums, of which there are fewer
    with np.errstate(all="ignore"):
        moments = {"gram": flat.T @ flat, "projection": flat.T @ targets, "label_square": np.sum(targets**2)}
    if not all(np.all(np.isfinite(moment)) for moment in moments.values()):
        _refuse_values(number, features, labels)
    digest = digest_of_batch(number, (features, labels)) if with_digest else b""
    return {**moments, "examples": examples, "paths": paths}, digest


def digest_of_batch(number: int, batch: Any) -> bytes:
    """A hash by which the values of a batch are known again, exactly; raises as `sum_batch` does."""
    digest = hashlib.sha256()
    for array in _read(number, batch):
        digest.update(f"{array.shape} ".encode())
        digest.update(np.ascontiguousarray(array) + 0.0)  # -0.0 is 0
    return digest.digest()


def _read(number: int, batch: Any) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels as float64 arrays, one for one."""
    pair = batch() if callable(batch) else batch
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"batch {number} must be a pair (features, labels), got {type(pair).__name__}")
    features, labels = (_array(number, name, value) for name, value in zip(_LAYOUTS, pair, strict=True))
    if len(features) != len(labels):
        raise ValueError(f"batch {number}: features has {len(features)} examples, labels has {len(labels)}")
    return features, labels


def _array(number: int, name: str, value: Any) -> np.ndarray:
    is_plain = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) and value.dtype.kind in "fiub"
    if not is_plain:
        # imports JAX, for which a worker has no use otherwise
        from ...arguments import real_array

        value = real_array(f"batch {number}: {name}", value)
    if value.ndim not in {1 + layout.count(",") for layout in _LAYOUTS[name]} or not value.size:
        wanted = " or ".join(f"({layout})" for layout in _LAYOUTS[name])
        raise ValueError(f"batch {number}: {name} must have shape {wanted}, none of them zero, got {value.shape}")
    return np.asarray(value, dtype=np.float64)


def _refuse_values(number: int, features: np.ndarray, labels: np.ndarray) -> None:
    """Raise for what makes the sums of a batch other than finite."""
    from ...arguments import checked_array

    for name, array in zip(_LAYOUTS, (features, labels), strict=True):
        checked_array(f"batch {number}: {name}", array)
    largest = max(float(np.max(np.abs(array))) for array in (features, labels))
    raise ValueError(f"batch {number}: products of values as large as {largest:.3g} are beyond double precision")
