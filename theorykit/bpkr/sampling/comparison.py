"""Theory and samplers side by side, every difference in units of its standard error.

Approaches, by what they take for granted:

- `saddle`: the action at its minimum. `one_over_n`: fluctuations about it, to the next order in one over the widths.
- `exact`: the exact posterior of the order parameters, sampled: what all others are measured against.
- `gibbs`, `nuts`: the weights of the finite network, sampled.
- `infinite_width`: the Gaussian process that the network is when its layers are infinitely wide.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from jax import random
from jaxtyping import PRNGKeyArray

from ... import bpkr
from ...checks import (
    checked_choice,
    checked_flag,
    checked_instance,
    checked_key,
    checked_path,
    checked_sequence,
    shown,
)
from ...workers import Workers, check_executor
from ..data.accuracy import are_classes, class_accuracy
from ..data.data import check_data
from ..order_parameters.finite_width_law import law_of
from ..sweeps.datasets import label_order_parameters, label_prediction
from .results import accuracy_estimate, entry_estimates, output_estimates
from .sample import (
    check_is_linear_in_weights,
    check_weights_have_a_posterior,
    sample_order_parameters,
    sample_weights,
    sample_weights_by_gibbs,
)

APPROACHES = ("saddle", "one_over_n", "exact", "gibbs", "nuts", "infinite_width")
"""All approaches that `compare` knows."""
_SAMPLERS: Mapping[str, Callable[..., xr.DataTree]] = {
    "exact": sample_order_parameters,
    "gibbs": sample_weights_by_gibbs,
    "nuts": sample_weights,
}

# keywords of samplers that a comparison gives itself
_OWN = ("key", "folder", "executor", "progress")


def compare(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    *,
    key: PRNGKeyArray,
    approaches: Sequence[str] = ("saddle", "one_over_n", "exact", "gibbs", "infinite_width"),
    options: Mapping[str, Mapping[str, Any]] | None = None,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.Dataset:
    """Every approach's order parameters and predictions for one architecture and data set, along an axis `approach`.

    - `U_l`, `u`, `mean` and `variance` of the output on test examples, and, where test labels stand for classes,
      `accuracy` of `mean`; each with its Monte Carlo error, `U_l_error` and so on, zero for theory.
    - `U_l_deviation` and so on: the difference from `exact`, if it is there, in units of its standard error; NaN where
      there is a difference but neither side has an error.
    - `mixed`, `diagnosis`, `seconds` of each approach.

    `approaches` are some of `APPROACHES`; "one_over_n" is left out, with its reason as `diagnosis`, where a layer has
    fewer units than partial paths. `options` are keywords of the samplers, by approach, such as
    {"gibbs": {"schedule": Schedule(chains=4, warmup=1000, draws=10_000)}}, and under "saddle" those of `bpkr.solve`.
    With a `folder`, samplers keep draws in folders of their own there, and go on from them. With an `executor`, see
    `sweeps.sweep`, the chains of a sampler run side by side.
    """
    check_executor(executor)
    key = checked_key("key", key)
    folder = None if folder is None else checked_path("folder", folder)
    data = check_data(architecture, data)  # before anything takes its time
    checked_flag("progress", progress)
    approaches, options = _checked_approaches(approaches), _checked_options(options)
    if "gibbs" in approaches:
        check_is_linear_in_weights(architecture)
    if {"gibbs", "nuts"} & set(approaches):
        check_weights_have_a_posterior(architecture)  # before another sampler takes its time
    found, saddle = [], None
    if {"saddle", "one_over_n"} & set(approaches):
        saddle = bpkr.solve(architecture, data, **options.get("saddle", {}))
    for approach in approaches:
        if approach in _SAMPLERS:
            tree = _SAMPLERS[approach](
                architecture,
                data,
                key=random.fold_in(key, APPROACHES.index(approach)),
                folder=None if folder is None else folder / approach,
                executor=executor,
                progress=progress,
                **options.get(approach, {}),
            )
            found.append(_sampled(tree, data))
        elif approach == "infinite_width":
            found.append(_of_infinite_width(architecture, data))
        else:
            found.append(_of_theory(approach, architecture, saddle, data))
    result = xr.concat(found, dim="approach").assign_coords(approach=list(approaches))
    return result.merge(deviations(result)) if "exact" in approaches else result


def _checked_approaches(approaches: Sequence[str]) -> Sequence[str]:
    approaches = checked_sequence("approaches", approaches, f"some of {APPROACHES}")
    if unknown := [approach for approach in approaches if not isinstance(approach, str) or approach not in APPROACHES]:
        raise ValueError(f"unknown approaches {', '.join(map(shown, unknown))}; there are {APPROACHES}")
    if not approaches or len(set(approaches)) < len(approaches):
        raise ValueError(f"approaches must be some of {APPROACHES}, each once, got {tuple(approaches)}")
    return approaches


def _checked_options(options: Mapping[str, Mapping[str, Any]] | None) -> Mapping[str, Mapping[str, Any]]:
    """Keywords by approach, of which all are known and none is one that `compare` gives itself."""
    options = {} if options is None else checked_instance("options", options, Mapping)
    functions = {"saddle": bpkr.solve, **_SAMPLERS}
    if unknown := sorted(str(name) for name in options if name not in functions):
        raise ValueError(f"options for {unknown}, but there are options for {', '.join(functions)}")
    for approach, keywords in options.items():
        checked_instance(f"options[{approach!r}]", keywords, Mapping)
        parameters = inspect.signature(functions[approach]).parameters.values()
        known = [each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.name not in _OWN]
        if unknown := [str(name) for name in keywords if name not in known]:
            raise ValueError(f"options[{approach!r}] has {unknown[0]!r}, but there are {', '.join(known)}")
    return options


def deviations(result: xr.Dataset, reference: str = "exact") -> xr.Dataset:
    """How far each approach is from the `reference`, in units of the standard error of the difference.

    `result` is that of `compare`; raises `ValueError` where the `reference` is none of its approaches.
    """
    checked_instance("result", result, xr.Dataset, "as compare returns them")
    if "approach" not in result.coords:
        raise ValueError("result has no axis approach: it must be what compare returns")
    checked_choice("reference", reference, map(str, result["approach"].values))
    found, there = {}, result.sel(approach=reference)
    for name in (str(name) for name in result.data_vars if f"{name}_error" in result):
        error = np.hypot(result[f"{name}_error"], there[f"{name}_error"])
        # of the reference itself, and of what a skip connection fixes, the difference is zero and so is its error
        difference = result[name] - there[name]
        found[f"{name}_deviation"] = xr.where(difference == 0, 0.0, difference / error.where(error > 0))
    return xr.Dataset(found)


def _sampled(tree: xr.DataTree, data: bpkr.Data) -> xr.Dataset:
    parts = [entry_estimates(tree)]
    posterior = tree["posterior"].to_dataset()
    if "mean" in posterior or "sampled_output" in posterior:
        parts.append(output_estimates(posterior))
        if are_classes(data.test_labels):
            accuracy, error = accuracy_estimate(posterior, data.test_labels)
            parts.append(xr.Dataset({"accuracy": accuracy, "accuracy_error": error}))
    about = {name: tree.attrs[name] for name in ("mixed", "diagnosis", "seconds")}
    return xr.merge([*parts, xr.Dataset(about)])


def _of_theory(approach: str, architecture, saddle: bpkr.Saddle, data: bpkr.Data) -> xr.Dataset:
    point, diagnosis = saddle.order_parameters, saddle.diagnosis
    if approach == "one_over_n":
        if not law_of(architecture).is_regular:
            prediction = _predict(architecture, point, data)
            nothing = _theory_dataset(architecture, point, prediction, data.test_labels) * np.nan
            reason = "left out: a layer has fewer units than partial paths"
            return nothing.assign(mixed=0, diagnosis=reason, seconds=0.0)
        corrected = bpkr.fluctuations(bpkr.Problem(architecture, data), point, data.test_features)
        point, prediction = corrected.mean, corrected.prediction
    else:
        prediction = _predict(architecture, point, data)
    found = _theory_dataset(architecture, point, prediction, data.test_labels)
    return found.assign(mixed=int(saddle.converged), diagnosis=diagnosis, seconds=0.0)


def _of_infinite_width(architecture: bpkr.Architecture, data: bpkr.Data) -> xr.Dataset:
    point = bpkr.gp_limit(architecture)
    found = _theory_dataset(architecture, point, _predict(architecture, point, data), data.test_labels)
    return found.assign(mixed=1, diagnosis="", seconds=0.0)


def _predict(architecture, point: bpkr.OrderParameters, data: bpkr.Data) -> bpkr.Prediction | None:
    if data.test_features is None:
        return None
    return bpkr.predict(bpkr.Problem(architecture, data), point)


def _theory_dataset(architecture, point: bpkr.OrderParameters, prediction, test_labels) -> xr.Dataset:
    parts = [label_order_parameters(architecture, point)]
    if prediction is not None:
        parts.append(label_prediction(prediction))
        if are_classes(test_labels):
            parts.append(xr.Dataset({"accuracy": float(class_accuracy(prediction.mean, test_labels))}))
    dataset = xr.merge(parts)
    return dataset.merge({f"{name}_error": xr.zeros_like(value) for name, value in dataset.data_vars.items()})
