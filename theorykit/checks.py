"""The checks of values that enter the package: arguments of public functions, fields of dataclasses, files.

`checked_arguments` checks a function's arguments against its annotations, and `check_fields` a dataclass's fields. An
annotation is a type, or one that carries a check of its own: `Count` is `Annotated[int, partial(checked_whole_number,
least=1)]`. Each check returns the value that it admits or raises an error that names it: `TypeError` for a value of
another kind, `ValueError` for one that is out of range. Traced values (inside jit or vmap) are checked for kind and
shape here, and for content when the compiled function runs: `require` states both from one condition.

Functions inside the package trust their arguments.
"""

import collections.abc
import dataclasses
import functools
import inspect
import math
import operator
import os
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
from sympy import Expr, expand, sympify
from sympy.matrices.expressions.matexpr import MatrixExpr

from .precision import require_float64

Kind = TypeVar("Kind")
Function = TypeVar("Function", bound=Callable)

_LARGEST_WHOLE = 2**63 - 1
# largest asymmetry, relative to the largest entry, that counts as rounding
_SYMMETRY = 1e-8


def is_traced(*values: Any) -> bool:
    """True if any leaf of `values` is a JAX tracer, whose content cannot be looked at."""
    # a loop, not a generator: it runs many times in every call
    for leaf in jax.tree.leaves(values):  # noqa: SIM110
        if isinstance(leaf, jax.core.Tracer):
            return True
    return False


class Requirement(NamedTuple):
    """A condition on numbers, and how an error words it.

    - `message`: names the value and says what it must be.
    - `holds`: a truth value, or an array of them that must all be true; traced if the numbers are.
    - `known`: the error where the numbers are known, if it says more than `message`.
    """

    message: str
    holds: Any
    known: Callable[[], str] | None = None


def require(value: Kind, requirements: Iterable[Requirement]) -> Kind:
    """Return `value` if every requirement holds; those after a known one that does not are not asked for.

    Conditions that are traced are checked when the compiled function runs, where the returned value is used: results
    that do not depend on it are not guarded.

    Raises:
        ValueError: a known condition does not hold. Under jit, vmap and grad the error is Equinox's or JAX's own,
            with the same message.
    """
    return guard(value, refuse_known(requirements))


def refuse_known(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Raise `ValueError` for the first known condition that does not hold; return the traced ones, for `guard`."""
    traced = []
    for requirement in requirements:
        if isinstance(requirement.holds, jax.core.Tracer):
            traced.append(requirement)
        elif not np.all(requirement.holds):
            raise ValueError(requirement.known() if requirement.known else requirement.message)
    return traced


def guard(value: Kind, traced: Sequence[Requirement]) -> Kind:
    """`value`, whose use is an error at run time if a traced condition does not hold: one check for all of them."""
    # of no arrays, as the attention of a network without heads, there is nothing to use
    if not traced or not jax.tree.leaves(value):
        return value
    broken = jnp.stack([~jnp.all(requirement.holds) for requirement in traced])
    messages = [requirement.message for requirement in traced]
    return eqx.branched_error_if(value, jnp.any(broken), jnp.argmax(broken), messages)


def array_module(*values: Any) -> Any:
    """`jax.numpy` for traced values; `numpy` for known ones, whose results stay known while a function is traced."""
    return jnp if is_traced(*values) else np


def on_host(value: Any) -> Any:
    """A known number or array as NumPy's, and a traced one as it is.

    Operations on known arrays of JAX are traced inside a function that is; those on NumPy's are not.
    """
    return value if is_traced(value) else np.asarray(value)


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


def first_line(error: Exception) -> str:
    """What an error of someone else's function says, for an error in a line that names the argument."""
    return str(error).strip().partition("\n")[0]


def by_name(name: str, values: Any, what: str = "numbers and arrays by symbol or name") -> dict[str, Any]:
    """Values of a mapping by the names of its keys, which are symbols or names.

    Raises:
        TypeError: `values` is no mapping.
        ValueError: two keys have the same name, so one value would hide the other.
    """
    checked_instance(name, values, Mapping, what)
    found: dict[str, Any] = {}
    for key, value in values.items():
        called = getattr(key, "name", key)
        if called in found:
            raise ValueError(
                f"{name} gives {shown(called)} twice: a symbol and its name, or two symbols of the same name, stand "
                "for one value"
            )
        found[called] = value
    return found


def checked_text(name: str, value: Any) -> str:
    """`value`, text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be text, got {shown(value)}")
    if not value:
        raise ValueError(f"{name} must be text that is not empty, got {shown(value)}")
    return value


def checked_flag(name: str, value: Any) -> bool:
    """`value`, True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {shown(value)}")


def checked_whole_number(name: str, value: Any, *, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int: a whole number within [least, most], not a boolean, not a float even if it is whole.

    Nor one beyond 64 bits, which no array can count or hold.
    """
    if is_traced(value):
        raise TypeError(f"{name} must be a whole number that is known before anything is traced, got {shown(value)}")
    # time differences of NumPy count as integers
    if isinstance(value, (bool, np.bool_, np.timedelta64)):
        raise TypeError(f"{name} must be a whole number, got {shown(value)}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {shown(value)}") from None
    if (least is not None and number < least) or (most is not None and number > most):
        raise ValueError(f"{name} must be {_whole_range(least, most)}, got {shown(number)}")
    if not -_LARGEST_WHOLE <= number <= _LARGEST_WHOLE:
        raise ValueError(f"{name} is beyond 64 bits: {shown(number)}")
    return number


def check_is_whole(name: str, traced: Any) -> None:
    """Raise `TypeError` unless a traced value is one whole number."""
    check_is_number(name, traced)
    if not jax.dtypes.issubdtype(traced.dtype, np.integer):
        raise TypeError(f"{name} must be a whole number, got {shown(traced)}")


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
    check_is_number(name, value)
    bounds = (
        (above, operator.gt, ">"),
        (least, operator.ge, ">="),
        (most, operator.le, "<="),
        (below, operator.lt, "<"),
    )
    given = [(bound, holds, sign) for bound, holds, sign in bounds if bound is not None]
    requirement = " and ".join(["finite", *(f"{sign} {bound:g}" for bound, _, sign in given)])
    message = f"{name} must be {requirement}"
    # whole numbers of Python are too large for NumPy where they are for 64 bits
    valid = jnp.isfinite(value) if is_traced(value) else math.isfinite(value)
    for bound, holds, _ in given:
        valid = valid & holds(value, bound)
    return require(value, [Requirement(message, valid, lambda: f"{message}, got {shown(value)}")])


def check_is_number(name: str, value: Any) -> None:
    """Raise `TypeError` unless `value` is one real number; `ValueError` where it is known to be beyond float64."""
    if is_traced(value):
        if jnp.ndim(value) != 0:
            raise TypeError(f"{name} must be one number, got an array of shape {jnp.shape(value)}")
        if not any(jax.dtypes.issubdtype(value.dtype, kind) for kind in (np.floating, np.integer)):
            raise TypeError(f"{name} must be a number, got {shown(value)}")
        return
    try:
        # whole numbers of Python know no bounds
        array = np.asarray(float(value)) if type(value) is int else np.asarray(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond the range of double precision: {shown(value)}") from None
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {shown(value)}") from None
    if array.ndim != 0 or array.dtype.kind not in "iuf" or np.ma.isMaskedArray(value):
        raise TypeError(f"{name} must be a number, got {shown(value)}")


def checked_array(name: str, value: Any, axes: str | None = None) -> Any:
    """`value` as a float64 array, every entry finite, with as many axes as `axes` names, none of them empty.

    Whatever NumPy reads as an array of integers or floating-point numbers is admitted: arrays of NumPy, JAX, xarray and
    pandas, and nested sequences of numbers; booleans count as 0 and 1. `TypeError` for all else: complex numbers, text,
    dates, records, objects, and masked arrays, also those with nothing masked, for the mask of the next would be lost.
    Returns a NumPy array, of a traced value a traced one; `axes` is not checked if it is None.
    """
    array = numeric_array(name, value, axes)
    return require(array, [finite_entries(name, array)])


def numeric_array(name: str, value: Any, axes: str | None = None) -> Any:
    """`checked_array`, whose entries need not be finite: kind and axes are checked, of traced values too."""
    value = value if axes is None else in_order_of_names(name, value, axes)
    if is_traced(value):
        array = jnp.asarray(value)
        check_dtype(name, array.dtype, value)
        array = jnp.asarray(array, dtype=jnp.float64)
    else:
        array = real_array(name, value)
    check_axes(name, array.shape, axes)
    return array


# the axes that the documentation names besides examples, in the singular, and other words for some
_KNOWN_AXES = {"head", "key", "query", "token", "path", "feature", "output"}
_AXES = {"sample": "example", "observation": "example", "batch": "example", "querie": "query"}


def _named_axes(value: Any) -> tuple[Any, ...]:
    # xarray's own, or what names its axes likewise
    axes = getattr(value, "dims", ())
    return axes if isinstance(axes, tuple) and hasattr(value, "indexes") and hasattr(value, "transpose") else ()


def _axis(name: Any) -> str:
    singular = str(name).lower().removesuffix("s")
    return _AXES.get(singular, singular)


def axis_names(value: Any) -> tuple[str, ...]:
    """Return the names of an array's axes in the singular, and none for an array without named axes."""
    return tuple(_axis(name) for name in _named_axes(value))


def in_order_of_names(name: str, value: Any, axes: str) -> Any:
    """Return an array with named axes, such as xarray's, in the order of `axes`; any other value as it is.

    Names match in the singular or plural. Names that say nothing of the order leave it as it is.

    Raises:
        ValueError: the axes are named as in `axes`, but are in another order and not all there.
    """
    given = _named_axes(value)
    if not given:
        return value
    names, wanted = ([_axis(axis) for axis in each] for each in (given, axes.split()))
    if all(axis not in wanted or (i < len(wanted) and wanted[i] == axis) for i, axis in enumerate(names)):
        return value
    if sorted(names) != sorted(wanted) or len(set(names)) < len(names):
        raise ValueError(
            f"{name} must have the axes ({', '.join(axes.split())}), got ({', '.join(map(str, given))}) of shape "
            f"{np.shape(value)}: rename the axes, or give its .values in that order"
        )
    return value.transpose(*(given[names.index(axis)] for axis in wanted))


def check_aligned(**arrays: Any) -> None:
    """Raise `ValueError` for arrays with named axes whose examples have other coordinates than those of the first."""
    first = None
    for name, array in arrays.items():
        axes = _named_axes(array)
        examples = [axis for axis in axes if _axis(axis) == "example"]
        if not examples and not any(_axis(axis) in _KNOWN_AXES for axis in axes):
            examples = list(axes[:1])
        for axis in [axis for axis in examples if axis in array.indexes]:
            index = array.indexes[axis]
            if first is None:
                first = name, index, axis
            elif not first[1].equals(index):
                raise ValueError(f"{first[0]} and {name} have other coordinates along {first[2]}: align them first")


def finite_array(name: str, value: ArrayLike, axes: str | None = None) -> Array:
    """`checked_array` as an array of JAX, once double precision is on."""
    require_float64()
    return jnp.asarray(checked_array(name, value, axes))


def float64_array(name: str, value: ArrayLike, axes: int | None = None) -> Array:
    """`value` as a float64 array of so many axes, finite or not: that is checked where it is used."""
    require_float64()
    array = jnp.asarray(numeric_array(name, value))
    if axes is not None and array.ndim != axes:
        raise ValueError(f"{name} must have {axes} axes, got shape {array.shape}")
    return array


def checked_positive_definite(
    name: str, matrix: ArrayLike, size: int, *, singular: bool = False
) -> Float[Array, "size size"]:
    """A symmetric positive definite `size x size` matrix; with `singular` a semidefinite one, up to rounding."""
    array = finite_array(name, matrix)
    if array.shape != (size, size):
        raise ValueError(f"{name} must have shape {(size, size)}, got {array.shape}")
    array = checked_symmetric(name, array)
    numbers = array if is_traced(matrix) else np.asarray(matrix, dtype=np.float64)
    values = array_module(numbers).linalg.eigvalsh(numbers)
    message = f"{name} is not positive {'semidefinite' if singular else 'definite'}"

    def known() -> str:
        measured = f"{message}: smallest eigenvalue {values[0]:.3g}"
        if singular:
            return measured
        return f"{measured}; order parameters measured on fewer hidden units than paths are singular, for example"

    return require(array, [Requirement(message, _are_positive(values, singular), known)])


def _are_positive(values: Array | np.ndarray, singular: bool) -> Array | np.bool_:
    """Whether sorted eigenvalues are positive, or, with `singular`, below zero by no more than rounding."""
    rounding = 8 * len(values) * np.finfo(np.float64).eps
    return values[0] >= -rounding * values[-1] if singular else values[0] > 0


def checked_symmetric(name: str, matrix: ArrayLike) -> Float[Array, "size size"]:
    """A symmetric matrix, up to rounding."""
    array = finite_array(name, matrix, "rows columns")
    if array.shape[0] != array.shape[1]:
        raise ValueError(f"{name} must be square, got {array.shape}")
    numbers = array if is_traced(matrix) else np.asarray(matrix, dtype=np.float64)
    asymmetry, message = abs(numbers - numbers.T).max(), f"{name} is not symmetric"
    is_symmetric = asymmetry <= _SYMMETRY * abs(numbers).max()
    known = f"{message}: entries differ from the transpose's by up to {{:.3g}}{{}}".format
    return require(
        array, [Requirement(message, is_symmetric, lambda: known(asymmetry, single_precision_note(numbers)))]
    )


def single_precision_note(array: np.ndarray) -> str:
    """Return what an error adds if all entries are numbers of single precision, and not of half precision alone."""
    with np.errstate(over="ignore"):
        is_single = np.array_equal(array, np.asarray(array, np.float32))
        is_shorter = np.array_equal(array, np.asarray(array, np.float16))
    if not is_single or is_shorter:
        return ""
    return "; the entries are in single precision, whose rounding is 6e-8 of each: compute them in double precision"


def finite_entries(name: str, array: Any) -> Requirement:
    """That every entry of an array is finite."""

    def known() -> str:
        bad = np.argwhere(~np.isfinite(array))
        index = tuple(int(i) for i in bad[0])
        first = f"the first {np.asarray(array)[index]} at index {index}"
        return (
            f"{name} has {len(bad)} entries that are not finite, {first}; "
            "check the data for missing values or a division by zero"
        )

    is_finite = array_module(array).isfinite(array)
    return Requirement(f"{name} has entries that are not finite", is_finite, known)


def real_array(name: str, value: Any) -> np.ndarray:
    """`checked_array` of a value that is known, of any shape, and whose entries need not be finite."""
    if _is_masked(value):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost; give the entries that count, as .compressed() or "
            ".filled(...) return them"
        )
    if isinstance(value, jax.Array) and not (value.is_fully_addressable or value.is_fully_replicated):
        raise ValueError(
            f"{name} lies on devices of several processes, and this one cannot read it whole; "
            "jax.experimental.multihost_utils.process_allgather(array, tiled=True) brings it to every process"
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} must be an array of real numbers, got {shown(value)}: is it ragged?") from None
    check_dtype(name, array.dtype, value)
    return np.asarray(array, dtype=np.float64)


def _is_masked(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_is_masked, value))
    return isinstance(value, np.ma.MaskedArray)


def check_dtype(name: str, dtype: Any, value: Any) -> None:
    """Raise `TypeError` unless entries of `dtype` are real numbers; booleans are."""
    # JAX's own floating-point types are none of NumPy's
    is_number = any(jax.dtypes.issubdtype(dtype, kind) for kind in (np.floating, np.integer, np.bool_))
    # time differences count as integers
    if not is_number or dtype.kind == "m":
        raise TypeError(f"{name} must be an array of real numbers, got {shown(value)}{_UNREAL.get(dtype.kind, '')}")


_UNREAL = {
    "c": ": give its real part if that is meant",
    "M": ": dates are no numbers",
    "m": ": divide time differences by a unit of time",
    "U": ": text is not converted to numbers",
    "S": ": bytes are not converted to numbers",
    "V": ": choose one of the fields of its records",
    "O": ": entries must be numbers, rows of equal length, and sparse arrays made dense",
}


def check_axes(name: str, shape: tuple[int, ...], axes: str | None) -> None:
    """Raise `ValueError` unless a `shape` has as many axes as `axes` names, none of them empty."""
    if axes is None:
        return
    names = axes.split()
    if len(shape) != len(names):
        raise ValueError(f"{name} must have shape ({', '.join(names)}), got {shape}")
    for axis, size in zip(names, shape, strict=True):
        if size == 0:
            raise ValueError(f"{name} has zero {axis}: shape {shape}")


def checked_sequence(name: str, value: Any, what: str, length: int | None = None) -> tuple:
    """The entries of `value`, an iterable of `what`, as a tuple, of as many as `length` says; no text, no mapping."""
    if isinstance(value, (str, bytes, Mapping, Set)) or not has_entries(value):
        raise TypeError(f"{name} must be a sequence of {what}, got {shown(value)}")
    if _is_masked(value):
        raise TypeError(f"{name} must be a sequence of {what}, got a masked array, whose mask would be lost")
    entries = tuple(value)
    if length is not None and len(entries) != length:
        raise ValueError(f"{name} must be {length} {what}, got {len(entries)}")
    return entries


def has_entries(value: Any) -> bool:
    """Whether `value` can be iterated over."""
    # arrays of no axes are iterable by their type
    return isinstance(value, Iterable) and getattr(value, "shape", None) != ()


def checked_function(name: str, value: Any) -> Any:
    """`value`, something that can be called."""
    if callable(value):
        return value
    raise TypeError(f"{name} must be a function, got {shown(value)}")


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
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python refuses to write out whole numbers of very many digits
        text = f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else object.__repr__(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def checked_expression(name: str, value: Any) -> Expr:
    """`value`, a scalar or matrix expression; a finite number of Python becomes one of SymPy."""
    if isinstance(value, Expr):
        return value
    # whole numbers of Python know no bounds
    is_float = isinstance(value, float) and math.isfinite(value)
    if is_float or (isinstance(value, int) and not isinstance(value, bool)):
        return sympify(value)
    raise TypeError(f"{name} must be an expression of SymPy, got {shown(value)}")


def checked_scalar(name: str, value: Any) -> Expr:
    """`value`, an expression that is no matrix."""
    expression = checked_expression(name, value)
    if expression.is_Matrix:
        raise ValueError(f"{name} must be a scalar expression, got one of shape {expression.shape}")
    return expression


def checked_matrix(name: str, value: Any) -> MatrixExpr:
    """`value`, a matrix expression."""
    if isinstance(value, MatrixExpr):
        return value
    raise TypeError(f"{name} must be a matrix expression of SymPy, got {shown(value)}")


def checked_square(name: str, value: Any) -> MatrixExpr:
    """`value`, a matrix expression with as many rows as columns."""
    if not are_equal_sizes(*checked_matrix(name, value).shape):
        raise ValueError(f"{name} must be a square matrix expression, got {shown(value)} of shape {value.shape}")
    return value


def are_equal_sizes(size: Expr, other: Expr) -> bool:
    """Whether two sizes are the same, however their products are written."""
    return size == other or expand(size - other) == 0


def checked_column(name: str, value: Any) -> MatrixExpr:
    """`value`, a matrix expression of one column."""
    if checked_matrix(name, value).shape[1] != 1:
        raise ValueError(f"{name} must be a column, got {shown(value)} of shape {value.shape}")
    return value


def checked_factors(name: str, values: Any) -> tuple[MatrixExpr, ...]:
    """`values`, matrix expressions, or none."""
    matrices = checked_sequence(name, values, "matrix expressions")
    return tuple(checked_matrix(f"{name}[{i}]", matrix) for i, matrix in enumerate(matrices))


def checked_matrices(name: str, values: Any) -> tuple[MatrixExpr, ...]:
    """`values`, at least one matrix expression."""
    if matrices := checked_factors(name, values):
        return matrices
    raise ValueError(f"{name} must be at least one matrix expression, got none")


def checked_size(name: str, value: Any) -> Expr:
    """`value`, a whole number above zero, or an expression that may be one."""
    size = checked_scalar(name, value)
    if size.is_integer is False or size.is_positive is False:
        raise ValueError(f"{name} must be a whole number above zero, got {shown(value)}")
    return size


def checked_sizes(name: str, values: Any) -> tuple[Expr, Expr]:
    """`values`, two sizes."""
    first, second = checked_sequence(name, values, "sizes", length=2)
    return checked_size(f"{name}[0]", first), checked_size(f"{name}[1]", second)


# annotations that carry their check
Count = Annotated[int, partial(checked_whole_number, least=1)]
"""A whole number of at least 1."""
Index = Annotated[int, partial(checked_whole_number, least=0)]
"""A whole number of at least 0."""
Positive = Annotated[float, partial(checked_number, above=0.0)]
"""A finite number above 0."""
NonNegative = Annotated[float, partial(checked_number, least=0.0)]
"""A finite number of at least 0."""
Key = Annotated[Any, checked_key]
"""A JAX random key."""
Expression = Annotated[Expr | int | float, checked_expression]
"""A scalar or matrix expression, or a number."""
Scalar = Annotated[Expr | int | float, checked_scalar]
"""An expression that is no matrix, or a number."""
SquareMatrix = Annotated[MatrixExpr, checked_square]
"""A square matrix expression."""
Column = Annotated[MatrixExpr, checked_column]
"""A matrix expression of one column."""
Size = Annotated[Expr | int, checked_size]
"""A whole number above 0, or an expression that may be one."""


@functools.cache
def _annotations_of(function: Callable) -> dict[str, Any]:
    return typing.get_type_hints(function, include_extras=True)


_OF_TYPE = {
    str: checked_text,
    bool: checked_flag,
    int: checked_whole_number,
    float: checked_number,
    Path: checked_path,
}


def checked_arguments(function: Function) -> Function:
    """`function`, which raises `TypeError` for an argument that is not what its annotation says."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def checked(*arguments, **keywords):
        # not before the first call, when all that annotations speak of is there
        kinds = _annotations_of(function)
        bound = signature.bind(*arguments, **keywords)
        for name, value in bound.arguments.items():
            if name in kinds and not _is_default(value, signature.parameters[name].default):
                bound.arguments[name] = _argument(signature.parameters[name], value, kinds[name])
        return function(*bound.args, **bound.kwargs)

    return checked


def _argument(parameter: inspect.Parameter, value: Any, kind: Any) -> Any:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return tuple(checked(f"{parameter.name}[{i}]", each, kind) for i, each in enumerate(value))
    if parameter.kind is parameter.VAR_KEYWORD:
        return {name: checked(name, each, kind) for name, each in value.items()}
    return checked(parameter.name, value, kind)


def check_fields(instance: Any) -> None:
    """Raise `TypeError` for a field of a dataclass that is not what its annotation says; for `__post_init__`."""
    kinds = _annotations_of(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not _is_default(value, field.default):
            object.__setattr__(instance, field.name, checked(field.name, value, kinds[field.name]))


def _is_default(value: Any, default: Any) -> bool:
    """True for no text where the default is none, too."""
    return value is default or (isinstance(value, str) and isinstance(default, str) and value == default)


def checked(name: str, value: Any, kind: Any) -> Any:
    """`value`, which is of `kind`, an annotation; entries of sequences as a tuple."""
    if kind is Any:
        return value
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        check = kind.__metadata__[0]
        return check(name, value) if callable(check) else checked(name, value, parts[0])
    if origin in (types.UnionType, typing.Union):
        return _one_of(name, value, parts)
    if origin is typing.Literal:
        return checked_choice(name, value, parts)
    if origin is collections.abc.Callable:
        return checked_function(name, value)
    if origin is collections.abc.Mapping:
        return _mapping(name, value, parts)
    if origin is tuple and parts[-1] is not ...:
        entries = checked_sequence(name, value, "entries", length=len(parts))
        return tuple(checked(f"{name}[{i}]", *pair) for i, pair in enumerate(zip(entries, parts, strict=True)))
    if origin in (tuple, collections.abc.Sequence, collections.abc.Iterable):
        entries = checked_sequence(name, value, f"{_called(parts[0])}")
        return tuple(checked(f"{name}[{i}]", entry, parts[0]) for i, entry in enumerate(entries))
    if origin is list:  # stays the same list
        for i, entry in enumerate(checked_instance(name, value, list)):
            checked(f"{name}[{i}]", entry, parts[0])
        return value
    if kind in _OF_TYPE:
        return _OF_TYPE[kind](name, value)
    return checked_instance(name, value, origin or kind) if isinstance(origin or kind, type) else value


def _mapping(name: str, value: Any, parts: tuple[Any, ...]) -> Mapping:
    checked_instance(name, value, Mapping)
    return {
        checked(f"the key {shown(key)} of {name}", key, parts[0]): checked(f"{name}[{shown(key)}]", entry, parts[1])
        for key, entry in value.items()
    }


def _one_of(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and type(None) in kinds:
        return None
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    if len(kinds) == 1:
        return checked(name, value, kinds[0])
    for kind in kinds:
        try:
            return checked(name, value, kind)
        except (TypeError, ValueError):
            continue
    raise TypeError(f"{name} must be {' or '.join(map(_called, kinds))}, got {shown(value)}")


def _called(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))
