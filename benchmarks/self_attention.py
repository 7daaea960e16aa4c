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
GAMMA = 2.2 * 100 / np.sqrt(3)
# Steps per second of the published program: of the map, and of all exponents
STATED = (5500.0, 114.0)
STEPS, ORBITS = 160, 256  # a multiple of the number of blocks of exponents
WEIGHTS, TOKENS = dmft.Weights.published(), 4
MODEL = dmft.SelfAttention.from_weights(WEIGHTS, TOKENS)


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
    start = jax.vmap(partial(MODEL.start, prompt=WEIGHTS.prompt(), convention="window"))(at)

    def move(steps):
        return jax.vmap(partial(dynamics.advance, MODEL, steps=steps))(start, at)

    settled = move(1000)

    def spectrum(steps, **options):
        return jax.vmap(partial(dynamics.lyapunov_spectrum, MODEL, steps=steps, **options))(settled, at).exponents

    calls = {
        "map": lambda times: move(STEPS * times),
        "leading 3": lambda times: spectrum(STEPS * times, exponents=3),
        "spectrum": lambda times: spectrum(STEPS * times),
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
    prompted = MODEL.start(before, WEIGHTS.prompt(), "window")
    settled = dynamics.advance(MODEL, prompted, before, 100_000)
    parameters = dmft.Parameters(jnp.linspace(*BETAS, 4001), GAMMA, EPSILON)
    lengths = {"transient": 100_000, "recorded": 10_000, "exponents": 3}

    def begin(at):
        return MODEL.resume(at, settled.attention, settled.position)

    def observe(state, at):
        return MODEL.overlaps(at, state.attention[0])[dmft.OUTPUT]

    levels = np.linspace(-1, 1, 2001)
    call = partial(dynamics.orbits, MODEL, parameters, begin, observe=observe, levels=levels)
    _, (taken, _) = timed(partial(call, **lengths))
    return [{"orbits": 4001, **lengths, "seconds": taken}]


def measured(options, case: Callable) -> dict:
    about = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    return {"rows": case(options), **about, "jax": jax.__version__}


if __name__ == "__main__":
    cases = {case.__name__: partial(measured, case=case) for case in (rates, zoom)}
    seconds = {"type": float, "default": 2.0, "help": "of a timed run"}
    run(__doc__, "self_attention", cases, seconds=seconds)
