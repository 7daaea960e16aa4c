"""The whole experiment, one variant after another. Every stage is kept, so a run can resume."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import joblib
import msgspec
import xarray as xr

from theorykit import bpkr
from theorykit.checks import checked_arguments
from theorykit.runs import Folder, bar

from ..training import Trained, initial_network, label_network, train
from .comparison import check, order_parameters
from .pruning import pruning
from .settings import OneShot, Variant
from .sources import Sources, sources
from .theory import READOUT, choose_temperatures, kernel_components, theory_of_seed

# Increase this number whenever the same settings give different results in any stage.
_VERSION = 2


@checked_arguments
def run(settings: OneShot, stages: Path, *, n_jobs: int = 1, progress: bool = True) -> xr.DataTree:
    """Run all variants. Return a tree of labelled datasets with a node per variant, which has a node per stage.

    - `training`: the training history.
    - `network`: the trained weights, queries and keys; see `label_network`.
    - `theory`: the theory over seed, width and temperature.
    - `kernel`: principal components of the kernel.
    - `order_parameters`: U_1 from theory, from sampling, and from the trained network.
    - `check`: the sampled U_1 against a second sampler.
    - `pruning`: accuracy without some heads.

    All stages except `check` have an axis `training_seed` of independently trained networks.

    Every stage keeps its result in the folder `stages`. Interrupted runs resume from there, and so do runs with more
    seeds of either kind, widths, temperatures or training steps. `n_jobs` processes run widths and
    chains, as in `sweeps.sweep`; training runs in this process. `progress` shows bars.
    """
    made, nodes = sources(settings, stages), {}
    with bar("one-shot classification", len(settings.variants), "network", shown=progress) as report:
        for variant in settings.variants:
            place = {"folder": stages / variant.name, "n_jobs": n_jobs, "progress": progress}
            for name, dataset in run_variant(variant, settings, made, **place).items():
                nodes[f"{variant.name}/{name}"] = dataset.drop_encoding()
            report.update()
    about = xr.Dataset(attrs={"settings": msgspec.json.encode(settings).decode()})
    return xr.DataTree.from_dict({"/": about, **nodes})


def run_variant(
    variant: Variant,
    settings: OneShot,
    made: Sources,
    folder: Path,
    *,
    n_jobs: int = 1,
    progress: bool = True,
) -> dict[str, xr.Dataset]:
    """Run the stages of one variant, by name, along `training_seed`; `check` uses the first trained network."""
    options = {"n_jobs": n_jobs, "progress": progress}
    trained = [
        load_or_train(variant, settings, made, folder / f"training-seed={seed}", training_seed=seed, progress=progress)
        for seed in range(settings.training_seeds)
    ]
    found = [run_network(variant, settings, made, one, folder, **options) for one in trained]
    check_of_first = check_network(variant, settings, made, trained[0].network, found[0], folder, **options)
    seeds = xr.DataArray(range(settings.training_seeds), dims="training_seed", name="training_seed")
    joined = {
        stage: xr.concat([one[stage] for one in found], dim=seeds, join="outer", combine_attrs="drop_conflicts")
        for stage in found[0]
    }
    return {**joined, "check": check_of_first}


def run_network(
    variant: Variant,
    settings: OneShot,
    made: Sources,
    trained: Trained,
    folder: Path,
    *,
    n_jobs: int = 1,
    progress: bool = True,
) -> dict[str, xr.Dataset]:
    """Run the stages of one trained network, by name."""
    network, options = trained.network, {"n_jobs": n_jobs, "progress": progress}
    folder = _folder_of(network, folder)
    theory = theory_of_heads(network.heads, settings, made, folder, **options)
    resumed = partial(_resume_later_stage, variant, settings, network, folder)
    given, shown = (made, settings, theory), (min(settings.widths), max(settings.widths))
    return {
        "training": trained.history,
        "network": label_network(network),
        "theory": theory,
        "kernel": resumed("kernel", kernel_components, network.heads, *given, shown),
        "order_parameters": resumed("order parameters", order_parameters, network, *given, folder / "draws", **options),
        "pruning": resumed("pruning", pruning, network, *given),
    }


def check_network(
    variant: Variant,
    settings: OneShot,
    made: Sources,
    network: bpkr.Network,
    found: Mapping[str, xr.Dataset],
    folder: Path,
    *,
    n_jobs: int = 1,
    progress: bool = True,
) -> xr.Dataset:
    """Check the sampled order parameters from `run_network` with another sampler."""
    folder = _folder_of(network, folder)
    given = network, made, settings, found["theory"], found["order_parameters"], folder / "draws-of-check"
    options = {"n_jobs": n_jobs, "progress": progress}
    return _resume_later_stage(variant, settings, network, folder, "check", check, *given, **options)


def _folder_of(network: bpkr.Network, folder: Path) -> Path:
    return folder / f"network-{joblib.hash(jax.tree.leaves(network))[:8]}"


def _resume_later_stage(
    variant: Variant,
    settings: OneShot,
    network: bpkr.Network,
    folder: Path,
    stage: str,
    compute: Callable[..., xr.Dataset],
    *arguments: Any,
    **options: Any,
) -> xr.Dataset:
    # Settings describe a single network, so its results stay valid when other networks are added.
    alone = replace(settings, variants=(variant,), training_seeds=1)
    values = {"settings": alone, "network": network}
    return _resume_stage(folder, stage.replace(" ", "-"), values, partial(compute, *arguments, **options))


def theory_of_heads(
    heads: bpkr.Heads,
    settings: OneShot,
    made: Sources,
    folder: Path,
    *,
    n_jobs: int = 1,
    progress: bool = True,
) -> xr.Dataset:
    """Compute the theory for given `heads` at every seed, width and temperature, and choose temperatures.

    Returns the results of `theory_of_seed` along an axis `seed`, with the temperatures from `choose_temperatures`. The
    result of each seed is kept in `folder`.
    """
    names = ("images", "task", "unseen", "widths", "temperatures", "training_examples", "test_examples")
    depends_on = {name: getattr(settings, name) for name in names}
    values = {**depends_on, "heads": heads}
    found = []
    with bar("theory", settings.seeds, "seed", shown=progress) as report:
        for seed in range(settings.seeds):
            kept = folder / f"sweep-seed={seed}"
            solve = partial(theory_of_seed, heads, made, settings, seed, kept, n_jobs=n_jobs, progress=progress)
            found.append(_resume_stage(folder, f"theory-seed={seed}", {**values, "seed": seed}, solve))
            report.update()
    theory = xr.concat(found, dim=xr.DataArray(range(settings.seeds), dims="seed", name="seed"))
    return theory.assign(choose_temperatures(theory))


def load_or_train(
    variant: Variant, settings: OneShot, made: Sources, folder: Path, *, training_seed: int = 0, progress: bool = True
) -> Trained:
    """Load the variant's network of one `training_seed` from `folder`, or train it."""
    initial_key, training_key = jax.random.split(jax.random.key(training_seed))
    architecture = bpkr.Architecture(variant.heads, settings.width, temperature=1.0)
    features = made.training.task.input_features
    network = initial_network(architecture, variant.head_dimension, features, readout=READOUT, key=initial_key)
    return train(
        network,
        made.training,
        made.validation,
        key=training_key,
        settings=settings.training,
        folder=folder,
        progress=progress,
    )


def _resume_stage(folder: Path, stage: str, values: Mapping[str, Any], compute: Callable[[], xr.Dataset]) -> xr.Dataset:
    """Load a stage from `folder`, or compute it. Other values, such as more seeds, use another folder."""
    kept = Folder.of(folder / f"{stage}-{joblib.hash(values)[:8]}", stage, _VERSION, **values)
    if kept.read(stage) is None:
        kept.write(stage, compute())
    return kept.read(stage)
