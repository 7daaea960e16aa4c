"""Write the table of sizes and times from the results of the benchmarks."""

from collections.abc import Iterator, Mapping
from typing import Any

from kept_results import markdown, read

HEAD = ("computation", "size", "time", "memory", "results")
_MILLION = 1e6


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the computation, its size, its time, its memory, and the results file without its suffix."""
    yield from of_solves(read("saddle"))
    yield from of_larger_solves(read("gpu"))
    yield from of_grid(read("saddle")["grid"])
    yield from of_passes(read("workers_data"))
    yield from of_sampling(read("sampling")["rates"]["rows"])
    yield from of_dynamics(read("self_attention"))


def of_solves(saddle: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    solves = {"hidden_markov": "100 examples, 4 paths", "one_shot": "600 examples, 16 paths"}
    for case, size in solves.items():
        times = [row["seconds"] for row in saddle[case]["rows"]]
        time = f"{shown(min(times))} to {shown(max(times))}"
        yield "one solve, `bpkr.solve`", f"{size}, widths 10 to 10,000", time, memory(saddle[case]), "saddle"
    for case, paths in {"paths_27": 27, "paths_64": 64, "paths_256": 256}.items():
        (row,) = saddle[case]["rows"]
        size = f"600 examples, {paths} paths, width {row['N']:g}"
        yield "one solve, `bpkr.solve`", size, shown(row["seconds"]), memory(saddle[case]), "saddle"


def of_larger_solves(results: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield solves with more examples on the CPU and the GPU of one machine."""
    devices = {"cpu": f"{results['about']['cores']} cores", "gpu": f"an {results['about']['device']}"}
    for row in sorted(results["rows"], key=lambda row: (row["size"], row["platform"])):
        if row["part"] == "solves" and row["size"] > 600 and "run_s" in row:
            time = f"{shown(row['run_s'])}, compilation {shown(row['compile_s'])}"
            planned = f"{row['planned_bytes'] / 2**30:.1f} GiB planned by the compiler"
            size = f"{row['size']:,} examples, {row['name']}, on {devices[row['platform']]}"
            yield "one solve, `bpkr.solve`", size, time, planned, "gpu"


def of_grid(case: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    (grid,) = case["rows"]
    size = f"{grid['points']} points, 600 examples, 16 paths"
    time = f"{shown(grid['seconds_with_compilation'])}, including compilation"
    yield "a sweep, `sweeps.sweep`", size, time, memory(case), "saddle"


def of_passes(results: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    for result in sorted(results.values(), key=lambda result: result["examples"]):
        done = result["passes"][-1]
        size = f"{result['examples']:,} examples on disk, {result['columns']} features, {done['workers']} workers"
        each = f"{max(done['worker_gib']):.2f} GiB per worker"
        yield "statistics, `bpkr.Data.of_files`", size, shown(done["seconds"]), each, "workers_data"


def of_sampling(rates: list[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str, str]]:
    names = {"exact": "sample_order_parameters", "gibbs": "sample_weights_by_gibbs", "nuts": "sample_weights"}
    for rate in rates:
        beside = f", {rate['workers']} chains in parallel" if rate["workers"] > 1 else ""
        size = f"100 examples, 4 paths, width {rate['N']}, a thousand effective samples{beside}"
        time = shown(1000 / rate["ess_per_second"])
        yield f"sampling, `sampling.{names[rate['sampler']]}`", size, time, "", "sampling"


def of_dynamics(results: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    rates = {rate["quantity"]: rate["rate"] for rate in results["rates"]["rows"] if rate["window"] == 4}
    for quantity, what in {"map": "`dmft.run`", "leading 3": "three exponents, `dmft.lyapunov_spectrum`"}.items():
        time = f"{rates[quantity] / _MILLION:.1f} million tokens per second"
        yield f"orbits, {what}", "256 orbits, context 4, 3 patterns", time, "", "self_attention"
    (zoom,) = results["zoom"]["rows"]
    tokens = zoom["transient"] + zoom["recorded"]
    size = f"{zoom['orbits']:,} orbits of {tokens:,} tokens, {zoom['exponents']} exponents"
    time = f"{shown(zoom['seconds'])}, including compilation"
    yield "a diagram, `dmft.diagrams.orbit_diagram`", size, time, "", "self_attention"


def shown(seconds: float) -> str:
    """Format a time with two digits and its unit."""
    if seconds < 1:
        return f"{float(f'{1000 * seconds:.2g}'):g} ms"
    return f"{float(f'{seconds:.2g}'):g} s" if seconds < 600 else f"{seconds / 60:.0f} minutes"


def memory(case: Mapping[str, Any]) -> str:
    return f"{case['peak_gib']:.1f} GiB"


def table() -> str:
    """Return the table in Markdown."""
    link = "[{0}.json](../benchmarks/results/{0}.json)"
    return markdown(HEAD, ((*row[:-1], link.format(row[-1])) for row in rows()))
