"""Sample the posterior, judge the draws with ArviZ, and compare theory with them."""

import time
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

import jax
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from ... import bpkr
from ..._compat import needed
from ...checks import checked_choice, checked_instance, checked_number, checked_sequence, counted, refuse_traced
from ...runs import Folder, bar
from ..data.classes import outputs_as_classes
from ..evaluation.problem import as_problem
from ..network.network import checked_whole_widths, weight_shapes
from ..order_parameters import finite_width_law
from ..saddle.gaussian_fluctuations import FEW_UNITS
from ..specification.architecture import require_finite_widths
from ..sweeps.datasets import label
from .chains import DEFAULT_SCHEDULES, Schedule, run_chains
from .posteriors import Gibbs, NoUTurn, OrderParameterPosterior, WeightPosterior

# Split R-hat and effective sample size per chain: A. Vehtari et al., Bayesian Analysis 16 (2021).
R_HAT = 1.01
ESS_PER_CHAIN = 100
# Smallest BFMI: M. Betancourt, arXiv 1604.00695.
BFMI = 0.3
# With fewer draws per chain, the diagnostics of ArviZ are NaN.
_FEWEST_DRAWS = 4
# Increase it if draws change for the same arguments.
_VERSION = 9
_STATISTICS = ("lp", "energy", "diverging", "n_steps")
_NAMES = {"exact": "NUTS on the order parameters", "gibbs": "block Gibbs on the weights", "nuts": "NUTS on the weights"}
Sampler = Literal["exact", "gibbs", "nuts"]
Approach = Literal["saddle", "one_over_n", "exact", "gibbs", "nuts", "infinite_width"]


class MixingWarning(UserWarning):
    """Warns of chains that did not mix, or are too short to judge."""


def sample(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    sampler: Sampler = "exact",
    key: PRNGKeyArray,
    schedule: Schedule | None = None,
    target_accept: float = 0.8,
    folder: Path | str | None = None,
    n_jobs: int = 1,
    progress: bool = True,
) -> xr.DataTree:
    """Draw from the posterior at the widths of the architecture, however small.

    Args:
        problem, data: as in `bpkr.solve`.
        sampler: one of

            - `exact`: NUTS on the order parameters, with all weights integrated out; for
              nonlinear hidden units, under the `ansatz`.
            - `nuts`: NUTS on all weights but queries and keys, Eq. (8); slow at low
              temperatures.
            - `gibbs`: block Gibbs on these weights; slow for nearly interpolated labels.
        key: JAX random key.
        schedule: number of chains, warm-up steps and draws.
        target_accept: acceptance rate of NUTS.
        folder: keeps draws, from which a run resumes, also for more draws.
        n_jobs: number of processes for chains; see `bpkr.sweeps.sweep`.

    Returns:
        A tree:

        - `posterior` (chain, draw, ...): U_l and u; for test examples `mean` and
          `variance` given these, or `sampled_output` of the network.
        - `sample_stats` (chain, draw): such as `diverging`, `energy` and `n_steps`.
        - `summary`: of ArviZ, along `statistic`.
        - attributes: `mixed` (0 or 1), `diagnosis`, `problem`, `sampler`, `seconds`.

    Warns:
        MixingWarning: the chains did not mix.
    """
    refuse_traced("sample", problem, data, key)
    problem = as_problem(problem, data)
    check_can_be_sampled(sampler, problem.architecture)
    schedule, run = checked_run(key, target_accept, schedule, sampler)
    make = partial(sampler_of, sampler, problem, schedule.warmup, run["target_accept"])
    run |= {"architecture": problem.architecture, "data": problem.data, "sampler": sampler}
    kept = Folder.of(folder, "sampling", _VERSION, key=key, **run)
    drawn = run_chains(make, schedule, key=key, folder=kept, n_jobs=n_jobs, progress=progress)
    tree = label_draws(problem.architecture, drawn)
    if sampler == "exact" and problem.ansatz:
        tree.attrs["ansatz"] = problem.ansatz
    return described(tree, _NAMES[sampler], problem)


def checked_run(key: PRNGKeyArray, target_accept: float, schedule: Any, sampler: str) -> tuple[Schedule, dict]:
    """Return the schedule, and what a resumed run keeps: the number of draws may grow."""
    checked_instance("key", key, jax.Array, "jax.random.key(3)")
    needed("arviz_stats", "sampling")
    schedule = DEFAULT_SCHEDULES[sampler] if schedule is None else schedule
    checked_instance("schedule", schedule, Schedule)
    target_accept = checked_number("target_accept", target_accept, above=0.0, below=1.0)
    return schedule, {"chains": schedule.chains, "warmup": schedule.warmup, "target_accept": target_accept}


def described(tree: xr.DataTree, sampler: str, problem: bpkr.Problem) -> xr.DataTree:
    """Name sampler and problem, and warn the caller's caller of poor mixing."""
    tree.attrs |= {"sampler": sampler, "problem": problem.description}
    if not tree.attrs["mixed"]:
        warnings.warn(f"{sampler}: {tree.attrs['diagnosis']}", MixingWarning, stacklevel=3)
    return tree


def check_can_be_sampled(sampler: str, architecture: bpkr.Architecture) -> None:
    checked_choice("sampler", sampler, get_args(Sampler))
    require_finite_widths(architecture, "sampling")
    is_cold = float(architecture.temperature) == 0
    if sampler == "exact":
        rank = finite_width_law(architecture).levels[-1].rank
        if is_cold and rank < architecture.overlap_sizes[0]:
            raise ValueError(f"temperature=0, but {FEW_UNITS}")
        return
    if sampler == "gibbs" and not architecture.is_linear:
        raise ValueError("block Gibbs needs linear hidden units")
    checked_whole_widths(architecture)
    if is_cold:
        raise ValueError("temperature=0: the posterior of the weights has no density")


def sampler_of(sampler, problem: bpkr.Problem, warmup, target_accept=0.8) -> NoUTurn | Gibbs:
    architecture, data = problem.architecture, problem.data
    tests = data.features[:0] if data.test_features is None else data.test_features
    if sampler == "exact":
        posterior = OrderParameterPosterior(finite_width_law(architecture), problem.canonical, tests)
    else:
        labels = architecture.root_power * data.labels.reshape(len(data.labels), -1)
        shapes = weight_shapes(architecture, data.features.shape[2])
        posterior = WeightPosterior(architecture, data.features, labels, tests, shapes)
    return Gibbs(posterior) if sampler == "gibbs" else NoUTurn(posterior, target_accept, warmup)


def label_draws(
    architecture: bpkr.Architecture,
    drawn: Mapping[str, np.ndarray | float],
    others: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> xr.DataTree:
    """Label draws and judge them; `others` has the axes of further variables."""
    arviz_stats = needed("arviz_stats", "sampling")
    seconds = {name: float(drawn[name]) for name in ("seconds", "warmup_seconds")}
    chains, draws = drawn["u"].shape[:2]
    axes = {"chain": ("chain", np.arange(chains)), "draw": ("draw", np.arange(draws))}
    stats = {name: (tuple(axes), drawn[name]) for name in _STATISTICS if name in drawn}
    posterior = {name: drawn[name] for name in drawn if name not in {*stats, *seconds}}
    posterior |= {name: ((*axes, *others[name]), drawn[name]) for name in others}
    posterior = label(architecture, None, along=tuple(axes), **axes, **posterior)
    with np.errstate(invalid="ignore", divide="ignore"):  # R-hat of a constant is NaN.
        summary = arviz_stats.summary(posterior, fmt="xarray", round_to="none").rename(summary="statistic")
    parts = {"posterior": posterior, "sample_stats": xr.Dataset({**stats, **axes}), "summary": summary}
    tree = xr.DataTree.from_dict(parts)
    complaints = _complaints(tree)
    tree.attrs = {"mixed": int(not complaints), "diagnosis": "; ".join(complaints) or "mixed", **seconds}
    return tree


def _complaints(tree: xr.DataTree) -> list[str]:
    chains, draws = (tree["posterior"].sizes[axis] for axis in ("chain", "draw"))
    if draws < _FEWEST_DRAWS:
        return [f"{counted(draws, 'draw')} per chain, but diagnostics need {_FEWEST_DRAWS}"]
    summary = tree["summary"].to_dataset()
    stats = tree["sample_stats"]
    if not summary.sel(statistic="sd").max().to_array().max() > 0:
        return ["all draws are equal"]
    found = ["a single chain cannot show whether chains agree"] if chains == 1 else []
    r_hat = summary.sel(statistic="r_hat").max().to_array()
    if r_hat.max() > R_HAT:
        found.append(f"split R-hat of {r_hat.idxmax().item()} is {r_hat.max():.3f}, above {R_HAT}")
    for statistic in ("ess_bulk", "ess_tail"):
        size = summary.sel(statistic=statistic).min().to_array()
        if size.min() < ESS_PER_CHAIN * chains:
            least = f"{statistic} of {size.idxmin().item()} is {size.min():.0f}"
            found.append(f"{least}, below {ESS_PER_CHAIN} per chain")
    if "diverging" in stats and (diverging := int(stats["diverging"].sum())):
        found.append(f"{diverging} of {chains * draws} transitions diverged")
    bfmi = needed("arviz_stats", "sampling").bfmi
    if "energy" in stats and (lowest := float(bfmi(tree)["energy"].min())) < BFMI:
        found.append(f"BFMI is {lowest:.2f}, below {BFMI}")
    return found


def posterior_means(tree: xr.DataTree) -> xr.Dataset:
    posterior = tree["posterior"].to_dataset()
    overlaps = [name for name in posterior.data_vars if name == "u" or name.startswith("U_")]
    series = posterior[overlaps]
    if tests := {"mean", "sampled_output"} & set(posterior.data_vars):
        means = posterior[tests.pop()]
        spread = (means - means.mean(("chain", "draw"))) ** 2 + posterior.get("variance", 0.0)
        series = series.assign(mean=means, variance=spread)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = needed("arviz_stats", "sampling").mcse(series, method="mean")
    errors = errors.rename({name: f"{name}_error" for name in errors.data_vars})
    return series.mean(("chain", "draw")).merge(errors).drop_attrs()


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
              than paths times outputs.
            - `exact`, `gibbs`, `nuts`: the samplers of `sample`.
            - `infinite_width`: the Gaussian process, or the limit with a richness.
        options: keywords of `sample` or `bpkr.solve` by approach.
        folder: samplers keep draws in subfolders, and resume from them.

    Returns:
        A dataset along `approach`: `U_l`, `u`; `mean`, `variance` and any `accuracy` on
        test examples; `mixed`, `diagnosis`; `seconds`, with compilation and warm-up;
        Monte Carlo errors such as `U_l_error`; with the approach `exact` also
        differences from it in standard errors, such as `U_l_deviation`.
    """
    refuse_traced("compare", problem, data, key)
    checked_instance("key", key, jax.Array, "jax.random.key(3)")
    problem = as_problem(problem, data)
    approaches = checked_sequence("approaches", approaches, "names")
    if not approaches:
        raise ValueError("approaches must have at least one name, got ()")
    for approach in approaches:
        checked_choice("approaches", approach, get_args(Approach))
        if approach in get_args(Sampler):
            check_can_be_sampled(approach, problem.architecture)
    for approach in options:
        checked_choice("options", approach, ("saddle", *get_args(Sampler)))
    found, shared = [], {"n_jobs": n_jobs, "progress": progress}
    needs_saddle, begun = {"saddle", "one_over_n"} & set(approaches), time.monotonic()
    saddle = bpkr.solve(problem, **options.get("saddle", {})) if needs_saddle else None
    solving = time.monotonic() - begun
    with bar("comparison", len(approaches), "approach", shown=progress) as report:
        for approach in approaches:
            if approach in get_args(Sampler):
                own = {"folder": folder and Path(folder, approach), **options.get(approach, {})}
                own["key"] = jax.random.fold_in(key, get_args(Approach).index(approach))
                tree = sample(problem, sampler=approach, **own, **shared)
                found.append(_of_draws(tree))
            else:
                found.append(_of_theory(approach, problem, saddle, solving))
            report.update()
    result = xr.concat(found, dim="approach").assign_coords(approach=list(approaches))
    classes, truth = outputs_as_classes(problem.data.test_labels)
    if classes is not None and "mean" in result:
        hits = [np.mean(classes.nearest(mean) == truth) for mean in result["mean"].values]
        is_missing = [np.isnan(mean).any() for mean in result["mean"].values]
        result["accuracy"] = "approach", np.where(is_missing, np.nan, hits)
    return result.merge(_deviations(result)) if "exact" in approaches else result


def _deviations(result: xr.Dataset) -> xr.Dataset:
    found, there = {}, result.sel(approach="exact")
    for name in (str(name) for name in result.data_vars if f"{name}_error" in result):
        error = np.hypot(result[f"{name}_error"], there[f"{name}_error"])
        # Entries that a skip connection fixes have no error.
        difference = result[name] - there[name]
        found[f"{name}_deviation"] = xr.where(difference == 0, 0.0, difference / error.where(error > 0))
    return xr.Dataset(found)


def _of_draws(tree: xr.DataTree) -> xr.Dataset:
    seconds = tree.attrs["seconds"] + tree.attrs["warmup_seconds"]
    known = {name: tree.attrs[name] for name in ("mixed", "diagnosis")}
    return posterior_means(tree).assign(**known, seconds=seconds)


def _of_theory(approach: str, problem: bpkr.Problem, saddle: bpkr.Saddle | None, solving: float) -> xr.Dataset:
    begun, architecture, data = time.monotonic(), problem.architecture, problem.data
    if approach == "infinite_width":
        saddle, solving = None, 0.0
        if architecture.richness is not None:
            problem = bpkr.Problem(architecture.at_infinite_width(), data)
            saddle = bpkr.solve(problem)
    point = bpkr.gp_limit(architecture) if saddle is None else saddle.order_parameters
    has_theory = approach != "one_over_n" or saddle.stats["units_per_path"] >= 1
    prediction, numbers = None, {}
    if approach == "one_over_n" and has_theory:
        corrected = bpkr.fluctuations(problem, saddle)
        point, prediction = corrected.mean, corrected.prediction
    elif data.test_features is not None:
        prediction = bpkr.predict(problem, point)
    if prediction is not None:
        unit = architecture.widths[0] if problem.architecture.is_infinite else 1.0
        numbers = {"mean": prediction.mean, "variance": prediction.variance / unit}
    found = label(architecture, point, **numbers)
    found = found.merge({f"{name}_error": xr.zeros_like(found[name]) for name in found.data_vars})
    mixed, diagnosis = (1, "") if saddle is None else (int(saddle.converged), saddle.diagnosis)
    if not has_theory:
        found, mixed, diagnosis = found * np.nan, 0, FEW_UNITS
    return found.assign(mixed=mixed, diagnosis=diagnosis, seconds=solving + time.monotonic() - begun)
