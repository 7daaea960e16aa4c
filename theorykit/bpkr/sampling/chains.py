"""Run Markov chains in compiled blocks of steps, as tasks, with checkpoints from which a stopped run resumes.

A sampler is an Equinox module with three methods: `start(key)` returns the state of a new chain with its random key,
`step(state)` the next state, and `draw(state)` the arrays to keep by name, with statistics named as in ArviZ.
"""

import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from ... import store
from ...checks import counted
from ...compilation import jit
from ...progress import Progress
from ...workers import Workers, run_tasks
from .settings import Schedule

# Steps per call of compiled code: enough to hide the cost of a call, and few enough for frequent checkpoints.
_STEPS = 50
# Arrays of a run that are not draws: the number of steps so far, and the seconds that they took.
_CLOCK = ("steps", "warmup_seconds", "seconds")


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
    """Run `schedule.chains` chains of the sampler that `make` creates, from independent starts.

    Returns arrays (chains, draws, ...) by name, and `warmup_seconds` and `seconds`, summed over chains. An `executor`
    pickles `make`. With a `folder`, whose runs `settings` identify, a stopped run resumes exactly, and so does a run
    that needs more draws.
    """
    # Plain numbers instead of typed keys can be written to disk.
    keys = np.asarray(jax.random.key_data(jax.random.split(key, schedule.chains)))
    # On an accelerator one batch of all chains is fastest, although chains wait for each other. On a CPU each chain is
    # compiled alone, so that its draws do not depend on the other chains.
    batches = {"chains": keys}
    if executor is not None or jax.default_backend() == "cpu":
        batches = {f"chain-{chain}": keys[chain : chain + 1] for chain in range(schedule.chains)}
    tasks = [
        (batch, {**settings, "chain": name}, None if folder is None else folder / f"{name}.npz")
        for name, batch in batches.items()
    ]
    steps, found = schedule.warmup + schedule.draws, {}
    length = f"{counted(schedule.warmup, 'step')} of warm-up and {counted(schedule.draws, 'draw')}"
    cost = f"{counted(schedule.chains, 'chain')} of {length}"
    with Progress(settings["sampler"], steps * len(batches), "step", shown=progress, cost=cost) as report:
        # Workers create a sampler for each chain, and report only complete chains.
        run, common = _run_batch, (make, schedule)
        if executor is None:
            run, common = partial(_run_batch, advance=report.update), (cache(make), schedule)
        for number, run_of_batch in run_tasks(executor, run, tasks, common):
            found[number] = run_of_batch
            _, described, path = tasks[number]
            if executor is not None:
                report.update(steps)
            # A worker may not have access to the folder.
            if path is not None and not path.exists():
                store.write_arrays(run_of_batch, described, path)
    runs = [found[number] for number in range(len(tasks))]
    seconds = {name: np.asarray(sum(run[name] for run in runs)) for name in _CLOCK[1:]}
    drawn = {name: np.concatenate([run[name][:, : schedule.draws] for run in runs]) for name in _drawn(runs[0])}
    return {**drawn, **seconds}


def _run_batch(
    make: Callable[[], Any],
    schedule: Schedule,
    keys: np.ndarray,
    settings: Mapping[str, str],
    path: Path | None,
    advance: Callable[[int], Any] = lambda steps: None,
) -> dict[str, Any]:
    """Run chains from `keys` to the end of the schedule. Return all arrays that a longer run needs."""
    sampler = make()
    states, run, blocks = _start(sampler, jnp.asarray(keys)), {"steps": 0, "warmup_seconds": 0.0, "seconds": 0.0}, []
    if path is not None and (kept := store.read_arrays(path, "run of chains", settings)) is not None:
        states, run = store.tree_like(states, kept), {name: kept[name].item() for name in _CLOCK}
        blocks = [_drawn(kept)]

    def arrays() -> dict[str, Any]:
        joined = {name: np.concatenate([block[name] for block in blocks], axis=1) for name in blocks[0]}
        # The next checkpoint does not join the same blocks again.
        blocks[:] = [joined]
        return {**run, **store.leaf_arrays(states), **joined}

    total = schedule.warmup + schedule.draws
    advance(min(run["steps"], total))
    if run["steps"] < total:
        # Compile before the time is measured. The block without steps gives the shapes of draws.
        _, nothing = jax.block_until_ready(_advance(sampler, states, jnp.array(0)))
        blocks = blocks or [{name: np.asarray(values)[:, :0] for name, values in nothing.items()}]
    saved, checkpointed = run["steps"], time.monotonic()
    try:
        while run["steps"] < total:
            in_warmup, begun = run["steps"] < schedule.warmup, time.monotonic()
            count = min(_STEPS, (schedule.warmup if in_warmup else total) - run["steps"])
            states, drawn = jax.block_until_ready(_advance(sampler, states, jnp.array(count)))
            run["warmup_seconds" if in_warmup else "seconds"] += time.monotonic() - begun
            run["steps"] += count
            if not in_warmup:
                blocks.append({name: np.asarray(values)[:, :count] for name, values in drawn.items()})
            advance(count)
            if path is not None and time.monotonic() - checkpointed > store.CHECKPOINT_SECONDS:
                store.write_arrays(arrays(), settings, path)
                saved, checkpointed = run["steps"], time.monotonic()
    finally:
        if path is not None and run["steps"] > saved:
            store.write_arrays(arrays(), settings, path)
    return arrays()


def _drawn(run: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: values for name, values in run.items() if name not in _CLOCK and not name.startswith("leaf ")}


@jit
def _start(sampler, keys):
    return jax.vmap(sampler.start)(keys)


@jit
def _advance(sampler, states, steps):
    """Advance all chains by `steps`, at most `_STEPS`, and return their draws, padded with zeros."""

    def chain(state):
        def step(i, carried):
            state, drawn = carried
            state = sampler.step(state)
            return state, jax.tree.map(lambda all_, one: all_.at[i].set(one), drawn, sampler.draw(state))

        shapes = eqx.filter_eval_shape(sampler.draw, state)
        empty = jax.tree.map(lambda leaf: jnp.zeros((_STEPS, *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, steps, step, (state, empty))

    # In a batch, NUTS trees of different sizes wait for each other, which pays off only on an accelerator.
    return jax.lax.map(chain, states) if jax.default_backend() == "cpu" else jax.vmap(chain)(states)
