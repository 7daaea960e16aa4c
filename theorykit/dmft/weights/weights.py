"""Weights of a 1-bit self-attention network: random, in segments, or given; and the classes of their columns.

Four families of patterns, output, value, query and key, are rows of +-1 over the semantic bits of a token (one a
neuron) and over its positional bits.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int8, Integer, PRNGKeyArray

from ...checks import checked_array, checked_key, checked_whole_number

FAMILIES = ("output", "value", "query", "key")
"""The four kinds of weights, in the order of the first axis of their arrays."""


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of a network of M patterns a family, N neurons and P positional bits.

    - `semantic`: `(families, patterns, neurons)`, `positional`: `(families, patterns, position_bits)`, entries +-1,
      families in the order of `FAMILIES`.

    Raises `ValueError` for other entries, for shapes that do not fit, and where there are no patterns.
    """

    semantic: Integer[np.ndarray, "*_"]
    positional: Integer[np.ndarray, "*_"]

    def __post_init__(self):
        for name in ("semantic", "positional"):
            object.__setattr__(self, name, _signs(getattr(self, name), name))
        if self.semantic.shape[:2] != self.positional.shape[:2]:
            raise ValueError(
                f"semantic weights are of {self.semantic.shape[:2]} (families, patterns), positional ones of "
                f"{self.positional.shape[:2]}"
            )

    @property
    def patterns(self) -> int:
        """M, patterns of each family."""
        return self.semantic.shape[1]

    @property
    def neurons(self) -> int:
        """N, entries of the semantic part of a pattern."""
        return self.semantic.shape[2]

    @property
    def position_bits(self) -> int:
        """P, entries of the positional part of a pattern."""
        return self.positional.shape[2]


def _signs(values, name: str) -> np.ndarray:
    values = checked_array(name, values)
    if values.ndim != 3 or values.shape[0] != len(FAMILIES):
        raise ValueError(f"{name} weights have shape {values.shape}, not ({len(FAMILIES)}, patterns, bits)")
    if 0 in values.shape:
        raise ValueError(f"{name} weights of shape {values.shape}: there must be a pattern and a bit at least")
    return _signs_of(name, values)


def _signs_of(name: str, values: np.ndarray) -> Int8[np.ndarray, "*_"]:
    wrong = values[~np.isin(values, (-1, 1))]
    if wrong.size:
        raise ValueError(f"{name} weights must be +1 or -1, but {wrong.size} are not, such as {wrong.flat[0]:g}")
    return values.astype(np.int8)


def weights_from_arrays(output, value, query, key, position_bits: int) -> Weights:
    """Weights from four arrays of +-1, each `(patterns, neurons + position_bits)`, positional columns last."""
    given = zip(FAMILIES, (output, value, query, key), strict=True)
    arrays = {family: checked_array(family, array) for family, array in given}
    shapes = {family: array.shape for family, array in arrays.items()}
    checked_whole_number("position_bits", position_bits)
    if len(set(shapes.values())) > 1 or len(shapes["output"]) != 2:
        raise ValueError(f"all families must be (patterns, neurons + position_bits), got {shapes}")
    if not 1 <= position_bits < shapes["output"][1]:
        raise ValueError(f"position_bits={position_bits} of {shapes['output'][1]} columns leave no semantic bit")
    every = np.stack([_signs_of(family, array) for family, array in arrays.items()])
    return Weights(every[..., :-position_bits], every[..., -position_bits:])


def iid_weights(patterns: int, neurons: int, position_bits: int, *, key: PRNGKeyArray) -> Weights:
    """Independent fair signs. Raises `TypeError` or `ValueError` for numbers that are not whole, or below one."""
    _check_sizes(patterns, neurons, position_bits)
    checked_key("key", key)
    semantic, positional = jax.random.split(key)
    return Weights(
        np.asarray(jax.random.rademacher(semantic, (4, patterns, neurons))),
        np.asarray(jax.random.rademacher(positional, (4, patterns, position_bits))),
    )


def segment_weights(
    patterns: int, neurons: int, position_bits: int, *, segments: int = 3, key: PRNGKeyArray
) -> Weights:
    """Fair signs, the same for all neurons of a segment: at most `segments` distinct columns, however many neurons.

    Raises `TypeError` or `ValueError` for numbers that are not whole, or below one, and for more segments than neurons.
    """
    _check_sizes(patterns, neurons, position_bits)
    checked_whole_number("segments", segments, least=1)
    drawn = iid_weights(patterns, segments, position_bits, key=key)
    return Weights(_widen(drawn.semantic, neurons), drawn.positional)


def _check_sizes(patterns: int, neurons: int, position_bits: int, segments: int | None = 1) -> None:
    sizes = {"patterns": patterns, "neurons": neurons, "position_bits": position_bits, "segments": segments}
    for name, size in sizes.items():
        if name != "segments" or size is not None:
            checked_whole_number(name, size, least=1)


def _widen(signs: np.ndarray, neurons: int) -> np.ndarray:
    """Each of the last axis's signs for one of as many segments of neurons, of equal size or nearly so."""
    segments = signs.shape[-1]
    if segments > neurons:
        raise ValueError(f"{neurons} neurons cannot make {segments} segments")
    of_neuron = np.searchsorted([int(i * neurons / segments) for i in range(segments)], np.arange(neurons), "right") - 1
    return signs[..., of_neuron]


def published_weights(
    seed: int = 1, patterns: int = 3, neurons: int = 99, position_bits: int = 2, *, segments: int | None = 3
) -> Weights:
    """The weights that the published program draws from `seed`; with `segments=None` its independent ones.

    Its stream of legacy NumPy integers is drawn in the same order: signs that it does not use, then each family's
    semantic signs, of which segments keep the last as positional ones, then positional signs or those of segments.
    Raises `TypeError` or `ValueError` for numbers that cannot be, with segments also for more positional bits than
    neurons.
    """
    checked_whole_number("seed", seed, least=0, most=2**32 - 1)
    _check_sizes(patterns, neurons, position_bits, segments)
    if segments is not None and position_bits > neurons:
        raise ValueError(
            f"position_bits={position_bits}: with segments, the last of {neurons} semantic signs are positional ones"
        )
    stream = np.random.RandomState(seed)

    def signs(*shape: int) -> np.ndarray:
        return stream.randint(2, size=shape) * 2 - 1

    signs(patterns, neurons)
    semantic = np.stack([signs(patterns, neurons) for _ in FAMILIES])
    if segments is None:
        return Weights(semantic, np.stack([signs(patterns, position_bits) for _ in FAMILIES]))
    return Weights(_widen(signs(len(FAMILIES), patterns, segments), neurons), semantic[..., -position_bits:])


class Columns(NamedTuple):
    """Distinct columns of semantic weights, and how many neurons have each.

    - `signs`: `(classes, families, patterns)`; `counts`: `(classes,)`.
    """

    signs: Int8[np.ndarray, "classes families patterns"]
    counts: np.ndarray


def columns(weights: Weights) -> Columns:
    """The classes of neurons whose weights agree."""
    every = weights.semantic.reshape(-1, weights.neurons)
    distinct, counts = np.unique(every, axis=1, return_counts=True)
    return Columns(distinct.T.reshape(-1, *weights.semantic.shape[:2]), counts)


def position_code(position_bits: int, context: int) -> Int8[np.ndarray, "context position_bits"]:
    """Positions 0 .. context - 1 in binary, most significant bit first, 0 as -1.

    Raises `ValueError` where the bits cannot tell as many positions apart.
    """
    if not 1 <= checked_whole_number("context", context) <= 2**position_bits:
        raise ValueError(
            f"a context of {context} tokens needs positions 0 to {context - 1}, and {position_bits} positional bits "
            f"tell {2**position_bits} apart"
        )
    bits = (np.arange(context)[:, None] >> np.arange(position_bits)[::-1]) & 1
    return (2 * bits - 1).astype(np.int8)


def positional_overlaps(weights: Weights, context: int) -> Float[np.ndarray, "context families patterns"]:
    """r, the mean of a pattern's positional signs times those of each position; the last term of Eq. (1)."""
    code = position_code(weights.position_bits, context)
    return np.einsum("fmp,lp->lfm", weights.positional, code.astype(float)) / weights.position_bits
