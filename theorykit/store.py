"""Results on disk: one labelled netCDF file per result, whole or not at all, never overwritten unasked."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import xarray as xr

_ENGINE = "h5netcdf"


def refuse_to_overwrite(path: Path, overwrite: bool) -> None:
    """Raise `FileExistsError` if `path` exists, unless told to overwrite it."""
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another output, or say --overwrite to replace it")


def write(result: xr.Dataset | xr.DataTree, path: Path, *, overwrite: bool = False) -> None:
    """Write a labelled result to the netCDF file `path`. A crash in between leaves no half-written file there."""
    with _replacing(path, overwrite) as temporary:
        result.to_netcdf(temporary, engine=_ENGINE)


def write_text(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write `text` to `path`, under the same rules."""
    with _replacing(path, overwrite) as temporary:
        temporary.write_text(text)


@contextmanager
def _replacing(path: Path, overwrite: bool) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its place when the block has succeeded."""
    refuse_to_overwrite(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


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
