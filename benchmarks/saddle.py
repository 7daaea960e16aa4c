"""Time the saddle-point solver against its peers.

    python benchmarks/saddle.py [--only CASE ...] [--repeats 3] [--quick]

Cases: the two tasks of the paper, the first of them against its optimiser (Adam with a
constant rate, to a gradient of 1e-5); many paths; a grid; and `peers`: in fresh
processes, `bpkr.solve`, a program by hand with jax.numpy and Optimistix, and SciPy with
our action. Each case has a separate process. Times exclude compilation unless their name
says otherwise. Cases that are not run again keep their results in results/saddle.json.
"""

import resource
import tempfile
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from problems import fresh, hidden_markov_chains, in_process, medians, random_features, run, seconds, timed

from theorykit import bpkr
from theorykit.bpkr.sweeps import sweep

ONE_SHOT_WIDTHS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
TEMPERATURES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5)


@eqx.filter_jit
def solve(architecture, features, labels):
    return bpkr.solve(architecture, bpkr.Data(features, labels), tolerance=1e-8)


def solved(heads, width, temperature, data, repeats: int = 3) -> dict:
    """Time one solve, and return its quality."""
    architecture = bpkr.Architecture(heads, float(width), temperature=temperature)
    saddle, (first, _) = timed(lambda: solve(architecture, *data))
    return {
        "N": width,
        "heads": list(heads),
        "seconds": seconds(lambda: solve(architecture, *data), repeats),
        "seconds_with_compilation": first,
        "evaluations": int(saddle.stats["evaluations"]),
        "gradient_norm": float(saddle.gradient_norm),
        "converged": bool(saddle.converged),
    }


@partial(jax.jit, static_argnums=(0, 1, 4))
def adam(heads, width, features, labels, steps):
    """Minimise S / N from the Gaussian-process limit; return the number of steps."""
    architecture = bpkr.Architecture(heads, width, temperature=0.01)
    data, start = bpkr.Data(features, labels), bpkr.gp_limit(architecture)
    optimiser = optax.adam(0.1)

    def action(point):
        matrices = tuple((each + each.T) / 2 for each in point[0])
        values = bpkr.OrderParameters(matrices, jnp.exp(point[1]))
        return bpkr.evaluate(bpkr.Problem(architecture, data), values).total / width

    def goes_on(state):
        return (state[2] > 1e-5) & (state[3] < steps)

    def step(state):
        point, moments, _, count = state
        slope = jax.grad(action)(point)
        largest = jnp.max(jnp.array([jnp.max(abs(x)) for x in jax.tree.leaves(slope)]))
        updates, moments = optimiser.update(slope, moments)
        return optax.apply_updates(point, updates), moments, largest, count + 1

    point = start.matrices, jnp.log(start.readout)
    state = point, optimiser.init(point), jnp.inf, 0
    return jax.lax.while_loop(goes_on, step, state)[3]


def hidden_markov(quick: bool) -> list[dict]:
    rows, data = [], hidden_markov_chains()
    for width in (10,) if quick else (10, 30, 100, 300, 1000, 10000):
        row = solved((2, 2), width, 0.01, data)
        call = partial(adam, (2, 2), float(width), *data, 100 if quick else 20_000)
        row["adam_steps"] = int(call())
        row["adam_seconds"] = seconds(call, 1)
        rows.append(row | {"ratio": row["adam_seconds"] / row["seconds"]})
    return rows


def one_shot(quick: bool) -> list[dict]:
    data = random_features(60 if quick else 600)
    widths = (10,) if quick else ONE_SHOT_WIDTHS
    return [solved((4, 4), width, 0.1, data) for width in widths]


def many_paths(quick: bool, heads, width) -> list[dict]:
    paths = bpkr.Architecture(heads, 1.0, temperature=1.0).paths
    data = random_features(30 if quick else 600, paths)
    return [solved(heads, width, 0.1, data, 1)]


def grid(quick: bool) -> list[dict]:
    """Solve the paper's whole grid, each from its neighbour."""
    data = bpkr.Data(*random_features(60 if quick else 600))
    architecture = bpkr.Architecture((4, 4), 10.0, temperature=0.1)
    axes = {"width": ONE_SHOT_WIDTHS, "temperature": TEMPERATURES}
    if quick:
        axes = {name: values[:2] for name, values in axes.items()}
    found, (taken, _) = timed(lambda: sweep(architecture, data, **axes, tolerance=1e-8)["converged"])
    return [{"seconds_with_compilation": taken, "points": found.size, "converged": int(found.sum())}]


# ---- Peers: heads (2, 3, 2), width 10, 150 examples, in fresh processes

BEFORE = """
import json, time
begun, busy = time.perf_counter(), time.process_time()
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)

def factor(part, size):
    lower = jnp.zeros((size, size)).at[jnp.tril_indices(size)].set(part)
    return jnp.tril(lower, -1) + jnp.diag(jnp.exp(jnp.diag(lower)))
"""

BY_HAND = """
import optimistix
from jax.scipy.linalg import solve_triangular

def log_det(lower):
    return 2 * jnp.sum(jnp.log(jnp.diag(lower)))

def action(coordinates, data):
    features, labels = data
    *parts, log_u = jnp.split(coordinates, (78, 99, 102))
    total = 10 * jnp.sum(jnp.exp(log_u) - log_u)
    above = jnp.exp(log_u / 2).reshape(1, 1)
    for heads, size, part in reversed(list(zip((2, 3, 2), (12, 6, 2), parts))):
        lower, blocks = factor(part, size), jnp.kron(jnp.eye(heads), above)
        ratio = solve_triangular(blocks, lower, lower=True)
        entropy = jnp.sum(ratio**2) - log_det(lower) + heads * log_det(above)
        total, above = total + 10 * entropy, lower
    weighted = jnp.einsum("pif,ij->pjf", features, above).reshape(len(labels), -1)
    kernel = weighted @ weighted.T + 0.01 * jnp.eye(len(labels))
    root = jnp.linalg.cholesky(kernel)
    misfit = solve_triangular(root, labels, lower=True)
    return total + log_det(root) + jnp.sum(misfit**2)

@jax.jit
def minimum(*data):
    solver = SOLVER(rtol=1e-6, atol=1e-6)
    start = jnp.zeros(103)
    found = optimistix.minimise(action, solver, start, data, max_steps=2000)
    return action(found.value, data)

def solve(features, labels):
    return float(minimum(features, labels))
"""

THEORYKIT = """
import theorykit
from theorykit import bpkr
theorykit.enable_float64()
arch = bpkr.Architecture((2, 3, 2), 10, temperature=0.01)

def solve(features, labels):
    return float(bpkr.solve(arch, bpkr.Data(features, labels)).action)
"""

SCIPY = """
from scipy.optimize import minimize
import theorykit
from theorykit import bpkr
theorykit.enable_float64()
arch = bpkr.Architecture((2, 3, 2), 10, temperature=0.01)

@jax.jit
@jax.value_and_grad
def action(coordinates, *data):
    *parts, log_u = jnp.split(coordinates, (78, 99, 102))
    lower = map(factor, parts, (12, 6, 2))
    matrices = tuple(each @ each.T for each in lower)
    point = bpkr.OrderParameters(matrices, jnp.exp(log_u[0]))
    return bpkr.evaluate(bpkr.Problem(arch, bpkr.Data(*data)), point).total

def solve(*data):
    options = {"maxiter": 2000, "ftol": 1e-11}
    start = np.zeros(103)
    return minimize(action, start, data, "L-BFGS-B", True, options=options).fun
"""

AFTER = """
rows = {"import": (time.perf_counter() - begun, time.process_time() - busy)}
actions = []
counts = {"first": 150, "second": 150, "one example fewer": 149}
for seed, (name, examples) in enumerate(counts.items()):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(examples, 12, 50)) / np.sqrt(50)
    labels = rng.choice([-1.0, 1.0], size=examples)
    begun, busy = time.perf_counter(), time.process_time()
    actions.append(solve(features, labels))
    rows[name] = time.perf_counter() - begun, time.process_time() - busy
rows["import and first"] = [sum(both) for both in zip(rows["import"], rows["first"])]
print(json.dumps({"rows": rows, "actions": actions}))
"""

PROGRAMS = {
    "`bpkr.solve`": THEORYKIT,
    "`bpkr.solve`, cached": THEORYKIT,
    "by hand, BFGS": BY_HAND + "SOLVER = optimistix.BFGS\n",
    "by hand, L-BFGS": BY_HAND + "SOLVER = optimistix.LBFGS\n",
    "our action, SciPy's L-BFGS-B": SCIPY,
}
THREADS = {"default threads": {}, "one thread": {"OPENBLAS_NUM_THREADS": "1"}}


def peers(options) -> dict:
    """Return median times and the relative error of the action, by number of threads."""
    return {name: in_turns(options.repeats, each) for name, each in THREADS.items()}


def in_turns(repeats: int, threads: dict[str, str]) -> dict:
    with tempfile.TemporaryDirectory() as folder:

        def solved_by(name: str) -> dict:
            program = BEFORE + PROGRAMS[name] + AFTER
            return fresh(program, folder if "cached" in name else "off", **threads)

        solved_by("`bpkr.solve`, cached")
        # Programs take turns, so that a busy minute slows all of them.
        turns = [{name: solved_by(name) for name in PROGRAMS} for _ in range(repeats)]
    found = {}
    actions = [turns[0][name]["actions"] for name in PROGRAMS]
    lowest = [min(column) for column in zip(*actions, strict=True)]
    for name, own in zip(PROGRAMS, actions, strict=True):
        found[name] = medians([turn[name]["rows"] for turn in turns])
        found[name]["error"] = max(abs(x / least - 1) for x, least in zip(own, lowest, strict=True))
        assert found[name]["error"] < 1e-8
    return found


SOLVES = {
    "hidden_markov": hidden_markov,
    "one_shot": one_shot,
    "paths_27": partial(many_paths, heads=(3, 3, 3), width=10),
    "paths_64": partial(many_paths, heads=(8, 8), width=10),
    "paths_256": partial(many_paths, heads=(4, 4, 4, 4), width=100),
    "grid": grid,
}


def measure(name: str, quick: bool) -> dict:
    rows = SOLVES[name](quick)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"rows": rows, "peak_gib": peak, "jax": jax.__version__}


if __name__ == "__main__":
    cases = {name: lambda options, name=name: in_process(measure, name, options.quick) for name in SOLVES}
    repeats, quick = {"type": int, "default": 3}, {"action": "store_true"}
    run(__doc__, "saddle", cases | {"peers": peers}, repeats=repeats, quick=quick)
