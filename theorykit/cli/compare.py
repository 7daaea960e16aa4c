"""`theorykit compare CONFIG.toml`: theory beside sampled networks, for data of the user's own."""

from pathlib import Path

import jax
import msgspec
import tyro

from ..bpkr import sampling
from ..plots import comparison as plots
from ..workers import open_executor
from .config import read_config
from .data import read_data
from .report import checked_output, is_drawn, report


def compare(
    config: tyro.conf.Positional[Path],
    overwrite: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
):
    """Check theory by sampling, on data from a file: order parameters and predictions of every approach, side by side.

    The configuration is that of `theorykit solve` with, if wanted, a table [compare]; see docs/command-line.md. Prints
    a table, and writes one labelled netCDF file and a figure. Draws are kept in a folder beside them, from where a run
    that was stopped, or is to draw more, goes on.

    Args:
        config: The configuration file.
        overwrite: Replace the output file and the figure if they exist; draws are used again.
        workers: Run as many chains side by side, each in a process and on a core of its own.
        scheduler: The address of a dask scheduler whose workers run the chains, such as tcp://10.0.0.1:8786.
    """
    settings = read_config(config)
    wanted = settings.compare
    default = f"{config.stem}-comparison.nc"
    if is_drawn(config.parent / (wanted.file or default), settings, overwrite, plots.draw, plots.table):
        return
    output = checked_output(config, settings, "compare", wanted.file, default, overwrite)
    architecture = settings.architecture.build()
    data = read_data(settings.data, architecture, config.parent)
    with open_executor(workers, scheduler) as executor:
        result = sampling.compare(
            architecture,
            data,
            key=jax.random.key(wanted.seed or 0),
            approaches=wanted.approaches,
            options={**wanted.options(), "saddle": msgspec.structs.asdict(settings.solver)},
            folder=output.with_suffix(""),
            executor=executor,
        )
    report(result, settings, output, overwrite, plots.draw, plots.table)
