"""The command of the experiment on the dynamics of self-attention."""

from pathlib import Path
from typing import Annotated

import tyro

from .. import self_attention_dynamics as experiment
from ..plots import self_attention_dynamics as plots
from .experiments import run_experiment


def self_attention_dynamics(
    settings: Annotated[experiment.SelfAttentionDynamics, tyro.conf.arg(name="")],
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
    places = output / "self-attention-dynamics.nc", output / "partial", plots.figure_paths(output)
    run_experiment(experiment.run, settings, places, plots, overwrite, workers, scheduler)
