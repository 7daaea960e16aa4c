"""Tables of results, and the choices and means that tables and figures share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ._compat import needed
from .checks import checked_choice, shown
from .symbolic.documents.display import DisplayMixin

# Scores over width and their titles. The default is the first one that a result has.
TITLES = {
    "test_accuracy": "test accuracy",
    "test_log_loss": "test log loss",
    "test_error": "test error (mean square)",
    "test_r_squared": "test $R^2$",
    "log_evidence": "log evidence",
    "log_evidence_corrected": "log evidence to next order in the widths",
    "action": "action",
    "log_evidence_per_width": "log evidence per width",
}
# Suffix for the error of a mean over seeds that is due to their shared test examples.
OF_EXAMPLES = "_error_of_test_examples"


def summary(result: Any) -> Any:
    """Make a short table of a result.

    Args:
        result: a dataset from `sweeps.label`, `sweeps.sweep`, `sampling.compare`,
            `curve.trace`, `saddle.follow`, `dynamics.follow` or `saddle.phase_diagram`;
            draws of a sampler; or an object with a `summary()`, such as a `bpkr.Saddle`.

    Returns:
        A table of pandas. A sweep has one row per point with means over seeds and their
        standard errors; a solution is one row; a curve one per event; a diagram one per line; draws have
        `arviz_stats.summary`.

    Example:
        >>> import numpy as np
        >>> import theorykit
        >>> from theorykit import bpkr
        >>> theorykit.enable_float64()
        >>> rng = np.random.default_rng(0)
        >>> data = bpkr.Data(rng.normal(size=(20, 2, 5)), rng.choice([-1.0, 1.0], size=20))
        >>> arch = bpkr.Architecture(layers=(2,), widths=10, temperature=0.1)
        >>> found = bpkr.sweeps.sweep(arch, data, width=[10, 1000], temperature=[0.1, 1.0], progress=False)
        >>> theorykit.summary(found)["log_evidence"].tolist()
        ['-91.018', '-36.473', '-94.369', '-39.249']
    """
    if isinstance(result, DisplayMixin):
        return result.summary()
    if isinstance(result, xr.DataTree) and "posterior" in result.children:
        return needed("arviz_stats", "a summary of draws").summary(result["posterior"].to_dataset())
    if not isinstance(result, xr.Dataset):
        raise TypeError(f"result must be a dataset, draws, or an object with a summary, got {shown(result)}")
    if "parameter" in result.attrs:
        events = result[["event", result.attrs["parameter"]]].isel(point=result["event"].values != "")
        return events.to_dataframe()
    if "across" in result.attrs:
        names = [result.attrs["across"], result.attrs["up"]]
        lines = result[["line", "kind", *names, "error"]].to_dataframe().groupby(["line", "kind"])
        return lines[[*names, "error"]].agg(["min", "max"])
    if "approach" in result.dims:
        return _comparison(result)
    if "converged" not in result:
        raise ValueError("result is not a solution, a sweep, a comparison or draws: it has no `converged`")
    if result["converged"].ndim:
        return _sweep(result)
    rows: dict[str, Any] = {"converged": bool(result["converged"])}
    for name in [each for each in (*TITLES, "gradient_norm") if each in result]:
        rows[name] = _with_error(float(result[name]), float(result.get(f"{name}_error", 0.0)))
    for name in [each for each in result if each.startswith("head_score_")]:
        rows[name] = ", ".join(f"{score:.5g}" for score in result[name].values)
    return pd.Series(rows)


def _sweep(result: xr.Dataset) -> Any:
    result, columns = with_temperatures(result), {}
    for name in dict.fromkeys((select_shown(result), evidence_name(result), "log_evidence_per_width")):
        if name in result:
            points = with_errors(result, name)
            errors = points.get(f"{name}_error", xr.zeros_like(points[name]))
            columns[name] = _texts(points[name], errors)
    flags = xr.Dataset({"solved": result["converged"].astype(bool), "holds": _holds(result)})
    flags = flags.all("seed") if "seed" in flags.dims else flags
    if not flags.to_array().all():
        remark = xr.where(flags["solved"], "", "not a solution")
        columns["remark"] = xr.where(flags["holds"], remark, "fewer units than paths")
    return xr.Dataset(columns).reset_coords(drop=True).to_dataframe()


def _comparison(result: xr.Dataset) -> Any:
    """Tabulate U_1 and accuracy, and the largest difference of U_1 in standard errors."""
    pairs = {"U_1[0, 0]": [result[name][:, 0, 0] for name in ("U_1", "U_1_error")]}
    if "accuracy" in result:
        pairs["accuracy"] = [result["accuracy"], result["accuracy_error"]]
    columns = {name: _texts(*pair) for name, pair in pairs.items()}
    if "U_1_deviation" in result:
        columns["difference"] = abs(result["U_1_deviation"]).max(set(result["U_1"].dims) - {"approach"})
    columns |= {name: result[name] for name in ("seconds", "diagnosis")}
    return xr.Dataset(columns).reset_coords(drop=True).to_dataframe()


def _texts(values: xr.DataArray, errors: xr.DataArray) -> xr.DataArray:
    return xr.apply_ufunc(_with_error, values, errors, vectorize=True, output_dtypes=[object])


def _with_error(value: float, error: float) -> str:
    """Format a value to five digits, or to the second digit of its error."""
    if not error > 0:
        return "-" if np.isnan(value) else f"{value:.5g}"
    decimals = max(0, 1 - int(np.floor(np.log10(error))))
    return f"{value:.{decimals}f} +- {error:.{decimals}f}"


def _holds(result: xr.Dataset) -> xr.DataArray:
    """Return where no layer has fewer units than partial paths. The Gaussian process has none."""
    return ~(result.get("units_per_path", xr.full_like(result["converged"], np.nan, float)) < 1)


def evidence_name(result: xr.Dataset) -> str:
    """Return the evidence that ranks points: corrected, if all points can have it."""
    if "log_evidence_corrected" not in result:
        return "log_evidence"
    is_needed = result["log_evidence"].notnull() & result["converged"].astype(bool) & _holds(result)
    has_all = result["log_evidence_corrected"].notnull().where(is_needed, True).all()
    return "log_evidence_corrected" if has_all else "log_evidence"


def best_place(result: xr.Dataset, name: str) -> dict[str, Any]:
    """Return width, temperature and richness with the best mean of `name` over seeds.

    Points that are no solutions, or where the theory does not hold, are left out.
    """
    values = result[name].where(result["converged"].astype(bool) & _holds(result))
    values = values.mean(set(values.dims) - {"width", "temperature", "richness"})
    if not values.notnull().any():
        raise ValueError(f"{name} has no value at which the theory holds")
    is_loss = name in ("test_error", "test_log_loss", "action")
    at = values.argmin(...) if is_loss else values.argmax(...)
    return {axis: values[axis].values[index.item()].item() for axis, index in at.items()}


def select_shown(result: xr.Dataset, score: str | None = None) -> str:
    """Return `score` if `result` has it, by default the first of `TITLES` in `result`."""
    found = [name for name in TITLES if name in result]
    if not found:
        raise KeyError(f"the result has none of the scores {', '.join(TITLES)}")
    return found[0] if score is None else checked_choice("score", score, found)


def with_temperatures(result: xr.Dataset) -> xr.Dataset:
    """Add an axis of the temperature, which is NaN if it differs between widths."""
    if "width" not in result.dims:
        raise KeyError("the result has no axis width: select widths with a list, such as result.sel(width=[20])")
    if "temperature" in result.dims:
        return result
    if "temperature" in result.coords and result["temperature"].ndim:
        result = result.drop_vars("temperature").assign_coords(temperature=np.nan)
    return result.expand_dims("temperature")


def with_errors(result: xr.Dataset, name: str) -> xr.Dataset:
    """Return means of `name` over seeds with standard errors over seeds and test examples."""
    if "seed" not in result.dims:
        return result
    if result.sizes["seed"] == 1:
        return result.isel(seed=0)
    values = result[name]
    error = values.std("seed", ddof=1) / values.count("seed") ** 0.5
    error = np.hypot(error, result.get(f"{name}{OF_EXAMPLES}", 0.0))
    found = {name: values.mean("seed"), f"{name}_error": error}
    if "converged" in result:
        found["converged"] = result["converged"].astype(bool).all("seed")
    return xr.Dataset(found)
