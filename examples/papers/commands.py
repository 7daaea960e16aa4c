"""Commands that run a paper's experiment, print its table, draw its figures and save their numbers."""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import tyro

from theorykit import store
from theorykit.checks import checked_number, checked_whole_number
from theorykit.cli.commands import is_completed
from theorykit.workers import Workers, open_executor

from . import hidden_markov as hidden_markov_experiment
from . import one_shot as one_shot_experiment
from . import self_attention_dynamics as dynamics_experiment
from .plots import hidden_markov as hidden_markov_plots
from .plots import one_shot as one_shot_plots
from .plots import self_attention_dynamics as dynamics_plots

_PRESETS = {"small": one_shot_experiment.SMALL, "paper": one_shot_experiment.PAPER}
_EXAMPLES = Path(__file__).resolve().parents[1]


def hidden_markov(
    settings: tyro.conf.OmitArgPrefixes[hidden_markov_experiment.HiddenMarkov],
    output: Path = Path("hidden-markov"),
    overwrite: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
):
    """Classify hidden Markov chains at many widths: Figs. 2 b-e and 5 b-c of Tiberi et al.

    Prints the table of accuracies, and writes figures and hidden-markov.nc, one labelled netCDF file that holds every
    number in them. An interrupted run resumes.

    Args:
        settings: The experiment.
        output: Folder for the results.
        overwrite: Replace existing results.
        workers: Number of seeds to run in parallel, each in a process on one core.
        scheduler: The address of a dask scheduler whose workers run the seeds, such as tcp://10.0.0.1:8786.
    """
    places = output / "hidden-markov.nc", output / "partial", hidden_markov_plots.figure_paths(output)
    _run(hidden_markov_experiment.run, settings, places, hidden_markov_plots, overwrite, workers, scheduler)


def one_shot(
    preset: Literal["small", "paper"] = "small",
    variants: tuple[str, ...] = ("L2H4", "L3H3", "L2H8"),
    training_seeds: int = 3,
    seeds: int = 5,
    output: Path = Path("one-shot"),
    overwrite: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
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
        workers: Number of widths and chains of the sampler to run in parallel, each in a process on one core.
        scheduler: The address of a dask scheduler whose workers run these, such as tcp://10.0.0.1:8786.
    """
    known = {variant.name: variant for variant in _PRESETS[preset].variants}
    if unknown := [name for name in variants if name not in known]:
        raise ValueError(f"unknown variant {unknown[0]!r}; there are {', '.join(known)}")
    chosen = tuple(known[name] for name in variants)
    settings = replace(_PRESETS[preset], variants=chosen, training_seeds=training_seeds, seeds=seeds)
    places = output / "one-shot.nc", output / "stages", one_shot_plots.figure_paths(output, variants)
    _run(one_shot_experiment.run, settings, places, one_shot_plots, overwrite, workers, scheduler)


def self_attention_dynamics(
    settings: Annotated[dynamics_experiment.SelfAttentionDynamics, tyro.conf.arg(name="")],
    output: Path = Path("self-attention-dynamics"),
    overwrite: bool = False,
    workers: int | None = None,
    scheduler: str | None = None,
):
    """Compute trajectories, orbit and phase diagrams of 1-bit self-attention, after Poc-Lopez and Aguilera.

    Prints a table of exponents and regimes, and writes figures and self-attention-dynamics.nc, one labelled netCDF file
    that holds every number in them. Takes a few minutes on two cores. An interrupted run resumes.

    Args:
        settings: The experiment.
        output: Folder for the results.
        overwrite: Replace existing results.
        workers: Number of blocks of orbits to run in parallel, each in a process on one core.
        scheduler: The address of a dask scheduler whose workers run them, such as tcp://10.0.0.1:8786.
    """
    places = output / "self-attention-dynamics.nc", output / "partial", dynamics_plots.figure_paths(output)
    _run(dynamics_experiment.run, settings, places, dynamics_plots, overwrite, workers, scheduler)


def _run(
    experiment: Callable[..., Any],
    settings: Any,
    places: tuple[Path, Path, Sequence[Path]],
    plots: ModuleType,
    overwrite: bool,
    workers: int | None,
    scheduler: str | None,
) -> None:
    """Run an experiment, unless its result exists; write, print and draw the result.

    `places` are the path of the result, the folder of intermediate results (removed at the end if its name is
    "partial"), and the figures.
    """
    _check_numbers(settings)
    path, kept, figures = places
    folder = path.parent
    if is_completed(path, figures, settings, lambda tree: plots.draw_all(tree, folder), overwrite):
        return
    # Refuse before computing if an output cannot be written, or would replace a file that is not a result.
    outputs = [
        store.Output("--output", folder, store.FOLDER),
        store.Output("the result", path, ".nc"),
        *(store.Output("a figure", figure, ".png") for figure in figures),
        store.Output("the folder of what is kept", kept, store.FOLDER),
    ]
    store.check_outputs(outputs, {}, overwrite=overwrite)
    with open_executor(workers, scheduler) as executor, _knowing_this_package(executor):
        result = experiment(settings, kept, executor=executor)
    store.write(result, path, overwrite=overwrite)
    if kept.name == "partial":
        store.remove_kept(kept)
    print(plots.table(result))
    for written in [path, *plots.draw_all(result, folder)]:
        print(f"wrote {written}")
    print(f"open {figures[0]} first")


@contextmanager
def _knowing_this_package(executor: Workers) -> Iterator[None]:
    """Send this package to the workers of a dask cluster. Local processes inherit the path of this one."""
    if not hasattr(executor, "upload_file"):
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        executor.upload_file(shutil.make_archive(f"{folder}/papers", "zip", _EXAMPLES, "papers"))
        yield


def _check_numbers(settings: Any, name: str = "") -> None:
    """Raise `ValueError` for a number in `settings` that is not finite, or a whole number too large for arrays."""
    if isinstance(settings, dict):
        for field, value in settings.items():
            _check_numbers(value, f"{name}.{field}" if name else field)
    elif isinstance(settings, (list, tuple)):
        for value in settings:
            _check_numbers(value, name)
    elif isinstance(settings, float):
        checked_number(name, settings)
    elif isinstance(settings, int):
        most = 2**63 - 1 if "seed" in name and name != "seeds" else 2**31 - 1
        checked_whole_number(name, settings, least=-most, most=most)
    elif is_dataclass(settings):
        _check_numbers(asdict(settings), name)
