"""Write the tables of the documentation from the results of the benchmarks.

    python benchmarks/tables.py

Each table goes to docs/benchmarks.md, between its two marks.
"""

import json
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def read(name: str) -> dict:
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a table in Markdown."""
    head = tuple(head)
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def duration(seconds: float) -> str:
    """Format a time with two digits and its unit."""
    if seconds < 1:
        return f"{float(f'{1000 * seconds:.2g}'):g} ms"
    if seconds < 600:
        return f"{float(f'{seconds:.2g}'):g} s"
    return f"{seconds / 60:.0f} minutes"


def peers() -> str:
    """Tabulate processor seconds with default threads and with one thread."""
    found = read("saddle")["peers"]
    parts = ("import and first", "second", "one example fewer")
    columns = [(part, threads) for threads in found for part in parts]
    rows = []
    for name in found["one thread"]:
        times = (found[threads][name][part]["processor_seconds"] for part, threads in columns)
        rows.append([name, *(f"{each:.2g} s" for each in times)])
    return markdown(["program", *map(", ".join, columns)], rows)


def replicas() -> str:
    """Tabulate missed and silently wrong answers of 256, and processor times."""

    def answers(result: dict) -> str:
        return f"{result['missed']}, {result['silently wrong']}"

    def time(result: dict, call: str = "again") -> str:
        return duration(result[call]["processor_seconds"])

    rows = []
    for name, found in read("replicas").items():
        ours, more = found["certified"], found.get("NumPy, 256 nodes")
        row = {
            "action": name,
            "theorykit: missed, wrong": answers(ours),
            "iteration: missed, wrong": answers(found["JAX"]),
            "theorykit, first": time(ours, "first"),
            "theorykit": time(ours),
            "iteration, NumPy": time(found["NumPy"]),
            "iteration, JAX": time(found["JAX"]),
        }
        last = f"{answers(more)}; {time(more)}" if more else ""
        rows.append(row | {"iteration, 256 nodes: missed, wrong; NumPy": last})
    return markdown(rows[0], (row.values() for row in rows))


ON_DEVICES = {
    ("solves", "4 paths"): ("`bpkr.solve`", "{:,} examples, 4 paths"),
    ("solves", "27 paths"): ("`bpkr.solve`", "{:,} examples, 27 paths"),
    ("solves", "16 paths"): ("`bpkr.solve`", "{:,} examples, 16 paths"),
    ("orbits", "map"): ("`dynamics.advance`, 1,000 tokens", "{:,} orbits"),
    ("orbits", "leading 3"): ("`dynamics.lyapunov_spectrum`, 3 of 1,000 tokens", "{:,} orbits"),
    ("diagrams", "orbit diagram"): ("`dynamics.orbits`, 3,000 tokens", "{:,} orbits"),
}


def gpu() -> str:
    """Tabulate times on a GPU and on the CPU of the same machine, and their ratios."""
    found, rows = {}, []
    for row in read("gpu")["rows"]:
        times = found.setdefault((row["part"], row["name"], row["size"]), {})
        times[row["platform"]] = row.get("run_s")
    for (part, name, size), times in found.items():
        if (part, name) in ON_DEVICES and size not in (1024, 4096, 16_384):
            computation, shown = ON_DEVICES[part, name]
            ours, cpu = times.get("gpu"), times.get("cpu")
            cells = [duration(time) if time else "not run" for time in (ours, cpu)]
            ratio = f"{float(f'{cpu / ours:.2g}'):g}" if ours and cpu else ""
            rows.append((computation, shown.format(size), *cells, ratio))
    return markdown(("computation", "size", "GPU", "CPU", "CPU / GPU"), rows)


TABLES = peers, replicas, gpu


def main() -> None:
    path = ROOT / "docs" / "benchmarks.md"
    text = path.read_text()
    for table in TABLES:
        begin, end = f"<!-- benchmarks/tables.py: {table.__name__} -->", "<!-- end -->"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n\n{table()}\n\n{end}{rest.partition(end)[2]}"
    path.write_text(text)


if __name__ == "__main__":
    main()
