"""`theorykit sweep CONFIG.toml`: saddle points over widths and temperatures, for data of the user's own."""

import math
from pathlib import Path

import tyro

from ..bpkr import sweeps
from ..plots import sweep as plots
from ..workers import open_executor
from .config import read_config
from .data import read_data
from .report import checked_output, is_drawn, report


def sweep(
    config: tyro.conf.Positional[Path],
    overwrite: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
):
    """Solve the saddle point at every width and temperature of a grid, on data from a file; predict test examples.

    The configuration is that of `theorykit solve` with a table [sweep]; see docs/command-line.md. Prints a table, and
    writes one labelled netCDF file and a figure. Every solved point is kept in a folder beside them, from where a sweep
    that was stopped, or is given more widths or temperatures, goes on. The infinitely wide network is always there too.

    Args:
        config: The configuration file.
        overwrite: Replace the output file and the figure if they exist; solved points are used again.
        workers: Solve as many widths side by side, each in a process and on a core of its own.
        scheduler: The address of a dask scheduler whose workers solve the widths, such as tcp://10.0.0.1:8786.
    """
    settings = read_config(config)
    if settings.sweep is None:
        raise ValueError(f"{config} has no table [sweep]; it needs one with `widths` or `temperatures`, or both")
    default = f"{config.stem}-sweep.nc"
    if is_drawn(config.parent / (settings.sweep.file or default), settings, overwrite, plots.draw, plots.table):
        return
    output = checked_output(config, settings, "sweep", settings.sweep.file, default, overwrite)
    finite, temperatures = settings.sweep.grid(settings.architecture)
    widths = finite if math.inf in finite else (*finite, math.inf)
    architecture = settings.architecture.build_at(1.0, 1.0)
    data = read_data(settings.data, architecture, config.parent)
    with open_executor(workers, scheduler) as executor:
        result = sweeps.sweep(
            architecture,
            data,
            widths=widths,
            temperatures=temperatures,
            folder=output.with_suffix(""),
            executor=executor,
            tolerance=settings.solver.tolerance,
            max_steps=settings.solver.max_steps,
        )
    if "U_1" not in result:
        raise ValueError(f"every point failed: {result['message'].values.flat[0]}")
    if data.test_labels is not None:
        result = result.assign(best_temperature=sweeps.best_temperatures(result))
    report(result, settings, output, overwrite, plots.draw, plots.table)
