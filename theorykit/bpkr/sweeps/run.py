"""Sweeps: the saddle point at every place of a grid, solved from its nearest solved neighbour and kept as it comes."""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any

import xarray as xr
from tqdm import tqdm

from ... import bpkr
from ...arguments import (
    checked_flag,
    checked_function,
    checked_instance,
    checked_path,
    checked_sequence,
    checked_whole_number,
    shown,
)
from ...precision import enable_float64, require_float64
from ...workers import check_executor
from ..data.classes import warn_of_class_numbers
from ..data.data import check_data
from .datasets import label_test_labels
from .folder import SweepFolder, solver_options, sweep_settings
from .grid import Grid, GridPoint, Number, Width, concatenate, grid_of, nearest
from .point import solve_place

# how many points a warning names, and what it says of them
_NAMED = 10
_TOLD = ["converged", "message"]


def sweep(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    *,
    widths: Sequence[Width],
    temperatures: Sequence[Number],
    folder: Path | str | None = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Solve the saddle point at every width and temperature; one labelled dataset over (width, temperature).

    `architecture` gives layers, prior variances and outputs; its own widths and temperature do not matter. A width is
    that of all layers, or all of them (N_1, ..., N_L, N_a); then the axis is of labels such as "10-20-20". The width
    `math.inf` is the Gaussian process of infinitely wide layers, `label_infinite_width`. Where `data` has test features
    each point also predicts, and with test labels says how well. `options` go to `bpkr.solve`.

    The result holds what `label_saddle` has of each point, `mean` and `variance` of `label_prediction`, the scores of
    `prediction_errors`, and `start`, `seconds` and `message` of each solve (see `point`). The way through the grid is
    from the widest network to the narrowest and along the temperatures, each solve started from the nearest that has
    converged; one that does not converge from there is tried again from the Gaussian-process limit.

    Every point is written to `folder` when it is solved, and a sweep that was stopped, by whatever means, goes on from
    there; so does one with more widths or temperatures. A point that does not converge is kept and flagged, one whose
    solve raises is recorded with the `message`; one `ConvergenceWarning` at the end lists both. The next sweep tries
    again what failed, and with another `max_steps` or `solver` what did not converge. `progress`: show a bar.

    Raises `ValueError` for data, widths or temperatures that do not fit, `FileExistsError` where `folder` holds a sweep
    of other data, architecture or tolerance, and `TypeError` for an option that `bpkr.solve` does not have.
    """
    grid = _checked_grid(architecture, widths, temperatures)
    if isinstance(data, bpkr.Data):
        warn_of_class_numbers(data.labels, stacklevel=2)
    with _bar(len(grid.places), progress) as bar:
        result = _sweep(architecture, data, grid, folder, bar, options)
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
    executor: Executor | None = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """A `sweep` of each of several data sets, `data(seed)`; one dataset over (seed, width, temperature).

    Each has a folder of its own in `folder`, from where it goes on if it was stopped.

    With an `executor` the seeds are solved side by side; what comes out does not depend on how many workers it has.
    Processes must be started afresh, since a fork of a process in which JAX has run may hang, and `data` must be a
    function of a module that they can import:

        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
            sweep_seeds(architecture, data, range(5), widths=(10, 100), temperatures=(0.1,), executor=executor)

    Raises what `sweep` does, and `ValueError` for an executor that forks and for no seeds, or one twice.
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
    grid = _checked_grid(architecture, widths, temperatures)
    tasks = {seed: (architecture, data, seed, grid, _folder_of_seed(folder, seed), options) for seed in seeds}
    results: dict[int, xr.Dataset] = {}
    points = len(grid.places)
    with _bar(len(seeds) * points, progress) as bar:
        if executor is None:
            for seed, task in tasks.items():
                results[seed] = _sweep_of_seed(*task, bar)
        else:
            futures = {executor.submit(_sweep_in_worker, *task): seed for seed, task in tasks.items()}
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                bar.update(points)
    result = concatenate([results[seed].drop_attrs() for seed in seeds], "seed", seeds)
    _warn_of_unsolved(result)
    return result


def _checked_grid(architecture: bpkr.Architecture, widths: Sequence[Width], temperatures: Sequence[Number]) -> Grid:
    return grid_of(checked_instance("architecture", architecture, bpkr.Architecture), widths, temperatures)


def _sweep(architecture, data, grid: Grid, folder, bar, options) -> xr.Dataset:
    """`sweep` on the bar that is given, without a warning."""
    require_float64()
    data = check_data(architecture, data)
    settings = sweep_settings(architecture, data, options)
    kept = (
        None if folder is None else SweepFolder.open(checked_path("folder", folder), settings, solver_options(options))
    )
    points = _solve_points(architecture, data, grid.places, kept, options, bar)
    tested = [] if data.test_labels is None else [label_test_labels(data.test_labels)]
    return xr.merge([grid.dataset(points), *tested]).assign_attrs(settings=json.dumps(settings))


def _solve_points(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    places: Sequence[GridPoint],
    folder: SweepFolder | None,
    options: Mapping[str, Any],
    bar: tqdm,
) -> Mapping[GridPoint, xr.Dataset]:
    """The dataset of every place: from the folder, or else solved, in their order, and left there."""
    there = {place: None if folder is None else folder.read(place) for place in places}
    points = {place: point for place, point in there.items() if point is not None}
    bar.update(len(points))
    for place in places:
        if place in points:
            continue
        bar.set_postfix(width=str(place.width), temperature=place.temperature)
        converged = [other for other in places if other in points and points[other]["converged"].item()]
        start = nearest(place, converged)
        neighbour = None if start is None else (start, points[start])
        points[place] = solve_place(architecture, data, place, neighbour, options)
        if folder is not None:
            folder.write(place, points[place])
        bar.update()
    return points


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


def _folder_of_seed(folder: Path | str | None, seed: int) -> Path | None:
    return None if folder is None else checked_path("folder", folder) / f"seed={seed}"


def _sweep_of_seed(architecture, data, seed, grid, folder, options, bar) -> xr.Dataset:
    made = data(seed)
    if not isinstance(made, bpkr.Data):
        raise TypeError(f"data must return bpkr.Data of features and labels, got {shown(made)} for seed {seed}")
    return _sweep(architecture, made, grid, folder, bar, options)


def _sweep_in_worker(architecture, data, seed, grid, folder, options) -> xr.Dataset:
    enable_float64()
    return _sweep_of_seed(architecture, data, seed, grid, folder, options, tqdm(disable=True))


def _bar(points: int, progress: bool) -> tqdm:
    hidden = not checked_flag("progress", progress)
    # one below another bar is removed when it is full
    return tqdm(total=points, desc="saddle points", unit="point", disable=hidden, leave=None, dynamic_ncols=True)
