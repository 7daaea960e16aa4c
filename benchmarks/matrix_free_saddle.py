"""Compare matrix-free saddle points at 20,000 examples, for several keys, with exact ones from the D x D Gram matrix.

    python benchmarks/matrix_free_saddle.py [--examples 20000] [--features 128] [--keys 10] [--output FILE]

Prints how often the reported errors cover the deviation of each key's saddle point from the exact one, and the time and
memory of a solve in a separate process. Results are saved after each key in FILE
(benchmarks/results/matrix_free_saddle.json by default), and a run that was stopped resumes from it. The exact solve
needs more examples than features of all paths.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from matrix_free import LAYERS, TEMPERATURE, WIDTHS, data

from theorykit.bpkr import Data, solve

RESULTS = Path(__file__).parent / "results" / "matrix_free_saddle.json"
# Stated coverage probability of the margins of an entry.
PROBABILITY = 0.99
# Half of the default number of probes, and a tolerance well below the errors that they leave.
PROBES, TOLERANCE = 16, 1e-4


def numbers(order_parameters) -> list[float]:
    """Return the entries of all order parameters on and above the diagonals."""
    matrices = (*order_parameters.matrices, np.reshape(order_parameters.readout, (1, 1)))
    return [float(value) for matrix in map(np.asarray, matrices) for value in matrix[np.triu_indices(len(matrix))]]


def solved(form: str, examples: int, features: int, seed: int) -> dict:
    """Solve in one form; return the saddle point, its errors or evaluations, seconds and peak memory."""
    import jax

    import theorykit
    from theorykit import bpkr
    from theorykit.bpkr.evaluation.bound_action import bind
    from theorykit.bpkr.evaluation.energies import energy_of
    from theorykit.bpkr.matrix_free.solver import MatrixFree

    theorykit.enable_float64()
    architecture = bpkr.Architecture(LAYERS, WIDTHS, temperature=TEMPERATURE)
    array, labels = data(examples, features)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    if form == "matrix-free":
        options = MatrixFree(jax.random.key(seed), probes=PROBES, progress=False)
        found = solve(architecture, Data(array, labels), tolerance=TOLERANCE, solver=options)
        more = {
            "margins": numbers(found.margins(PROBABILITY)),
            "errors": numbers(found.errors),
            "action_error": float(found.error()),
            "standard_error": float(found.standard_error),
            "excess": float(found.excess),
            "bias": float(found.bias),
            "steps": found.stats["steps"],
            "residual": found.stats["residual"],
        }
    elif form == "exact":
        found = bpkr.solve(architecture, bpkr.Data(array, labels))
        more = {"evaluations": int(found.stats["evaluations"]), "converged": bool(found.converged)}
    else:
        evaluate = jax.jit(
            lambda u1: energy_of(bind(architecture), bpkr.Data(jax.numpy.asarray(array), labels), by_kernel=True).at(u1)
        )
        point = jax.block_until_ready(evaluate(bpkr.gp_limit(architecture).first))
        more = {"energy_at_the_limit": float(point.value)}
        found = None
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    place = (
        {} if found is None else {"order_parameters": numbers(found.order_parameters), "action": float(found.action)}
    )
    return {**place, **more, "seconds": seconds, "peak_gb": peak / 1e6, "before_gb": before / 1e6}


def in_own_process(form: str, *sizes: int) -> dict:
    """Call `solved` in a fresh process, so that peak memory counts nothing else."""
    command = [sys.executable, __file__, "--solve", form, *map(str, sizes)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def report(results: dict) -> None:
    """Print coverage over all keys and entries, and time and memory of a solve."""
    exact, keys = results["exact"], list(results["keys"].values())
    deviations = np.array([one["order_parameters"] for one in keys]) - exact["order_parameters"]
    margins, errors = (np.array([one[name] for one in keys]) for name in ("margins", "errors"))
    covered = np.abs(deviations) <= margins
    print(f"{len(keys)} keys, {deviations.shape[1]} entries of order parameters each")
    print(f"    within margins of {PROBABILITY:.0%}: {covered.mean():.1%} of entries")
    scaled = deviations[:, errors.min(axis=0) > 0] / errors[:, errors.min(axis=0) > 0]
    print(
        f"    deviations in standard errors: rms {np.sqrt(np.mean(scaled**2)):.2f}, largest {np.abs(scaled).max():.2f}"
    )
    size = np.abs(exact["order_parameters"]).max()
    print(
        f"    standard errors, of the largest entry: mean {errors.mean() / size:.1e}, largest {errors.max() / size:.1e}"
    )
    missed = np.array([one["action"] - exact["action"] for one in keys])
    stated = np.array([one["action_error"] for one in keys])
    within = f"{np.sum(np.abs(missed) <= stated)} of {len(keys)} within the stated error, mean {stated.mean():.2g}"
    print(f"    S: exact {exact['action']:.8g}; off by {np.sqrt(np.mean(missed**2)):.2g} (rms); {within}")
    for name, one in {"matrix-free": keys[0], "exact, by the Gram matrix": exact}.items():
        print(f"{name}: {one['seconds']:.0f} s, peak {one['peak_gb']:.2f} GB, {one['before_gb']:.2f} of it before")
    steps = [sum(one["steps"]) for one in keys]
    print(
        f"    steps over all repeats: {min(steps)} to {max(steps)}; all seconds: {[round(k['seconds']) for k in keys]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("--output", type=Path, default=RESULTS)
    asked = parser.parse_args()
    sizes = {"examples": asked.examples, "features": asked.features}
    results = json.loads(asked.output.read_text()) if asked.output.exists() else {**sizes, "keys": {}}
    if {name: results[name] for name in sizes} != sizes:
        parser.error(f"{asked.output} has results for other sizes; name another --output")

    def keep() -> None:
        asked.output.write_text(json.dumps(results, indent=1) + "\n")

    if "exact" not in results:
        results["exact"] = in_own_process("exact", *sizes.values(), 0)
        keep()
    for seed in range(asked.keys):
        if str(seed) not in results["keys"]:
            results["keys"][str(seed)] = in_own_process("matrix-free", *sizes.values(), seed)
            keep()
            print(f"key {seed}: {results['keys'][str(seed)]['seconds']:.0f} s", flush=True)
    report(results)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--solve"]:
        print(json.dumps(solved(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main()
