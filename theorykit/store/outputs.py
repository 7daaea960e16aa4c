"""What a command is about to write, looked at before anything is computed; and the removal of what it kept."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from ..atomic_files import is_marked, refuse_to_overwrite, temporary_name
from ..checks import checked_arguments

FOLDER = ""
"""The ending of an `Output` that is a folder."""
_FILE_ENDINGS = (".nc", ".npz", ".png", ".pdf", ".toml", ".md", ".tex", ".html", ".py", ".json")


class Output(NamedTuple):
    """A file or folder that is to be written: what errors call it, where it is, and the ending that its name must have.

    The ending `FOLDER` says that it is a folder.
    """

    name: str
    path: Path
    ending: str


@checked_arguments
def check_outputs(outputs: Sequence[Output], inputs: Mapping[str, Path], *, overwrite: bool) -> None:
    """Raise unless all `outputs` can be written, and none of them is one of `inputs`, by name, or another output.

    Links, `..`, hard links and, where the file system has it so, upper and lower case are seen through. A file that is
    there must be a result of theorykit, which `overwrite` allows to replace; a folder may be there. That a place can be
    written to is tried out, without a trace.

    Raises `ValueError` for an ending or a clash, `FileExistsError` for what must not be replaced, and `OSError` for a
    place that cannot be written to.
    """
    for name, path in (*inputs.items(), *((output.name, output.path) for output in outputs)):
        if "\0" in str(path):
            raise ValueError(f"{name} has a zero byte in its name, {str(path)!r}, which no file can have")
    for number, output in enumerate(outputs):
        _check_ending(output)
        for name, path in inputs.items():
            _refuse_input(output, name, path)
        for other in outputs[:number]:
            _refuse_other(output, other)
    for output in outputs:
        if output.ending != FOLDER:
            refuse_to_overwrite(output.path, overwrite)
            _try_file(output.path)
        elif _is_there(output.path) and not output.path.is_dir():
            raise FileExistsError(f"{output.path} exists and is no folder, which {output.name} needs")
        else:
            _try_file(output.path / "trial")


@checked_arguments
def remove_kept(folder: Path) -> None:
    """Remove the marked files in `folder` and below, and every folder that is empty then; what is the user's stays."""
    for place, _, names in os.walk(folder, topdown=False):
        for path in (Path(place) / name for name in names):
            if path.is_file() and not path.is_symlink() and is_marked(path):
                path.unlink()
        with suppress(OSError):  # another's files are in it
            os.rmdir(place)


def _check_ending(output: Output) -> None:
    if output.ending == FOLDER:
        if output.path.suffix in _FILE_ENDINGS:
            raise ValueError(
                f"{output.name} is a folder, but {output.path} ends in {output.path.suffix} as a file does"
            )
    elif output.path.suffix != output.ending:
        raise ValueError(f"{output.name} must end in {output.ending}, got {str(output.path)!r}")


def _refuse_input(output: Output, name: str, path: Path) -> None:
    real, other = _real(output.path), _real(path)
    # by name where it is not there; what is there may have several
    if real == other or (_is_there(output.path) and _is_there(path) and os.path.samefile(output.path, path)):
        raise ValueError(f"{output.name} would be {output.path}, which is {name}; choose another output")
    if output.ending == FOLDER and real in other.parents:
        raise ValueError(f"{output.name} would be {output.path}, where {name} is, {path}; choose another output")


def _refuse_other(output: Output, other: Output) -> None:
    one, another = (str(_real(each.path)).casefold() for each in (output, other))
    are_there = _is_there(output.path) and _is_there(other.path)
    if one == another or (are_there and os.path.samefile(output.path, other.path)):
        raise ValueError(f"{output.name} and {other.name} would both be {output.path}; choose another output")


def _is_there(path: Path) -> bool:
    """As `Path.exists`, but also for names that are too long, of which the writing will tell."""
    with suppress(OSError):
        return path.exists()
    return False


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _try_file(path: Path) -> None:
    """Raise `OSError` unless `path` can be written to."""
    target = _real(path)
    try:
        with _folder_for_a_moment(target.parent):
            trial = temporary_name(target)
            trial.touch()
            trial.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def _folder_for_a_moment(folder: Path) -> Iterator[None]:
    """Within it, `folder` is there; what had to be made for it is gone afterwards."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    made = []
    try:
        for path in reversed(missing):
            path.mkdir()
            made.append(path)
        yield
    finally:
        for path in reversed(made):
            path.rmdir()
