"""What a stopped run goes on from: kept with the settings that it belongs to, and refused for others."""

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from .. import atomic_files
from .files import read, write

_SETTINGS = "settings"


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
    content = atomic_files.npz({_SETTINGS: np.array(json.dumps(settings)), **arrays})
    atomic_files.write(content, path, overwrite=True)


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
