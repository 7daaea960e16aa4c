"""Prune attention heads to make a network smaller: Sec. 4.2 of arXiv 2405.15926.

head_scores -> rank_heads -> removable_heads -> without_heads -> a smaller Network
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from sympy import MatrixSymbol

from ...checks import checked_arguments, checked_array, refuse_traced
from ...symbolic.algebra import matrix_terms
from ..specification.layers import Skip
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

    The weight blocks (N_{l+1}, N_l), queries and keys of these heads are removed, and the remaining heads are
    renumbered. If a layer keeps H' of H heads, its forward map divides by sqrt(H') instead of sqrt(H). The remaining
    blocks are therefore multiplied by sqrt(H' / H), or by the factor that a custom layer needs. Prior variances stay
    the same, although the rescaled weights were not drawn from the prior of the smaller network.

    Source: Sec. 4.2 of arXiv 2405.15926.

    Raises:
        ValueError: a head is unknown or repeated, a layer would lose all its heads, or something other than separate
            weight blocks of a layer depends on its number of heads.
    """
    architecture = network.architecture
    removed = _checked_heads("removed", removed, architecture.heads)
    kept = [
        np.array([Head(layer, head) not in removed for head in range(1, count + 1)], dtype=bool)
        for layer, count in enumerate(architecture.heads, 1)
    ]
    kinds = list(architecture.layers)
    for i, (kind, form, keep) in enumerate(zip(architecture.layers, architecture.forms, kept, strict=True)):
        if np.all(keep):
            continue
        if not np.any(keep):
            raise ValueError(f"removed has all {len(keep)} heads of layer {i + 1}; keep at least one")
        inner = kind.layer if isinstance(kind, Skip) else kind
        has_blocks = [factors for _, factors in matrix_terms(form.block_tokens)] == [(form.symbols.attention,)]
        has_field = "heads" in {field.name for field in dataclasses.fields(inner)}
        others = form.gain, form.skip_tokens, *(each for each in form.parameters if isinstance(each, MatrixSymbol))
        if not (has_blocks and has_field) or any(other.has(form.symbols.heads) for other in others):
            raise ValueError(
                f"no head can be removed from layer {i + 1} ({type(kind).__name__}): its number of heads must be a "
                "field, and only its weights may depend on it, with one block per head"
            )
        fewer = dataclasses.replace(inner, heads=int(np.sum(keep)))
        kinds[i] = fewer if inner is kind else dataclasses.replace(kind, layer=fewer)
    smaller, layers = dataclasses.replace(architecture, layers=kinds), []
    for weights, before, after, keep in zip(network.weights, architecture.forms, smaller.forms, kept, strict=True):
        if not np.all(keep):
            # The factor of a weight block in the forward map, such as 1 / sqrt(H), without the factor of the width.
            ((old, _),), ((new, _),) = (matrix_terms(form.block_tokens) for form in (before, after))
            ratio = old.subs(before.symbols.heads, len(keep)) / new.subs(after.symbols.heads, int(np.sum(keep)))
            if not ratio.is_number:
                raise ValueError(f"weights of layer {before.symbols.index} would be multiplied by {ratio}, not a number")
            # Rescale the remaining blocks so that the forward map of fewer heads gives the same result.
            weights = float(ratio) * weights[:, np.repeat(keep, weights.shape[1] // len(keep))]
        layers.append(weights)
    of_layers = [keep for keep in kept if len(keep)]
    parameters = {
        name: arrays and tuple(array[keep] for array, keep in zip(arrays, of_layers, strict=True))
        for name, arrays in vars(network.heads).items()
    }
    weights = (network.embedding, *layers, network.readout_weights)
    return Network.of_weights(smaller, weights, Heads(**parameters), readout=network.readout)


def _checked_heads(name: str, heads: Iterable[Head], counts: Sequence[int]) -> list[Head]:
    heads = list(heads)
    known = {(layer, head) for layer, count in enumerate(counts, 1) for head in range(1, count + 1)}
    for i, head in enumerate(heads):
        if head not in known or head in heads[:i]:
            raise ValueError(f"{name} has {head!r}, which is repeated or not one of the {tuple(counts)} heads")
    return heads
