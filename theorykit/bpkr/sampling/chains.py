"""Run Markov chains in compiled loops, as tasks, with checkpoints from which a stopped run resumes."""

import abc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ... import store
from ...checks import counted
from ...compilation import jit
from ...progress import Progress
from ...workers import Workers, run_tasks
from .settings import Schedule

# Steps per call of compiled code: enough to hide the cost of a call, and few enough for frequent checkpoints.
_STEPS = 50
# Prefixes of the names of drawn arrays.
_RECORD, _STATS = "record ", "stats "


class AbstractSampler(eqx.Module):
    """A Markov chain whose stationary distribution is a posterior.

    - `lockstep`: whether every step costs the same, so that one batch of all chains is fastest on any device.
    """

    lockstep: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray) -> Any:
        """Return the state of a new chain, including its random key."""

    @abc.abstractmethod
    def step(self, state: Any) -> Any:
        """Return the state after one step."""

    @abc.abstractmethod
    def record(self, state: Any) -> Mapping[str, Array]:
        """Return the quantities to keep from a draw."""

    @abc.abstractmethod
    def stats(self, state: Any) -> Mapping[str, Array]:
        """Return statistics of the sampler at this step, with the names that arviz uses."""


@dataclass(frozen=True)
class Draws:
    """Draws of all chains as arrays (chains, draws, ...), and the time of warm-up and drawing, summed over chains."""

    record: Mapping[str, np.ndarray]
    stats: Mapping[str, np.ndarray]
    warmup_seconds: float
    seconds: float


def run_chains(
    make: Callable[[], AbstractSampler],
    schedule: Schedule,
    *,
    key: PRNGKeyArray,
    settings: Mapping[str, str],
    folder: Path | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> Draws:
    """Run `schedule.chains` chains of the sampler that `make` creates, from independent starts.

    An `executor` pickles `make`. With a `folder`, whose runs `settings` identify, a stopped run resumes exactly, and so
    does a run that needs more draws.
    """
    # Plain numbers instead of typed keys can be written to disk.
    keys = np.asarray(jax.random.key_data(jax.random.split(key, schedule.chains)))
    # On an accelerator one batch of all chains is fastest, although chains wait for each other. On a CPU each chain is
    # compiled alone, so that its draws do not depend on the other chains. A resumed run keeps its batches.
    together = {"chains": list(range(schedule.chains))}
    alone = {f"chain-{chain}": [chain] for chain in range(schedule.chains)}
    batches = together if executor is None and jax.default_backend() != "cpu" else alone
    if folder is not None:
        there = [kept for kept in (together, alone) if any((folder / f"{name}.npz").exists() for name in kept)]
        batches = there[0] if there else batches
    described = [settings if len(batches) == 1 else {**settings, "chain": name} for name in batches]
    paths = [None if folder is None else folder / f"{name}.npz" for name in batches]
    tasks = [(keys[batch], *where) for batch, *where in zip(batches.values(), paths, described, strict=True)]
    steps, found = schedule.warmup + schedule.draws, {}
    length = f"{counted(schedule.warmup, 'step')} of warm-up and {counted(schedule.draws, 'draw')}"
    cost = f"{counted(schedule.chains, 'chain')} of {length}"
    with Progress(settings["sampler"], steps * len(batches), "step", shown=progress, cost=cost) as report:
        common = (make if executor is not None else cache(make), schedule)
        # Workers report only complete chains.
        run = _run_batch if executor is not None else partial(_run_batch, advance=report.update)
        for number, arrays in run_tasks(executor, run, tasks, common):
            found[number] = arrays
            if executor is not None:
                report.update(steps)
            # A worker may not have access to the folder.
            if paths[number] is not None and not paths[number].exists():
                store.write_arrays(arrays, described[number], paths[number])
    runs = [found[number] for number in range(len(tasks))]
    record, stats = (
        {
            name.removeprefix(kind): np.concatenate([run[name][:, : schedule.draws] for run in runs])
            for name in runs[0]
            if name.startswith(kind)
        }
        for kind in (_RECORD, _STATS)
    )
    return Draws(record, stats, *(float(sum(run[name] for run in runs)) for name in ("warmup_seconds", "seconds")))


def _run_batch(
    make: Callable[[], AbstractSampler],
    schedule: Schedule,
    keys: np.ndarray,
    path: Path | None,
    settings: Mapping[str, str],
    advance: Callable[[int], Any] = lambda steps: None,
) -> Mapping[str, Any]:
    """Run chains from `keys` in parallel to the end of the schedule. Return all arrays that a longer run needs."""
    sampler = make()
    states = _start(sampler, jnp.asarray(keys))
    steps, seconds = 0, {"warmup_seconds": 0.0, "seconds": 0.0}
    blocks: list[Mapping[str, np.ndarray]] = []
    kept = None if path is None else store.read_arrays(path, "run of chains", settings)
    if kept is not None:
        states, steps = store.tree_like(states, kept), kept["steps"].item()
        seconds = {name: kept[name].item() for name in seconds}
        drawn = {name: array for name, array in kept.items() if name.startswith((_RECORD, _STATS))}
        blocks = [drawn] if drawn else []

    def arrays() -> Mapping[str, Any]:
        if blocks:
            # Join in place, so that the next checkpoint does not join the same blocks again.
            blocks[:] = [{name: np.concatenate([block[name] for block in blocks], axis=1) for name in blocks[0]}]
        return {"steps": steps, **seconds, **store.leaf_arrays(states), **(blocks[0] if blocks else {})}

    total, saved = schedule.warmup + schedule.draws, steps
    advance(min(steps, total))
    if steps < total:
        # Compile before the time is measured.
        jax.block_until_ready(_advance(sampler, states, jnp.array(0), jnp.array(True)))
    checkpointed = time.monotonic()
    try:
        while steps < total:
            in_warmup, begun = steps < schedule.warmup, time.monotonic()
            count = min(_STEPS, (schedule.warmup if in_warmup else total) - steps)
            states, drawn = jax.block_until_ready(_advance(sampler, states, jnp.array(count), jnp.array(not in_warmup)))
            seconds["warmup_seconds" if in_warmup else "seconds"] += time.monotonic() - begun
            if not in_warmup:
                blocks.append({name: np.asarray(values)[:, :count] for name, values in drawn.items()})
            steps += count
            advance(count)
            if path is not None and time.monotonic() - checkpointed > store.CHECKPOINT_SECONDS:
                store.write_arrays(arrays(), settings, path)
                checkpointed, saved = time.monotonic(), steps
    finally:
        if path is not None and steps > saved:
            store.write_arrays(arrays(), settings, path)
    return arrays()


@jit
def _start(sampler: AbstractSampler, keys):
    return jax.vmap(sampler.start)(keys)


@jit
def _advance(sampler: AbstractSampler, states, steps, keep):
    """Advance all chains by `steps`, at most `_STEPS`. With `keep`, also return their draws, padded with zeros."""

    def drawn_at(state):
        record = {f"{_RECORD}{name}": values for name, values in sampler.record(state).items()}
        return record | {f"{_STATS}{name}": values for name, values in sampler.stats(state).items()}

    def chain(state):
        shapes = eqx.filter_eval_shape(drawn_at, state)
        empty = jax.tree.map(lambda leaf: jnp.zeros((_STEPS, *leaf.shape), leaf.dtype), shapes)

        def kept(i, state, drawn):
            return jax.tree.map(lambda all_, one: all_.at[i].set(one), drawn, drawn_at(state))

        def body(i, carried):
            state, drawn = carried
            state = sampler.step(state)
            return state, jax.lax.cond(keep, kept, lambda i, state, drawn: drawn, i, state, drawn)

        return jax.lax.fori_loop(0, steps, body, (state, empty))

    # In a batch, NUTS trees of different sizes wait for each other, which pays off only on an accelerator.
    if sampler.lockstep or jax.default_backend() != "cpu":
        return jax.vmap(chain)(states)
    return jax.lax.map(chain, states)
