"""`theorykit solve CONFIG.toml`: the saddle point for data of the user's own."""

import math
from pathlib import Path

import msgspec
import numpy as np
import tyro
import xarray as xr

from .. import bpkr, store
from ..bpkr.sweeps import label_infinite_width, label_saddle, predict_test_examples
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
    is_infinite = settings.architecture.widths == math.inf
    architecture = settings.architecture.build_at(1.0) if is_infinite else settings.architecture.build()
    data = read_data(settings.data, architecture, config.parent)
    result = label_limit(architecture, data, settings) if is_infinite else solve_and_label(architecture, data, settings)
    store.write(result, output, overwrite=overwrite)
    print(summary(result))
    print(f"wrote {output}")


def solve_and_label(architecture: bpkr.Architecture, data: bpkr.Data, settings: SolveConfig) -> xr.Dataset:
    """The solution, its head scores, and the predictions for the test examples, labelled.

    Those of the infinitely wide network are beside them, by names that begin with "infinite_width_".
    """
    saddle = bpkr.solve(architecture, data, tolerance=settings.solver.tolerance, max_steps=settings.solver.max_steps)
    parts = [label_saddle(architecture, saddle), *predict_test_examples(architecture, data, saddle.order_parameters)]
    limit = _label_limit(architecture, data)
    beside = [name for name in _OF_LIMIT if name in limit]
    parts.append(limit[beside].rename({name: f"infinite_width_{name}" for name in beside}))
    return _with_test_labels(parts, data, settings)


_OF_LIMIT = ("log_evidence", "mean", "variance", "test_error", "test_accuracy", "test_log_loss", "test_r_squared")
_SCORES = {
    "test_error": (".6g", " (mean square)"),
    "test_r_squared": (".4f", ""),
    "test_accuracy": (".4f", ""),
    "test_log_loss": (".4f", ""),
}


def label_limit(architecture: bpkr.Architecture, data: bpkr.Data, settings: SolveConfig) -> xr.Dataset:
    """The infinitely wide network, its head scores, and its predictions for the test examples, labelled."""
    return _with_test_labels([_label_limit(architecture, data)], data, settings)


def _label_limit(architecture: bpkr.Architecture, data: bpkr.Data) -> xr.Dataset:
    predictions = predict_test_examples(architecture, data, bpkr.gp_limit(architecture))
    return xr.merge([label_infinite_width(architecture, data), *predictions])


def _with_test_labels(parts: list[xr.Dataset], data: bpkr.Data, settings: SolveConfig) -> xr.Dataset:
    tested = [] if data.test_labels is None else [label_test_labels(data.test_labels)]
    return xr.merge([*parts, *tested]).assign_attrs(settings=msgspec.json.encode(settings).decode())


def summary(result: xr.Dataset) -> str:
    """What a person wants to see of a solution first."""
    lines = [_infinite_width(result)] if "action" not in result else _solution(result)
    lines.append(f"u               {np.array2string(result['u'].values, precision=6)}")
    for name in (name for name in result.data_vars if str(name).startswith("head_score_")):
        lines.append(f"{str(name).replace('_', ' '):14}  {np.array2string(result[name].values, precision=3)}")
    for name, (form, unit) in _SCORES.items():
        if name in result:
            error = f" +- {result[f'{name}_error'].item():.4f}" if f"{name}_error" in result else unit
            limit = f"infinite_width_{name}"
            beside = f"   infinitely wide: {result[limit].item():{form}}" if limit in result else ""
            lines.append(f"{name.replace('_', ' '):14}  {result[name].item():{form}}{error}{beside}")
    return "\n".join(lines)


def _solution(result: xr.Dataset) -> list[str]:
    return [
        f"result          {result['result'].item()} after {result['steps'].item()} steps",
        f"gradient norm   {float(result['gradient_norm']):.3g}",
        f"action          {float(result['action']):.12g}   (entropy {float(result['entropy']):.6g}, "
        f"energy {float(result['energy']):.6g})",
    ]


def _infinite_width(result: xr.Dataset) -> str:
    return f"infinitely wide: a Gaussian process, log evidence {float(result['log_evidence']):.12g}"
