"""Checks of values where they enter the package. Internal functions do not check theirs.

A check returns the valid value, or raises an error that names the argument and the
value: `TypeError` for a wrong type, `ValueError` for a wrong size or range. The
content of a traced value is checked when the compiled function runs.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from ._compat import require_float64

Kind = TypeVar("Kind")

# The largest integer of JAX.
_LARGEST_WHOLE = 2**63 - 1
_SIGNS = {"above": ">", "least": ">=", "most": "<=", "below": "<"}
_HOLDS = {"above": operator.gt, "least": operator.ge, "most": operator.le, "below": operator.lt}
# Largest asymmetry from rounding, relative to the largest entry.
_SYMMETRY = 1e-8


def is_traced(*values: Any) -> bool:
    """Check whether any leaf of `values` is a JAX tracer, whose content is unknown."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def is_in_traced_code(*values: Any) -> bool:
    """Check whether JAX traces this code: a new array is then traced, or one of `values`."""
    return is_traced(values, jnp.zeros(()))


def refuse_traced(
    name: str, *values: Any, reason: str = "decides in Python what to compute next", anywhere: bool = True
) -> None:
    """Raise `ValueError` for traced `values`, or `anywhere` in code that JAX traces."""
    if is_in_traced_code(values) if anywhere else is_traced(values):
        raise ValueError(f"{name} {reason}, so it cannot run in jax.jit, vmap or grad; call it outside")


def array_module(*values: Any) -> Any:
    """Return `jax.numpy` if any value is traced, and otherwise `numpy`."""
    return jnp if is_traced(*values) else np


def on_host(value: Any) -> Any:
    """Convert a known value to NumPy, so that operations on it are not traced."""
    return value if is_traced(value) else np.asarray(value)


class Requirement(NamedTuple):
    """A condition that must hold everywhere, and its message; `known` makes a better one."""

    message: str
    holds: Any
    known: Callable[[], str] | None = None


def require(value: Kind, requirements: Iterable[Requirement]) -> Kind:
    """Return `value`, or raise `ValueError` for the first requirement that does not hold.

    Traced requirements are checked at run time, if the returned value is used.
    """
    traced = []
    for requirement in requirements:
        if isinstance(requirement.holds, jax.core.Tracer):
            traced.append(requirement)
        elif not np.all(requirement.holds):
            raise ValueError(requirement.known() if requirement.known else requirement.message)
    # The check needs an array; a network without heads has none.
    if not traced or not jax.tree.leaves(value):
        return value
    broken = jnp.stack([~jnp.all(each.holds) for each in traced])
    messages = [each.message for each in traced]
    return eqx.branched_error_if(value, jnp.any(broken), jnp.argmax(broken), messages)


def checked_whole_number(name: str, value: Any, *, least: int = -_LARGEST_WHOLE, most: int = _LARGEST_WHOLE) -> int:
    """Require a whole number within [least, most], also of NumPy, JAX or SymPy, no boolean."""
    number = None
    with suppress(TypeError):
        number = None if isinstance(value, (bool, np.bool_)) else operator.index(value)
    if number is None:
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    if not least <= number <= most:
        wanted = f"at least {least}" if number < least and most == _LARGEST_WHOLE else f"from {least} to {most}"
        raise ValueError(f"{name} must be {wanted}, got {shown(number)}")
    return number


def checked_number(name: str, value: Any, **bounds: float) -> Any:
    """Require one finite real number within `bounds`: above=, least=, most=, below=."""
    number = _real(value)
    if number is None or number.ndim or number.dtype.kind == "b":
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    message, valid = f"{name} must be finite", array_module(number).isfinite(number)
    for kind, bound in bounds.items():
        message += f" and {_SIGNS[kind]} {bound:g}"
        valid = valid & _HOLDS[kind](number, np.float64(bound))
    # Calculations with short integers of NumPy would overflow.
    given = number.item() if isinstance(value, np.generic) or not hasattr(value, "dtype") else value
    return require(given, [Requirement(message, valid, lambda: f"{message}, got {shown(value)}")])


def _real(value: Any) -> Any:
    """Return an array of real numbers or booleans, with NaN if masked, or None for other values."""
    try:
        array = array_module(value).asarray(value)
        if array.dtype == object and all(hasattr(each, "__float__") for each in array.flat):
            array = array.astype(np.float64)
        if np.ma.is_masked(value):
            array = value.astype(np.float64).filled(np.nan)
    except (TypeError, ValueError, OverflowError):
        return None
    # Only JAX knows types such as bfloat16.
    is_real = array.dtype.kind in "biuf" or jax.dtypes.issubdtype(array.dtype, np.floating)
    return array if is_real else None


def checked_array(name: str, value: Any, axes: str | None = None) -> Any:
    """Return a finite float64 array with nonempty `axes`: NumPy's, or a traced one."""
    array = numeric_array(name, value, axes)
    return require(array, [finite_entries(name, array)])


def numeric_array(name: str, value: Any, axes: str | None = None) -> Any:
    """Check like `checked_array`, but allow entries that are not finite."""
    array = _real(value)
    if array is None:
        raise TypeError(f"{name} must be an array of real numbers, got {shown(value)}")
    if axes is not None and (array.ndim != len(axes.split()) or 0 in array.shape):
        raise ValueError(f"{name} must have shape ({', '.join(axes.split())}), got {array.shape}")
    return array_module(array).asarray(array, dtype=np.float64)


def finite_array(name: str, value: ArrayLike, axes: str | None = None) -> Array:
    """Return `checked_array` as a JAX array."""
    require_float64()
    return jnp.asarray(checked_array(name, value, axes))


def finite_entries(name: str, array: Any) -> Requirement:
    """Require that every entry of an array is finite."""

    def known() -> str:
        bad = np.argwhere(~np.isfinite(array))
        at = tuple(map(int, bad[0]))
        return f"{name} is not finite in {counted(len(bad), 'entry')}, the first {array[at]} at index {at}"

    is_finite = array_module(array).isfinite(array)
    return Requirement(f"{name} has entries that are not finite", is_finite, known)


def checked_positive_definite(
    name: str, matrix: ArrayLike, size: int, *, singular: bool = False
) -> Float[Array, "size size"]:
    """Require a positive definite matrix, or a semidefinite one if `singular`."""
    array = finite_array(name, matrix)
    if array.shape != (size, size):
        raise ValueError(f"{name} must have shape {(size, size)}, got {array.shape}")
    numbers = on_host(array)
    values = array_module(numbers).linalg.eigvalsh(numbers)
    rounding = 8 * size * np.finfo(np.float64).eps
    is_positive = values[0] >= -rounding * values[-1] if singular else values[0] > 0
    is_symmetric = abs(numbers - numbers.T).max() <= _SYMMETRY * abs(numbers).max()
    symmetry = Requirement(f"{name} is not symmetric", is_symmetric)
    message = f"{name} is not positive {'semidefinite' if singular else 'definite'}"
    known = partial("{}: smallest eigenvalue {:.3g}".format, message, values[0])
    return require(array, [symmetry, Requirement(message, is_positive, known)])


def checked_instance(name: str, value: Any, kind: type[Kind] | tuple[type, ...], example: str = "") -> Kind:
    """Require an instance of `kind`; the message has `example`, a way to make one."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    wanted = " or ".join(each.__name__.split(".")[-1] for each in kinds)
    more = f" ({example})" if example else ""
    raise TypeError(f"{name} must be of type {wanted}{more}, got {shown(value)}")


def checked_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Require one of the strings `choices`."""
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {shown(value)}")


def checked_sequence(name: str, value: Any, what: str, length: int | None = None) -> tuple:
    """Return the entries of a sequence as a tuple. Text, mappings and sets raise errors."""
    is_other = isinstance(value, (str, bytes, Mapping, Set))
    # Arrays without axes count as Iterable.
    if is_other or not isinstance(value, Iterable) or getattr(value, "shape", None) == ():
        raise TypeError(f"{name} must be a sequence of {what}, got {shown(value)}")
    entries = tuple(value)
    if length is not None and len(entries) != length:
        raise ValueError(f"{name} must have {length} {what}, got {len(entries)}")
    return entries


def checked_function(name: str, value: Any) -> Any:
    """Require a callable."""
    if callable(value):
        return value
    raise TypeError(f"{name} must be a function, got {shown(value)}")


def by_name(name: str, values: Any, what: str = "numbers and arrays by symbol or name") -> dict[str, Any]:
    """Replace symbols among the keys of a mapping by their names, which must differ."""
    checked_instance(name, values, Mapping, what)
    found: dict[str, Any] = {}
    for key, value in values.items():
        called = getattr(key, "name", key)
        if called in found:
            raise ValueError(f"{name} has {shown(called)} twice: symbols of the same name stand for one value")
        found[called] = value
    return found


def shown(value: Any) -> str:
    """Format `value` in at most 80 characters, and arrays by type and shape."""
    if hasattr(value, "dtype") and getattr(value, "shape", ()) != ():
        return f"an array of {value.dtype} of shape {tuple(value.shape)}"
    if hasattr(value, "summary") and not isinstance(value, type):
        return f"a{'n' * type(value).__name__.startswith(tuple('AEIO'))} {type(value).__name__}"
    text = " ".join(repr(value.item() if isinstance(value, np.generic) else value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def counted(count: int, noun: str) -> str:
    """Write a number of things: "1 layer", "2 layers", "3 entries"."""
    plural = f"{noun[:-1]}ies" if noun.endswith("try") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"
