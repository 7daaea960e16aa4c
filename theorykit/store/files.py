"""Results on disk: one labelled netCDF file per result, whole or not at all, never overwritten unasked."""

import io
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import xarray as xr

from .. import atomic_files
from ..atomic_files import marked, refuse_to_overwrite, replacing
from ..symbolic import Block, as_latex, as_markdown

__all__ = ["read", "refuse_to_overwrite", "replacing", "write", "write_document", "write_source", "write_text"]

_ENGINE = "h5netcdf"


def write(result: xr.Dataset | xr.DataTree, path: Path, *, overwrite: bool = False) -> None:
    """Write a labelled result to the netCDF file `path`. A crash in between leaves no half-written file there.

    Takes as much memory as the file is long: HDF5 must never meet a full disk, after which it kills the process.
    """
    refuse_to_overwrite(path, overwrite)
    content = result.to_netcdf(engine=_ENGINE)
    atomic_files.write(atomic_files.with_sum(content), path, overwrite=overwrite)


def write_text(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write `text` to `path`, in UTF-8, under the same rules; what has no mark, as `write_source` gives, stays."""
    atomic_files.write(text.encode(), path, overwrite=overwrite)


def write_source(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write Markdown, LaTeX or Python to `path`, which ends in .md, .tex or .py, with the mark as a comment."""
    atomic_files.write(marked(text.encode(), path.suffix), path, overwrite=overwrite)


def write_document(blocks: Iterable[Block], stem: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a document as Markdown and LaTeX, `stem`.md and .tex, and as .pdf where there is a LaTeX installation.

    Returns the paths written.
    """
    blocks = list(blocks)
    markdown, source, pdf = (stem.with_suffix(suffix) for suffix in (".md", ".tex", ".pdf"))
    for path in (markdown, source, pdf):
        refuse_to_overwrite(path, overwrite)
    write_source(as_markdown(blocks), markdown, overwrite=overwrite)
    write_source(as_latex(blocks), source, overwrite=overwrite)
    written = [markdown, source]
    if compiler := shutil.which("pdflatex"):
        with tempfile.TemporaryDirectory() as folder:
            command = [compiler, "-interaction=nonstopmode", f"-output-directory={folder}", str(source)]
            finished = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if finished.returncode != 0:
                raise ValueError(f"{compiler} failed on {source}:\n{finished.stdout[-2000:]}")
            content = (Path(folder) / pdf.name).read_bytes()
        content = marked(content, ".pdf") if content.startswith(b"%PDF") else content
        atomic_files.write(content, pdf, overwrite=overwrite)
        written.append(pdf)
    return written


def read(path: Path) -> xr.DataTree:
    """The result in the netCDF file `path`, loaded into memory.

    Raises `FileNotFoundError` where there is none, and `ValueError`, which names the file, for one that is damaged or
    no netCDF file of version 4.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"no result at {path}") from None
    if atomic_files.is_damaged(content):
        raise ValueError(f"{path} is damaged: its content is not what its checksum is of; remove it, and make it anew")
    try:
        with xr.open_datatree(io.BytesIO(content), engine=_ENGINE) as tree:
            return tree.load()
    # whatever HDF5 and the readers above it stumble over in content that is not theirs
    except Exception as error:
        reason = _reason(content) or f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise ValueError(
            f"{path} cannot be read as netCDF, version 4 ({reason}): is it damaged, or another file?"
        ) from error


def _reason(content: bytes) -> str:
    """What is wrong with `content`, if its first bytes tell."""
    if not content:
        return "it is empty"
    if content.startswith(b"CDF"):
        return "it is of version 3: convert it, as with nccopy -k nc4"
    return "" if content.startswith(b"\x89HDF\r\n\x1a\n") else "it does not begin as such files do"
