"""A saddle point, and predictions from it, as datasets with named axes; and the way back."""

import numpy as np
import optimistix as optx
import xarray as xr
from jax.typing import ArrayLike

from ... import bpkr
from ...checks import checked_arguments, checked_instance, finite_array
from ..data.classes import are_classes, outputs_as_classes, score_indices
from ..order_parameters.order_parameters import checked_order_parameters

_QUANTITIES = {
    "action": "action S, undivided",
    "entropy": "entropy, part of S",
    "energy": "energy, part of S",
    "log_evidence": "log probability density of the labels, to leading order in the widths",
    "gradient_norm": "affine-invariant norm of the gradient of S, per largest width",
    "min_hessian_eigenvalue": "smallest eigenvalue of the Hessian of S, per largest width",
}
_CLASS_AXES = ("class", "predicted_class")


@checked_arguments
def label_saddle(architecture: bpkr.Architecture, saddle: bpkr.Saddle) -> xr.Dataset:
    """Label everything that a solve found.

    - `U_l` (path_l, other_path_l): the order parameter of layer l, between partial paths from layer l on, whose labels
      are coordinates; with several outputs, "21:2" is path 21 to output 2.
    - `u`: the readout's, a number, or (output, other_output); (token, other_token) for separate readout weights per
      token.
    - `action`, `entropy`, `energy`, `log_evidence`, `gradient_norm`, `min_hessian_eigenvalue`: those of `bpkr.Saddle`.
    - `converged`; `result`, the solver's word for it; and every number of `saddle.stats`, such as `steps`.
    - `head_score_l` (head_l): the importance of the heads of each layer that has any.
    """
    point = saddle.order_parameters
    *sizes, last = architecture.overlap_sizes
    needed = [*((size, size) for size in sizes), () if last == 1 else (last, last)]
    found = [*(np.shape(matrix) for matrix in point.matrices), np.shape(point.readout)]
    if found != needed:
        raise ValueError(
            f"saddle is of another architecture: its order parameters U_1, ..., u have shapes {found}, those of the "
            f"architecture {needed}"
        )
    # truth as 0 or 1, since a missing value next to it is no truth
    stats = {name: np.asarray(value).item() for name, value in saddle.stats.items()}
    return label_order_parameters(architecture, point).assign(
        {
            **_label_scores(architecture, point),
            **{name: ((), float(getattr(saddle, name)), {"long_name": text}) for name, text in _QUANTITIES.items()},
            "converged": saddle.converged,
            "result": "converged" if saddle.converged else optx.RESULTS[saddle.result],
            **{name: int(value) if isinstance(value, bool) else value for name, value in stats.items()},
        }
    )


@checked_arguments
def label_infinite_width(architecture: bpkr.Architecture, data: bpkr.Data) -> xr.Dataset:
    """Label the infinitely wide network, a Gaussian process, as `label_saddle` labels a saddle point.

    Order parameters have their prior values, `bpkr.gp_limit`, and `log_evidence` is exact. There is no `action`, whose
    entropy is proportional to the widths, and nothing of a solver. The widths of `architecture` are not used.
    """
    return infinite_width_of(bpkr.Problem(architecture, data))


def infinite_width_of(problem: bpkr.Problem) -> xr.Dataset:
    """`label_infinite_width` of a problem."""
    architecture, data = problem.architecture, problem.data
    point = bpkr.gp_limit(architecture)
    energy = float(bpkr.evaluate(problem, point).energy)
    values = {"energy": energy, "log_evidence": -(energy + np.size(data.labels) * np.log(2 * np.pi)) / 2}
    return label_order_parameters(architecture, point).assign(
        {
            **_label_scores(architecture, point),
            **{name: ((), value, {"long_name": _QUANTITIES[name]}) for name, value in values.items()},
            "converged": True,
            "result": "converged",
        }
    )


def _label_scores(architecture: bpkr.Architecture, point: bpkr.OrderParameters) -> dict[str, tuple[str, np.ndarray]]:
    scores = enumerate(bpkr.head_scores(architecture, point), 1)
    return {f"head_score_{layer}": (f"head_{layer}", np.asarray(score)) for layer, score in scores if len(score)}


def label_order_parameters(architecture: bpkr.Architecture, point: bpkr.OrderParameters) -> xr.Dataset:
    """`U_l` and `u`, as `label_saddle` has them."""
    matrices = {f"U_{layer}": (axes(layer), np.asarray(matrix)) for layer, matrix in enumerate(point.matrices, 1)}
    readout = (readout_axes(architecture), np.asarray(point.readout))
    return xr.Dataset({**matrices, "u": readout}, coords=path_coordinates(architecture))


@checked_arguments
def predict_test_examples(
    architecture: bpkr.Architecture, data: bpkr.Data, order_parameters: bpkr.OrderParameters
) -> tuple[xr.Dataset, ...]:
    """Predict the test examples of `data`, if any: `label_prediction`, and with test labels `prediction_errors`.

    The noise is the temperature; classes have the names that `data` has for them.
    """
    return predictions_of(bpkr.Problem(architecture, data), order_parameters)


def predictions_of(problem: bpkr.Problem, order_parameters: bpkr.OrderParameters) -> tuple[xr.Dataset, ...]:
    """`predict_test_examples` of a problem."""
    architecture, data = problem.architecture, problem.data
    if data.test_features is None:
        return ()
    prediction = bpkr.predict(problem, order_parameters)
    if data.test_labels is None:
        return (label_prediction(prediction),)
    errors = prediction_errors(prediction, data.test_labels, noise=float(architecture.temperature))
    if data.classes is not None and "test_confusion" in errors:
        errors = errors.assign_coords({axis: list(data.classes.names) for axis in _CLASS_AXES})
    return label_prediction(prediction), errors


@checked_arguments
def label_prediction(prediction: bpkr.Prediction) -> xr.Dataset:
    """Label `mean` and `variance` of the output, (test_example,) or (test_example, output)."""
    return xr.Dataset({"mean": _of_test_examples(prediction.mean), "variance": _of_test_examples(prediction.variance)})


def prediction_errors(prediction: bpkr.Prediction, test_labels: ArrayLike, *, noise: float = 0.0) -> xr.Dataset:
    """Measure how well a prediction fits `test_labels`, (test_examples,) or (test_examples, outputs).

    - `test_error`: the mean square of the difference between labels and mean.
    - `test_r_squared`: the share of the labels' variance that the mean explains, unless labels are all the same.

    If labels stand for classes, 1 or -1 of one output, or one of several outputs, instead of the latter:

    - `test_accuracy`, `test_accuracy_error`: the share of examples of the right class, and its standard error.
    - `test_log_loss`, `test_log_loss_error`: the mean of -ln P(true class) under the Gaussian of mean and variance, to
      which `noise` is added.
    - `test_confusion` (class, predicted_class): numbers of examples.
    """
    checked_instance("prediction", prediction, bpkr.Prediction)
    mean, labels = np.asarray(prediction.mean), np.asarray(finite_array("test_labels", test_labels))
    if mean.shape != labels.shape:
        raise ValueError(f"test_labels of shape {labels.shape} do not fit predictions of shape {mean.shape}")
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


def label_test_labels(test_labels: ArrayLike) -> xr.Dataset:
    """`test_label`, on the axes of a prediction's `mean`."""
    return xr.Dataset({"test_label": _of_test_examples(test_labels)})


@checked_arguments
def order_parameters_of(architecture: bpkr.Architecture, solution: xr.Dataset) -> bpkr.OrderParameters:
    """Return the order parameters in a labelled solution, to predict from or to start another solve.

    Raises `ValueError` if the dataset is of more than one point, or does not fit the architecture.
    """
    for layer in range(1, architecture.depth + 1):
        name = f"U_{layer}"
        if name not in solution:
            raise ValueError(f"the dataset has no {name}, which layer {layer} of {architecture.depth} needs")
        more = [str(dimension) for dimension in solution[name].dims if dimension not in axes(layer)]
        if more:
            selection = ", ".join(f"{dimension}=..." for dimension in more)
            raise ValueError(f"{name} is of several points, along {', '.join(more)}: select one, .sel({selection})")
        found, expected = solution[f"path_{layer}"].values.tolist(), _row_labels(architecture, layer)
        if found != expected:
            raise ValueError(f"{name} is between the paths {found}; the architecture's are {expected}")
    if "u" not in solution:
        raise ValueError("the dataset has no u, the readout's order parameter")
    matrices = tuple(solution[f"U_{layer}"].values for layer in range(1, architecture.depth + 1))
    return checked_order_parameters(architecture, bpkr.OrderParameters(matrices, solution["u"].values))


@checked_arguments
def best_temperatures(result: xr.Dataset) -> xr.DataArray:
    """Return the temperature of the best predictions at every width, (width,), of a sweep with test labels.

    Best is the highest `test_accuracy`, or if labels are no classes the lowest `test_error`; of equals, the lowest
    temperature. Over seeds, their mean decides. Points that failed do not compete; NaN if all did.
    """
    if "test_error" not in result:
        raise ValueError("result has no test_error to choose by: it was given no test_labels")
    of_classes = "test_accuracy" in result
    errors = -result["test_accuracy"] if of_classes else result["test_error"]
    means = errors.mean([dimension for dimension in errors.dims if dimension not in ("width", "temperature")])
    means = means.sortby("temperature")
    best = means.fillna(float("inf")).idxmin("temperature")
    chosen_by = "highest test accuracy" if of_classes else "lowest test error"
    return best.where(means.notnull().any("temperature")).rename("best_temperature").assign_attrs(chosen_by=chosen_by)


def axes(layer: int) -> tuple[str, str]:
    """The names of the axes of U_l."""
    return f"path_{layer}", f"other_path_{layer}"


def readout_axes(architecture: bpkr.Architecture) -> tuple[str, ...]:
    """The names of the axes of u: none of a number, and else of outputs, or of the tokens that are read."""
    if architecture.overlap_sizes[-1] == 1:
        return ()
    return ("output", "other_output") if architecture.read_tokens == 1 else ("token", "other_token")


def path_coordinates(architecture: bpkr.Architecture) -> dict[str, list[str]]:
    """The labels along the axes of every U_l."""
    layers = range(1, architecture.depth + 1)
    return {axis: _row_labels(architecture, layer) for layer in layers for axis in axes(layer)}


def _row_labels(architecture: bpkr.Architecture, layer: int) -> list[str]:
    """The labels of the rows of U_l: partial paths, or, as in "21:2", paths and outputs."""
    paths, outputs = architecture.path_labels(layer), architecture.outputs
    return list(paths) if outputs == 1 else [f"{path}:{output + 1}" for path in paths for output in range(outputs)]


def _of_test_examples(values: ArrayLike) -> tuple[tuple[str, ...], np.ndarray]:
    return ("test_example", "output")[: np.ndim(values)], np.asarray(values)
