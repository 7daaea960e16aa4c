"""`theorykit solve CONFIG.toml`: the saddle point for data of the user's own."""

from pathlib import Path

import msgspec
import numpy as np
import optimistix as optx
import tyro
import xarray as xr

from .. import bpkr, store
from .config import SolveConfig, read_config
from .data import Data, read_data


def solve(config: tyro.conf.Positional[Path], overwrite: bool = False):
    """Solve the saddle point of an architecture on data from a file, and predict test examples if there are any.

    The configuration is a TOML file with the tables [architecture], [data] and, if wanted, [solver] and [output]; the
    README documents them. Writes one labelled netCDF file.

    Args:
        config: The configuration file.
        overwrite: Replace the output file if it exists.
    """
    settings = read_config(config)
    output = config.parent / (settings.output.file or f"{config.stem}.nc")
    store.refuse_to_overwrite(output, overwrite)
    architecture = settings.architecture.build()
    data = read_data(settings.data, architecture, config.parent)
    result = solved(architecture, data, settings)
    store.write(result, output, overwrite=overwrite)
    print(summary(result))
    print(f"wrote {output}")


def solved(architecture: bpkr.Architecture, data: Data, settings: SolveConfig) -> xr.Dataset:
    """The solution, its head scores, and the predictions for the test examples, labelled."""
    saddle = bpkr.solve(
        architecture,
        data.features,
        data.labels,
        tolerance=settings.solver.tolerance,
        max_steps=settings.solver.max_steps,
    )
    point = saddle.order_parameters
    labels = _row_labels(architecture)
    scores = bpkr.head_scores(architecture, point)
    variables = {
        **{f"U_{layer}": _matrix(layer, matrix) for layer, matrix in enumerate(point.matrices, 1)},
        "u": _readout(point.readout),
        "action": float(saddle.action),
        "entropy": float(saddle.entropy),
        "energy": float(saddle.energy),
        "gradient_norm": float(saddle.gradient_norm),
        **{
            f"head_score_{layer}": (f"head_{layer}", np.asarray(score))
            for layer, score in enumerate(scores, 1)
            if len(score)
        },
    }
    if data.test_features is not None:
        prediction = bpkr.predict(architecture, point, data.features, data.labels, data.test_features)
        variables["mean"] = _of_test_examples(prediction.mean)
        variables["variance"] = _of_test_examples(prediction.variance)
    if data.test_labels is not None:
        variables["test_label"] = _of_test_examples(data.test_labels)
    return xr.Dataset(
        variables,
        coords={"path_1": labels, "other_path_1": labels},
        attrs={
            "settings": msgspec.json.encode(settings).decode(),
            "result": "converged" if saddle.result == optx.RESULTS.successful else optx.RESULTS[saddle.result],
            "steps": int(saddle.stats["steps"]),
        },
    )


def _row_labels(architecture: bpkr.Architecture) -> list[str]:
    """What the rows of U_1 stand for: paths, or, as in "21:2", paths and outputs."""
    paths, outputs = architecture.path_labels(), architecture.outputs
    return list(paths) if outputs == 1 else [f"{path}:{output + 1}" for path in paths for output in range(outputs)]


def _of_test_examples(values):
    return (("test_example", "output")[: np.ndim(values)], np.asarray(values))


def _readout(readout):
    return (("output", "other_output")[: np.ndim(readout)], np.asarray(readout))


def _matrix(layer, matrix):
    return ((f"path_{layer}", f"other_path_{layer}"), np.asarray(matrix))


def summary(result: xr.Dataset) -> str:
    """What a person wants to see of a solution first."""
    lines = [
        f"result         {result.attrs['result']} after {result.attrs['steps']} steps",
        f"gradient norm  {float(result['gradient_norm']):.3g}",
        f"action         {float(result['action']):.12g}   (entropy {float(result['entropy']):.6g}, "
        f"energy {float(result['energy']):.6g})",
        f"u              {np.array2string(result['u'].values, precision=6)}",
    ]
    for name in (name for name in result.data_vars if str(name).startswith("head_score_")):
        lines.append(f"{str(name).replace('_', ' '):13}  {np.array2string(result[name].values, precision=3)}")
    if "test_label" in result:
        errors = result["mean"] - result["test_label"]
        lines.append(f"test error     {float((errors**2).mean()):.6g} (mean square)")
        if result["test_label"].ndim == 1 and set(np.unique(result["test_label"])) <= {-1.0, 1.0}:
            lines.append(f"test accuracy  {float((np.sign(result['mean']) == result['test_label']).mean()):.4f}")
    return "\n".join(lines)
