"""What a stopped run goes on from: kept with the settings that it belongs to, refused for others or where damaged.

A run is known by its settings, text by name: which computation it is, the computation's version, and a description of
every value that its numbers depend on. The version is a whole number beside the code that computes; it is raised
whenever that code comes to make other numbers of the same values.

A kept file ends with the sum of all that stands before, so that no file is taken for what it is not: one that has been
cut or changed, or that another program wrote, is refused, and never replaced.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from .. import atomic_files
from ..annotations import checked_arguments
from ..arguments import checked_instance, checked_whole_number
from .description import UNKNOWN, describe
from .files import read, write

_SETTINGS = "settings"
# of descriptions themselves: runs that were described otherwise cannot be compared
_DESCRIPTION = {"description": "1"}
# how many differences an error message names
_NAMED = 5
# the longest text that a netCDF attribute takes, or somewhat less
_LONGEST = 30_000


@checked_arguments
def settings_of(computation: str, version: int, **arguments: Any) -> dict[str, str]:
    """The settings of a run: the name and version of its computation, and a description of every one of `arguments`.

    See `describe` for what is the same and what is not. A run whose arguments have a part that cannot be described,
    such as a lambda, has settings too, but is refused by all that keeps or reads what a run goes on from.
    """
    checked_whole_number("version", version, least=1)
    return {**_DESCRIPTION, "computation": computation, "version": str(version), **describe(**arguments)}


@checked_arguments
def as_text(settings: Mapping[str, str]) -> str:
    """Settings as one text, the same for the same settings."""
    return json.dumps(settings, sort_keys=True, ensure_ascii=False)


@checked_arguments
def differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """What differs between two descriptions, leaf by leaf, in the order of those of now."""
    names = [*here, *(name for name in there if name not in here)]
    return [
        f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} now"
        for name in names
        if there.get(name) != here.get(name)
    ]


@checked_arguments
def refuse_difference(path: Path, kind: str, there: Mapping[str, str], here: Mapping[str, str]) -> None:
    """Raise `FileExistsError` unless the settings of what is in `path`, which is of a `kind`, are those of `here`."""
    refuse_unknown(here)
    remedy = "Choose another folder, or remove this one if it is no longer wanted"
    for name, value in _DESCRIPTION.items():
        if name in here and there.get(name) != value:
            raise FileExistsError(
                f"{path} holds a {kind} of another version of theorykit, which described runs otherwise. {remedy}"
            )
    found = differences(there, here)
    if found:
        more = [f"and {len(found) - _NAMED} more"] if len(found) > _NAMED else []
        named = "; ".join([*found[:_NAMED], *more])
        raise FileExistsError(f"{path} holds another {kind}, which differs in {named}. {remedy}")


@checked_arguments
def refuse_unknown(settings: Mapping[str, str]) -> None:
    """Raise `ValueError` where settings have a part that cannot be told from another, naming it."""
    for name, value in settings.items():
        if value.startswith(UNKNOWN):
            raise ValueError(
                f"{name} is {value.removeprefix(UNKNOWN)}, by which a run cannot be known again: give a function or a "
                "class that a module defines by name, or no folder"
            )


@checked_arguments
def resumed(path: Path, settings: Mapping[str, str] | str, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
    """The dataset in `path` if it was computed with the same `settings`; otherwise computed, and left there.

    `settings` are all that determines the result, or a text that does; they are kept in the attribute of that name.
    Raises `ValueError` where `path` is not such a dataset, or is damaged.
    """
    found = kept(path, settings)
    if found is not None:
        return found
    keep(checked_instance("what compute returns", compute(), xr.Dataset), settings, path)
    return read_kept(path)


@checked_arguments
def kept(path: Path, settings: Mapping[str, str] | str) -> xr.Dataset | None:
    """The dataset in `path`, or None where there is none, or one of other `settings`. Errors are those of `resumed`."""
    if isinstance(settings, Mapping):
        refuse_unknown(settings)
    if not path.exists():
        return None
    found = read_kept(path)
    return found if found.attrs.get(_SETTINGS) == _attribute(settings) else None


@checked_arguments
def keep(dataset: xr.Dataset, settings: Mapping[str, str] | str, path: Path) -> None:
    """Write a dataset that a run goes on from, with its `settings` as an attribute, in the place of one there."""
    write(dataset.assign_attrs({_SETTINGS: _attribute(settings)}), path, overwrite=True)


@checked_arguments
def read_kept(path: Path) -> xr.Dataset:
    """The dataset that `keep` left in `path`; `ValueError` where it is another file, or damaged."""
    _whole_content(path, "a part of a run")
    return read(path).to_dataset()


def _attribute(settings: Mapping[str, str] | str) -> str:
    text = settings if isinstance(settings, str) else as_text(settings)
    return text if len(text) <= _LONGEST else f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


@checked_arguments
def write_arrays(arrays: Mapping[str, Any], settings: Mapping[str, str], path: Path) -> None:
    """Keep `arrays` and numbers, which a run of these `settings` goes on from, in the npz file `path`.

    A file of the same kind that was there is replaced.
    """
    refuse_unknown(settings)
    content = atomic_files.npz({_SETTINGS: np.array(as_text(settings)), **arrays})
    atomic_files.write(content, path, overwrite=True)


@checked_arguments
def read_arrays(path: Path, kind: str, settings: Mapping[str, str]) -> dict[str, np.ndarray] | None:
    """What `write_arrays` left in `path`, or None where there is no file. `kind` says in messages what run it is of.

    Raises `FileExistsError` where it belongs to other `settings`, saying what differs, and `ValueError` where it is no
    such file, or damaged.
    """
    refuse_unknown(settings)
    if not path.exists():
        return None
    content = _whole_content(path, f"a checkpoint of a {kind}")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    refuse_difference(path, kind, json.loads(str(arrays.pop(_SETTINGS))), settings)
    return arrays


def _whole_content(path: Path, kind: str) -> bytes:
    """What is in `path`; `ValueError` unless it ends with the sum of what stands before."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} is not {kind}, or cannot be read ({error.strerror}): remove it") from error
    if not atomic_files.is_whole(content):
        raise ValueError(
            f"{path} is not {kind} that this version of theorykit wrote, or it is damaged: remove it, or choose "
            "another folder"
        )
    return content
