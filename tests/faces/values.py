"""Values that a caller may pass by mistake, and the kinds of parameters, each with the mistaken values it admits."""

import inspect
import math
import tempfile
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import scipy.sparse

from theorykit.checks import checked_key, checked_number, checked_whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)

# by name, as a report calls them; none of these may stand for any parameter unless its kind admits it
MISTAKES: Mapping[str, Any] = {
    "None": None,
    "an object": object(),
    "a class": int,
    "a function": lambda *arguments, **keywords: None,
    "text": "text",
    "empty text": "",
    "bytes": b"22",
    "an empty list": [],
    "a list of objects": [object(), object()],
    "a ragged list": [[1.0], [1.0, 2.0]],
    "a list of text": ["1", "2"],
    "a dictionary": {"a": 1},
    "a set": {1, 2},
    "NaN": math.nan,
    "infinity": math.inf,
    "-1": -1,
    "0": 0,
    "1": 1,
    "1.5": 1.5,
    "-0.5": -0.5,
    "10**400": 10**400,
    "2**64": 2**64,
    "a complex number": 1 + 2j,
    "True": True,
    "a decimal": Decimal("1.5"),
    "a date": np.datetime64("2024-05-24"),
    "a time difference": np.timedelta64(3, "D"),
    "a masked number": np.ma.masked,
    "an array of seven axes": np.ones((1, 2, 1, 2, 1, 2, 1)),
    "an empty array": np.zeros((0,)),
    "an array of text": np.array(["1.0", "2.0"]),
    "an array of objects": np.array([object(), None]),
    "an array of NaN": np.full(3, math.nan),
}
NUMBERS = ("-1", "0", "1", "1.5", "-0.5", "2**64")
NONE, EMPTY, TEXTS = ("None",), ("an empty list", "an empty array"), ("a list of text", "an array of text")
BATCHES = ("with one axis more", "with seven axes", "an array of seven axes")


@dataclass(frozen=True)
class Kind:
    """The valid and invalid values of a parameter.

    - `example`: a function that makes a valid value; called once.
    - `admits`: the names of mistakes that are valid for this parameter.
    - `also`: more invalid values by name, for example of the right type but for another architecture.
    - `called`: other names of the parameter that the error may use.
    """

    example: Callable[[], Any]
    admits: Collection[str] = ()
    also: Callable[[], Mapping[str, Any]] = dict
    called: tuple[str, ...] = ()


def kind_of(value: Any) -> Kind:
    """Return the kind of a parameter for which `value` is valid.

    Integers must be at least 1, and other numbers above 0. Text must be one of a few words. Arrays must have finite
    numbers and a fixed number of axes.
    """
    match value:
        case Kind():
            return value
        case bool():
            return Kind(lambda: value, ("True",))
        case int():
            return whole_number(value, least=1)
        case float():
            return number(value, above=0.0)
        case np.ndarray():
            return Kind(lambda: value, also=lambda: unlike(np.asarray(value, dtype=np.float64)))
        case Path():
            return Kind(lambda: value, ("text",))
        case types.FunctionType():
            return Kind(lambda: value, ("a function",))
    has_entries = type(value) in (list, tuple, dict) and len(value)
    return Kind(lambda: value, also=lambda: wrong_entries(value) if has_entries else {})


def annotated_kind(parameter: inspect.Parameter) -> Kind | None:
    """Return the kind that follows from a parameter's annotation and default, or None if it needs an example."""
    default = None if parameter.default is parameter.empty else parameter.default
    return _annotated(parameter.annotation, default)


def _annotated(annotation: Any, default: Any) -> Kind | None:
    parts = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case types.UnionType | typing.Union if set(parts) == {Path, str, type(None)}:
            return of(None, admits=("None", "text"))
        case types.UnionType | typing.Union if type(None) in parts and len(parts) == 2:
            (rest,) = set(parts) - {type(None)}
            kind = _annotated(rest, default)
            return kind and replace(kind, admits=(*kind.admits, "None"))
        case typing.Literal:
            return kind_of(parts[0])
        case typing.Annotated:
            check, bounds = getattr(parts[1], "func", parts[1]), getattr(parts[1], "keywords", {})
            least = bounds.get("least", -math.inf)
            if check is checked_whole_number:
                return whole_number(max(2, least) if default is None else default, **bounds)
            if check is checked_number:
                return number(max(0.5, least) if default is None else default, **bounds)
            return KEY if check is checked_key else None
    simple = {bool: bool(default), str: text("text"), int: default or 2, float: default or 0.5}
    return kind_of(simple[annotation]) if annotation in simple else None


def wrong_entries(right: list | tuple | dict) -> Mapping[str, Any]:
    """Return collections like `right` with one mistaken entry."""
    if isinstance(right, dict):
        (key, value), *others = right.items()
        return {"by number": {1: value, **dict(others)}, "with an object": {**right, key: object()}}
    first, *others = right
    if isinstance(first, (np.ndarray, jax.Array)):
        names = ("with a NaN", "complex", "masked", "of dates", "of numbers as text", "of objects")
        entries = {name: wrong for name, wrong in unlike(np.asarray(first)).items() if name in names}
    elif isinstance(first, (int, float)):
        entries = {"text": "1", "None": None, "NaN": math.nan, "infinity": math.inf, "an array": np.ones((2, 2))}
    else:
        entries = {"a number": 1} if isinstance(first, str) else {"text": "text"}
    entries = {f"with one that is {name}": type(right)([wrong, *others]) for name, wrong in entries.items()}
    return {"one alone": first, "with an object": type(right)([object(), *others]), **entries}


def of(example: Any, *called: str, admits: Collection[str] = (), **wrong: Any) -> Kind:
    """The kind of `example`, with mistakes that are right, and further values that are `wrong`, by name."""
    kind = kind_of(example)
    return replace(
        kind, admits=(*kind.admits, *admits), also=lambda: {**kind.also(), **wrong}, called=(*kind.called, *called)
    )


def number(
    example: float,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> Kind:
    """A finite number within the bounds."""
    values = {name: MISTAKES[name] for name in NUMBERS}
    within = [name for name, value in values.items() if least <= value <= most and above < value < below]
    return Kind(lambda: example, within)


def whole_number(example: int, *, least: float = -math.inf, most: float = math.inf) -> Kind:
    """A whole number within [least, most]."""
    return Kind(lambda: example, [name for name in ("-1", "0", "1") if least <= MISTAKES[name] <= most])


def text(example: str) -> Kind:
    """Any text that is not empty."""
    return Kind(lambda: example, ("text",))


KEY = of(jax.random.key(0), two_keys=jax.random.split(jax.random.key(0)))


def unlike(right: np.ndarray) -> Mapping[str, Any]:
    """Return arrays shaped like `right` whose entries are not finite real numbers, and arrays of other shapes."""
    with_nan, with_infinity = right.copy(), right.copy()
    with_nan.flat[-1], with_infinity.flat[0] = math.nan, math.inf
    wrong: dict[str, Any] = {
        "with a NaN": with_nan,
        "with an infinity": with_infinity,
        "complex": right + 0j,
        "masked": np.ma.masked_array(right, mask=np.arange(right.size).reshape(right.shape) == 0),
        "masked, with nothing masked": np.ma.masked_array(right),
        "of dates": np.full(right.shape, np.datetime64("2024-05-24")),
        "of time differences": np.full(right.shape, np.timedelta64(3, "D")),
        "of numbers as text": right.astype(str),
        "of numbers as text, nested lists": right.astype(str).tolist(),
        "of numbers as bytes": right.astype(str).astype(bytes),
        "of objects": right.astype(object),
        "of decimals": np.vectorize(Decimal, otypes=[object])(right),
        "of records": np.zeros(right.shape, dtype=[("a", float), ("b", float)]),
        "with one axis more": right[..., None],
        "with seven axes": right.reshape(*right.shape, *(1,) * (7 - right.ndim)),
    }
    if right.ndim:
        wrong |= {"pickled": right.dumps(), "empty": right[:0]}
    if right.ndim == 2:
        wrong["sparse"] = scipy.sparse.csr_array(right)
    return wrong
