"""Keep and read checkpoints from which a stopped run resumes, together with its settings.

A run is identified by its settings, a mapping from names to text. They contain the computation, its version, and a
description of every value that the results depend on. The version is an integer next to the code of the computation.
Increase it whenever that code returns different numbers for the same values.

A checkpoint with the same settings is used. A checkpoint with other settings raises an error that lists the
differences. A kept file ends with its checksum, so truncated and modified files also raise an error.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from .. import atomic_files
from .._compat import needed, require_float64
from ..checks import shown
from ..workers import Workers, run_tasks
from .description import UNKNOWN, describe
from .files import read, write

Settings = Mapping[str, str]
_SETTINGS = "settings"
# Version of the format of descriptions. Descriptions of different versions cannot be compared.
_DESCRIPTION = {"description": "1"}
# Seconds between two checkpoints of a long computation.
CHECKPOINT_SECONDS = 20.0
# Largest number of differences in an error message.
_NAMED = 5
# Name of the variable that contains the settings of a run.
_VARIABLE = "settings of the run"


def settings_of(computation: str, version: int, **arguments: Any) -> dict[str, str]:
    """Return the settings of a run, which are the computation, its version, and descriptions of all `arguments`."""
    return {**_DESCRIPTION, "computation": computation, "version": str(version), **describe(**arguments)}


def as_text(settings: Settings) -> str:
    """Return settings as JSON text."""
    return json.dumps(settings, sort_keys=True, ensure_ascii=False)


def fingerprint(settings: Settings) -> str:
    """Return a hash of the settings with eight characters, for file names."""
    return hashlib.sha256(as_text(settings).encode()).hexdigest()[:8]


def differences(there: Settings, here: Settings) -> list[str]:
    """List the differences between two descriptions, leaf by leaf, in the order of the current one."""
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    return [f"{name}: {there.get(name, 'none')} there, {here.get(name, 'none')} now" for name in names]


def refuse_unknown(settings: Settings) -> None:
    """Raise `ValueError`, with its name, if a part of the settings cannot be described."""
    for name, value in settings.items():
        if value.startswith(UNKNOWN):
            raise ValueError(
                f"{name} is {value.removeprefix(UNKNOWN)}, which cannot identify a run: pass something that a module "
                "defines by name, or no folder"
            )


def resume(path: Path, settings: Settings, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
    """Return the dataset in `path`, or keep and return the result of `compute` if there is no such file."""
    if (found := read_kept(path, settings)) is not None:
        return found
    keep(compute(), settings, path)
    return read_kept(path, settings)


def resume_tasks(
    executor: Workers,
    compute: Callable[..., xr.Dataset],
    tasks: Sequence[tuple],
    places: Sequence[tuple[Path, Settings] | None],
    common: tuple = (),
) -> Iterator[tuple[int, xr.Dataset]]:
    """Yield the number and dataset of every task, first kept ones and then results of `run_tasks` as they complete.

    `places` has the path and settings under which each task is kept, or None for a task that is not kept.
    """
    kept = [None if place is None else read_kept(*place) for place in places]
    yield from ((number, found) for number, found in enumerate(kept) if found is not None)
    missing = [number for number, found in enumerate(kept) if found is None]
    for task, result in run_tasks(executor, compute, [tasks[number] for number in missing], common):
        place = places[missing[task]]
        yield missing[task], result if place is None else resume(*place, lambda result=result: result)


def keep(dataset: xr.Dataset, settings: Settings, path: Path) -> None:
    """Write a dataset from which a run with these `settings` resumes."""
    refuse_unknown(settings)
    # Use a variable, because attributes of netCDF files are limited to 64 kB.
    write(dataset.assign({_VARIABLE: as_text(settings)}), path, overwrite=True)


def read_kept(path: Path, settings: Settings) -> xr.Dataset | None:
    """Read the dataset that `keep` wrote to `path`, or None if there is no file.

    Raises `FileExistsError` if the file has other `settings`, and `ValueError` if it is damaged or of another kind.
    """
    refuse_unknown(settings)
    # Raise this error before the computation, whose result could not be kept.
    needed("h5netcdf", "keeping a run in a folder")
    if _is_missing(path):
        return None
    _whole_content(path, "a part of a run")
    found = read(path).to_dataset()
    if _VARIABLE not in found:
        raise ValueError(f"{path} is another result instead of a part of a run: remove it, or choose another folder")
    _refuse_difference(path, settings.get("computation", "run"), json.loads(found[_VARIABLE].item()), settings)
    return found.drop_vars(_VARIABLE)


def leaf_arrays(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a JAX pytree as arrays by name, for `write_arrays`."""
    return {f"leaf {number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(tree))}


def tree_like(tree: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Rebuild the pytree from `leaf_arrays`, with the structure of `tree`. Raises `ValueError` if shapes differ."""
    require_float64()
    leaves, structure = jax.tree.flatten(tree)
    names = (f"leaf {number}" for number in range(len(leaves)))
    kept = [jnp.asarray(arrays[name]) for name in names if name in arrays]
    if len(kept) < len(leaves):
        raise ValueError(f"arrays must have the {len(leaves)} leaves of the tree, but have fewer")
    for number, (leaf, one) in enumerate(zip(leaves, kept, strict=True)):
        if (one.shape, one.dtype) != (jnp.shape(leaf), jnp.result_type(leaf)):
            raise ValueError(f"leaf {number} of arrays is {shown(one)}, but that of tree is {shown(jnp.asarray(leaf))}")
    return jax.tree.unflatten(structure, kept)


def write_arrays(arrays: Mapping[str, Any], settings: Settings, path: Path) -> None:
    """Write arrays and numbers, from which a run with these `settings` resumes, to the npz file `path`."""
    refuse_unknown(settings)
    content = atomic_files.npz({_SETTINGS: np.array(as_text(settings)), **arrays})
    atomic_files.write(content, path, overwrite=True)


def read_arrays(path: Path, kind: str, settings: Settings) -> dict[str, np.ndarray] | None:
    """Read the arrays that `write_arrays` wrote to `path`, or return None if there is no file.

    Raises the errors of `read_kept`, in which the run is called `kind`.
    """
    refuse_unknown(settings)
    if _is_missing(path):
        return None
    content = _whole_content(path, f"a checkpoint of a {kind}")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    _refuse_difference(path, kind, json.loads(str(arrays.pop(_SETTINGS))), settings)
    return arrays


def _is_missing(path: Path) -> bool:
    """Check whether there is no file. Raises `FileExistsError` if the run could not be kept there either."""
    if path.exists():
        return False
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir():
        raise FileExistsError(f"{there} is a file, but a run keeps its parts in a folder of this name: remove the file")
    return True


def _whole_content(path: Path, kind: str) -> bytes:
    """Return the content of `path`. Raises `ValueError` unless it ends with the checksum of the preceding bytes."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} is not {kind}, or cannot be read ({error.strerror}): remove it") from error
    if not atomic_files.is_whole(content):
        raise ValueError(f"{path} is not {kind} from theorykit, or is damaged: remove it, or choose another folder")
    return content


def _refuse_difference(path: Path, kind: str, there: Settings, here: Settings) -> None:
    """Raise `FileExistsError` unless the settings `there`, from `path`, equal `here`."""
    remedy = "Choose another folder, or remove this one if it is no longer wanted"
    if any(name in here and there.get(name) != value for name, value in _DESCRIPTION.items()):
        raise FileExistsError(f"{path} holds a {kind} of another version of theorykit. {remedy}")
    if found := differences(there, here):
        more = [f"and {len(found) - _NAMED} more"] if len(found) > _NAMED else []
        named = "; ".join([*found[:_NAMED], *more])
        raise FileExistsError(f"{path} holds another {kind}, which differs in {named}. {remedy}")
