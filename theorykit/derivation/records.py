"""Store dataclasses of expressions, such as the steps of a derivation with their claims, as JSON.

Reading constructs only permitted dataclasses, which check their fields, and does not execute any code in the text.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sympy import Basic

from ..checks import shown
from ..symbolic.documents.table import ExpressionTable, read_expressions
from .claims import KINDS
from .step import Derivation, Step

RECORDS: tuple[type, ...] = (Derivation, Step, *KINDS)
"""Dataclasses that make up a derivation."""

_EXPRESSION, _MAPPING = "expression", "mapping"


def write_records(value: Any, kinds: tuple[type, ...], heading: Mapping[str, Any]) -> str:
    """Write `heading` and `value`, which may contain expressions, dataclasses `kinds` and plain values, as JSON."""
    table = ExpressionTable()

    def plain(value: Any) -> Any:
        if isinstance(value, Basic):
            return {_EXPRESSION: table.enter(value)}
        if type(value) in kinds:
            return {type(value).__name__: {field.name: plain(getattr(value, field.name)) for field in fields(value)}}
        if isinstance(value, Mapping):
            return {_MAPPING: [list(map(plain, pair)) for pair in value.items()]}
        if isinstance(value, tuple):
            return list(map(plain, value))
        if value is None or type(value) in (bool, int, float, str):
            return value
        raise ValueError(f"{shown(value)}, a {type(value).__module__}.{type(value).__name__}, cannot become text")

    content = plain(value)
    rows = ",\n".join(map(_line, table.rows))
    parts = [f"{_line(name)}: {_line(part)}" for name, part in heading.items()]
    parts += [f'"expressions": [\n{rows}\n]', f'"content": {_line(content)}']
    # SymPy simplifies some expressions when it constructs them, so that they differ from what was written.
    for expression, again in zip(table.expressions, read_expressions(table.rows), strict=True):
        if expression != again:
            raise ValueError(f"the expression {shown(expression)} becomes {shown(again)} when it is read back")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_records(document: Mapping[str, Any], kinds: tuple[type, ...]) -> Any:
    """Read from parsed JSON what `write_records` wrote. Raises `ValueError` if it is invalid."""

    def listed(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise ValueError(f"{shown(value)} must be a list")
        return value

    expressions = read_expressions(listed(document.get("expressions")))
    by_name = {kind.__name__: kind for kind in kinds}

    def made(plain: Any) -> Any:
        if isinstance(plain, list):
            return tuple(map(made, plain))
        if not isinstance(plain, dict):
            return plain
        if len(plain) != 1:
            raise ValueError(f"{shown(plain)} is neither a mapping nor a record")
        ((name, content),) = plain.items()
        if name == _EXPRESSION:
            if type(content) is not int or content < 0:
                raise ValueError(f"{shown(content)} is not the number of an expression")
            return expressions[content]
        if name == _MAPPING:
            return dict([tuple(map(made, listed(pair))) for pair in listed(content)])
        if name not in by_name or not isinstance(content, dict):
            raise ValueError(f"{shown(name)} is not a known kind of record")
        return by_name[name](**{field: made(each) for field, each in content.items()})

    try:
        return made(document.get("content"))
    except (TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"its content is invalid: {error}") from error
