"""Long runs: parallel tasks, progress, and folders from which a run resumes."""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import gzip
import io
import json
import os
import pickle
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle
import equinox as eqx
import jax
import joblib
import xarray as xr
from tqdm import tqdm

from ._jit import digest, usual_settings


def bar(work: str, total: int | None, unit: str, *, shown: bool = True, done: int = 0) -> tqdm:
    """Return a progress bar that appears after a second. It is a context manager."""
    return tqdm(desc=work, total=total, unit=f" {unit}", initial=done, disable=not shown, delay=1.0)


def in_parallel(function: Callable[..., Any], tasks: Sequence[tuple], n_jobs: int = 1) -> Iterator[tuple[int, Any]]:
    """Yield the number of every task and `function(*task)`, in the order of completion.

    Tasks run in `n_jobs` processes, or on the backend of `joblib.parallel_config`. One
    job is this process. The first error ends the run.
    """
    if n_jobs == 0 or isinstance(n_jobs, (str, float)):
        raise ValueError(f"n_jobs must be a number of processes, or -1 for all cores, got {n_jobs!r}")
    if joblib.effective_n_jobs(n_jobs) == 1:
        for number, task in enumerate(tasks):
            with usual_settings():
                result = function(*task)
            yield number, result
        return
    call = _pickled(function)
    jobs = (joblib.delayed(_work)(number, call, _pickled(task)) for number, task in enumerate(tasks))
    yield from joblib.Parallel(n_jobs, return_as="generator_unordered")(jobs)


def _work(number: int, function: bytes, task: bytes) -> tuple[int, Any]:
    # Arrays that are unpickled before lose half of their digits.
    jax.config.update("jax_enable_x64", True)
    with usual_settings():
        return number, _unpickled(function)(*pickle.loads(task))


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
            parts = {name: value}
            if dataclasses.is_dataclass(value):
                parts = {f"{name}.{field.name}": getattr(value, field.name) for field in dataclasses.fields(value)}
            for part, each in parts.items():
                try:
                    settings[part] = each if isinstance(each, (str, bool, int, float)) else digest(each)
                except pickle.PicklingError as error:
                    raise ValueError(f"{part} cannot identify a run: use what a module defines") from error
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path, settings)
        for other in sorted(path.glob("*.nc.gz"))[:1]:
            folder.read(other.name.removesuffix(".nc.gz"))
        return folder

    def read(self, piece: str) -> xr.Dataset | None:
        """Return a finished piece, or None. Raises `ValueError` if its file is damaged."""
        path = self.path and self.path / f"{piece}.nc.gz"
        if path is None or not path.exists():
            return None
        try:
            # gzip checks the content by its CRC-32.
            content = io.BytesIO(gzip.decompress(path.read_bytes()))
            # Whole numbers of this piece may be joined with missing ones of others.
            found = xr.load_dataset(content, engine="h5netcdf").drop_encoding()
            there = json.loads(found.attrs.pop("settings"))
        except Exception as error:  # Each reader raises its own errors.
            raise ValueError(f"{path} is damaged or not a piece of a run: remove it to compute it again") from error
        here = {**self.settings, "piece": piece}
        if differing := ", ".join([name for name in {**there, **here} if there.get(name) != here.get(name)][:5]):
            raise FileExistsError(f"{self.path} has another run, which differs in {differing}: choose another folder")
        return found

    def write(self, piece: str, dataset: xr.Dataset) -> None:
        """Keep a finished piece."""
        if self.path is not None:
            settings = json.dumps({**self.settings, "piece": piece})
            # On workers of dask, xarray would ask the scheduler for a lock, even of bytes.
            dask = sys.modules.get("dask")
            with dask.config.set(scheduler="synchronous") if dask else contextlib.nullcontext():
                content = dataset.assign_attrs(settings=settings).to_netcdf(engine="h5netcdf")
            write(gzip.compress(content, 1), self.path / f"{piece}.nc.gz", overwrite=True)
