"""Describe a tree of arguments, leaf by leaf, as text that is equal if and only if the values are equal."""

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from pathlib import PurePath
from types import MethodType
from typing import Any

import jax
import numpy as np

# Prefix of the description of a leaf that cannot be distinguished from others.
UNKNOWN = "not known by its values: "
# Number of hexadecimal digits of a hash in a description.
_HEX = 32
_LARGEST = sys.float_info.max


def describe(**arguments: Any) -> dict[str, str]:
    """Describe every leaf and every node of `arguments` by its place, such as "architecture.widths[0]".

    - A number is described by its value without its type: 10, 10.0 and `jnp.float32(10)` are equal, and so are -0.0
      and 0.
    - An array is described by its dtype, its shape and a hash of its values.
    - A random key is described by its implementation and its words.
    - Containers, dataclasses, Equinox modules (including static fields), JAX pytrees, `functools.partial`, and objects
      that pickle can reduce are described part by part, with their types.
    - A function or class is described by its module and name.
    - A function that is not found by its name, such as a lambda, and an object with hidden state are `UNKNOWN`, with
      their type. A run with such arguments cannot be kept.
    """
    found: dict[str, str] = {}

    def add(place: str, value: Any, above: tuple[int, ...]) -> None:
        if (leaf := _leaf(value)) is not None:
            found[place] = leaf
            return
        # A tree that contains itself has no finite description.
        node = None if id(value) in above else _node(value)
        if node is None:
            name = getattr(value, "__qualname__", None)
            text = f"{type(value).__name__} {name}" if isinstance(name, str) else f"an object of {_type_name(value)}"
            found[place] = UNKNOWN + ("a traced value" if isinstance(value, jax.core.Tracer) else text)
            return
        found[place], parts = node
        for suffix, part in parts:
            add(f"{place}{suffix}", part, (*above, id(value)))

    for name, value in arguments.items():
        add(name, value, ())
    return found


def _leaf(value: Any) -> str | None:
    """Describe a value without parts, or return None for other values."""
    if value is None or value is ...:
        return "none" if value is None else "..."
    if isinstance(value, Enum):
        return f"{_type_name(value)}.{value.name}"
    if isinstance(value, (str, PurePath)):
        return repr(str(value))
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes, sha256 {_hash(bytes(value))}"
    if isinstance(value, np.dtype):
        return f"dtype {value.name}"
    if isinstance(value, (bool, int, float, complex)):
        return _number(value)
    if isinstance(value, (np.generic, np.ndarray, jax.Array)):
        return _array(value)
    return _by_name(value) if isinstance(value, type) or callable(value) else None


def _number(value: bool | int | float | complex) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        is_float = abs(value) <= _LARGEST and float(value) == value
        return _number(float(value)) if is_float else str(value)
    if isinstance(value, (float, complex)):
        plain = complex(value) if isinstance(value, complex) else float(value)
        return repr(plain + 0.0).removesuffix(".0")
    return None  # The number has a longer type than double precision.


def _array(value: Any) -> str | None:
    if isinstance(value, jax.core.Tracer) or np.ma.isMaskedArray(value):
        return None
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        words = np.asarray(jax.random.key_data(value))
        kept = " ".join(map(str, words)) if value.ndim == 0 else _hash_array(words)
        return f"random key {jax.random.key_impl(value)} {kept}"
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.names is not None:
        return None
    if array.ndim == 0 and array.dtype.kind not in "mMSU":
        return _number(array.item())
    return f"array of {_hash_array(array)}"


def _hash_array(array: np.ndarray) -> str:
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    values = native + 0 if native.dtype.kind in "fc" else native  # This makes -0.0 equal to 0.
    return f"{array.dtype.name} {array.shape} sha256 {_hash(values.tobytes())}"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_HEX]


def _by_name(value: Any) -> str | None:
    """Return the module and name of a function or class, or None if it cannot be found there."""
    name = getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        return None
    module = getattr(value, "__module__", None) or "numpy"  # Universal functions do not state a module.
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}.{name}" if found is value else None


def _type_name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _node(value: Any) -> tuple[str, Iterable[tuple[str, Any]]] | None:
    """Return the type of a value with parts, and pairs of the suffix of a part's place and the part."""
    if isinstance(value, functools.partial):
        return "partial", [(".func", value.func), (".args", value.args), (".keywords", value.keywords)]
    if isinstance(value, MethodType):
        return f"method {value.__func__.__qualname__}", [(".__self__", value.__self__), (".__func__", value.__func__)]
    if isinstance(getattr(value, "__qualname__", None), str):
        return None  # This function or class cannot be found by its name.
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _type_name(value), [(f".{name}", part) for name, part in zip(value._fields, value, strict=True)]
    if isinstance(value, (tuple, list, range)):
        return f"{len(value)} in order", [(f"[{index}]", part) for index, part in enumerate(value)]
    if isinstance(value, Mapping):
        keys = {_leaf(key): key for key in value}
        if None in keys or len(keys) < len(value):
            return None
        return f"{len(value)} by name", [(f"[{text}]", value[keys[text]]) for text in sorted(filter(None, keys))]
    if isinstance(value, AbstractSet):
        members = [_leaf(member) for member in value]
        if None in members:
            return None
        return f"{len(value)} in no order: {', '.join(sorted(filter(None, members)))}", []
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return _type_name(value), [(f".{name}", getattr(value, name, None)) for name in names]
    try:
        children, static = jax.tree_util.default_registry.flatten_one_level(value)
        parts = [(f"[{index}]", child) for index, child in enumerate(children)]
        return _type_name(value), [*parts, (".static", static)]
    except (TypeError, ValueError):  # This is not a registered pytree, so try to reduce it like pickle.
        pass
    try:
        made = value.__reduce_ex__(2)
    except Exception:  # Any error in the method of the type means that the value cannot be reduced.
        return None
    if isinstance(made, str) or any(items is not None for items in made[3:]):
        return None
    _, arguments, *state = made
    kind, *given = arguments if arguments and isinstance(arguments[0], type) else (type(value), *arguments)
    if _by_name(kind) is None:
        return None
    return _type_name(value), [(".made of", given), (".state", state[0] if state else None)]
