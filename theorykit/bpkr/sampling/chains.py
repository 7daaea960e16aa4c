"""Run Markov chains in compiled blocks of steps, with checkpoints.

A sampler has three methods: `start(key, chain)` returns the state of a numbered chain,
`step(state)` the next state, and `draw(state)` the arrays to keep, by name.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from ..._jit import jit
from ...checks import checked_whole_number
from ...runs import Folder, bar, in_parallel

# Steps per call of compiled code, between checkpoints.
_STEPS = 50
# Seconds between checkpoints.
_CHECKPOINT = 20.0
_DRAW = "draw "


@dataclass(frozen=True)
class Schedule:
    """The length of a run: discarded (`warmup`) and recorded (`draws`) steps per chain."""

    chains: int
    warmup: int
    draws: int

    def __post_init__(self):
        for name, least in (("chains", 1), ("warmup", 0), ("draws", 1)):
            checked_whole_number(name, getattr(self, name), least=least)


DEFAULT_SCHEDULES = {
    "exact": Schedule(chains=4, warmup=500, draws=1000),
    "gibbs": Schedule(chains=4, warmup=1000, draws=4000),
    "nuts": Schedule(chains=4, warmup=500, draws=500),
}


def run_chains(
    make: Callable[[], Any],
    schedule: Schedule,
    *,
    key: PRNGKeyArray,
    folder: Folder = Folder(),  # noqa: B008
    n_jobs: int = 1,
    progress: bool = True,
) -> dict[str, np.ndarray | float]:
    """Run chains of the sampler that `make` creates, and resume exactly from `folder`.

    Returns draws (chains, draws, ...) by name, and `warmup_seconds` and `seconds`,
    summed over chains.
    """
    # Plain numbers, unlike typed keys, can be written to disk.
    keys = np.asarray(jax.random.key_data(jax.random.split(key, schedule.chains)))
    # On a CPU each chain is compiled alone: its draws do not depend on the others.
    numbers = np.arange(schedule.chains)
    batches = [(f"chain-{i}", keys[i : i + 1], numbers[i : i + 1]) for i in numbers]
    if n_jobs == 1 and jax.default_backend() != "cpu":
        batches = [("chains", keys, numbers)]
    run = partial(_run_batch, make, schedule, folder, progress and n_jobs == 1)
    runs = {}
    with bar("sampling", len(batches), "chain", shown=progress) as report:
        for task, found in in_parallel(run, batches, n_jobs):
            runs[task] = found
            report.update()
    runs = [runs[task] for task in range(len(batches))]
    found = {name: sum(run[name] for run in runs) for name in ("warmup_seconds", "seconds")}
    for name in (name for name in runs[0] if name.startswith(_DRAW)):
        draws = np.concatenate([run[name] for run in runs])
        found[name.removeprefix(_DRAW)] = draws[:, : schedule.draws]
    return found


def _run_batch(make, schedule, folder, shown, name, keys, numbers) -> dict[str, Any]:
    sampler = make()
    total = schedule.warmup + schedule.draws
    states = _start(sampler, jnp.asarray(keys), jnp.asarray(numbers))
    drawn = {}
    run = {"steps": 0, "warmup_seconds": 0.0, "seconds": 0.0}
    if (kept := folder.read(name)) is not None:
        leaves, structure = jax.tree.flatten(states)
        leaves = [jnp.asarray(kept[f"leaf {number}"].values) for number in range(len(leaves))]
        states = jax.tree.unflatten(structure, leaves)
        run = {each: kept[each].item() for each in run}
        drawn = {each: kept[each].values for each in kept if each.startswith(_DRAW)}

    def checkpoint() -> None:
        leaves = {f"leaf {number}": leaf for number, leaf in enumerate(jax.tree.leaves(states))}
        arrays = {each: np.asarray(array) for each, array in {**leaves, **run, **drawn}.items()}
        axes = {each: [f"{each}.{axis}" for axis in range(array.ndim)] for each, array in arrays.items()}
        folder.write(name, xr.Dataset({each: (axes[each], array) for each, array in arrays.items()}))

    saved, checkpointed = run["steps"], time.monotonic()
    try:
        with bar(name, total, "step", shown=shown, done=min(run["steps"], total)) as report:
            while run["steps"] < total:
                is_warmup = run["steps"] < schedule.warmup
                begun = time.monotonic()
                count = min(_STEPS, (schedule.warmup if is_warmup else total) - run["steps"])
                states, rows = jax.block_until_ready(_advance(sampler, states, jnp.array(count)))
                run["warmup_seconds" if is_warmup else "seconds"] += time.monotonic() - begun
                run["steps"] += count
                if not is_warmup:
                    new = {_DRAW + each: np.asarray(array)[:, :count] for each, array in rows.items()}
                    blocks = [drawn, new] if drawn else [new]
                    drawn = {each: np.concatenate([block[each] for block in blocks], axis=1) for each in new}
                report.update(count)
                if time.monotonic() - checkpointed > _CHECKPOINT:
                    checkpoint()
                    saved, checkpointed = run["steps"], time.monotonic()
    finally:
        if run["steps"] > saved:
            checkpoint()
    return {**run, **drawn}


@jit
def _start(sampler, keys, numbers):
    return jax.vmap(sampler.start)(keys, numbers)


@jit
def _advance(sampler, states, steps):
    """Advance all chains by `steps`. Return draws, padded to `_STEPS`."""

    def chain(state):
        def step(i, carried):
            state, drawn = carried
            state = sampler.step(state)
            return state, jax.tree.map(lambda rows, row: rows.at[i].set(row), drawn, sampler.draw(state))

        shapes = eqx.filter_eval_shape(sampler.draw, state)
        empty = jax.tree.map(lambda leaf: jnp.zeros((_STEPS, *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, steps, step, (state, empty))

    # In a batch, NUTS trees of different sizes wait for each other.
    return jax.lax.map(chain, states) if jax.default_backend() == "cpu" else jax.vmap(chain)(states)
