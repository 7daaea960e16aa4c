"""Dataclasses of expressions, such as the steps of a derivation with their claims, as text and back.

The text is JSON. What is not an expression, a dataclass that is permitted by name, a mapping, a tuple, a number, text
or nothing cannot be written. To read it is to call the permitted dataclasses, which check their fields, and nothing
else of what the text says.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sympy import Basic

from ..checks import shown
from ..symbolic.documents.table import ExpressionTable, read_expressions
from . import claims
from .step import Derivation, Step

CLAIMS = tuple(getattr(claims, name) for name in claims.__all__ if name != "Claim")
RECORDS: tuple[type, ...] = (Derivation, Step, *CLAIMS)
"""The dataclasses that a derivation is made of."""

_EXPRESSION, _MAPPING = "expression", "mapping"


def write_records(value: Any, kinds: tuple[type, ...], heading: Mapping[str, Any]) -> str:
    """`value` as JSON, after the plain values of `heading`; it may hold instances of `kinds`.

    Raises `ValueError` for what cannot be written, or would not be read back as it is.
    """
    table = ExpressionTable()
    content = _plain(value, kinds, table)
    rows = ",\n".join(map(_line, table.rows))
    parts = [f"{_line(name)}: {_line(part)}" for name, part in heading.items()]
    parts += [f'"expressions": [\n{rows}\n]', f'"content": {_line(content)}']
    # SymPy simplifies some expressions when they are made, which are then no more those that were written
    for expression, again in zip(table.expressions, read_expressions(table.rows), strict=True):
        if expression != again:
            raise ValueError(f"the expression {shown(expression)} comes back as {shown(again)} when it is made anew")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _plain(value: Any, kinds: tuple[type, ...], table: ExpressionTable) -> Any:
    if isinstance(value, Basic):
        return {_EXPRESSION: table.enter(value)}
    if type(value) in kinds:
        named = {field.name: _plain(getattr(value, field.name), kinds, table) for field in fields(value)}
        return {type(value).__name__: named}
    if isinstance(value, Mapping):
        return {_MAPPING: [[_plain(each, kinds, table) for each in pair] for pair in value.items()]}
    if isinstance(value, tuple):
        return [_plain(each, kinds, table) for each in value]
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise ValueError(f"{shown(value)}, a {type(value).__module__}.{type(value).__name__}, cannot be kept as text")


def read_records(document: Mapping[str, Any], kinds: tuple[type, ...]) -> Any:
    """What `write_records` wrote, from the parsed JSON; `ValueError` where that is nothing of the kind."""
    expressions = read_expressions(_listed(document.get("expressions")))
    by_name = {kind.__name__: kind for kind in kinds}
    try:
        return _value(document.get("content"), by_name, expressions)
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"its content is not what it should be: {error}") from error


def _value(plain: Any, kinds: Mapping[str, type], expressions: list[Basic]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(each, kinds, expressions) for each in plain)
    if not isinstance(plain, dict):
        return plain
    if len(plain) != 1:
        raise ValueError(f"{shown(plain)} is neither a mapping nor a record")
    ((name, content),) = plain.items()
    if name == _EXPRESSION:
        if type(content) is not int or content < 0:
            raise ValueError(f"{shown(content)} is no number of an expression")
        return expressions[content]
    if name == _MAPPING:
        pairs = [tuple(_value(each, kinds, expressions) for each in _listed(pair)) for pair in _listed(content)]
        return dict(pairs)
    if name not in kinds or not isinstance(content, dict):
        raise ValueError(f"there is no record called {shown(name)} here")
    return kinds[name](**{field: _value(each, kinds, expressions) for field, each in content.items()})


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} should be a list")
    return value
