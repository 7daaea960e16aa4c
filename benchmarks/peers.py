"""Time `bpkr.solve` next to a program written by hand, and to SciPy's minimiser with our action and its gradient.

    python benchmarks/peers.py [--output FOLDER] [--repeats 3] [--only SETTING]

Every program minimises the action of one attention network with heads (2, 3, 2), from the Gaussian-process limit: a
first problem in a fresh process, a second problem of the same size, and a third with one example fewer. The program
written by hand uses jax.numpy and Optimistix on the Cholesky factors of the order parameters; SciPy gets the same
coordinates. Tolerances are as loose as an error of 1e-8 of the action admits. THEORYKIT_CACHE is off, or a folder that
an earlier process has filled. All programs run with the default number of threads, and with one thread of OpenBLAS: on
a busy machine the threads of small factorisations wait for each other, and waiting counts as processor time. Each
number is the median over fresh processes, which run in turn. Writes peers.json into FOLDER (benchmarks/results by
default).
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from first_second import run

PRECISION = 1e-8
# Values of OPENBLAS_NUM_THREADS.
THREADS = {"default threads": None, "one thread": "1"}
PARTS = ("import and first", "second", "one example fewer")

_BEFORE = """
import json, sys, time
begun, busy = time.perf_counter(), time.process_time()
"""

_BY_HAND = """
import jax
import jax.numpy as jnp
import optimistix
from jax.scipy.linalg import solve_triangular

jax.config.update("jax_enable_x64", True)
HEADS, N, T = (2, 3, 2), 10.0, 0.01
SIZES = (12, 6, 2)  # partial paths from each layer
ENDS = (78, 99, 102)  # of the factors of U_1, U_2, U_3 among the coordinates; the last coordinate is log u

def factor(part, size):
    lower = jnp.zeros((size, size)).at[jnp.tril_indices(size)].set(part)
    return jnp.tril(lower, -1) + jnp.diag(jnp.exp(jnp.diag(lower)))

def log_det(lower):
    return 2 * jnp.sum(jnp.log(jnp.diag(lower)))

def action(coordinates, data):
    features, labels = data
    *parts, log_u = jnp.split(coordinates, ENDS)
    total, above = N * jnp.sum(jnp.exp(log_u) - log_u), jnp.exp(log_u / 2).reshape(1, 1)
    for heads, size, part in reversed(list(zip(HEADS, SIZES, parts))):
        lower = factor(part, size)
        ratio = solve_triangular(jnp.kron(jnp.eye(heads), above), lower, lower=True)
        total += N * (jnp.sum(ratio**2) - log_det(lower) + heads * log_det(above))
        above = lower
    weighted = jnp.einsum("pif,ij->pjf", features, above).reshape(len(labels), -1)
    kernel = jnp.linalg.cholesky(weighted @ weighted.T + T * jnp.eye(len(labels)))
    return total + log_det(kernel) + jnp.sum(solve_triangular(kernel, labels, lower=True) ** 2)

@jax.jit
def minimum(features, labels):
    solver = SOLVER(rtol=1e-6, atol=1e-6)
    found = optimistix.minimise(action, solver, jnp.zeros(103), (features, labels), max_steps=2000)
    return action(found.value, (features, labels))

def solve(features, labels):
    return float(minimum(features, labels))
"""

_THEORYKIT = """
import theorykit
from theorykit import bpkr

theorykit.enable_float64()
arch = bpkr.Architecture((2, 3, 2), 10, temperature=0.01)

def solve(features, labels):
    return float(bpkr.solve(arch, bpkr.Data(features, labels)).action)
"""

_SCIPY = """
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize
import theorykit
from theorykit import bpkr

theorykit.enable_float64()
arch = bpkr.Architecture((2, 3, 2), 10, temperature=0.01)
OPTIONS = {"maxiter": 2000, "ftol": 1e-11}

def factor(part, size):
    lower = jnp.zeros((size, size)).at[jnp.tril_indices(size)].set(part)
    return jnp.tril(lower, -1) + jnp.diag(jnp.exp(jnp.diag(lower)))

@jax.jit
@jax.value_and_grad
def action(coordinates, features, labels):
    *parts, log_u = jnp.split(coordinates, (78, 99, 102))
    factors = [factor(part, size) for part, size in zip(parts, (12, 6, 2))]
    point = bpkr.OrderParameters(tuple(lower @ lower.T for lower in factors), jnp.exp(log_u[0]))
    return bpkr.evaluate(bpkr.Problem(arch, bpkr.Data(features, labels)), point).total

def solve(features, labels):
    found = minimize(action, np.zeros(103), (features, labels), "L-BFGS-B", True, options=OPTIONS)
    return float(found.fun)
"""

_AFTER = """
import numpy as np
rows, actions = {"import": (time.perf_counter() - begun, time.process_time() - busy)}, []
for seed, (name, examples) in enumerate({"first": 150, "second": 150, "one example fewer": 149}.items()):
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(examples, 12, 50)) / np.sqrt(50), rng.choice([-1.0, 1.0], size=examples)
    begun, busy = time.perf_counter(), time.process_time()
    actions.append(solve(features, labels))
    rows[name] = time.perf_counter() - begun, time.process_time() - busy
rows["import and first"] = [sum(both) for both in zip(rows["import"], rows["first"])]
print(json.dumps({"rows": rows, "actions": actions}))
"""

PROGRAMS = {
    "`bpkr.solve`": (_THEORYKIT, "off"),
    "`bpkr.solve`, cached": (_THEORYKIT, "cache"),
    "by hand, BFGS": (f"{_BY_HAND}\nSOLVER = optimistix.BFGS\n", "off"),
    "by hand, L-BFGS": (f"{_BY_HAND}\nSOLVER = optimistix.LBFGS\n", "off"),
    "our action, SciPy's L-BFGS-B": (_SCIPY, "off"),
}


def medians(runs: list[dict]) -> dict:
    """Return the median times of every part, and the actions of the first run."""
    columns = {"seconds": 0, "processor_seconds": 1}
    rows = {
        part: {what: statistics.median(each["rows"][part][at] for each in runs) for what, at in columns.items()}
        for part in runs[0]["rows"]
    }
    return {**rows, "actions": runs[0]["actions"]}


def measure(repeats: int, threads: str | None) -> dict:
    """Return the median times of every program, and the relative error of its actions."""
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
    if threads is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = threads
    with tempfile.TemporaryDirectory() as folder:
        programs = {
            name: (f"{_BEFORE}{program}{_AFTER}", folder if cache == "cache" else cache)
            for name, (program, cache) in PROGRAMS.items()
        }
        run(programs["`bpkr.solve`, cached"][0], "", folder)
        # Programs take turns, so that a busy minute slows all of them.
        turns = [{name: run(p, "", cache) for name, (p, cache) in programs.items()} for _ in range(repeats)]
    found = {name: medians([turn[name] for turn in turns]) for name in programs}
    lowest = [min(actions) for actions in zip(*(each["actions"] for each in found.values()), strict=True)]
    for name, each in found.items():
        actions = each.pop("actions")
        each["error"] = max(abs(own / least - 1) for own, least in zip(actions, lowest, strict=True))
        print(
            name, *(f"{part} {each[part]['processor_seconds']:.3g} s" for part in PARTS), f"error {each['error']:.0e}"
        )
        assert each["error"] < PRECISION
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=tuple(THREADS), default=tuple(THREADS))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "peers.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for threads in arguments.only:
        found[threads] = measure(arguments.repeats, THREADS[threads])
        path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
