"""Weights of a 1-bit self-attention network, and the law of their columns, which determines the map.

Four families of patterns, output, value, query and key, are rows of +-1 over the semantic bits of a token (one per
neuron) and over its positional bits. In the limit of many neurons the mean of w^alpha tanh(beta w^o . A) is a sum over
classes of neurons with the same output weights up to a sign, since tanh is odd: at most 2^(patterns - 1) of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Float, Int8

from ..checks import Count, Key, Seed, check_fields, checked_arguments, checked_array
from ..symbolic.documents.display import DisplayMixin
from ..symbolic.documents.document import Block, Table, Text
from ..symbolic.documents.values import brief

FAMILIES = ("output", "value", "query", "key")
"""Four kinds of weights, in the order of the first axis of their arrays."""

_Signs = Annotated[Any, checked_array]


@dataclass(frozen=True, eq=False, repr=False)
class Weights(DisplayMixin):
    """Weights of a network with M patterns per family, N neurons and P positional bits. All entries are +-1.

    - `semantic` `(families, patterns, neurons)`: weights of the semantic bits. Families are output, value, query and
      key.
    - `positional` `(families, patterns, position_bits)`: weights of the positional bits.
    """

    semantic: _Signs
    positional: _Signs

    def __post_init__(self):
        check_fields(self)
        for name in ("semantic", "positional"):
            values = getattr(self, name)
            if values.ndim != 3 or values.shape[0] != len(FAMILIES) or 0 in values.shape:
                raise ValueError(f"{name} weights must be ({len(FAMILIES)}, patterns, bits), got shape {values.shape}")
            wrong = values[~np.isin(values, (-1, 1))]
            if wrong.size:
                raise ValueError(
                    f"{name} weights must be +1 or -1, got {wrong.size} other values, such as {wrong.flat[0]:g}"
                )
            object.__setattr__(self, name, values.astype(np.int8))
        (_, patterns, _), (_, others, _) = self.semantic.shape, self.positional.shape
        if patterns != others:
            raise ValueError(f"semantic weights have {patterns} patterns, but positional weights have {others}")

    @property
    def patterns(self) -> int:
        """M, number of patterns of each family."""
        return self.semantic.shape[1]

    @property
    def neurons(self) -> int:
        """N, the number of neurons, or semantic bits of a token."""
        return self.semantic.shape[2]

    @property
    def position_bits(self) -> int:
        """P, the number of positional bits of a token."""
        return self.positional.shape[2]

    def _view(self) -> Iterator[Block]:
        yield Text("Weights of a 1-bit self-attention network: output, value, query and key patterns of signs.")
        yield Table(
            (
                ("patterns of each family, M", str(self.patterns)),
                ("neurons, N", str(self.neurons)),
                ("positional bits, P", f"{self.position_bits}, for up to {2**self.position_bits} tokens"),
                ("distinct columns", str(len(distinct_columns(self)[0]))),
            )
        )
        yield Text("`dmft.self_attention_limit(weights, context)` returns the network in the limit of many neurons.")


@checked_arguments
def weights_from_arrays(output: _Signs, value: _Signs, query: _Signs, key: _Signs, position_bits: int) -> Weights:
    """Build weights from four arrays of +-1 `(patterns, neurons + position_bits)`. The positional columns are last."""
    arrays = dict(zip(FAMILIES, (output, value, query, key), strict=True))
    shapes = {family: array.shape for family, array in arrays.items()}
    if len(set(shapes.values())) > 1 or len(shapes["output"]) != 2:
        raise ValueError(f"all families must be (patterns, neurons + position_bits), got {shapes}")
    if not 1 <= position_bits < shapes["output"][1]:
        raise ValueError(f"position_bits={position_bits} must be less than the {shapes['output'][1]} columns")
    for family, array in arrays.items():
        if not np.isin(array, (-1, 1)).all():
            raise ValueError(f"{family} weights must be +1 or -1")
    every = np.stack(list(arrays.values()))
    return Weights(every[..., :-position_bits], every[..., -position_bits:])


@checked_arguments
def iid_weights(patterns: Count, neurons: Count, position_bits: Count, *, key: Key) -> Weights:
    """Draw independent signs with equal probabilities."""
    semantic, positional = jax.random.split(key)
    return Weights(
        np.asarray(jax.random.rademacher(semantic, (4, patterns, neurons))),
        np.asarray(jax.random.rademacher(positional, (4, patterns, position_bits))),
    )


@checked_arguments
def segment_weights(patterns: Count, neurons: Count, position_bits: Count, *, segments: Count = 3, key: Key) -> Weights:
    """Draw one random column of signs per segment of neurons, so that there are at most `segments` distinct columns."""
    drawn = iid_weights(patterns, segments, position_bits, key=key)
    return Weights(_widen(drawn.semantic, neurons), drawn.positional)


def _widen(signs: np.ndarray, neurons: int) -> np.ndarray:
    """Expand signs of segments, the last axis, to signs of neurons. Segments have equal or nearly equal sizes."""
    segments = signs.shape[-1]
    if segments > neurons:
        raise ValueError(f"neurons={neurons} cannot be divided into {segments} segments")
    of_neuron = np.searchsorted([int(i * neurons / segments) for i in range(segments)], np.arange(neurons), "right") - 1
    return signs[..., of_neuron]


@checked_arguments
def published_weights(
    seed: Seed = 1, patterns: Count = 3, neurons: Count = 99, position_bits: Count = 2, *, segments: Count | None = 3
) -> Weights:
    """Draw the weights of the published program from `seed`. With `segments=None`, signs are independent.

    Example:
        >>> import numpy as np
        >>> from theorykit import dmft
        >>> weights = dmft.published_weights()
        >>> weights.semantic.shape  # (families, patterns, neurons)
        (4, 3, 99)
        >>> len(np.unique(weights.semantic.reshape(12, 99), axis=1).T)  # segments
        3
    """
    if segments is not None and position_bits > neurons:
        raise ValueError(
            f"position_bits={position_bits} must be at most neurons={neurons}: with segments, the last semantic signs "
            "are also the positional signs"
        )
    # Draw from NumPy's legacy generator in the order of the published program: first signs that are not used, then the
    # semantic signs of each family, and last positional signs or signs of segments. With segments, the last semantic
    # signs are kept as positional signs.
    stream = np.random.RandomState(seed)

    def signs(*shape: int) -> np.ndarray:
        return stream.randint(2, size=shape) * 2 - 1

    signs(patterns, neurons)
    semantic = np.stack([signs(patterns, neurons) for _ in FAMILIES])
    if segments is None:
        return Weights(semantic, np.stack([signs(patterns, position_bits) for _ in FAMILIES]))
    return Weights(_widen(signs(len(FAMILIES), patterns, segments), neurons), semantic[..., -position_bits:])


def distinct_columns(weights: Weights) -> tuple[Int8[np.ndarray, "classes families patterns"], np.ndarray]:
    """Return the distinct columns of semantic weights, and the number of neurons with each column."""
    every = weights.semantic.reshape(-1, weights.neurons)
    distinct, counts = np.unique(every, axis=1, return_counts=True)
    return distinct.T.reshape(-1, *weights.semantic.shape[:2]), counts


def positional_overlaps(weights: Weights, context: int) -> Float[np.ndarray, "context families patterns"]:
    """Return r, the overlaps of each pattern's positional signs with each position; the last term of Eq. (1)."""
    most = 2**weights.position_bits
    if not 1 <= context <= most:
        raise ValueError(
            f"context={context} must be at most {most}, the number of positions that {weights.position_bits} "
            "positional bits can encode"
        )
    # Write positions as binary numbers, most significant bit first, with -1 for 0.
    bits = (np.arange(context)[:, None] >> np.arange(weights.position_bits)[::-1]) & 1
    return np.einsum("fmp,lp->lfm", weights.positional, 2.0 * bits - 1) / weights.position_bits


@dataclass(frozen=True, eq=False, repr=False)
class ColumnLaw(DisplayMixin):
    """Law of a neuron's weights, as far as the mean field depends on it; Eq. (6).

    - `directions` `(classes, patterns)`: output weights +-1 of each class of neurons. The first weight is +1.
    - `moments` `(families, classes, patterns)`: sum of the weights of the neurons in each class, divided by the number
      of all neurons.
    """

    directions: Annotated[Any, partial(checked_array, axes="classes patterns")]
    moments: Annotated[Any, partial(checked_array, axes="families classes patterns")]

    def __post_init__(self):
        check_fields(self)
        if not np.isin(self.directions, (-1, 1)).all():
            raise ValueError("directions must be +1 or -1, because they are output weights")
        if self.moments.shape != (len(FAMILIES), *self.directions.shape):
            raise ValueError(f"moments of shape {self.moments.shape} do not fit directions {self.directions.shape}")

    def _view(self) -> Iterator[Block]:
        yield Text("Law of the columns of weights. The mean field depends on the weights only through this law.")
        classes, patterns = self.directions.shape
        rows = [(family, brief(means)) for family, means in zip(FAMILIES, self.moments, strict=True)]
        yield Table((("classes of output weights", str(classes)), ("patterns", str(patterns)), *rows))


@checked_arguments
def column_law(weights: Weights) -> ColumnLaw:
    """Return the law of the columns of `weights`. It stays the same if all neurons are repeated equally often."""
    signs, counts = distinct_columns(weights)
    signs = signs.astype(float)
    signs = signs * signs[:, :1, :1]  # tanh is odd: a column and its negative are in one class
    directions, of_column = np.unique(signs[:, 0], axis=0, return_inverse=True)
    moments = np.zeros((len(directions), *signs.shape[1:]))
    np.add.at(moments, of_column.ravel(), counts[:, None, None] / counts.sum() * signs)
    return ColumnLaw(directions, np.swapaxes(moments, 0, 1))  # Eq. (6)
