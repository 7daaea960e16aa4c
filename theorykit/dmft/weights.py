"""Weights of a 1-bit self-attention network.

Four families of patterns, output, value, query and key, are rows of +-1 over the semantic bits of a token (one per
neuron) and over its positional bits.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int8, PRNGKeyArray

from ..checks import checked_array, checked_whole_number

FAMILIES = ("output", "value", "query", "key")
"""Four kinds of weights, in the order of the first axis of their arrays."""


class Weights(eqx.Module):
    """Weights of a network with M patterns per family, N neurons and P positional bits. All entries are +-1.

    - `semantic` (families, patterns, neurons): weights of the semantic bits. Families are output, value, query and key.
    - `positional` (families, patterns, position_bits): weights of the positional bits.
    """

    semantic: Int8[np.ndarray, "families patterns neurons"]
    positional: Int8[np.ndarray, "families patterns position_bits"]

    def __init__(self, semantic: Any, positional: Any):
        for name, given in (("semantic", semantic), ("positional", positional)):
            values = np.asarray(checked_array(name, given))
            if values.ndim != 3 or values.shape[0] != len(FAMILIES) or 0 in values.shape:
                raise ValueError(f"{name} weights must be ({len(FAMILIES)}, patterns, bits), got shape {values.shape}")
            if not np.isin(values, (-1, 1)).all():
                raise ValueError(f"{name} weights must be +1 or -1, got {values[~np.isin(values, (-1, 1))][0]:g}")
            setattr(self, name, values.astype(np.int8))
        if self.patterns != self.positional.shape[1]:
            raise ValueError(f"{self.patterns} patterns of semantic, but {self.positional.shape[1]} of positional bits")

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


def weights_from_arrays(output: Any, value: Any, query: Any, key: Any, position_bits: int) -> Weights:
    """Build weights from four arrays of +-1 (patterns, neurons + position_bits). The positional columns are last."""
    arrays = {family: np.asarray(each) for family, each in zip(FAMILIES, (output, value, query, key), strict=True)}
    shapes = {family: array.shape for family, array in arrays.items()}
    if len(set(shapes.values())) > 1 or len(shapes["output"]) != 2:
        raise ValueError(f"all families must be (patterns, neurons + position_bits), got {shapes}")
    checked_whole_number("position_bits", position_bits, least=1, most=shapes["output"][1] - 1)
    every = np.stack(list(arrays.values()))
    return Weights(every[..., :-position_bits], every[..., -position_bits:])


def iid_weights(patterns: int, neurons: int, position_bits: int, *, key: PRNGKeyArray) -> Weights:
    """Draw independent signs with equal probabilities."""
    semantic, positional = jax.random.split(key)
    return Weights(
        jax.random.rademacher(semantic, (4, patterns, neurons)),
        jax.random.rademacher(positional, (4, patterns, position_bits)),
    )


def segment_weights(
    patterns: int, neurons: int, position_bits: int, *, segments: int = 3, key: PRNGKeyArray
) -> Weights:
    """Draw one random column of signs per segment of neurons, so that there are at most `segments` distinct columns."""
    drawn = iid_weights(patterns, segments, position_bits, key=key)
    return Weights(_widen(drawn.semantic, neurons), drawn.positional)


def _widen(signs: np.ndarray, neurons: int) -> np.ndarray:
    """Expand signs of segments, the last axis, to signs of neurons. Segments have equal or nearly equal sizes."""
    segments = signs.shape[-1]
    checked_whole_number("segments", segments, least=1, most=neurons)
    starts = [int(i * neurons / segments) for i in range(segments)]
    return signs[..., np.searchsorted(starts, np.arange(neurons), "right") - 1]


def published_weights(
    seed: int = 1, patterns: int = 3, neurons: int = 99, position_bits: int = 2, *, segments: int | None = 3
) -> Weights:
    """Draw the weights of the published program from `seed`. With `segments=None`, signs are independent.

    Example:
        >>> from theorykit import dmft
        >>> dmft.published_weights().semantic.shape  # (families, patterns, neurons)
        (4, 3, 99)
    """
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
    checked_whole_number("position_bits", position_bits, least=1, most=neurons)
    return Weights(_widen(signs(len(FAMILIES), patterns, segments), neurons), semantic[..., -position_bits:])


def distinct_columns(weights: Weights) -> tuple[Int8[np.ndarray, "classes families patterns"], np.ndarray]:
    """Return the distinct columns of semantic weights, and the number of neurons with each column."""
    every = weights.semantic.reshape(-1, weights.neurons)
    distinct, counts = np.unique(every, axis=1, return_counts=True)
    return distinct.T.reshape(-1, *weights.semantic.shape[:2]), counts


def positional_overlaps(weights: Weights, context: int) -> Float[Array, "context families patterns"]:
    """Return r, the overlaps of each pattern's positional signs with each position; the last term of Eq. (1)."""
    checked_whole_number("context", context, least=1, most=2**weights.position_bits)
    # Write positions as binary numbers, most significant bit first, with -1 for 0.
    bits = (np.arange(context)[:, None] >> np.arange(weights.position_bits)[::-1]) & 1
    return np.einsum("fmp,lp->lfm", weights.positional, 2.0 * bits - 1) / weights.position_bits


def prompt(weights: Weights, bits: Any) -> Float[np.ndarray, "families patterns"]:
    """Return the prompt with the semantic `bits` +-1 (neurons,), as overlaps with the four families of weights."""
    bits = np.asarray(bits, float)
    if bits.shape != (weights.neurons,) or not np.isin(bits, (-1, 1)).all():
        raise ValueError(f"bits must be {weights.neurons} semantic bits +-1, got shape {bits.shape}")
    return weights.semantic @ bits / weights.neurons


def pattern_prompt(weights: Weights, family: int = 0, pattern: int = 0) -> Float[np.ndarray, "families patterns"]:
    """Return the prompt whose semantic bits are a row of the weights, by default the first row of the output family.

    Example:
        >>> from theorykit import dmft
        >>> overlaps = dmft.pattern_prompt(dmft.published_weights())
        >>> overlaps[0].round(2)  # with the output patterns
        array([1.  , 0.33, 0.33])
    """
    checked_whole_number("family", family, least=0, most=len(FAMILIES) - 1)
    checked_whole_number("pattern", pattern, least=0, most=weights.patterns - 1)
    return prompt(weights, weights.semantic[family, pattern])
