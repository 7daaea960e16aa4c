"""A chain of points of a sweep, each solved from its neighbour or else from the start, predicted from, and labelled."""

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from ... import bpkr
from .datasets import label_infinite_width, label_saddle, order_parameters_of, predict_test_examples
from .folder import FAILED, SweepFolder
from .grid import GridPoint, nearest

COLD = "Gaussian-process limit"


def solve_chain(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    folder: SweepFolder | None,
    options: Mapping[str, Any],
    places: Sequence[GridPoint],
) -> Mapping[GridPoint, xr.Dataset]:
    """The dataset of every place of a chain: from the folder, or else solved, in their order, and left there."""
    there = {place: None if folder is None else folder.read(place) for place in places}
    points = {place: point for place, point in there.items() if point is not None}
    for place in places:
        if place not in points:
            start = nearest(place, [other for other in places if other in points and points[other]["converged"].item()])
            neighbour = None if start is None else (start, points[start])
            points[place] = solve_place(architecture, data, place, neighbour, options)
            if folder is not None:
                folder.write(place, points[place])
    return points


def solve_place(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    place: GridPoint,
    neighbour: tuple[GridPoint, xr.Dataset] | None,
    options: Mapping[str, Any],
) -> xr.Dataset:
    """The labelled solution at `place`, with its predictions; or, where the solve raises, a record of why.

    Starts from `neighbour`, a solved point; and from the Gaussian-process limit if there is none or that start does not
    converge. Of two solutions that have not converged, the one with the smaller gradient is kept. Where the width is
    infinite, that limit itself.

    Adds to `label_saddle` and the predictions: `start`, where the solve started; `seconds` it took, a compilation
    included; `message`, what went wrong, empty of a solution. A point that failed has nothing else.
    """
    architecture = place.architecture(architecture)
    began = time.perf_counter()
    try:
        if place.is_infinitely_wide:
            point, start, message = bpkr.gp_limit(architecture), COLD, ""
            solution = label_infinite_width(architecture, data)
        else:
            saddle, start = _solve(architecture, data, neighbour, options)
            point, message = saddle.order_parameters, "" if saddle.converged else saddle.diagnosis
            solution = label_saddle(architecture, saddle)
        seconds = time.perf_counter() - began
        described = [solution, *predict_test_examples(architecture, data, point)]
    except (ValueError, RuntimeError) as failure:
        seconds = time.perf_counter() - began
        record = {"converged": False, "result": FAILED, "start": "", "message": str(failure), "seconds": seconds}
        return xr.Dataset(record)
    return xr.merge([*described, xr.Dataset({"start": start, "message": message, "seconds": seconds})])


def _solve(architecture, data, neighbour, options) -> tuple[bpkr.Saddle, str]:
    """The solution, and where the solve that found it started."""
    starts = {COLD: None}
    if neighbour is not None:
        place, solution = neighbour
        starts = {str(place): order_parameters_of(place.architecture(architecture), solution), **starts}
    found: dict[str, bpkr.Saddle] = {}
    for start, initial in starts.items():
        with warnings.catch_warnings():
            # one warning at the end of the sweep names them all, and one at its beginning tells of the labels
            warnings.simplefilter("ignore", bpkr.ConvergenceWarning)
            warnings.simplefilter("ignore", bpkr.LabelsWarning)
            try:
                found[start] = bpkr.solve(architecture, data.features, data.labels, initial=initial, **options)
            except ValueError:
                if initial is None and not found:
                    raise
                continue
        if found[start].converged:
            return found[start], start
    start = min(found, key=lambda name: float(found[name].gradient_norm))
    return found[start], start
