"""Continuation diagrams: each orbit starts where that of the neighbouring parameter ended, outwards in both directions.

The same parameters begun elsewhere, or from the other end, may settle elsewhere: attractors that coexist.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from ... import dmft, store
from ...checks import checked_flag, checked_path, checked_whole_number
from ...settings import usual_settings
from ...workers import Workers, check_executor
from .orbits import OrbitSettings, Start, broadcast_orbits, checked_begin, checked_settings, orbit_diagram

# orbits whose windows are kept together
_KEPT_TOGETHER = 25
# raised whenever orbits come to be carried on to other windows from the same arguments
_VERSION = 1


@usual_settings()
def continuation_diagram(
    model: dmft.SelfAttention,
    parameters: dmft.Parameters,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    centre: int | None = None,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.Dataset:
    """The orbit diagram of `parameters` with the orbits that are carried on from one parameter to the next.

    `start` begins the one at index `centre`, by default the middle; each is followed for the `transient` of `settings`,
    and its last attentions are the window that its neighbour begins with, on both sides, one after another. From these
    windows orbits are then recorded as `orbit_diagram` does, in blocks, by the `executor` if there is one. `folder`,
    `progress` and errors are as there.
    """
    check_executor(executor)
    folder = None if folder is None else checked_path("folder", folder)
    settings = OrbitSettings(recorded=150_000) if settings is None else settings
    checked_settings(settings, model, parameters)
    every = broadcast_orbits(parameters)
    (orbits,) = every.batch_shape
    whole = orbits // 2 if centre is None else checked_whole_number("centre", centre)
    if not -orbits <= whole < orbits:
        raise ValueError(f"centre={whole} is none of the {orbits} parameters")
    settling = settings.transient
    if settling < model.context:
        raise ValueError(f"settings: transient={settling} tokens must fill a window of {model.context}")
    if orbits > 1 and settling % model.context:  # every orbit is one transient further from the centre
        raise ValueError(f"settings: transient={settling} tokens must be a multiple of the context, {model.context}")
    hidden, centre = not checked_flag("progress", progress), whole % orbits
    with tqdm(total=orbits, desc="settling", unit="orbit", disable=hidden, dynamic_ncols=True) as bar:
        windows = _carry(model, every, start, centre, settling, folder, bar)

    def carried(model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
        return dmft.state_from_window(model, parameters, windows)

    recorded = None if folder is None else folder / "orbits"
    options = {"folder": recorded, "executor": executor, "label": "carried on", "progress": progress}
    return orbit_diagram(model, every, carried, replace(settings, transient=0), **options).assign_attrs(centre=centre)


def _carry(model, every: dmft.Parameters, start, centre: int, settling: int, folder, bar: tqdm) -> dmft.Window:
    """The windows that orbits begin with, from the last attentions of their neighbours."""
    first = _select(every, centre)
    begun = checked_begin(start, model, first)
    run = {"model": model, "parameters": every, "start": begun, "centre": centre, "settling": settling}
    run = store.settings_of("continuation", _VERSION, **run)
    window = dmft.discard_transient(model, first, begun, settling)
    latest = dmft.Window(np.stack([np.asarray(window.attention)] * 2, axis=-1), window.position)
    found = {centre: np.asarray(window.attention)}
    steps = list(_outwards(*every.batch_shape, centre))
    bar.update()
    for number in range(0, len(steps), _KEPT_TOGETHER):
        together = steps[number : number + _KEPT_TOGETHER]

        def compute(together=together, latest=latest) -> xr.Dataset:
            return _settle_in_turn(model, every, latest, together, settling)

        path = None if folder is None else folder / f"settling-{number:06d}.nc"
        kept = compute() if path is None else store.resume(path, {**run, "steps": str(together)}, compute)
        for pair, windows in zip(together, kept["window"].values, strict=True):
            found |= {index: windows[..., side] for side, index in enumerate(pair)}
        latest = dmft.Window(kept["window"].values[-1], window.position)
        bar.update(len(found) - bar.n)
    return dmft.Window(np.stack([found[index] for index in sorted(found)], axis=-1), window.position)


def _select(every: dmft.Parameters, orbits: int | Sequence[int]) -> dmft.Parameters:
    return jax.tree.map(lambda values: values[np.asarray(orbits)], every)


def _outwards(count: int, centre: int) -> Iterator[tuple[int, int]]:
    """Pairs of indices ever further above and below the centre; at an end that is reached, the last one again."""
    for distance in range(1, max(centre, count - 1 - centre) + 1):
        yield min(centre + distance, count - 1), max(centre - distance, 0)


def _settle_in_turn(model, every: dmft.Parameters, latest: dmft.Window, pairs, settling: int) -> xr.Dataset:
    windows = []
    for pair in pairs:
        parameters = _select(every, pair)
        latest = dmft.discard_transient(model, parameters, dmft.state_from_window(model, parameters, latest), settling)
        windows.append(np.asarray(latest.attention))
    return xr.Dataset({"window": (("distance", "age", "pattern", "side"), np.stack(windows))})
