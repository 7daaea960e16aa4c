"""Run Markov chains in compiled blocks of steps, with checkpoints.

A sampler has three methods: `start(key)` returns the state of a chain, `step(state)` the
next state, and `draw(state)` the arrays to keep, by name.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ... import store
from ..._jit import jit
from ...checks import Count, Index, check_fields
from ...progress import Progress
from ...workers import Workers, run_tasks

# Steps per call of compiled code, between checkpoints.
_STEPS = 50
_DRAW = "draw "


@dataclass(frozen=True)
class Schedule:
    """The length of a run: discarded (`warmup`) and recorded (`draws`) steps per chain."""

    chains: Count
    warmup: Index
    draws: Count

    def __post_init__(self):
        check_fields(self)


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
    settings: Mapping[str, str],
    folder: Path | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> dict[str, np.ndarray]:
    """Run chains of the sampler that `make` creates, from independent starts.

    Returns draws (chains, draws, ...) by name, and `warmup_seconds` and `seconds`,
    summed over chains. With a `folder`, a run with these `settings` resumes
    exactly, also to add draws.
    """
    # Plain numbers, unlike typed keys, can be written to disk.
    keys = np.asarray(jax.random.key_data(jax.random.split(key, schedule.chains)))
    # On a CPU each chain is compiled alone: its draws do not depend on the others.
    batches = {f"chain-{i}": keys[i : i + 1] for i in range(len(keys))}
    if executor is None and jax.default_backend() != "cpu":
        batches = {"chains": keys}
    tasks = []
    for name, batch in batches.items():
        tasks.append((batch, {**settings, "chain": name}, folder and folder / f"{name}.npz"))
    runs, common = {}, (make, schedule, progress and executor is None)
    with Progress("sampling", len(tasks), "chain", shown=progress) as report:
        for task, run in run_tasks(executor, _run_batch, tasks, common):
            runs[task] = run
            report.update()
    runs = [runs[task] for task in range(len(tasks))]
    found = {name: sum(run[name] for run in runs) for name in ("warmup_seconds", "seconds")}
    for name in runs[0]:
        if name.startswith(_DRAW):
            draws = np.concatenate([run[name] for run in runs])
            found[name.removeprefix(_DRAW)] = draws[:, : schedule.draws]
    return found


def _run_batch(make, schedule, shown, keys, settings, path) -> dict[str, Any]:
    sampler, total = make(), schedule.warmup + schedule.draws
    states, blocks = _start(sampler, jnp.asarray(keys)), []
    run = {"steps": 0, "warmup_seconds": 0.0, "seconds": 0.0}
    if path is not None and (kept := store.read_arrays(path, "run of chains", settings)) is not None:
        states, run = store.tree_like(states, kept), {name: kept[name].item() for name in run}
        blocks = [{name: values for name, values in kept.items() if name.startswith(_DRAW)}]

    def arrays() -> dict[str, Any]:
        names = blocks[0] if blocks else ()
        blocks[:] = [{name: np.concatenate([block[name] for block in blocks], axis=1) for name in names}]
        return {**run, **store.leaf_arrays(states), **blocks[0]}

    saved, checkpointed = run["steps"], time.monotonic()
    try:
        with Progress("chain", total, "step", shown=shown, initial=min(run["steps"], total)) as report:
            while run["steps"] < total:
                is_warmup, begun = run["steps"] < schedule.warmup, time.monotonic()
                count = min(_STEPS, (schedule.warmup if is_warmup else total) - run["steps"])
                states, drawn = jax.block_until_ready(_advance(sampler, states, jnp.array(count)))
                run["warmup_seconds" if is_warmup else "seconds"] += time.monotonic() - begun
                run["steps"] += count
                if not is_warmup:
                    blocks.append({_DRAW + name: np.asarray(each)[:, :count] for name, each in drawn.items()})
                report.update(count)
                if path is not None and time.monotonic() - checkpointed > store.CHECKPOINT_SECONDS:
                    store.write_arrays(arrays(), settings, path)
                    saved, checkpointed = run["steps"], time.monotonic()
    finally:
        if path is not None and run["steps"] > saved:
            store.write_arrays(arrays(), settings, path)
    return arrays()


@jit
def _start(sampler, keys):
    return jax.vmap(sampler.start)(keys)


@jit
def _advance(sampler, states, steps):
    """Advance all chains by at most `_STEPS`. Return draws, padded with zeros."""

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
