"""Time public functions by default and with one thread of linear algebra, on a quiet and on a busy machine.

    python benchmarks/threads.py [--output FOLDER] [--sizes EXAMPLES ...] [--only NAME ...] [--rounds ROUNDS]
                                 [--version NAME]

Timed calls repeat the arguments of an untimed first call, so they do not compile. Processes with OPENBLAS_NUM_THREADS=1
and processes without this variable take turns, and times are medians over all rounds. On the busy machine another
process runs an endless loop. A ratio above 1 means that the default is slower than one thread. Prints a table, and adds
it to threads.json in FOLDER (benchmarks/results by default) under the name of the version, by default "now". To measure
another version of the package, set PYTHONPATH.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from problems import random_features
from sympy import Symbol

import theorykit
from theorykit import bpkr, saddle
from theorykit.bpkr import sampling
from theorykit.symbolic import log_det, positive_definite, trace

SIZES = (150, 400, 2500)
# At LARGE examples and more, time only the functions that people call with so many examples, and use fewer paths.
LARGE, OF_LARGE = 1000, ("solve", "evaluate", "predict")
CALLS = 5


def cases(examples: int) -> dict[str, Callable[[], object]]:
    """Return the timed calls by name, for this number of examples."""
    heads = (2, 2) if examples >= LARGE else (2, 3, 2)
    paths = int(np.prod(heads))
    architecture = bpkr.Architecture(heads, 20.0, temperature=0.1)
    features, _ = random_features(examples, paths, 700 if examples >= LARGE else 40)
    labels = np.sign(np.asarray(features[:, 0, 0] - features[:, 1, 1] + 0.1 * features[:, 2, 2]))
    new = features[:40] + 0.01
    at = bpkr.solve(architecture, bpkr.Data(features, labels), throw=False).order_parameters
    statistics = bpkr.Data.of_arrays(np.asarray(features), labels).moments
    kernels = jnp.einsum("pif,qjf->pqij", features[:60], features[:60])
    n = Symbol("n", integer=True, positive=True)
    overlap, given = positive_definite("U", n), positive_definite("C", n)
    action = saddle.Action(trace(given * overlap) - log_det(overlap), {overlap: saddle.PositiveDefinite()}, [given])
    matrix = np.eye(12) + 0.3
    inputs = np.random.default_rng(1).standard_normal((examples, 6, 8))
    attention = [np.full((examples, count, 6, 6), 1 / 6) for count in heads]
    data, key = bpkr.Data(features, labels), jax.random.key(0)
    short = sampling.Schedule(chains=2, warmup=30, draws=30)
    return {
        "solve": lambda: bpkr.solve(architecture, bpkr.Data(features, labels), throw=False),
        "evaluate": lambda: bpkr.evaluate(bpkr.Problem(architecture, bpkr.Data(features, labels)), at),
        "gradient_norm": lambda: bpkr.gradient_norm(bpkr.Problem(architecture, bpkr.Data(features, labels)), at),
        "predict": lambda: bpkr.predict(bpkr.Problem(architecture, bpkr.Data(features, labels)), at, new),
        "kernel": lambda: bpkr.kernel(bpkr.Problem(architecture, bpkr.Data(features)), at),
        "fluctuations": lambda: bpkr.fluctuations(bpkr.Problem(architecture, bpkr.Data(features, labels)), at, new),
        "first_order": lambda: bpkr.first_order(bpkr.Problem(architecture, bpkr.Data(features, labels))),
        "search": lambda: bpkr.search(architecture, data, key=key, starts=2, progress=False),
        "Data.of_arrays": lambda: bpkr.Data.of_arrays(np.asarray(features), labels).moments,
        "solve from moments": lambda: bpkr.solve(architecture, bpkr.Data(moments=statistics), throw=False),
        "features_of_kernels": lambda: bpkr.features_of_kernels(kernels),
        "path_features": lambda: bpkr.path_features(inputs, attention, architecture, "last"),
        "sample_order_parameters": lambda: sampling.sample_order_parameters(
            architecture, data, key=key, schedule=short, progress=False
        ),
        "saddle.minimise": lambda: saddle.minimise(action, {given: matrix}, initial={overlap: np.eye(12)}),
    }


def finished(result: object) -> None:
    """Wait until all arrays of a result are ready."""
    jax.block_until_ready([leaf for leaf in jax.tree.leaves(result) if isinstance(leaf, jax.Array)])


def child(examples: int, names: list[str]) -> dict[str, list[float]]:
    """Return the seconds of the calls after the first, by name."""
    found = {}
    for name, call in cases(examples).items():
        if name in names:
            finished(call())
            found[name] = []
            while len(found[name]) < (2 if examples >= LARGE else CALLS):
                started = time.perf_counter()
                finished(call())
                found[name].append(time.perf_counter() - started)
    return found


def measured(examples: int, names: list[str], one_thread: bool) -> dict[str, list[float]]:
    """Call `child` in a fresh process."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment |= {"OPENBLAS_NUM_THREADS": "1"} if one_thread else {}
    command = [sys.executable, __file__, "--child", str(examples), *names]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--version", default="now")
    options = parser.parse_args()
    rows = []
    for examples in options.sizes:
        names = options.only or (OF_LARGE if examples >= LARGE else list(cases(50)))
        for busy in (False, True):
            beside = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
            try:
                rounds = [
                    [measured(examples, names, one_thread) for one_thread in (False, True)]
                    for _ in range(options.rounds)
                ]
            finally:
                if beside is not None:
                    beside.kill()
            for name in names:
                default, one = (float(np.median([each[i][name] for each in rounds])) for i in (0, 1))
                rows.append({"function": name, "examples": examples, "busy": busy, "default": default, "one": one})
                state = "busy" if busy else "quiet"
                print(
                    f"| {name} | {examples} | {state} | {default:.4f} | {one:.4f} | {default / one:.2f} |", flush=True
                )
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "threads.json"
    versions = json.loads(path.read_text()) if path.exists() else {}
    case = lambda row: (row["function"], row["examples"], row["busy"])  # noqa: E731
    kept = {case(row): row for row in (*versions.get(options.version, ()), *rows)}
    path.write_text(json.dumps(versions | {options.version: list(kept.values())}, indent=1) + "\n")


if __name__ == "__main__":
    theorykit.enable_float64()
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(int(sys.argv[2]), sys.argv[3:])))
    else:
        main()
