"""Count how often the solver finds a certified minimum of ill-conditioned random problems.

    python benchmarks/robustness.py [--count 2000] [--first 0]

Architectures have seven structures. Widths, variances, temperature and labels cover
many orders of magnitude, and features are regular, rank-deficient, repeated, partly
zero or huge. A problem ends in one of three ways: converged, refused (with an error
that gives the reason), or not converged (with a warning that gives the reason). Prints
tables, and writes results/robustness.json.
"""

import json
import time
import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
from problems import parser_of
from tqdm import tqdm

from theorykit import bpkr
from theorykit.saddle import ConvergenceWarning

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


class Problem(NamedTuple):
    """Structure and kind of a problem, and its data."""

    structure: str
    kind: str
    architecture: bpkr.Architecture
    features: np.ndarray
    labels: np.ndarray


def problem(seed: int) -> Problem:
    """Make the problem of a seed."""
    rng = np.random.default_rng(seed)

    def powers(exponents: tuple[float, float], count: int | None = None) -> np.ndarray:
        return 10.0 ** rng.uniform(*exponents, size=count)

    structure = str(rng.choice(list(STRUCTURES)))
    layers, outputs = STRUCTURES[structure]
    widths = np.ceil(powers(WIDTHS, len(layers) + 1)).tolist()
    for i, layer in enumerate(layers):
        if isinstance(layer, bpkr.Skip):  # its width is the same on both sides
            widths[i + 1] = widths[i]
    variances, temperature = powers(VARIANCES, len(layers) + 2).tolist(), float(powers(TEMPERATURES))
    numbers = {"temperature": temperature, "outputs": outputs}
    architecture = bpkr.Architecture(layers, widths, variances, **numbers)
    examples, features = SIZES[int(rng.integers(len(SIZES)))]
    kind = str(rng.choice(KINDS))
    shape = (examples, outputs) if outputs > 1 else (examples,)
    signs_or_numbers = (np.sign, np.asarray)[int(rng.integers(2))]
    labels = float(powers(LABELS)) * signs_or_numbers(rng.standard_normal(shape))
    paths = architecture.paths
    values = rng.standard_normal((examples, paths, features)) / np.sqrt(paths * features)
    if kind == "deficient":
        rank = int(rng.integers(1, min(examples, paths * features)))
        left, right = rng.standard_normal((examples, rank)), rng.standard_normal((rank, paths * features))
        values = (left @ right).reshape(values.shape) / np.sqrt(rank * paths * features)
    elif kind == "repeated":
        values[examples // 2 :] = values[: examples - examples // 2]
    elif kind == "partly zero":
        values[rng.random(examples) < 0.3] = 0.0
        values[:, rng.integers(paths)] = 0.0
    elif kind == "huge":
        values *= float(powers(HUGE))
    return Problem(structure, kind, architecture, values, labels)


def outcome(seed: int) -> dict:
    """Solve the problem of a seed."""
    case, start = problem(seed), time.perf_counter()
    found = {"seed": seed, "structure": case.structure, "kind": case.kind}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            data = bpkr.Data(case.features, case.labels)
            saddle = bpkr.solve(case.architecture, data)
        except ValueError as refusal:
            return found | {"outcome": "refused", "message": str(refusal)}
    return found | {
        "outcome": "converged" if saddle.converged else "not converged",
        "gradient_norm": float(saddle.gradient_norm),
        "action": float(saddle.action),
        "action_error": float(saddle.action_error),
        "attempts": int(saddle.stats["attempts"]),
        "steps": int(saddle.stats["steps"]),
        "seconds": round(time.perf_counter() - start, 3),
        "message": "" if saddle.converged else saddle.diagnosis,
    }


def main() -> None:
    parser = parser_of(__doc__, "robustness")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    rows = pd.DataFrame([outcome(seed) for seed in tqdm(seeds)])
    for group in ("structure", "kind"):
        table = pd.crosstab(rows[group], rows["outcome"], margins=True)
        tried = table["All"] - table.get("refused", 0)
        print(table.assign(share=table.get("converged", 0) / tried).to_string(), "\n")
    failures = rows[rows["outcome"] == "not converged"].set_index("seed")["message"]
    columns = rows.drop(columns="message").astype(object).where(rows.notna(), None).to_dict("list")
    found = {"now": {**columns, "failures": failures.to_dict()}}
    options.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
