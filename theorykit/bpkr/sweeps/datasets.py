"""Label order parameters and results with the names of their axes, and read them back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from ... import bpkr
from ...checks import checked_choice, checked_instance, refuse_traced
from ..data.classes import outputs_as_classes, r_squared
from ..evaluation.values import evaluate_infinite_width
from ..order_parameters import checked_order_parameters

# Scores that choose a point of a sweep.
_GAINS = ("test_accuracy", "test_r_squared", "log_evidence", "log_evidence_corrected")
_LOSSES = ("test_error", "test_log_loss", "action")


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
        `head_score_l` (head_l). At infinite width with a richness, names of actions and
        evidence end in `_per_width`.
    """
    refuse_traced("label", architecture, point, reason="returns an xarray dataset")
    if isinstance(point, bpkr.Saddle):
        saddle, point = point, point.order_parameters
        suffix = "_per_width" if architecture.is_infinite else ""
        of_solve = {name: getattr(saddle, name) for name in ("gradient_norm", "min_hessian_eigenvalue")}
        for name in ("action", "entropy", "energy", "log_evidence"):
            of_solve[name + suffix] = getattr(saddle, name)
        of_solve["converged"] = bool(saddle.converged)
        # Unlike a Boolean, a number can be missing.
        of_solve |= {name: np.asarray(value).item() + 0 for name, value in saddle.stats.items()}
        numbers = {**of_solve, **_head_scores(architecture, point), **numbers}
    if point is not None:
        matrices = {f"U_{layer}": matrix for layer, matrix in enumerate(point.matrices, 1)}
        numbers = {**matrices, "u": point.readout, **numbers}
    layers = range(1, architecture.depth + 1)
    own = {f"U_{layer}": axes(layer) for layer in layers}
    own["u"] = ("token", "other_token") if architecture.read_tokens > 1 else ("output", "other_output")
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
    """Return the labels along both axes of U_l."""
    count = architecture.outputs
    outputs = [f":{output + 1}" for output in range(count)] if count > 1 else [""]
    return [path + output for path in architecture.path_labels(layer) for output in outputs]


def _head_scores(architecture, point) -> dict[str, Any]:
    scores = enumerate(bpkr.head_scores(architecture, point), 1)
    return {f"head_score_{layer}": ((f"head_{layer}",), each) for layer, each in scores if len(each)}


def label_solution(problem: bpkr.Problem, saddle: bpkr.Saddle | None, **numbers: Any) -> xr.Dataset:
    """Label a solution, or the Gaussian process (NNGP), with predictions and their scores.

    At infinite width with a richness there is `variance_times_width`, and no log loss.
    """
    architecture, data, point = problem.architecture, problem.data, saddle
    if saddle is None:
        point = bpkr.gp_limit(architecture)
        energy, evidence = evaluate_infinite_width(problem)
        numbers |= {"energy": energy, "log_evidence": evidence, "log_evidence_corrected": evidence}
        numbers |= {"converged": True, **_head_scores(architecture, point)}
    if data.test_features is not None:
        prediction = bpkr.predict(problem, point)
        numbers["mean"] = prediction.mean
        unit = "_times_width" if architecture.has_sharp_outputs else ""
        numbers[f"variance{unit}"] = prediction.variance
        if data.test_labels is not None:
            numbers |= _scores(prediction, np.asarray(data.test_labels), architecture)
    return label(architecture, point, **numbers)


def _scores(prediction: bpkr.Prediction, labels: np.ndarray, architecture: bpkr.Architecture) -> dict[str, Any]:
    """Return `test_error`, and `test_r_squared` or the scores of classes."""
    mean = np.asarray(prediction.mean)
    found: dict[str, Any] = {"test_error": np.mean((mean - labels) ** 2)}
    classes, truth = outputs_as_classes(labels)
    if classes is None:
        explained = r_squared(mean, labels)
        return found | ({"test_r_squared": explained} if np.isfinite(explained) else {})
    variance = prediction.variance + architecture.label_noise
    scores = classes.score(np.array(classes.names)[truth], mean, variance)
    axes = "class", "predicted_class"
    names = list((prediction.classes or classes).names)
    found |= {axis: ((axis,), names) for axis in axes}
    found["test_confusion"] = axes, scores.pop("confusion")
    # At infinite width with a richness, the variance is not in units of the labels.
    kept = [name for name in scores if not (architecture.is_infinite and "log_loss" in name)]
    return found | {f"test_{name}": scores[name] for name in kept}


def add_errors_of_examples(result: xr.Dataset) -> xr.Dataset:
    """Add errors of means over seeds due to their shared test examples."""
    result = result.copy()
    if "mean" not in result or "test_label" not in result:
        return result
    mean, labels = result["mean"], result["test_label"]
    losses, hits = (mean - labels) ** 2, np.sign(mean) == labels
    if "output" in mean.dims:
        losses = losses.mean("output")
        hits = mean.fillna(0).argmax("output") == labels.argmax("output")
    scores = {"test_error": losses}
    if "test_accuracy" in result:
        scores["test_accuracy"] = hits.where(losses.notnull())
    root = mean.sizes["test_example"] ** 0.5
    for name, score in scores.items():
        result[f"{name}_error_of_test_examples"] = score.mean("seed").std("test_example") / root
    return result


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

    Points without a solution, or at which the theory does not hold, are left out.

    Args:
        result: from `sweep` or `Model.sweep`.
        score: a test score, or "log_evidence", corrected if all points have it.

    Raises:
        ValueError: the sweep has no such score, or no point is left.
    """
    checked_choice("score", score, [name for name in (*_GAINS, *_LOSSES) if name in result])
    # A layer has at least as many units as partial paths. The Gaussian process has none.
    holds = ~(result.get("units_per_path", xr.full_like(result["converged"], np.nan, float)) < 1)
    holds &= result["converged"].astype(bool)
    values = result[score]
    if score == "log_evidence" and "log_evidence_corrected" in result:
        corrected = result["log_evidence_corrected"]
        values = corrected if corrected.notnull().where(holds & values.notnull(), True).all() else values
    values = values.where(holds)
    values = values.mean(set(values.dims) - {"width", "temperature", "richness"})
    if not values.notnull().any():
        raise ValueError(f"{score} has no value at which the theory holds: `units_per_path` is below 1")
    at = values.argmin(...) if score in _LOSSES else values.argmax(...)
    place = {axis: values[axis].values[index.item()].item() for axis, index in at.items()}
    widths = place.pop("width")
    if isinstance(widths, str):
        one, *more = map(float, widths.split("-"))
        widths = (one, *more) if more else one
    return {"widths": widths, **place}
