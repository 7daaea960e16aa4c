"""Sweeps: solve the saddle point at every point of a grid, starting from the nearest solved neighbour."""

from __future__ import annotations

import itertools
import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import numpy as np
import xarray as xr

from ... import bpkr, store
from ...checks import checked_arguments, checked_number, checked_sequence, counted, refuse_traced, shown
from ...precision import require_float64
from ...progress import Progress
from ...workers import Workers, check_executor, run_tasks
from ..data.classes import warn_of_class_numbers
from ..data.data import check_data
from ..evaluation.problem import architecture_and_data, describe_cost
from .datasets import label_infinite_width, label_predictions, label_saddle, label_test_labels, order_parameters_of

# Part of the settings of a sweep. Increase it if results change by more than the tolerance for the same arguments.
_VERSION = 2
_POINTS = "points"
# `start` of a solve without a neighbour.
_COLD = "Gaussian-process limit"
# `result` of a point whose solve raised an error.
_FAILED = "failed"
# `max_steps` and `solver` affect whether `bpkr.solve` converges, but not the solution.
_DEFAULTS = {"solver": None, "tolerance": 1e-9, "max_steps": 1000}
_SOLVER_OPTIONS = ("max_steps", "solver")
_OF_ARCHITECTURE = ("layers", "prior_variances", "outputs", "read_tokens", "embedding")
# Recorded only if they are given, so that folders of earlier sweeps remain valid.
_IF_GIVEN = ("richness", "width_ratios")
_OF_DATA = ("features", "labels", "test_features", "test_labels")
# A warning lists at most this many causes.
_NAMED = 10
# Replaces T = 0 in logarithms of temperatures; it is below the temperatures in use.
_SMALLEST_TEMPERATURE = 1e-12

Number = int | float
Width = Number | tuple[Number, ...]
# `grid_of` checks the entries of these sequences.
Widths = Annotated[Sequence[Width], partial(checked_sequence, what="widths")]
Temperatures = Annotated[Sequence[Number], partial(checked_sequence, what="temperatures")]
Richness = Annotated[Sequence[Number], partial(checked_sequence, what="values of the richness")]


@checked_arguments
def sweep(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    widths: Widths,
    temperatures: Temperatures,
    richness: Richness | None = None,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Solve the saddle point at every width and temperature. Return one dataset over (width, temperature).

    The dataset also has an axis of the richness if `richness` is given.

    At each width the temperature decreases from the highest, and each solve starts from the nearest converged solution.
    If it does not converge from there, it is retried from the Gaussian-process limit. Points that do not converge are
    kept and flagged. If a solve raises an error, the point has the error as `message`. One `ConvergenceWarning` at the
    end lists all these points.

    Args:
        problem: the architecture with its data; its widths and temperature are not used.
        data: the data, if `problem` is an architecture. With test features each point also predicts, and with test
            labels it scores the predictions.
        widths: each is the width of all layers, or a tuple of all widths (N_1, ..., N_L, N_a), which gets a label such
            as "10-20-20". `math.inf` is the Gaussian process of infinitely wide layers, where order parameters have
            their prior values, `log_evidence` is exact, and there is no `action`. With a richness, it is the limit with
            learned features, where the variables that depend on the width have other names, such as
            `log_evidence_per_width` and `variance_times_width`.
        temperatures: the temperatures, at least 0.
        richness: values of the richness gamma_0; by default that of the architecture.
        folder: every point is written here once it is solved. A stopped sweep resumes from here, even with added widths
            or temperatures. Failed points are retried. With a different `max_steps` or `solver`, points that did not
            converge are retried too.
        executor: selects where widths are solved in parallel: in threads, in spawned processes, such as
            `theorykit.workers.local_workers`, or on a dask `Client`. Results other than `seconds` do not depend on the
            number of workers, if each worker has the same number of cores.
        progress: show a bar.
        options: passed to `bpkr.solve`.

    Returns:
        A dataset with these variables. A failed point has only `converged`, `result`, and the last three.

        - the variables of `label_saddle`.
        - `mean` and `variance` of the output on test examples.
        - with test labels, `test_error`; for classes also `test_accuracy` and `test_log_loss`, both with errors, and
          `test_confusion`; for numbers also `test_r_squared`.
        - `start`: the starting point of the solve.
        - `seconds`: the time of the solve, including compilation.
        - `message`: the cause of a failure; empty for a solution.

    Raises:
        FileExistsError: `folder` has a sweep with other data, architecture or tolerance.

    Example:
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
    refuse_traced("sweep", problem, data)
    check_executor(executor)
    architecture, data = architecture_and_data(problem, data)
    grid = grid_of(architecture, widths, temperatures, richness)
    if not isinstance(problem, bpkr.Problem):
        if data.classes is None:
            warn_of_class_numbers(data.labels, stacklevel=3)
        data = check_data(architecture, data)
    source = _source(architecture, data, folder, options)
    cost = describe_cost(architecture, data)
    (found,) = _solve_all(source, (0,), grid, executor=executor, progress=progress, cost=cost)
    result = found.assign_attrs(settings=json.dumps(source.settings))
    _warn_of_unsolved(result)
    return result


@checked_arguments
def sweep_seeds(
    architecture: bpkr.Architecture,
    data: Callable[[int], bpkr.Data],
    seeds: Sequence[int],
    *,
    widths: Widths,
    temperatures: Temperatures,
    richness: Richness | None = None,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Run a `sweep` for each of several data sets. Return one dataset over (seed, width, temperature).

    Args:
        architecture: the architecture; its widths and temperature are not used.
        data: a function that returns the data set of a seed. Worker processes call it, so they must be able to import
            its module.
        seeds: the seeds.
        folder: each seed has a subfolder, and resumes from it. All worker processes write to it, so they need access.
        executor: selects where seeds and widths are solved in parallel.
        widths, temperatures, richness, progress, options: as in `sweep`.

    Example::

        with theorykit.workers.local_workers(2) as executor:
            sweep_seeds(architecture, data, range(5), widths=(10, 100), temperatures=(0.1,), executor=executor)
    """
    require_float64()
    refuse_traced("sweep_seeds", architecture)
    check_executor(executor)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be at least one number without repetitions, got {list(seeds)}")
    grid = grid_of(architecture, widths, temperatures, richness)
    # Workers may run in another directory, so make the path absolute.
    folder = None if folder is None else folder.absolute()
    # Each call has a unique number, because another call must make its data again.
    source = partial(_source_of_seed, architecture, data, uuid4().hex, folder, options)
    cost = f"{counted(architecture.paths, 'path')} x {counted(architecture.outputs, 'output')}"
    found = _solve_all(source, seeds, grid, executor=executor, progress=progress, cost=cost)
    _LATEST.clear()
    result = concatenate(found, "seed", seeds)
    _warn_of_unsolved(result)
    return result


# ---- the grid


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid.

    - `width`: the width of all layers, or the widths (N_1, ..., N_L, N_a).
    - `temperature`: the temperature.
    - `richness`: the richness, if it is an axis of the grid.
    """

    width: Width
    temperature: float
    richness: float | None = None

    def __str__(self):
        richness = "" if self.richness is None else f", richness={self.richness!r}"
        return f"width={_width_label(self.width)}, temperature={self.temperature!r}{richness}"

    def is_gaussian_process(self, like: bpkr.Architecture) -> bool:
        """Whether the network is infinitely wide in the standard parameterisation."""
        return self.width == math.inf and self.richness is None and like.richness is None

    def architecture(self, like: bpkr.Architecture) -> bpkr.Architecture:
        """Return `like` with these numbers. The width of a Gaussian process becomes 1, which is not used."""
        width, ratios = self.width, like.width_ratios
        if self.is_gaussian_process(like):
            width = 1.0
        elif width != math.inf and ratios is not None:
            width, ratios = width if isinstance(width, tuple) else tuple(width * ratio for ratio in ratios), None
        richness = like.richness if self.richness is None else self.richness
        numbers = {"widths": width, "width_ratios": ratios, "richness": richness}
        return replace(like, temperature=self.temperature, **numbers)


@dataclass(frozen=True)
class Grid:
    """All combinations of widths, temperatures and, if it is an axis, richness. Make one with `grid_of`."""

    widths: tuple[Width, ...]
    temperatures: tuple[float, ...]
    richness: tuple[float, ...] | None = None

    @property
    def chains(self) -> list[list[GridPoint]]:
        """One chain of points per width and richness, widest first. Temperatures decrease along a chain.

        The first solve of a chain starts from the Gaussian-process limit. The others start from neighbours in the
        chain, so chains can be solved in parallel.
        """

        def mean_logarithm(width: Width) -> float:
            widths = width if isinstance(width, tuple) else (width,)
            return math.fsum(map(math.log, widths)) / len(widths)

        temperatures = sorted(self.temperatures, reverse=True)
        widths = sorted(self.widths, key=mean_logarithm, reverse=True)
        return [
            [GridPoint(width, temperature, richness) for temperature in temperatures]
            for width in widths
            for richness in (self.richness or (None,))
        ]

    def dataset(self, points: Mapping[GridPoint, xr.Dataset]) -> xr.Dataset:
        """Join the datasets of points over `width` and `temperature`. Missing values are NaN."""

        def at(width: Width, temperature: float) -> xr.Dataset:
            found = [points[GridPoint(width, temperature, richness)] for richness in self.richness or (None,)]
            return found[0] if self.richness is None else concatenate(found, "richness", self.richness)

        rows = [
            concatenate([at(width, temperature) for temperature in self.temperatures], "temperature", self.temperatures)
            for width in self.widths
        ]
        has_labels = any(isinstance(width, tuple) for width in self.widths)
        return concatenate(rows, "width", [_width_label(width) for width in self.widths] if has_labels else self.widths)


def concatenate(datasets: Sequence[xr.Dataset], name: str, values: Sequence[Any]) -> xr.Dataset:
    """Join datasets along a new axis `name` with coordinates `values`."""
    axis = xr.DataArray(np.array(values), dims=name, name=name)
    return xr.concat(datasets, dim=axis, data_vars="all", coords="minimal", compat="override", join="outer")


def nearest(place: GridPoint, solved: Iterable[GridPoint]) -> GridPoint | None:
    """Return the point nearest in temperature among `solved` points of one width and richness."""

    def distance(point: GridPoint) -> float:
        here, there = (math.log(max(at.temperature, _SMALLEST_TEMPERATURE)) for at in (place, point))
        return abs(here - there)

    return min(solved, key=distance, default=None)


def grid_of(
    architecture: bpkr.Architecture,
    widths: Sequence[Any],
    temperatures: Sequence[Any],
    richness: Sequence[Any] | None = None,
) -> Grid:
    """Return the grid as plain numbers; raise `ValueError` for a value that is invalid for the architecture."""
    if richness is not None:
        richness = tuple(float(checked_number(f"richness[{i}]", value, least=0.0)) for i, value in enumerate(richness))
    grid = Grid(
        tuple(_width(f"widths[{i}]", width) for i, width in enumerate(widths)),
        tuple(
            float(checked_number(f"temperatures[{i}]", temperature, least=0.0))
            for i, temperature in enumerate(temperatures)
        ),
        richness,
    )
    for name, values in vars(grid).items():
        if values is None:
            continue
        if not values:
            raise ValueError(f"{name} must not be empty")
        if repeated := {value for value in values if values.count(value) > 1}:
            raise ValueError(f"{name} must not repeat values, got {', '.join(map(str, repeated))} more than once")
    for width in grid.widths:
        # Zero richness is valid only at infinite width, so such a point fails alone.
        rich = None if richness is None else max(richness)
        GridPoint(width, grid.temperatures[0], rich).architecture(architecture)
    return grid


def _width_label(width: Width) -> str:
    """Format a width, or the widths of all layers, such as "10-20-20"."""
    return "-".join(f"{n!r}" for n in width) if isinstance(width, tuple) else f"{width!r}"


def _width(name: str, width: Any) -> Width:
    """Return widths as plain numbers. Whole numbers become integers, so that 10 and 10.0 are the same."""
    if isinstance(width, (tuple, list)):
        if math.inf in width:
            raise ValueError(f"{name} is infinite for only some layers, got {shown(width)}; use math.inf for all")
        return tuple(_width(f"{name}[{i}]", each) for i, each in enumerate(width))
    if isinstance(width, (float, np.floating)) and width == math.inf:
        return math.inf
    plain = float(checked_number(name, width, above=0.0))
    return int(plain) if plain.is_integer() else plain


# ---- solving


@dataclass(frozen=True)
class _Source:
    """The architecture and the data of one sweep, and the folder, if any, with a file for every solved point.

    `settings` determine the solution at every point. `solver_options` apply to points that are not solved yet.
    """

    architecture: bpkr.Architecture
    data: bpkr.Data
    options: Mapping[str, Any]
    settings: Mapping[str, str]
    solver_options: str
    folder: Path | None

    def point_path(self, place: GridPoint) -> Path:
        """Return the file of a point."""
        return self.folder / _POINTS / f"{place}.nc".replace(", ", ",")

    def write(self, place: GridPoint, point: xr.Dataset) -> None:
        """Write the file of a point. Replace the file of a point that failed or did not converge."""
        point = point.assign_attrs(place=str(place), solver_options=self.solver_options)
        store.keep(point, self.settings, self.point_path(place))

    def read(self, place: GridPoint) -> xr.Dataset | None:
        """Read a point; return None if it is missing, failed, or did not converge with other solver options."""
        path = self.point_path(place)
        kept = store.read_kept(path, self.settings)
        if kept is None:
            return None
        # The encoding of a single file does not fit a dataset with missing points.
        point = kept.drop_encoding()
        if point.attrs.pop("place", None) != str(place):
            raise ValueError(f"{path} has another width or temperature than its name; remove it")
        same_effort = point.attrs.pop("solver_options", None) == self.solver_options
        is_final = point["converged"].item() or (same_effort and point["result"].item() != _FAILED)
        return point if is_final else None


def _source(
    architecture: bpkr.Architecture, data: bpkr.Data, folder: Path | None, options: Mapping[str, Any]
) -> _Source:
    """Create the source; raise an error for the folder of another sweep, and for options that cannot identify a run."""
    if unknown := sorted(set(options) - set(_DEFAULTS)):
        raise TypeError(f"unknown options of the solve: {', '.join(unknown)}; use {', '.join(sorted(_DEFAULTS))}")
    given, numbers = dict(sorted({**_DEFAULTS, **options}.items())), architecture.with_arrays()
    settings = store.settings_of(
        "sweep",
        _VERSION,
        **{name: getattr(numbers, name) for name in _OF_ARCHITECTURE},
        **{name: getattr(numbers, name) for name in _IF_GIVEN if getattr(numbers, name) is not None},
        **{name: getattr(data, name) for name in _OF_DATA},
        **{f"option {name}": value for name, value in given.items() if name not in _SOLVER_OPTIONS},
    )
    of_solver = store.describe(**{name: value for name, value in given.items() if name in _SOLVER_OPTIONS})
    if folder is not None:
        store.refuse_unknown({**settings, **{f"option {name}": value for name, value in of_solver.items()}})
        # Workers may run in another directory, so make the path absolute.
        folder = folder.absolute()
        # All points in a folder belong to the same sweep, so it is enough to check one.
        for point in itertools.islice((folder / _POINTS).glob("width=*.nc"), 1):
            store.read_kept(point, settings)
    return _Source(architecture, data, options, settings, store.as_text(of_solver), folder)


def _solve_all(
    source: _Source | Callable[[int], _Source],
    seeds: Sequence[int],
    grid: Grid,
    *,
    executor: Workers,
    progress: bool,
    cost: str,
) -> list[xr.Dataset]:
    """Return the dataset of every seed over the grid, from one source or from one source per seed."""
    tasks = [(seed, chain) for seed in seeds for chain in grid.chains]
    points: dict[int, dict[GridPoint, xr.Dataset]] = {seed: {} for seed in seeds}
    labels: dict[int, xr.Dataset] = {}
    total = sum(len(chain) for _, chain in tasks)
    sizes = {"width": len(grid.widths), "temperature": len(grid.temperatures), "data set": len(seeds)}
    grids = " x ".join(counted(size, name) for name, size in sizes.items() if size > 1 or name != "data set")
    if grid.richness is not None:
        grids += f" x {counted(len(grid.richness), 'value')} of the richness"
    with Progress("saddle points", total, "point", shown=progress, cost=f"{grids}; {cost}") as report:
        # Workers report only complete chains.
        solve = _solve_chain if executor is not None else partial(_solve_chain, advance=report.update)
        # Starting workers takes longer than reading files, so complete chains are read in this process.
        kept = {}
        if executor is not None and isinstance(source, _Source) and source.folder is not None:
            for number, (_, chain) in enumerate(tasks):
                found = {place: source.read(place) for place in chain}
                if all(point is not None for point in found.values()):
                    kept[number] = found, label_test_labels(source.data)
        rest = [number for number in range(len(tasks)) if number not in kept]
        solved = run_tasks(executor, solve, [tasks[number] for number in rest], (source,))
        for number, (chain, tested) in itertools.chain(kept.items(), ((rest[n], found) for n, found in solved)):
            seed, _ = tasks[number]
            points[seed] |= chain
            labels[seed] = tested
            if executor is not None:
                report.update(len(chain))
            for place, point in chain.items():
                # A worker may not have access to the folder.
                if isinstance(source, _Source) and source.folder and not source.point_path(place).exists():
                    source.write(place, point)
    return [xr.merge([grid.dataset(points[seed]), labels[seed]]) for seed in seeds]


# The last source of this process, which all chains of a seed share.
_LATEST: dict[tuple[str, int], _Source] = {}


def _source_of_seed(
    architecture: bpkr.Architecture,
    data: Callable[[int], bpkr.Data],
    call: str,
    folder: Path | None,
    options: Mapping[str, Any],
    seed: int,
) -> _Source:
    source = _LATEST.get((call, seed))
    if source is None:
        made = data(seed)
        if not isinstance(made, bpkr.Data):
            raise TypeError(f"data must return bpkr.Data(features, labels), got {shown(made)} for seed {seed}")
        made, folder = check_data(architecture, made), None if folder is None else folder / f"seed={seed}"
        source = _source(architecture, made, folder, options)
        _LATEST.clear()
        _LATEST[call, seed] = source
    return source


def _solve_chain(
    source: _Source | Callable[[int], _Source],
    seed: int,
    places: Sequence[GridPoint],
    advance: Callable[[], object] = lambda: None,
) -> tuple[Mapping[GridPoint, xr.Dataset], xr.Dataset]:
    """Return the datasets of all points of a chain, read from the folder or solved in order, and the test labels."""
    source = source if isinstance(source, _Source) else source(seed)
    there = {place: None if source.folder is None else source.read(place) for place in places}
    points = {place: point for place, point in there.items() if point is not None}
    for place in places:
        if place not in points:
            start = nearest(place, [other for other in places if other in points and points[other]["converged"].item()])
            neighbour = None if start is None else (start, points[start])
            with warnings.catch_warnings():
                # The sweep warns of the labels once, when it begins.
                warnings.simplefilter("ignore", bpkr.LabelsWarning)
                points[place] = _solve_place(source, place, neighbour)
            if source.folder is not None:
                source.write(place, points[place])
        advance()
    return points, label_test_labels(source.data)


def _solve_place(source: _Source, place: GridPoint, neighbour: tuple[GridPoint, xr.Dataset] | None) -> xr.Dataset:
    """Return the labelled solution at `place` with its predictions, or a record of the error if the solve fails.

    The solve starts from `neighbour`, a solved point. Without a neighbour, or if the solve does not converge, it starts
    from the Gaussian-process limit. If neither solve converges, the result with the smaller gradient is kept.
    """
    began, starts, found = time.perf_counter(), {_COLD: None}, {}
    try:
        architecture = place.architecture(source.architecture)
        problem, is_process = bpkr.Problem(architecture, source.data), place.is_gaussian_process(source.architecture)
        if neighbour is not None and not is_process:
            nearby, labelled = neighbour
            starts = {str(nearby): order_parameters_of(nearby.architecture(source.architecture), labelled), **starts}
        if is_process:
            point, start, message = bpkr.gp_limit(architecture), _COLD, ""
            solution = label_infinite_width(problem)
        else:
            for start, initial in starts.items():
                with warnings.catch_warnings():
                    # The sweep lists all failures in one warning when it ends.
                    warnings.simplefilter("ignore", bpkr.ConvergenceWarning)
                    try:
                        found[start] = bpkr.solve(problem, initial=initial, **source.options)
                    except ValueError:
                        if start == _COLD and not found:
                            raise
                        continue
                if found[start].converged:
                    break
            start = min(found, key=lambda name: (not found[name].converged, float(found[name].gradient_norm)))
            point, message = found[start].order_parameters, "" if found[start].converged else found[start].diagnosis
            solution = label_saddle(architecture, found[start])
        seconds = time.perf_counter() - began
        described = [solution, *label_predictions(problem, point)]
    except (ValueError, RuntimeError) as failure:
        seconds = time.perf_counter() - began
        record = {"converged": False, "result": _FAILED, "start": "", "message": str(failure), "seconds": seconds}
        return xr.Dataset(record)
    return xr.merge([*described, xr.Dataset({"start": start, "message": message, "seconds": seconds})])


def _warn_of_unsolved(result: xr.Dataset) -> None:
    """Issue one warning of all points that are not solutions, in one or several sweeps."""
    axes = result["converged"].dims
    points = result[["converged", "message"]].stack(point=axes)
    unsolved = points.isel(point=~points["converged"].values)
    count = unsolved.sizes["point"]
    if not count:
        return
    # Messages that differ only in numbers have the same cause.
    causes: dict[str, list[xr.Dataset]] = {}
    for point in (unsolved.isel(point=i) for i in range(count)):
        causes.setdefault(re.sub(r"[-+.\d]+(e[-+]?\d+)?", "#", point["message"].item()), []).append(point)
    listed = []
    for points_of_cause in itertools.islice(causes.values(), _NAMED):
        first, *others = points_of_cause
        shared = [axis for axis in axes if all(point[axis] == first[axis] for point in others)]
        place = ", ".join(f"{axis}={first[axis].item()}" for axis in shared or axes)
        if others:
            place += f" ({counted(1 + len(others), 'point')})" if shared else f" and {len(others)} others"
        listed.append(f"{place}: {first['message'].item()}")
    more = f"; and {len(causes) - _NAMED} other causes" if len(causes) > _NAMED else ""
    message = f"{count} of {points.sizes['point']} points are not solutions: {'; '.join(listed)}{more}"
    warnings.warn(message, bpkr.ConvergenceWarning, stacklevel=4)
