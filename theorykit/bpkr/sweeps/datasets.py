"""Convert a saddle point and its predictions to datasets with named axes, and back."""

from collections.abc import Mapping

import numpy as np
import optimistix as optx
import xarray as xr
from jax.typing import ArrayLike

from ... import bpkr
from ...checks import checked_arguments, counted, refuse_traced
from ..data.classes import are_classes, outputs_as_classes, score_indices
from ..evaluation.action_terms import evaluate_infinite_width
from ..order_parameters.order_parameters import checked_order_parameters

_QUANTITIES = {
    "action": "action S, undivided",
    "entropy": "entropy, part of S",
    "energy": "energy, part of S",
    "log_evidence": "log probability density of the labels, to leading order in the widths",
    "gradient_norm": "affine-invariant norm of the gradient of S, per largest width",
    "min_hessian_eigenvalue": "smallest eigenvalue of the Hessian of S, per largest width",
}
# Quantities that grow with the width. At infinite width with a richness they are divided by it.
_PER_WIDTH = ("action", "entropy", "energy", "log_evidence")
_CLASS_AXES = ("class", "predicted_class")


@checked_arguments
def label_saddle(architecture: bpkr.Architecture, saddle: bpkr.Saddle) -> xr.Dataset:
    """Label all results of a solve.

    Args:
        architecture: the architecture that was solved.
        saddle: the result of `bpkr.solve`.

    Returns:
        A dataset with these variables:

        - `U_l` (path_l, other_path_l): the order parameter of layer l, between partial paths that start at layer l. The
          coordinates are labels of paths; with several outputs, "21:2" is path 21 to output 2.
        - `u`: the order parameter of the readout: a number, or (output, other_output), or, for separate readout weights
          per token, (token, other_token).
        - `action`, `entropy`, `energy`, `log_evidence`, `gradient_norm`, `min_hessian_eigenvalue`: see `bpkr.Saddle`.
          At infinite width with a richness, the first four are `action_per_width` and so on.
        - `converged`, and `result`, the result code of the solver in words.
        - every number in `stats`, such as `steps`.
        - `head_score_l` (head_l): the importance of the heads of each layer that has heads.
    """
    refuse_traced("label_saddle", architecture, saddle, reason="returns an xarray dataset")
    point = saddle.order_parameters
    *sizes, last = architecture.overlap_sizes
    needed = [*((size, size) for size in sizes), () if last == 1 else (last, last)]
    found = [*(np.shape(matrix) for matrix in point.matrices), np.shape(point.readout)]
    if found != needed:
        raise ValueError(f"saddle has order parameters U_1, ..., u of shapes {found}, but architecture needs {needed}")
    # Store Booleans as 0 or 1, because a Boolean cannot be missing.
    stats = {name: np.asarray(value).item() for name, value in saddle.stats.items()}
    quantities = {name: float(getattr(saddle, name)) for name in _QUANTITIES}
    if architecture.is_infinite:
        quantities = {f"{name}_per_width" if name in _PER_WIDTH else name: each for name, each in quantities.items()}
    result = "converged" if saddle.converged else optx.RESULTS[saddle.result]
    labelled = _label_solution(architecture, point, quantities, bool(saddle.converged), result)
    return labelled.assign({name: int(value) if isinstance(value, bool) else value for name, value in stats.items()})


def label_infinite_width(problem: bpkr.Problem) -> xr.Dataset:
    """Label the infinitely wide network, a Gaussian process, like `label_saddle`.

    `log_evidence` is exact. There is no `action`, because the entropy is proportional to the widths.
    """
    point = bpkr.gp_limit(problem.architecture)
    energy, evidence = evaluate_infinite_width(problem)
    quantities = {"energy": energy, "log_evidence": evidence}
    return _label_solution(problem.architecture, point, quantities, True, "converged")


def _label_solution(
    architecture: bpkr.Architecture,
    point: bpkr.OrderParameters,
    quantities: Mapping[str, float],
    converged: bool,
    result: str,
) -> xr.Dataset:
    labelled = {}
    for layer, scores in enumerate(bpkr.head_scores(architecture, point), 1):
        if len(scores):
            labelled[f"head_score_{layer}"] = f"head_{layer}", np.asarray(scores)
    for name, value in quantities.items():
        meaning = _QUANTITIES[name.removesuffix("_per_width")]
        if name.endswith("_per_width"):
            meaning = f"{meaning.partition(',')[0]}, per width at infinite width"
        labelled[name] = (), value, {"long_name": meaning}
    labelled |= {"converged": converged, "result": result}
    return label_order_parameters(architecture, point).assign(labelled)


def label_order_parameters(architecture: bpkr.Architecture, point: bpkr.OrderParameters) -> xr.Dataset:
    """Label `U_l` and `u` like `label_saddle`."""
    matrices = {f"U_{layer}": (axes(layer), np.asarray(matrix)) for layer, matrix in enumerate(point.matrices, 1)}
    readout = (readout_axes(architecture), np.asarray(point.readout))
    return xr.Dataset({**matrices, "u": readout}, coords=path_coordinates(architecture))


def label_predictions(problem: bpkr.Problem, order_parameters: bpkr.OrderParameters) -> tuple[xr.Dataset, ...]:
    """Predict the test examples, if any. Return `label_prediction`, and with test labels also `prediction_errors`.

    The noise is `Architecture.label_noise`. Names of classes come from the data. At infinite width with a richness,
    variances vanish: `variance_times_width` replaces `variance`, and there is no log loss.
    """
    data, architecture = problem.data, problem.architecture
    if data.test_features is None:
        return ()
    prediction = bpkr.predict(problem, order_parameters)
    labelled = label_prediction(prediction)
    if architecture.has_sharp_outputs:
        labelled = labelled.rename(variance="variance_times_width")
    if data.test_labels is None:
        return (labelled,)
    errors = prediction_errors(prediction, data.test_labels, noise=float(architecture.label_noise))
    if architecture.is_infinite:
        errors = errors.drop_vars([name for name in errors if name.startswith("test_log_loss")])
    if data.classes is not None and "test_confusion" in errors:
        errors = errors.assign_coords({axis: list(data.classes.names) for axis in _CLASS_AXES})
    return labelled, errors


def label_prediction(prediction: bpkr.Prediction) -> xr.Dataset:
    """Label `mean` and `variance` of the output, (test_example,) or (test_example, output)."""
    return xr.Dataset({"mean": _of_test_examples(prediction.mean), "variance": _of_test_examples(prediction.variance)})


def prediction_errors(prediction: bpkr.Prediction, test_labels: ArrayLike, *, noise: float = 0.0) -> xr.Dataset:
    """Measure how well a prediction fits `test_labels`, (test_examples,) or (test_examples, outputs).

    - `test_error`: the mean square of the difference between labels and mean.
    - `test_r_squared`: the fraction of the variance of the labels that the mean explains, unless all labels are equal.

    If labels stand for classes (1 or -1 for one output, or one of several outputs), these replace `test_r_squared`:

    - `test_accuracy`, `test_accuracy_error`: the fraction of correct examples, and its standard error.
    - `test_log_loss`, `test_log_loss_error`: the mean of -ln P(true class) under a Gaussian with the predicted mean and
      with the predicted variance plus `noise`, and its standard error.
    - `test_confusion` (class, predicted_class): numbers of examples.
    """
    mean, labels = np.asarray(prediction.mean), np.asarray(test_labels)
    error = np.mean((mean - labels) ** 2)
    if not are_classes(labels):
        spread = np.mean((labels - labels.mean(axis=0)) ** 2)
        return xr.Dataset({"test_error": error, **({"test_r_squared": 1 - error / spread} if spread > 0 else {})})
    classes, truth = outputs_as_classes(labels)
    scores = score_indices(classes, truth, mean, prediction.variance, noise)
    return xr.Dataset(
        {
            "test_error": error,
            **{f"test_{name}": value for name, value in vars(scores).items() if name != "confusion"},
            "test_confusion": (_CLASS_AXES, scores.confusion),
        },
        coords={axis: list(classes.names) for axis in _CLASS_AXES},
    )


def label_test_labels(data: bpkr.Data) -> xr.Dataset:
    """Label test labels, if any, as `test_label` with the axes of `mean` in a prediction."""
    return xr.Dataset({} if data.test_labels is None else {"test_label": _of_test_examples(data.test_labels)})


@checked_arguments
def order_parameters_of(architecture: bpkr.Architecture, solution: xr.Dataset) -> bpkr.OrderParameters:
    """Return the order parameters in a labelled solution, to predict from or to start another solve.

    Args:
        architecture: the architecture that was solved.
        solution: one point of a sweep, or the result of `label_saddle`.

    Raises:
        ValueError: the dataset has more than one point, or does not fit the architecture.
    """
    layers = range(1, architecture.depth + 1)
    if missing := [name for name in (*(f"U_{layer}" for layer in layers), "u") if name not in solution]:
        depth = counted(architecture.depth, "layer")
        raise ValueError(f"solution has no {missing[0]}, but the architecture has {depth}")
    for layer in layers:
        name = f"U_{layer}"
        if more := [str(dimension) for dimension in solution[name].dims if dimension not in axes(layer)]:
            selection = ", ".join(f"{dimension}=..." for dimension in more)
            raise ValueError(f"{name} has several points, along {', '.join(more)}; select one with .sel({selection})")
        found, expected = solution[f"path_{layer}"].values.tolist(), _row_labels(architecture, layer)
        if found != expected:
            raise ValueError(f"{name} is between the paths {found}, but architecture has the paths {expected}")
    matrices = tuple(solution[f"U_{layer}"].values for layer in layers)
    return checked_order_parameters(architecture, bpkr.OrderParameters(matrices, solution["u"].values))


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
    best = means.fillna(float("inf")).idxmin("temperature")
    chosen_by = "highest test accuracy" if of_classes else "lowest test error"
    return best.where(means.notnull().any("temperature")).rename("best_temperature").assign_attrs(chosen_by=chosen_by)


def axes(layer: int) -> tuple[str, str]:
    """Return the names of the axes of U_l."""
    return f"path_{layer}", f"other_path_{layer}"


def readout_axes(architecture: bpkr.Architecture) -> tuple[str, ...]:
    """Return the names of the axes of u: none for a number, and otherwise of outputs or of tokens that are read."""
    if architecture.overlap_sizes[-1] == 1:
        return ()
    return ("output", "other_output") if architecture.read_tokens == 1 else ("token", "other_token")


def path_coordinates(architecture: bpkr.Architecture) -> dict[str, list[str]]:
    """Return the labels along the axes of every U_l."""
    layers = range(1, architecture.depth + 1)
    return {axis: _row_labels(architecture, layer) for layer in layers for axis in axes(layer)}


def _row_labels(architecture: bpkr.Architecture, layer: int) -> list[str]:
    """Return the labels of the rows of U_l: partial paths, or, as in "21:2", paths and outputs."""
    paths, outputs = architecture.path_labels(layer), architecture.outputs
    return list(paths) if outputs == 1 else [f"{path}:{output + 1}" for path in paths for output in range(outputs)]


def _of_test_examples(values: ArrayLike) -> tuple[tuple[str, ...], np.ndarray]:
    return ("test_example", "output")[: np.ndim(values)], np.asarray(values)
