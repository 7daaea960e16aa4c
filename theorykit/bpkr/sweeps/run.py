"""Sweeps: solve the saddle point at every point of a grid, starting from the nearest solved neighbour."""

from __future__ import annotations

import itertools
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import xarray as xr

from ... import bpkr, store
from ...checks import checked_arguments, checked_number, checked_sequence, counted, refuse_traced, shown
from ...precision import require_float64
from ...progress import Progress
from ...workers import Workers, check_executor, run_tasks
from ..data.classes import warn_of_class_numbers
from ..data.data import check_data, data_line
from ..evaluation.problem import architecture_and_data
from ..saddle.gaussian_fluctuations import corrected_evidence
from .datasets import label_solution, of_test_examples, order_parameters_of

# Part of the settings of a sweep. Increase it if results change by more than the tolerance for the same arguments.
_VERSION = 3
# `start` of a solve without a neighbour.
_COLD = "Gaussian-process limit"
# The parts of an architecture that all points share, and the parts of data on which solutions depend.
_OF_ARCHITECTURE = ("layers", "prior_variances", "outputs", "read_tokens", "embedding", "richness", "width_ratios")
_OF_DATA = ("features", "labels", "test_features", "test_labels", "omitted")
_TOLERANCE = 1e-9
# Replaces T = 0 in logarithms of temperatures; it is below the temperatures in use.
_SMALLEST_TEMPERATURE = 1e-12

Number = int | float
Width = Number | tuple[Number, ...]
Widths = Annotated[Sequence[Width], partial(checked_sequence, what="widths")]
Temperatures = Annotated[Sequence[Number], partial(checked_sequence, what="temperatures")]
Richness = Annotated[Sequence[Number], partial(checked_sequence, what="values of the richness")]


@checked_arguments
def sweep(
    problem: bpkr.Problem | bpkr.Architecture,
    data: Any = None,
    *,
    width: Widths,
    temperature: Temperatures,
    richness: Richness | None = None,
    seeds: Sequence[int] | None = None,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Solve the saddle point at every width and temperature. Return one dataset over (width, temperature).

    The dataset also has an axis of the richness if `richness` is given, and of seeds if `seeds` are given.

    At each width the temperature decreases from the highest, and each solve starts from the nearest converged solution.
    If it does not converge from there, it is retried from the Gaussian-process limit. Points that do not converge are
    flagged. If a solve raises an error, the point has the error as `message`. One `ConvergenceWarning` at the end
    counts all these points.

    Args:
        problem: the architecture with its data; its widths and temperature are not used.
        data: the data, if `problem` is an architecture. With test features each point also predicts, and with test
            labels it scores the predictions. With `seeds`, a function that returns the data of a seed.
        width: values of the axis `width`. Each is the width of all layers, or a tuple of the widths of all layers
            (N_1, ..., N_L, N_a), which gets a label such as "10-20-20". `math.inf` is the Gaussian process of
            infinitely wide layers (NNGP), where order parameters have their prior values, `log_evidence` is exact, and
            there is no `action`. With a richness, it is the limit with learned features, where the variables that
            depend on the width have other names, such as `log_evidence_per_width` and `variance_times_width`.
        temperature: values of the axis `temperature`, at least 0.
        richness: values of the richness gamma_0; by default that of the architecture.
        seeds: numbers of several data sets, such as draws of random heads.
        folder: every point is written here once it is solved; each seed has a subfolder. A stopped sweep resumes from
            here, even with added values. Points that failed or did not converge are solved again.
        executor: selects where widths and seeds are solved in parallel: in threads, in spawned processes, such as
            `theorykit.workers.local_workers`, or on a dask `Client`. Results other than `seconds` do not depend on the
            number of workers, if each worker has the same number of cores.
        progress: show a bar.
        options: passed to `bpkr.solve`.

    Returns:
        A dataset with these variables. A failed point has only `converged`, `result`, and the last three.

        - the variables of `label`, for a solve.
        - `units_per_path`: the theory does not hold at points where it is below one, and `best` leaves them out.
        - `log_evidence_corrected`: the log marginal likelihood to next order in the widths, by which `best` ranks. It
          is NaN if the theory does not hold, or with so many paths that solvers do not form the Hessian.
        - `mean` and `variance` of the output on test examples, and `test_label`.
        - with test labels, `test_error`; for classes also `test_accuracy` and `test_log_loss`, both with errors, and
          `test_confusion`; for numbers also `test_r_squared`.
        - `load`: a coordinate, the number of training examples P per unit of the narrowest layer, P/N.
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
        >>> found = sweeps.sweep(arch, data, width=[10, math.inf], temperature=[0.1, 0.01], progress=False)
        >>> dict(found.sizes)["width"], found.load.values.tolist()
        (2, [2.0, 0.0])
    """
    require_float64()
    refuse_traced("sweep", problem)
    check_executor(executor)
    if seeds is None:
        refuse_traced("sweep", data)
        architecture, data = architecture_and_data(problem, data)
        axes, sets = _checked_axes(architecture, width, temperature, richness), {0: data}
    else:
        if not isinstance(problem, bpkr.Architecture) or not callable(data):
            raise TypeError("seeds need an architecture, and data that is a function of a seed and returns bpkr.Data")
        if not seeds or len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must be at least one number without repetitions, got {list(seeds)}")
        architecture = problem
        axes = _checked_axes(architecture, width, temperature, richness)
        sets = {seed: data(seed) for seed in seeds}
    sources = {}
    for seed, given in sets.items():
        # A problem has checked its data.
        if not isinstance(problem, bpkr.Problem):
            given = check_data(architecture, given)
            if given.classes is None:
                warn_of_class_numbers(given.labels, stacklevel=3)
        # Workers may run in another directory, so make the path absolute.
        place = None if folder is None else Path(folder, "" if seeds is None else f"seed={seed}").absolute()
        sources[seed] = _source(architecture, given, place, options)
    widths, temperatures, values = axes["width"], axes["temperature"], axes.get("richness", (None,))
    # A chain starts from the Gaussian-process limit and goes down in temperature. Chains can be solved in parallel.
    chains = [
        (seed, [GridPoint(each, at, value) for at in sorted(temperatures, reverse=True)])
        for seed in sources
        for each in widths
        for value in values
    ]
    points = {(seed, place): sources[seed].read(place) for seed, chain in chains for place in chain}
    kept = {key: point for key, point in points.items() if point is not None}
    known = [{place: kept[seed, place] for place in chain if (seed, place) in kept} for seed, chain in chains]
    tasks = [(*task, found) for task, found in zip(chains, known, strict=True) if len(found) < len(task[1])]
    sizes = {"data set": sources, **axes} if seeds else axes
    size = " x ".join(counted(len(each), name) for name, each in sizes.items())
    cost = f"{size}; {data_line(next(iter(sources.values())).data)}"
    with Progress("saddle points", len(points), "point", shown=progress, cost=cost) as report:
        report.update(len(kept))
        # Workers report only complete chains.
        solve = _solve_chain if executor is not None else partial(_solve_chain, advance=report.update)
        for number, solved in run_tasks(executor, solve, tasks, (sources,)):
            seed, chain, found = tasks[number]
            if executor is not None:
                report.update(len(chain) - len(found))
            for place, point in solved.items():
                points[seed, place] = point
                # A worker may not have access to the folder.
                sources[seed].write(place, point, overwrite=False)

    # `combine_nested` joins the last axis of the result first. Missing values of failed points are NaN.
    nested = [
        [[[points[seed, GridPoint(each, at, value)] for seed in sources] for each in widths] for at in temperatures]
        for value in values
    ]
    rules = {"data_vars": "all", "coords": "minimal", "compat": "override", "combine_attrs": "override"}
    result = xr.combine_nested(nested, ["richness", "temperature", "width", "seed"], join="outer", **rules)
    has_labels = any(isinstance(each, tuple) for each in widths)
    coordinates = {**axes, "width": list(map(_width_label, widths)) if has_labels else list(widths)}
    coordinates |= {} if seeds is None else {"seed": list(sources)}
    absent = {"seed", "richness"} - set(coordinates)
    result = result.isel(dict.fromkeys(absent, 0), drop=True)
    result = result.assign_coords({axis: list(each) for axis, each in coordinates.items()})
    narrowest = [min(each) if isinstance(each, tuple) else each for each in widths]
    found = []
    for source in sources.values():
        numbers = {"load": ("width", np.divide(source.data.replaces or len(source.data.labels), narrowest))}
        if source.data.test_labels is not None:
            numbers["test_label"] = of_test_examples(source.data.test_labels)
        found.append(xr.Dataset(numbers))
    of_data = found[0] if seeds is None else xr.concat(found, "seed", data_vars="all")
    settings = [source.settings for source in sources.values()]
    result = (
        result.assign(of_data)
        .set_coords("load")
        .assign_attrs(settings=json.dumps(settings[0] if seeds is None else settings))
    )
    _warn_of_unsolved(result)
    return result


@dataclass(frozen=True)
class GridPoint:
    """A point of the grid: the width of all layers, or the widths (N_1, ..., N_L, N_a); temperature; and richness."""

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


def _checked_axes(
    architecture: bpkr.Architecture,
    width: Sequence[Any],
    temperature: Sequence[Any],
    richness: Sequence[Any] | None,
) -> dict[str, tuple[Any, ...]]:
    """Return the values of every axis as plain numbers, after checking them against the architecture."""

    def plain(name: str, each: Any) -> Width:
        if isinstance(each, (tuple, list)):
            if math.inf in each:
                raise ValueError(f"{name} is infinite for only some layers, got {shown(each)}; use math.inf for all")
            return tuple(plain(f"{name}[{i}]", one) for i, one in enumerate(each))
        if isinstance(each, (float, np.floating)) and each == math.inf:
            return math.inf
        number = float(checked_number(name, each, above=0.0))
        # Whole numbers become integers, so that 10 and 10.0 are the same.
        return int(number) if number.is_integer() else number

    given = {"temperature": temperature} | ({} if richness is None else {"richness": richness})
    axes: dict[str, tuple[Any, ...]] = {"width": tuple(plain(f"width[{i}]", each) for i, each in enumerate(width))}
    for name, values in given.items():
        axes[name] = tuple(float(checked_number(f"{name}[{i}]", each, least=0.0)) for i, each in enumerate(values))
    for name, values in axes.items():
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{name} must have at least one value, and none twice, got {list(values)}")
    for each in axes["width"]:
        # Zero richness is valid only at infinite width, so such a point fails alone.
        rich = None if richness is None else max(axes["richness"])
        GridPoint(each, axes["temperature"][0], rich).architecture(architecture)
    return axes


def _width_label(width: Width) -> str:
    """Format a width, or the widths of all layers, such as "10-20-20"."""
    return "-".join(f"{n!r}" for n in width) if isinstance(width, tuple) else f"{width!r}"


@dataclass(frozen=True)
class _Source:
    """The architecture and the data of one data set, and the folder, if any, with a file for every solved point.

    `settings` determine the solution at every point.
    """

    architecture: bpkr.Architecture
    data: bpkr.Data
    options: Mapping[str, Any]
    settings: Mapping[str, str]
    folder: Path | None

    def read(self, place: GridPoint) -> xr.Dataset | None:
        """Read a point, or return None if it is not kept."""
        kept = None if self.folder is None else store.read_kept(self._path(place), self.settings)
        # The encoding of a single file does not fit a dataset with missing points.
        return None if kept is None else kept.drop_encoding()

    def write(self, place: GridPoint, point: xr.Dataset, *, overwrite: bool = True) -> None:
        """Keep a solution. Other points are solved again."""
        if self.folder is None or not point["converged"] or not (overwrite or not self._path(place).exists()):
            return
        store.keep(point, self.settings, self._path(place))

    def _path(self, place: GridPoint) -> Path:
        return self.folder / "points" / f"{place}.nc".replace(", ", ",")


def _source(
    architecture: bpkr.Architecture, data: bpkr.Data, folder: Path | None, options: Mapping[str, Any]
) -> _Source:
    """Describe the run by its settings; raise an error for the folder of another sweep."""
    numbers = architecture.with_arrays()
    settings = store.settings_of(
        "sweep",
        _VERSION,
        **{name: getattr(numbers, name) for name in _OF_ARCHITECTURE if getattr(numbers, name) is not None},
        **{name: getattr(data, name) for name in _OF_DATA},
        tolerance=options.get("tolerance", _TOLERANCE),
    )
    if folder is not None:
        # All points in a folder belong to the same sweep, so it is enough to check one.
        for point in itertools.islice((folder / "points").glob("width=*.nc"), 1):
            store.read_kept(point, settings)
    return _Source(architecture, data, options, settings, folder)


def _solve_chain(
    sources: Mapping[int, _Source],
    seed: int,
    chain: Sequence[GridPoint],
    known: Mapping[GridPoint, xr.Dataset],
    advance: Callable[[], object] = lambda: None,
) -> Mapping[GridPoint, xr.Dataset]:
    """Return the datasets of the points of a chain that are not `known`, solved in order."""
    source, solved, points = sources[seed], dict(known), {}
    for place in chain:
        if place in known:
            continue

        def distance(other: GridPoint, place: GridPoint = place) -> float:
            here, there = (math.log(max(at.temperature, _SMALLEST_TEMPERATURE)) for at in (place, other))
            return abs(here - there)

        nearby = min(solved, key=distance, default=None)
        with warnings.catch_warnings():
            # The sweep warns of the labels once, when it begins, and of failures once, when it ends.
            warnings.simplefilter("ignore", bpkr.LabelsWarning)
            warnings.simplefilter("ignore", bpkr.ConvergenceWarning)
            point = points[place] = _solve_point(source, place, nearby, solved.get(nearby))
        if point["converged"]:
            solved[place] = point
            source.write(place, point)
        advance()
    return points


def _solve_point(
    source: _Source, place: GridPoint, nearby: GridPoint | None, neighbour: xr.Dataset | None
) -> xr.Dataset:
    """Return the labelled solution at `place` with its predictions, or a record of the error if the solve fails.

    The solve starts from `neighbour`, the solution at `nearby`. Without a neighbour, or if the solve does not converge,
    it starts from the Gaussian-process limit. If neither solve converges, the result with the smaller gradient is kept.
    """
    began, like, found = time.perf_counter(), source.architecture, {}
    try:
        problem = bpkr.Problem(place.architecture(like), source.data)
        if place.is_gaussian_process(like):
            solution = label_solution(problem, None)
            return solution.assign(start=_COLD, message="", seconds=time.perf_counter() - began)
        if neighbour is not None:
            initial = order_parameters_of(nearby.architecture(like), neighbour)
            # The start from the limit tells whether the problem has a solution.
            with suppress(ValueError):
                found[str(nearby)] = bpkr.solve(problem, initial=initial, **source.options)
        if not any(saddle.converged for saddle in found.values()):
            found[_COLD] = bpkr.solve(problem, initial=None, **source.options)
        start, saddle = min(found.items(), key=lambda item: (not item[1].converged, float(item[1].gradient_norm)))
        seconds = time.perf_counter() - began
        further = {"start": start, "message": "" if saddle.converged else saddle.diagnosis, "seconds": seconds}
        if not problem.architecture.is_infinite:
            holds = saddle.converged and problem.forms_curvature and saddle.stats["units_per_path"] >= 1
            evidence = corrected_evidence(problem.canonical, saddle.order_parameters) if holds else math.nan
            further["log_evidence_corrected"] = float(evidence)
        return label_solution(problem, saddle, **further)
    except (ValueError, RuntimeError) as failure:
        record = {"converged": False, "result": "failed", "start": "", "message": str(failure)}
        return xr.Dataset(record | {"seconds": time.perf_counter() - began})


def _warn_of_unsolved(result: xr.Dataset) -> None:
    """Issue one warning of all points that are not solutions."""
    points = result[["converged", "message"]].stack(point=result["converged"].dims)
    unsolved = points.isel(point=~points["converged"].values.astype(bool))
    if unsolved.sizes["point"]:
        first = unsolved.isel(point=0)
        place = ", ".join(f"{axis}={first[axis].item()}" for axis in result["converged"].dims)
        warnings.warn(
            f"{unsolved.sizes['point']} of {points.sizes['point']} points are not solutions, see `message`; the first "
            f"is {place}: {first['message'].item()}",
            bpkr.ConvergenceWarning,
            stacklevel=4,
        )
