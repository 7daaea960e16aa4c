"""Find the leaves of any tree of arguments, and change one of them."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Path = tuple[Any, ...]
_RELATIVE = 1e-12


def leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every leaf with its path: keys of dicts, indices of sequences, names of fields, static ones too."""
    parts = _parts(tree)
    if parts is None:
        yield path, tree
        return
    for step, part in parts:
        yield from leaves(part, (*path, step))


def _parts(tree: Any) -> list[tuple[Any, Any]] | None:
    if isinstance(tree, dict):
        return list(tree.items())
    if isinstance(tree, (tuple, list)):
        return list(enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        # fields that are not given follow from the others
        return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree) if field.init]
    return None


def replaced(tree: Any, path: Path, leaf: Any) -> Any:
    """Return the tree with another leaf at `path`, without calling a constructor."""
    if not path:
        return leaf
    step, *rest = path
    if isinstance(tree, (dict, list)):
        changed = copy.copy(tree)
        changed[step] = replaced(tree[step], tuple(rest), leaf)
        return changed
    if isinstance(tree, tuple):
        parts = [replaced(part, tuple(rest), leaf) if i == step else part for i, part in enumerate(tree)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    changed = object.__new__(type(tree))
    for name, part in vars(tree).items():
        object.__setattr__(changed, name, part)
    object.__setattr__(changed, step, replaced(getattr(tree, step), tuple(rest), leaf))
    return changed


def barely_changed(leaf: Any, entry: int = 0) -> Any:
    """Change a number or one entry of an array by 1e-12 relative, and an integer by one."""
    if isinstance(leaf, (bool, np.bool_)):
        return not leaf
    if isinstance(leaf, str):
        return f"{leaf}?"
    if isinstance(leaf, (int, np.integer)):
        return leaf + 1
    if isinstance(leaf, float):
        return leaf * (1 + _RELATIVE) if leaf else 5e-324
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.fold_in(leaf, 0)
    if isinstance(leaf, (np.ndarray, jax.Array)):
        array = np.array(leaf)
        where = np.unravel_index(entry % max(array.size, 1), array.shape)
        array[where] = barely_changed(array[where].item())
        return jnp.asarray(array) if isinstance(leaf, jax.Array) else array
    return None


def written_otherwise(leaf: Any) -> list[Any]:
    """Return the same number in the types of Python, NumPy and JAX, with as many bits as it needs."""
    if isinstance(leaf, bool) or not isinstance(leaf, (int, float)):
        return []
    if isinstance(leaf, int):
        return [np.int64(leaf), np.int32(leaf), jnp.asarray(leaf), jnp.asarray(leaf, dtype=jnp.int32)]
    fits = abs(leaf) < 3e38 and float(np.float32(leaf)) == leaf
    short = [np.float32(leaf), jnp.float32(leaf)] if fits else []
    return [np.float64(leaf), np.asarray(leaf), jnp.asarray(leaf), jnp.float64(leaf), *short]
