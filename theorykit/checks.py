"""Validate the arguments of public functions. Internal functions do not check theirs.

`checked_arguments` checks a function's arguments against its annotations, and `check_fields` checks the fields of a
dataclass. An annotation is a type, or carries a check: `Count` is `Annotated[int, partial(checked_whole_number,
least=1)]`. A check returns the validated value or raises an error that names the argument: `TypeError` for a wrong
type, `ValueError` for a value out of range. The type and shape of a traced value are checked here, and its content when
the compiled function runs.
"""

import collections.abc
import dataclasses
import functools
import inspect
import math
import operator
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from sympy import Expr, MatrixSymbol, Symbol, Trace, expand, sympify
from sympy.matrices.expressions.matexpr import MatrixExpr

from ._compat import require_float64

Kind = TypeVar("Kind")
Function = TypeVar("Function", bound=Callable)

_LARGEST_WHOLE = 2**63 - 1
# Largest asymmetry, relative to the largest entry, that we attribute to rounding.
_SYMMETRY = 1e-8


def is_traced(*values: Any) -> bool:
    """Check whether any leaf of `values` is a JAX tracer, whose content is unknown."""
    # A loop is faster than a generator.
    for leaf in jax.tree.leaves(values):  # noqa: SIM110
        if isinstance(leaf, jax.core.Tracer):
            return True
    return False


def is_in_traced_code(*values: Any) -> bool:
    """Check whether JAX compiles, maps or differentiates this code: a new array is then traced, or one of `values`."""
    return is_traced(values, jnp.zeros(()))


def refuse_traced(
    name: str, *values: Any, reason: str = "decides in Python what to compute next", anywhere: bool = True
) -> None:
    """Raise `ValueError` in code that JAX compiles, maps or differentiates, for a function that loops in Python.

    If `anywhere` is false, such code may call the function with `values` that are not traced.
    """
    if is_in_traced_code(values) if anywhere else is_traced(values):
        raise ValueError(f"{name} {reason}, so it cannot run in jax.jit, vmap or grad; call it outside")


class Requirement(NamedTuple):
    """A condition that must hold everywhere, and its error message; `known` makes a better one from known values."""

    message: str
    holds: Any
    known: Callable[[], str] | None = None


def require(value: Kind, requirements: Iterable[Requirement]) -> Kind:
    """Return `value`, and raise `ValueError` for the first known requirement that does not hold.

    Equinox checks traced requirements when the compiled function runs, provided that the returned value is used.
    """
    return guard(value, refuse_known(requirements))


def refuse_known(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Raise `ValueError` for the first known requirement that does not hold, and return the traced ones for `guard`."""
    traced = []
    for requirement in requirements:
        if isinstance(requirement.holds, jax.core.Tracer):
            traced.append(requirement)
        elif not np.all(requirement.holds):
            raise ValueError(requirement.known() if requirement.known else requirement.message)
    return traced


def guard(value: Kind, traced: Sequence[Requirement]) -> Kind:
    """Return `value` so that its use raises an error at run time if a traced requirement does not hold."""
    # The check is attached to an array, and a network without heads, for example, has none.
    if not traced or not jax.tree.leaves(value):
        return value
    broken = jnp.stack([~jnp.all(requirement.holds) for requirement in traced])
    return eqx.branched_error_if(value, jnp.any(broken), jnp.argmax(broken), [each.message for each in traced])


def array_module(*values: Any) -> Any:
    """Return `jax.numpy` if any value is traced, and otherwise `numpy`, whose results stay known during tracing."""
    return jnp if is_traced(*values) else np


def on_host(value: Any) -> Any:
    """Convert a known number or array to NumPy, so that operations on it are not traced. Keep traced values."""
    return value if is_traced(value) else np.asarray(value)


def checked_instance(name: str, value: Any, kind: type[Kind] | tuple[type, ...], example: str = "") -> Kind:
    """Require an instance of `kind`; the error message contains `example`, a way to make one."""
    if isinstance(value, kind):
        return value
    wanted = " or ".join(map(_called, kind if isinstance(kind, tuple) else (kind,)))
    raise TypeError(f"{name} must be {wanted}{f' ({example})' if example else ''}, got {shown(value)}")


def checked_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Require one of the strings `choices`."""
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    known = f"{'one of ' if len(choices) > 1 else ''}{', '.join(map(repr, choices))}"
    raise ValueError(f"{name} must be {known}; got {shown(value)}")


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().partition("\n")[0]


def by_name(name: str, values: Any, what: str = "numbers and arrays by symbol or name") -> dict[str, Any]:
    """Replace symbols among the keys of a mapping by their names, which must all differ."""
    checked_instance(name, values, Mapping, what)
    found: dict[str, Any] = {}
    for key, value in values.items():
        called = getattr(key, "name", key)
        if called in found:
            raise ValueError(f"{name} has {shown(called)} twice: symbols of the same name stand for one value")
        found[called] = value
    return found


def checked_text(name: str, value: Any) -> str:
    """Require nonempty text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {shown(value)}")
    if not value:
        raise ValueError(f"{name} must be nonempty text, got {shown(value)}")
    return value


def checked_flag(name: str, value: Any) -> bool:
    """Require True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {shown(value)}")


def checked_whole_number(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """Require an int of at most 64 bits within [least, most]. Booleans and floats, even whole ones, raise an error."""
    if is_traced(value):
        raise TypeError(f"{name} must be a whole number and cannot be traced, got {shown(value)}")
    # NumPy treats time differences as integers.
    if isinstance(value, (bool, np.bool_, np.timedelta64)):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {shown(value)}") from None
    if (least is not None and number < least) or (most is not None and number > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be {bounds if least is not None else f'at most {most}'}, got {shown(number)}")
    if not -_LARGEST_WHOLE <= number <= _LARGEST_WHOLE:
        raise ValueError(f"{name} is beyond 64 bits: {shown(number)}")
    return number


def check_is_whole(name: str, traced: Any) -> None:
    """Raise `TypeError` unless a traced value is one whole number."""
    check_is_number(name, traced)
    if not jax.dtypes.issubdtype(traced.dtype, np.integer):
        raise TypeError(f"{name} must be a whole number, got {shown(traced)}")


def checked_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> Any:
    """Require one finite real number within the given bounds: > above, >= least, <= most, < below."""
    check_is_number(name, value)
    bounds = {
        ">": (operator.gt, above),
        ">=": (operator.ge, least),
        "<=": (operator.le, most),
        "<": (operator.lt, below),
    }
    message = f"{name} must be finite"
    # NumPy has no integers beyond 64 bits.
    valid = jnp.isfinite(value) if is_traced(value) else math.isfinite(value)
    for sign, (holds, bound) in bounds.items():
        if bound is not None:
            message += f" and {sign} {bound:g}"
            valid = valid & holds(value, bound)
    if valid is not True:
        value = require(value, [Requirement(message, valid, lambda: f"{message}, got {shown(value)}")])
    # JAX accepts no larger integers.
    return float(value) if isinstance(value, int) and abs(value) > _LARGEST_WHOLE else value


def check_is_number(name: str, value: Any) -> None:
    """Raise `TypeError` unless `value` is one real number, and `ValueError` if it is known to exceed float64."""
    if is_traced(value):
        if jnp.ndim(value) != 0:
            raise TypeError(f"{name} must be one number, got an array of shape {jnp.shape(value)}")
        if not any(jax.dtypes.issubdtype(value.dtype, kind) for kind in (np.floating, np.integer)):
            raise TypeError(f"{name} must be a number, got {shown(value)}")
        return
    try:
        array = np.asarray(float(value)) if type(value) is int else np.asarray(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond the range of double precision: {shown(value)}") from None
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {shown(value)}") from None
    if array.ndim != 0 or array.dtype.kind not in "iuf" or np.ma.isMaskedArray(value):
        raise TypeError(f"{name} must be a number, got {shown(value)}")


def checked_array(name: str, value: Any, axes: str | None = None) -> Any:
    """Return `value` as a finite float64 NumPy array, or as a traced array, with nonempty `axes`.

    Anything that NumPy reads as an array of real numbers or booleans is valid. Complex numbers, text and masked arrays
    (even with nothing masked) raise an error, because conversion would change them.
    """
    array = numeric_array(name, value, axes)
    return require(array, [finite_entries(name, array)])


def numeric_array(name: str, value: Any, axes: str | None = None) -> Any:
    """Check like `checked_array`, but allow entries that are not finite."""
    value = value if axes is None else in_order_of_names(name, value, axes)
    if is_traced(value):
        array = jnp.asarray(value)
        check_dtype(name, array.dtype, value)
        array = jnp.asarray(array, dtype=jnp.float64)
    else:
        array = real_array(name, value)
    check_axes(name, array.shape, axes)
    return array


# The names of axes in the documentation, other than "example", in the singular.
_KNOWN_AXES = {"head", "key", "query", "token", "path", "feature", "output"}
# Other names that users give to these axes; "querie" is "queries" without its s.
_AXES = {"sample": "example", "observation": "example", "batch": "example", "querie": "query"}


def _named_axes(value: Any) -> tuple[Any, ...]:
    axes = getattr(value, "dims", ())
    return axes if isinstance(axes, tuple) and hasattr(value, "indexes") and hasattr(value, "transpose") else ()


def _axis(name: Any) -> str:
    singular = str(name).lower().removesuffix("s")
    return _AXES.get(singular, singular)


def in_order_of_names(name: str, value: Any, axes: str) -> Any:
    """Transpose an array with named axes, such as an xarray array, to the order of `axes` (singular or plural names).

    Other values are returned unchanged. Raises `ValueError` if the array has only some of the `axes`, in another order.
    """
    given = _named_axes(value)
    if not given:
        return value
    names, wanted = ([_axis(axis) for axis in each] for each in (given, axes.split()))
    if all(axis not in wanted or (i < len(wanted) and wanted[i] == axis) for i, axis in enumerate(names)):
        return value
    if sorted(names) != sorted(wanted) or len(set(names)) < len(names):
        raise ValueError(
            f"{name} must have the axes ({', '.join(axes.split())}), got ({', '.join(map(str, given))}): rename the "
            "axes, or pass its .values in that order"
        )
    return value.transpose(*(given[names.index(axis)] for axis in wanted))


def check_aligned(**arrays: Any) -> None:
    """Raise `ValueError` for arrays with named axes if the coordinates of examples differ from the first array's."""
    first = None
    for name, array in arrays.items():
        axes = _named_axes(array)
        examples = [axis for axis in axes if _axis(axis) == "example"]
        if not examples and _KNOWN_AXES.isdisjoint(map(_axis, axes)):
            examples = axes[:1]
        for axis in [axis for axis in examples if axis in array.indexes]:
            if first is None:
                first = name, array.indexes[axis], axis
            elif not first[1].equals(array.indexes[axis]):
                raise ValueError(f"{first[0]} and {name} have different coordinates along {first[2]}: align them first")


def finite_array(name: str, value: ArrayLike, axes: str | None = None) -> Array:
    """Return `checked_array` as a JAX array."""
    require_float64()
    return jnp.asarray(checked_array(name, value, axes))


def float64_array(name: str, value: ArrayLike, axes: int | None = None) -> Array:
    """Return `value` as a JAX array with `axes` axes. Later checks raise an error for entries that are not finite."""
    require_float64()
    array = jnp.asarray(numeric_array(name, value))
    if axes is not None and array.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got shape {array.shape}")
    return array


def checked_positive_definite(
    name: str, matrix: ArrayLike, size: int, *, singular: bool = False
) -> Float[Array, "size size"]:
    """Require a symmetric positive definite `size x size` matrix, or a semidefinite one if `singular`."""
    array = finite_array(name, matrix)
    if array.shape != (size, size):
        raise ValueError(f"{name} must have shape {(size, size)}, got {array.shape}")
    array = checked_symmetric(name, array)
    numbers = array if is_traced(matrix) else np.asarray(matrix, dtype=np.float64)
    values = array_module(numbers).linalg.eigvalsh(numbers)
    message = f"{name} is not positive {'semidefinite' if singular else 'definite'}"
    example = "" if singular else ", as for order parameters measured on fewer hidden units than paths"
    rounding = 8 * size * np.finfo(np.float64).eps
    is_positive = values[0] >= -rounding * values[-1] if singular else values[0] > 0
    known = partial("{}: smallest eigenvalue {:.3g}{}".format, message, values[0], example)
    return require(array, [Requirement(message, is_positive, known)])


def checked_symmetric(name: str, matrix: ArrayLike) -> Float[Array, "size size"]:
    """Require a symmetric matrix, up to rounding."""
    array = finite_array(name, matrix, "rows columns")
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} must be square, got {array.shape}")
    numbers = array if is_traced(matrix) else np.asarray(matrix, dtype=np.float64)
    asymmetry, message = abs(numbers - numbers.T).max(), f"{name} is not symmetric"

    def known() -> str:
        return f"{message}: entries differ by up to {asymmetry:.3g}{single_precision_note(numbers)}"

    return require(array, [Requirement(message, asymmetry <= _SYMMETRY * abs(numbers).max(), known)])


def single_precision_note(array: np.ndarray) -> str:
    """Return a note for error messages if all entries are float32 numbers and not all are float16 numbers."""
    with np.errstate(over="ignore"):
        is_single = np.array_equal(array, np.asarray(array, np.float32))
        is_shorter = np.array_equal(array, np.asarray(array, np.float16))
    if not is_single or is_shorter:
        return ""
    return "; the entries have single precision (relative rounding 6e-8): compute them in double precision"


def finite_entries(name: str, array: Any) -> Requirement:
    """Require that every entry of an array is finite."""

    def known() -> str:
        bad = np.argwhere(~np.isfinite(array))
        index = tuple(map(int, bad[0]))
        return (
            f"{name} is not finite in {counted(len(bad), 'entry')}, the first {np.asarray(array)[index]} at index "
            f"{index}; check the data for missing values or a division by zero"
        )

    is_finite = array_module(array).isfinite(array)
    return Requirement(f"{name} has entries that are not finite", is_finite, known)


def real_array(name: str, value: Any) -> np.ndarray:
    """Return a known value as a float64 NumPy array of any shape, whose entries need not be finite."""
    if _is_masked(value):
        raise TypeError(f"{name} is a masked array, whose mask would be lost: pass its .compressed() or .filled(...)")
    if isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated):
        raise ValueError(
            f"{name} is on devices of several processes: gather it in every process with "
            "jax.experimental.multihost_utils.process_allgather(array, tiled=True)"
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        # Name two entries of different shapes, such as sequences of different lengths.
        shapes = [np.shape(entry) for entry in value if hasattr(entry, "shape")] if has_entries(value) else []
        other = next((number for number, shape in enumerate(shapes) if shape != shapes[0]), 0)
        given = f"arrays of shape {shapes[0]} and, at {other}, {shapes[other]}" if other else shown(value)
        raise TypeError(f"{name} must be an array of real numbers, got {given}: pad rows to one length") from None
    check_dtype(name, array.dtype, value)
    return np.asarray(array, dtype=np.float64)


def _is_masked(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_masked, value))
    return isinstance(value, np.ma.MaskedArray)


def check_dtype(name: str, dtype: Any, value: Any) -> None:
    """Raise `TypeError` unless entries of `dtype` are real numbers or booleans."""
    # NumPy does not know JAX's types such as bfloat16, so ask JAX. Both treat time differences as integers.
    is_number = any(jax.dtypes.issubdtype(dtype, kind) for kind in (np.floating, np.integer, np.bool_))
    if not is_number or dtype.kind == "m":
        raise TypeError(f"{name} must be an array of real numbers, got {shown(value)}{_UNREAL.get(dtype.kind, '')}")


_UNREAL = {
    "c": ": pass its real part if that is intended",
    "M": ": dates are not numbers",
    "m": ": divide time differences by a unit of time",
    "U": ": text is not converted to numbers",
    "S": ": bytes are not converted to numbers",
    "V": ": select one field of its records",
    "O": ": entries must be numbers, rows must have equal lengths, and sparse arrays must be made dense",
}


def check_axes(name: str, shape: tuple[int, ...], axes: str | None) -> None:
    """Raise `ValueError` unless `shape` has one nonempty axis per name in `axes`."""
    names = () if axes is None else axes.split()
    if axes is not None and len(shape) != len(names):
        column = ": give its one column" if len(names) == 1 and shape[1:] == (1,) else ""
        raise ValueError(f"{name} must have shape ({', '.join(names)}), got {shape}{column}")
    if axes is not None and 0 in shape:
        raise ValueError(f"{name} has zero {names[shape.index(0)]}: shape {shape}")


def checked_sequence(name: str, value: Any, what: str, length: int | None = None) -> tuple:
    """Return the entries of `value`, an iterable of `what`, as a tuple. Text, mappings and sets raise an error."""
    if isinstance(value, (str, bytes, Mapping, Set)) or not has_entries(value):
        raise TypeError(f"{name} must be a sequence of {what}, got {shown(value)}")
    if _is_masked(value):
        raise TypeError(f"{name} must be a sequence of {what}, got a masked array, whose mask would be lost")
    entries = tuple(value)
    if length is not None and len(entries) != length:
        raise ValueError(f"{name} must have {length} {what}, got a sequence of {len(entries)}")
    return entries


def has_entries(value: Any) -> bool:
    """Check whether `value` can be iterated over."""
    # Zero-dimensional arrays count as Iterable, but iterating over them fails.
    return isinstance(value, Iterable) and getattr(value, "shape", None) != ()


def checked_function(name: str, value: Any) -> Any:
    """Require a callable."""
    if callable(value):
        return value
    raise TypeError(f"{name} must be a function, got {shown(value)}")


def checked_key(name: str, value: Any) -> Any:
    """Require one JAX random key, typed or legacy."""
    if isinstance(value, jax.Array):
        is_typed = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
        if (is_typed and value.shape == ()) or (value.dtype == jnp.uint32 and value.shape == (2,)):
            return value
    raise TypeError(f"{name} must be a random key such as jax.random.key(0), got {shown(value)}")


def checked_path(name: str, value: Any) -> Path:
    """Return `value`, text or a path, as a path."""
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        path = Path(os.fspath(value))
        if not path.is_absolute():
            require_working_directory(f"{name}={shown(str(path))} is relative", ", or pass an absolute path")
        return path
    raise TypeError(f"{name} must be a path, got {shown(value)}")


def require_working_directory(what: str, otherwise: str = "") -> None:
    """Raise `FileNotFoundError` if the working directory was deleted, which `what` needs."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{what}, but the working directory was deleted: change to another directory{otherwise}"
        ) from None


def shown(value: Any) -> str:
    """Format `value` for an error message in at most 80 characters. Arrays are shown by type and shape."""
    if hasattr(value, "shape") and hasattr(value, "dtype") and value.shape != ():
        return f"an array of {value.dtype} of shape {tuple(value.shape)}"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if hasattr(value, "shape") and hasattr(value, "columns"):  # a table of pandas or polars
        return f"a {type(value).__name__} of shape {value.shape}"
    if hasattr(value, "summary"):  # The representation of such an object has several lines.
        return f"{'an' if type(value).__name__[0] in 'AEIOU' else 'a'} {type(value).__name__}"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python refuses to print integers with very many digits.
        text = f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else object.__repr__(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def counted(count: int, noun: str) -> str:
    """Write a number of things: "1 layer", "2 layers", "3 entries", "4 classes"."""
    if count == 1:
        return f"1 {noun}"
    noun = re.sub("[^aeiou]y$", lambda end: f"{end[0][0]}ie", noun)
    return f"{count:,} {noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


def checked_expression(name: str, value: Any) -> Expr:
    """Require a scalar or matrix expression. A finite Python number becomes a SymPy number."""
    if isinstance(value, Expr):
        return value
    # Only floats can be infinite, and math.isfinite raises an error for very large integers.
    is_float = isinstance(value, float) and math.isfinite(value)
    if is_float or (isinstance(value, int) and not isinstance(value, bool)):
        return sympify(value)
    raise TypeError(f"{name} must be a SymPy expression, got {shown(value)}")


def checked_scalar(name: str, value: Any) -> Expr:
    """Require a scalar expression. A product of matrices with one entry, such as x^T K x, becomes its trace."""
    expression = checked_expression(name, value)
    if expression.is_Matrix and expression.shape == (1, 1):
        return Trace(expression)
    if expression.is_Matrix:
        raise ValueError(f"{name} must be a scalar expression, got one of shape {expression.shape}")
    return expression


def checked_matrix(name: str, value: Any) -> MatrixExpr:
    """Require a matrix expression."""
    if isinstance(value, MatrixExpr):
        return value
    raise TypeError(f"{name} must be a SymPy matrix expression, got {shown(value)}")


def checked_square(name: str, value: Any) -> MatrixExpr:
    """Require a square matrix expression."""
    if not are_equal_sizes(*checked_matrix(name, value).shape):
        raise ValueError(f"{name} must be a square matrix expression, got {shown(value)} of shape {value.shape}")
    return value


def are_equal_sizes(size: Expr, other: Expr) -> bool:
    """Check whether two sizes are the same, however their products are written."""
    return size == other or expand(size - other) == 0


def checked_column(name: str, value: Any) -> MatrixExpr:
    """Require a matrix expression with one column."""
    if checked_matrix(name, value).shape[1] != 1:
        raise ValueError(f"{name} must be a column, got {shown(value)} of shape {value.shape}")
    return value


def checked_matrices(name: str, values: Any) -> tuple[MatrixExpr, ...]:
    """Require at least one matrix expression."""
    matrices = checked_sequence(name, values, "matrix expressions")
    if not matrices:
        raise ValueError(f"{name} must have at least one matrix expression, got none")
    return tuple(checked_matrix(f"{name}[{i}]", matrix) for i, matrix in enumerate(matrices))


def checked_size(name: str, value: Any) -> Expr:
    """Require a positive integer, or an expression that may be one."""
    size = checked_scalar(name, value)
    if size.is_integer is False or size.is_positive is False:
        raise ValueError(f"{name} must be a whole number above zero, got {shown(value)}")
    if size.is_Integer and size > _LARGEST_WHOLE:
        raise ValueError(f"{name} must be at most 2**63 - 1, got {shown(value)}")
    return size


def checked_sizes(name: str, values: Any) -> tuple[Expr, Expr]:
    """Require two sizes."""
    first, second = checked_sequence(name, values, "sizes", length=2)
    return checked_size(f"{name}[0]", first), checked_size(f"{name}[1]", second)


# Annotations that carry checks.
Count = Annotated[int, partial(checked_whole_number, least=1)]
Index = Annotated[int, partial(checked_whole_number, least=0)]
Seed = Annotated[int, partial(checked_whole_number, least=0, most=2**32 - 1)]
Number = Annotated[Any, checked_number]
Positive = Annotated[float, partial(checked_number, above=0.0)]
"""A finite number above 0."""
NonNegative = Annotated[float, partial(checked_number, least=0.0)]
Key = Annotated[Any, checked_key]
Expression = Annotated[Expr | int | float, checked_expression]
Scalar = Annotated[Expr | int | float, checked_scalar]
SquareMatrix = Annotated[MatrixExpr, checked_square]
Column = Annotated[MatrixExpr, checked_column]
Size = Annotated[Expr | int, checked_size]


@functools.cache
def _annotations_of(function: Callable) -> dict[str, Any]:
    return typing.get_type_hints(function, include_extras=True)


_OF_TYPE = {str: checked_text, bool: checked_flag, int: checked_whole_number, float: checked_number, Path: checked_path}


def checked_arguments(function: Function) -> Function:
    """Decorate `function` so that it checks its arguments against their annotations."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments, **keywords):
        # Resolve annotations at the first call, when every name in them is defined.
        kinds = _annotations_of(function)
        bound = signature.bind(*arguments, **keywords)
        for name, value in bound.arguments.items():
            parameter = signature.parameters[name]
            if name not in kinds or _is_default(value, parameter.default):
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                value = _entries(name, value, kinds[name])
            elif parameter.kind is parameter.VAR_KEYWORD:
                value = {each: checked(each, value[each], kinds[name]) for each in value}
            else:
                value = checked(name, value, kinds[name])
            bound.arguments[name] = value
        return function(*bound.args, **bound.kwargs)

    return call


def check_fields(instance: Any) -> None:
    """Check the fields of a dataclass against their annotations, in `__post_init__`."""
    kinds = _annotations_of(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not _is_default(value, field.default):
            object.__setattr__(instance, field.name, checked(field.name, value, kinds[field.name]))


def _is_default(value: Any, default: Any) -> bool:
    # Equal strings need not be the same object.
    return value is default or (isinstance(value, str) and isinstance(default, str) and value == default)


def checked(name: str, value: Any, kind: Any) -> Any:
    """Check `value` against an annotation and return it. Sequences become tuples."""
    if kind is Any:
        return value
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        check = kind.__metadata__[0]
        return check(name, value) if callable(check) else checked(name, value, parts[0])
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in parts:
            return None
        kinds = tuple(part for part in parts if part is not type(None))
        if len(kinds) == 1:
            return checked(name, value, kinds[0])
        for part in kinds:
            try:
                return checked(name, value, part)
            except (TypeError, ValueError):
                continue
        raise TypeError(f"{name} must be {' or '.join(map(_called, kinds))}, got {shown(value)}")
    if origin is typing.Literal:
        return checked_choice(name, value, parts)
    if origin is collections.abc.Callable:
        return checked_function(name, value)
    if origin is collections.abc.Mapping:
        entries = checked_instance(name, value, Mapping).items()
        keys = [checked(f"the key {shown(key)} of {name}", key, parts[0]) for key, _ in entries]
        values = [checked(f"{name}[{shown(key)}]", entry, parts[1]) for key, entry in entries]
        return dict(zip(keys, values, strict=True))
    if origin is tuple and parts[-1] is not ...:
        entries = checked_sequence(name, value, "entries", length=len(parts))
        return tuple(checked(f"{name}[{i}]", *pair) for i, pair in enumerate(zip(entries, parts, strict=True)))
    if origin in (tuple, collections.abc.Sequence, collections.abc.Iterable):
        return _entries(name, checked_sequence(name, value, _called(parts[0], several=True)), parts[0])
    if origin is list:  # Return the same list, not a copy.
        _entries(name, checked_instance(name, value, list), parts[0])
        return value
    if kind in _OF_TYPE:
        return _OF_TYPE[kind](name, value)
    return checked_instance(name, value, origin or kind) if isinstance(origin or kind, type) else value


def _entries(name: str, values: Iterable, kind: Any) -> tuple:
    return tuple(checked(f"{name}[{i}]", entry, kind) for i, entry in enumerate(values))


# Types by their names in error messages, for readers who do not program.
_NOUNS = {
    **{str: "text", int: "whole number", float: "number", bool: "boolean", bytes: "bytes"},
    **{list: "list", tuple: "tuple", dict: "dictionary", Mapping: "dictionary", Path: "path"},
    **{Expr: "SymPy expression", Symbol: "SymPy symbol", MatrixSymbol: "SymPy matrix symbol"},
}


def _called(kind: Any, *, several: bool = False) -> str:
    """Name a type or an annotation in words: "a number", or "numbers" if `several`."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_called(part, several=several) for part in parts if part is not type(None))
    noun = _NOUNS.get(origin or kind)
    if origin is Annotated:
        check = getattr(kind.__metadata__[0], "func", kind.__metadata__[0])
        name = getattr(check, "__name__", "")
        if not name.startswith("checked_"):
            return _called(parts[0], several=several)
        noun = name.removeprefix("checked_").replace("_", " ")
    name, examples = getattr(kind, "__name__", str(kind)), ""
    if name.startswith("Abstract"):
        noun = name.removeprefix("Abstract").lower()
        made = [each.__name__ for each in kind.__subclasses__() if not each.__name__.startswith(("_", "Abstract"))]
        examples = f" ({', '.join(made[:3])}, ...)"
    if noun is None or noun in ("text", "bytes", "heads"):
        return f"{noun or name}{examples}"
    return f"{counted(2, noun).removeprefix('2 ') if several else f'a {noun}'}{examples}"
