"""Write and read results as labelled netCDF files, and check before a computation that its outputs can be written.

Files are never half-written, and never overwritten without permission.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from .. import atomic_files
from ..atomic_files import mark, refuse_to_overwrite
from ..checks import checked_instance, checked_path, checked_sequence
from ..extras import needed
from ..symbolic import Block, as_latex, as_markdown

_ENGINE = "h5netcdf"
_SOURCES = (".md", ".tex", ".html", ".py")
# Ending of an `Output` that is a folder.
FOLDER = ""
_FILE_ENDINGS = (*_SOURCES, ".nc", ".npz", ".png", ".pdf", ".toml", ".json")


def write(result: xr.Dataset | xr.DataTree, path: Path, *, overwrite: bool = False) -> None:
    """Write a labelled result to the netCDF file `path`. A crash leaves no half-written file."""
    checked_instance("result", result, (xr.Dataset, xr.DataTree))
    path = checked_path("path", path)
    refuse_to_overwrite(path, overwrite)
    needed(_ENGINE, "saving results")
    # Otherwise xarray asks the dask cluster of this process for a lock, which fails for files in memory.
    dask = sys.modules.get("dask")
    with nullcontext() if dask is None else dask.config.set(scheduler="threads"):
        # Write in memory first, because HDF5 kills the process when the disk is full.
        content = atomic_files.with_sum(result.to_netcdf(engine=_ENGINE))
    atomic_files.write(content, path, overwrite=overwrite)


def write_text(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write `text` to `path` in UTF-8; only a file with theorykit's mark, as from `write_source`, is replaced."""
    atomic_files.write(checked_instance("text", text, str).encode(), path, overwrite=overwrite)


def write_source(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write Markdown, LaTeX, HTML or Python, with the mark as a comment, to `path` (.md, .tex, .html or .py)."""
    content, path = checked_instance("text", text, str).encode(), checked_path("path", path)
    if path.suffix not in _SOURCES:
        raise ValueError(f"path must end in one of {', '.join(_SOURCES)}, got {str(path)!r}")
    atomic_files.write(mark(content, path.suffix), path, overwrite=overwrite)


def write_document(blocks: "Iterable[Block]", stem: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a document as Markdown and LaTeX, `stem`.md and .tex, and as .pdf if there is a LaTeX installation.

    Returns the paths written.
    """
    blocks, stem = checked_sequence("blocks", blocks, "parts of a document"), checked_path("stem", stem)
    contents = (as_markdown(blocks), as_latex(blocks))
    markdown, source, pdf = (stem.with_suffix(suffix) for suffix in (".md", ".tex", ".pdf"))
    for path in (markdown, source, pdf):
        refuse_to_overwrite(path, overwrite)
    for path, content in zip((markdown, source), contents, strict=True):
        write_source(content, path, overwrite=overwrite)
    compiler = shutil.which("pdflatex")
    if compiler is None:
        return [markdown, source]
    with tempfile.TemporaryDirectory() as folder:
        command = [compiler, "-interaction=nonstopmode", f"-output-directory={folder}", str(source)]
        finished = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if finished.returncode != 0:
            raise ValueError(f"{compiler} failed on {source}:\n{finished.stdout[-2000:]}")
        content = (Path(folder) / pdf.name).read_bytes()
    content = mark(content, ".pdf") if content.startswith(b"%PDF") else content
    atomic_files.write(content, pdf, overwrite=overwrite)
    return [markdown, source, pdf]


def read(path: Path) -> xr.DataTree:
    """Read the result in the netCDF file `path` into memory; `ValueError` if it is damaged or not netCDF 4."""
    path = checked_path("path", path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"no result at {path}") from None
    with _opened(path, content), xr.open_datatree(io.BytesIO(content), engine=_ENGINE) as tree:
        return tree.load()


def read_variables(path: Path, names: Collection[str] | None = None) -> dict[str, xr.Variable]:
    """Read all variables of a netCDF file, or `names` only; raises like `read`, or `ValueError` for a missing one."""
    content = path.read_bytes()
    with _opened(path, content), xr.open_dataset(io.BytesIO(content), engine=_ENGINE) as dataset:
        known = sorted(map(str, dataset.variables))
        names = known if names is None else names
        found = {name: dataset.variables[name].load() for name in names if name in known}
    _check_names(path, names, known)
    return found


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Read all arrays in the npz archive `path`, or those in `names`; raises like `read_variables`."""
    content = path.read_bytes()
    if content.startswith(b"\x93NUMPY"):
        raise ValueError(f"{path} is a single array, not an npz archive: write it by numpy.savez, under a name")
    found, of_objects = {}, None
    with _readable(path, content, "an npz archive"), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        wanted = members if names is None else [name for name in names if name in members]
        for name in wanted:
            # Read the entire member, so that zipfile verifies its checksum.
            stream = io.BytesIO(archive.read(members[name]))
            try:
                found[name] = np.lib.format.read_array(stream, allow_pickle=False)
            except ValueError as error:
                if "Object arrays" not in str(error):
                    raise
                of_objects = name
                break
            if stream.read(1):
                raise ValueError(f"the array {name!r} is longer than its header says")
    if of_objects is not None:
        raise ValueError(f"the array {of_objects!r} in {path} is of Python objects, not of numbers: convert it first")
    _check_names(path, wanted if names is None else names, sorted(members))
    return found


def _check_names(path: Path, names: Iterable[str], known: Sequence[str]) -> None:
    if missing := [name for name in names if name not in known]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it has {', '.join(known) or 'none'}")


@contextmanager
def _opened(path: Path, content: bytes) -> Iterator[None]:
    needed(_ENGINE, f"reading {path}")
    with _readable(path, content, "a netCDF file of version 4"):
        import h5py

        # Test first whether h5py can read an attribute: h5netcdf prints a traceback for a file without.
        with h5py.File(io.BytesIO(content)) as file:
            file.attrs.get("_nc3_strict")
        yield


@contextmanager
def _readable(path: Path, content: bytes, kind: str) -> Iterator[None]:
    """Turn any error that readers raise for `content` into a `ValueError` that names the file."""
    if atomic_files.is_damaged(content):
        raise ValueError(f"{path} is damaged: its content does not match its checksum; remove it and create it again")
    try:
        yield
    except Exception as error:
        if not content:
            reason = "it is empty"
        elif content.startswith(b"CDF"):
            reason = "it is of version 3: convert it, as with nccopy -k nc4"
        elif not content.startswith((b"\x89HDF\r\n\x1a\n", b"PK")):
            reason = "it does not begin as such files do"
        else:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise ValueError(f"{path} cannot be read as {kind} ({reason}): is it damaged, or another file?") from error


class Output(NamedTuple):
    """A file or folder to be written: its name in errors, its path, and its ending, which is `FOLDER` for a folder."""

    name: str
    path: Path
    ending: str


def check_outputs(outputs: Sequence[Output], inputs: Mapping[str, Path], *, overwrite: bool) -> None:
    """Raise unless all `outputs` can be written, and none of them is one of `inputs`, by name, or another output.

    Symbolic links, `..`, hard links and case are resolved. The check writes temporary files and removes them.

    Raises `ValueError` for a wrong ending or a clash, `FileExistsError` for a file that must not be replaced, and
    `OSError` for a path that cannot be written to.
    """
    for name, path in (*inputs.items(), *((output.name, output.path) for output in outputs)):
        if "\0" in str(path):
            raise ValueError(f"{name} has a zero byte in its name, {str(path)!r}, which no file can have")
    for number, (called, place, ending) in enumerate(outputs):
        if ending == FOLDER and place.suffix in _FILE_ENDINGS:
            raise ValueError(f"{called} is a folder, but {place} ends in {place.suffix} as a file does")
        if ending not in (FOLDER, place.suffix):
            raise ValueError(f"{called} must end in {ending}, got {str(place)!r}")
        for name, path in inputs.items():
            # Compare names for missing files; an existing file may have several names.
            if _real(place) == _real(path) or _are_one(place, path):
                raise ValueError(f"{called} would be {place}, which is {name}; choose another output")
            if ending == FOLDER and _real(place) in _real(path).parents:
                raise ValueError(f"{called} would be {place}, where {name} is, {path}; choose another output")
        for other in outputs[:number]:
            one, another = (str(_real(each)).casefold() for each in (place, other.path))
            if one == another or _are_one(place, other.path):
                raise ValueError(f"{called} and {other.name} would both be {place}; choose another output")
    for called, place, ending in outputs:
        if ending != FOLDER:
            refuse_to_overwrite(place, overwrite)
            _try_file(place)
        elif _is_there(place) and not place.is_dir():
            raise FileExistsError(f"{place} exists and is no folder, which {called} needs")
        else:
            _try_file(place / "trial")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_there(path: Path) -> bool:
    # Writing reports a name that is too long.
    with suppress(OSError):
        return path.exists()
    return False


def _are_one(one: Path, other: Path) -> bool:
    return _is_there(one) and _is_there(other) and os.path.samefile(one, other)


def _try_file(path: Path) -> None:
    """Raise `OSError` unless `path` can be written to; folders created for the test are removed."""
    target, made = _real(path), []
    try:
        missing = [folder for folder in target.parents if not folder.exists()]
        try:
            for folder in reversed(missing):
                folder.mkdir()
                made.append(folder)
            trial = atomic_files.temporary_name(target)
            trial.touch()
            trial.unlink()
        finally:
            for folder in reversed(made):
                folder.rmdir()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def remove_kept(folder: Path) -> None:
    """Remove marked files in `folder` and below, and folders that are then empty; the user's files stay."""
    for place, _, names in os.walk(folder, topdown=False):
        for path in (Path(place) / name for name in names):
            if path.is_file() and not path.is_symlink() and atomic_files.is_marked(path):
                path.unlink()
        with suppress(OSError):  # The folder still has other files.
            os.rmdir(place)
