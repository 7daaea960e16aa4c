"""Three samplers of the posterior for an architecture and data, and networks from their draws."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import xarray as xr
from jaxtyping import PRNGKeyArray

from ... import bpkr, store
from ...checks import Key, checked_arguments, checked_whole_number, refuse_traced
from ...extras import needed
from ...workers import Workers, check_executor
from ..evaluation.problem import as_problem
from ..network.attention import Heads
from ..network.network import checked_whole_widths, network_of_whitened, weight_shapes
from ..order_parameters.coordinates import finite_width_law
from ..specification.architecture import require_finite_widths
from .chains import run_chains
from .gibbs import Gibbs
from .no_u_turn import NoUTurnSampler
from .posterior import OrderParameterPosterior, WeightPosterior, split_weights
from .results import label_draws
from .settings import DEFAULT_SCHEDULES, NoUTurn, Schedule

# Part of the settings of a run. Increase it if the draws of a sampler change for the same arguments.
_VERSION = 8
_NAMES = {"exact": "NUTS on the order parameters", "gibbs": "block Gibbs on the weights", "nuts": "NUTS on the weights"}
_NO_U_TURN = NoUTurn()


@checked_arguments
def sample_order_parameters(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    key: Key,
    schedule: Schedule = DEFAULT_SCHEDULES["exact"],
    no_u_turn: NoUTurn = _NO_U_TURN,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draw from the exact posterior of the order parameters at the widths of the architecture, however small, by NUTS.

    Layers may have fewer units than partial paths, in which case order parameters are singular. For nonlinear hidden
    units the posterior is not exact, because the likelihood given the order parameters assumes Gaussian equivalence;
    the attribute `ansatz` states this.

    Args:
        problem: the architecture with its data, or the architecture alone.
        data: the data, if `problem` is an architecture.
        key: JAX random key.
        schedule: number of chains, warm-up steps and draws.
        no_u_turn: settings of NUTS.
        folder: where draws are saved. A stopped run, or a run that needs more draws, resumes from here.
        executor: runs chains in parallel with the same results; see `bpkr.sweeps.sweep`.
        progress: show a bar.

    Returns:
        A tree with these parts:

        - `posterior` (chain, draw, ...): U_l, u and, for test examples, `mean` and `variance` of the output given the
          order parameters. The posterior mean of `mean` is exactly the mean output of the network.
        - `sample_stats` (chain, draw): statistics of the sampler, such as `diverging`, `energy` and `n_steps`.
        - `summary`: for every variable of `posterior`, along `statistic`, its mean and standard deviation, the standard
          error of the mean, bulk and tail effective sample size, and split R-hat.
        - attributes: `mixed` (0 or 1), `diagnosis` and `problem` in words, `seconds` of drawing, and `settings`.

    Warns:
        MixingWarning: the chains did not mix.
    """
    if schedule.keep_weights:
        raise ValueError("schedule has keep_weights=True, but no weights are drawn here; use sample_weights")
    problem = as_problem(problem, data)
    tree = _run("exact", problem, schedule, no_u_turn, key, folder, executor, progress)
    if problem.ansatz:
        tree.attrs["ansatz"] = problem.ansatz
    return tree


@checked_arguments
def sample_weights(
    problem: bpkr.Problem | bpkr.Architecture,
    data: bpkr.Data | None = None,
    *,
    key: Key,
    schedule: Schedule = DEFAULT_SCHEDULES["nuts"],
    no_u_turn: NoUTurn = _NO_U_TURN,
    folder: Path | str | None = None,
    executor: Workers = None,
    progress: bool = True,
) -> xr.DataTree:
    """Draw all weights, except queries and keys, from the posterior of Eq. (8) by NUTS, as in the paper.

    Arguments and result are as in `sample_order_parameters`, except that U_l and u are computed from the weights,
    Eq. (13), and that `sampled_output` is the output of the network on test examples. With `keep_weights` in the
    schedule, `network_of` makes networks from draws. This sampler is slow: at a low temperature the posterior of the
    weights is far from isotropic, and a draw takes up to 2^max_tree_depth gradients.
    """
    return _run("nuts", as_problem(problem, data), schedule, no_u_turn, key, folder, executor, progress)


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
    """Draw the weights as `sample_weights` does, but by exact block Gibbs: each block from its Gaussian conditional.

    A draw is one sweep over all blocks, without step size or rejection. Mixing is fast at temperatures comparable to
    the kernel, and slow if the labels are nearly interpolated.
    """
    return _run("gibbs", as_problem(problem, data), schedule, None, key, folder, executor, progress)


def check_can_be_sampled(approach: str, architecture: bpkr.Architecture) -> None:
    """Raise `ValueError` if the posterior has no density that the sampler of `approach` can use."""
    require_finite_widths(architecture, "sampling")
    is_cold = float(architecture.temperature) == 0
    if approach == "exact":
        if is_cold and finite_width_law(architecture).is_singular:
            raise ValueError(
                f"temperature=0 with widths={tuple(map(float, architecture.widths))}: a layer with fewer units than "
                "partial paths makes the kernel singular; use a positive temperature"
            )
        return
    if approach == "gibbs" and not architecture.is_linear:
        raise ValueError(
            "the hidden units of the architecture are nonlinear, but block Gibbs needs a network that is linear in "
            "each block of weights; use sample_weights, the approach 'nuts'"
        )
    checked_whole_widths(architecture)
    if is_cold:
        raise ValueError(
            "temperature=0 restricts the posterior of the weights to networks that interpolate the labels, so it has "
            "no density; sample the order parameters, or use a positive temperature"
        )


def sampler_of(
    approach: str, problem: bpkr.Problem, schedule: Schedule, no_u_turn: NoUTurn | None = None
) -> NoUTurnSampler | Gibbs:
    """Create the sampler of an approach. A sampler cannot be pickled, so every process creates one."""
    architecture, data = problem.architecture, problem.data
    tests = data.features[:0] if data.test_features is None else data.test_features
    if approach == "exact":
        law = finite_width_law(architecture)
        posterior = OrderParameterPosterior(law, problem.canonical, tests)
    else:
        labels = architecture.root_power * data.labels.reshape(len(data.labels), -1)
        shapes = weight_shapes(architecture, data.features.shape[2])
        posterior = WeightPosterior(architecture, data.features, labels, tests, shapes, schedule.keep_weights)
    return Gibbs(posterior) if approach == "gibbs" else NoUTurnSampler(posterior, no_u_turn, schedule.warmup)


def _run(
    approach: str,
    problem: bpkr.Problem,
    schedule: Schedule,
    no_u_turn: NoUTurn | None,
    key: PRNGKeyArray,
    folder: Path | None,
    executor: Workers,
    progress: bool,
) -> xr.DataTree:
    refuse_traced("a sampler", problem, key)
    check_executor(executor)
    needed("arviz_stats", "sampling")
    problem.require_labels()
    check_can_be_sampled(approach, problem.architecture)
    settings = store.settings_of(
        "sampling",
        _VERSION,
        sampler=_NAMES[approach],
        keep_weights=schedule.keep_weights,
        no_u_turn=no_u_turn,
        architecture=problem.architecture,
        features=problem.data.features,
        labels=problem.data.labels,
        test_features=problem.data.test_features,
        # Leave out `draws`, because a run can be continued for more draws.
        chains=schedule.chains,
        warmup=schedule.warmup,
        key=key,
    )
    settings = {**settings, "sampler": _NAMES[approach]}
    # Workers may run in another directory, so make the path absolute.
    folder = None if folder is None else folder.absolute()
    make = partial(sampler_of, approach, problem, schedule, no_u_turn)
    drawn = run_chains(make, schedule, key=key, settings=settings, folder=folder, executor=executor, progress=progress)
    tree = label_draws(problem.architecture, drawn, settings)
    tree.attrs["problem"] = problem.description
    return tree


@checked_arguments
def network_of(
    architecture: bpkr.Architecture,
    tree: xr.DataTree,
    heads: Heads,
    *,
    chain: int,
    draw: int,
    readout: bpkr.Readout | None = None,
) -> bpkr.Network:
    """Return the network of one draw from `sample_weights` or `sample_weights_by_gibbs`, with `keep_weights`.

    Args:
        architecture: the architecture that was sampled.
        tree: the result of the sampler.
        heads: the heads that gave the features in sampling, which draws do not contain.
        chain, draw: number of the chain and of the draw, counted from 0.
        readout: the readout that gave the features in sampling.
    """
    posterior = tree["posterior"].to_dataset()
    if "weights" not in posterior:
        raise ValueError("tree has no weights; run sample_weights with keep_weights=True in the schedule")
    there = json.loads(tree.attrs["settings"])
    here = store.describe(architecture=architecture.with_arrays())
    if any(there.get(name) != value for name, value in here.items()):
        raise ValueError("tree has draws from another architecture")
    for name, number in (("chain", chain), ("draw", draw)):
        checked_whole_number(name, number, least=0, most=posterior.sizes[name] - 1)
    white = posterior["weights"].sel(chain=chain, draw=draw).values
    # The entries that do not belong to the other weights belong to the embedding.
    embedding, *others = weight_shapes(architecture, 1)
    shapes = weight_shapes(architecture, (white.size - sum(map(math.prod, others))) // embedding[0])
    return network_of_whitened(architecture, split_weights(jnp.asarray(white), shapes), heads, readout=readout)
