"""Markov chains, each a task: a compiled loop over steps, a progress bar, and a folder from where a run goes on."""

import abc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from tqdm.auto import tqdm

from ... import store
from ...compilation import jit
from ...workers import Workers, run_tasks
from .settings import Schedule

# steps in one call of compiled code
_STEPS = 50
_TOGETHER = "chains"
# what the names of arrays that were drawn begin with
_RECORD, _STATS = "record ", "stats "


class AbstractSampler(eqx.Module):
    """A Markov chain whose stationary distribution is a posterior.

    `lockstep`: whether every step takes the same work, so that chains are best advanced as one batch on any device.
    """

    lockstep: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def start(self, key: PRNGKeyArray) -> Any:
        """The state of a new chain, its randomness included."""

    @abc.abstractmethod
    def step(self, state: Any) -> Any:
        """The state after one step."""

    @abc.abstractmethod
    def record(self, state: Any) -> Mapping[str, Array]:
        """What is kept of a draw."""

    @abc.abstractmethod
    def stats(self, state: Any) -> Mapping[str, Array]:
        """How the sampler fared at this step, by arviz's names."""


@dataclass(frozen=True)
class Draws:
    """What chains have drawn: arrays (chains, draws, ...), and the seconds of warm-up and drawing, of all added up."""

    record: Mapping[str, np.ndarray]
    stats: Mapping[str, np.ndarray]
    warmup_seconds: float
    seconds: float


@dataclass
class _Run:
    """A batch of chains under way: their states, what they have drawn, how many steps are done."""

    states: Any
    blocks: list[dict[str, np.ndarray]]
    steps: int = 0
    warmup_seconds: float = 0.0
    seconds: float = 0.0

    def arrays(self) -> Mapping[str, Any]:
        """All that the rest of the run depends on."""
        numbers = {"steps": self.steps, "warmup_seconds": self.warmup_seconds, "seconds": self.seconds}
        drawn = _join(self.blocks)
        # not to be put together at every checkpoint anew
        self.blocks[:] = [drawn] if drawn else []
        return {**numbers, **store.leaf_arrays(self.states), **drawn}

    def resume(self, arrays: Mapping[str, np.ndarray]) -> "_Run":
        """The run that `arrays` were made of, if its states are like those of this one."""
        drawn = {name: array for name, array in arrays.items() if name.startswith((_RECORD, _STATS))}
        numbers = {name: arrays[name].item() for name in ("steps", "warmup_seconds", "seconds")}
        return _Run(store.tree_like(self.states, arrays), [drawn] if drawn else [], **numbers)


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
    """Run `schedule.chains` chains of the sampler that `make` makes, from independent starts, one after another.

    With an `executor`, chains run side by side; `make` must be such as can be pickled. With a `folder`, draws and
    states are kept there, and a run that was stopped, or wants more draws than are there, goes on as if it never had
    been stopped; `settings` say which run it is, and a folder with another is refused.
    """
    # plain numbers instead of typed keys, so that states can be written to disk
    keys = np.asarray(jax.random.key_data(jax.random.split(key, schedule.chains)))
    batches = _batches(schedule.chains, folder, executor)
    described = [settings if len(batches) == 1 else {**settings, "chain": name} for name in batches]
    paths = [None if folder is None else folder / f"{name}.npz" for name in batches]
    tasks = [(keys[chains], path, of) for chains, path, of in zip(batches.values(), paths, described, strict=True)]
    steps, found = schedule.warmup + schedule.draws, {}
    shown = {"desc": settings["sampler"], "unit": "draw", "disable": not progress, "dynamic_ncols": True}
    with tqdm(total=steps * len(batches), **shown) as bar:
        common = (make, schedule) if executor is not None else (cache(make), schedule)
        # workers of other processes tell of whole chains alone
        run = _run_batch if executor is not None else partial(_run_batch, advance=bar.update)
        for number, arrays in run_tasks(executor, run, tasks, common):
            found[number] = arrays
            if executor is not None:
                bar.update(steps)
            _, path, of = tasks[number]
            # a worker may not have reached the folder
            if path is not None and not path.exists():
                store.write_arrays(arrays, of, path)
    return _draws([found[number] for number in range(len(tasks))], schedule.draws)


def _batches(chains: int, folder: Path | None, executor: Workers) -> Mapping[str, list[int]]:
    """Which chains are one batch of compiled code, by the name of the file where they are kept.

    All are on an accelerator, which makes up for what they wait for one another; elsewhere each is alone, so that it
    draws the same wherever it runs. A run that goes on has them as they are kept.
    """
    together = {_TOGETHER: list(range(chains))}
    alone = {f"chain-{chain}": [chain] for chain in range(chains)}
    for kept in (together, alone):
        if folder is not None and any((folder / f"{name}.npz").exists() for name in kept):
            return kept
    return together if executor is None and jax.default_backend() != "cpu" else alone


def _run_batch(
    make: Callable[[], AbstractSampler],
    schedule: Schedule,
    keys: np.ndarray,
    path: Path | None,
    settings: Mapping[str, str],
    advance: Callable[[int], Any] = lambda steps: None,
) -> Mapping[str, Any]:
    """Chains from `keys`, side by side: what `_Run.arrays` has when they have run to the end of the `schedule`."""
    sampler = make()
    run = _start_run(sampler, jnp.asarray(keys), settings, path)
    total, saved = schedule.warmup + schedule.draws, run.steps
    advance(min(run.steps, total))
    if run.steps < total:
        # compiled now: the seconds are of draws
        jax.block_until_ready(_advance(sampler, run.states, jnp.array(0), jnp.array(True)))
    checkpointed = time.monotonic()
    try:
        while run.steps < total:
            before = run.steps
            _advance_run(run, sampler, schedule)
            advance(run.steps - before)
            if path is not None and time.monotonic() - checkpointed > store.CHECKPOINT_SECONDS:
                store.write_arrays(run.arrays(), settings, path)
                checkpointed, saved = time.monotonic(), run.steps
    finally:
        if path is not None and run.steps > saved:
            store.write_arrays(run.arrays(), settings, path)
    return run.arrays()


def _draws(runs: Sequence[Mapping[str, Any]], draws: int) -> Draws:
    """The first draws of all runs, chain after chain, and the seconds of all."""
    parts = []
    for kind in (_RECORD, _STATS):
        names = [name for name in runs[0] if name.startswith(kind)]
        joined = {name: np.concatenate([run[name][:, :draws] for run in runs]) for name in names}
        parts.append({name.removeprefix(kind): array for name, array in joined.items()})
    return Draws(*parts, *(float(sum(run[name] for run in runs)) for name in ("warmup_seconds", "seconds")))


def _start_run(sampler, keys, settings: Mapping[str, str], path: Path | None) -> _Run:
    run = _Run(_start(sampler, keys), [])
    arrays = None if path is None else store.read_arrays(path, "run of chains", settings)
    return run if arrays is None else run.resume(arrays)


@jit
def _start(sampler: AbstractSampler, keys):
    return jax.vmap(sampler.start)(keys)


def _advance_run(run: _Run, sampler: AbstractSampler, schedule: Schedule) -> None:
    """One call of compiled code. Draws of warm-up are not kept."""
    in_warmup = run.steps < schedule.warmup
    end = schedule.warmup if in_warmup else schedule.warmup + schedule.draws
    steps, begun = min(_STEPS, end - run.steps), time.monotonic()
    states, drawn = jax.block_until_ready(_advance(sampler, run.states, jnp.array(steps), jnp.array(not in_warmup)))
    seconds = time.monotonic() - begun
    if in_warmup:
        run.warmup_seconds += seconds
    else:
        run.seconds += seconds
        run.blocks.append({name: np.asarray(values)[:, :steps] for name, values in drawn.items()})
    run.states, run.steps = states, run.steps + steps


@jit
def _advance(sampler: AbstractSampler, states, steps, keep):
    """All chains advanced by `steps`, at most `_STEPS`; and, if it is to be kept, what they drew, followed by zeros."""

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

    # trees of different sizes would wait for one another in a batch, which only an accelerator makes up for
    if sampler.lockstep or jax.default_backend() != "cpu":
        return jax.vmap(chain)(states)
    return jax.lax.map(chain, states)


def _join(blocks: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The draws of all `blocks`, in their order."""
    names = [name for block in blocks[:1] for name in block]
    return {name: np.concatenate([block[name] for block in blocks], axis=1) for name in names}
