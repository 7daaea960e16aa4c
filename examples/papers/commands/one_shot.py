"""The command of the experiment on one-shot image classification."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from .. import one_shot as experiment
from ..plots import one_shot as plots
from .experiments import run_experiment

_PRESETS = {"small": experiment.SMALL, "paper": experiment.PAPER}


def one_shot(
    preset: Literal["small", "paper"] = "small",
    variants: tuple[str, ...] = ("L2H4", "L3H3", "L2H8"),
    training_seeds: int = 3,
    seeds: int = 5,
    output: Path = Path("one-shot"),
    overwrite: bool = False,
    n_jobs: int = 1,
):
    """Run one-shot image classification, from training to pruned heads: Figs. 3 b-f, 6 and 7 of Tiberi et al.

    Prints tables, and writes one figure per variant and one-shot.nc, one labelled netCDF file that holds every number
    in them, and the trained queries and keys. The folder stages keeps the result of every stage. Interrupted runs, and
    runs with more seeds of either kind, resume from there; remove the folder when you are done.

    Args:
        preset: "small" needs no download and several hours on two cores; "paper" has the published sizes, downloads
            Omniglot, MNIST and Fashion-MNIST, and wants an accelerator.
        variants: The networks to run, by layers and heads.
        training_seeds: Independent trainings of every variant.
        seeds: Independent draws of the theory's training and test examples.
        output: Folder for the results.
        overwrite: Replace existing results.
        n_jobs: Number of widths and chains of the sampler to run in parallel.
    """
    known = {variant.name: variant for variant in _PRESETS[preset].variants}
    if unknown := [name for name in variants if name not in known]:
        raise ValueError(f"unknown variant {unknown[0]!r}; there are {', '.join(known)}")
    chosen = tuple(known[name] for name in variants)
    settings = replace(_PRESETS[preset], variants=chosen, training_seeds=training_seeds, seeds=seeds)
    places = output / "one-shot.nc", output / "stages", plots.figure_paths(output, variants)
    run_experiment(experiment.run, settings, places, plots, overwrite, n_jobs)
