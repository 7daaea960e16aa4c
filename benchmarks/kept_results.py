"""Read results of the benchmarks, and format them as Markdown tables."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def read(name: str) -> Any:
    """Read the results of the benchmark of this name."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Format a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
