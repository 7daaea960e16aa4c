"""Time the dynamics of self-attention for batches of orbits, against the published algorithm.

    python benchmarks/self_attention.py [--only CASE ...] [--seconds 2]

Published weights, a window of four tokens, beta between 1.24 and 1.28.

- `rates`: tokens times orbits per second of the map, of all Lyapunov exponents and of
  the leading 3, for 256 orbits in one call, after compilation, best of three runs; with
  ratios to the published program, which computes all exponents, as measured once on
  another machine.
- `zoom`: seconds for the published diagram, 4001 orbits of 110,000 tokens.

Run nothing else at the same time. Cases that are not run again keep their results in
results/self_attention.json. For accelerators see gpu.py.
"""

import os
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from problems import run, timed

from theorykit import dmft, dynamics

BETAS, EPSILON = (1.24, 1.28), 0.02
GAMMA = float(dmft.attention_gain(2.2, 100, 3))
# Steps per second of the published program: of the map, and of all exponents
STATED = (5500.0, 114.0)
STEPS, ORBITS = 160, 256  # a multiple of the number of blocks of exponents
WEIGHTS, TOKENS = dmft.published_weights(), 4
MODEL = dmft.self_attention_limit(WEIGHTS, TOKENS)


def steps_per_second(call: Callable[[int], object], seconds: float) -> float:
    """Measure steps per second of `call(steps)`, in a run of at least `seconds`."""
    steps, elapsed = 1, 0.0
    while elapsed < seconds:
        steps *= 2
        _, (elapsed, _) = timed(partial(call, steps))
    return steps / elapsed


def rates(options) -> list[dict]:
    rows = []
    at = dmft.Parameters(jnp.linspace(*BETAS, ORBITS), GAMMA, EPSILON)
    start = dmft.start(MODEL, at, dmft.pattern_prompt(WEIGHTS), "window")
    spectrum = partial(dmft.lyapunov_spectrum, MODEL, at, dmft.advance(MODEL, at, start, 1000))
    calls = {
        "map": lambda times: dmft.advance(MODEL, at, start, jnp.asarray(STEPS * times)),
        "leading 3": lambda times: spectrum(steps=STEPS * times, exponents=3).exponents,
        "spectrum": lambda times: spectrum(steps=STEPS * times).exponents,
    }
    for quantity, call in calls.items():
        call(1)
        best = max(steps_per_second(call, options.seconds) for _ in range(3))
        row = {"window": TOKENS, "quantity": quantity, "orbits": ORBITS}
        row["rate"] = ORBITS * STEPS * best
        rows.append(row | {"ratio_to_program_stated": row["rate"] / STATED[quantity != "map"]})
    return rows


def zoom(options) -> list[dict]:
    """Time the published zoom-in diagram from the window at beta = 3, with compilation."""
    before = dmft.Parameters(3.0, GAMMA, EPSILON)
    prompted = dmft.start(MODEL, before, dmft.pattern_prompt(WEIGHTS), "window")
    settled = dmft.advance(MODEL, before, prompted, 100_000)
    parameters = dmft.Parameters(jnp.linspace(*BETAS, 4001), GAMMA, EPSILON)
    lengths = {"transient": 100_000, "recorded": 10_000, "exponents": 3}

    def begin(at):
        return dmft.state_from_window(MODEL, at, settled.window, settled.position)

    def observe(state, at):
        return dmft.semantic_overlap(MODEL, at, state.latest)[dmft.OUTPUT]

    levels = np.linspace(-1, 1, 2001)
    functions = {"observe": observe, "coordinates": lambda state: state.attention}
    call = partial(dynamics.orbits, MODEL, parameters, begin, levels=levels)
    _, (taken, _) = timed(partial(call, **functions, **lengths))
    return [{"orbits": 4001, **lengths, "seconds": taken}]


def measured(options, case: Callable) -> dict:
    about = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    return {"rows": case(options), **about, "jax": jax.__version__}


if __name__ == "__main__":
    cases = {case.__name__: partial(measured, case=case) for case in (rates, zoom)}
    seconds = {"type": float, "default": 2.0, "help": "of a timed run"}
    run(__doc__, "self_attention", cases, seconds=seconds)
