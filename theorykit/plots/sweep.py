"""Draw a sweep, the result of `theorykit.bpkr.sweeps.sweep`."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..checks import checked_choice
from .style import _new_axes, _shades

# Scores over width and their labels. The default is the first one that a result has.
_SCORES = {
    "test_accuracy": "test accuracy",
    "test_log_loss": "test log loss",
    "test_error": "test error (mean square)",
    "test_r_squared": "test $R^2$",
    "log_evidence": "log evidence",
    "log_evidence_corrected": "log evidence to next order in $1/N$",
    "action": "action",
    "log_evidence_per_width": "log evidence per width",
}
_LINE = {"marker": "o", "markersize": 3, "linewidth": 1.2, "elinewidth": 0.8}
_LIMIT = {"linestyle": "--", "linewidth": 0.8}
_FAILED = {"marker": "x", "markersize": 7, "linestyle": "", "color": "black"}


def figure(result: xr.Dataset) -> Figure:
    """Draw the first score, and the diagonal of U_1, against the richness or the width."""
    drawn = plt.figure(figsize=(8.4, 3.2), layout="constrained")
    over = "richness" if "richness" in result.dims else "width"
    for axes, score in zip(drawn.subplots(1, 2), (None, "U_1"), strict=True):
        _draw(result, axes, score, over)
    return drawn


def draw_scores_over_width(result: xr.Dataset, axes: Axes | None = None, *, score: str | None = None) -> Axes:
    """Draw a score against width, one line per temperature.

    Bars are standard errors. Dashed lines with bands are results at infinite width.

    Args:
        result: the sweep. Means over seeds are drawn.
        axes: where to draw, by default new axes. They are returned.
        score: a score of `result`, such as "test_accuracy" or "log_evidence", by default
            the first one. Or "U_1": its diagonal, one line per path, at the temperatures
            that `result` has selected, or at the lowest one.

    Raises:
        ValueError: `result` has an axis `richness`, or no such score.
        KeyError: `result` has no axis `width`.
    """
    return _draw(result, axes, score, "width")


def draw_over_richness(result: xr.Dataset, axes: Axes | None = None, *, score: str | None = None) -> Axes:
    """Draw a score against the richness, one line per width, at the lowest temperature.

    Values of the richness are evenly spaced, so that zero can be one of them.

    Args:
        result: the sweep, with several values of the richness.
        axes: where to draw, by default new axes. They are returned.
        score: as in `draw_scores_over_width`. "U_1" is drawn at the last width.

    Raises:
        ValueError: `result` has no axis `richness`, or no such score.
    """
    return _draw(result, axes, score, "richness")


def _draw(result: xr.Dataset, axes: Axes | None, score: str | None, over: str) -> Axes:
    axes = _new_axes(axes, "result", result, "converged", "bpkr.sweeps.sweep")
    if (over == "richness") != ("richness" in result.dims):
        other = "use draw_over_richness, or result.sel(richness=...)"
        advice = "give values to sweep(..., richness=[...])" if over == "richness" else other
        raise ValueError(f"result has {'no' if over == 'richness' else 'an'} axis richness: {advice}")
    if "width" not in result.dims:
        raise KeyError("the result has no axis width: select widths with a list, such as result.sel(width=[20])")
    if "temperature" not in result.dims:
        # Each width may have its own temperature.
        if "temperature" in result.coords and result["temperature"].ndim:
            result = result.drop_vars("temperature").assign_coords(temperature=np.nan)
        result = result.expand_dims("temperature")
    at = result["temperature"].min()
    where = f" at {_temperature_name(at.item())}"
    if score == "U_1":
        if over == "richness":
            where = f" at width {_name(result['width'].values[-1])},{where.removeprefix(' at')}"
            result = result.isel(width=-1)
        points = _with_errors(result[["U_1", "converged"]].sel(temperature=at), score)
        lines = {f"path {path}": points.sel(path_1=path, other_path_1=path) for path in points["path_1"].values}
    else:
        scores = [name for name in _SCORES if name in result]
        score = scores[0] if score is None else checked_choice("score", score, scores)
        points = _with_errors(result, score)
        if over == "richness":
            points = points.sel(temperature=at)
            lines = {f"width {_name(width)}": points.sel(width=width) for width in points["width"].values}
        else:
            where, falling = "", np.sort(points["temperature"].values)[::-1]
            lines = {_temperature_name(each): points.sel(temperature=each) for each in falling}
    # Finite widths or values of the richness are points. Infinite width is a line across the axes.
    values = points[over].values
    is_number = np.issubdtype(values.dtype, np.number)
    is_log = is_number and over == "width"
    is_limit = (np.isinf(values) if is_number else values == "inf") & (over == "width")
    finite = np.flatnonzero(~is_limit)
    finite = finite[np.argsort(values[finite])] if is_number else finite
    places = values[finite] if is_log else np.arange(len(finite))
    others: dict[str, Any] = {}
    for (label, line), color in zip(lines.items(), _shades(len(lines)), strict=True):
        numbers, failed = line[score].values, ~line["converged"].values[finite].astype(bool)
        errors = line[f"{score}_error"].values if f"{score}_error" in line else np.zeros_like(numbers)
        style = _LINE | {"color": color, "label": label, "linestyle": "-" if is_number else ""}
        axes.errorbar(places, numbers[finite], errors[finite], **style)
        for number, error in zip(numbers[is_limit], errors[is_limit], strict=True):
            axes.axhline(number, color=color, zorder=0, **_LIMIT)
            axes.axhspan(number - error, number + error, color=color, alpha=0.1, linewidth=0, zorder=0)
            others["infinite width"] = {"color": color if len(lines) == 1 else "0.4", **_LIMIT}
        if failed.any():
            axes.plot(places[failed], numbers[finite][failed], **_FAILED)
            others["not a solution"] = _FAILED
    for label, look in others.items():
        axes.plot([], [], label=label, **look)
    names, step = [_name(value) for value in values[finite]], 1 + len(finite) // 9
    axes.set(xscale="log" if is_log and len(places) else "linear")
    axes.set_xticks(places[::step], names[::step])
    axes.minorticks_off()
    words = "width $N$" if is_number else r"widths $N_1$-...-$N_L$-$N_a$"
    axes.set(xlabel=words if over == "width" else r"richness $\gamma_0$")
    axes.set(ylabel=(r"$U_1^{\pi\pi}$" if score == "U_1" else _SCORES[score]) + where)
    kinds = "bars, bands" if is_limit.any() else "bars"
    title = f"{kinds}:\nstandard errors" if f"{score}_error" in points else None
    axes.legend(title=title, alignment="left", ncols=1 + len(lines) // 13, loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def _with_errors(result: xr.Dataset, name: str) -> xr.Dataset:
    """Return means of `name` over seeds with standard errors over seeds and test examples."""
    if result.sizes.get("seed", 1) == 1:
        return result.isel(seed=0, missing_dims="ignore")
    values = result[name]
    error = values.std("seed", ddof=1) / values.count("seed") ** 0.5
    if f"{name}_error" in result:
        labels = result["test_label"]
        # The error due to test examples that seeds share does not fall; at most their mean.
        shared = (labels == labels.isel(seed=0)).all()
        error = np.hypot(error, result[f"{name}_error"].mean("seed") * shared)
    converged = result["converged"].astype(bool).all("seed")
    return xr.Dataset({name: values.mean("seed"), f"{name}_error": error, "converged": converged})


def _name(value: Any) -> str:
    return value if isinstance(value, str) else r"$\infty$" if np.isinf(value) else f"{value:g}"


def _temperature_name(temperature: float) -> str:
    return "selected $T$" if np.isnan(temperature) else f"$T={temperature:g}$"
