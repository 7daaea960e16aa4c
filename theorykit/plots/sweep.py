"""A sweep over widths and temperatures, drawn and as a table, from the result of `theorykit.bpkr.sweeps.sweep`."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..checks import checked_choice
from .results import draws_results, over_seeds
from .style import THEORY, _new_axes, save, use_style

__all__ = ["draw", "figure", "table"]

# what can be shown over width; unless one is chosen, the first that there is
_TITLES = {
    "test_accuracy": "test accuracy",
    "test_log_loss": "test log loss",
    "test_error": "test error (mean square)",
    "test_r_squared": "test $R^2$",
    "log_evidence": "log evidence",
    "action": "action",
}
_LEGEND_ENTRIES = 8
# how the infinitely wide network is drawn
_LIMIT = {"linestyle": "--", "linewidth": 0.8}


@draws_results
def draw(result: xr.Dataset, path: Path) -> Path:
    """Write the figure of a sweep to `path`, replacing what is there."""
    with use_style():
        return save(figure(result), path)


@draws_results
def figure(result: xr.Dataset) -> Figure:
    """Test accuracy or error, or else log evidence, over width; and U_1 of single paths at the best temperature."""
    drawn = plt.figure(figsize=(8.4, 3.2))
    left, right = drawn.subplots(1, 2)
    draw_scores_over_width(result, left)
    draw_order_parameters_over_width(result, right)
    return drawn


@draws_results
def draw_scores_over_width(result: xr.Dataset, axes: Axes | None = None, *, score: str | None = None) -> Axes:
    """A score over width, a line per temperature: of `sweeps.sweep`, or the mean over seeds of `sweeps.sweep_seeds`.

    Bars are standard errors; the infinitely wide network is a dashed line. Points that are not solutions are crossed
    out.

    Args:
        score: "test_accuracy", "test_log_loss", "test_error", "test_r_squared", "log_evidence" or "action"; by default,
            the first of these that `result` has.
    """
    name = _select_shown(result, score)
    axes = _new_axes(axes)
    result = _over_seeds(_with_temperatures(result), name)
    temperatures = np.sort(result["temperature"].values)
    colors = plt.get_cmap("viridis_r")(np.linspace(0.12, 1, len(temperatures)))
    lines = [result.sel(temperature=temperature) for temperature in temperatures]
    _draw_lines(axes, name, lines, [_temperature_name(temperature) for temperature in temperatures], colors)
    for line in map(_by_width, lines):
        unsolved = ~line["converged"].values.astype(bool)
        axes.plot(line["width"].values[unsolved], line[name].values[unsolved], "x", color="black", markersize=7)
    axes.set(ylabel=_TITLES[name], title=f"{_TITLES[name]} over width")
    return axes


@draws_results
def draw_order_parameters_over_width(result: xr.Dataset, axes: Axes | None = None) -> Axes:
    """The diagonal of U_1 over width, a line per path, at the best temperature, or the lowest.

    `result` is of `sweeps.sweep`, or of `sweeps.sweep_seeds`, for the mean over seeds with its standard error.
    """
    result = _with_temperatures(result)
    axes = _new_axes(axes)
    lowest = result["temperature"].min()
    if "best_temperature" in result and result.sizes["temperature"] > 1:
        chosen = result[["U_1"]].sel(temperature=result["best_temperature"].fillna(lowest))
        at = "best temperature"
    else:
        chosen = result[["U_1"]].sel(temperature=lowest)
        at = _temperature_name(lowest.item())
    chosen, paths = _over_seeds(chosen, "U_1"), result["path_1"].values
    colors = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(paths))) if len(paths) > 1 else [THEORY]
    lines = [chosen.sel(path_1=path, other_path_1=path) for path in paths]
    _draw_lines(axes, "U_1", lines, [f"path {path}" for path in paths], colors)
    axes.set(ylabel=r"$U_1^{\pi\pi}$", title=f"order parameters at {at}")
    return axes


def _draw_lines(axes: Axes, name: str, lines: list[xr.Dataset], labels: list[str], colors: Any) -> None:
    """Each line over finite widths, with bars of its errors, and dashed across where the width is infinite."""
    widths = lines[0]["width"].values
    is_numeric = np.issubdtype(widths.dtype, np.number)
    is_limit = np.isinf(widths) if is_numeric else np.zeros(len(widths), dtype=bool)
    # a legend names all lines, or some evenly spaced; points are joined where there is something between them
    named = np.linspace(0, len(lines) - 1, min(len(lines), _LEGEND_ENTRIES)).round().astype(int)
    style = {"marker": "o", "markersize": 3, "linewidth": 1.2, "linestyle": "-" if is_numeric else ""}
    for i, (line, label, color) in enumerate(zip(lines, labels, colors, strict=True)):
        finite = _by_width(line)
        at = finite["width"].values
        axes.plot(at, finite[name], color=color, label=label if i in named else None, **style)
        if f"{name}_error" in finite:
            bars = {"fmt": "none", "ecolor": color, "elinewidth": 0.8, "alpha": 0.5}
            axes.errorbar(at, finite[name], finite[f"{name}_error"], **bars)
        if is_limit.any():
            axes.axhline(line[name].sel(width=np.inf).item(), color=color, zorder=0, **_LIMIT)
    if is_limit.any() and any(line[name].sel(width=np.inf).notnull() for line in lines):
        axes.plot([], [], color="0.4", label="infinite width", **_LIMIT)
    if is_limit.all():
        axes.set(xlim=(0, 1), xlabel="infinite width")
        axes.set_xticks([])
    elif is_numeric:
        axes.set(xscale="log", xlabel="width $N$")
    else:
        axes.set(xlabel=r"widths $N_1$-...-$N_L$-$N_a$")
    axes.legend()


@draws_results
def table(result: xr.Dataset) -> str:
    """A line per width, a column per temperature: a score, and the best temperature; a star marks no solution."""
    name = _select_shown(result)
    result = _over_seeds(_with_temperatures(result), name)
    heads = [_temperature_name(temperature).replace("$", "") for temperature in result["temperature"].values]
    form = ".4f" if name == "test_accuracy" else ".4g"
    points = result[[name, "converged"]].transpose("width", "temperature")
    cells = [
        [f"{value:{form}}{' ' if solved else '*'}" for value, solved in zip(values, converged, strict=True)]
        for values, converged in zip(points[name].values, points["converged"].values, strict=True)
    ]
    widths = [str(width) for width in result["width"].values]
    first = max(map(len, ["width", *widths]))
    column = 2 + max(len(text) for text in [*heads, *(cell for row in cells for cell in row)])
    best = result["best_temperature"].values if "best_temperature" in result else None
    lines = [_TITLES[name], f"{'width':>{first}}" + "".join(f"{head:>{column - 1}} " for head in heads)]
    lines[1] += "" if best is None else "  best T"
    for i, (width, row) in enumerate(zip(widths, cells, strict=True)):
        end = "" if best is None else f"{best[i]:8g}"
        lines.append(f"{width:>{first}}" + "".join(f"{cell:>{column}}" for cell in row) + end)
    if not result["converged"].values.all():
        lines.append("* not a solution: not converged, or failed")
    return "\n".join(lines)


def _with_temperatures(result: xr.Dataset) -> xr.Dataset:
    """`result` with an axis of temperatures, of the selected one; of NaN, if another was selected at each width."""
    if "width" not in result.dims:
        raise KeyError("it has no axis width: select widths by a list, such as result.sel(width=[20])")
    if "temperature" in result.dims:
        return result
    if "temperature" not in result.coords or result["temperature"].ndim == 0:
        return result.expand_dims("temperature")
    selected = result["temperature"].drop_vars("temperature")
    result = result.drop_vars(["temperature", "best_temperature"], errors="ignore")
    return result.expand_dims(temperature=[np.nan]).assign(best_temperature=selected)


def _temperature_name(temperature: float) -> str:
    return "selected $T$" if np.isnan(temperature) else f"$T={temperature:g}$"


def _over_seeds(result: xr.Dataset, name: str) -> xr.Dataset:
    """Means of `name` over seeds, if there are several, with their standard errors."""
    if "seed" not in result.dims:
        return result
    mean, error = over_seeds(result[name])
    found = {name: mean, **({f"{name}_error": error} if result.sizes["seed"] > 1 else {})}
    if "converged" in result:
        found["converged"] = result["converged"].astype(bool).all("seed")
    return xr.Dataset(found)


def _by_width(result: xr.Dataset) -> xr.Dataset:
    """Finite widths in ascending order; labels of several widths as they are."""
    if not np.issubdtype(result["width"].dtype, np.number):
        return result
    return result.sel(width=np.isfinite(result["width"])).sortby("width")


def _select_shown(result: xr.Dataset, score: str | None = None) -> str:
    if score is not None:
        checked_choice("score", score, _TITLES)
    found = [name for name in _TITLES if name in result]
    if not found:
        raise KeyError(f"it has none of {', '.join(_TITLES)}")
    return found[0] if score is None else checked_choice("score", score, found)
