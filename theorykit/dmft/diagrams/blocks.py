"""Many orbits in blocks: on all cores at once, with progress, and each block kept so that a stopped run goes on."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xarray as xr
from tqdm import tqdm

from ... import store
from ...arguments import (
    checked_flag,
    checked_function,
    checked_instance,
    checked_path,
    checked_text,
    checked_whole_number,
)

ORBIT = "orbit"
# orbits that are iterated together: enough for vectors to be long, few enough for a cache
_ORBITS, _FEWEST_ORBITS = 256, 32


def in_blocks(
    compute: Callable[[np.ndarray], xr.Dataset],
    orbits: int,
    *,
    settings: Mapping[str, str],
    folder: Path | str | None = None,
    orbits_per_block: int = _ORBITS,
    label: str = "orbits",
    progress: bool = True,
) -> xr.Dataset:
    """The dataset of all orbits, from `compute`, which returns that of the orbits whose numbers it is given.

    Blocks are of one size, so that a function is compiled once; they run in threads, for compiled code holds no lock.
    Where there is a `folder` each finished block is kept there with `settings`, all that the result depends on. Raises
    `ValueError` where there are no orbits, and where a file in the folder is damaged or of another kind, and
    `FileExistsError` where it is of other settings, saying what differs.
    """
    checked_function("compute", compute)
    checked_whole_number("orbits", orbits, least=1)
    checked_whole_number("orbits_per_block", orbits_per_block, least=1)
    checked_text("label", label)
    hidden = not checked_flag("progress", progress)
    checked_instance("settings", settings, Mapping, "as store.settings_of returns them")
    for text in (*settings, *settings.values()):
        checked_text("settings", text)
    folder = None if folder is None else checked_path("folder", folder)
    workers = os.cpu_count() or 1
    count = max(-(-orbits // orbits_per_block), min(workers, orbits // _FEWEST_ORBITS))
    size = -(-orbits // count)
    blocks = [np.arange(first, min(first + size, orbits)) for first in range(0, orbits, size)]

    def computed(block: np.ndarray) -> xr.Dataset:
        padded = np.pad(block, (0, size - len(block)), mode="edge")
        found = checked_instance("compute", compute(padded), xr.Dataset, "as it returns")
        return found.isel({ORBIT: slice(len(block))})

    with tqdm(total=orbits, desc=label, unit="orbit", disable=hidden, dynamic_ncols=True) as bar:
        found = []
        for block, result in zip(blocks, _in_order(computed, blocks, folder, settings), strict=True):
            found.append(result)
            bar.update(len(block))
    return xr.concat(found, dim=ORBIT, combine_attrs="drop_conflicts")


def _in_order(
    compute, blocks: list[np.ndarray], folder: Path | None, settings: Mapping[str, str]
) -> Iterator[xr.Dataset]:
    """The datasets of all blocks; what is on disk is not computed, and what is computed is written by this thread."""
    there = {} if folder is None else {block[0]: store.read_kept(*_place(folder, block, settings)) for block in blocks}
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        try:
            ahead = [executor.submit(compute, block) for block in blocks if there.get(block[0]) is None]
            waiting = iter(ahead)
            for block in blocks:
                if folder is None:
                    yield next(waiting).result()
                elif (found := there.pop(block[0])) is not None:
                    yield found
                else:
                    yield store.resume(*_place(folder, block, settings), lambda: next(waiting).result())
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


def _place(folder: Path, block: np.ndarray, settings: Mapping[str, str]) -> tuple[Path, Mapping[str, str]]:
    """Where a block is kept, and what it is of."""
    first, last = int(block[0]), int(block[-1])
    return folder / f"{first:06d}-{last:06d}.nc", {**settings, "orbits": f"{first} to {last}"}
