"""A labelled result as the command line leaves it: a netCDF file, a figure beside it, and a table on the screen."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import xarray as xr

from .. import store
from ..atomic_files import is_marked
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


def is_completed(
    path: Path,
    figures: Sequence[Path],
    settings: object,
    draw: Callable[[xr.DataTree], object],
    overwrite: bool,
) -> bool:
    """Draw the figures of the result in `path` if it is of these `settings` and one is missing; whether it was so.

    A command that is killed between its result and its figures leaves that; the same command then completes it.
    """
    if overwrite or not path.is_file() or not is_marked(path) or all(figure.exists() for figure in figures):
        return False
    result = store.read(path)
    if result.attrs.get("settings") != _text(settings):
        return False
    draw(result)
    print(
        f"{path} is there, and of these settings: drew its figures, which were not complete; --overwrite computes anew"
    )
    return True


def is_drawn(
    output: Path,
    settings: SolveConfig,
    overwrite: bool,
    draw: Callable[[xr.Dataset, Path], Path],
    table: Callable[[xr.Dataset], str],
) -> bool:
    """`is_completed` for a result with one figure beside it; prints its table, too."""

    def drawn(tree: xr.DataTree) -> None:
        draw(tree.to_dataset(), figure)
        print(table(tree.to_dataset()))

    figure = output.with_suffix(".png")
    return is_completed(output, [figure], settings, drawn, overwrite)


def _text(settings: object) -> str:
    return msgspec.json.encode(settings).decode()


def report(
    result: xr.Dataset,
    settings: SolveConfig,
    output: Path,
    overwrite: bool,
    draw: Callable[[xr.Dataset, Path], Path],
    table: Callable[[xr.Dataset], str],
) -> None:
    """Write `result`, with the settings it is of, and its figure; print its table, and what was written."""
    result = result.assign_attrs(settings=_text(settings))
    store.write(result, output, overwrite=overwrite)
    figure = draw(result, output.with_suffix(".png"))
    print(table(result))
    for written in (output, figure):
        print(f"wrote {written}")
