"""Write the tables in the documentation from the results of the benchmarks and from the table of functions.

    python benchmarks/tables.py

Each table is written to its page, between its two marks. A test checks that the pages are up to date.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sympy import Expr, Symbol

from theorykit.codegen.functions import ROWS, ScalarFunction
from theorykit.symbolic import latex
from theorykit.symbolic.functions import JUMPING, LogCosh, LogNormalCDF, partial_derivative

sys.path.insert(0, str(Path(__file__).parent))
from peers import PARTS, PROGRAMS, THREADS
from replicas import MANY

DOCS = Path(__file__).parents[1] / "docs"


def read(name: str) -> Any:
    """Read the results of the benchmark of this name."""
    return json.loads((Path(__file__).parent / "results" / f"{name}.json").read_text())


def markdown(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a table in Markdown."""
    head = tuple(head)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def duration(seconds: float) -> str:
    """Format a time with two digits and its unit."""
    if seconds < 1:
        return f"{float(f'{1000 * seconds:.2g}'):g} ms"
    return f"{float(f'{seconds:.2g}'):g} s" if seconds < 600 else f"{seconds / 60:.0f} minutes"


def peers() -> str:
    """Tabulate processor seconds of every program, with default threads and with one thread."""
    found = read("peers")
    rows = (
        (name, *(f"{found[threads][name][part]['processor_seconds']:.2g} s" for threads in THREADS for part in PARTS))
        for name in PROGRAMS
    )
    return markdown(("program", *(f"{part}, {threads}" for threads in THREADS for part in PARTS)), rows)


def replicas() -> str:
    """Tabulate missed and silently wrong answers among 256, and the processor times of all methods."""
    head = (
        "action",
        "theorykit: missed, wrong",
        "iteration: missed, wrong",
        "theorykit, first",
        "theorykit",
        "iteration, NumPy",
        "iteration, JAX",
        f"iteration, {MANY} nodes: missed, wrong; NumPy",
    )

    def answers(result: Mapping[str, Any] | None) -> str:
        return "" if result is None else f"{result['missed']}, {result['silently wrong']}"

    def row(name: str, results: Mapping[str, Any]) -> Iterator[str]:
        yield name
        yield answers(results["certified"])
        yield answers(results["JAX"])
        yield duration(results["certified"]["first"]["processor_seconds"])
        for method in ("certified", "NumPy", "JAX"):
            yield duration(results[method]["again"]["processor_seconds"])
        more = results.get(f"NumPy, {MANY} nodes")
        yield answers(more) + ("" if more is None else f"; {duration(more['again']['processor_seconds'])}")

    return markdown(head, (row(*item) for item in read("replicas").items()))


_ON_DEVICES: Mapping[tuple[str, str], tuple[str, str, tuple[int, ...]]] = {
    ("solves", "4 paths"): ("`bpkr.solve`", "{:,} examples, 4 paths", (100,)),
    ("solves", "27 paths"): ("`bpkr.solve`", "{:,} examples, 27 paths", (600,)),
    ("solves", "16 paths"): ("`bpkr.solve`", "{:,} examples, 16 paths", (600, 2000, 5000, 10_000, 20_000)),
    ("orbits", "map"): ("`dmft.advance`, 1,000 tokens", "{:,} orbits", (256, 4096, 65_536)),
    ("orbits", "leading 3"): (
        "`dmft.lyapunov_spectrum`, 3 of 1,000 tokens",
        "{:,} orbits",
        (256, 4096, 16_384, 65_536),
    ),
    ("diagrams", "orbit diagram"): ("`dynamics.orbits`, 3,000 tokens", "{:,} orbits", (1024, 16_384)),
    ("factorisations", "cholesky"): ("Cholesky", "{0:,} x {0:,}", (378, 2000, 10_000, 20_000)),
    ("factorisations", "eigh"): ("`eigh`", "{0:,} x {0:,}", (378, 2000, 10_000, 20_000)),
}


def gpu() -> str:
    """Tabulate times on a GPU and on the CPU of the same machine, and their ratios."""
    found = {(row["part"], row["name"], row["size"], row["platform"]): row for row in read("gpu")["rows"]}
    rows = []
    for (part, name), (computation, size, sizes) in _ON_DEVICES.items():
        for each in sizes:
            device, cpu = (found.get((part, name, each, platform), {}).get("run_s") for platform in ("gpu", "cpu"))
            times = [duration(time) if time is not None else "not run" for time in (device, cpu)]
            ratio = "" if device is None or cpu is None else f"{float(f'{cpu / device:.2g}'):g}"
            rows.append((computation, size.format(each), *times, ratio))
    return markdown(("computation", "size", "GPU", "CPU", "CPU / GPU"), rows)


def sizes() -> str:
    """Tabulate sizes, times and memory of all computations, with the names of the results files."""
    saddle, dynamics, rows = read("saddle"), read("self_attention"), []

    def memory(case: Mapping[str, Any]) -> str:
        return f"{case['peak_gib']:.1f} GiB"

    for case, size in {"hidden_markov": "100 examples, 4 paths", "one_shot": "600 examples, 16 paths"}.items():
        times = [row["seconds"] for row in saddle[case]["rows"]]
        time = f"{duration(min(times))} to {duration(max(times))}"
        rows.append(("one solve, `bpkr.solve`", f"{size}, widths 10 to 10,000", time, memory(saddle[case]), "saddle"))
    for case, paths in {"paths_27": 27, "paths_64": 64, "paths_256": 256}.items():
        (row,) = saddle[case]["rows"]
        size = f"600 examples, {paths} paths, width {row['N']:g}"
        rows.append(("one solve, `bpkr.solve`", size, duration(row["seconds"]), memory(saddle[case]), "saddle"))
    rows.extend(_larger_solves(read("gpu")))
    (grid,) = saddle["grid"]["rows"]
    time = f"{duration(grid['seconds_with_compilation'])}, including compilation"
    size = f"{grid['points']} points, 600 examples, 16 paths"
    rows.append(("a sweep, `sweeps.sweep`", size, time, memory(saddle["grid"]), "saddle"))
    for rate in read("sampling")["rates"]["rows"]:
        chains = f", {rate['workers']} chains in parallel" if rate["workers"] > 1 else ""
        size = f"100 examples, 4 paths, width {rate['N']}, a thousand effective samples{chains}"
        time = duration(1000 / rate["ess_per_second"])
        rows.append((f"`sampling.sample`, `{rate['sampler']}`", size, time, "", "sampling"))
    rates = {rate["quantity"]: rate["rate"] for rate in dynamics["rates"]["rows"] if rate["window"] == 4}
    for quantity, what in {"map": "`dmft.run`", "leading 3": "three exponents, `dmft.lyapunov_spectrum`"}.items():
        time = f"{rates[quantity] / 1e6:.1f} million tokens per second"
        rows.append((f"orbits, {what}", "256 orbits, context 4, 3 patterns", time, "", "self_attention"))
    (zoom,) = dynamics["zoom"]["rows"]
    tokens = zoom["transient"] + zoom["recorded"]
    size = f"{zoom['orbits']:,} orbits of {tokens:,} tokens, {zoom['exponents']} exponents"
    time = f"{duration(zoom['seconds'])}, including compilation"
    rows.append(("a diagram, `dynamics.orbits`", size, time, "", "self_attention"))
    link = "[{0}.json](../benchmarks/results/{0}.json)"
    head = ("computation", "size", "time", "memory", "results")
    return markdown(head, ((*row, link.format(name)) for *row, name in rows))


def _larger_solves(results: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield solves with more examples on the CPU and the GPU of one machine."""
    devices = {"cpu": f"{results['about']['cores']} cores", "gpu": f"an {results['about']['device']}"}
    for row in sorted(results["rows"], key=lambda row: (row["size"], row["platform"])):
        if row["part"] == "solves" and row["size"] > 600 and "run_s" in row:
            time = f"{duration(row['run_s'])}, compilation {duration(row['compile_s'])}"
            planned = f"{row['planned_bytes'] / 2**30:.1f} GiB planned by the compiler"
            size = f"{row['size']:,} examples, {row['name']}, on {devices[row['platform']]}"
            yield "one solve, `bpkr.solve`", size, time, planned, "gpu"


_NUMBERS = tuple(Symbol(name, real=True) for name in "xyz")
_ORDER = Symbol("n", integer=True, nonnegative=True)
# Functions whose name differs from their class.
_CALLED = {
    LogCosh: "log_cosh(x)",
    LogNormalCDF: "log_normal_cdf(x)",
}


def functions() -> str:
    """Tabulate the scalar functions that actions may contain, from the table of the code generator."""
    return markdown(("function", "domain", "derivatives"), (_function(row) for row in ROWS if row.is_shown))


def _function(row: ScalarFunction) -> tuple[str, str, str]:
    symbols = iter(_NUMBERS)
    # Users do not give the order of a derivative.
    arguments = [_ORDER if letter == "n" else next(symbols) for letter in row.arguments if row.kind is not LogNormalCDF]
    node = row.kind(*arguments) if arguments else LogNormalCDF(_NUMBERS[0])
    slopes = [partial_derivative(node, i + 1) for i, at in enumerate(node.args) if at in _NUMBERS]
    derivatives = "jumps" if isinstance(node, JUMPING) else ", ".join(map(_formula, slopes))
    return f"`{_CALLED.get(row.kind, node)}`", row.domain or "all numbers", derivatives


def _formula(slope: Expr) -> str:
    # A bar would end the Markdown cell.
    return f"${latex(slope)}$".replace(r"\left|", r"\left\vert ").replace(r"\right|", r"\right\vert ")


TABLES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "solvers.md": {"sizes": sizes, "peers": peers},
    "own-action.md": {"functions": functions, "replicas": replicas},
    "parallel.md": {"gpu": gpu},
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
