"""Prune attention heads to make a network smaller: Sec. 4.2 of arXiv 2405.15926.

head_scores -> rank_heads -> removable_heads -> without_heads -> a smaller Network
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool
from sympy import MatrixSymbol

from ...checks import (
    Index,
    checked_arguments,
    checked_sequence,
    checked_whole_number,
    counted,
    real_array,
    refuse_traced,
    shown,
)
from ...symbolic.algebra import matrix_terms
from ..specification.layers import Skip
from .attention_heads import KeyQueryHeads, ProjectionHeads
from .network import Network

Keep = Bool[np.ndarray, "_"]  # the heads of a layer to keep


class _Numbers(NamedTuple):
    layer: int
    head: int


class Head(_Numbers):
    """An attention head: the number of the layer, and the number of the head in the layer, both counted from 1."""

    __slots__ = ()

    def __new__(cls, layer: int, head: int) -> Head:
        return super().__new__(cls, checked_whole_number("layer", layer), checked_whole_number("head", head))

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
    ranked = []
    scores = checked_sequence("scores", scores, "arrays (heads,), one per layer")
    refuse_traced("rank_heads", scores, reason="returns a list whose order depends on values", anywhere=False)
    for layer, of_layer in enumerate(scores, 1):
        array = real_array(f"scores[{layer - 1}]", of_layer) if np.size(of_layer) else np.zeros(0)
        if array.ndim != 1 or not np.all(np.isfinite(array)):
            raise ValueError(f"scores of layer {layer} must be finite and of shape (heads,), got {shown(of_layer)}")
        ranked += [(score, Head(layer, head)) for head, score in enumerate(array.tolist(), 1)]
    return [head for _, head in sorted(ranked)]


@checked_arguments
def removable_heads(order: Iterable[Head], head_counts: Sequence[Index]) -> list[Head]:
    """Return the heads that can be removed one after another such that every layer keeps at least one.

    Args:
        order: heads in the order of removal, as returned by `rank_heads`.
        head_counts: (H_1, ..., H_L), as in `Architecture.heads`.

    Raises:
        ValueError: a head is unknown or repeated.
    """
    _check_heads("order", order, head_counts)
    remaining, removable = dict(enumerate(head_counts, 1)), []
    for head in order:
        if remaining[head.layer] > 1:
            remaining[head.layer] -= 1
            removable.append(head)
    return removable


@checked_arguments
def without_heads(network: Network, removed: Iterable[Head]) -> Network:
    """Return a smaller network without the heads `removed`. Its output is as if their weights were zero.

    The weight blocks (N_{l+1}, N_l), queries and keys of these heads are removed, and the remaining heads are
    renumbered. If a layer keeps H' of H heads, its forward map divides by sqrt(H') instead of sqrt(H). The remaining
    blocks are therefore multiplied by sqrt(H' / H), or by the factor that a custom layer needs. Prior variances stay
    the same, although the rescaled weights were not drawn from the prior of the smaller network.

    Source: Sec. 4.2 of arXiv 2405.15926.

    Raises:
        ValueError: a head is unknown or repeated, a layer would lose all its heads, or the heads of a layer do not have
            separate weight blocks.
    """
    architecture = network.architecture
    counts = architecture.heads
    _check_heads("removed", removed, counts)
    if not removed:
        return network
    kept = [
        np.array([Head(layer, head) not in removed for head in range(1, count + 1)], dtype=bool)
        for layer, count in enumerate(counts, 1)
    ]
    smaller_layers = list(architecture.layers)
    for place, (kind, form, keep) in enumerate(zip(architecture.layers, architecture.forms, kept, strict=True)):
        if np.all(keep):
            continue
        layer, heads = f"layer {form.symbols.index} ({type(kind).__name__})", form.symbols.heads
        if not np.any(keep):
            then = "only its skip connection, which has no weights" if form.has_skip else "an output of zero"
            raise ValueError(f"cannot remove all {len(keep)} heads of {layer}, which leaves {then}; keep at least one")
        inner = kind.layer if isinstance(kind, Skip) else kind
        matrices = (symbol for symbol in form.parameters if isinstance(symbol, MatrixSymbol))
        sized = sorted(symbol.name for symbol in matrices if symbol.has(heads))
        causes = {
            "it does not have one weight block per head": [factors for _, factors in matrix_terms(form.block_tokens)]
            != [(form.symbols.attention,)],
            f"the size of its {', '.join(sized)} depends on the number of heads": bool(sized),
            "its skip connection depends on the number of heads": form.gain.has(heads) or form.skip_tokens.has(heads),
            "its number of heads is not a field": "heads" not in {field.name for field in dataclasses.fields(inner)},
        }
        for cause, holds in causes.items():
            if holds:
                raise ValueError(f"no head can be removed from {layer}: {cause}")
        fewer = dataclasses.replace(inner, heads=int(np.sum(keep)))
        smaller_layers[place] = fewer if inner is kind else dataclasses.replace(kind, layer=fewer)
    smaller, layers = dataclasses.replace(architecture, layers=smaller_layers), []
    for weights, before, after, keep in zip(network.weights, architecture.forms, smaller.forms, kept, strict=True):
        if not np.all(keep):
            # The factor of a weight block in the forward map, such as 1 / sqrt(H), without the factor of the width.
            ((all_heads, _),), ((fewer, _),) = (matrix_terms(form.block_tokens) for form in (before, after))
            ratio = all_heads.subs(before.symbols.heads, len(keep)) / fewer.subs(after.symbols.heads, int(np.sum(keep)))
            if not ratio.is_number:
                layer = f"layer {before.symbols.index}"
                raise ValueError(f"no head can be removed from {layer}: its weights would be rescaled by {ratio}")
            # Rescale the remaining blocks so that the forward map of fewer heads gives the same result.
            weights = float(ratio) * weights[:, np.repeat(keep, weights.shape[1] // len(keep))]
        layers.append(weights)
    if not isinstance(network.heads, (KeyQueryHeads, ProjectionHeads)):
        raise ValueError(f"cannot remove {type(network.heads).__name__}: use KeyQueryHeads or ProjectionHeads")
    of_layers = [keep for keep in kept if len(keep)]
    parameters = {
        field.name: arrays and [array[keep] for array, keep in zip(arrays, of_layers, strict=True)]
        for field in dataclasses.fields(network.heads)
        for arrays in [getattr(network.heads, field.name)]
    }
    weights = (network.embedding, *layers, network.readout_weights)
    return Network.of_weights(smaller, weights, type(network.heads)(**parameters), readout=network.readout)


def _check_heads(name: str, heads: tuple[Head, ...], head_counts: Sequence[int]) -> None:
    for i, head in enumerate(heads):
        if not 1 <= head.layer <= len(head_counts):
            raise ValueError(
                f"{name}: there is no {head}: the network has {counted(len(head_counts), 'layer')}, counted from 1"
            )
        count = head_counts[head.layer - 1]
        if not 1 <= head.head <= count:
            raise ValueError(
                f"{name}: there is no {head}: layer {head.layer} has {counted(count, 'head')}, counted from 1"
            )
        if head in heads[:i]:
            raise ValueError(f"{name}: {head} occurs more than once")
