"""Minimise the action of attention paths with the generic and the specialised solver; compare minima and times.

    python benchmarks/generic.py [--output FOLDER]

The problems are hidden Markov chains (100 examples, 4 paths, 231 features) at several widths, and random features with
more paths. Each solve starts from the Gaussian-process limit. Times exclude compilation; the time of the first call,
which includes it, is reported separately. Writes generic.json into FOLDER (benchmarks/results by default).
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import jax
import numpy as np

import theorykit
from theorykit import bpkr, saddle

sys.path.insert(0, str(Path(__file__).parent))
import problems

TOLERANCE = 1e-9
WIDTHS = (10, 100, 1000)
PATHS = (4, 16, 36)
EXAMPLES, FEATURES = 100, 30
REPEATS = 7


def timed(work, repeats: int = REPEATS) -> tuple[object, float, float]:
    """Return the result, the seconds of the first call, and the median seconds of the later calls."""
    start = time.perf_counter()
    result = jax.block_until_ready(work())
    first, times = time.perf_counter() - start, []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - start)
    return result, first, statistics.median(times)


def row(name: str, architecture: bpkr.Architecture, features, labels) -> dict:
    """Solve one problem with both solvers."""
    action = bpkr.derive(architecture).of_free_order_parameters
    values = bpkr.parameter_values(bpkr.Problem(architecture, bpkr.Data(features, labels)))
    limit, symbols = bpkr.gp_limit(architecture), bpkr.derive(architecture).symbols
    start = dict(zip(symbols.order_parameters, (*limit.matrices, limit.readout), strict=True))
    initial = {symbol: start[symbol] for symbol in action.order_parameters}
    own, own_first, own_seconds = timed(
        lambda: bpkr.solve(architecture, bpkr.Data(features, labels), tolerance=TOLERANCE)
    )
    generic, generic_first, generic_seconds = timed(
        lambda: saddle.minimise(action, values, initial=initial, tolerance=TOLERANCE)
    )
    return {
        "problem": name,
        "paths": architecture.paths,
        "width": float(architecture.widths[0]),
        "own_seconds": own_seconds,
        "own_first_seconds": own_first,
        "own_evaluations": int(own.stats["evaluations"]),
        "generic_seconds": generic_seconds,
        "generic_first_seconds": generic_first,
        "generic_evaluations": int(generic.stats["evaluations"]),
        "ratio": generic_seconds / own_seconds,
        "action_difference": abs(float(generic.action - own.action)) / max(1.0, abs(float(own.action))),
        "converged": bool(own.converged and generic.converged),
    }


def rows():
    features, labels = problems.hidden_markov_chains()
    for width in WIDTHS:
        yield row("hidden Markov chains", bpkr.Architecture((2, 2), width, temperature=0.01), features, labels)
    for paths in PATHS:
        heads = round(paths**0.5)
        features, labels = problems.random_features(EXAMPLES, paths, FEATURES)
        yield row("random features", bpkr.Architecture((heads, heads), 100, temperature=0.1), features, labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    theorykit.enable_float64()
    found = []
    for each in rows():
        found.append(each)
        print(
            f"{each['problem']:22} {each['paths']:3} paths, width {each['width']:6g}: own {each['own_seconds']:.4f} s, "
            f"generic {each['generic_seconds']:.4f} s ({each['ratio']:.1f} times), actions differ by "
            f"{each['action_difference']:.1e}"
        )
    arguments.output.mkdir(parents=True, exist_ok=True)
    result = {"jax": jax.__version__, "device": jax.devices()[0].device_kind, "rows": found}
    (arguments.output / "generic.json").write_text(json.dumps(result, indent=1) + "\n")
    assert np.all([each["converged"] for each in found])


if __name__ == "__main__":
    main()
