"""Results on disk: one labelled netCDF file per result, whole or not at all, never overwritten unasked."""

import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from .. import atomic_files
from ..atomic_files import mark, refuse_to_overwrite, replacing
from ..checks import checked_flag, checked_instance, checked_path, checked_sequence
from ..symbolic import Block, as_latex, as_markdown

__all__ = ["read", "refuse_to_overwrite", "replacing", "write", "write_document", "write_source", "write_text"]

_ENGINE = "h5netcdf"
_SOURCES = (".md", ".tex", ".html", ".py")


def write(result: xr.Dataset | xr.DataTree, path: Path, *, overwrite: bool = False) -> None:
    """Write a labelled result to the netCDF file `path`. A crash in between leaves no half-written file there.

    Takes as much memory as the file is long: HDF5 must never meet a full disk, after which it kills the process.
    """
    checked_instance("result", result, (xr.Dataset, xr.DataTree))
    path = checked_path("path", path)
    refuse_to_overwrite(path, overwrite)
    with _no_locks_of_a_cluster():
        content = atomic_files.with_sum(result.to_netcdf(engine=_ENGINE))
    atomic_files.write(content, path, overwrite=overwrite)


def write_text(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write `text` to `path`, in UTF-8, under the same rules; what has no mark, as `write_source` gives, stays."""
    content = checked_instance("text", text, str).encode()
    atomic_files.write(content, path, overwrite=overwrite)


def write_source(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write Markdown, LaTeX, HTML or Python to `path`, which ends in .md, .tex, .html or .py, its mark a comment."""
    content, path = checked_instance("text", text, str).encode(), checked_path("path", path)
    if path.suffix not in _SOURCES:
        raise ValueError(f"path must end in one of {', '.join(_SOURCES)}, got {str(path)!r}")
    atomic_files.write(mark(content, path.suffix), path, overwrite=overwrite)


def write_document(blocks: Iterable[Block], stem: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a document as Markdown and LaTeX, `stem`.md and .tex, and as .pdf where there is a LaTeX installation.

    Returns the paths written.
    """
    blocks, stem = checked_sequence("blocks", blocks, "parts of a document"), checked_path("stem", stem)
    checked_flag("overwrite", overwrite)
    contents = (as_markdown(blocks), as_latex(blocks))
    markdown, source, pdf = (stem.with_suffix(suffix) for suffix in (".md", ".tex", ".pdf"))
    for path in (markdown, source, pdf):
        refuse_to_overwrite(path, overwrite)
    write_source(contents[0], markdown, overwrite=overwrite)
    write_source(contents[1], source, overwrite=overwrite)
    written = [markdown, source]
    if compiler := shutil.which("pdflatex"):
        with tempfile.TemporaryDirectory() as folder:
            command = [compiler, "-interaction=nonstopmode", f"-output-directory={folder}", str(source)]
            finished = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if finished.returncode != 0:
                raise ValueError(f"{compiler} failed on {source}:\n{finished.stdout[-2000:]}")
            content = (Path(folder) / pdf.name).read_bytes()
        content = mark(content, ".pdf") if content.startswith(b"%PDF") else content
        atomic_files.write(content, pdf, overwrite=overwrite)
        written.append(pdf)
    return written


def read(path: Path) -> xr.DataTree:
    """The result in the netCDF file `path`, loaded into memory.

    Raises `FileNotFoundError` where there is none, and `ValueError`, which names the file, for one that is damaged or
    no netCDF file of version 4.
    """
    path = checked_path("path", path)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"no result at {path}") from None
    with _readable(path, content):
        _check_opens(content)
        with xr.open_datatree(io.BytesIO(content), engine=_ENGINE) as tree:
            return tree.load()


def read_variables(path: Path, names: Collection[str]) -> dict[str, xr.Variable]:
    """The variables of these `names` in the netCDF file `path`; raises as `read`, or `ValueError` for a missing one."""
    content = path.read_bytes()
    with _readable(path, content):
        _check_opens(content)
        with xr.open_dataset(io.BytesIO(content), engine=_ENGINE) as dataset:
            known = sorted(map(str, dataset.variables))
            found = {name: dataset.variables[name].load() for name in names if name in known}
    _check_names(path, names, known)
    return found


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of these `names`, or all, in the npz archive `path`.

    Raises `ValueError`, which names the file and the array, where one is missing, damaged, or of Python objects.
    """
    content = path.read_bytes()
    if content.startswith(b"\x93NUMPY"):
        raise ValueError(f"{path} is a single array, not an npz archive: write it by numpy.savez, under a name")
    with _readable(path, content, "an npz archive"), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist()}
        wanted = members if names is None else [name for name in names if name in members]
        # read whole, by which the archive's checksums are compared
        found = {name: _array(archive.read(members[name]), name, path) for name in wanted}
    _check_names(path, wanted if names is None else names, sorted(members))
    return found


def _array(content: bytes, name: str, path: Path) -> np.ndarray:
    stream = io.BytesIO(content)
    try:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise _Refused(f"the array {name!r} in {path} is of Python objects, not of numbers: convert it first") from None
    if stream.read(1):
        raise ValueError(f"the array {name!r} is longer than its header says")
    return array


def _check_opens(content: bytes) -> None:
    # h5netcdf prints a traceback of its own when it gives up a file of which it cannot read that much
    with h5py.File(io.BytesIO(content)) as file:
        file.attrs.get("_nc3_strict")


class _Refused(ValueError):
    """What is wrong with a file, said already."""


def _check_names(path: Path, names: Iterable[str], known: Sequence[str]) -> None:
    if missing := [name for name in names if name not in known]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it has {', '.join(known) or 'none'}")


@contextmanager
def _no_locks_of_a_cluster() -> Iterator[None]:
    """Within it xarray asks no dask cluster, of which this process is a client or a worker, for locks of its files.

    They are in the memory of this process, and clusters know no such files.
    """
    if "dask" not in sys.modules:
        yield
        return
    import dask

    with dask.config.set(scheduler="threads"):
        yield


@contextmanager
def _readable(path: Path, content: bytes, kind: str = "a netCDF file of version 4") -> Iterator[None]:
    """Within it, whatever readers stumble over in `content` becomes a `ValueError` that names the file."""
    if atomic_files.is_damaged(content):
        raise ValueError(f"{path} is damaged: its content is not what its checksum is of; remove it, and make it anew")
    try:
        yield
    except _Refused:
        raise
    except Exception as error:
        reason = _reason(content) or f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise ValueError(f"{path} cannot be read as {kind} ({reason}): is it damaged, or another file?") from error


def _reason(content: bytes) -> str:
    """What is wrong with `content`, if its first bytes tell."""
    if not content:
        return "it is empty"
    if content.startswith(b"CDF"):
        return "it is of version 3: convert it, as with nccopy -k nc4"
    return "" if content.startswith((b"\x89HDF\r\n\x1a\n", b"PK")) else "it does not begin as such files do"
