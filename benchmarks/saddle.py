"""Time the saddle-point solver against the published optimiser and against the unavoidable dense linear algebra.

    python benchmarks/saddle.py [--output FOLDER] [--only NAME ...]

Each case runs in a separate process, one after another, so run nothing else at the same time. Times exclude compilation
unless their name says otherwise. Prints a table, and writes saddle.json and saddle.png into FOLDER (benchmarks/results
by default). Cases that are not run again keep their results.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import theorykit
from theorykit import bpkr

sys.path.insert(0, str(Path(__file__).parent))
import adam
import problems

TOLERANCE = 1e-8
WIDTHS = (10, 30, 100, 300, 1000, 10000)
ONE_SHOT_WIDTHS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
TEMPERATURES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5)
ADAM_STEPS = 50_000
# If the first solve, compilation included, takes longer than this in seconds, it is not timed again.
LONG = 120


def seconds(work, repeats: int = 5) -> float:
    """Return the median wall-clock time of a call, compilation excluded."""
    jax.block_until_ready(work())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def leaves(architecture):
    return jax.tree.map(lambda number: jnp.asarray(number, dtype=jnp.float64), architecture)


@eqx.filter_jit
def compiled_solve(architecture, features, labels):
    return bpkr.solve(architecture, bpkr.Data(features, labels), tolerance=TOLERANCE)


def stored(architecture, features, labels):
    return bpkr.Problem(architecture, bpkr.Data(features, labels)).energy


@eqx.filter_jit
def evaluated(energy, first):
    return energy.at(first)


@eqx.filter_jit
def curved(energy, point):
    return energy.curvature(point)


def solve_row(architecture, features, labels, repeats: int = 5) -> dict:
    """Time one solve, its set-up, one evaluation and one curvature; return these with the evaluations and the quality.

    `equivalents` is the work of the solve in evaluations; a curvature counts by its time relative to an evaluation.
    """
    architecture = leaves(architecture)
    saddle = compiled_solve(architecture, features, labels)
    first = bpkr.gp_limit(architecture).matrices[0]
    energy = stored(architecture, features, labels)
    point = evaluated(energy, first)
    evaluation = seconds(lambda: evaluated(energy, first), repeats)
    curvature = seconds(lambda: curved(energy, point), repeats)
    evaluations, curvatures = int(saddle.stats["evaluations"]), int(saddle.stats["curvatures"])
    return {
        "evaluations": evaluations,
        "curvatures": curvatures,
        "equivalents": evaluations + curvatures * curvature / evaluation,
        "seconds": seconds(lambda: compiled_solve(architecture, features, labels), repeats),
        "setup_seconds": seconds(lambda: stored(architecture, features, labels), repeats),
        "evaluation_seconds": evaluation,
        "curvature_seconds": curvature,
        "gradient_norm": float(saddle.gradient_norm),
        "min_hessian_eigenvalue": float(saddle.min_hessian_eigenvalue),
        "converged": bool(saddle.converged),
    }


def adam_seconds(architecture, features, labels, learning_rate: float, max_steps: int) -> tuple[float, float]:
    """Return seconds and steps of Adam, run to a tolerance of 1e-5 or for `max_steps`."""
    run = jax.jit(
        lambda features, labels: adam.minimise(
            architecture, features, labels, learning_rate=learning_rate, tolerance=1e-5, max_steps=max_steps
        )
    )
    steps = float(run(features, labels).steps)
    return seconds(lambda: run(features, labels), 1), steps


def hidden_markov() -> list[dict]:
    features, labels = problems.hidden_markov_chains()
    rows = []
    for width in WIDTHS:
        architecture = bpkr.Architecture((2, 2), float(width), temperature=0.01)
        row = solve_row(architecture, features, labels, 20)
        taken, steps = adam_seconds(architecture, features, labels, 0.1, 20_000)
        rows.append({"N": width, **row, "adam_seconds": taken, "adam_steps": steps, "ratio": taken / row["seconds"]})
    return rows


def one_shot() -> list[dict]:
    features, labels = problems.random_features()
    rows, per_step = [], None
    for width in ONE_SHOT_WIDTHS:
        architecture = bpkr.Architecture((4, 4), float(width), temperature=0.1)
        row = solve_row(architecture, features, labels, 3)
        if per_step is None:
            taken, steps = adam_seconds(architecture, features, labels, 0.008, 30)
            per_step = taken / steps
        published = per_step * ADAM_STEPS
        rows.append({"N": width, **row, "adam_seconds": published, "ratio": published / row["seconds"]})
    return rows


def many_paths(heads: tuple[int, ...], width: float) -> list[dict]:
    features, labels = problems.random_features(paths=len(bpkr.Architecture(heads, 1.0, temperature=1.0).path_labels()))
    architecture = leaves(bpkr.Architecture(heads, width, temperature=0.1))
    start = time.perf_counter()
    saddle = jax.block_until_ready(compiled_solve(architecture, features, labels))
    first = time.perf_counter() - start
    taken = first
    if first < LONG:
        start = time.perf_counter()
        jax.block_until_ready(compiled_solve(architecture, features, labels))
        taken = time.perf_counter() - start
    return [
        {
            "N": width,
            "heads": list(heads),
            "seconds": taken,
            "seconds_with_compilation": first,
            "evaluations": int(saddle.stats["evaluations"]),
            "curvatures": int(saddle.stats["curvatures"]),
            "gradient_norm": float(saddle.gradient_norm),
            "min_hessian_eigenvalue": float(saddle.min_hessian_eigenvalue),
            "converged": bool(saddle.converged),
        }
    ]


def dense_work() -> list[dict]:
    """Compare one evaluation with one kernel assembly, one Cholesky factorisation and one triangular solve."""
    features, labels = problems.random_features()
    architecture = leaves(bpkr.Architecture((4, 4), 10.0, temperature=0.1))
    flat = features.reshape(len(features), -1)
    kernel = flat @ flat.T + 0.1 * jnp.eye(len(flat))
    factor = jnp.linalg.cholesky(kernel)
    solve = jax.jit(lambda factor, flat: jax.scipy.linalg.solve_triangular(factor, flat, lower=True))
    assembly, cholesky = jax.jit(lambda flat: flat @ flat.T), jax.jit(jnp.linalg.cholesky)
    parts = {
        "assembly": seconds(lambda: assembly(flat)),
        "cholesky": seconds(lambda: cholesky(kernel)),
        "triangular_solve": seconds(lambda: solve(factor, flat)),
    }
    energy, first = stored(architecture, features, labels), bpkr.gp_limit(architecture).matrices[0]
    evaluation = seconds(lambda: evaluated(energy, first))
    rows, columns = flat.shape
    flops = {"assembly": 2 * rows**2 * columns, "cholesky": rows**3 / 3, "triangular_solve": rows**2 * columns}
    counted = 4 * rows**2 * columns + rows**3 / 3 + 2 * rows**3
    return [
        {
            **parts,
            "evaluation_seconds": evaluation,
            "ratio": evaluation / sum(parts.values()),
            "counted_ratio": counted / sum(flops.values()),
        }
    ]


def grid() -> list[dict]:
    """Solve the paper's whole grid, starting each solve from its neighbour."""
    from theorykit.bpkr.sweeps import sweep

    features, labels = problems.random_features()
    architecture = bpkr.Architecture((4, 4), 10.0, temperature=0.1)
    start = time.perf_counter()
    result = sweep(
        architecture,
        bpkr.Data(features, labels),
        width=ONE_SHOT_WIDTHS,
        temperature=TEMPERATURES,
        tolerance=TOLERANCE,
    )
    taken = time.perf_counter() - start
    return [
        {
            "seconds_with_compilation": taken,
            "points": int(result["converged"].size),
            "converged": int(result["converged"].sum()),
        }
    ]


def scaling() -> list[dict]:
    """Time a solve at N = 100 over examples, paths and depth."""
    rows = []
    for examples in (50, 100, 200, 400, 800):
        features, labels = problems.random_features(examples, 9)
        rows.append({"axis": "examples", "value": examples, **_timed((3, 3), features, labels)})
    for heads in (2, 3, 4, 5):
        features, labels = problems.random_features(300, heads**2)
        rows.append({"axis": "paths", "value": heads**2, **_timed((heads, heads), features, labels)})
    for depth in (1, 2, 3, 4):
        features, labels = problems.random_features(300, 2**depth)
        rows.append({"axis": "depth", "value": depth, **_timed((2,) * depth, features, labels)})
    return rows


def _timed(heads, features, labels) -> dict:
    architecture = leaves(bpkr.Architecture(heads, 100.0, temperature=0.1))
    kernel, cholesky = jnp.eye(len(labels)), jax.jit(jnp.linalg.cholesky)
    return {
        "seconds": seconds(lambda: compiled_solve(architecture, features, labels), 3),
        "cholesky": seconds(lambda: cholesky(kernel), 3),
    }


def first_result() -> list[dict]:
    """Time a fresh process that imports, derives, compiles and solves the hidden Markov task at one width."""
    program = """
import time
start = time.perf_counter()
import theorykit
theorykit.enable_float64()
from theorykit import bpkr
import numpy as np
data = np.load({path!r})
imported = time.perf_counter() - start
saddle = bpkr.solve(bpkr.Architecture((2, 2), 10.0, temperature=0.01), bpkr.Data(data["features"], data["labels"]))
assert saddle.converged
print(imported, time.perf_counter() - start)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "chains.npz")
        features, labels = problems.hidden_markov_chains()
        np.savez(path, features=features, labels=labels)
        runs = [
            subprocess.run(
                [sys.executable, "-c", program.format(path=path)], capture_output=True, text=True, check=True
            )
            for _ in range(3)
        ]
    totals = sorted(tuple(map(float, run.stdout.split())) for run in runs)
    return [{"import_seconds": totals[1][0], "seconds": totals[1][1]}]


CASES = {
    "hidden_markov": hidden_markov,
    "one_shot": one_shot,
    "paths_27": lambda: many_paths((3, 3, 3), 10.0),
    "paths_64": lambda: many_paths((8, 8), 10.0),
    "dense_work": dense_work,
    "grid": grid,
    "first_result": first_result,
    "scaling": scaling,
    "paths_256": lambda: many_paths((4, 4, 4, 4), 100.0),
}


def run_case(name: str) -> None:
    """Run a case in this process, and print its rows and peak memory as one line of JSON."""
    theorykit.enable_float64()
    rows = CASES[name]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"rows": rows, "peak_gib": peak}))


def table(name: str, result: dict) -> str:
    """Format the rows of a case as text."""
    rows = result["rows"]
    names = list(rows[0])
    lines = ["  ".join(f"{key:>12}"[-max(12, len(key)) :] for key in names)]
    for row in rows:
        cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()]
        lines.append("  ".join(f"{cell:>{max(12, len(key))}}" for key, cell in zip(names, cells, strict=True)))
    return f"\n{name}   (peak memory {result['peak_gib']:.2f} GiB)\n" + "\n".join(lines)


def plot(rows: list[dict], path: Path) -> None:
    """Plot the cost of a solve over examples, paths and depth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from theorykit.plots.style import save, use_style

    labels = {"examples": "examples $P$ (9 paths)", "paths": "paths ($P=300$)", "depth": "depth, 2 heads ($P=300$)"}
    with use_style():
        figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True)
        for axis, (name, label) in zip(axes, labels.items(), strict=True):
            chosen = [row for row in rows if row["axis"] == name]
            values = [row["value"] for row in chosen]
            axis.loglog(values, [row["seconds"] for row in chosen], "o-", label="solve")
            axis.loglog(values, [row["cholesky"] for row in chosen], "s--", label="one Cholesky")
            axis.set_xlabel(label)
            axis.set_xticks(values, map(str, values))
            axis.minorticks_off()
        axes[0].set_ylabel("seconds")
        axes[0].legend()
        save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        return run_case(arguments.case)
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "saddle.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in arguments.only:
        command = [sys.executable, __file__, "--case", name]
        finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        results[name] = {**json.loads(finished.stdout.splitlines()[-1]), "jax": jax.__version__}
        print(table(name, results[name]), flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
    if "scaling" in results:
        plot(results["scaling"]["rows"], arguments.output / "saddle.png")
    print(f"\nwrote {arguments.output}")


if __name__ == "__main__":
    main()
