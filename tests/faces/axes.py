"""The axes of results that docstrings and pages name, against those that the results have."""

import inspect
import re
import warnings

import xarray as xr

from .engine import Face, Report, example_calls

# `visited` (orbit, pattern, level), or several names before the axes; words in parentheses are no axes
_NAMED = re.compile(r"((?:`\w+`(?:, | and ))*`\w+`) \(([a-z]\w*(?:, [a-z]\w*)*)\)")


def named_axes(text: str) -> dict[str, tuple[str, ...]]:
    """The axes of each variable that a text names; a layer's number is the first."""
    text = re.sub(r"_l\b", "_1", " ".join(text.split()))
    found = {}
    for names, axes in _NAMED.findall(text):
        found.update({name: tuple(axes.split(", ")) for name in re.findall(r"`(\w+)`", names)})
    return found


def axes_in_table(page: str) -> dict[str, tuple[str, ...]]:
    """The axes that the rows of a page's tables name, by variable: the names, then the axes."""
    found = {}
    for names, axes in re.findall(r"^\| (`[^|]*) \| ([^|]*)\|", page, flags=re.MULTILINE):
        dims = tuple(re.sub(r"_l$", "_1", axis) for axis in re.findall(r"`(\w+)`", axes.partition(", and ")[0]))
        none = axes.startswith("none") or not axes.strip()
        found.update({name: () if none else dims for name in re.findall(r"`(\w+)`", names)})
    return found


def wrong_axes(text: str, result: xr.Dataset) -> list[str]:
    """Variables whose axes are others than a text says."""
    return [
        f"{name} has the axes {result[name].dims}, not {axes}"
        for name, axes in named_axes(text).items()
        if name in result.variables and result[name].dims != axes
    ]


def try_axes(face: Face) -> Report:
    """Every public callable of `face` that returns a data set: its axes are those in the docstring.

    `calls` counts the variables whose axes are named.
    """
    failures, named = [], 0
    for name, function, positional, keywords in example_calls(face):
        function = inspect.unwrap(function)
        if "xarray" not in str(getattr(function, "__annotations__", {}).get("return", "")):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(*positional, **keywords)
        if isinstance(result, xr.Dataset):
            documentation = inspect.getdoc(function) or ""
            named += len(set(named_axes(documentation)) & set(result.variables))
            failures += [f"{name}: {each}" for each in wrong_axes(documentation, result)]
    return Report(named, tuple(failures))
