"""Many orbits in blocks: on all cores or workers, with progress, and each block kept so that a stopped run goes on."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from tqdm.auto import tqdm

from ...checks import (
    checked_flag,
    checked_function,
    checked_instance,
    checked_path,
    checked_text,
    checked_whole_number,
)
from ...settings import usual_settings
from ...store.runs import resume_tasks
from ...workers import Workers, check_executor

ORBIT = "orbit"
# orbits that are iterated together: enough for vectors to be long, few enough for a cache
_ORBITS, _FEWEST_ORBITS = 256, 32
# blocks that there are where orbits suffice. The same on every processor: a run goes on with other cores than before
_BLOCKS = 8
# an accelerator takes little longer for these than for 256, and a block of so many needs a GiB or two
_ORBITS_OF_AN_ACCELERATOR = 4096


def in_blocks(
    compute: Callable[[np.ndarray], xr.Dataset],
    orbits: int,
    *,
    settings: Mapping[str, str],
    folder: Path | str | None = None,
    orbits_per_block: int | None = None,
    executor: Workers = None,
    label: str = "orbits",
    progress: bool = True,
) -> xr.Dataset:
    """The dataset of all orbits, from `compute`, which returns that of the orbits whose numbers it is given.

    Blocks are of one size, so that a function is compiled once: at most `orbits_per_block`, by default 256 on a
    processor and 4096 on an accelerator. A processor runs them in threads, for compiled code holds no lock, and an
    accelerator one after another; or an `executor` does: processes that are started afresh, or a dask `Client`; then
    `compute` must be such as can be pickled. If there is a `folder`, each finished block is kept there with `settings`,
    all that the result depends on; a run goes on with the blocks that are kept, whatever device they are from. Raises
    `ValueError` where there are no orbits, and where a file in the folder is damaged or of another kind, and
    `FileExistsError` where it is of other settings, saying what differs.
    """
    check_executor(executor)
    checked_function("compute", compute)
    checked_whole_number("orbits", orbits, least=1)
    if orbits_per_block is not None:
        checked_whole_number("orbits_per_block", orbits_per_block, least=1)
    checked_text("label", label)
    hidden = not checked_flag("progress", progress)
    checked_instance("settings", settings, Mapping, "as store.settings_of returns them")
    for text in (*settings, *settings.values()):
        checked_text("settings", text)
    folder = None if folder is None else checked_path("folder", folder)
    size = _size(orbits, orbits_per_block, folder)
    blocks = [np.arange(first, min(first + size, orbits)) for first in range(0, orbits, size)]
    places = [None if folder is None else _place(folder, block, settings) for block in blocks]
    tasks, found = [(block, size) for block in blocks], {}
    threads = os.cpu_count() if jax.default_backend() == "cpu" else 1
    with (
        tqdm(total=orbits, desc=label, unit="orbit", disable=hidden, dynamic_ncols=True) as bar,
        ThreadPoolExecutor(threads) if executor is None else nullcontext(executor) as workers,
    ):
        for number, result in resume_tasks(workers, _compute_padded, tasks, places, (compute,)):
            found[number] = result
            bar.update(len(blocks[number]))
    return xr.concat([found[number] for number in range(len(blocks))], dim=ORBIT, combine_attrs="drop_conflicts")


def _size(orbits: int, orbits_per_block: int | None, folder: Path | None) -> int:
    """Return the number of orbits per block: as in the files of the folder, or as the device likes it."""
    most = _ORBITS if orbits_per_block is None else orbits_per_block
    small = -(-orbits // max(-(-orbits // most), min(_BLOCKS, orbits // _FEWEST_ORBITS)))
    if orbits_per_block is not None:
        return small
    large = -(-orbits // -(-orbits // _ORBITS_OF_AN_ACCELERATOR))
    for size in (small, large):
        if folder is not None and any(_file(folder, first, orbits, size).exists() for first in range(0, orbits, size)):
            return size
    return small if jax.default_backend() == "cpu" else large


def _file(folder: Path, first: int, orbits: int, size: int) -> Path:
    """Where the block that begins with orbit `first` is kept."""
    return folder / f"{first:06d}-{min(first + size, orbits) - 1:06d}.nc"


@usual_settings()
def _compute_padded(compute: Callable[[np.ndarray], xr.Dataset], block: np.ndarray, size: int) -> xr.Dataset:
    """What `compute` has of the orbits of a block, the last of them given as often as there are too few."""
    found = compute(np.pad(block, (0, size - len(block)), mode="edge"))
    return checked_instance("compute", found, xr.Dataset, "as it returns").isel({ORBIT: slice(len(block))})


def _place(folder: Path, block: np.ndarray, settings: Mapping[str, str]) -> tuple[Path, Mapping[str, str]]:
    """Where a block is kept, and what it is of."""
    first, last = int(block[0]), int(block[-1])
    return _file(folder, first, last + 1, len(block)), {**settings, "orbits": f"{first} to {last}"}
