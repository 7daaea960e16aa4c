"""Time the dynamics of self-attention for batches of orbits, against the published algorithm.

    python benchmarks/self_attention.py [--only CASE ...] [--seconds 2]

Published weights, windows of 4, 8 and 32 tokens, beta between 1.24 and 1.28.

- `rates`: tokens times orbits per second of the map, of all Lyapunov exponents and of
  the leading 3, for 256 orbits in one call, after compilation, best of three runs; with
  ratios to the published algorithm here (self_attention_published.py, with one thread
  of linear algebra), which computes all exponents, and to the published program itself,
  as measured once on another machine.
- `zoom`: seconds for the published diagram, 4001 orbits of 110,000 tokens.

Run nothing else at the same time. Cases that are not run again keep their results in
results/self_attention.json. For accelerators see gpu.py.
"""

import os
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import self_attention_published as published
from problems import parser_of, record
from threadpoolctl import threadpool_limits

import theorykit
from theorykit import dmft, dynamics

BETAS, EPSILON = (1.24, 1.28), 0.02
GAMMA = float(dmft.attention_gain(2.2, 100, 3))
# Steps per second of the published program: of the map, and of all exponents
STATED = {4: (5500.0, 114.0), 8: (5500.0, 48.0), 32: (5500.0, 8.5)}
STEPS, ORBITS = 160, 256  # a multiple of the number of blocks of exponents


def network(tokens: int) -> tuple[dmft.Weights, dmft.SelfAttention]:
    """Return the published weights, with positions for `tokens`, and their limit."""
    weights = dmft.Weights.published(position_bits=(tokens - 1).bit_length())
    return weights, dmft.self_attention_limit(weights, tokens)


def published_rates(tokens: int, seconds: float) -> tuple[float, float]:
    """Measure steps per second of the map and of the exponents."""
    weights, _ = network(tokens)
    bits = weights.position_bits
    every = np.concatenate([weights.semantic, weights.positional], axis=2)
    numbers = {"beta": np.mean(BETAS), "gamma": GAMMA, "epsilon": EPSILON}
    parameters = published.parameters_of(every, bits, **numbers)
    prompt = np.concatenate([weights.semantic[published.OUTPUT, 0], -np.ones(bits)])
    start = published.attention_of_prompt(prompt, every, parameters)
    # After a whole number of windows the position is 0 again.
    visited = published.trajectory(start, tokens, parameters, 10 * tokens)
    full = visited[: -tokens - 1 : -1], published.position_window(tokens, bits)
    calls = (
        partial(published.trajectory, start, tokens, parameters),
        partial(published.lyapunov_steps, *full, parameters),
    )
    with threadpool_limits(1):
        return tuple(published.steps_per_second(call, seconds) for call in calls)


def rates(seconds: float) -> list[dict]:
    rows = []
    for tokens, stated in STATED.items():
        here = published_rates(tokens, seconds)
        weights, model = network(tokens)
        at = dmft.Parameters(jnp.linspace(*BETAS, ORBITS), GAMMA, EPSILON)
        start = dmft.start(model, at, weights.prompt(), "window")
        settled = dmft.advance(model, at, start, 1000)

        def move(steps, model=model, at=at, start=start):
            return dmft.advance(model, at, start, jnp.asarray(steps))

        def spectrum(steps, model=model, at=at, settled=settled, **options):
            found = dmft.lyapunov_spectrum(model, at, settled, steps=steps, **options)
            return found.exponents

        calls = {"map": move, "leading 3": partial(spectrum, exponents=3)}
        # All 96 exponents of a window of 32 tokens would take most of the time.
        calls |= {"spectrum": spectrum} if tokens < 32 else {}
        for quantity, call in calls.items():

            def run(times, call=call):
                jax.block_until_ready(call(STEPS * times))

            run(1)
            best = max(published.steps_per_second(run, seconds) for _ in range(3))
            row = {"window": tokens, "quantity": quantity, "orbits": ORBITS, "calls": 1}
            row["rate"] = ORBITS * STEPS * best
            column = int(quantity != "map")
            row["ratio_to_algorithm_here"] = row["rate"] / here[column]
            row["ratio_to_program_stated"] = row["rate"] / stated[column]
            rows.append(row)
            print(row, flush=True)
    return rows


def zoom(seconds: float) -> list[dict]:
    """Time the published zoom-in diagram from the window at beta = 3, with compilation."""
    weights, model = network(4)
    before = dmft.Parameters(3.0, GAMMA, EPSILON)
    prompted = dmft.start(model, before, weights.prompt(), "window")
    settled = dmft.advance(model, before, prompted, 100_000)
    parameters = dmft.Parameters(jnp.linspace(*BETAS, 4001), GAMMA, EPSILON)
    lengths = {"transient": 100_000, "recorded": 10_000, "exponents": 3}

    def begin(at):
        return dmft.state_from_window(model, at, settled.window, settled.position)

    def observe(state, at):
        return dmft.semantic_overlap(model, at, state.latest)[dmft.OUTPUT]

    levels = np.linspace(-1, 1, 2001)
    functions = {"observe": observe, "coordinates": lambda state: state.attention}
    start = time.perf_counter()
    dynamics.orbits(model, parameters, begin, levels=levels, **functions, **lengths)
    row = {"orbits": 4001, **lengths, "seconds": time.perf_counter() - start}
    print(row)
    return [row]


CASES = {"rates": rates, "zoom": zoom}


def main() -> None:
    parser = parser_of(__doc__, "self_attention", CASES)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a timed run")
    options = parser.parse_args()
    theorykit.enable_float64()
    for name in options.only:
        about = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
        rows = CASES[name](options.seconds)
        record(options.json, name, {"rows": rows, **about, "jax": jax.__version__})


if __name__ == "__main__":
    main()
