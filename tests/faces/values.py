"""Values that a caller may pass by mistake, and the kinds of parameters, each with the mistaken values it admits."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import scipy.sparse

# by name, as a report calls them; none of these may stand for any parameter unless its kind says why
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
NUMBERS = frozenset({"-1", "0", "1", "1.5", "-0.5", "2**64"})
WHOLE_NUMBERS = frozenset({"-1", "0", "1"})


@dataclass(frozen=True)
class Kind:
    """What a parameter may be.

    - `example`: a function that makes a value that is right; called once.
    - `admits`: mistakes by name that are right for this parameter, each with the reason.
    - `also`: further values that are wrong for it, by name: of the right type, but of another architecture, say.
    - `called`: what the error may call the parameter, beside its name.
    """

    example: Callable[[], Any]
    admits: Mapping[str, str] = field(default_factory=dict)
    also: Callable[[], Mapping[str, Any]] = dict
    called: tuple[str, ...] = ()


def number(example: float, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf) -> Kind:
    """A finite number >= `least`, > `above` and <= `most`."""
    fitting = [name for name in NUMBERS if MISTAKES[name] >= least and above < MISTAKES[name] <= most]
    return Kind(lambda: example, dict.fromkeys(fitting, "a number in the range"))


def whole_number(example: int, *, least: int | None = None, most: int | None = None) -> Kind:
    """A whole number within [least, most]."""
    lowest, highest = -math.inf if least is None else least, math.inf if most is None else most
    fitting = [name for name in WHOLE_NUMBERS if lowest <= MISTAKES[name] <= highest]
    return Kind(lambda: example, dict.fromkeys(fitting, "a whole number in the range"))


def flag(example: bool = False) -> Kind:
    """True or False."""
    return Kind(lambda: example, {"True": "a truth value"})


def text(example: str, *, any_text: bool = False) -> Kind:
    """Text; one of a few words unless `any_text`."""
    return Kind(lambda: example, {"text": "text"} if any_text else {})


def path(example: Callable[[], Any], admits: Mapping[str, str] | None = None) -> Kind:
    """A place on disk."""
    return Kind(example, {"text": "a name of a file", **(admits or {})})


def function(example: Callable, admits: Mapping[str, str] | None = None) -> Kind:
    """A function of the caller's."""
    return Kind(lambda: example, {"a function": "a function", **(admits or {})})


def instance(example: Callable[[], Any], *called: str, also: Callable[[], Mapping[str, Any]] = dict) -> Kind:
    """An object of a class of the package's; `also` makes those that do not belong to the other arguments."""
    return Kind(example, also=also, called=called)


def array(
    example: Callable[[], Any],
    *called: str,
    also: Callable[[], Mapping[str, Any]] = dict,
    admits=None,
    empty: bool = False,
) -> Kind:
    """An array of finite real numbers of a definite number of axes."""

    def wrong() -> Mapping[str, Any]:
        return {**unlike(np.asarray(example(), dtype=np.float64), empty=empty), **also()}

    return Kind(example, admits or {}, wrong, called)


def unlike(right: np.ndarray, *, empty: bool = False) -> Mapping[str, Any]:
    """Arrays of the shape of `right` that are no arrays of finite real numbers, and some of other shapes."""
    with_nan, with_infinity, of_objects = right.copy(), right.copy(), right.astype(object)
    with_nan.flat[-1], with_infinity.flat[0] = math.nan, math.inf
    records = np.zeros(right.shape, dtype=[("a", float), ("b", float)])
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
        "of objects": of_objects,
        "of decimals": np.vectorize(Decimal, otypes=[object])(right),
        "of records": records,
        "with one axis more": right[..., None],
        "with seven axes": right.reshape(*right.shape, *(1,) * (7 - right.ndim)),
    }
    if right.ndim:
        wrong["pickled"] = right.dumps()
        if not empty:
            wrong["empty"] = right[:0]
    if right.ndim == 2:
        wrong["sparse"] = scipy.sparse.csr_array(right)
    return wrong
