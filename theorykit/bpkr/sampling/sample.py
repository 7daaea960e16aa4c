"""Three samplers of one posterior, from one architecture and one data set.

- `sample_order_parameters`: NUTS on the order parameters, whose exact law at finite width needs no weights; and after
  warm-up independent proposals, where they are accepted.
- `sample_weights`: NUTS on all weights, as the paper does.
- `sample_weights_by_gibbs`: exact block Gibbs on all weights.

The latter two know nothing of order parameters: they run the finite network.
"""

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import PRNGKeyArray

from ... import bpkr, store
from ...checks import checked_flag, checked_instance, checked_key, checked_path, checked_whole_number, require
from ...extras import needed
from ...workers import Workers, check_executor
from ..data.checks import check_interpolation
from ..data.data import check_data
from ..data.magnitudes import moderate_magnitudes
from ..evaluation.bound_action import bind
from ..evaluation.energies import energy_by_kernel, energy_of
from ..features.implicit import Features
from ..network.attention_heads import AbstractHeads
from ..network.network import checked_whole_widths, network_of_whitened, weight_shapes
from ..order_parameters.finite_width_law import law_of
from .chains import AbstractSampler, run_chains
from .gibbs import Gibbs
from .independence import IndependenceSampler
from .nuts import no_u_turn_sampler
from .order_parameters import OrderParameterPosterior
from .results import label_draws
from .settings import DEFAULT_SCHEDULES, NoUTurn, Schedule
from .weights import WeightPosterior, split_weights

# of the chains: raised whenever a sampler comes to draw other numbers from the same arguments
_VERSION = 4
_ON_ORDER_PARAMETERS, _ON_WEIGHTS = NoUTurn(target_accept=0.65), NoUTurn(target_accept=0.8)
_OF_ORDER_PARAMETERS = "NUTS and independent proposals on the order parameters"
# how many differences an error message names
_NAMED = 5


def sample_order_parameters(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    *,
    key: PRNGKeyArray,
    schedule: Schedule = DEFAULT_SCHEDULES["exact"],
    no_u_turn: NoUTurn = _ON_ORDER_PARAMETERS,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draws from the exact posterior of the order parameters at the architecture's widths, however small.

    `data` may have test features, and its test labels are not looked at. A layer of fewer units than partial paths
    makes the order parameters singular, which is no difficulty. For nonlinear hidden units the likelihood given the
    order parameters is that of Gaussian equivalence, and the posterior not exact: the attribute `ansatz` says so.

    In warm-up NUTS runs, and a law is fitted to its draws. Proposals from that law are the draws, with steps of NUTS
    between them, the more often the more rarely proposals are accepted; in the end NUTS is alone. `sample_stats` has
    the `proposals` of each draw, and its `n_steps` of NUTS.

    The tree is that of `label_draws`, with U_l, u and, for test examples, `mean` and `variance` of the output given
    the order parameters: the posterior mean of `mean` is the network's, exactly. With a `folder`, a run that was
    stopped, or wants more draws, goes on from there. With an `executor`, see `sweeps.sweep`, chains run side by side;
    what comes out does not depend on it. Warns with `MixingWarning` if the chains did not mix.

    Raises `ValueError` for data that do not fit, and for a schedule that is to keep weights, of which there are none.
    """
    _check_settings(schedule, no_u_turn)
    if schedule.keep_weights:
        raise ValueError("schedule: keep_weights=True, but order parameters are drawn here, and no weights")
    data = _check(architecture, data)
    if law_of(architecture.with_arrays()).is_singular and float(architecture.temperature) == 0:
        raise ValueError(
            f"temperature=0 with widths={architecture.widths}: a layer with fewer units than partial paths makes the "
            "kernel singular; use a positive temperature"
        )
    options = {"sampler": _OF_ORDER_PARAMETERS, "no_u_turn": no_u_turn}
    make = partial(_sampler_of_order_parameters, no_u_turn)
    return _run(make, architecture, data, schedule, options, key, folder, executor, progress)


def sample_weights(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    *,
    key: PRNGKeyArray,
    schedule: Schedule = DEFAULT_SCHEDULES["nuts"],
    no_u_turn: NoUTurn = _ON_WEIGHTS,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draws of all weights but queries and keys from the posterior of Eq. (8), by NUTS, as in the paper.

    Arguments and result as of `sample_order_parameters`; U_l and u are those of the weights, Eq. (13), and for test
    examples there is the network's output, `sampled_output`; where the schedule has `keep_weights`, `network_of` makes
    networks of draws. Slow: the posterior of the weights is far from isotropic at a low temperature, and draws take up
    to 2^max_tree_depth gradients.
    """
    _check_settings(schedule, no_u_turn)
    data = _check(architecture, data)
    check_weights_have_a_posterior(architecture)
    options = {"sampler": "NUTS on the weights", "keep_weights": schedule.keep_weights, "no_u_turn": no_u_turn}
    make = partial(_sampler_of_weights, no_u_turn)
    return _run(make, architecture, data, schedule, options, key, folder, executor, progress)


def sample_weights_by_gibbs(
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    *,
    key: PRNGKeyArray,
    schedule: Schedule = DEFAULT_SCHEDULES["gibbs"],
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """The same by exact block Gibbs: every block of weights in turn is drawn from its Gaussian conditional.

    No step size, no rejections; a draw is one sweep over all blocks. It mixes fast at temperatures that are not small
    beside the kernel, and slowly where the labels are nearly interpolated.
    """
    _check_settings(schedule)
    data = _check(architecture, data)
    check_is_linear_in_weights(architecture)
    check_weights_have_a_posterior(architecture)
    options = {"sampler": "block Gibbs on the weights", "keep_weights": schedule.keep_weights}
    return _run(_gibbs_sampler, architecture, data, schedule, options, key, folder, executor, progress)


def _sampler_of_order_parameters(
    no_u_turn: NoUTurn, architecture: bpkr.Architecture, data: bpkr.Data, schedule: Schedule
) -> AbstractSampler:
    numbers = architecture.with_arrays()
    law = law_of(numbers)
    energy = (energy_by_kernel if law.is_singular else energy_of)(bind(numbers), data.features, data.labels)
    posterior = OrderParameterPosterior(law, energy, data.features, data.labels, _test_features(data))
    return IndependenceSampler(no_u_turn_sampler(posterior, no_u_turn, warmup=schedule.warmup))


def _sampler_of_weights(
    no_u_turn: NoUTurn, architecture: bpkr.Architecture, data: bpkr.Data, schedule: Schedule
) -> AbstractSampler:
    posterior = _weight_posterior(architecture, data, schedule)
    return no_u_turn_sampler(posterior, no_u_turn, warmup=schedule.warmup)


def _gibbs_sampler(architecture: bpkr.Architecture, data: bpkr.Data, schedule: Schedule) -> AbstractSampler:
    return Gibbs(_weight_posterior(architecture, data, schedule))


def network_of(
    architecture: bpkr.Architecture,
    tree: xr.DataTree,
    heads: AbstractHeads,
    *,
    chain: int,
    draw: int,
    readout: bpkr.Readout | None = None,
) -> bpkr.Network:
    """The network of one draw of `sample_weights` or `sample_weights_by_gibbs`, whose schedule had `keep_weights`.

    `chain` and `draw` are counted from 0. `heads` and `readout` must be those of the features that the weights were
    sampled with: the draws do not know them. Raises `ValueError` for draws of another architecture.
    """
    checked_instance("architecture", architecture, bpkr.Architecture)
    checked_instance("tree", tree, xr.DataTree, "draws as sample_weights returns them")
    checked_instance("heads", heads, AbstractHeads, "as bpkr.heads makes them")
    _refuse_draws_of_another(architecture, tree)
    posterior = tree["posterior"].to_dataset()
    for name, number in (("chain", chain), ("draw", draw)):
        checked_whole_number(name, number, least=0, most=posterior.sizes[name] - 1)
    if "weights" not in posterior:
        raise ValueError("the draws have no weights: sample the weights, with keep_weights=True in the schedule")
    white = posterior["weights"].sel(chain=chain, draw=draw).values
    embedding, *others = weight_shapes(architecture, 1)
    shapes = weight_shapes(architecture, (white.size - sum(map(math.prod, others))) // embedding[0])
    return network_of_whitened(architecture, split_weights(jnp.asarray(white), shapes), heads, readout=readout)


def _refuse_draws_of_another(architecture: bpkr.Architecture, tree: xr.DataTree) -> None:
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


def _check_settings(schedule: Schedule, *no_u_turn: NoUTurn) -> None:
    checked_instance("schedule", schedule, Schedule, "such as sampling.Schedule(chains=4, warmup=500, draws=1000)")
    for settings in no_u_turn:
        checked_instance("no_u_turn", settings, NoUTurn, "such as sampling.NoUTurn(target_accept=0.9)")


def _check(architecture: bpkr.Architecture, data: bpkr.Data) -> bpkr.Data:
    """Data that fit the architecture, and have a posterior at its temperature."""
    data = check_data(architecture, data)
    require(None, moderate_magnitudes(architecture, np.asarray(data.labels)))
    if architecture.is_linear:
        check_interpolation(architecture, np.asarray(data.features))
    return data


def _test_features(data: bpkr.Data) -> Features:
    """With no examples if nothing is to be predicted."""
    return data.features[:0] if data.test_features is None else data.test_features


def check_is_linear_in_weights(architecture: bpkr.Architecture) -> None:
    """Raise `ValueError` for nonlinear hidden units, of whose weights no conditional distribution is Gaussian."""
    if not architecture.is_linear:
        raise ValueError(
            "the hidden units of the architecture are nonlinear, and block Gibbs needs a network that is linear in "
            "each block of weights: use sample_weights, the approach 'nuts'"
        )


def check_weights_have_a_posterior(architecture: bpkr.Architecture) -> None:
    """Raise `ValueError` unless there are networks of these widths, and a density of their weights."""
    checked_whole_widths(architecture)
    if float(architecture.temperature) == 0:
        raise ValueError(
            "temperature=0 makes the posterior of the weights live on the networks that interpolate the labels, where "
            "it has no density; sample the order parameters, or use a positive temperature"
        )


def _weight_posterior(architecture: bpkr.Architecture, data: bpkr.Data, schedule: Schedule) -> WeightPosterior:
    return WeightPosterior(
        architecture.with_arrays(),
        data.features,
        data.labels.reshape(len(data.labels), -1),
        _test_features(data),
        weight_shapes(architecture, data.features.shape[2]),
        schedule.keep_weights,
    )


def _run(
    make: Callable[[bpkr.Architecture, bpkr.Data, Schedule], AbstractSampler],
    architecture: bpkr.Architecture,
    data: bpkr.Data,
    schedule: Schedule,
    options: Mapping[str, Any],
    key: PRNGKeyArray,
    folder: Path | str | None,
    executor: Workers,
    progress: bool,
) -> xr.DataTree:
    check_executor(executor)
    checked_flag("progress", progress)
    needed("arviz_stats", "sampling")
    # the same for workers, which may be elsewhere
    folder = None if folder is None else checked_path("folder", folder).absolute()
    described = store.settings_of(
        "sampling",
        _VERSION,
        **options,
        architecture=architecture.with_arrays(),
        features=data.features,
        labels=data.labels,
        test_features=data.test_features,
        # more draws of the same chains are the same run
        chains=schedule.chains,
        warmup=schedule.warmup,
        key=checked_key("key", key),
    )
    settings = {**described, "sampler": options["sampler"]}
    # made by who runs a chain: a sampler cannot be sent
    make = partial(make, architecture, data, schedule)
    where = {"folder": folder, "executor": executor, "progress": progress}
    drawn = run_chains(make, schedule, key=key, settings=settings, **where)
    tree = label_draws(architecture, drawn, settings)
    if not architecture.is_linear and options["sampler"] == _OF_ORDER_PARAMETERS:
        tree.attrs["ansatz"] = "; ".join(bpkr.derive(architecture).ansatz)
    return tree
