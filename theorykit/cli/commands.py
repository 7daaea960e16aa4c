"""The commands `theorykit solve`, `sweep` and `compare`, which read data, and write a labelled file and a figure."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import tyro

from .. import bpkr
from .._compat import Lazy
from ..runs import refuse_existing, stage, write
from .config import SolveConfig, read_config

# Import slow modules on first use, so that user errors are reported immediately.
jax = Lazy("jax", "random draws")

_OF_LIMIT = ("log_evidence", "mean", "variance", "test_error", "test_accuracy", "test_log_loss", "test_r_squared")
_READING = 'read it by xarray.open_dataset(..., engine="h5netcdf")'
_ENDINGS = {"output": ".nc", "sweep": "-sweep.nc", "compare": "-comparison.nc"}


def solve(config: tyro.conf.Positional[Path], overwrite: bool = False):
    """Solve the saddle point of an architecture on data from a file, and predict test examples if there are any.

    The configuration is a TOML file with the tables [architecture] and [data], and optionally [solver] and [output]. It
    is described in docs/command-line.md. The result is one labelled netCDF file.

    Args:
        config: The configuration file.
        overwrite: Replace the output file if it exists.
    """
    settings = read_config(config)
    output = _checked_output(config, settings, "output", overwrite)
    from .. import summary
    from ..bpkr.data.data import data_line
    from ..bpkr.sweeps.datasets import label_solution, of_test_examples

    has_richness = settings.architecture.richness is not None
    is_gaussian_process = settings.architecture.widths == math.inf and not has_richness
    architecture, data = _read(settings, config.parent, 1.0 if is_gaussian_process else None)
    solver = msgspec.structs.asdict(settings.solver)
    with stage(f"solving {data_line(data)}"):
        problem, limit = bpkr.Problem(architecture, data), None
        # Solve the finite network first, so that an impossible problem fails early.
        result = label_solution(problem, None if is_gaussian_process else bpkr.solve(problem, **solver))
        if not is_gaussian_process and not architecture.is_infinite:
            wide = bpkr.Problem(architecture.at_infinite_width(), data) if has_richness else problem
            limit = label_solution(wide, bpkr.solve(wide, **solver) if has_richness else None)
    if limit is not None:
        result = result.assign({f"infinite_width_{name}": limit[name] for name in _OF_LIMIT if name in limit})
    if data.test_labels is not None:
        result = result.assign(test_label=of_test_examples(data.test_labels))
    result = result.assign_attrs(settings=_as_text(settings))
    write(result.to_netcdf(engine="h5netcdf"), output, overwrite=overwrite)
    print(summary(result))
    print(f"wrote {output}: {_READING}")


def _read(
    settings: SolveConfig,
    folder: Path,
    widths: float | tuple[float, ...] | None = None,
    temperature: float | None = None,
) -> tuple["bpkr.Architecture", "bpkr.Data"]:
    """Read architecture and data. The labels set the number of outputs unless the configuration does."""
    from .data import read_data

    architecture = settings.architecture.build(widths, temperature)
    data = read_data(settings.data, architecture, folder, infer_outputs=settings.architecture.outputs is None)
    return replace(architecture, outputs=data.labels.shape[1] if data.labels.ndim > 1 else 1), data


def sweep(
    config: tyro.conf.Positional[Path],
    overwrite: bool = False,
    n_jobs: int = 1,
):
    """Solve the saddle point at every width and temperature of a grid, on data from a file; predict test examples.

    The configuration has the tables of `theorykit solve` and a table [sweep], as described in docs/command-line.md. The
    command prints a table, and writes one labelled netCDF file and a figure. Every solved point is kept in a folder
    next to them. An interrupted sweep, or a sweep with more widths or temperatures, resumes from this folder. The
    infinitely wide network is always included.

    Args:
        config: The configuration file.
        overwrite: Replace the output file and the figure if they exist. Solved points are used again.
        n_jobs: Solve this many widths in parallel, each in a separate process; -1 for one per core.
    """
    settings = read_config(config)
    if settings.sweep is None:
        raise ValueError(f"{config} has no table [sweep]; add one with `widths`, `temperatures` or `richness`")

    def compute(folder: Path) -> "xr.Dataset":
        from ..bpkr import sweeps

        finite, temperatures = settings.sweep.grid(settings.architecture)
        architecture, data = _read(settings, config.parent, 1.0, 1.0)
        result = sweeps.sweep(
            architecture,
            data,
            width=finite if math.inf in finite else (*finite, math.inf),
            temperature=temperatures,
            richness=settings.sweep.richness,
            folder=folder,
            n_jobs=n_jobs,
            **msgspec.structs.asdict(settings.solver),
        )
        if "U_1" not in result:
            raise ValueError(f"every point failed: {result['message'].values.flat[0]}")
        if data.test_labels is not None:
            result = result.assign(best_temperature=sweeps.best_temperatures(result))
        return result

    _compute_and_report(config, settings, "sweep", overwrite, compute)


def compare(
    config: tyro.conf.Positional[Path],
    overwrite: bool = False,
    n_jobs: int = 1,
):
    """Check theory by sampling, on data from a file: order parameters and predictions of every approach, side by side.

    The configuration has the tables of `theorykit solve` and optionally a table [compare], as described in
    docs/command-line.md. The command prints a table, and writes one labelled netCDF file and a figure. Draws are kept
    in a folder next to them. An interrupted run, or a run with more draws, resumes from this folder.

    Args:
        config: The configuration file.
        overwrite: Replace the output file and the figure if they exist. Draws are used again.
        n_jobs: Run this many chains in parallel, each in a separate process; -1 for one per core.
    """
    settings = read_config(config)
    wanted = settings.compare

    def compute(folder: Path) -> "xr.Dataset":
        from ..bpkr import sampling

        architecture, data = _read(settings, config.parent)
        return sampling.compare(
            architecture,
            data,
            key=jax.random.key(wanted.seed or 0),
            approaches=wanted.approaches,
            options={**wanted.options(), "saddle": msgspec.structs.asdict(settings.solver)},
            folder=folder,
            n_jobs=n_jobs,
        )

    _compute_and_report(config, settings, "compare", overwrite, compute)


def is_completed(
    path: Path, figures: Sequence[Path], settings: Any, draw: "Callable[[xr.DataTree], object]", overwrite: bool
) -> bool:
    """Draw missing figures if `path` has a result with these `settings`, and return whether any were drawn.

    Figures are missing if a command is killed between writing its result and its figures. The same command then
    completes them.
    """
    if overwrite or not path.is_file() or all(figure.exists() for figure in figures):
        return False
    import xarray as xr

    result = xr.load_datatree(path, engine="h5netcdf")
    if result.attrs.get("settings") != _as_text(settings):
        return False
    draw(result)
    print(f"{path} exists with these settings: drew its missing figures; pass --overwrite to compute it again")
    return True


def _as_text(settings: Any) -> str:
    return msgspec.json.encode(settings).decode()


def _compute_and_report(
    config: Path, settings: SolveConfig, table: str, overwrite: bool, compute: "Callable[[Path], xr.Dataset]"
) -> None:
    """Write the result of `compute`, with settings and figure, next to `config`, and print its table."""
    from .. import plots, summary

    module = {"sweep": plots.sweep, "compare": plots.comparison}[table]
    output = _output(config, settings, table)
    figure = output.with_suffix(".png")

    def draw(tree: "xr.DataTree") -> None:
        module.draw(tree.to_dataset(), figure)
        print(summary(tree))

    if is_completed(output, [figure], settings, draw, overwrite):
        return
    _checked_output(config, settings, table, overwrite)
    result = compute(output.with_suffix("")).assign_attrs(settings=_as_text(settings))
    write(result.to_netcdf(engine="h5netcdf"), output, overwrite=overwrite)
    module.draw(result, figure)
    print(f"{summary(result)}\nwrote {figure}: open this first\nwrote {output}: {_READING}")
    if output.with_suffix("").is_dir():
        print(f"kept {output.with_suffix('')}{os.sep}: the same command, with more to do, resumes from there")


def _output(config: Path, settings: SolveConfig, table: str) -> Path:
    """Return the path of the result, next to the configuration: `file` in the `table`, or the configuration's name."""
    return config.parent / (getattr(settings, table).file or f"{config.stem}{_ENDINGS[table]}")


def _checked_output(config: Path, settings: SolveConfig, table: str, overwrite: bool) -> Path:
    """Return the path of the result. Refuse other endings, and files that exist."""
    output = _output(config, settings, table)
    if output.suffix != ".nc":
        raise ValueError(f"`file` of [{table}] must end in .nc, got {str(output)!r}")
    if output == config.parent / settings.data.file:
        raise ValueError(f"`file` of [{table}] is the data file {output}; choose another output")
    for path in (output,) if table == "output" else (output, output.with_suffix(".png")):
        refuse_existing(path, overwrite)
    return output
