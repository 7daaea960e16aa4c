"""Results on disk: one labelled netCDF file per result, whole or not at all, never overwritten unasked."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xarray as xr

from ..symbolic import Block, as_latex, as_markdown

_ENGINE = "h5netcdf"


def refuse_to_overwrite(path: Path, overwrite: bool) -> None:
    """Raise `FileExistsError` if `path` exists, unless told to overwrite it."""
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another output, or say --overwrite to replace it")


def write(result: xr.Dataset | xr.DataTree, path: Path, *, overwrite: bool = False) -> None:
    """Write a labelled result to the netCDF file `path`. A crash in between leaves no half-written file there."""
    with replacing(path, overwrite) as temporary:
        result.to_netcdf(temporary, engine=_ENGINE)


def write_text(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write `text` to `path`, under the same rules."""
    with replacing(path, overwrite) as temporary:
        temporary.write_text(text)


def write_document(blocks: Iterable[Block], stem: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a document as Markdown and LaTeX, `stem`.md and .tex, and as .pdf where there is a LaTeX installation.

    Returns the paths written.
    """
    blocks = list(blocks)
    markdown, source, pdf = (stem.with_suffix(suffix) for suffix in (".md", ".tex", ".pdf"))
    for path in (markdown, source, pdf):
        refuse_to_overwrite(path, overwrite)
    write_text(as_markdown(blocks), markdown, overwrite=overwrite)
    write_text(as_latex(blocks), source, overwrite=overwrite)
    written = [markdown, source]
    if compiler := shutil.which("pdflatex"):
        with tempfile.TemporaryDirectory() as folder:
            command = [compiler, "-interaction=nonstopmode", f"-output-directory={folder}", str(source)]
            finished = subprocess.run(command, capture_output=True, text=True, check=False)
            if finished.returncode != 0:
                raise ValueError(f"{compiler} failed on {source}:\n{finished.stdout[-2000:]}")
            with replacing(pdf, overwrite) as temporary:
                shutil.copy(Path(folder) / pdf.name, temporary)
            written.append(pdf)
    return written


@contextmanager
def replacing(path: Path, overwrite: bool) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place when the block has succeeded.

    A crash in between leaves what was there before.
    """
    refuse_to_overwrite(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Have the file's content on disk before its name: also after a power failure the name is that of a whole file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def read(path: Path) -> xr.DataTree:
    """The result in the netCDF file `path`, loaded into memory."""
    if not path.exists():
        raise FileNotFoundError(f"no result at {path}")
    with xr.open_datatree(path, engine=_ENGINE) as tree:
        return tree.load()
