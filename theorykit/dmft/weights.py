"""Weights of a 1-bit self-attention network.

Four families of patterns, output, value, query and key, are rows of +-1 over the
semantic bits of a token (one per neuron) and over its positional bits.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int8, PRNGKeyArray

from ..checks import checked_array, checked_whole_number

FAMILIES = ("output", "value", "query", "key")
"""Four kinds of weights, in the order of the first axis of their arrays."""


class Weights(eqx.Module):
    """Weights +-1 of M patterns per family, N neurons and P positional bits.

    - `semantic` (families, patterns, neurons): weights of the semantic bits.
    - `positional` (families, patterns, position_bits): weights of the positional bits.
    """

    semantic: Int8[np.ndarray, "families patterns neurons"]
    positional: Int8[np.ndarray, "families patterns position_bits"]

    def __init__(self, semantic: Any, positional: Any):
        for name, given in (("semantic", semantic), ("positional", positional)):
            values = np.asarray(checked_array(name, given, "families patterns bits"))
            if not np.isin(values, (-1, 1)).all():
                raise ValueError(f"{name} weights must be +1 or -1, got {values[~np.isin(values, (-1, 1))][0]:g}")
            setattr(self, name, values.astype(np.int8))
        shapes = self.semantic.shape[:2], self.positional.shape[:2]
        if shapes[0] != shapes[1] or shapes[0][0] != len(FAMILIES):
            raise ValueError(f"semantic and positional must be ({len(FAMILIES)}, patterns, bits), got {shapes}")

    @classmethod
    def of_arrays(cls, output: Any, value: Any, query: Any, key: Any, position_bits: int) -> Weights:
        """Build weights from four arrays of +-1 (patterns, neurons + position_bits)."""
        every = np.stack([output, value, query, key])
        checked_whole_number("position_bits", position_bits, least=1, most=every.shape[-1] - 1)
        return cls(every[..., :-position_bits], every[..., -position_bits:])

    @classmethod
    def iid(
        cls, patterns: int, neurons: int, position_bits: int, *, segments: int | None = None, key: PRNGKeyArray
    ) -> Weights:
        """Draw signs with equal probabilities, independent, or equal in each segment of neurons."""
        pairs = zip(jax.random.split(key), (neurons if segments is None else segments, position_bits), strict=True)
        semantic, positional = (jax.random.rademacher(each, (len(FAMILIES), patterns, bits)) for each, bits in pairs)
        return cls(_widen(np.asarray(semantic), neurons), positional)

    @classmethod
    def published(
        cls, seed: int = 1, patterns: int = 3, neurons: int = 99, position_bits: int = 2, *, segments: int | None = 3
    ) -> Weights:
        """Draw the weights of the published program. Without segments, signs are independent."""
        # The order is that of the published program, with NumPy's legacy generator: unused
        # signs, semantic signs of each family, and positional signs or signs of segments.
        # With segments, the last semantic signs become the positional signs.
        stream = np.random.RandomState(seed)

        def signs(*shape: int) -> np.ndarray:
            return stream.randint(2, size=shape) * 2 - 1

        signs(patterns, neurons)
        semantic = signs(len(FAMILIES), patterns, neurons)
        if segments is None:
            return cls(semantic, signs(len(FAMILIES), patterns, position_bits))
        checked_whole_number("position_bits", position_bits, least=1, most=neurons)
        return cls(_widen(signs(len(FAMILIES), patterns, segments), neurons), semantic[..., -position_bits:])

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

    def prompt(self, bits: Any = None) -> np.ndarray:
        """Return the overlaps (families, patterns) of a prompt with these semantic bits +-1.

        By default the bits are the first row of output weights.
        """
        bits = np.asarray(checked_array("bits", self.semantic[0, 0] if bits is None else bits))
        if bits.shape != (self.neurons,) or not np.isin(bits, (-1, 1)).all():
            raise ValueError(f"bits must be {self.neurons} semantic bits +-1, got shape {bits.shape}")
        return self.semantic @ bits / self.neurons


def _widen(signs: np.ndarray, neurons: int) -> np.ndarray:
    """Expand signs of segments of nearly equal sizes, the last axis, to signs of neurons."""
    segments = signs.shape[-1]
    checked_whole_number("segments", segments, least=1, most=neurons)
    starts = [int(i * neurons / segments) for i in range(segments)]
    return signs[..., np.searchsorted(starts, np.arange(neurons), "right") - 1]


def distinct_columns(weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct columns (classes, families, patterns), and their neurons."""
    every = weights.semantic.reshape(-1, weights.neurons)
    distinct, counts = np.unique(every, axis=1, return_counts=True)
    return distinct.T.reshape(-1, *weights.semantic.shape[:2]), counts


def positional_overlaps(weights: Weights, context: int) -> np.ndarray:
    """Return r (context, families, patterns), the last term of Eq. (1)."""
    checked_whole_number("context", context, least=1, most=2**weights.position_bits)
    # Positions are binary numbers, most significant bit first, with -1 for 0.
    bits = (np.arange(context)[:, None] >> np.arange(weights.position_bits)[::-1]) & 1
    return np.einsum("fmp,lp->lfm", weights.positional, 2.0 * bits - 1) / weights.position_bits
