"""The command of the experiment on hidden Markov chains."""

from pathlib import Path

import tyro

from .. import hidden_markov as experiment
from ..plots import hidden_markov as plots
from .experiments import run_experiment


def hidden_markov(
    settings: tyro.conf.OmitArgPrefixes[experiment.HiddenMarkov],
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
    places = output / "hidden-markov.nc", output / "partial", plots.figure_paths(output)
    run_experiment(experiment.run, settings, places, plots, overwrite, workers, scheduler)
