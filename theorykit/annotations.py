"""Arguments checked to be what the annotations of a function, or of a dataclass's fields, say.

For functions whose parameters are expressions, labelled results and the like, of which the annotation says all that is
to be checked; ranges and shapes are for `theorykit.arguments`.
"""

import collections.abc
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from .arguments import (
    checked_choice,
    checked_flag,
    checked_function,
    checked_instance,
    checked_number,
    checked_path,
    checked_sequence,
    checked_text,
    checked_whole_number,
    shown,
)

Function = TypeVar("Function", bound=Callable)

_annotations_of = functools.cache(typing.get_type_hints)

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
