"""Count how often the solver finds a certified minimum of ill-conditioned random problems.

    python benchmarks/robustness.py [--count 2000] [--first 0] [--solver default|sweeps|lbfgs]
                                    [--output FOLDER] [--name NAME]

The architectures have seven structures. Widths, variances, temperature and labels cover many orders of magnitude, and
features are regular, rank-deficient, repeated, partly zero or huge. `problem(seed)` makes the problem of a seed again.
A problem ends in one of three ways: converged, refused (with an error that gives the reason), or not converged (with a
warning that gives the reason). Prints a table. With --output, also writes the results under NAME into robustness.json
in FOLDER.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import optimistix as optx
from tqdm import tqdm

import theorykit
from theorykit import bpkr

# Architectures: layers and number of outputs.
STRUCTURES = {
    "(2)": ((2,), 1),
    "(2, 2)": ((2, 2), 1),
    "(3, 1)": ((3, 1), 1),
    "(2, 2, 2)": ((2, 2, 2), 1),
    "skip": ((bpkr.Skip(2, 0.7), 2), 1),
    "dense": ((2, bpkr.Dense(), 2), 1),
    "two outputs": ((2, 2), 2),
}
# Numbers of examples and features. Keep the list short: each size is compiled for every structure.
SIZES = ((5, 20), (12, 3), (40, 3), (40, 20))
KINDS = ("regular", "deficient", "repeated", "partly zero", "huge")
# Widths, variances, temperatures and label sizes are drawn between these powers of ten.
WIDTHS, VARIANCES, TEMPERATURES, LABELS, HUGE = (0, 4), (-6, 6), (-8, 4), (-4, 4), (2, 7)
SOLVERS = {
    "default": lambda: None,
    "sweeps": lambda: bpkr.AcceleratedSweeps(),
    "lbfgs": lambda: optx.LBFGS(rtol=1e-12, atol=1e-12),
}


@dataclass(frozen=True)
class Problem:
    """Arguments of `bpkr.solve`, and the labels of the problem in the table."""

    structure: str
    kind: str
    architecture: bpkr.Architecture
    features: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """Result of a problem: `outcome` is "converged", "refused" or "not converged"."""

    seed: int
    structure: str
    kind: str
    outcome: str
    gradient_norm: float = float("nan")
    action: float = float("nan")
    action_error: float = float("nan")
    largest_width: float = float("nan")
    attempts: int = 0
    steps: int = 0
    seconds: float = 0.0
    message: str = ""


def problem(seed: int) -> Problem:
    """Make the problem of a seed."""
    rng = np.random.default_rng(seed)
    structure = str(rng.choice(list(STRUCTURES)))
    layers, outputs = STRUCTURES[structure]
    architecture = bpkr.Architecture(
        layers,
        _widths(layers, _powers(rng, WIDTHS, len(layers) + 1)),
        _powers(rng, VARIANCES, len(layers) + 2).tolist(),
        temperature=float(_powers(rng, TEMPERATURES)),
        outputs=outputs,
    )
    examples, features = SIZES[int(rng.integers(len(SIZES)))]
    kind = str(rng.choice(KINDS))
    shape = (examples, outputs) if outputs > 1 else (examples,)
    signs_or_numbers = (np.sign, np.asarray)[int(rng.integers(2))]
    labels = float(_powers(rng, LABELS)) * signs_or_numbers(rng.standard_normal(shape))
    return Problem(
        structure, kind, architecture, _features(rng, kind, (examples, architecture.paths, features)), labels
    )


def _powers(rng: np.random.Generator, exponents: tuple[float, float], count: int | None = None) -> np.ndarray:
    return 10.0 ** rng.uniform(*exponents, size=count)


def _widths(layers: Sequence, widths: np.ndarray) -> list[float]:
    """Round the widths up, and make them equal on both sides of a skip connection."""
    equal = list(map(float, np.ceil(widths)))
    for i, layer in enumerate(layers):
        if isinstance(layer, bpkr.Skip):
            equal[i + 1] = equal[i]
    return equal


def _features(rng: np.random.Generator, kind: str, shape: tuple[int, int, int]) -> np.ndarray:
    examples, paths, features = shape
    values = rng.standard_normal(shape) / np.sqrt(paths * features)
    if kind == "deficient":
        rank = int(rng.integers(1, min(examples, paths * features)))
        left, right = rng.standard_normal((examples, rank)), rng.standard_normal((rank, paths * features))
        return (left @ right).reshape(shape) / np.sqrt(rank * paths * features)
    if kind == "repeated":
        values[examples // 2 :] = values[: examples - examples // 2]
    if kind == "partly zero":
        values[rng.random(examples) < 0.3] = 0.0
        values[:, rng.integers(paths)] = 0.0
    if kind == "huge":
        values *= float(_powers(rng, HUGE))
    return values


def outcome(seed: int, solver: str = "default") -> Outcome:
    """Solve the problem of a seed."""
    case = problem(seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bpkr.ConvergenceWarning)
        try:
            saddle = bpkr.solve(case.architecture, bpkr.Data(case.features, case.labels), solver=SOLVERS[solver]())
        except ValueError as refusal:
            return Outcome(seed, case.structure, case.kind, "refused", message=str(refusal))
    return Outcome(
        seed=seed,
        structure=case.structure,
        kind=case.kind,
        outcome="converged" if saddle.converged else "not converged",
        gradient_norm=float(saddle.gradient_norm),
        action=float(saddle.action),
        action_error=float(saddle.action_error),
        largest_width=max(map(float, case.architecture.widths)),
        attempts=int(saddle.stats["attempts"]),
        steps=int(saddle.stats["steps"]),
        seconds=time.perf_counter() - start,
        message="" if saddle.converged else saddle.diagnosis,
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Tabulate counts by structure and by kind of features."""
    columns = ("converged", "not converged", "refused")
    lines = [f"{'':>14} {'problems':>9} " + " ".join(f"{name:>14}" for name in columns) + f" {'of not refused':>15}"]
    groups = {
        **{name: [o for o in outcomes if o.structure == name] for name in STRUCTURES},
        **{name: [o for o in outcomes if o.kind == name] for name in KINDS},
        "all": list(outcomes),
    }
    for name, group in groups.items():
        counts = Counter(each.outcome for each in group)
        tried = len(group) - counts["refused"]
        share = f"{counts['converged'] / tried:.1%}" if tried else ""
        numbers = " ".join(f"{counts[column]:>14}" for column in columns)
        lines.append(f"{name:>14} {len(group):>9} {numbers} {share:>15}")
    return "\n".join(lines)


def written(path: Path, name: str, outcomes: Sequence[Outcome]) -> Path:
    """Write the outcomes as columns under `name` into the file, and keep the results under other names."""
    rows = [{**asdict(each), "seconds": round(each.seconds, 3)} for each in outcomes]
    # Refused problems have no numbers.
    columns = {key: [None if row[key] != row[key] else row[key] for row in rows] for key in rows[0] if key != "message"}
    failures = {row["seed"]: row["message"] for row in rows if row["outcome"] == "not converged"}
    others = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**others, name: {**columns, "failures": failures}}) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--solver", choices=SOLVERS, default="default")
    parser.add_argument("--name", default="now", help="name of the results in the file")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.output is not None:
        arguments.output.mkdir(parents=True, exist_ok=True)
    theorykit.enable_float64()
    seeds = range(arguments.first, arguments.first + arguments.count)
    outcomes = [outcome(seed, arguments.solver) for seed in tqdm(seeds, desc="problems", dynamic_ncols=True)]
    print(table(outcomes))
    if arguments.output is not None:
        print(f"wrote {written(arguments.output / 'robustness.json', arguments.name, outcomes)}")


if __name__ == "__main__":
    main()
