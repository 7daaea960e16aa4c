"""Weights of a 1-bit self-attention network.

Four families of patterns, output, value, query and key, are rows of +-1 over the
semantic bits of a token (one per neuron) and over its positional bits.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Int8

from ..checks import checked_array, checked_whole_number

OUTPUT, VALUE, QUERY, KEY = range(4)
"""Numbers of the families, in the order of the first axis of their arrays."""


class Weights(eqx.Module):
    """Weights +-1 of M patterns per family, N neurons and P positional bits.

    - `semantic` (families, patterns, neurons): weights of the semantic bits.
    - `positional` (families, patterns, position_bits): weights of the positional bits.

    Args:
        signs: +-1 (families, patterns, neurons + position_bits) of the output, value,
            query and key.
        position_bits: Number of the last columns that are positional.
    """

    semantic: Int8[np.ndarray, "families patterns neurons"]
    positional: Int8[np.ndarray, "families patterns position_bits"]

    def __init__(self, signs: Any, position_bits: int):
        values = checked_array("signs", signs, "families patterns bits")
        if len(values) != 4 or not np.isin(values, (-1, 1)).all():
            raise ValueError(f"signs must be +1 or -1 of 4 families, got {np.unique(values)}")
        checked_whole_number("position_bits", position_bits, least=1, most=values.shape[-1] - 1)
        self.semantic, self.positional = np.split(values.astype(np.int8), [-position_bits], axis=-1)

    @classmethod
    def published(
        cls,
        seed: int = 1,
        patterns: int = 3,
        neurons: int = 99,
        position_bits: int = 2,
        segments: int | None = 3,
    ) -> Weights:
        """Draw the weights of the program of Poc-López and Aguilera.

        Neurons form `segments` of equal weights. With None, all weights are independent.
        """
        # As the published program draws, with NumPy's legacy generator: unused, semantic,
        # positional or segment signs. Of segments, the last semantic signs are positional.
        stream = np.random.RandomState(seed)

        def signs(*shape):
            return stream.randint(2, size=shape) * 2 - 1

        signs(patterns, neurons)
        semantic = signs(4, patterns, neurons)
        positional = semantic[..., -position_bits:]
        if segments is None:
            positional = signs(4, patterns, position_bits)
        else:
            checked_whole_number("segments", segments, least=1, most=neurons)
            starts = [int(i * neurons / segments) for i in range(segments)]
            of_neuron = np.searchsorted(starts, np.arange(neurons), "right") - 1
            semantic = signs(4, patterns, segments)[..., of_neuron]
        return cls(np.concatenate([semantic, positional], axis=-1), position_bits)

    def prompt(self, bits: Any = None) -> np.ndarray:
        """Return the overlaps (families, patterns) of a prompt with these semantic bits +-1.

        By default, the bits are the first row of output weights.
        """
        neurons = self.semantic.shape[-1]
        bits = self.semantic[OUTPUT, 0] if bits is None else checked_array("bits", bits)
        if bits.shape != (neurons,) or not np.isin(bits, (-1, 1)).all():
            raise ValueError(f"bits must be {neurons} bits +-1, got shape {bits.shape}")
        return self.semantic @ bits.astype(float) / neurons

    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct columns (classes, families, patterns), and counts (classes,)."""
        columns = self.semantic.reshape(-1, self.semantic.shape[-1])
        distinct, counts = np.unique(columns, axis=1, return_counts=True)
        return distinct.T.reshape(-1, *self.semantic.shape[:2]), counts
