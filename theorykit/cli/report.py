"""A labelled result as the command line leaves it: a netCDF file, a figure beside it, and a table on the screen."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import xarray as xr

from .. import store
from .config import SolveConfig


def checked_output(
    config: Path, settings: SolveConfig, table: str, file: str | None, default: str, overwrite: bool
) -> Path:
    """The file for the result, beside the configuration `config`: `file` of the `table`, or else `default`.

    Raises before anything is computed where it, or its figure and folder, which all but [output] have, cannot be
    written, or would replace what is no result; see `store.check_outputs`.
    """
    output = config.parent / (default if file is None else file)
    outputs = [store.Output(f"`file` of [{table}]" if file is not None else "the output", output, ".nc")]
    if table != "output" and output.suffix == ".nc":
        outputs.append(store.Output("the figure", output.with_suffix(".png"), ".png"))
        outputs.append(store.Output("the folder of what is kept", output.with_suffix(""), store.FOLDER))
    inputs = {"the configuration": config, "`file` of [data]": config.parent / settings.data.file}
    store.check_outputs(outputs, inputs, overwrite=overwrite)
    return output


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
