"""`theorykit solve CONFIG.toml`: the saddle point for data of the user's own."""

from pathlib import Path

import msgspec
import numpy as np
import tyro
import xarray as xr

from .. import bpkr, store
from ..bpkr.sweeps import label_saddle, predict_test_examples
from ..bpkr.sweeps.datasets import label_test_labels
from .config import SolveConfig, read_config
from .data import read_data
from .report import checked_output


def solve(config: tyro.conf.Positional[Path], overwrite: bool = False):
    """Solve the saddle point of an architecture on data from a file, and predict test examples if there are any.

    The configuration is a TOML file with the tables [architecture], [data] and, if wanted, [solver] and [output]; the
    file docs/command-line.md documents them. Writes one labelled netCDF file.

    Args:
        config: The configuration file.
        overwrite: Replace the output file if it exists.
    """
    settings = read_config(config)
    output = checked_output(config, settings, "output", settings.output.file, f"{config.stem}.nc", overwrite)
    architecture = settings.architecture.build()
    data = read_data(settings.data, architecture, config.parent)
    result = solve_and_label(architecture, data, settings)
    store.write(result, output, overwrite=overwrite)
    print(summary(result))
    print(f"wrote {output}")


def solve_and_label(architecture: bpkr.Architecture, data: bpkr.Data, settings: SolveConfig) -> xr.Dataset:
    """The solution, its head scores, and the predictions for the test examples, labelled."""
    saddle = bpkr.solve(
        architecture,
        data.features,
        data.labels,
        tolerance=settings.solver.tolerance,
        max_steps=settings.solver.max_steps,
    )
    parts = [label_saddle(architecture, saddle), *predict_test_examples(architecture, data, saddle.order_parameters)]
    if data.test_labels is not None:
        parts.append(label_test_labels(data.test_labels))
    return xr.merge(parts).assign_attrs(settings=msgspec.json.encode(settings).decode())


def summary(result: xr.Dataset) -> str:
    """What a person wants to see of a solution first."""
    lines = [
        f"result         {result['result'].item()} after {result['steps'].item()} steps",
        f"gradient norm  {float(result['gradient_norm']):.3g}",
        f"action         {float(result['action']):.12g}   (entropy {float(result['entropy']):.6g}, "
        f"energy {float(result['energy']):.6g})",
        f"u              {np.array2string(result['u'].values, precision=6)}",
    ]
    for name in (name for name in result.data_vars if str(name).startswith("head_score_")):
        lines.append(f"{str(name).replace('_', ' '):13}  {np.array2string(result[name].values, precision=3)}")
    if "test_error" in result:
        lines.append(f"test error     {result['test_error'].item():.6g} (mean square)")
    if "test_accuracy" in result:
        lines.append(f"test accuracy  {result['test_accuracy'].item():.4f}")
    return "\n".join(lines)
