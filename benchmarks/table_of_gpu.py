"""Write the table of times on a GPU and on the CPU of the same machine, from the results of gpu.py."""

from collections.abc import Iterator, Mapping

from kept_results import markdown, read
from table_of_sizes import shown

HEAD = ("computation", "size", "GPU", "CPU", "CPU / GPU")
SHOWN: Mapping[tuple[str, str], tuple[str, str, tuple[int, ...]]] = {
    ("solves", "4 paths"): ("`bpkr.solve`", "{:,} examples, 4 paths", (100,)),
    ("solves", "27 paths"): ("`bpkr.solve`", "{:,} examples, 27 paths", (600,)),
    ("solves", "16 paths"): ("`bpkr.solve`", "{:,} examples, 16 paths", (600, 2000, 5000, 10_000, 20_000)),
    ("orbits", "map"): ("`dmft.advance`, 1,000 tokens", "{:,} orbits", (256, 4096, 65_536)),
    ("orbits", "leading 3"): (
        "`dmft.lyapunov_spectrum`, 3 of 1,000 tokens",
        "{:,} orbits",
        (256, 4096, 16_384, 65_536),
    ),
    ("diagrams", "orbit diagram"): ("`dmft.diagrams.orbit_diagram`, 3,000 tokens", "{:,} orbits", (1024, 16_384)),
    ("factorisations", "cholesky"): ("Cholesky", "{0:,} x {0:,}", (378, 2000, 10_000, 20_000)),
    ("factorisations", "eigh"): ("`eigh`", "{0:,} x {0:,}", (378, 2000, 10_000, 20_000)),
}


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the computation, its size, the time on both devices, and the ratio of times."""
    found = {(row["part"], row["name"], row["size"], row["platform"]): row for row in read("gpu")["rows"]}
    for (part, name), (what, size, sizes) in SHOWN.items():
        for each in sizes:
            gpu, cpu = (found.get((part, name, each, platform), {}).get("run_s") for platform in ("gpu", "cpu"))
            times = [shown(time) if time is not None else "not run" for time in (gpu, cpu)]
            ratio = "" if gpu is None or cpu is None else f"{float(f'{cpu / gpu:.2g}'):g}"
            yield what, size.format(each), *times, ratio


def table() -> str:
    """Return the table in Markdown."""
    return markdown(HEAD, rows())
