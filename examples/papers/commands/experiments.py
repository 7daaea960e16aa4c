"""Run an experiment for its command."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from theorykit import store
from theorykit.checks import checked_number, checked_whole_number
from theorykit.cli.commands import is_completed
from theorykit.workers import Workers, open_executor

_EXAMPLES = Path(__file__).resolve().parents[2]


def run_experiment(
    experiment: Callable[..., Any],
    settings: Any,
    places: tuple[Path, Path, Sequence[Path]],
    plots: ModuleType,
    overwrite: bool,
    workers: int | None,
    scheduler: str | None,
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
    # Refuse before computing if an output cannot be written, or would replace a file that is not a result.
    outputs = [
        store.Output("--output", folder, store.FOLDER),
        store.Output("the result", path, ".nc"),
        *(store.Output("a figure", figure, ".png") for figure in figures),
        store.Output("the folder of what is kept", kept, store.FOLDER),
    ]
    store.check_outputs(outputs, {}, overwrite=overwrite)
    with open_executor(workers, scheduler) as executor, _knowing_this_package(executor):
        result = experiment(settings, kept, executor=executor)
    store.write(result, path, overwrite=overwrite)
    if kept.name == "partial":
        store.remove_kept(kept)
    print(plots.table(result))
    for written in [path, *plots.draw_all(result, folder)]:
        print(f"wrote {written}")
    print(f"open {figures[0]} first")


@contextmanager
def _knowing_this_package(executor: Workers) -> Iterator[None]:
    """Send this package to the workers of a dask cluster. Local processes inherit the path of this one."""
    if not hasattr(executor, "upload_file"):
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        executor.upload_file(shutil.make_archive(f"{folder}/papers", "zip", _EXAMPLES, "papers"))
        yield


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
