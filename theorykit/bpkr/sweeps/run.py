"""Sweeps: solve at every point of a grid, starting from the nearest solved neighbour."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pandas as pd
import xarray as xr

from ... import bpkr
from ..._compat import require_float64
from ...checks import checked_number, checked_whole_number, refuse_traced
from ...runs import Folder, bar, in_parallel
from ...saddle import ConvergenceWarning
from ..data.classes import warn_of_class_numbers
from ..data.data import check_data
from ..evaluation.problem import architecture_and_data
from ..saddle.gaussian_fluctuations import corrected_evidence
from .datasets import label_solution, order_parameters_of

# Increase it if results change by more than the tolerance.
_VERSION = 5
_TOLERANCE = 1e-9
# Makes logarithms of T = 0 finite.
_COLDEST = 1e-12


def _width(value: Any) -> Any:
    """Return equal numbers for 10 and 10.0."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_width, value))
    number = value if value == math.inf else float(checked_number("width", value, above=0.0))
    return int(number) if float(number).is_integer() else number


def sweep(
    problem: bpkr.Problem | bpkr.Architecture,
    data: Any = None,
    *,
    width: Sequence[Any],
    temperature: Sequence[float],
    richness: Sequence[float] | None = None,
    seeds: Sequence[int] | None = None,
    folder: Path | str | None = None,
    n_jobs: int = 1,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Solve the saddle point at every width and temperature.

    At each width the temperature falls, and solves start from the nearest solution,
    or from the Gaussian-process limit. One `ConvergenceWarning` counts failures.

    Args:
        problem: the architecture with its data; other widths and temperatures are used.
        data: the data, if `problem` is an architecture; with `seeds`, a function of a seed.
        width: widths of all layers, or tuples (N_1, ..., N_L, N_a), labelled "10-20-20".
            `math.inf` is the Gaussian process (NNGP), or the limit with a richness.
        temperature: values of at least 0.
        richness: values of gamma_0, by default that of the architecture.
        seeds: numbers of several data sets.
        folder: keeps solutions, from which a sweep resumes, even with added values.
        n_jobs: number of processes for widths and seeds; -1 for all cores. For a cluster
            see `joblib.parallel_config`.
        options: passed to `bpkr.solve`.

    Returns:
        The variables of `label` over `width`, `temperature`, and any `seed`, `richness`;

        - `log_evidence_corrected`: to next order in the widths, if the theory holds.
        - `mean`, `variance`, `test_label` of test examples, and scores such as
          `test_accuracy` with `_error`.
        - `load`: training examples per unit of the narrowest layer.
        - `message`: the cause of a failure.

    Raises:
        FileExistsError: `folder` has another sweep.
    """
    require_float64()
    refuse_traced("sweep", problem, data)
    axes = {"width": [*map(_width, [width] if np.isscalar(width) else width)]}
    if seeds is not None:
        axes = {"seed": [checked_whole_number("seeds", seed) for seed in seeds], **axes}
    for axis, values in (("temperature", temperature), ("richness", richness)):
        if values is not None:
            axes[axis] = [float(checked_number(axis, value, least=0.0)) for value in np.atleast_1d(values)]
    for axis, values in axes.items():
        if not values or len(set(values)) < len(values):
            raise ValueError(f"{axis} must have at least one value, and none twice, got {values}")
    if seeds is None:
        architecture, data = architecture_and_data(problem, data)
        sets = {None: data}
    elif isinstance(problem, bpkr.Architecture) and callable(data):
        architecture = problem
        sets = {seed: data(seed) for seed in axes["seed"]}
    else:
        raise TypeError("seeds need an architecture, and data that is a function of a seed")
    falling = sorted(axes["temperature"], reverse=True)
    values = axes.get("richness", (None,))
    for each in axes["width"]:
        # Zero richness at a finite width fails at its own point.
        Place(None, each, falling[0], max(values)).architecture(architecture)
    of_points = attrgetter("widths", "temperature")
    same = eqx.tree_at(of_points, architecture.with_arrays(), replace_fn=lambda _: None)
    tasks = []
    for seed, given in sets.items():
        # A problem has checked its data.
        if not isinstance(problem, bpkr.Problem):
            given = sets[seed] = check_data(architecture, given)
            if given.classes is None:
                warn_of_class_numbers(given.labels, stacklevel=2)
        at = folder and Path(folder, "" if seed is None else f"seed={seed}")
        numbers = {"data": given, "tolerance": options.get("tolerance", _TOLERANCE)}
        kept = Folder.of(at, "sweep", _VERSION, architecture=same, **numbers)
        for each, value in product(axes["width"], values):
            chain = [Place(seed, each, temperature, value) for temperature in falling]
            tasks.append((architecture, given, options, kept, chain))
    points = {}
    total = len(tasks) * len(falling)
    with bar("saddle points", total, "point", shown=progress) as report:
        for _, solved in in_parallel(_solve_chain, tasks, n_jobs):
            points |= solved
            report.update(len(solved))
    result = _combined(axes, points)
    loads = np.divide.outer([each.examples for each in sets.values()], [np.min(each) for each in axes["width"]])
    result.coords["load"] = ("width", loads[0]) if seeds is None else (("seed", "width"), loads)
    labels = [np.asarray(each.test_labels) for each in sets.values() if each.test_labels is not None]
    if labels:
        values = labels[0] if seeds is None else np.stack(labels)
        dims = ("seed", "test_example", "output")[seeds is None :]
        result["test_label"] = dims[: values.ndim], values
    if failed := [place for place, point in points.items() if not point["converged"]]:
        first = f"{failed[0]}: {points[failed[0]]['message'].item()}"
        said = f"{len(failed)} of {len(points)} points are not solutions; the first is {first}"
        warnings.warn(said, ConvergenceWarning, stacklevel=2)
    return result


class Place(NamedTuple):
    seed: int | None
    width: Any
    temperature: float
    richness: float | None

    def __str__(self):
        richness = "" if self.richness is None else f", richness={self.richness!r}"
        return f"width={_label(self.width)}, temperature={self.temperature!r}{richness}"

    def architecture(self, like: bpkr.Architecture) -> bpkr.Architecture | None:
        """Return `like` with these numbers, or None for the Gaussian process."""
        width, ratios = self.width, like.width_ratios
        richness = like.richness if self.richness is None else self.richness
        if width == math.inf and richness is None:
            return None
        if width != math.inf and ratios is not None:
            width = width if isinstance(width, tuple) else tuple(width * ratio for ratio in ratios)
            ratios = None
        numbers = {"widths": width, "width_ratios": ratios, "richness": richness}
        return replace(like, temperature=self.temperature, **numbers)


def _label(width: Any) -> str:
    return "-".join(map(repr, width)) if isinstance(width, tuple) else repr(width)


def _solve_chain(architecture, data, options, folder, chain: Sequence[Place]) -> dict[Place, xr.Dataset]:
    """Return the points of a chain, solved in order, except those that `folder` has."""
    points = {place: point for place in chain if (point := folder.read(str(place))) is not None}
    for place in chain:
        if place in points:
            continue
        solved = [other for other in points if points[other]["converged"]]
        here = math.log(place.temperature + _COLDEST)
        solved.sort(key=lambda other: abs(math.log(other.temperature + _COLDEST) - here))
        neighbour = points[solved[0]] if solved else None
        with warnings.catch_warnings():
            # The sweep warns itself.
            warnings.simplefilter("ignore", bpkr.LabelsWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            points[place] = _solve_point(architecture, data, options, place, neighbour)
        if points[place]["converged"]:
            folder.write(str(place), points[place])
    return points


def _solve_point(like, data, options, place: Place, neighbour: xr.Dataset | None) -> xr.Dataset:
    """Label the end of the solve, which starts from a neighbour or the limit, or the error."""
    try:
        architecture = place.architecture(like)
        if architecture is None:
            limit = replace(like, widths=1.0, temperature=place.temperature)
            return label_solution(bpkr.Problem(limit, data), None, message="")
        problem = bpkr.Problem(architecture, data)
        initial = None if neighbour is None else order_parameters_of(architecture, neighbour)
        saddle = bpkr.solve(problem, initial=initial, **options)
        numbers = {"message": "" if saddle.converged else saddle.diagnosis}
        if not architecture.is_infinite:
            holds = saddle.converged and problem.forms_curvature and saddle.stats["units_per_path"] >= 1
            evidence = corrected_evidence(problem.canonical, saddle.order_parameters) if holds else math.nan
            numbers["log_evidence_corrected"] = float(evidence)
        return label_solution(problem, saddle, **numbers)
    except (ValueError, RuntimeError) as failure:
        return xr.Dataset({"converged": False, "message": str(failure)})


def _combined(axes, points: Mapping[Place, xr.Dataset]) -> xr.Dataset:
    """Return one dataset along all axes, with NaN for failed points."""
    table = pd.DataFrame(list(points), columns=Place._fields)
    if any(isinstance(each, tuple) for each in axes["width"]):
        axes = {**axes, "width": [*map(_label, axes["width"])]}
        table["width"] = table["width"].map(_label)
    rules = {"data_vars": "all", "coords": "minimal", "compat": "override", "combine_attrs": "override"}
    result = xr.concat(points.values(), "point", join="outer", **rules)
    index = pd.MultiIndex.from_frame(table[list(axes)])
    points = xr.Coordinates.from_pandas_multiindex(index, "point")
    result = result.assign_coords(points).unstack("point")
    names = {axis: np.array(values) for axis, values in axes.items()}
    return result.sel(names).assign_coords(names).transpose(*axes, ...)
