"""Run an experiment for its command."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from theorykit.checks import checked_number, checked_whole_number
from theorykit.cli.commands import is_completed
from theorykit.runs import refuse_existing, write


def run_experiment(
    experiment: Callable[..., Any],
    settings: Any,
    places: tuple[Path, Path, Sequence[Path]],
    plots: ModuleType,
    overwrite: bool,
    n_jobs: int,
) -> None:
    """Run an experiment, unless its result exists; write, print and draw the result.

    `places` are the path of the result, the folder of intermediate results (removed at the end if its name is
    "partial"), and the figures.
    """
    _check_numbers(settings)
    path, kept, figures = places
    folder = path.parent
    if is_completed(path, figures, settings, lambda tree: plots.draw_all(tree, folder), overwrite):
        return
    for each in (path, *figures):
        refuse_existing(each, overwrite)
    result = experiment(settings, kept, n_jobs=n_jobs)
    write(result.to_netcdf(engine="h5netcdf"), path, overwrite=overwrite)
    if kept.name == "partial":
        shutil.rmtree(kept, ignore_errors=True)
    print(plots.table(result))
    for written in [path, *plots.draw_all(result, folder)]:
        print(f"wrote {written}")
    print(f"open {figures[0]} first")


def _check_numbers(settings: Any, name: str = "") -> None:
    """Raise `ValueError` for a number in `settings` that is not finite, or a whole number too large for arrays."""
    if isinstance(settings, dict):
        for field, value in settings.items():
            _check_numbers(value, f"{name}.{field}" if name else field)
    elif isinstance(settings, (list, tuple)):
        for value in settings:
            _check_numbers(value, name)
    elif isinstance(settings, float):
        checked_number(name, settings)
    elif isinstance(settings, int):
        most = 2**63 - 1 if "seed" in name and name != "seeds" else 2**31 - 1
        checked_whole_number(name, settings, least=-most, most=most)
    elif is_dataclass(settings):
        _check_numbers(asdict(settings), name)
