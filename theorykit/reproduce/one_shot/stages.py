"""The experiment whole, one variant after another; every stage is kept, and gone on from."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import xarray as xr
from tqdm import tqdm

from ... import bpkr, store
from ...training import Trained, initial_network, train
from .comparison import order_parameters
from .pruning import pruning
from .settings import OneShot, Variant, as_text
from .sources import Sources, sources
from .theory import READOUT, chosen_temperatures, kernel_components, theory_of_seed


def run(settings: OneShot, stages: Path) -> xr.DataTree:
    """All variants, as a tree of labelled datasets: a node for each, and in it one for each stage.

    - `training`: the history. `heads`: trained queries and keys, `query_l` and `key_l`.
    - `theory`: over seed, width and temperature; `kernel`: principal components.
    - `order_parameters`: U_1 of theory, sampled and trained. `pruning`: accuracy on removing heads.

    Shows progress. Every stage leaves its result in the folder `stages`, from where an interrupted run goes on, as does
    one with more seeds, widths, temperatures or steps of training.
    """
    made = sources(settings, stages)
    nodes = {}
    for variant in settings.variants:
        print(f"{variant.name}: {' x '.join(map(str, variant.heads))} heads")
        for name, dataset in run_variant(variant, settings, made, stages / variant.name).items():
            nodes[f"{variant.name}/{name}"] = dataset.drop_encoding()
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs={"settings": as_text(settings)}), **nodes})


def run_variant(variant: Variant, settings: OneShot, made: Sources, folder: Path) -> dict[str, xr.Dataset]:
    """The stages of one variant, by name."""
    trained = trained_network(variant, settings, made, folder / "training")
    network = trained.network
    identity = "; ".join(store.fingerprint(leaf) for leaf in jax.tree.leaves(network))
    alone = replace(settings, variants=(variant,))

    def kept(name: str, described: OneShot, compute: Callable[[], xr.Dataset]) -> xr.Dataset:
        dataset = store.resumed(folder / f"{name}.nc", f"{as_text(described)}; {identity}", compute)
        return dataset.assign_attrs({key: value for key, value in dataset.attrs.items() if key != "settings"})

    seeds = []
    total = settings.seeds * len(settings.widths) * len(settings.temperatures)
    with tqdm(total=total, desc="saddle points", unit="point", dynamic_ncols=True) as progress:
        for seed in range(settings.seeds):
            after = (seed + 1) * total // settings.seeds
            solve = partial(
                theory_of_seed, network.heads, made, settings, seed, folder / f"sweep-seed={seed}", progress
            )
            seeds.append(kept(f"theory-seed={seed}", _of_theory(alone), solve))
            progress.update(after - progress.n)  # a seed that is there counts as solved
    theory = xr.concat(seeds, dim=xr.DataArray(range(settings.seeds), dims="seed", name="seed"))
    theory = theory.assign(chosen_temperatures(theory))
    shown = (min(settings.widths), max(settings.widths))
    draws = folder / "draws"
    return {
        "training": trained.history,
        "heads": _labelled_heads(network.heads),
        "theory": theory,
        "kernel": kept("kernel", alone, partial(kernel_components, network.heads, made, settings, theory, shown)),
        "order_parameters": kept(
            "order-parameters", alone, partial(order_parameters, network, made, settings, theory, draws)
        ),
        "pruning": kept("pruning", alone, partial(pruning, network, made, settings, theory)),
    }


def trained_network(variant: Variant, settings: OneShot, made: Sources, folder: Path) -> Trained:
    """The variant's network, trained or as it was left in `folder`."""
    initial_key, training_key = jax.random.split(jax.random.key(settings.training_seed))
    architecture = bpkr.Architecture(variant.heads, settings.width, temperature=1.0)
    features = made.training.task.input_features
    network = initial_network(architecture, variant.head_dimension, features, readout=READOUT, key=initial_key)
    return train(
        architecture,
        network,
        made.training,
        made.validation,
        key=training_key,
        settings=settings.training,
        folder=folder,
    )


def _of_theory(settings: OneShot) -> OneShot:
    """What the theory of one seed depends on: the rest as it is by default."""
    default = OneShot(variants=settings.variants)
    names = ("images", "task", "unseen", "widths", "temperatures", "training_examples", "test_examples")
    return replace(default, **{name: getattr(settings, name) for name in names})


def _labelled_heads(heads: bpkr.ProjectionHeads) -> xr.Dataset:
    layers = zip(heads.queries, heads.keys, strict=True)
    return xr.Dataset(
        {
            f"{name}_{layer}": ((f"head_{layer}", "head_feature", "feature"), np.asarray(array))
            for layer, pair in enumerate(layers, 1)
            for name, array in zip(("query", "key"), pair, strict=True)
        }
    )
