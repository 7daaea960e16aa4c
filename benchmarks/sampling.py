"""Measure the cost of independent draws from the posterior, for each sampler.

    python benchmarks/sampling.py [--output FOLDER] [--only NAME ...] [--full] [--quick]

The samplers are `exact`, NUTS on the order parameters; `gibbs`, block Gibbs on the weights; and `nuts`, NUTS on the
weights, as in the paper. The cases are:

- `rates`: effective samples (bulk) of U_1[11, 11] per second of drawing, without warm-up and compilation, on the hidden
  Markov chains at N = 10, T = 0.01; and the ratio to `nuts`. With two `workers`, two chains run in parallel, each on a
  separate core, and the time of one of them is counted.
- `one_shot`: the rate of `exact` at the size of the one-shot images, 600 examples and 16 paths.
- `temperatures`: rates at N = 10 and T = 0.01, 0.1 and 1, and with 32 Gibbs chains; and at N = 100, T = 0.01, with
  `nuts` only if --full is given. `deviation` is the difference from `exact` in standard errors of the difference.
- `scaling`: seconds per draw and per evaluation of the density (with its gradient if the sampler uses it) for several
  widths, examples and depths. Samplers of weights take 30 draws after a warm-up of 30, which hardly adapts the step
  size. A Gibbs draw is one sweep over all blocks, without evaluations.

Each case runs in a separate process, one after another, so run nothing else at the same time. Prints a table, and
writes sampling.json and sampling.png into FOLDER (benchmarks/results by default). Cases that are not run again keep
their results. With --quick there are only a few draws and the numbers mean nothing; files then go to a temporary folder
by default.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import theorykit
from theorykit import bpkr
from theorykit.bpkr import sampling
from theorykit.bpkr.sampling import Schedule

sys.path.insert(0, str(Path(__file__).parent))
import problems

DATA = Path(__file__).parent.parent / "tests" / "data" / "bpkr" / "hidden_markov.npz"
SAMPLERS = ("exact", "gibbs", "nuts")
SCHEDULES = {
    "exact": Schedule(chains=2, warmup=500, draws=2000),
    "gibbs": Schedule(chains=2, warmup=1000, draws=4000),
    "nuts": Schedule(chains=1, warmup=300, draws=300),
}
MANY_CHAINS = Schedule(chains=32, warmup=100, draws=400)
WIDE_GIBBS = Schedule(chains=2, warmup=100, draws=300)
AT_ONE_SHOT_SIZE = Schedule(chains=2, warmup=200, draws=300)
SHORT = {
    "exact": Schedule(chains=1, warmup=200, draws=200),
    "gibbs": Schedule(chains=1, warmup=30, draws=30),
    "nuts": Schedule(chains=1, warmup=30, draws=30),
}
QUICK = Schedule(chains=2, warmup=10, draws=10)
TEMPERATURES = (0.01, 0.1, 1.0)
WIDTHS = (10, 30, 100)
EXAMPLES = (25, 50, 100)
DEPTHS = (1, 2, 3)


def hidden_markov(examples: int = 100):
    """Return path features (examples, 4, 231) and labels of the first `examples` chains."""
    with np.load(DATA) as stored:
        features, labels = stored["phi"].transpose(0, 2, 1), stored["y"]
    return jnp.asarray(features[:examples]), jnp.asarray(labels[:examples])


def row(name: str, architecture: bpkr.Architecture, data, schedule: Schedule, about: dict, workers: int = 1) -> dict:
    """Run a sampler once; return its settings, cost and quality."""
    options = {"key": jax.random.key(0), "schedule": schedule, "progress": False}
    with warnings.catch_warnings():
        # Results are recorded even if the chains have not mixed.
        warnings.simplefilter("ignore", sampling.MixingWarning)
        tree = sampling.sample(architecture, bpkr.Data(*data), sampler=name, **options, n_jobs=workers)
    # Each chain has a separate worker, or all share one.
    seconds, stats = tree.attrs["seconds"] / workers, tree["sample_stats"]
    evaluations = int(stats["n_steps"].sum()) if "n_steps" in stats else None
    first = tree["summary"]["U_1"][:, 0, 0]
    found = {key: float(first.sel(statistic=key)) for key in ("mean", "mcse_mean", "ess_bulk", "r_hat")}
    return {
        "sampler": name,
        **about,
        "chains": schedule.chains,
        "workers": workers,
        "draws": schedule.draws,
        "seconds": seconds,
        "warmup_seconds": tree.attrs["warmup_seconds"] / workers,
        "seconds_per_draw": seconds / (schedule.chains * schedule.draws),
        "evaluations": evaluations,
        "seconds_per_evaluation": None if evaluations is None else seconds / evaluations,
        **{key: value if math.isfinite(value) else None for key, value in found.items()},
        "ess_per_second": found["ess_bulk"] / seconds,
        "mixed": bool(tree.attrs["mixed"]),
    }


def compared(rows: list[dict]) -> list[dict]:
    """Add ratios to `nuts` and deviations from `exact`, if present, to the rows of one posterior."""
    reference = {name: next((row for row in rows if row["sampler"] == name), None) for name in SAMPLERS}
    return [
        {
            **row,
            "ratio_to_nuts": reference["nuts"] and row["ess_per_second"] / reference["nuts"]["ess_per_second"],
            "deviation": _deviation(row, reference["exact"]),
        }
        for row in rows
    ]


def _deviation(row: dict, exact: dict) -> float | None:
    errors = row["mcse_mean"], exact["mcse_mean"]
    if row is exact or None in errors:
        return None
    return (row["mean"] - exact["mean"]) / math.hypot(*errors)


def posterior_rows(width: int, temperature: float, runs, quick: bool) -> list[dict]:
    """Sample the hidden Markov chains; each run is (sampler, schedule) or (sampler, schedule, workers)."""
    architecture = bpkr.Architecture((2, 2), width, temperature=temperature)
    about = {"N": width, "T": temperature}
    data = hidden_markov()
    rows = (
        row(name, architecture, data, QUICK if quick else schedule, about, *workers)
        for name, schedule, *workers in runs
    )
    return compared(list(rows))


def rates(quick: bool, full: bool) -> list[dict]:
    exact, *others = SCHEDULES.items()
    return posterior_rows(10, 0.01, [exact, (*exact, SCHEDULES["exact"].chains), *others], quick)


def one_shot(quick: bool, full: bool) -> list[dict]:
    architecture, schedule = bpkr.Architecture((4, 4), 10, temperature=0.01), QUICK if quick else AT_ONE_SHOT_SIZE
    about = {"N": 10, "T": 0.01, "P": 600}
    return [row("exact", architecture, problems.random_features(600, 16), schedule, about, schedule.chains)]


def temperatures(quick: bool, full: bool) -> list[dict]:
    rows = []
    for temperature in TEMPERATURES:
        rows += posterior_rows(10, temperature, (*SCHEDULES.items(), ("gibbs", MANY_CHAINS)), quick)
    wide = {**SCHEDULES, "gibbs": WIDE_GIBBS}
    return rows + posterior_rows(100, 0.01, [run for run in wide.items() if full or run[0] != "nuts"], quick)


def scaling(quick: bool, full: bool) -> list[dict]:
    rows = []
    for name in SAMPLERS:
        for axis, value, heads, width, data in _sizes():
            architecture = bpkr.Architecture(heads, width, temperature=0.01)
            schedule = QUICK if quick else SHORT[name]
            rows.append(row(name, architecture, data, schedule, {"axis": axis, "value": value}))
    kept = ("sampler", "axis", "value", "seconds", "seconds_per_draw", "evaluations", "seconds_per_evaluation")
    return [{key: row[key] for key in kept} for row in rows]


def _sizes():
    for width in WIDTHS:
        yield "width", width, (2, 2), width, hidden_markov()
    for examples in EXAMPLES:
        yield "examples", examples, (2, 2), 10, hidden_markov(examples)
    for depth in DEPTHS:
        yield "depth", depth, (2,) * depth, 10, problems.random_features(50, 2**depth)


CASES = {"rates": rates, "one_shot": one_shot, "temperatures": temperatures, "scaling": scaling}


def run_case(name: str, quick: bool, full: bool) -> None:
    """Run a case in this process, and print its rows and peak memory as one line of JSON."""
    theorykit.enable_float64()
    rows = CASES[name](quick, full)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"rows": rows, "peak_gib": peak}))


def table(name: str, result: dict) -> str:
    """Format the rows of a case as text."""
    rows = result["rows"]
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(f"{cell:>{size}}" for cell, size in zip(line, sizes, strict=True)) for line in cells]
    return f"\n{name}   (peak memory {result['peak_gib']:.2f} GiB)\n" + "\n".join(lines)


def _cell(value) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def plot(results: dict, path: Path) -> None:
    """Plot effective samples per second by temperature, and the cost of a draw by width, examples and depth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from theorykit.plots.style import LIMITS, THEORY, save, use_style

    colors = dict(zip(SAMPLERS, (THEORY, LIMITS[2], LIMITS[0]), strict=True))
    with use_style():
        figure, axes = plt.subplots(1, 4, figsize=(12, 3.2))
        _plot_rates(axes[0], [row for row in results["temperatures"]["rows"] if row["N"] == 10], colors)
        labels = {"width": "width $N$ ($P=100$)", "examples": "examples $P$ ($N=10$)", "depth": "depth ($P=50$)"}
        for axis, (name, label) in zip(axes[1:], labels.items(), strict=True):
            _plot_costs(axis, [row for row in results["scaling"]["rows"] if row["axis"] == name], colors)
            axis.set(xlabel=label)
            axis.sharey(axes[1])
        axes[1].set_ylim(1e-5, 2.0)
        axes[1].set_title("Seconds per draw (solid), per evaluation (dashed)")
        save(figure, path)


def _plot_rates(axis, rows: list[dict], colors: dict) -> None:
    names = {"exact": "order parameters", "gibbs": "weights, Gibbs", "nuts": "weights, NUTS"}
    for sampler, chains in sorted({(row["sampler"], row["chains"]) for row in rows}):
        chosen = [row for row in rows if (row["sampler"], row["chains"]) == (sampler, chains)]
        axis.loglog(
            [row["T"] for row in chosen],
            [row["ess_per_second"] for row in chosen],
            "o:" if chains == MANY_CHAINS.chains else "o-",
            color=colors[sampler],
            markersize=4,
            label=f"{names[sampler]}, {chains} chain{'s' if chains > 1 else ''}",
        )
    axis.set(xlabel="temperature $T$ ($N=10$, $P=100$)", title="Effective samples per second")
    axis.set_ylim(top=3e4)  # room for the legend
    axis.legend(fontsize=7)


def _plot_costs(axis, rows: list[dict], colors: dict) -> None:
    for sampler, color in colors.items():
        chosen = [row for row in rows if row["sampler"] == sampler]
        values = [row["value"] for row in chosen]
        axis.plot(values, [row["seconds_per_draw"] for row in chosen], "o-", color=color, markersize=4)
        if chosen[0]["evaluations"] is not None:
            axis.plot(values, [row["seconds_per_evaluation"] for row in chosen], "s--", color=color, markersize=3)
    axis.set(xscale="linear" if rows[0]["axis"] == "depth" else "log", yscale="log")
    axis.set_xticks(values, map(str, values))
    axis.minorticks_off()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--full", action="store_true", help="run NUTS on the weights at N = 100 too")
    parser.add_argument("--quick", action="store_true", help="take few draws, to test the script")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        return run_case(arguments.case, arguments.quick, arguments.full)
    folder = arguments.output
    if folder is None:
        folder = Path(tempfile.mkdtemp()) if arguments.quick else Path(__file__).parent / "results"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sampling.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    options = [f"--{name}" for name in ("quick", "full") if getattr(arguments, name)]
    for name in arguments.only:
        command = [sys.executable, __file__, "--case", name, *options]
        finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[name] = {**json.loads(finished.stdout.splitlines()[-1]), "jax": jax.__version__}
        print(table(name, results[name]), flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
    if {"temperatures", "scaling"} <= set(results):
        plot(results, folder / "sampling.png")
    print(f"\nwrote {folder}")


if __name__ == "__main__":
    main()
