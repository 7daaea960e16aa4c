"""JSON objects in files of others: read strictly, or refused in one line that names the file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..checks import first_line, shown

MOST_BYTES = 100_000_000
"""How long a header or an index may be, which is the safetensors format's own limit."""


def parse_object(content: bytes, path: Path, what: str) -> dict[str, Any]:
    """The JSON object that `content` is, the part of the file `path` that errors call `what`.

    Raises `ValueError` for what is not JSON in UTF-8, no object, nested beyond reason, or says a key twice.
    """
    try:
        found = json.loads(content.decode("utf-8"), object_pairs_hook=_without_repetition)
    except RecursionError:
        raise ValueError(f"{path} is damaged: {what} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged, or another file: {what} is not JSON ({first_line(error)[:120]})"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged, or another file: {what} is no JSON object, but {shown(found)}")
    return found


def read_object(path: Path, what: str) -> dict[str, Any]:
    """`parse_object` of a whole file; `ValueError` where it is longer than any such file."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, too many for {what}")
    return parse_object(path.read_bytes(), path, what)


def _without_repetition(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {shown(key)} is there twice")
        found[key] = value
    return found
