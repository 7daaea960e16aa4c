"""A labelled result as the command line leaves it: a netCDF file, a figure beside it, and a table on the screen."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import xarray as xr

from .. import store
from .config import SolveConfig


def refuse_to_overwrite(output: Path, overwrite: bool) -> None:
    """Raise `FileExistsError` if there is a result or a figure at `output`, unless told to overwrite it."""
    for path in (output, output.with_suffix(".png")):
        store.refuse_to_overwrite(path, overwrite)


def report(
    result: xr.Dataset,
    settings: SolveConfig,
    output: Path,
    overwrite: bool,
    draw: Callable[[xr.Dataset, Path], Path],
    table: Callable[[xr.Dataset], str],
) -> None:
    """Write `result`, with the settings it is of, and its figure; print its table, and what was written."""
    result = result.assign_attrs(settings=msgspec.json.encode(settings).decode())
    store.write(result, output, overwrite=overwrite)
    figure = draw(result, output.with_suffix(".png"))
    print(table(result))
    for written in (output, figure):
        print(f"wrote {written}")
