"""Masks: which tokens are real, and which keys each query can attend to."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from ...checks import (
    Requirement,
    array_module,
    axis_names,
    checked_choice,
    in_order_of_names,
    is_traced,
    numeric_array,
    on_host,
    real_array,
    require,
    shown,
)

Isolated = Literal["refuse", "self"]
"""What to do with a query without any key: raise an error, or let it attend to itself."""
Layout = Literal["keys-first", "torch"]
"""The order of the last two axes of attention and masks: (keys, queries), or (queries, keys) as in PyTorch."""
Mask = Literal["causal"] | ArrayLike | tuple[Any, ...]
"""Which keys a query can attend to; see `attention` for all forms."""
AddedScores = Float[Array, "examples heads keys queries"]

# Treat lower numbers as -inf. To forbid attention, libraries add the lowest number of their precision, such as -6e4.
_LOWEST = -1e4

_FORMS = (
    '"causal"; the number of real tokens (examples,); booleans (examples, tokens) that mark real tokens; '
    "booleans (examples, heads, keys, queries), or numbers to add to the scores, with size 1 for an axis along which "
    "they are constant; (keys, queries) if they are the same for all examples and heads; or a tuple of these"
)


def checked_real_tokens(name: str, value: ArrayLike, examples: int, tokens: int) -> Bool[Array, "examples tokens"]:
    """Find the real tokens from their number (examples,), counted from the first, or booleans (examples, tokens)."""
    value = in_order_of_names(name, value, "examples tokens") if len(axis_names(value)) == 2 else value
    kind, shape = _kind(name, value), np.shape(value)
    if shape == (examples,) and kind == "i":
        lengths, message = on_host(value), f"must be from 1 to the {tokens} tokens of inputs"
        fit = (lengths >= 1) & (lengths <= tokens)

        def known() -> str:
            index = int(np.argmin(fit))
            return f"{name}[{index}] {message}, got {lengths[index]}"

        return jnp.arange(tokens) < jnp.asarray(require(value, [Requirement(f"{name} {message}", fit, known)]))[:, None]
    if shape != (examples, tokens) or kind == "f":
        raise ValueError(
            f"{name} must be the number of real tokens of each example ({examples},), or booleans "
            f"({examples}, {tokens}) that mark real tokens, got {shown(value)}"
        )
    real, none = on_host(value), "marks no token of the example as real; every example needs one"
    has_some = (real != 0).any(axis=1)
    conditions = [
        Requirement(f"{name} must be True or False, or 1 or 0, for each token", (real == 0) | (real == 1)),
        Requirement(f"{name} {none}", has_some, lambda: f"{name}[{int(np.argmin(has_some))}] {none}"),
    ]
    return jnp.asarray(require(value, conditions), dtype=bool)


def add_masks(
    mask: Mask | None, examples: int, tokens: int, heads: Sequence[int], isolated: Isolated, layout: Layout | None
) -> AddedScores | None:
    """Return the terms that `mask` adds to the scores, 0 if attention is allowed and otherwise -inf, or None.

    Axes along which the mask is constant have length 1. A query without any key attends to itself if `isolated` is
    "self"; otherwise it raises `ValueError`.
    """
    checked_choice("isolated", isolated, get_args(Isolated))
    if layout is not None:
        checked_choice("layout", layout, get_args(Layout))
    if mask is None:
        return None
    if not (named := named_parts(mask)):
        raise ValueError(f"mask must be {_FORMS}; got an empty tuple")
    added = sum(_added(name, part, examples, tokens, heads, layout) for name, part in named)
    finite = on_host(jnp.all(added < jnp.inf) & ~jnp.any(jnp.isnan(added)))
    added = require(added, [Requirement("mask adds NaN or infinity to scores; use -inf to forbid attention", finite)])
    added = jnp.broadcast_to(added, (*added.shape[:2], tokens, tokens))
    alone = jnp.all(jnp.isneginf(added), axis=2, keepdims=True)
    if isolated == "self":
        return jnp.where(alone & jnp.eye(tokens, dtype=bool), 0.0, added)
    alone, instead = on_host(alone), 'without any key to attend to; pass isolated="self" to let it attend to itself'

    def known() -> str:
        example, head, _, query = (int(index) for index in np.argwhere(alone)[0])
        return f"mask leaves query {query} of example {example}, head {head}, counted from 0, {instead}"

    return require(added, [Requirement(f"mask leaves a query {instead}", ~alone, known)])


def join_masks(
    mask: Mask | None, real: Bool[Array, "examples tokens"] | None, layout: Layout | None = None
) -> Mask | None:
    """Combine `mask` with a mask that forbids attention to tokens that are not `real`."""
    if real is None:
        return mask
    of_keys = real[:, None, None, :] if layout == "torch" else real[:, None, :, None]
    return of_keys if mask is None else (*mask, of_keys) if isinstance(mask, tuple) else (mask, of_keys)


def named_parts(mask: Mask | None) -> list[tuple[str, Any]]:
    """Return the parts of a mask, with their names for error messages."""
    return [(f"mask[{i}]", part) for i, part in enumerate(mask)] if isinstance(mask, tuple) else [("mask", mask)]


def _added(
    name: str, part: Any, examples: int, tokens: int, heads: Sequence[int], layout: Layout | None
) -> AddedScores:
    if isinstance(part, str):
        checked_choice(name, part, ["causal"])
        return _forbidding(jnp.arange(tokens)[:, None] <= jnp.arange(tokens))[None, None]
    names = axis_names(part)
    is_of_tokens = set(names) == {"example", "token"}
    if not is_of_tokens and {"key", "query"} & set(names):
        # Bring named axes into the order of `layout`, with size 1 for missing axes.
        axes = ["example", "head", "query", "key"] if layout == "torch" else ["example", "head", "key", "query"]
        if not set(names) <= set(axes) or len(set(names)) < len(names):
            raise ValueError(
                f"{name} must have axes among (examples, heads, keys, queries), got ({', '.join(map(str, part.dims))})"
            )
        array = np.transpose(np.asarray(part), sorted(range(len(names)), key=lambda axis: axes.index(names[axis])))
        part = np.expand_dims(array, [axis for axis, each in enumerate(axes) if each not in names])
    kind, given = _kind(name, part), np.shape(part)
    if given == (tokens, tokens) and not is_of_tokens and (kind == "f" or tokens != examples):
        part, given = jnp.asarray(part)[None, None], (1, 1, tokens, tokens)
    if is_of_tokens or (len(given) == 1 and kind == "i") or (len(given) == 2 and kind in "ib"):
        is_ambiguous = given == (tokens, tokens) and not is_of_tokens
        if is_ambiguous and (is_traced(part) or not np.all(np.asarray(part) == 1)):
            of_keys = "None, None, :" if layout == "torch" else "None, :, None"
            raise ValueError(
                f"{name} of shape {given} is ambiguous, because there are as many examples as tokens: pass "
                f"{name}[:, {of_keys}] if it marks the real tokens of each example, or {name}[None, None] if it marks "
                f"the keys that each query may attend to, the same in all examples"
            )
        return _forbidding(checked_real_tokens(name, part, examples, tokens)[:, None, :, None])
    if len(given) != 4:
        raise ValueError(f"{name} must be {_FORMS}; got {shown(part)}")
    # A mask that is constant over keys would forbid nothing or everything, so the other axis must be the keys.
    is_torch = layout == "torch" or (layout is None and given[2] == 1 < given[3])
    order, other = ("queries, keys", "keys-first") if is_torch else ("keys, queries", "torch")
    for count in heads:
        shape = (examples, count, tokens, tokens)
        if any(size not in (1, whole) for size, whole in zip(given, shape, strict=True)):
            raise ValueError(f"{name} of shape {given} does not fit attention (examples, heads, {order}) of {shape}")
    if given[3 if is_torch else 2] == 1 < given[2 if is_torch else 3]:
        raise ValueError(
            f"{name} of shape {given}, (examples, heads, {order}), is the same for all keys, so it forbids nothing or "
            f'everything; pass layout="{other}" if its axes are in the other order'
        )
    if kind == "b":
        added = _forbidding(jnp.asarray(part))
    else:
        numbers = numeric_array(name, part)
        is_no_flag = ((numbers != 0) & (numbers != 1)).any() | (numbers != 1).all()
        conditions = [
            Requirement(f"{name} adds NaN or infinity to scores; use -inf to forbid attention", numbers < np.inf),
            Requirement(f"{name} adds only 0 and 1 to scores; give booleans if 1 means allowed", is_no_flag),
        ]
        numbers = jnp.asarray(require(numbers, conditions))
        added = jnp.where(numbers <= _LOWEST, -jnp.inf, numbers)
    added = jnp.swapaxes(added, 2, 3) if is_torch else added
    if layout == "keys-first":
        return added
    # Reject masks with which queries attend only to later tokens, like a causal mask with axes in the other order. Also
    # reject masks in which this holds for blocks of tokens, like a causal mask with a prefix that attends to itself.
    allowed = jnp.any(added > -jnp.inf, axis=(0, 1))
    allowed = on_host(jnp.broadcast_to(allowed, (tokens, tokens)))
    keys, queries = np.arange(tokens)[:, None], np.arange(tokens)
    earlier, later = keys < queries, keys > queries
    module = array_module(allowed)
    # The earliest key that each query, and all later queries, can attend to.
    earliest = module.minimum.accumulate(module.argmax(allowed, axis=0)[::-1])[::-1]
    last_block_is_alone = (earliest[1:] >= np.arange(1, tokens)).any() & (allowed | earlier).all()
    is_valid = ((allowed & earlier).any() | ~(allowed & later).any()) & ~last_block_is_alone
    message = (
        f"{name} forbids queries to attend to earlier tokens, but not to later ones: its axes are in the other order, "
        f'or True marks forbidden keys. Pass mask="causal", layout="{other}", or the inverse mask. If the mask is '
        'correct, pass layout="keys-first" and an array (examples, heads, keys, queries)'
    )
    return require(added, [Requirement(message, is_valid)])


def _forbidding(allowed: Bool[Array, "..."]) -> Float[Array, "..."]:
    return jnp.where(allowed, 0.0, -jnp.inf)


def _kind(name: str, value: Any) -> str:
    """Return "b" for booleans, "i" for whole numbers, and "f" for others."""
    if not is_traced(value):
        real_array(name, value)
        value = np.asarray(value)
    dtype = jax.dtypes.result_type(value)
    return "b" if jnp.issubdtype(dtype, jnp.bool_) else "i" if jnp.issubdtype(dtype, jnp.integer) else "f"
