"""Prune attention heads to make a network smaller: Sec. 4.2 of arXiv 2405.15926.

head_scores -> rank_heads -> removable_heads -> without_heads -> a smaller Network
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from ...checks import checked_arguments, checked_array, counted, refuse_traced
from ..specification.layers import Attention, Skip
from .attention import Heads
from .network import Network


class Head(NamedTuple):
    """An attention head: the number of the layer, and the number of the head in the layer, both counted from 1."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"layer {self.layer}, head {self.head}"


def rank_heads(scores: Sequence[ArrayLike]) -> list[Head]:
    """Return all heads, the least important first. Ties are in the order of layers, and then of heads.

    `scores` has one array (H_l,) per layer, empty for layers without heads, as `head_scores` returns it.

        >>> import numpy as np
        >>> from theorykit import bpkr
        >>> bpkr.rank_heads([np.array([1.0, 0.2]), np.array([0.7])])
        [Head(layer=1, head=2), Head(layer=2, head=1), Head(layer=1, head=1)]
    """
    refuse_traced("rank_heads", scores, reason="returns a list whose order depends on values", anywhere=False)
    ranked = []
    for layer, of_layer in enumerate(scores, 1):
        values = checked_array(f"scores[{layer - 1}]", of_layer, "heads") if np.size(of_layer) else ()
        ranked += [(score, Head(layer, head)) for head, score in enumerate(values, 1)]
    return [head for _, head in sorted(ranked)]


def removable_heads(order: Iterable[Head], head_counts: Sequence[int]) -> list[Head]:
    """Return the heads that can be removed one after another such that every layer keeps at least one.

    Args:
        order: heads in the order of removal, as returned by `rank_heads`.
        head_counts: (H_1, ..., H_L), as in `Architecture.heads`.

    Raises:
        ValueError: a head is unknown or repeated.
    """
    remaining, removable = list(head_counts), []
    for head in _checked_heads("order", order, head_counts):
        if remaining[head.layer - 1] > 1:
            remaining[head.layer - 1] -= 1
            removable.append(head)
    return removable


@checked_arguments
def without_heads(network: Network, removed: Iterable[Head]) -> Network:
    """Return a smaller network without the heads `removed`. Its output is as if their weights were zero.

    The weight blocks, queries and keys of these heads are removed, and the remaining heads are renumbered. If a layer
    keeps H' of H heads, its forward map divides by sqrt(H') instead of sqrt(H), so the remaining blocks are multiplied
    by sqrt(H' / H). Prior variances stay the same, although these weights were not drawn from the prior of the smaller
    network.

    Source: Sec. 4.2 of arXiv 2405.15926.

    Raises:
        ValueError: a head is unknown or repeated, a layer would lose all its heads, or is a custom layer.
    """
    architecture = network.architecture
    removed = _checked_heads("removed", removed, architecture.heads)
    layers, weights, kept = list(architecture.layers), list(network.weights), []
    for i, (layer, count) in enumerate(zip(architecture.layers, architecture.heads, strict=True)):
        keep = np.array([Head(i + 1, head) not in removed for head in range(1, count + 1)], dtype=bool)
        kept += [keep] * bool(count)
        if np.all(keep):
            continue
        inner, left = layer.layer if isinstance(layer, Skip) else layer, int(np.sum(keep))
        if type(inner) is not Attention or not left:
            raise ValueError(
                f"layer {i + 1}, a {type(inner).__name__} of {counted(count, 'head')}, cannot lose {count - left}: it "
                "must be Attention, with or without a skip connection, and keep at least one head"
            )
        layers[i] = Attention(left) if inner is layer else Skip(Attention(left), layer.gain)
        weights[i] = np.sqrt(left / count) * weights[i][:, np.repeat(keep, weights[i].shape[1] // count)]
    parameters = {
        name: arrays and tuple(array[keep] for array, keep in zip(arrays, kept, strict=True))
        for name, arrays in vars(network.heads).items()
    }
    smaller = dataclasses.replace(architecture, layers=layers)
    weights = (network.embedding, *weights, network.readout_weights)
    return Network.of_weights(smaller, weights, Heads(**parameters), readout=network.readout)


def _checked_heads(name: str, heads: Iterable[Head], counts: Sequence[int]) -> list[Head]:
    heads = list(heads)
    known = {(layer, head) for layer, count in enumerate(counts, 1) for head in range(1, count + 1)}
    for i, head in enumerate(heads):
        if head not in known or head in heads[:i]:
            raise ValueError(f"{name} has {head!r}, which is repeated or not one of the {tuple(counts)} heads")
    return heads
