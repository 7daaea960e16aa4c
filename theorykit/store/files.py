"""Write and read results as labelled netCDF files, and check before a computation that its outputs can be written.

Files are never partially written, and never replaced without permission.
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
from .._compat import needed
from ..atomic_files import mark, refuse_to_overwrite
from ..checks import checked_instance, checked_path, checked_sequence
from ..symbolic import Block, as_latex, as_markdown

_ENGINE = "h5netcdf"
_SOURCES = (".md", ".tex", ".html", ".py")
# Ending of an `Output` that is a folder.
FOLDER = ""
_FILE_ENDINGS = (*_SOURCES, ".nc", ".npz", ".png", ".pdf", ".toml", ".json")


def write(result: xr.Dataset | xr.DataTree, path: Path, *, overwrite: bool = False) -> None:
    """Write a labelled result to a netCDF file. A crash does not leave a partially written file.

    Args:
        result: a labelled dataset, or a tree of datasets.
        path: the file.
        overwrite: whether to replace a file from theorykit.

    Raises:
        FileExistsError: the file exists, and `overwrite` is False or the file is not from theorykit.
    """
    checked_instance("result", result, (xr.Dataset, xr.DataTree))
    path = checked_path("path", path)
    refuse_to_overwrite(path, overwrite)
    needed(_ENGINE, "saving results")
    # By default xarray asks the dask cluster of this process for a lock, which fails for files in memory.
    dask = sys.modules.get("dask")
    with nullcontext() if dask is None else dask.config.set(scheduler="threads"):
        # Write to memory first, because HDF5 kills the process if the disk is full.
        content = atomic_files.with_sum(result.to_netcdf(engine=_ENGINE))
    atomic_files.write(content, path, overwrite=overwrite)


def write_text(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write text to a file in UTF-8.

    Args:
        text: the content.
        path: the file.
        overwrite: whether to replace a file with theorykit's mark, such as a file from `write_source`.

    Raises:
        FileExistsError: the file exists, and `overwrite` is False or the file has no mark.
    """
    atomic_files.write(checked_instance("text", text, str).encode(), path, overwrite=overwrite)


def write_source(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write Markdown, LaTeX, HTML or Python with theorykit's mark as a comment.

    Args:
        text: the content.
        path: a file that ends in .md, .tex, .html or .py.
        overwrite: whether to replace a file with theorykit's mark.

    Raises:
        ValueError: the file has another ending.
        FileExistsError: the file exists, and `overwrite` is False or the file has no mark.
    """
    content, path = checked_instance("text", text, str).encode(), checked_path("path", path)
    if path.suffix not in _SOURCES:
        raise ValueError(f"path must end in one of {', '.join(_SOURCES)}, got {str(path)!r}")
    atomic_files.write(mark(content, path.suffix), path, overwrite=overwrite)


def write_document(blocks: "Iterable[Block]", stem: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a document as Markdown and LaTeX, and as PDF if LaTeX is installed.

    Args:
        blocks: parts of the document.
        stem: path of the files without their endings .md, .tex and .pdf.
        overwrite: whether to replace files with theorykit's mark.

    Returns:
        The paths of the files.

    Raises:
        FileExistsError: a file exists, and `overwrite` is False or the file has no mark.
        ValueError: LaTeX failed. The message has the end of its output.
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
    """Read the result in a netCDF file into memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or is not a netCDF file of version 4.
    """
    path = checked_path("path", path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no result at {path}") from None
    with _opened(path, content), xr.open_datatree(io.BytesIO(content), engine=_ENGINE) as tree:
        return tree.load()


def read_variables(path: Path, names: Collection[str] | None = None) -> dict[str, xr.Variable]:
    """Read all variables of a netCDF file, or only `names`.

    Raises the errors of `read`, and `ValueError` if a name is missing.
    """
    content = path.read_bytes()
    with _opened(path, content), xr.open_dataset(io.BytesIO(content), engine=_ENGINE) as dataset:
        known = sorted(map(str, dataset.variables))
        names = known if names is None else names
        found = {name: dataset.variables[name].load() for name in names if name in known}
    _check_names(path, names, known)
    return found


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """Read all arrays in an npz archive, or only `names`. Raises the errors of `read_variables`."""
    content = path.read_bytes()
    if content.startswith(b"\x93NUMPY"):
        raise ValueError(f"{path} is a single array instead of an npz archive: write it with numpy.savez, under a name")
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
                raise ValueError(f"the array {name!r} is longer than its header states")
    if of_objects is not None:
        raise ValueError(f"the array {of_objects!r} in {path} contains Python objects, not numbers: convert it first")
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

        # Test whether h5py can read an attribute, because h5netcdf prints a traceback for a file without attributes.
        with h5py.File(io.BytesIO(content)) as file:
            file.attrs.get("_nc3_strict")
        yield


@contextmanager
def _readable(path: Path, content: bytes, kind: str) -> Iterator[None]:
    """Convert any error that readers raise for `content` to a `ValueError` that names the file."""
    if atomic_files.is_damaged(content):
        raise ValueError(f"{path} is damaged: its content does not match its checksum; remove it and create it again")
    try:
        yield
    except Exception as error:
        if not content:
            reason = "it is empty"
        elif content.startswith(b"CDF"):
            reason = "it has version 3: convert it, for example with nccopy -k nc4"
        elif not content.startswith((b"\x89HDF\r\n\x1a\n", b"PK")):
            reason = "it does not begin like such files"
        else:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise ValueError(
            f"{path} cannot be read as {kind} ({reason}): it may be damaged, or have another format"
        ) from error


class Output(NamedTuple):
    """A file or folder to be written.

    - `name`: its name in error messages.
    - `path`: its path.
    - `ending`: the required ending, or `FOLDER` for a folder.
    """

    name: str
    path: Path
    ending: str


def check_outputs(outputs: Sequence[Output], inputs: Mapping[str, Path], *, overwrite: bool) -> None:
    """Raise an error unless all `outputs` can be written, and none of them is an input or another output.

    Symbolic links, `..`, hard links and case are resolved. The check writes temporary files and removes them.

    Args:
        outputs: files and folders to be written.
        inputs: paths of input files, by their names in error messages.
        overwrite: whether files with theorykit's mark may be replaced.

    Raises:
        ValueError: an output has a wrong ending, or is an input or another output.
        FileExistsError: a file must not be replaced.
        OSError: a path cannot be written to.
    """
    for name, path in (*inputs.items(), *((output.name, output.path) for output in outputs)):
        if "\0" in str(path):
            raise ValueError(f"{name} has a zero byte in its name {str(path)!r}, which file names cannot have")
    for number, (called, place, ending) in enumerate(outputs):
        if ending == FOLDER and place.suffix in _FILE_ENDINGS:
            raise ValueError(f"{called} is a folder, but {place} ends in {place.suffix} like a file")
        if ending not in (FOLDER, place.suffix):
            raise ValueError(f"{called} must end in {ending}, got {str(place)!r}")
        for name, path in inputs.items():
            # Compare names for files that do not exist. An existing file may have several names.
            if _real(place) == _real(path) or _are_one(place, path):
                raise ValueError(f"{called} would be {place}, which is {name}; choose another output")
            if ending == FOLDER and _real(place) in _real(path).parents:
                raise ValueError(f"{called} would be {place}, which contains {name}, {path}; choose another output")
        for other in outputs[:number]:
            one, another = (str(_real(each)).casefold() for each in (place, other.path))
            if one == another or _are_one(place, other.path):
                raise ValueError(f"{called} and {other.name} would both be {place}; choose another output")
    for called, place, ending in outputs:
        if ending != FOLDER:
            refuse_to_overwrite(place, overwrite)
            _try_file(place)
        elif _is_there(place) and not place.is_dir():
            raise FileExistsError(f"{place} exists and is not a folder, as {called} must be")
        else:
            _try_file(place / "trial")


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _is_there(path: Path) -> bool:
    # Ignore errors for names that are too long, which writing reports.
    with suppress(OSError):
        return path.exists()
    return False


def _are_one(one: Path, other: Path) -> bool:
    return _is_there(one) and _is_there(other) and os.path.samefile(one, other)


def _try_file(path: Path) -> None:
    """Raise `OSError` unless `path` can be written to. Folders that are created for the test are removed."""
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
    """Remove marked files in `folder` and below, and folders that are then empty. Files of the user are kept."""
    for place, _, names in os.walk(folder, topdown=False):
        for path in (Path(place) / name for name in names):
            if path.is_file() and not path.is_symlink() and atomic_files.is_marked(path):
                path.unlink()
        with suppress(OSError):  # The folder still has other files.
            os.rmdir(place)
