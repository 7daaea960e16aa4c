"""Three samplers of one posterior, from one architecture and one data set.

- `sample_order_parameters`: NUTS on the order parameters, whose exact law at finite width needs no weights; and after
  warm-up independent proposals, if they are accepted.
- `sample_weights`: NUTS on all weights, as in the paper.
- `sample_weights_by_gibbs`: exact block Gibbs on all weights.

The latter two run the finite network and know nothing of order parameters.
"""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import xarray as xr
from jaxtyping import PRNGKeyArray

from ... import bpkr, store
from ...checks import Key, checked_arguments, checked_whole_number
from ...extras import needed
from ...workers import Workers, check_executor
from ..evaluation.energies import energy_of
from ..evaluation.problem import as_problem
from ..features.implicit import Features
from ..network.attention_heads import AbstractHeads
from ..network.network import checked_whole_widths, network_of_whitened, weight_shapes
from ..order_parameters.finite_width_law import finite_width_law
from .chains import AbstractSampler, run_chains
from .gibbs import Gibbs
from .independence import IndependenceSampler
from .nuts import no_u_turn_sampler
from .posterior import OrderParameterPosterior
from .results import label_draws
from .settings import DEFAULT_SCHEDULES, NoUTurn, Schedule
from .weights import WeightPosterior, split_weights

# part of the settings of a run: raised whenever a sampler comes to draw other numbers from the same arguments
_VERSION = 5
_ON_ORDER_PARAMETERS, _ON_WEIGHTS = NoUTurn(target_accept=0.65), NoUTurn(target_accept=0.8)
# how many differences an error message names
_NAMED = 5


@checked_arguments
def sample_order_parameters(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    key: Key,
    schedule: Schedule = DEFAULT_SCHEDULES["exact"],
    no_u_turn: NoUTurn = _ON_ORDER_PARAMETERS,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draw from the exact posterior of the order parameters at the architecture's widths, however small.

    `data` may have test features; its test labels are not used. Layers with fewer units than partial paths, whose order
    parameters are singular, are sampled too. For nonlinear hidden units the likelihood given the order parameters is
    that of Gaussian equivalence, so the posterior is not exact; the attribute `ansatz` says so.

    Warm-up runs NUTS and fits a proposal distribution to its draws. After it we run independence Metropolis, with NUTS
    steps in between, the more of them the fewer proposals are accepted. `sample_stats` has the number of `proposals`
    of each draw, and its `n_steps` of NUTS.

    The tree is that of `label_draws`, with U_l, u and, for test examples, `mean` and `variance` of the output given
    the order parameters; the posterior mean of `mean` is the network's, exactly. With a `folder`, a run that was
    stopped, or that wants more draws, resumes. With an `executor`, see `sweeps.sweep`, chains run side by side, with
    the same results. Warns with `MixingWarning` if the chains did not mix.

    Raises `ValueError` for data that do not fit, and for a schedule with `keep_weights`: there are no weights here.
    """
    if schedule.keep_weights:
        raise ValueError("schedule: keep_weights=True, but order parameters are drawn here, and no weights")
    problem = _with_arrays(problem, data)
    architecture = problem.architecture
    if finite_width_law(architecture).is_singular and float(architecture.temperature) == 0:
        raise ValueError(
            f"temperature=0 with widths={tuple(map(float, architecture.widths))}: a layer with fewer units than "
            "partial paths makes the kernel singular; use a positive temperature"
        )
    name = "NUTS and independent proposals on the order parameters"
    make, options = partial(_sampler_of_order_parameters, no_u_turn), {"no_u_turn": no_u_turn}
    tree = _run(name, make, options, problem, schedule, key, folder, executor, progress)
    if not architecture.is_linear:
        tree.attrs["ansatz"] = "; ".join(bpkr.derive(architecture).ansatz)
    return tree


@checked_arguments
def sample_weights(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    key: Key,
    schedule: Schedule = DEFAULT_SCHEDULES["nuts"],
    no_u_turn: NoUTurn = _ON_WEIGHTS,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draw all weights but queries and keys from the posterior of Eq. (8), by NUTS, as in the paper.

    Arguments and result are like those of `sample_order_parameters`; U_l and u are computed from the weights, Eq. (13),
    and for test examples there is the network's output, `sampled_output`. If the schedule has `keep_weights`,
    `network_of` makes networks of draws. Slow: at a low temperature the posterior of the weights is far from isotropic,
    and a draw takes up to 2^max_tree_depth gradients.
    """
    problem = _with_arrays(problem, data)
    check_weights_have_a_posterior(problem.architecture)
    make = partial(_sampler_of_weights, no_u_turn)
    options = {"keep_weights": schedule.keep_weights, "no_u_turn": no_u_turn}
    where = (key, folder, executor, progress)
    return _run("NUTS on the weights", make, options, problem, schedule, *where)


@checked_arguments
def sample_weights_by_gibbs(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    key: Key,
    schedule: Schedule = DEFAULT_SCHEDULES["gibbs"],
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draw the weights as `sample_weights` does, by exact block Gibbs: each block from its Gaussian conditional.

    There is no step size and no rejection; a draw is one sweep over all blocks. It mixes fast at temperatures
    comparable to the kernel, and slowly if the labels are nearly interpolated.
    """
    problem = _with_arrays(problem, data)
    check_is_linear_in_weights(problem.architecture)
    check_weights_have_a_posterior(problem.architecture)
    options, where = {"keep_weights": schedule.keep_weights}, (key, folder, executor, progress)
    return _run("block Gibbs on the weights", _gibbs_sampler, options, problem, schedule, *where)


# samplers cannot be pickled: whoever runs a chain makes one, by these functions
def _sampler_of_order_parameters(no_u_turn: NoUTurn, problem: bpkr.Problem, schedule: Schedule) -> AbstractSampler:
    law, data = finite_width_law(problem.architecture), problem.data
    energy = energy_of(problem.bound, data, by_kernel=law.is_singular)
    posterior = OrderParameterPosterior(law, energy, data.features, data.labels, _test_features(data))
    return IndependenceSampler(no_u_turn_sampler(posterior, no_u_turn, warmup=schedule.warmup))


def _sampler_of_weights(no_u_turn: NoUTurn, problem: bpkr.Problem, schedule: Schedule) -> AbstractSampler:
    posterior = _weight_posterior(problem, schedule)
    return no_u_turn_sampler(posterior, no_u_turn, warmup=schedule.warmup)


def _gibbs_sampler(problem: bpkr.Problem, schedule: Schedule) -> AbstractSampler:
    return Gibbs(_weight_posterior(problem, schedule))


def _weight_posterior(problem: bpkr.Problem, schedule: Schedule) -> WeightPosterior:
    architecture, data = problem.architecture, problem.data
    return WeightPosterior(
        architecture,
        data.features,
        data.labels.reshape(len(data.labels), -1),
        _test_features(data),
        weight_shapes(architecture, data.features.shape[2]),
        schedule.keep_weights,
    )


def _test_features(data: bpkr.Data) -> Features:
    return data.features[:0] if data.test_features is None else data.test_features


@checked_arguments
def network_of(
    architecture: bpkr.Architecture,
    tree: xr.DataTree,
    heads: AbstractHeads,
    *,
    chain: int,
    draw: int,
    readout: bpkr.Readout | None = None,
) -> bpkr.Network:
    """Return the network of one draw of `sample_weights` or `sample_weights_by_gibbs`, with `keep_weights`.

    `chain` and `draw` are counted from 0. `heads` and `readout` must be those of the features that the weights were
    sampled with: the draws do not know them. Raises `ValueError` for draws of another architecture.
    """
    try:
        there = json.loads(tree.attrs["settings"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            "tree does not say what its draws are of: it must be what sample_weights or sample_weights_by_gibbs returns"
        ) from None
    there = {name: value for name, value in there.items() if name.startswith("architecture")}
    found = store.differences(there, store.describe(architecture=architecture.with_arrays()))
    if found:
        raise ValueError(f"tree has draws of another architecture, which differs in {'; '.join(found[:_NAMED])}")
    posterior = tree["posterior"].to_dataset()
    for name, number in (("chain", chain), ("draw", draw)):
        checked_whole_number(name, number, least=0, most=posterior.sizes[name] - 1)
    if "weights" not in posterior:
        raise ValueError("the draws have no weights: sample the weights, with keep_weights=True in the schedule")
    white = posterior["weights"].sel(chain=chain, draw=draw).values
    # the embedding's columns are whatever entries the other weights leave
    embedding, *others = weight_shapes(architecture, 1)
    shapes = weight_shapes(architecture, (white.size - sum(map(math.prod, others))) // embedding[0])
    return network_of_whitened(architecture, split_weights(jnp.asarray(white), shapes), heads, readout=readout)


def _with_arrays(problem: bpkr.Problem | bpkr.Architecture, data: bpkr.Data | None) -> bpkr.Problem:
    problem = as_problem(problem, data)
    problem.require_arrays("the sampler")
    return problem


def check_is_linear_in_weights(architecture: bpkr.Architecture) -> None:
    """Raise `ValueError` for nonlinear hidden units, whose weights have no Gaussian conditional distributions."""
    if not architecture.is_linear:
        raise ValueError(
            "the hidden units of the architecture are nonlinear, and block Gibbs needs a network that is linear in "
            "each block of weights: use sample_weights, the approach 'nuts'"
        )


def check_weights_have_a_posterior(architecture: bpkr.Architecture) -> None:
    """Raise `ValueError` unless networks of these widths exist, and their weights have a density."""
    checked_whole_widths(architecture)
    if float(architecture.temperature) == 0:
        raise ValueError(
            "temperature=0 makes the posterior of the weights live on the networks that interpolate the labels, where "
            "it has no density; sample the order parameters, or use a positive temperature"
        )


def _run(
    name: str,
    make: Callable[[bpkr.Problem, Schedule], AbstractSampler],
    options: dict[str, Any],
    problem: bpkr.Problem,
    schedule: Schedule,
    key: PRNGKeyArray,
    folder: Path | None,
    executor: Workers,
    progress: bool,
) -> xr.DataTree:
    check_executor(executor)
    needed("arviz_stats", "sampling")
    architecture, data = problem.architecture, problem.data
    settings = store.settings_of(
        "sampling",
        _VERSION,
        sampler=name,
        **options,
        architecture=architecture,
        features=data.features,
        labels=data.labels,
        test_features=data.test_features,
        # not `draws`: more draws of the same chains are the same run
        chains=schedule.chains,
        warmup=schedule.warmup,
        key=key,
    )
    settings = {**settings, "sampler": name}
    # absolute, for workers that run elsewhere
    folder = None if folder is None else folder.absolute()
    where = {"folder": folder, "executor": executor, "progress": progress}
    drawn = run_chains(partial(make, problem, schedule), schedule, key=key, settings=settings, **where)
    return label_draws(architecture, drawn, settings)
