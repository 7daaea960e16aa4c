"""Remove heads from the trained network without retraining; measure the loss of accuracy and the savings."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float

from theorykit import bpkr

from ..tasks.one_shot import Episodes
from .settings import OneShot
from .sources import Sources
from .theory import path_examples

_TIMED_EXAMPLES, _TIMINGS = 256, 7


@dataclass(frozen=True)
class Outputs:
    """The trained network's outputs per path, (examples, paths), and labels (examples,).

    A network without some heads is the sum over the remaining paths, so subsets need no forward pass.
    """

    by_path: Float[np.ndarray, "examples paths"]
    labels: Float[np.ndarray, " examples"]

    def accuracy(self, stays: Bool[np.ndarray, " paths"]) -> float:
        """Compute the accuracy of the network with these paths only."""
        return float(np.mean(np.sign(self.by_path[:, stays].sum(axis=1)) == self.labels))


def pruning(network: bpkr.Network, sources: Sources, settings: OneShot, theory: xr.Dataset) -> xr.Dataset:
    """Measure the trained network's accuracy without some heads, by distribution and seed of the test examples.

    - `score` (head): head score from the theory at the smallest width, averaged over seeds.
    - `trained_score` (head): head score from the trained weights.
    - `single_accuracy` (seed, distribution, head): accuracy without this head.
    - `accuracy` (seed, distribution, order, removed): accuracy without the first `removed` heads of an order. The
      orders are ascending `score`; ascending loss of accuracy on validation classes ("leave one out"); and random,
      averaged over several random orders.
    - `order` (order, removed): the last head removed. Every layer keeps at least one head.
    - `parameters`, `inference_seconds` (removed): number of parameters, and seconds per batch, of the network that
      remains if heads are removed by ascending `score`.
    """
    architecture = bpkr.Architecture(network.heads.counts, network.widths, temperature=1.0)
    counts = architecture.heads
    scores = _scores(theory, architecture)
    # The scores need no kernel, so a singular matrix (fewer units than paths) is harmless.
    trained_scores = bpkr.head_scores(architecture, bpkr.empirical_order_parameters(network))
    heads = bpkr.rank_heads([np.zeros(count) for count in counts])
    held_out = _outputs(network, architecture, sources.validation, settings, seed=-1)
    alone = {head: held_out.accuracy(_stays(architecture, [head])) for head in heads}
    orders = {
        "score": bpkr.removable_heads(bpkr.rank_heads(scores), counts),
        "leave one out": bpkr.removable_heads(sorted(heads, key=lambda head: -alone[head]), counts),
    }
    random = [bpkr.removable_heads(order, counts) for order in _random_orders(heads, settings.orders)]

    def at_seed(seed: int) -> xr.Dataset:
        outputs = [_outputs(network, architecture, source, settings, seed=seed) for source in sources.tests.values()]
        measured = [_measure(one, architecture, heads, orders, random) for one in outputs]
        return xr.concat(measured, dim=xr.DataArray(list(sources.tests), dims="distribution", name="distribution"))

    seeds = theory["seed"].values.tolist()
    return xr.merge(
        [
            xr.concat([at_seed(seed) for seed in seeds], dim=xr.DataArray(seeds, dims="seed", name="seed")),
            xr.Dataset(
                {
                    "score": ("head", np.concatenate(scores)),
                    "trained_score": ("head", np.concatenate(trained_scores)),
                    "order": (("order_of", "removed"), [["", *map(_label, order)] for order in orders.values()]),
                },
                coords={"head": list(map(_label, heads)), "order_of": list(orders)},
            ),
            _savings(network, sources.validation, orders["score"]),
        ]
    )


def _label(head: bpkr.Head) -> str:
    return f"{head.layer}.{head.head}"


def _scores(theory: xr.Dataset, architecture: bpkr.Architecture) -> list[np.ndarray]:
    width = int(theory["width"].min())
    chosen = theory["chosen_temperature"].sel(rule="accuracy", width=width)
    at_best = theory.sel(width=width, temperature=float(chosen))
    return [at_best[f"head_score_{layer}"].mean("seed").values for layer in range(1, architecture.depth + 1)]


def _random_orders(heads: Sequence[bpkr.Head], count: int) -> list[list[bpkr.Head]]:
    keys = jax.random.split(jax.random.key(0), count)
    return [[heads[i] for i in jax.random.permutation(key, len(heads)).tolist()] for key in keys]


def _outputs(
    network: bpkr.Network, architecture: bpkr.Architecture, source: Episodes, settings: OneShot, *, seed: int
) -> Outputs:
    """Compute outputs on fresh examples of `seed`."""
    key = jax.random.fold_in(jax.random.key(1 + seed), 1)
    features, labels = path_examples(architecture, network.heads, source, settings.test_examples, key=key)
    return Outputs(np.asarray(network.path_outputs(features)), np.asarray(labels))


def _stays(architecture: bpkr.Architecture, removed: Sequence[bpkr.Head]) -> Bool[np.ndarray, " paths"]:
    """Find the paths that contain none of the `removed` heads."""
    heads = np.array(architecture.path_branches())
    stays = np.ones(len(heads), dtype=bool)
    for layer, head in removed:
        stays &= heads[:, layer - 1] != head
    return stays


def _measure(
    outputs: Outputs,
    architecture: bpkr.Architecture,
    heads: Sequence[bpkr.Head],
    orders: Mapping[str, Sequence[bpkr.Head]],
    random: Sequence[Sequence[bpkr.Head]],
) -> xr.Dataset:
    def along(order):
        return [outputs.accuracy(_stays(architecture, order[:count])) for count in range(len(order) + 1)]

    curves = {**{name: along(order) for name, order in orders.items()}, "random": np.mean(list(map(along, random)), 0)}
    single = [outputs.accuracy(_stays(architecture, [head])) for head in heads]
    return xr.Dataset(
        {
            "accuracy": (("removal", "removed"), np.array(list(curves.values()))),
            "single_accuracy": ("head", single),
        },
        coords={"removal": list(curves), "removed": range(len(curves["score"])), "head": list(map(_label, heads))},
    )


@eqx.filter_jit
def _forward(network: bpkr.Network, inputs: Array) -> Array:
    return network(inputs)


def _savings(network: bpkr.Network, source: Episodes, order: Sequence[bpkr.Head]) -> xr.Dataset:
    """Count the parameters of networks without the removed heads, and time their forward pass."""
    inputs = source(_TIMED_EXAMPLES, key=jax.random.key(0)).inputs
    parameters, seconds = [], []
    for count in range(len(order) + 1):
        smaller = bpkr.without_heads(network, order[:count])
        _forward(smaller, inputs).block_until_ready()  # compiles
        times = []
        for _ in range(_TIMINGS):
            began = time.perf_counter()
            _forward(smaller, inputs).block_until_ready()
            times.append(time.perf_counter() - began)
        parameters.append(smaller.parameter_count)
        seconds.append(float(np.median(times)))
    return xr.Dataset(
        {
            "parameters": ("removed", parameters),
            "inference_seconds": ("removed", seconds, {"long_name": f"of {_TIMED_EXAMPLES} sequences, median"}),
        },
        coords={"removed": range(len(order) + 1)},
    )
