"""Compare theory and samplers, with differences in units of standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr
from jax import random
from jaxtyping import PRNGKeyArray

from ... import bpkr
from ...checks import checked_choice, refuse_traced
from ...runs import bar
from ..data.classes import outputs_as_classes
from ..evaluation.problem import as_problem
from ..order_parameters import finite_width_law
from ..sweeps.datasets import label
from .sample import Sampler, check_can_be_sampled, entry_estimates, of_posterior_mean, output_estimates, sample

Approach = Literal["saddle", "one_over_n", "exact", "gibbs", "nuts", "infinite_width"]


def compare(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    key: PRNGKeyArray,
    approaches: Sequence[Approach] = ("saddle", "one_over_n", "exact", "gibbs", "infinite_width"),
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    folder: Path | str | None = None,
    n_jobs: int = 1,
    progress: bool = True,
) -> xr.Dataset:
    """Compute order parameters and predictions by every approach.

    Args:
        problem, data, key, n_jobs, progress: as in `sample`.
        approaches: some of

            - `saddle`: the minimum of the action.
            - `one_over_n`: the next order in 1/N; NaN if a layer has fewer units
              than partial paths.
            - `exact`, `gibbs`, `nuts`: the samplers of `sample`.
            - `infinite_width`: the Gaussian process; with a richness, the limit
              with learned features, and variances to leading order.
        options: keywords of `sample` or `bpkr.solve` by approach, such as
            {"gibbs": {"schedule": Schedule(4, warmup=1000, draws=10_000)}}.
        folder: samplers keep draws in subfolders, and resume from them.

    Returns:
        A dataset along `approach`: `U_l`, `u`; `mean` and `variance` of test outputs,
        and with classes the `accuracy` of `mean`; `mixed`, `diagnosis`, `seconds`;
        Monte Carlo errors such as `U_l_error`, zero for theory; with the approach
        `exact` also `deviations`.
    """
    refuse_traced("compare", problem, data, key)
    problem = as_problem(problem, data)
    for approach in approaches:
        checked_choice("approaches", approach, get_args(Approach))
    for approach in options:
        checked_choice("options", approach, ("saddle", *get_args(Sampler)))
    if not approaches or len(set(approaches)) < len(approaches):
        raise ValueError(f"approaches must be one or more, each once, got {approaches}")
    samplers = [approach for approach in approaches if approach in get_args(Sampler)]
    for sampler in samplers:
        check_can_be_sampled(sampler, problem.architecture)
    found = []
    with bar("comparison", len(approaches), "approach", shown=progress) as report:
        needs_saddle = {"saddle", "one_over_n"} & set(approaches)
        saddle = bpkr.solve(problem, **options.get("saddle", {})) if needs_saddle else None
        for approach in approaches:
            if approach in samplers:
                tree = sample(
                    problem,
                    sampler=approach,
                    key=random.fold_in(key, get_args(Approach).index(approach)),
                    folder=folder and Path(folder, approach),
                    n_jobs=n_jobs,
                    progress=progress,
                    **options.get(approach, {}),
                )
                found.append(_of_draws(tree, problem.data))
            else:
                found.append(_of_theory(approach, problem, saddle))
            report.update()
    result = xr.concat(found, dim="approach").assign_coords(approach=list(approaches))
    return result.merge(deviations(result)) if "exact" in approaches else result


def deviations(result: xr.Dataset, reference: str = "exact") -> xr.Dataset:
    """Return differences from a reference in standard errors, such as `U_l_deviation`.

    Args:
        result: from `compare`.
        reference: the approach to which the others are compared.
    """
    checked_choice("reference", reference, map(str, result["approach"].values))
    found, there = {}, result.sel(approach=reference)
    for name in (str(name) for name in result.data_vars if f"{name}_error" in result):
        error = np.hypot(result[f"{name}_error"], there[f"{name}_error"])
        # Entries that a skip connection fixes have no error.
        difference = result[name] - there[name]
        found[f"{name}_deviation"] = xr.where(difference == 0, 0.0, difference / error.where(error > 0))
    return xr.Dataset(found)


def _of_draws(tree: xr.DataTree, data: bpkr.Data) -> xr.Dataset:
    found, posterior = entry_estimates(tree), tree["posterior"].to_dataset()
    if data.test_features is not None:
        found = found.merge(output_estimates(posterior))
        classes, truth = outputs_as_classes(data.test_labels)
        if classes is not None:
            means = posterior["mean" if "mean" in posterior else "sampled_output"].values
            accuracy, error = of_posterior_mean(means, lambda mean: np.mean(classes.nearest(mean) == truth))
            found = found.assign(accuracy=float(accuracy), accuracy_error=float(error))
    return found.assign({name: tree.attrs[name] for name in ("mixed", "diagnosis", "seconds")})


def _of_theory(approach, problem: bpkr.Problem, saddle) -> xr.Dataset:
    architecture, data, prediction = problem.architecture, problem.data, None
    if approach == "infinite_width":
        saddle = None
        if architecture.richness is not None:
            wide = bpkr.Problem(architecture.at_infinite_width(), data)
            saddle = bpkr.solve(wide)
            if data.test_features is not None:
                limit = bpkr.predict(wide, saddle)
                prediction = replace(limit, variance=limit.variance / architecture.widths[0])
    point, mixed, diagnosis = bpkr.gp_limit(architecture), 1, ""
    if saddle is not None:
        point = saddle.order_parameters
        mixed = int(saddle.converged)
        diagnosis = saddle.diagnosis
    is_corrected = finite_width_law(architecture).is_regular
    if approach == "one_over_n" and is_corrected:
        corrected = bpkr.fluctuations(problem, point)
        point, prediction = corrected.mean, corrected.prediction
    elif data.test_features is not None and prediction is None:
        prediction = bpkr.predict(problem, point)
    numbers = {}
    classes, truth = outputs_as_classes(data.test_labels)
    if prediction is not None:
        numbers = {"mean": prediction.mean, "variance": prediction.variance}
        if classes is not None:
            hits = classes.nearest(np.asarray(prediction.mean)) == truth
            numbers["accuracy"] = float(np.mean(hits))
    found = label(architecture, point, **numbers)
    errors = {f"{name}_error": xr.zeros_like(found[name]) for name in found.data_vars}
    found = found.merge(errors)
    if approach == "one_over_n" and not is_corrected:
        found = found * np.nan
        mixed = 0
        diagnosis = "a layer has fewer units than partial paths"
    return found.assign(mixed=mixed, diagnosis=diagnosis, seconds=0.0)
