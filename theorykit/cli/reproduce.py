"""`theorykit reproduce`: a paper's experiment, its table, its figures, and everything in them as one file."""

import shutil
from pathlib import Path

import tyro

from .. import store
from ..plots import hidden_markov as plots
from ..reproduce import hidden_markov as experiment


def hidden_markov(
    settings: tyro.conf.OmitArgPrefixes[experiment.HiddenMarkov],
    output: Path = Path("hidden-markov"),
    overwrite: bool = False,
):
    """Classify hidden Markov chains at many widths: Figs. 2 b-e and 5 b-c of Tiberi et al.

    Prints the table of accuracies, and writes figures and hidden-markov.nc, one labelled netCDF file that holds every
    number in them. An interrupted run goes on where it stopped.

    Args:
        settings: The experiment.
        output: Folder for the results.
        overwrite: Replace results that are there.
    """
    path, partial = output / "hidden-markov.nc", output / "partial"
    for existing in (path, *plots.figure_paths(output)):
        store.refuse_to_overwrite(existing, overwrite)
    result = experiment.run(settings, partial)
    store.write(result, path, overwrite=overwrite)
    shutil.rmtree(partial)
    print(plots.table(result))
    for written in [path, *plots.draw_all(result, output)]:
        print(f"wrote {written}")
