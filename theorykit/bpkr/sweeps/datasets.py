"""Label order parameters and results with the names of their axes, and read order parameters back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import optimistix as optx
import xarray as xr
from jax.typing import ArrayLike

from ... import bpkr
from ...checks import checked_arguments, checked_choice, refuse_traced
from ...summaries import OF_EXAMPLES, TITLES, best_place, evidence_name
from ..data.classes import are_classes, outputs_as_classes, r_squared
from ..evaluation.values import evaluate_infinite_width
from ..order_parameters.order_parameters import checked_order_parameters

_MEANINGS = {
    "action": "action S, undivided",
    "entropy": "entropy, part of S, with the opposite sign to the paper: lowest at the prior means",
    "energy": "energy, part of S",
    "log_evidence": "log evidence (log marginal likelihood of the labels), to leading order in the widths",
    "log_evidence_corrected": "log evidence (log marginal likelihood of the labels), to next order in the widths",
    "action_per_width": "action S, per width at infinite width",
    "entropy_per_width": "entropy, per width at infinite width",
    "energy_per_width": "energy, per width at infinite width",
    "log_evidence_per_width": "log evidence (log marginal likelihood), per width at infinite width",
    "gradient_norm": "affine-invariant norm of the gradient of S, per largest width",
    "min_hessian_eigenvalue": "smallest eigenvalue of the Hessian of S, per largest width",
    "units_per_path": "smallest ratio of hidden units to partial paths; the theory does not hold below one",
}


@checked_arguments
def label(
    architecture: bpkr.Architecture,
    point: bpkr.OrderParameters | bpkr.Saddle | None,
    *,
    along: Sequence[str] = (),
    **numbers: Any,
) -> xr.Dataset:
    """Label order parameters, and any further numbers, in one dataset.

    Args:
        architecture: the architecture that was solved.
        point: order parameters; or the result of `bpkr.solve`, whose numbers are then labelled too; or None.
        along: names of leading axes of all arrays, such as ("chain", "draw") of samples.
        numbers: further variables by name: numbers, text, or arrays over test examples, (test_examples,) or
            (test_examples, outputs). A pair (axes, values) names all axes, as in `xarray.Dataset`.

    Returns:
        A dataset with these variables:

        - `U_l` (path_l, other_path_l): the order parameter of layer l, between partial paths that start at layer l. The
          coordinates are labels of paths; with several outputs, "21:2" is path 21 to output 2.
        - `u`: the order parameter of the readout: a number, or (output, other_output), or, for separate readout weights
          per token, (token, other_token).
        - of a solve, `action`, `entropy`, `energy`, `log_evidence`, `gradient_norm`, `min_hessian_eigenvalue`; see
          `bpkr.Saddle`. At infinite width with a richness, the first four are `action_per_width` and so on.
        - of a solve, `converged`; `result`, the code of the solver in words; every number in `stats`, such as `steps`;
          and `head_score_l` (head_l), the importance of the heads of each layer that has heads.
        - `numbers`.
    """
    refuse_traced("label", architecture, point, reason="returns an xarray dataset")
    if isinstance(point, bpkr.Saddle):
        saddle, point = point, point.order_parameters
        suffix = "_per_width" if architecture.is_infinite else ""
        stats = {name: np.asarray(value).item() for name, value in saddle.stats.items()}
        numbers = {
            **{f"{name}{suffix}": getattr(saddle, name) for name in ("action", "entropy", "energy", "log_evidence")},
            "gradient_norm": saddle.gradient_norm,
            "min_hessian_eigenvalue": saddle.min_hessian_eigenvalue,
            "converged": bool(saddle.converged),
            "result": "converged" if saddle.converged else optx.RESULTS[saddle.result],
            # Store Booleans as 0 or 1, because a Boolean cannot be missing.
            **{name: int(value) if isinstance(value, bool) else value for name, value in stats.items()},
            **_labelled_head_scores(architecture, point),
            **numbers,
        }
    if point is not None:
        numbers = {**{f"U_{i}": each for i, each in enumerate(point.matrices, 1)}, "u": point.readout, **numbers}
    own = {f"U_{layer}": axes(layer) for layer in range(1, architecture.depth + 1)} | {"u": readout_axes(architecture)}
    variables = {}
    for name, value in numbers.items():
        if not isinstance(value, tuple):
            dims = (*along, *own.get(name, ("test_example", "output")))
            value = dims[: np.ndim(value)], value
        variables[name] = value[0], np.asarray(value[1]), {"long_name": _MEANINGS[name]} if name in _MEANINGS else {}
    used = {axis for dims, _, _ in variables.values() for axis in dims}
    coordinates = {axis: labels for axis, labels in path_coordinates(architecture).items() if axis in used}
    return xr.Dataset(variables, coords=coordinates)


def of_test_examples(values: Any) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the axes of values over test examples, (test_examples,) or (test_examples, outputs), and the values."""
    return ("test_example", "output")[: np.ndim(values)], np.asarray(values)


def _labelled_head_scores(architecture: bpkr.Architecture, point: bpkr.OrderParameters) -> dict[str, Any]:
    scores = enumerate(bpkr.head_scores(architecture, point), 1)
    return {f"head_score_{layer}": ((f"head_{layer}",), each) for layer, each in scores if len(each)}


def label_solution(problem: bpkr.Problem, saddle: bpkr.Saddle | None, **numbers: Any) -> xr.Dataset:
    """Label a solution with its predictions of the test examples, and with test labels also `score_prediction`.

    Without a saddle point, label the Gaussian process of infinitely wide layers (NNGP): `log_evidence` is exact, and
    there is no `action`, because the entropy is proportional to the widths. At infinite width with a richness,
    variances vanish: `variance_times_width` replaces `variance`, and there is no log loss.
    """
    architecture, data, point = problem.architecture, problem.data, saddle
    if saddle is None:
        point = bpkr.gp_limit(architecture)
        energy, evidence = evaluate_infinite_width(problem)
        found = {"energy": energy, "log_evidence": evidence, "log_evidence_corrected": evidence}
        scores = _labelled_head_scores(architecture, point)
        numbers = {**found, "converged": True, "result": "converged", **scores, **numbers}
    if data.test_features is not None:
        prediction = bpkr.predict(problem, point)
        numbers["mean"] = prediction.mean
        numbers["variance_times_width" if architecture.has_sharp_outputs else "variance"] = prediction.variance
        if data.test_labels is not None:
            scores = score_prediction(prediction, data.test_labels, noise=float(architecture.label_noise))
            no_loss = architecture.is_infinite
            numbers |= {name: each for name, each in scores.items() if not (no_loss and "log_loss" in name)}
    return label(architecture, point, **numbers)


def score_prediction(prediction: bpkr.Prediction, test_labels: ArrayLike, *, noise: float = 0.0) -> dict[str, Any]:
    """Measure how well a prediction fits `test_labels`, (test_examples,) or (test_examples, outputs).

    - `test_error`: the mean square of the difference between labels and mean.
    - `test_r_squared`: R^2 averaged over outputs, unless all labels of an output are equal.

    If labels stand for classes (1 or -1 for one output, or one of several outputs), these replace `test_r_squared`:

    - `test_accuracy`, `test_accuracy_error`: the fraction of correct examples, and its standard error.
    - `test_log_loss`, `test_log_loss_error`: the mean of -ln P(true class) under a Gaussian with the predicted mean and
      with the predicted variance plus `noise`, and its standard error.
    - `test_confusion` (class, predicted_class): numbers of examples.
    """
    mean, labels = np.asarray(prediction.mean), np.asarray(test_labels)
    error = np.mean((mean - labels) ** 2)
    if not are_classes(labels):
        explained = r_squared(mean, labels)
        return {"test_error": error} | ({"test_r_squared": explained} if np.isfinite(explained) else {})
    classes, truth = outputs_as_classes(labels)
    scores = dict(vars(classes.score(np.array(classes.names)[truth], mean, prediction.variance, noise=noise)))
    confusion = ("class", "predicted_class"), scores.pop("confusion")
    names = list((prediction.classes or classes).names)
    found = {"test_error": error, **{f"test_{name}": value for name, value in scores.items()}}
    return {**found, "test_confusion": confusion, **{axis: ((axis,), names) for axis in confusion[0]}}


def add_errors_of_examples(result: xr.Dataset) -> xr.Dataset:
    """Add the error of means over seeds that is due to the choice of test examples, which all seeds share."""
    if "mean" not in result or "test_label" not in result:
        return result
    mean, labels = result["mean"], result["test_label"]
    is_one = "output" not in mean.dims
    losses = (mean - labels) ** 2
    per_example = {"test_error": losses if is_one else losses.mean("output")}
    if "test_accuracy" in result:
        hits = np.sign(mean) == labels if is_one else mean.fillna(0).argmax("output") == labels.argmax("output")
        per_example["test_accuracy"] = hits.where(per_example["test_error"].notnull())
    spreads = {name: values.mean("seed").std("test_example") for name, values in per_example.items()}
    root = mean.sizes["test_example"] ** 0.5
    return result.assign({f"{name}{OF_EXAMPLES}": spread / root for name, spread in spreads.items()})


@checked_arguments
def order_parameters_of(architecture: bpkr.Architecture, solution: xr.Dataset) -> bpkr.OrderParameters:
    """Return the order parameters in a labelled solution, to predict from or to start another solve.

    Args:
        architecture: the architecture that was solved.
        solution: one point of a sweep, or the result of `label`.

    Raises:
        ValueError: the dataset has more than one point, or does not fit the architecture.
    """
    layers = range(1, architecture.depth + 1)
    for layer in layers:
        name, expected = f"U_{layer}", path_coordinates(architecture)[f"path_{layer}"]
        if name not in solution or solution[name].dims != axes(layer):
            found = solution[name].dims if name in solution else "none"
            raise ValueError(f"{name} must have the axes {axes(layer)}, got {found}; select one point with .sel(...)")
        if (found := solution[f"path_{layer}"].values.tolist()) != expected:
            raise ValueError(f"{name} is between the paths {found}, but architecture has the paths {expected}")
    matrices = tuple(solution[f"U_{layer}"].values for layer in layers)
    return checked_order_parameters(architecture, bpkr.OrderParameters(matrices, solution["u"].values))


@checked_arguments
def best(result: xr.Dataset, score: str = "log_evidence") -> dict[str, Any]:
    """Return the widths, temperature and richness with the best mean score over seeds, for `Model.set_params`.

    Points that are not solutions, and points at which the theory does not hold, are left out.

    Args:
        result: the result of `sweep` or `Model.sweep`.
        score: a test score, or "log_evidence", the log marginal likelihood of the training labels. It is taken to next
            order in the widths, `log_evidence_corrected`, if all points have it. For losses and errors, the best score
            is the lowest.

    Returns:
        The arguments `widths` and `temperature`, and `richness` if it is an axis of the sweep.

    Raises:
        ValueError: the sweep has no such score, or no point is left.
    """
    checked_choice("score", score, [name for name in TITLES if name != "log_evidence_per_width"])
    name = evidence_name(result) if score == "log_evidence" else score
    if name not in result:
        raise ValueError(
            f"the sweep has no {score}: test scores need test labels, and the evidence per width at infinite width "
            "with a richness chooses nothing"
        )
    place = best_place(result, name)
    width = place.pop("width")
    found = [float(each) for each in (width.split("-") if isinstance(width, str) else [width])]
    layers = tuple(int(each) if each.is_integer() else each for each in found)
    return {"widths": layers if len(layers) > 1 else layers[0], **place}


@checked_arguments
def best_temperatures(result: xr.Dataset) -> xr.DataArray:
    """Return the temperature (width,) with the best predictions at every width, from a sweep with test labels.

    The best temperature has the highest `test_accuracy` averaged over seeds, or the lowest `test_error` if labels are
    not classes. Ties go to the lowest temperature. Failed points are ignored; if all points failed, the result is NaN.
    """
    if "test_error" not in result:
        raise ValueError("result has no test_error; give test labels to the sweep")
    of_classes = "test_accuracy" in result
    errors = -result["test_accuracy"] if of_classes else result["test_error"]
    means = errors.mean([dimension for dimension in errors.dims if dimension not in ("width", "temperature")])
    means = means.sortby("temperature")
    lowest = means.fillna(float("inf")).idxmin("temperature")
    chosen_by = "highest test accuracy" if of_classes else "lowest test error"
    return lowest.where(means.notnull().any("temperature")).rename("best_temperature").assign_attrs(chosen_by=chosen_by)


def axes(layer: int) -> tuple[str, str]:
    """Return the names of the axes of U_l."""
    return f"path_{layer}", f"other_path_{layer}"


def readout_axes(architecture: bpkr.Architecture) -> tuple[str, ...]:
    """Return the names of the axes of u: none for a number, and otherwise of outputs or of tokens that are read."""
    if architecture.overlap_sizes[-1] == 1:
        return ()
    return ("output", "other_output") if architecture.read_tokens == 1 else ("token", "other_token")


def path_coordinates(architecture: bpkr.Architecture) -> dict[str, list[str]]:
    """Return the labels along the axes of every U_l: partial paths, or, as in "21:2", paths and outputs."""
    found, outputs = {}, architecture.outputs
    for layer in range(1, architecture.depth + 1):
        paths = list(architecture.path_labels(layer))
        several = [f"{path}:{output + 1}" for path in paths for output in range(outputs)]
        found |= dict.fromkeys(axes(layer), paths if outputs == 1 else several)
    return found
