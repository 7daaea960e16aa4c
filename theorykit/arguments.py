"""What public functions admit as arguments: each check returns the value it admits, or raises an error that names it.

`TypeError` where the value is of another kind than asked for, `ValueError` where it is out of range. Traced values
(inside jit or vmap) are checked for kind and shape here, and for content when the compiled function runs.
"""

import math
import operator
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

Kind = TypeVar("Kind")


def is_traced(*values: Any) -> bool:
    """True if any leaf of `values` is a JAX tracer, whose content cannot be looked at."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def checked_instance(name: str, value: Any, kind: type[Kind] | tuple[type, ...], example: str = "") -> Kind:
    """`value`, an instance of `kind`; `example` says in the error how to make one."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(each.__name__ for each in kinds)
    raise TypeError(f"{name} must be {wanted}{f' ({example})' if example else ''}, got {shown(value)}")


def checked_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """`value`, one of the strings `choices`."""
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {shown(value)}")


def checked_flag(name: str, value: Any) -> bool:
    """`value`, True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {shown(value)}")


def checked_whole_number(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int: a whole number within [least, most], not a boolean, not a float even if it is whole."""
    if is_traced(value):
        raise TypeError(f"{name} must be a whole number that is known before anything is traced, got {shown(value)}")
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {shown(value)}") from None
    if (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(f"{name} must be {_whole_range(least, most)}, got {number}")
    return number


def _whole_range(least: int | None, most: int | None) -> str:
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"from {least} to {most}"


def checked_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> Any:
    """`value` as it came: one finite real number, > above, >= least, <= most and < below where these are given."""
    if not is_traced(value):
        _check_is_number(name, value)
    elif jnp.ndim(value) != 0:
        raise TypeError(f"{name} must be one number, got an array of shape {jnp.shape(value)}")
    bounds = (
        (above, operator.gt, ">"),
        (least, operator.ge, ">="),
        (most, operator.le, "<="),
        (below, operator.lt, "<"),
    )
    given = [(bound, holds, sign) for bound, holds, sign in bounds if bound is not None]
    requirement = " and ".join(["finite", *(f"{sign} {bound:g}" for bound, _, sign in given)])
    if is_traced(value):
        valid = jnp.isfinite(value)
        for bound, holds, _ in given:
            valid = valid & holds(value, bound)
        return eqx.error_if(value, ~valid, f"{name} must be {requirement}")
    if not math.isfinite(value) or not all(holds(value, bound) for bound, holds, _ in given):
        raise ValueError(f"{name} must be {requirement}, got {shown(value)}")
    return value


def _check_is_number(name: str, value: Any) -> None:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be a number, got {shown(value)}") from None
    if isinstance(value, int) and not isinstance(value, bool) and array.dtype == object:
        raise ValueError(f"{name} is beyond the range of double precision: {shown(value)}")
    if array.ndim != 0 or array.dtype.kind not in "iuf" or np.ma.isMaskedArray(value):
        raise TypeError(f"{name} must be a number, got {shown(value)}")


def checked_key(name: str, value: Any) -> Any:
    """`value`, one JAX random key, of either kind that JAX has."""
    if isinstance(value, jax.Array):
        is_typed = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
        if (is_typed and value.shape == ()) or (value.dtype == jnp.uint32 and value.shape == (2,)):
            return value
    raise TypeError(f"{name} must be a random key such as jax.random.key(0), got {shown(value)}")


def checked_path(name: str, value: Any) -> Path:
    """`value`, the text or path of a place on disk, as a path."""
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return Path(os.fspath(value))
    raise TypeError(f"{name} must be a path, got {shown(value)}")


def shown(value: Any) -> str:
    """`value` as an error message shows it: short, an array by its type and shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and value.shape != ():
        return f"an array of {value.dtype} of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
