"""Single mistakes that would explain how a stated forward map differs from a reference; each has the words for it.

A hypothesis changes what the statement is evaluated with, or adds a term; whether the reference is then a combination
of the statement's terms is found by least squares.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from .trials import Trial, with_attention, with_parameter, with_weights

# no more permutations than these many heads, or blocks, have
_MOST_PERMUTED = 4


@dataclass(frozen=True)
class Change:
    """The statement, evaluated with something else, is the reference.

    - `words`: what differs, as "the reference has ...".
    - `apply`: the trial with something else.
    - `meaning`: the mistake that it most likely is.
    - `is_of_one_number_of_heads`: it says nothing of layers with more heads or blocks.
    """

    words: str
    apply: Callable[[Trial], Trial]
    meaning: str
    is_of_one_number_of_heads: bool = False


@dataclass(frozen=True)
class Extra:
    """A term that the reference may have beside those of the statement.

    - `words`: the term, as `forward` would have it. `kind`: what it is.
    - `value`: the term for a trial, or None where it has none.
    """

    words: str
    kind: str
    value: Callable[[Trial], np.ndarray | None]
    is_of_one_number_of_heads: bool = False


def changes(trial: Trial) -> Iterator[Change]:
    """All changes that can be made to a trial of this structure."""
    if trial.attention is not None:
        yield from _of_attention(len(trial.attention))
    yield from _of_weights(*trial.weights.shape)
    for name, value in trial.parameters.items():
        yield from _of_parameter(name, np.ndim(value) > 0)


def _of_attention(heads: int) -> Iterator[Change]:
    def change(words: str, of: Callable[[np.ndarray], np.ndarray], meaning: str) -> Change:
        return Change(words, lambda trial: with_attention(trial, of), meaning)

    yield change(
        "the transpose of the attention, keys and queries exchanged",
        lambda attention: attention.swapaxes(1, 2),
        "attention is (heads, keys, queries): `hidden @ attention[h]` mixes the tokens. One side has its transpose",
    )
    for order in _orders(heads):
        yield Change(
            f"the heads in the order {tuple(head + 1 for head in order)}",
            lambda trial, order=order: with_attention(trial, lambda attention: attention[list(order)]),
            "heads are permuted: attention of one head meets the weights of another",
            is_of_one_number_of_heads=True,
        )
    if heads > 1:
        yield change(
            "the sum of all heads' attention for each",
            lambda attention: np.broadcast_to(attention.sum(axis=0), attention.shape),
            "each weight block acts on all heads, where one of the two has its own head only",
        )
    yield change(
        "attention that is divided by its sum over queries",
        lambda attention: attention / attention.sum(axis=2, keepdims=True),
        "attention sums to one over keys already; one side normalises it again, over queries",
    )
    for axis, name in ((1, "keys"), (2, "queries")):
        yield change(
            f"a softmax over {name} of the attention",
            lambda attention, axis=axis: _softmax(attention, axis),
            "attention is handed over after its softmax; one side takes the softmax again",
        )
    for words, mask in (("", np.triu), ("anti-", np.tril)):
        yield change(
            f"{words}causal attention, not normalised anew",
            lambda attention, mask=mask: mask(attention),
            "one side masks the attention, which is done where attention is computed: bpkr.attention(..., mask=...)",
        )
        yield change(
            f"{words}causal attention",
            lambda attention, mask=mask: mask(attention) / mask(attention).sum(axis=1, keepdims=True),
            "one side masks the attention, which is done where attention is computed: bpkr.attention(..., mask=...)",
        )
    yield change(
        "attention applied twice",
        lambda attention: attention @ attention,
        "attention mixes the tokens twice on one side",
    )
    yield change(
        "no mixing of tokens",
        lambda attention: np.broadcast_to(np.eye(attention.shape[1]), attention.shape),
        "attention is missing on one side",
    )
    yield change(
        "the mean over tokens for attention",
        lambda attention: np.full_like(attention, 1 / attention.shape[1]),
        "one side takes the mean over tokens, and not attention",
    )


def _of_weights(blocks: int, next_width: int, width: int) -> Iterator[Change]:
    if next_width == width:
        yield Change(
            "the transpose of every weight block",
            lambda trial: with_weights(trial, lambda weights: weights.swapaxes(1, 2)),
            "weights[a] is (next_width, width): `weights[a] @ hidden`. One side has the transpose",
        )
    for order in _orders(blocks):
        yield Change(
            f"the weight blocks in the order {tuple(block + 1 for block in order)}",
            lambda trial, order=order: with_weights(trial, lambda weights: weights[list(order)]),
            "weight blocks are permuted: of independent blocks of one variance the theory is the same, of others not",
            is_of_one_number_of_heads=True,
        )
    if blocks > 1:
        yield Change(
            "the first weight block for all",
            lambda trial: with_weights(trial, lambda weights: np.broadcast_to(weights[:1], weights.shape)),
            "the reference shares one block of weights, and the statement has several: layer.weights(1)",
        )


def _of_parameter(name: str, is_matrix: bool) -> Iterator[Change]:
    powers = {
        f"{name} squared": lambda value: value @ value if is_matrix else value**2,
        f"the inverse of {name}": lambda value: np.linalg.inv(value) if is_matrix else 1 / value,
        f"1 for {name}": lambda value: np.eye(len(value)) if is_matrix else 1.0,
    }
    if is_matrix:
        powers |= {f"the Cholesky factor of {name}": np.linalg.cholesky}
    else:
        powers |= {f"the square root of {name}": np.sqrt, f"-{name}": lambda value: -value}
    for words, change in powers.items():
        yield Change(
            words,
            lambda trial, change=change: with_parameter(trial, name, change),
            f"the parameter {name} enters in another way: a variance for a standard deviation, a power, or left out",
        )


def _orders(count: int) -> list[tuple[int, ...]]:
    """All orders of so many things but their own."""
    return list(permutations(range(count)))[1:] if 1 < count <= _MOST_PERMUTED else []


def _softmax(scores: np.ndarray, axis: int) -> np.ndarray:
    weights = np.exp(scores)
    return weights / weights.sum(axis=axis, keepdims=True)


def extras(trial: Trial) -> tuple[Extra, ...]:
    """Terms that layers commonly have, for a trial of this structure."""
    return (*_of_all_layers(), *_of_blocks(len(trial.weights)))


def _of_blocks(blocks: int) -> Iterator[Extra]:
    """The weights of one block on each token itself, which is no head's then."""
    for block in range(1, blocks):
        is_last = block == blocks - 1
        yield Extra(
            f"weights * hidden, of {'the last block' if is_last else f'block {block + 1}'}",
            "weights that act on each token itself",
            lambda trial, block=-1 if is_last else block: trial.weights[block] @ trial.hidden,
            is_of_one_number_of_heads=not is_last,
        )


def _of_all_layers() -> tuple[Extra, ...]:
    return (
        Extra("layer.hidden", "the skip connection", lambda trial: _if_equal(trial, trial.hidden)),
        Extra(
            "layer.hidden * OneMatrix(layer.tokens, layer.tokens) / layer.tokens",
            "a skip connection that takes the mean over tokens",
            lambda trial: _if_equal(trial, _mean_over_tokens(trial.hidden)),
        ),
        Extra(
            "weights * hidden",
            "weights that act on each token itself",
            lambda trial: np.einsum("amn,nt->mt", trial.weights, trial.hidden),
        ),
        Extra(
            "weights * hidden, of the first block",
            "weights that act on each token itself",
            lambda trial: trial.weights[0] @ trial.hidden,
        ),
        Extra(
            "weights * hidden * mean over tokens",
            "weights that act on the mean over tokens",
            lambda trial: np.einsum("amn,nt->mt", trial.weights, _mean_over_tokens(trial.hidden)),
        ),
        Extra("weights * hidden * attention, a block a head", "attention", _attended),
        Extra(
            "weights * hidden * attention of all heads, of the first block",
            "attention of all heads",
            lambda trial: (
                None if trial.attention is None else trial.weights[0] @ trial.hidden @ trial.attention.sum(axis=0)
            ),
        ),
    )


def _if_equal(trial: Trial, value: np.ndarray) -> np.ndarray | None:
    return value if value.shape == trial.shape else None


def _mean_over_tokens(hidden: np.ndarray) -> np.ndarray:
    return np.broadcast_to(hidden.mean(axis=1, keepdims=True), hidden.shape)


def _attended(trial: Trial) -> np.ndarray | None:
    if trial.attention is None:
        return None
    pairs = zip(trial.weights, trial.attention, strict=False)
    return np.asarray(sum(block @ trial.hidden @ mixing for block, mixing in pairs))
