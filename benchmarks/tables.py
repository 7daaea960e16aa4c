"""Write the tables in the documentation from the results of the benchmarks and from the table of functions.

    python benchmarks/tables.py

Each table is written to its page, between its two marks. A test checks that the pages are up to date.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import peers
import table_of_functions
import table_of_generic
import table_of_gpu
import table_of_head_ablation
import table_of_local_kernels
import table_of_replicas
import table_of_sizes
import table_of_threads
import tables_of_workers

DOCS = Path(__file__).parents[1] / "docs"
TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "checkpoints.md": {"head ablation": table_of_head_ablation.table},
    "solvers.md": {"sizes": table_of_sizes.table, "threads": table_of_threads.table, "peers": peers.table},
    "nonlinear.md": {"local kernels": table_of_local_kernels.table},
    "own-action.md": {
        "generic": table_of_generic.table,
        "functions": table_of_functions.table,
        "replicas": table_of_replicas.table,
    },
    "parallel.md": {"gpu": table_of_gpu.table, "sizes": tables_of_workers.sizes},
}


def with_tables(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return the text of a page with its tables updated from the results.

    Raises `ValueError` if the page has no place for a table.
    """
    for name, table in tables.items():
        begin, end = f"<!-- benchmarks/tables.py: {name} -->", "<!-- end -->"
        place = re.compile(f"{re.escape(begin)}.*?{end}", re.DOTALL)
        written = f"{begin}\n\n{table()}\n\n{end}"
        text, places = place.subn(lambda _, written=written: written, text)
        if not places:
            raise ValueError(f"the page has no place for the table {name!r}: {begin} ... {end}")
    return text


def main() -> None:
    for page, tables in TABLES.items():
        path = DOCS / page
        path.write_text(with_tables(path.read_text(), tables))


if __name__ == "__main__":
    main()
