"""Long runs: parallel tasks, progress, and folders from which a run resumes."""

from __future__ import annotations

import copyreg
import dataclasses
import io
import json
import os
import pickle
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sympy import Basic
from tqdm.auto import tqdm

from ._compat import Lazy
from ._jit import usual_settings

# Every solve imports this module, and few runs need these.
joblib, xr = Lazy("joblib", "parallel runs"), Lazy("xarray", "datasets")

# Seconds before progress is shown.
_DELAY = 1.0


def bar(work: str, total: int | None, unit: str, *, shown: bool = True, done: int = 0) -> tqdm:
    """Return a progress bar, a context, which appears after a second."""
    return tqdm(desc=work, total=total, unit=f" {unit}", initial=done, disable=not shown, delay=_DELAY)


@contextmanager
def stage(work: str, *, shown: bool = True) -> Iterator[None]:
    """Name work on standard error that takes longer than a second."""
    timer = threading.Timer(_DELAY, tqdm.write, [f"{work} ..."], {"file": sys.stderr})
    timer.daemon = True
    if shown:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def in_parallel(function: Callable[..., Any], tasks: Sequence[tuple], n_jobs: int = 1) -> Iterator[tuple[int, Any]]:
    """Yield the number of every task and `function(*task)`, in the order of completion.

    Tasks run in `n_jobs` processes, or on the backend of `joblib.parallel_config`. One
    job is this process. The first error ends the run.
    """
    if joblib.effective_n_jobs(n_jobs) == 1:
        for number, task in enumerate(tasks):
            with usual_settings():
                result = function(*task)
            yield number, result
        return
    call, parent = _pickled(function), os.getpid()
    jobs = (joblib.delayed(_work)(parent, number, call, _pickled(task)) for number, task in enumerate(tasks))
    yield from joblib.Parallel(n_jobs, batch_size=1, return_as="generator_unordered")(jobs)


def _work(parent: int, number: int, function: bytes, task: bytes) -> tuple[int, Any]:
    if os.getppid() == parent:
        _end_with(parent)
    # Arrays that are unpickled before lose half of their digits.
    jax.config.update("jax_enable_x64", True)
    with usual_settings():
        return number, _unpickled(function)(*pickle.loads(task))


@cache
def _end_with(parent: int) -> None:
    """End this process when its parent was killed, which joblib does not notice."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# Tasks of one run share its functions, and with them their compiled code.
_unpickled = lru_cache(maxsize=1)(pickle.loads)


def _pickled(value: Any) -> bytes:
    content = io.BytesIO()
    _Pickler(content).dump(value)
    return content.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Pickle functions and classes of a script, also Equinox modules, by their code."""

    def reducer_override(self, value: Any) -> Any:
        if value is dataclasses.MISSING:
            return "MISSING"
        if isinstance(value, type) and type(value) in copyreg.dispatch_table:
            return copyreg.dispatch_table[type(value)](value)
        reduced = super().reducer_override(value)
        if isinstance(value, type(eqx.Module)) and isinstance(reduced, tuple):
            # Equinox needs the fields when it makes a class, but cloudpickle sets attributes later.
            own, fields = vars(value).get("__annotations__", {}), value.__dataclass_fields__
            namespace = reduced[1][3]
            namespace |= {name: fields[name] for name in own if name in fields}
            namespace["__annotations__"] = own
        return reduced


def write(content: str | bytes | memoryview, path: Path, *, overwrite: bool = False) -> None:
    """Write a file as a whole or not at all."""
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; choose another output, or pass overwrite=True (--overwrite)")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # Name the user's file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class Folder:
    """Finished pieces of one run, each in a file with its settings; nothing is kept without a `path`."""

    path: Path | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, path: Path | str | None, computation: str, version: int, **values: Any) -> "Folder":
        """Open the folder of a run, which is identified by its computation and values.

        Increase `version` if the computation returns other numbers for the same values.
        Raises `FileExistsError` for pieces of another run, and `ValueError` for a value
        that cannot identify a run, such as a lambda.
        """
        if path is None:
            return cls()
        # Workers may run in another directory.
        path, settings = Path(path).absolute(), {"computation": computation, "version": version}
        for name, value in values.items():
            settings |= _described(name, value)
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path, settings)
        for other in sorted(path.glob("*.npz"))[:1]:
            folder.read(other.stem)
        return folder

    def read(self, piece: str) -> xr.Dataset | None:
        """Return a finished piece, or None. Raises `ValueError` if its file is damaged."""
        path = self.path and self.path / f"{piece}.npz"
        if path is None or not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                # A zip archive has the CRC-32 of every array.
                arrays = [file[f"arr_{number}"] for number in range(len(about["variables"]))]
        except Exception as error:  # Each reader raises its own errors.
            raise ValueError(f"{path} is damaged or not a piece of a run: remove it to compute it again") from error
        there, here = about["settings"], {**self.settings, "piece": piece}
        if differing := [name for name in {**there, **here} if there.get(name) != here.get(name)]:
            raise FileExistsError(
                f"{self.path} has another run, which differs in {', '.join(differing[:5])}: choose another folder"
            )
        variables = zip(about["variables"].items(), arrays, strict=True)
        found = xr.Dataset({name: (dims, array, attrs) for (name, (dims, attrs)), array in variables})
        return found.set_coords(about["coords"]).assign_attrs(about["attrs"])

    def write(self, piece: str, dataset: xr.Dataset) -> None:
        """Keep a finished piece."""
        if self.path is None:
            return
        variables = {str(name): each for name, each in dataset.variables.items()}
        about = {
            "settings": {**self.settings, "piece": piece},
            "variables": {name: (each.dims, each.attrs) for name, each in variables.items()},
            "coords": list(dataset.coords),
            "attrs": dataset.attrs,
        }
        arrays = [each.values.astype(str) if each.dtype == object else each.values for each in variables.values()]
        content = io.BytesIO()
        np.savez(content, *arrays, about=np.array(json.dumps(about, default=lambda each: each.tolist())))
        write(content.getvalue(), self.path / f"{piece}.npz", overwrite=True)


def _described(name: str, value: Any) -> dict[str, Any]:
    """Return JSON values that are equal if the parts of `value` are, by name."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = (str(jax.random.key_impl(value)), jax.random.key_data(value))
    if value is None or isinstance(value, (str, bool, int, float)):
        return {name: value}
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        array = np.ascontiguousarray(value)
        return {name: array.item() if np.ndim(value) == 0 else joblib.hash(array)}
    if isinstance(value, (tuple, list, Mapping)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        parts, kind = {f"[{key}]": each for key, each in items}, len(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {f".{field.name}": getattr(value, field.name) for field in dataclasses.fields(value)}
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
    else:
        # Equal expressions have different hashes if one repeats an object that the other copies.
        is_compound = isinstance(value, Basic) and value.args
        parts = {f".args[{number}]": each for number, each in enumerate(value.args)} if is_compound else {}
        try:
            kind = joblib.hash(type(value) if is_compound else value)
        except Exception as error:  # Any error of a type's own pickling.
            raise ValueError(f"{name} cannot identify a run: use what a module defines, or no folder") from error
    found = {name: kind}
    for place, part in parts.items():
        found |= _described(f"{name}{place}", part)
    return found


def tree_dataset(tree: Any) -> xr.Dataset:
    """Return the leaves of a tree of arrays as variables."""
    leaves = {f"leaf {number}": np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(tree))}
    return xr.Dataset({name: ([f"{name}.{axis}" for axis in range(leaf.ndim)], leaf) for name, leaf in leaves.items()})


def tree_from(dataset: xr.Dataset, like: Any) -> Any:
    """Return the tree of `tree_dataset`, with the structure of `like`."""
    structure = jax.tree.structure(like)
    leaves = [jnp.asarray(dataset[f"leaf {number}"].values) for number in range(structure.num_leaves)]
    return jax.tree.unflatten(structure, leaves)
