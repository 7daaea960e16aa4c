"""Markov chains run side by side: a compiled loop over steps, a progress bar, and a folder from where a run goes on."""

import abc
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from tqdm import tqdm

from ... import store
from .settings import Schedule

# steps in one call of compiled code
_STEPS = 50
_FILE = "chains.npz"
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
    """What chains have drawn: arrays (chains, draws, ...), and the seconds that warm-up and drawing took."""

    record: Mapping[str, np.ndarray]
    stats: Mapping[str, np.ndarray]
    warmup_seconds: float
    seconds: float


@dataclass
class _Run:
    """A run under way: the chains' states, what they have drawn, how many steps are done."""

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
    sampler: AbstractSampler,
    schedule: Schedule,
    *,
    key: PRNGKeyArray,
    settings: Mapping[str, str],
    folder: Path | None = None,
    progress: bool = True,
) -> Draws:
    """Run `schedule.chains` chains of `sampler` from independent starts.

    With a `folder`, draws and states are kept there, and a run that was stopped, or wants more draws than are there,
    goes on as if it never had been stopped; `settings` say which run it is, and a folder with another is refused.
    """
    run = _start_run(sampler, schedule, key, settings, folder)
    total, saved = schedule.warmup + schedule.draws, run.steps
    bar = tqdm(total=total, initial=min(run.steps, total), unit="draw", disable=not progress, dynamic_ncols=True)
    if run.steps < total:
        jax.block_until_ready(
            _advance(sampler, run.states, jnp.array(0), jnp.array(True))
        )  # compiled now: the seconds are of draws
    checkpointed = time.monotonic()
    with bar:
        try:
            while run.steps < total:
                bar.set_description(f"{settings['sampler']}: {'warm-up' if run.steps < schedule.warmup else 'draws'}")
                bar.update(_advance_run(run, sampler, schedule))
                if folder is not None and time.monotonic() - checkpointed > store.CHECKPOINT_SECONDS:
                    store.write_arrays(run.arrays(), settings, folder / _FILE)
                    checkpointed, saved = time.monotonic(), run.steps
        finally:
            if folder is not None and run.steps > saved:
                store.write_arrays(run.arrays(), settings, folder / _FILE)
    drawn = {name: array[:, : schedule.draws] for name, array in _join(run.blocks).items()}
    record, stats = (
        {name.removeprefix(kind): array for name, array in drawn.items() if name.startswith(kind)}
        for kind in (_RECORD, _STATS)
    )
    return Draws(record, stats, run.warmup_seconds, run.seconds)


def _start_run(sampler, schedule: Schedule, key, settings: Mapping[str, str], folder: Path | None) -> _Run:
    # plain numbers instead of typed keys, so that states can be written to disk
    keys = jax.random.key_data(jax.random.split(key, schedule.chains))
    run = _Run(_start(sampler, keys), [])
    arrays = None if folder is None else store.read_arrays(folder / _FILE, "run of chains", settings)
    return run if arrays is None else run.resume(arrays)


@eqx.filter_jit
def _start(sampler: AbstractSampler, keys):
    return jax.vmap(sampler.start)(keys)


def _advance_run(run: _Run, sampler: AbstractSampler, schedule: Schedule) -> int:
    """One call of compiled code; how many steps that is. Draws of warm-up are not kept."""
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
    return steps


@eqx.filter_jit
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
