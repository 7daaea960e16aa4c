"""Time the mean-field dynamics of self-attention for batches of orbits, against the published algorithm.

    python benchmarks/self_attention.py [--output FOLDER] [--zoom] [--gpu] [--only NAME ...] [--seconds SECONDS]

All cases use the published weights, windows of 4, 8 and 32 tokens, and beta between 1.24 and 1.28. The cases are:

- `rates`: tokens per second of the map, of all Lyapunov exponents and of the leading 3, on the CPU. One call has 256
  orbits; calls run one at a time, and as many at once as there are cores.
- `zoom`, with --zoom: seconds for the published zoom-in diagram, 4001 orbits of 100000 + 10000 tokens with 3 exponents.
- `gpu`, with --gpu: `rates` on the accelerator that JAX finds, with 4096 and 65536 orbits in one call.

Rates count tokens times orbits, after compilation, in the best of three runs. Each comes with two ratios. One is to the
published algorithm, re-implemented in self_attention_published.py (install the extra `benchmarks`), timed in the same
run with one thread of linear algebra or with all, whichever is faster. The other is to rates of the published program
itself, measured once on another machine. The published algorithm always computes all exponents, including exponents of
the positions; ratios compare with that even if fewer exponents are computed here.

Each case runs in a separate process, one after another, so run nothing else at the same time. Prints tables, and writes
self_attention.json and self_attention.png into FOLDER (benchmarks/results by default). Cases that are not run again
keep their results.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import theorykit
from theorykit import dmft, dynamics

sys.path.insert(0, str(Path(__file__).parent))
import self_attention_published as published

WINDOWS = (4, 8, 32)
PATTERNS, BETAS, EPSILON = 3, (1.24, 1.28), 0.02
GAMMA = float(dmft.attention_gain(2.2, 100, PATTERNS))
ORBITS, ACCELERATOR_ORBITS = 256, (4096, 65536)
ZOOM_ORBITS, ZOOM_LIMIT = 4001, 120.0
# Steps per second of the published program.
STATED = {
    4: {"map": 5500.0, "exponents": 114.0},
    8: {"map": 5500.0, "exponents": 48.0},
    32: {"map": 5500.0, "exponents": 8.5},
}
# FEWEST_STEPS is a multiple of the number of blocks of exponents.
REPETITIONS, FEWEST_STEPS = 3, 160

Call = Callable[[int], object]
QUANTITIES = {
    "map": None,
    "leading 3": partial(dmft.lyapunov_spectrum, exponents=3),
    "spectrum": dmft.lyapunov_spectrum,
}
TARGETS = {("map", 4): 5000, ("spectrum", 4): 5000, ("leading 3", 4): 20_000}


def network(tokens: int) -> tuple[dmft.Weights, dmft.SelfAttention]:
    """Return the published weights, with as many positions as `tokens` need, and their mean-field limit."""
    weights = dmft.published_weights(position_bits=(tokens - 1).bit_length())
    return weights, dmft.self_attention_limit(weights, tokens)


def published_rates(seconds: float) -> list[dict]:
    """Measure steps per second of the published algorithm, in this process."""
    rows = []
    for tokens in WINDOWS:
        weights, _ = network(tokens)
        bits, every = weights.position_bits, np.concatenate([weights.semantic, weights.positional], axis=2)
        parameters = published.parameters_of(every, bits, beta=np.mean(BETAS), gamma=GAMMA, epsilon=EPSILON)
        prompt = np.concatenate([weights.semantic[published.OUTPUT, 0], -np.ones(bits)])
        start = published.attention_of_prompt(prompt, every, parameters)
        # After a whole number of windows the position is 0 again.
        window = published.trajectory(start, tokens, parameters, 10 * tokens)[: -tokens - 1 : -1]
        positions = published.position_window(tokens, bits)
        calls = {
            "map": partial(published.trajectory, start, tokens, parameters),
            "exponents": partial(published.lyapunov_steps, window, positions, parameters),
        }
        rows += [
            {"window": tokens, "quantity": quantity, "rate": published.steps_per_second(call, seconds)}
            for quantity, call in calls.items()
        ]
    return rows


def calls_of(tokens: int, orbits: int) -> dict[str, Call]:
    """Return, for each quantity, a function that takes a given number of steps of a batch of orbits."""
    weights, model = network(tokens)
    parameters = dmft.Parameters(jnp.linspace(*BETAS, orbits), GAMMA, EPSILON)
    start = dmft.start(model, parameters, dmft.pattern_prompt(weights), "window")
    settled = dmft.advance(model, parameters, start, 1000)

    def of(quantity: str) -> Call:
        if quantity == "map":
            return lambda steps: jax.block_until_ready(dmft.advance(model, parameters, start, jnp.asarray(steps)))
        exponents = QUANTITIES[quantity]
        return lambda steps: jax.block_until_ready(exponents(model, parameters, settled, steps=steps).exponents)

    # All 96 exponents of a window of 32 tokens would take most of the time.
    return {quantity: of(quantity) for quantity in QUANTITIES if quantity != "spectrum" or tokens < 32}


def best_rate(call: Call, seconds: float, executor: ThreadPoolExecutor, threads: int) -> float:
    """Measure the total steps per second of `threads` simultaneous calls, after compilation."""

    def run(times: int) -> None:
        if threads == 1:
            call(FEWEST_STEPS * times)
        else:
            list(executor.map(call, [FEWEST_STEPS * times] * threads))

    call(FEWEST_STEPS)
    best = max(published.steps_per_second(run, seconds) for _ in range(REPETITIONS))
    return FEWEST_STEPS * threads * best


def rates(seconds: float) -> list[dict]:
    """Measure tokens times orbits per second on the CPU."""
    cores = os.cpu_count() or 1
    return _measured([ORBITS], sorted({1, cores}), seconds)


def gpu(seconds: float) -> list[dict]:
    """Measure rates on an accelerator, if there is one."""
    if jax.default_backend() == "cpu":
        return []
    return _measured(ACCELERATOR_ORBITS, [1], seconds)


def _measured(every_orbits, every_threads, seconds: float) -> list[dict]:
    rows = []
    with ThreadPoolExecutor(max(every_threads)) as executor:
        for tokens in WINDOWS:
            for orbits in every_orbits:
                for quantity, call in calls_of(tokens, orbits).items():
                    for threads in every_threads:
                        rate = orbits * best_rate(call, seconds, executor, threads)
                        about = {"window": tokens, "quantity": quantity, "orbits": orbits, "calls": threads}
                        rows.append({**about, "rate": rate})
                        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def zoom(seconds: float) -> list[dict]:
    """Time the published zoom-in diagram, started from the window at beta = 3, with compilation."""
    weights, model = network(4)
    before = dmft.Parameters(3.0, GAMMA, EPSILON)
    prompted = dmft.start(model, before, dmft.pattern_prompt(weights), "window")
    settled = dmft.advance(model, before, prompted, 100_000)
    parameters = dmft.Parameters(jnp.linspace(*BETAS, ZOOM_ORBITS), GAMMA, EPSILON)
    lengths = {"transient": 100_000, "recorded": 10_000, "exponents": 3}
    start = time.perf_counter()
    diagram = dynamics.orbits(
        model,
        parameters,
        lambda at: dmft.state_from_window(model, at, settled.window, settled.position),
        observe=lambda state, at: dmft.semantic_overlap(model, at, state.latest)[dmft.OUTPUT],
        levels=np.linspace(-1, 1, 2001),
        coordinates=lambda state: state.attention,
        **lengths,
    )
    elapsed = time.perf_counter() - start
    chaotic = int(np.sum(diagram["exponent"].values[:, 0] > 1e-4))
    return [{"orbits": ZOOM_ORBITS, **lengths, "seconds": elapsed, "limit": ZOOM_LIMIT, "chaotic": chaotic}]


CASES = {"published": published_rates, "rates": rates, "zoom": zoom, "gpu": gpu}


def run_case(name: str, seconds: float) -> None:
    """Run a case in this process, and print its rows and the machine as one line of JSON."""
    theorykit.enable_float64()
    load = os.getloadavg()[0]
    rows = CASES[name](seconds)
    device = jax.devices()[0].device_kind
    about = {"device": device, "cores": os.cpu_count(), "load_before": load, "jax": jax.__version__}
    print(json.dumps({"rows": rows, **about}))


def in_own_process(name: str, seconds: float, **environment: str) -> dict:
    """Call `run_case` in a separate process, and return its result."""
    command = [sys.executable, __file__, "--case", name, "--seconds", str(seconds)]
    environment = {**os.environ, **({} if name == "gpu" else {"JAX_PLATFORMS": "cpu"}), **environment}
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(finished.stdout.splitlines()[-1])


def fastest_published(seconds: float) -> dict:
    """Time the published algorithm with one thread of linear algebra and with all; keep the better rates."""
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    one = in_own_process("published", seconds, **dict.fromkeys(threads, "1"))
    every = in_own_process("published", seconds)
    for result, count in ((one, "1"), (every, "all")):
        result["rows"] = [{**row, "linear_algebra_threads": count} for row in result["rows"]]
    best = [max(pair, key=lambda row: row["rate"]) for pair in zip(one["rows"], every["rows"], strict=True)]
    return {**one, "rows": best, "measured": one["rows"] + every["rows"]}


def compared(rows: list[dict], baseline: list[dict]) -> list[dict]:
    """Return `rows` with ratios to the published algorithm in this run and to the published program, and the target."""
    rate_of = {(row["window"], row["quantity"]): row["rate"] for row in baseline}
    ratios = []
    for row in rows:
        window, name = row["window"], _published_quantity(row["quantity"])
        here, stated = row["rate"] / rate_of[window, name], row["rate"] / STATED[window][name]
        target = TARGETS.get((row["quantity"], window))
        ratios.append({**row, "ratio_to_algorithm_here": here, "ratio_to_program_stated": stated, "target": target})
    return ratios


def _published_quantity(quantity: str) -> str:
    return "map" if quantity == "map" else "exponents"


def table(name: str, result: dict) -> str:
    """Format the rows of a case as text."""
    rows = result["rows"]
    title = f"\n{name}   ({result['device']}, {result['cores']} cores, load {result['load_before']:.1f} before)"
    if not rows:
        return f"{title}\nnothing was measured, because JAX finds no accelerator"
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    sizes = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(f"{cell:>{size}}" for cell, size in zip(line, sizes, strict=True)) for line in cells]
    return "\n".join([title, *lines])


def _cell(value) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return str(value)


def plot(rates: dict, path: Path) -> None:
    """Plot rates by window for the published algorithm and for batches of orbits."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from theorykit.plots.style import LIMITS, THEORY, save, use_style

    panels = {"map": "Map", "spectrum": "All Lyapunov exponents", "leading 3": "Leading 3 exponents"}
    with use_style():
        figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True)
        for axis, (quantity, title) in zip(axes, panels.items(), strict=True):
            bars = _bars(rates, quantity)
            for number, ((label, rate_of), color) in enumerate(zip(bars.items(), (*LIMITS[:2], THEORY), strict=True)):
                places = [WINDOWS.index(tokens) + 0.27 * (number - 1) for tokens in rate_of]
                axis.bar(places, list(rate_of.values()), 0.25, color=color, label=label)
            axis.set(title=title, xlabel="window $L$", yscale="log")
            axis.set_xticks(range(len(WINDOWS)), map(str, WINDOWS))
        axes[0].set_ylabel("tokens $\\times$ orbits per second")
        axes[0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=1)
        save(figure, path)


def _bars(rates: dict, quantity: str) -> dict[str, dict[int, float]]:
    """Return rates by window."""
    published_name = _published_quantity(quantity)
    baseline = [row for row in rates["published"]["rows"] if row["quantity"] == published_name]
    bars = {"published algorithm": {row["window"]: row["rate"] for row in baseline}}
    chosen = [row for row in rates["rows"] if row["quantity"].startswith(quantity)]
    of_window = {tokens: [row for row in chosen if row["window"] == tokens] for tokens in WINDOWS}
    of_window = {tokens: rows for tokens, rows in of_window.items() if rows}
    bars[f"{ORBITS} orbits in a call"] = {
        tokens: max(row["rate"] for row in rows if row["calls"] == 1) for tokens, rows in of_window.items()
    }
    bars["the same on every core, where there is such a call"] = {
        tokens: max(row["rate"] for row in rows) for tokens, rows in of_window.items()
    }
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--zoom", action="store_true", help="time the published zoom-in diagram too")
    parser.add_argument("--gpu", action="store_true", help="measure rates on an accelerator too")
    parser.add_argument("--only", nargs="*", choices=("rates", "zoom", "gpu"), help="run only these cases")
    parser.add_argument("--seconds", type=float, default=2.0, help="shortest duration of a timed run")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        return run_case(arguments.case, arguments.seconds)
    names = arguments.only
    if names is None:
        names = ["rates", *(["zoom"] if arguments.zoom else []), *(["gpu"] if arguments.gpu else [])]
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "self_attention.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    run(names, arguments.seconds, results, path)
    if "rates" in results:
        plot(results["rates"], path.with_suffix(".png"))
    print(f"\nwrote {arguments.output}")


def run(names: list[str], seconds: float, results: dict, path: Path) -> None:
    """Measure the cases, print their tables, and save them in `results` and at `path`."""
    if {"rates", "gpu"} & set(names):
        baseline = fastest_published(seconds)
        print(table("published algorithm, here", baseline), flush=True)
    for name in names:
        result = in_own_process(name, seconds)
        if name != "zoom":
            result |= {"rows": compared(result["rows"], baseline["rows"]), "published": baseline}
        results[name] = result
        print(table(name, result), flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
