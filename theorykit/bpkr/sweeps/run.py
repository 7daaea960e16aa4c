"""Sweeps: the saddle point at every place of a grid, solved from its nearest solved neighbour and kept as it comes."""

import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import xarray as xr
from tqdm.auto import tqdm

from ... import bpkr, store
from ...checks import checked_arguments, shown
from ...precision import require_float64
from ...workers import Workers, check_executor, run_tasks
from ..data.classes import warn_of_class_numbers
from ..data.data import check_data
from ..evaluation.problem import architecture_and_data
from .datasets import label_infinite_width, label_predictions, label_saddle, label_test_labels, order_parameters_of
from .grid import GridPoint, Temperatures, Widths, concatenate, grid_of, nearest

# part of the settings of a sweep: raised whenever a point comes to have other numbers of the same arguments, beyond the
# tolerance
_VERSION = 2
_POINTS = "points"
# the `start` of a solve without a neighbour
_COLD = "Gaussian-process limit"
# the `result` of a point whose solve raised
_FAILED = "failed"
# options of `bpkr.solve`, of which `max_steps` and `solver` affect whether it converges, but not to which solution
_DEFAULTS = {"solver": None, "tolerance": 1e-9, "max_steps": 1000}
_SOLVER_OPTIONS = ("max_steps", "solver")
_OF_ARCHITECTURE = ("layers", "prior_variances", "outputs", "read_tokens", "embedding")
_OF_DATA = ("features", "labels", "test_features", "test_labels")
# how many points a warning names
_NAMED = 10


@checked_arguments
def sweep(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    widths: Widths,
    temperatures: Temperatures,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Solve the saddle point at every width and temperature; one labelled dataset over (width, temperature).

    At each width the temperature goes down from the highest, and each solve starts from the nearest that has converged.
    A solve that does not converge from there is tried again from the Gaussian-process limit. A point that does not
    converge is kept and flagged, one whose solve raises is recorded with the `message`; one `ConvergenceWarning` at
    the end lists both.

    Args:
        problem: the architecture, whose own widths and temperature do not matter, with its data.
        data: the data, if `problem` is an architecture. With test features each point also predicts, and with test
            labels it scores the predictions.
        widths: the width of all layers, or all widths (N_1, ..., N_L, N_a) as a tuple; then the axis has labels such as
            "10-20-20". `math.inf` is the Gaussian process of infinitely wide layers, with order parameters of their
            prior values, an exact `log_evidence`, and no `action`.
        temperatures: the temperatures, at least 0.
        folder: every point is written there when it is solved. A sweep that was stopped resumes from there, also with
            more widths or temperatures. It tries again the points that failed, and, with another `max_steps` or
            `solver`, those that did not converge.
        executor: solves widths side by side: threads, spawned processes, such as `theorykit.workers.local_workers`
            makes, or a dask `Client`. Results other than `seconds` do not depend on the number of workers, if each has
            as many cores.
        options: passed to `bpkr.solve`.

    Returns:
        What `label_saddle` has of each point; `mean` and `variance` of the output on test examples, and with test
        labels `test_error`, and of classes `test_accuracy`, `test_log_loss`, both with errors, and `test_confusion`, of
        numbers `test_r_squared`; `start`, where the solve started, `seconds` it took, a compilation included, and
        `message`, what went wrong, empty of a solution. A point that failed has only the latter.

    Raises:
        FileExistsError: `folder` holds a sweep of other data, architecture or tolerance.

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
    check_executor(executor)
    architecture, data = architecture_and_data(problem, data)
    grid = grid_of(architecture, widths, temperatures)
    if not isinstance(problem, bpkr.Problem):
        if data.classes is None:
            warn_of_class_numbers(data.labels, stacklevel=3)
        data = check_data(architecture, data)
    source = _source(architecture, data, folder, options)
    points: dict[GridPoint, xr.Dataset] = {}
    tasks = [(chain,) for chain in grid.chains]
    for _, chain in _solved(executor, _solve_chain, tasks, (source,), progress):
        points |= chain
        for place, point in chain.items():
            # a worker may not have reached the folder
            if folder is not None and not source.point_path(place).exists():
                source.write(place, point)
    settings = json.dumps(source.settings)
    result = xr.merge([grid.dataset(points), label_test_labels(data)]).assign_attrs(settings=settings)
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
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Run a `sweep` of each of several data sets, `data(seed)`; one dataset over (seed, width, temperature).

    Each seed has its own folder in `folder`, and resumes from it. With an `executor`, seeds and widths are solved side
    by side. Workers of other processes call `data` themselves, which must be a function of a module that they can
    import, and write to `folder`, which all must see:

        with theorykit.workers.local_workers(2) as executor:
            sweep_seeds(architecture, data, range(5), widths=(10, 100), temperatures=(0.1,), executor=executor)
    """
    require_float64()
    check_executor(executor)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be one or more different numbers, got {list(seeds)}")
    grid = grid_of(architecture, widths, temperatures)
    # absolute, for workers that run elsewhere
    folder = None if folder is None else folder.absolute()
    # the call's number: another call makes its data again, even of the same seeds
    common = (architecture, data, uuid4().hex, folder, options)
    tasks = [(seed, chain) for seed in seeds for chain in grid.chains]
    points: dict[int, dict[GridPoint, xr.Dataset]] = {seed: {} for seed in seeds}
    labels: dict[int, xr.Dataset] = {}
    for (seed, _), (chain, tested) in _solved(executor, _solve_chain_of_seed, tasks, common, progress):
        points[seed] |= chain
        labels[seed] = tested
    _LATEST.clear()
    result = concatenate([xr.merge([grid.dataset(points[seed]), labels[seed]]) for seed in seeds], "seed", seeds)
    _warn_of_unsolved(result)
    return result


def _solved(
    executor: Workers, solve: Callable, tasks: Sequence[tuple], common: tuple, progress: bool
) -> Iterator[tuple[tuple, Any]]:
    """Every task, whose last argument is a chain of points, and its result, below a bar over the points."""
    # a bar below another bar is removed when it is full
    shown = {"desc": "saddle points", "unit": "point", "leave": None, "dynamic_ncols": True}
    with tqdm(total=sum(len(task[-1]) for task in tasks), disable=not progress, **shown) as bar:
        for number, result in run_tasks(executor, solve, tasks, common):
            bar.update(len(tasks[number][-1]))
            yield tasks[number], result


@dataclass(frozen=True)
class _Source:
    """The architecture and the data of one sweep, and the folder, if any, with a file for every solved point.

    `settings` are all that determines the solution at a place; `solver_options` those of points still to be solved.
    """

    architecture: bpkr.Architecture
    data: bpkr.Data
    options: Mapping[str, Any]
    settings: Mapping[str, str]
    solver_options: str
    folder: Path | None

    def point_path(self, place: GridPoint) -> Path:
        """The file of a point."""
        return self.folder / _POINTS / f"{place}.nc".replace(", ", ",")

    def write(self, place: GridPoint, point: xr.Dataset) -> None:
        """Write the file of a point; replaces one that had failed or not converged."""
        point = point.assign_attrs(place=str(place), solver_options=self.solver_options)
        store.keep(point, self.settings, self.point_path(place))

    def read(self, place: GridPoint) -> xr.Dataset | None:
        """The point; None if it is missing, failed, or did not converge with other solver options than now."""
        path = self.point_path(place)
        kept = store.read_kept(path, self.settings)
        if kept is None:
            return None
        # the encoding of a number in one file cannot encode a dataset with missing points
        point = kept.drop_encoding()
        if point.attrs.pop("place", None) != str(place):
            raise ValueError(f"{path} is of another width or temperature: remove it")
        same_effort = point.attrs.pop("solver_options", None) == self.solver_options
        is_final = point["converged"].item() or (same_effort and point["result"].item() != _FAILED)
        return point if is_final else None


def _source(
    architecture: bpkr.Architecture, data: bpkr.Data, folder: Path | None, options: Mapping[str, Any]
) -> _Source:
    """The source of checked data. A folder of another sweep is refused, and so are options that name no run."""
    if unknown := sorted(set(options) - set(_DEFAULTS)):
        raise TypeError(f"unknown options of the solve: {', '.join(unknown)}; there are {', '.join(sorted(_DEFAULTS))}")
    given, numbers = dict(sorted({**_DEFAULTS, **options}.items())), architecture.with_arrays()
    settings = store.settings_of(
        "sweep",
        _VERSION,
        **{name: getattr(numbers, name) for name in _OF_ARCHITECTURE},
        **{name: getattr(data, name) for name in _OF_DATA},
        **{f"option {name}": value for name, value in given.items() if name not in _SOLVER_OPTIONS},
    )
    of_solver = store.describe(**{name: value for name, value in given.items() if name in _SOLVER_OPTIONS})
    if folder is not None:
        store.refuse_unknown({**settings, **{f"option {name}": value for name, value in of_solver.items()}})
        # absolute, for workers that run elsewhere
        folder = folder.absolute()
        # all points that are there are of one sweep
        for point in itertools.islice((folder / _POINTS).glob("width=*.nc"), 1):
            store.read_kept(point, settings)
    return _Source(architecture, data, options, settings, store.as_text(of_solver), folder)


# the source of the last seed of a call that this process has made, for a seed has several chains
_LATEST: dict[tuple[str, int], _Source] = {}


def _solve_chain_of_seed(
    architecture: bpkr.Architecture,
    data: Callable[[int], bpkr.Data],
    call: str,
    folder: Path | None,
    options: Mapping[str, Any],
    seed: int,
    chain: Sequence[GridPoint],
) -> tuple[Mapping[GridPoint, xr.Dataset], xr.Dataset]:
    """The points of a chain for the data of a seed, and their labelled test labels."""
    source = _LATEST.get((call, seed))
    if source is None:
        made = data(seed)
        if not isinstance(made, bpkr.Data):
            raise TypeError(f"data must return bpkr.Data of features and labels, got {shown(made)} for seed {seed}")
        made, folder = check_data(architecture, made), None if folder is None else folder / f"seed={seed}"
        source = _source(architecture, made, folder, options)
        _LATEST.clear()
        _LATEST[call, seed] = source
    return _solve_chain(source, chain), label_test_labels(source.data)


def _solve_chain(source: _Source, places: Sequence[GridPoint]) -> Mapping[GridPoint, xr.Dataset]:
    """The dataset of every place of a chain: from the folder, or else solved, in their order, and left there."""
    there = {place: None if source.folder is None else source.read(place) for place in places}
    points = {place: point for place, point in there.items() if point is not None}
    for place in places:
        if place not in points:
            start = nearest(place, [other for other in places if other in points and points[other]["converged"].item()])
            neighbour = None if start is None else (start, points[start])
            with warnings.catch_warnings():
                # one warning at the beginning of the sweep tells of the labels
                warnings.simplefilter("ignore", bpkr.LabelsWarning)
                points[place] = _solve_place(source, place, neighbour)
            if source.folder is not None:
                source.write(place, points[place])
    return points


def _solve_place(source: _Source, place: GridPoint, neighbour: tuple[GridPoint, xr.Dataset] | None) -> xr.Dataset:
    """The labelled solution at `place`, with its predictions; or, if the solve raises, a record of why.

    The solve starts from `neighbour`, a solved point, and from the Gaussian-process limit if there is none or that
    start does not converge. Of two solutions that have not converged, the one with the smaller gradient is kept.
    """
    architecture, began = place.architecture(source.architecture), time.perf_counter()
    starts, found = {_COLD: None}, {}
    try:
        problem = bpkr.Problem(architecture, source.data)
        if neighbour is not None:
            nearby, labelled = neighbour
            starts = {str(nearby): order_parameters_of(nearby.architecture(architecture), labelled), **starts}
        if place.is_infinitely_wide:
            point, start, message = bpkr.gp_limit(architecture), _COLD, ""
            solution = label_infinite_width(problem)
        else:
            for start, initial in starts.items():
                with warnings.catch_warnings():
                    # one warning at the end of the sweep names them all
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
    """One warning that lists every point that is no solution, of one sweep or of several."""
    axes = result["converged"].dims
    points = result[["converged", "message"]].stack(point=axes)
    unsolved = points.isel(point=~points["converged"].values)
    count = unsolved.sizes["point"]
    if not count:
        return
    listed = []
    for point in (unsolved.isel(point=i) for i in range(min(_NAMED, count))):
        listed.append(f"{', '.join(f'{axis}={point[axis].item()}' for axis in axes)}: {point['message'].item()}")
    more = f"; and {count - _NAMED} more" if count > _NAMED else ""
    message = f"{count} of {points.sizes['point']} points are not solutions: {'; '.join(listed)}{more}"
    warnings.warn(message, bpkr.ConvergenceWarning, stacklevel=4)
