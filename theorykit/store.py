"""Results on disk: one labelled netCDF file per result, whole or not at all, never overwritten unasked.

What a stopped run goes on from is kept with the settings that it belongs to, and refused for others.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from .symbolic import Block, as_latex, as_markdown

_ENGINE = "h5netcdf"
_SETTINGS = "settings"


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


def resumed(path: Path, settings: str, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
    """The dataset in `path` if it was computed with the same `settings`; otherwise computed, and left there.

    `settings` is any text that determines the result; it is kept in the attribute of that name.
    """
    if path.exists():
        found = read(path).to_dataset()
        if found.attrs.get("settings") == settings:
            return found
    result = compute().assign_attrs(settings=settings)
    write(result, path, overwrite=True)
    return result


def write_arrays(arrays: Mapping[str, Any], settings: Mapping[str, str], path: Path) -> None:
    """Keep `arrays` and numbers, which a run of these `settings` goes on from, in the npz file `path`.

    A file that was there is replaced.
    """
    with replacing(path, overwrite=True) as temporary, temporary.open("wb") as file:
        np.savez(file, **{_SETTINGS: np.array(json.dumps(settings))}, **arrays)


def read_arrays(path: Path, kind: str, settings: Mapping[str, str]) -> dict[str, np.ndarray] | None:
    """What `write_arrays` left in `path`, or None where there is no file. `kind` says in messages what run it is of.

    Raises `FileExistsError` where it belongs to other `settings`, saying what differs, and `ValueError` where it is no
    such file.
    """
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        there = json.loads(str(arrays.pop(_SETTINGS)))
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a checkpoint of a {kind}: {error}") from error
    refuse_difference(path, kind, there, settings)
    return arrays


def fingerprint(values) -> str:
    """A number, or an array by its shape and a hash of its numbers."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if np.ndim(values) == 0:
        return repr(float(values))
    return f"{np.shape(values)} sha256 {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def fingerprints(tree: Any) -> str:
    """Every leaf of a JAX pytree, by its `fingerprint`."""
    return "; ".join(fingerprint(leaf) for leaf in jax.tree.leaves(tree))


def key_text(key: PRNGKeyArray) -> str:
    """A random key as text."""
    return " ".join(map(str, np.asarray(jax.random.key_data(key)).ravel()))


def refuse_difference(path: Path, kind: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raise `FileExistsError` unless the settings of what is in `path`, which is of a `kind`, are those of `here`."""
    names = sorted(set(there) | set(here))
    differences = [
        f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} now"
        for name in names
        if there.get(name) != here.get(name)
    ]
    if differences:
        raise FileExistsError(
            f"{path} holds another {kind}, which differs in {'; '.join(differences)}. Choose another folder, or remove "
            "this one if it is no longer wanted"
        )
