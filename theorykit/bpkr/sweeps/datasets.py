"""Sweeps over widths, temperatures and seeds, and labelled results."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
import pandas as pd
import xarray as xr

from ... import bpkr, checks
from ..._compat import require_float64
from ...checks import checked_choice, checked_instance, checked_number, checked_whole_number, refuse_traced
from ...runs import Folder, bar, in_parallel
from ...saddle import ConvergenceWarning
from ..data.classes import outputs_as_classes, r_squared, warn_of_class_numbers
from ..data.data import check_data
from ..evaluation.problem import architecture_and_data
from ..evaluation.values import evaluate_infinite_width
from ..order_parameters import checked_order_parameters
from ..saddle.gaussian_fluctuations import corrected_evidence

# Increase it if results change by more than the tolerance.
_VERSION = 5
_TOLERANCE = 1e-9
# Makes logarithms of T = 0 finite.
_COLDEST = 1e-12
# Scores that choose a point of a sweep.
_GAINS = ("test_accuracy", "test_r_squared", "log_evidence", "log_evidence_corrected")
_LOSSES = ("test_error", "test_log_loss")


def _width(value: Any) -> Any:
    """Return equal numbers for 10 and 10.0."""
    if np.ndim(value) == 1:
        return tuple(map(_width, value))
    number = value if value == math.inf else float(checked_number("width", value, above=0.0))
    return int(number) if float(number).is_integer() else number


def sweep(
    problem: bpkr.Problem | bpkr.Architecture,
    data: Any = None,
    *,
    width: Sequence[Any],
    temperature: Sequence[float] | np.ndarray,
    richness: Sequence[float] | np.ndarray | None = None,
    seeds: Sequence[int] | None = None,
    folder: Path | str | None = None,
    n_jobs: int = 1,
    progress: bool = True,
    **options: Any,
) -> xr.Dataset:
    """Solve the saddle point at every width and temperature.

    Solves start from the nearest temperature. One `ConvergenceWarning` counts failures.

    Args:
        problem: the architecture with its data; other widths and temperatures are used.
        data: the data, if `problem` is an architecture; with `seeds`, a function of a seed.
        width: widths of all layers, or tuples (N_1, ..., N_L, N_a), labelled "10-20-20".
            `math.inf` is the Gaussian process (NNGP), or the limit with a richness.
        temperature: values of at least 0.
        richness: values of gamma_0, by default that of the architecture.
        seeds: numbers of several data sets.
        folder: keeps solutions, from which a sweep resumes, even with added values.
        n_jobs: number of processes or of `joblib.parallel_config`; -1 for all cores.
        options: `solver`, `tolerance` and `max_steps` of `bpkr.solve`.

    Returns:
        The variables of `label`, `log_evidence_corrected` to next order in 1/N,
        predictions and scores of test examples, `load` P/N, and `message`, the cause of
        a failure.

    Raises:
        FileExistsError: `folder` has another sweep.
    """
    require_float64()
    refuse_traced("sweep", problem, data)
    axes = {"width": [*map(_width, checks.checked_sequence("width", width, "widths"))]}
    if seeds is not None:
        seeds = checks.checked_sequence("seeds", seeds, "whole numbers")
        axes = {"seed": [checked_whole_number("seeds", seed) for seed in seeds], **axes}
    for axis, values in (("temperature", temperature), ("richness", richness)):
        if values is not None:
            values = checks.checked_sequence(axis, values, "numbers")
            axes[axis] = [float(checked_number(axis, value, least=0.0)) for value in values]
    for axis, values in axes.items():
        if not 0 < len(values) == len(set(values)):
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
    plain = architecture.with_arrays()
    same = eqx.tree_at(lambda of: (of.widths, of.temperature), plain, replace_fn=lambda _: None)
    tasks = []
    for seed, given in sets.items():
        given = sets[seed] = check_data(architecture, given)
        if given.classes is None:
            warn_of_class_numbers(given.labels)
        at = folder and Path(checked_instance("folder", folder, (str, Path)), "" if seed is None else f"seed={seed}")
        numbers = {"data": given, "tolerance": options.get("tolerance", _TOLERANCE)}
        kept = Folder.of(at, "sweep", _VERSION, architecture=same, **numbers)
        for each, value in product(axes["width"], values):
            chain = [Place(seed, each, temperature, value) for temperature in falling]
            tasks.append((architecture, given, options, kept, chain))
    points, read, total = {}, 0, len(tasks) * len(falling)
    with bar("saddle points", total, "point", shown=progress) as report:
        for _, (solved, kept) in in_parallel(_solve_chain, tasks, n_jobs):
            points |= solved
            read += kept
            report.update(len(solved))
        if read and progress:
            report.write(f"{read} of {total} points were read from {folder}")
    result = _combined(axes, points)
    narrowest = list(map(np.min, axes["width"]))
    loads = np.divide.outer([len(each.features) for each in sets.values()], narrowest)
    result.coords["load"] = ("width", loads[0]) if seeds is None else (("seed", "width"), loads)
    if given.test_labels is not None:
        labels = np.stack([each.test_labels for each in sets.values()])
        dims = ("seed", "test_example", "output")[: labels.ndim]
        result["test_label"] = (dims[1:], labels[0]) if seeds is None else (dims, labels)
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


def _solve_chain(architecture, data, options, folder, chain: Sequence[Place]):
    """Return the points of a chain, and how many of them `folder` had."""
    kept = {place: folder.read(str(place)) for place in chain}
    points = {place: point for place, point in kept.items() if point is not None}
    read = len(points)
    for place in [place for place in chain if place not in points]:
        solved = [other for other in points if points[other]["converged"]]
        here = math.log(place.temperature + _COLDEST)
        nearest = min(solved, key=lambda other: abs(math.log(other.temperature + _COLDEST) - here), default=None)
        with warnings.catch_warnings():
            # The sweep warns itself.
            warnings.simplefilter("ignore", bpkr.LabelsWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            points[place] = _solve_point(architecture, data, options, place, points.get(nearest))
        if points[place]["converged"]:
            folder.write(str(place), points[place])
    return points, read


def _solve_point(like, data, options, place: Place, neighbour) -> xr.Dataset:
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
            numbers["log_evidence_corrected"] = math.nan
            holds = saddle.converged and saddle.stats["units_per_path"] >= 1
            if holds and problem.forms_curvature:
                evidence = corrected_evidence(problem.canonical, saddle.order_parameters)
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
    result = xr.concat(points.values(), "point", data_vars="all", coords="minimal", compat="override", join="outer")
    index = pd.MultiIndex.from_frame(table[list(axes)])
    points = xr.Coordinates.from_pandas_multiindex(index, "point")
    result = result.assign_coords(points).unstack("point")
    return result.sel(axes).assign_coords(axes).transpose(*axes, ...)


def label(
    architecture: bpkr.Architecture,
    point: bpkr.OrderParameters | bpkr.Saddle | None,
    *,
    along: Sequence[str] = (),
    **numbers: Any,
) -> xr.Dataset:
    """Label order parameters and other numbers in one dataset.

    Args:
        architecture: the architecture that was solved.
        point: order parameters, the result of `bpkr.solve`, or None.
        along: names of leading axes of all arrays, such as ("chain", "draw").
        numbers: numbers, text, arrays (test_examples, outputs), or pairs (axes, values).

    Returns:
        A dataset with `U_l` (path_l, other_path_l), where "21:2" is path 21 to output 2;
        `u`; and `numbers`. A solve adds fields of `Saddle`, its `stats`, and
        `head_score_l` (head_l). At infinite width with a richness, actions and evidence
        end in `_per_width`, variances in `_times_width`, and there is no log loss.
    """
    checked_instance("architecture", architecture, bpkr.Architecture)
    if isinstance(point, bpkr.Saddle):
        saddle, point = point, point.order_parameters
        suffix = "_per_width" if architecture.is_infinite else ""
        of_solve = {"converged": bool(saddle.converged)}
        of_solve |= {name: getattr(saddle, name) for name in ("gradient_norm", "min_hessian_eigenvalue")}
        for name in ("action", "entropy", "energy", "log_evidence"):
            of_solve[name + suffix] = getattr(saddle, name)
        # Unlike a Boolean, a number can be missing.
        of_solve |= {name: np.asarray(value).item() + 0 for name, value in saddle.stats.items()}
        numbers = {**of_solve, **_head_scores(architecture, point), **numbers}
    if point is not None:
        checked_instance("point", point, bpkr.OrderParameters, "or a Saddle")
        matrices = {f"U_{layer}": matrix for layer, matrix in enumerate(point.matrices, 1)}
        numbers = {**matrices, "u": point.readout, **numbers}
    layers = range(1, architecture.depth + 1)
    own = {f"U_{layer}": axes(layer) for layer in layers}
    read = "token" if architecture.read_tokens > 1 else "output"
    own["u"] = read, f"other_{read}"
    for name, value in numbers.items():
        if isinstance(value, tuple):
            dims, value = value
        else:
            dims = (*along, *own.get(name, ("test_example", "output")))[: np.ndim(value)]
        numbers[name] = dims, np.asarray(value)
    found = xr.Dataset(numbers)
    names = {axis: path_names(architecture, layer) for layer in layers for axis in axes(layer)}
    return found.assign_coords({axis: names[axis] for axis in names if axis in found.dims})


def axes(layer: int) -> tuple[str, str]:
    return f"path_{layer}", f"other_path_{layer}"


def path_names(architecture: bpkr.Architecture, layer: int) -> list[str]:
    paths, count = architecture.path_labels(layer), architecture.outputs
    return [f"{path}:{i + 1}" if count > 1 else path for path in paths for i in range(count)]


def _head_scores(architecture, point) -> dict[str, Any]:
    scores = enumerate(bpkr.head_scores(architecture, point), 1)
    return {f"head_score_{layer}": ((f"head_{layer}",), each) for layer, each in scores if len(each)}


def label_solution(problem: bpkr.Problem, saddle: bpkr.Saddle | None, **numbers: Any) -> xr.Dataset:
    architecture, data, point = problem.architecture, problem.data, saddle
    if saddle is None:
        point = bpkr.gp_limit(architecture)
        energy, evidence = evaluate_infinite_width(problem)
        numbers |= {"energy": energy, "log_evidence": evidence, "converged": True}
        numbers |= {"log_evidence_corrected": evidence, **_head_scores(architecture, point)}
    if data.test_features is not None:
        prediction = bpkr.predict(problem, point)
        numbers["mean"] = prediction.mean
        unit = "_times_width" if architecture.has_sharp_outputs else ""
        numbers[f"variance{unit}"] = prediction.variance
        if data.test_labels is not None:
            numbers |= _scores(prediction, data.test_labels, architecture)
    return label(architecture, point, **numbers)


def _scores(prediction: bpkr.Prediction, labels, architecture) -> dict[str, Any]:
    mean, labels = np.asarray(prediction.mean), np.asarray(labels)
    found = {"test_error": np.mean((mean - labels) ** 2)}
    classes, truth = outputs_as_classes(labels)
    if classes is None:
        return found | {"test_r_squared": r_squared(mean, labels)}
    covariance = prediction.with_noise(architecture.label_noise)
    scores = classes.score(np.array(classes.names)[truth], mean, covariance)
    if architecture.is_infinite:
        # The variance is not in units of the labels.
        del scores["log_loss"], scores["log_loss_error"]
    found["class"] = "class", list((prediction.classes or classes).names)
    return found | {f"test_{name}": value for name, value in scores.items()}


def order_parameters_of(architecture: bpkr.Architecture, solution: xr.Dataset) -> bpkr.OrderParameters:
    """Return the order parameters in the result of `label`, or in one point of a sweep."""
    checked_instance("solution", solution, xr.Dataset)
    matrices = []
    for layer in range(1, architecture.depth + 1):
        matrix = solution.get(f"U_{layer}", xr.DataArray())
        wanted = dict.fromkeys(axes(layer), path_names(architecture, layer))
        given = {axis: matrix[axis].values.tolist() for axis in matrix.dims}
        if given != wanted:
            raise ValueError(f"U_{layer} must have the axes {wanted}, got {given}")
        matrices.append(matrix.values)
    return checked_order_parameters(architecture, bpkr.OrderParameters(matrices, solution["u"].values))


def best(result: xr.Dataset, score: str = "log_evidence") -> dict[str, Any]:
    """Return the numbers with the best mean score over seeds, for `Model.set_params`.

    Points without a solution, or where the theory does not hold, are left out, with a warning.

    Args:
        result: from `sweep` or `Model.sweep`.
        score: a test score, or "log_evidence", corrected if all points have it.

    Raises:
        ValueError: no such score, or no point is left.
    """
    if "width" not in getattr(result, "coords", ()):
        raise TypeError(f"result must be a sweep, with widths, got {checks.shown(result)}")
    checked_choice("score", score, [name for name in (*_GAINS, *_LOSSES) if name in result])
    # The Gaussian process has no units.
    holds = result["converged"].astype(bool) & ~(result.get("units_per_path", xr.DataArray(np.nan)) < 1)
    left = f"{int((~holds).sum())} of {holds.size} points have no solution or `units_per_path` < 1"
    if not holds.all():
        warnings.warn(f"{left}, and are left out", stacklevel=2)
    values = result[score].where(holds)
    if score == "log_evidence" and "log_evidence_corrected" in result:
        corrected = result["log_evidence_corrected"].where(holds)
        values = corrected if corrected.notnull().equals(values.notnull()) else values
    chosen = "width", "temperature", "richness"
    values = values.mean(set(values.dims) - set(chosen))
    if not values.notnull().any():
        raise ValueError(f"{score} has no value: {left}")
    point = values[values.argmin(...) if score in _LOSSES else values.argmax(...)]
    place = {name: point[name].item() for name in chosen if name in point.coords}
    if isinstance(widths := place.pop("width"), str):
        one, *more = map(float, widths.split("-"))
        widths = (one, *more) if more else one
    return {"widths": widths, **place}
