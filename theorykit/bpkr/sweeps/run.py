"""Sweeps: the saddle point at every place of a grid, solved from its nearest solved neighbour and kept as it comes."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import xarray as xr
from tqdm.auto import tqdm

from ... import bpkr
from ...checks import (
    checked_flag,
    checked_function,
    checked_instance,
    checked_path,
    checked_sequence,
    checked_whole_number,
    shown,
)
from ...precision import require_float64
from ...workers import Workers, check_executor, run_tasks
from ..data.classes import warn_of_class_numbers
from ..data.data import check_data
from .datasets import label_test_labels
from .folder import SweepFolder, solver_options, sweep_settings
from .grid import Grid, GridPoint, Number, Width, concatenate, grid_of
from .point import solve_chain

# how many points a warning names, and what it says of them
_NAMED = 10
_TOLD = ["converged", "message"]
# what this process made last of the data of a call's seed, for a seed has several chains
_LATEST: dict[tuple[str, int], tuple[bpkr.Data, Mapping[str, str], SweepFolder | None]] = {}


def sweep(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    *,
    widths: Sequence[Width],
    temperatures: Sequence[Number],
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Solve the saddle point at every width and temperature; one labelled dataset over (width, temperature).

    `architecture` gives layers, prior variances and outputs; its own widths and temperature do not matter. A width is
    that of all layers, or all of them (N_1, ..., N_L, N_a); then the axis is of labels such as "10-20-20". The width
    `math.inf` is the Gaussian process of infinitely wide layers, `label_infinite_width`. Where `data` has test features
    each point also predicts, and with test labels says how well. `options` go to `bpkr.solve`.

    The result holds what `label_saddle` has of each point, `mean` and `variance` of `label_prediction`, the scores of
    `prediction_errors`, and `start`, `seconds` and `message` of each solve (see `point`). At every width the way is
    down from the highest temperature, each solve started from the nearest that has converged; one that does not
    converge from there is tried again from the Gaussian-process limit.

    With an `executor`, widths are solved side by side: threads, processes that are started afresh, such as
    `theorykit.workers.local_workers` makes, or a dask `Client`. What comes out, but for `seconds`, does not depend on
    how many workers it has, if each has as many cores.

    Every point is written to `folder` when it is solved, and a sweep that was stopped, by whatever means, goes on from
    there; so does one with more widths or temperatures. A point that does not converge is kept and flagged, one whose
    solve raises is recorded with the `message`; one `ConvergenceWarning` at the end lists both. The next sweep tries
    again what failed, and with another `max_steps` or `solver` what did not converge. `progress`: show a bar.

    Raises `ValueError` for data, widths or temperatures that do not fit, and for an executor that forks,
    `FileExistsError` where `folder` holds a sweep of other data, architecture or tolerance, and `TypeError` for an
    option that `bpkr.solve` does not have.

        >>> import math
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> from theorykit.bpkr import sweeps
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> found = sweeps.sweep(arch, data, widths=[10, math.inf], temperatures=[0.1, 0.01], progress=False)
        >>> dict(found.sizes)["width"], dict(found.sizes)["temperature"]
        (2, 2)
    """
    require_float64()
    check_executor(executor)
    grid = _checked_grid(architecture, widths, temperatures)
    if isinstance(data, bpkr.Data):
        warn_of_class_numbers(data.labels, stacklevel=2)
    data, settings, kept = _prepare(architecture, data, _checked_folder(folder), options)
    points: dict[GridPoint, xr.Dataset] = {}
    tasks = [(chain,) for chain in grid.chains]
    with _bar(tasks, progress) as bar:
        common = (architecture, data, kept, options)
        for _, chain in run_tasks(executor, solve_chain, tasks, common):
            points |= chain
            bar.update(len(chain))
            if kept is not None:
                kept.complete(chain)
    result = xr.merge([grid.dataset(points), _label_tests(data)]).assign_attrs(settings=json.dumps(settings))
    _warn_of_unsolved(result)
    return result


def sweep_seeds(
    architecture: bpkr.Architecture,
    data: Callable[[int], bpkr.Data],
    seeds: Sequence[int],
    *,
    widths: Sequence[Width],
    temperatures: Sequence[Number],
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """A `sweep` of each of several data sets, `data(seed)`; one dataset over (seed, width, temperature).

    Each has a folder of its own in `folder`, from where it goes on if it was stopped.

    With an `executor`, seeds and widths are solved side by side, as in `sweep`. Workers of other processes call `data`
    themselves, which must be a function of a module that they can import, and write to `folder`, which all must see:

        with theorykit.workers.local_workers(2) as executor:
            sweep_seeds(architecture, data, range(5), widths=(10, 100), temperatures=(0.1,), executor=executor)

    Raises what `sweep` does, and `ValueError` for no seeds, or one twice.
    """
    require_float64()
    checked_function("data", data)
    check_executor(executor)
    seeds = [
        checked_whole_number(f"seeds[{i}]", seed)
        for i, seed in enumerate(checked_sequence("seeds", seeds, "whole numbers"))
    ]
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be one or more different numbers, got {seeds}")
    grid, folder = _checked_grid(architecture, widths, temperatures), _checked_folder(folder)
    # data are made again for another call, even of the same seeds
    common = (architecture, data, uuid4().hex, folder, options)
    tasks = [(seed, chain) for seed in seeds for chain in grid.chains]
    points: dict[int, dict[GridPoint, xr.Dataset]] = {seed: {} for seed in seeds}
    labels: dict[int, xr.Dataset] = {}
    with _bar(tasks, progress) as bar:
        for number, (chain, tested) in run_tasks(executor, _solve_chain_of_seed, tasks, common):
            points[tasks[number][0]] |= chain
            labels[tasks[number][0]] = tested
            bar.update(len(chain))
    _LATEST.clear()
    each = [xr.merge([grid.dataset(points[seed]), labels[seed]]) for seed in seeds]
    result = concatenate(each, "seed", seeds)
    _warn_of_unsolved(result)
    return result


def _checked_grid(architecture: bpkr.Architecture, widths: Sequence[Width], temperatures: Sequence[Number]) -> Grid:
    return grid_of(checked_instance("architecture", architecture, bpkr.Architecture), widths, temperatures)


def _checked_folder(folder: Path | str | None) -> Path | None:
    # the same for workers, which may be elsewhere
    return None if folder is None else checked_path("folder", folder).absolute()


def _prepare(
    architecture: bpkr.Architecture, data: bpkr.Data, folder: Path | None, options: Mapping[str, Any]
) -> tuple[bpkr.Data, Mapping[str, str], SweepFolder | None]:
    """The data, checked; the settings of the sweep; and its folder, if it has one."""
    data = check_data(architecture, data)
    settings = sweep_settings(architecture, data, options)
    kept = None if folder is None else SweepFolder.open(folder, settings, solver_options(options))
    return data, settings, kept


def _solve_chain_of_seed(
    architecture: bpkr.Architecture,
    data: Callable[[int], bpkr.Data],
    call: str,
    folder: Path | None,
    options: Mapping[str, Any],
    seed: int,
    chain: Sequence[GridPoint],
) -> tuple[Mapping[GridPoint, xr.Dataset], xr.Dataset]:
    """What `solve_chain` has of the data of a seed, and their labelled test labels."""
    prepared = _LATEST.get((call, seed))
    if prepared is None:
        made = data(seed)
        if not isinstance(made, bpkr.Data):
            raise TypeError(f"data must return bpkr.Data of features and labels, got {shown(made)} for seed {seed}")
        prepared = _prepare(architecture, made, None if folder is None else folder / f"seed={seed}", options)
        _LATEST.clear()
        _LATEST[call, seed] = prepared
    made, _, kept = prepared
    return solve_chain(architecture, made, kept, options, chain), _label_tests(made)


def _label_tests(data: bpkr.Data) -> xr.Dataset:
    return xr.Dataset() if data.test_labels is None else label_test_labels(data.test_labels)


def _warn_of_unsolved(result: xr.Dataset) -> None:
    """One warning that lists every point that is no solution, of one sweep or of several."""
    axes = result["converged"].dims
    points = result[_TOLD].stack(point=axes)
    unsolved = points.isel(point=~points["converged"].values)
    if not unsolved.sizes["point"]:
        return
    listed = [_complaint(unsolved.isel(point=i), axes) for i in range(min(_NAMED, unsolved.sizes["point"]))]
    more = unsolved.sizes["point"] - len(listed)
    warnings.warn(
        f"{unsolved.sizes['point']} of {points.sizes['point']} points are not solutions: {'; '.join(listed)}"
        + (f"; and {more} more" if more else ""),
        bpkr.ConvergenceWarning,
        stacklevel=3,
    )


def _complaint(point: xr.Dataset, axes: Sequence[Any]) -> str:
    place = ", ".join(f"{axis}={point[axis].item()}" for axis in axes)
    return f"{place}: {point['message'].item()}"


def _bar(tasks: Sequence[tuple], progress: bool) -> tqdm:
    """A bar over the points of tasks, whose last argument is a chain of them."""
    hidden = not checked_flag("progress", progress)
    # one below another bar is removed when it is full
    shown = {"desc": "saddle points", "unit": "point", "leave": None, "dynamic_ncols": True}
    return tqdm(total=sum(len(task[-1]) for task in tasks), disable=hidden, **shown)
