"""Continuation diagrams: each value of beta starts where the orbit of its neighbour ended, outwards in both directions.

The same values begun elsewhere, or from the other end, may settle elsewhere: attractors that coexist.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from tqdm import tqdm

from ... import dmft, store
from ...arguments import checked_array, checked_number, checked_path, checked_whole_number
from .orbits import OrbitSettings, Start, checked_begin, checked_settings, orbit_diagram

# values of beta whose windows are kept together
_KEPT_TOGETHER = 25
# raised whenever orbits come to be carried on to other windows from the same arguments
_VERSION = 1


def continuation_diagram(
    model: dmft.SelfAttention,
    betas: ArrayLike,
    gamma: float | int,
    epsilon: float | int,
    start: Start,
    settings: OrbitSettings | None = None,
    *,
    centre: int | None = None,
    settling: int = 100_000,
    folder: Path | str | None = None,
) -> xr.Dataset:
    """The orbit diagram of `betas` with the orbits that are carried on from one value to the next.

    `start` begins the one at index `centre`, by default the middle; each is followed for `settling` tokens, and its
    last attentions are the window that its neighbour begins with, on both sides. From these windows orbits are then
    recorded as `orbit_diagram` does. Progress and `folder` are as there, and errors too.
    """
    folder = None if folder is None else checked_path("folder", folder)
    betas = np.atleast_1d(checked_array("betas", betas))
    checked_number("gamma", gamma)
    checked_number("epsilon", epsilon, least=0.0, most=1.0)
    if betas.ndim != 1 or not len(betas):
        raise ValueError(f"betas must be on one axis, got shape {betas.shape}")
    settings = OrbitSettings(transient=0, recorded=150_000) if settings is None else settings
    checked_settings(settings, model, dmft.Parameters(betas, gamma, epsilon))
    whole = len(betas) // 2 if centre is None else checked_whole_number("centre", centre)
    if not -len(betas) <= whole < len(betas):
        raise ValueError(f"centre={whole} is none of the {len(betas)} betas")
    centre = whole % len(betas)
    if checked_whole_number("settling", settling) < model.context:
        raise ValueError(f"settling={settling} tokens must fill a window of {model.context}")
    if len(betas) > 1 and settling % model.context:  # every value is one settling further from the centre
        raise ValueError(f"settling={settling} tokens must be a multiple of the context, {model.context}")
    windows = _carried(model, betas, gamma, epsilon, start, centre, settling, folder)

    def carried(model: dmft.SelfAttention, parameters: dmft.Parameters) -> dmft.State:
        return dmft.state_from_window(model, parameters, windows)

    parameters = dmft.Parameters(betas, gamma, epsilon)
    recorded = None if folder is None else folder / "orbits"
    return orbit_diagram(model, parameters, carried, settings, folder=recorded, label="carried on").assign_attrs(
        centre=centre
    )


def _carried(model, betas, gamma, epsilon, start, centre, settling, folder) -> dmft.Window:
    """The window that each value begins with, in lanes."""
    first = dmft.Parameters(betas[centre], gamma, epsilon)
    begun = checked_begin(start, model, first)
    run = {"model": model, "betas": betas, "gamma": gamma, "epsilon": epsilon, "start": begun}
    run = store.settings_of("continuation", _VERSION, **run, centre=centre, settling=settling)
    window = dmft.discard_transient(model, first, begun, settling)
    latest = dmft.Window(np.stack([np.asarray(window.attention)] * 2, axis=-1), window.position)
    found = {centre: np.asarray(window.attention)}
    steps = list(_outwards(len(betas), centre))
    with tqdm(total=len(betas), initial=1, desc="settling", unit="orbit", dynamic_ncols=True) as progress:
        for number in range(0, len(steps), _KEPT_TOGETHER):
            together = steps[number : number + _KEPT_TOGETHER]

            def compute(together=together, latest=latest) -> xr.Dataset:
                return _settled_in_turn(model, betas, gamma, epsilon, latest, together, settling)

            path = None if folder is None else folder / f"settling-{number:06d}.nc"
            kept = compute() if path is None else store.resumed(path, {**run, "steps": str(together)}, compute)
            for pair, windows in zip(together, kept["window"].values, strict=True):
                found |= {index: windows[..., side] for side, index in enumerate(pair)}
            latest = dmft.Window(kept["window"].values[-1], window.position)
            progress.update(len(found) - progress.n)
    return dmft.Window(np.stack([found[index] for index in range(len(betas))], axis=-1), window.position)


def _outwards(count: int, centre: int) -> Iterator[tuple[int, int]]:
    """Pairs of indices ever further above and below the centre; at an end that is reached, the last one again."""
    for distance in range(1, max(centre, count - 1 - centre) + 1):
        yield min(centre + distance, count - 1), max(centre - distance, 0)


def _settled_in_turn(model, betas, gamma, epsilon, latest, pairs, settling) -> xr.Dataset:
    windows = []
    for pair in pairs:
        parameters = dmft.Parameters(betas[list(pair)], gamma, epsilon)
        latest = dmft.discard_transient(model, parameters, dmft.state_from_window(model, parameters, latest), settling)
        windows.append(np.asarray(latest.attention))
    return xr.Dataset({"window": (("distance", "age", "pattern", "side"), np.stack(windows))})
