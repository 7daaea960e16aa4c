"""Every public callable that takes an executor, with two threads: its tasks are traced and run at the same time."""

import inspect
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
import xarray as xr

from .engine import Face, Report, example_calls

# of draws, whose effective samples are counted by the second
_OF_THE_CLOCK = ("seconds", "warmup_seconds")


def try_threads(face: Face) -> Report:
    """Each of them returns with threads what it returns without an executor."""
    calls, failures, interval = 0, [], sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # what may come between two steps of another thread does
    for name, function, positional, keywords in example_calls(face):
        if "executor" not in inspect.signature(function).parameters:
            continue
        calls += 1
        # threads first: what this thread has compiled is not traced again
        with warnings.catch_warnings(), ThreadPoolExecutor(2) as pool:
            warnings.simplefilter("ignore")
            try:
                beside = numbers_of(function(*positional, **{**keywords, "executor": pool}))
                alone = numbers_of(function(*positional, **keywords))
            except Exception as error:
                failures.append(f"{name}: {type(error).__name__}: {str(error)[:160]}")
                continue
        if different := [key for key in alone if not np.array_equal(alone[key], beside[key], equal_nan=True)]:
            failures.append(f"{name}: {different} differ")
    sys.setswitchinterval(interval)
    return Report(calls, tuple(failures))


def numbers_of(result: Any) -> Mapping[str, np.ndarray]:
    """The numbers in a result, by their places."""
    if isinstance(result, xr.DataTree):
        parts = {group.path: numbers_of(group.to_dataset()) for group in result.subtree}
        return {f"{path}/{name}": values for path, part in parts.items() for name, values in part.items()}
    if isinstance(result, xr.Dataset):
        return {
            str(name): array.values
            for name, array in result.data_vars.items()
            if name not in _OF_THE_CLOCK and array.dtype.kind in "fciub"
        }
    leaves, _ = jax.tree_util.tree_flatten_with_path(result)
    return {
        jax.tree_util.keystr(place): np.asarray(leaf)
        for place, leaf in leaves
        if np.asarray(leaf).dtype.kind in "fciub"
    }
