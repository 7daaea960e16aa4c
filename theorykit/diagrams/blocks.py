"""Many orbits in blocks: on all cores at once, with progress, and each block kept so that a stopped run goes on."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import xarray as xr
from tqdm import tqdm

from .. import store

LANE = "lane"
# lanes that are iterated together: enough for vectors to be long, few enough for a cache
_LANES, _FEWEST_LANES = 256, 32


def in_blocks(
    compute: Callable[[np.ndarray], xr.Dataset],
    lanes: int,
    *,
    settings: str,
    folder: Path | None = None,
    lanes_per_block: int = _LANES,
    label: str = "orbits",
) -> xr.Dataset:
    """The dataset of all lanes, from `compute`, which returns that of the lanes whose numbers it is given.

    Blocks are of one size, so that a function is compiled once; they run in threads, for compiled code holds no lock.
    Where there is a `folder` each finished block is kept there with `settings`, a text that the result depends on.
    Raises `ValueError` where there are no lanes.
    """
    if lanes < 1:
        raise ValueError(f"nothing to run: {lanes} orbits")
    workers = os.cpu_count() or 1
    count = max(-(-lanes // lanes_per_block), min(workers, lanes // _FEWEST_LANES))
    size = -(-lanes // count)
    blocks = [np.arange(first, min(first + size, lanes)) for first in range(0, lanes, size)]

    def computed(block: np.ndarray) -> xr.Dataset:
        padded = np.pad(block, (0, size - len(block)), mode="edge")
        return compute(padded).isel({LANE: slice(len(block))})

    with tqdm(total=lanes, desc=label, unit="orbit", dynamic_ncols=True) as progress:
        found = []
        for block, result in zip(blocks, _in_order(computed, blocks, folder, settings), strict=True):
            found.append(result)
            progress.update(len(block))
    return xr.concat(found, dim=LANE, combine_attrs="drop_conflicts")


def _in_order(compute, blocks: list[np.ndarray], folder: Path | None, settings: str) -> Iterator[xr.Dataset]:
    """The datasets of all blocks; what is on disk is not computed, and what is computed is written by this thread."""
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        try:
            ahead = [executor.submit(compute, block) for block in blocks if not _kept(folder, block, settings)]
            waiting = iter(ahead)
            for block in blocks:
                if folder is None:
                    yield next(waiting).result()
                    continue
                path, text = _path(folder, block), _text(block, settings)
                yield store.resumed(path, text, lambda: next(waiting).result()).drop_attrs()
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise


def _path(folder: Path, block: np.ndarray) -> Path:
    return folder / f"{block[0]:06d}-{block[-1]:06d}.nc"


def _text(block: np.ndarray, settings: str) -> str:
    return f"lanes {block[0]} to {block[-1]}; {settings}"


def _kept(folder: Path | None, block: np.ndarray, settings: str) -> bool:
    if folder is None or not _path(folder, block).exists():
        return False
    return store.read(_path(folder, block)).attrs.get("settings") == _text(block, settings)
