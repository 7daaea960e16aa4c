"""Results of the benchmarks, read back, and tables of them in Markdown."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def read(name: str) -> Any:
    """What the benchmark of this name has written."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
