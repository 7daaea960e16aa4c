"""Sample the posterior of a problem: its order parameters, or the weights of the finite network."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import xarray as xr

from ... import bpkr, store
from ...checks import Key, checked_arguments, checked_number, refuse_traced
from ...extras import needed
from ...workers import Workers, check_executor
from ..evaluation.problem import as_problem
from ..network.network import checked_whole_widths, weight_shapes
from ..order_parameters.finite_width_law import finite_width_law
from ..specification.architecture import require_finite_widths
from .chains import DEFAULT_SCHEDULES, Schedule, run_chains
from .posteriors import Gibbs, NoUTurn, OrderParameterPosterior, WeightPosterior
from .results import label_draws

# Part of the settings of a run. Increase it if draws change for the same arguments.
_VERSION = 9
_NAMES = {"exact": "NUTS on the order parameters", "gibbs": "block Gibbs on the weights", "nuts": "NUTS on the weights"}
Sampler = Literal["exact", "gibbs", "nuts"]
_Rate = Annotated[float, partial(checked_number, above=0.0, below=1.0)]


class MixingWarning(UserWarning):
    """Warns of chains that did not mix or are too short to judge. Their means and errors may be wrong."""


@checked_arguments
def sample(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    sampler: Sampler = "exact",
    key: Key,
    schedule: Schedule | None = None,
    target_accept: _Rate = 0.8,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draw from the posterior at the widths of the architecture, however small.

    Args:
        problem: the architecture with its data, or the architecture alone.
        data: the data, if `problem` is an architecture.
        sampler: a way to sample.

            - `exact`: NUTS on the order parameters, with all weights integrated out. A layer may have fewer units than
              partial paths. With nonlinear hidden units, this assumes Gaussian equivalence, which the attribute
              `ansatz` states.
            - `nuts`: NUTS on all weights, except queries and keys, as in the paper, Eq. (8). This is slow at low
              temperatures.
            - `gibbs`: exact block Gibbs on these weights. It mixes slowly if labels are nearly interpolated.
        key: JAX random key.
        schedule: number of chains, warm-up steps and draws.
        target_accept: the acceptance rate to which NUTS adapts its step size.
        folder: where draws are saved. A stopped run, or one that needs more draws, resumes from here.
        executor: runs chains in parallel with the same results; see `bpkr.sweeps.sweep`.
        progress: show a bar.

    Returns:
        A tree with these parts:

        - `posterior` (chain, draw, ...): U_l and u. For test examples also `mean` and `variance` of the output given
          the order parameters, or `sampled_output` of the network.
        - `sample_stats` (chain, draw): statistics such as `diverging`, `energy` and `n_steps`.
        - `summary`: ArviZ's summary along `statistic`, such as `mean`, `mcse_mean`, `ess_bulk` and `r_hat`.
        - attributes: `mixed` (0 or 1), `diagnosis`, `problem` and `sampler` in words, and `seconds` of drawing.

    Raises:
        ValueError: the posterior has no density that the sampler can use.

    Warns:
        MixingWarning: the chains did not mix.
    """
    refuse_traced("sample", problem, data, key)
    check_executor(executor)
    needed("arviz_stats", "sampling")
    problem = as_problem(problem, data)
    problem.require_labels()
    check_can_be_sampled(sampler, problem.architecture)
    schedule = DEFAULT_SCHEDULES[sampler] if schedule is None else schedule
    settings = store.settings_of(
        "sampling",
        _VERSION,
        sampler=sampler,
        target_accept=target_accept,
        architecture=problem.architecture,
        features=problem.data.features,
        labels=problem.data.labels,
        test_features=problem.data.test_features,
        # A run can be continued for more draws, so leave out `draws`.
        chains=schedule.chains,
        warmup=schedule.warmup,
        key=key,
    )
    # Workers may run in another directory.
    folder = None if folder is None else folder.absolute()
    make = partial(sampler_of, sampler, problem, schedule.warmup, target_accept)
    drawn = run_chains(make, schedule, key=key, settings=settings, folder=folder, executor=executor, progress=progress)
    tree = label_draws(problem.architecture, drawn)
    tree.attrs |= {"sampler": _NAMES[sampler], "problem": problem.description}
    if sampler == "exact" and problem.ansatz:
        tree.attrs["ansatz"] = problem.ansatz
    if not tree.attrs["mixed"]:
        warnings.warn(f"{_NAMES[sampler]}: {tree.attrs['diagnosis']}", MixingWarning, stacklevel=3)
    return tree


def check_can_be_sampled(sampler: str, architecture: bpkr.Architecture) -> None:
    """Raise `ValueError` if the posterior has no density that the sampler can use."""
    require_finite_widths(architecture, "sampling")
    is_cold = float(architecture.temperature) == 0
    if sampler == "exact":
        if is_cold and finite_width_law(architecture).is_singular:
            raise ValueError(
                "temperature=0, but a layer has fewer units than partial paths, so that the kernel is singular"
            )
        return
    if sampler == "gibbs" and not architecture.is_linear:
        raise ValueError("the architecture has nonlinear hidden units, but block Gibbs needs linear ones; use 'nuts'")
    checked_whole_widths(architecture)
    if is_cold:
        raise ValueError("temperature=0, but then the posterior of the weights has no density; use 'exact'")


def sampler_of(sampler: str, problem: bpkr.Problem, warmup: int, target_accept: float = 0.8) -> NoUTurn | Gibbs:
    """Create a sampler. It cannot be pickled, so every process creates one."""
    architecture, data = problem.architecture, problem.data
    tests = data.features[:0] if data.test_features is None else data.test_features
    if sampler == "exact":
        posterior = OrderParameterPosterior(finite_width_law(architecture), problem.canonical, tests)
    else:
        labels = architecture.root_power * data.labels.reshape(len(data.labels), -1)
        shapes = weight_shapes(architecture, data.features.shape[2])
        posterior = WeightPosterior(architecture, data.features, labels, tests, shapes)
    return Gibbs(posterior) if sampler == "gibbs" else NoUTurn(posterior, target_accept, warmup)
