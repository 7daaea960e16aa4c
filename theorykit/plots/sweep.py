"""Draw a sweep over widths and temperatures, from the result of `theorykit.bpkr.sweeps.sweep`."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..summaries import TITLES, select_shown, temperature_name, with_errors, with_temperatures
from .results import draws_results
from .style import THEORY, _new_axes, save, use_style

__all__ = ["draw", "figure"]

_LEGEND_ENTRIES = 8
# Line style of the infinitely wide network.
_LIMIT = {"linestyle": "--", "linewidth": 0.8}


@draws_results
def draw(result: xr.Dataset, path: Path) -> Path:
    """Write the figure of a sweep to `path`, replacing what is there."""
    with use_style():
        return save(figure(result), path)


@draws_results
def figure(result: xr.Dataset) -> Figure:
    """Draw test accuracy or error, or else log evidence, and U_1 of single paths, both over width."""
    drawn = plt.figure(figsize=(8.4, 3.2))
    left, right = drawn.subplots(1, 2)
    draw_scores_over_width(result, left)
    draw_order_parameters_over_width(result, right)
    return drawn


@draws_results
def draw_scores_over_width(result: xr.Dataset, axes: Axes | None = None, *, score: str | None = None) -> Axes:
    """Draw a score over width, one line per temperature.

    Bars are standard errors. The infinitely wide network is a dashed line; with a single temperature, a band shows its
    error. Points that are not solutions are crossed out.

    Args:
        result: from `bpkr.sweeps.sweep`, or from `sweep_seeds` for the mean over seeds.
        score: "test_accuracy", "test_log_loss", "test_error", "test_r_squared", "log_evidence" or "action"; by default,
            the first of these that `result` has.
    """
    name = select_shown(result, score)
    axes = _new_axes(axes)
    result = with_errors(with_temperatures(result), name)
    temperatures = np.sort(result["temperature"].values)
    many = plt.get_cmap("viridis_r")(np.linspace(0.12, 1, len(temperatures)))
    colors = many if len(temperatures) > 1 else [THEORY]
    lines = [result.sel(temperature=temperature) for temperature in temperatures]
    _draw_lines(axes, name, lines, [temperature_name(temperature) for temperature in temperatures], colors)
    for line in map(_by_width, lines):
        unsolved = ~line["converged"].values.astype(bool)
        axes.plot(line["width"].values[unsolved], line[name].values[unsolved], "x", color="black", markersize=7)
    axes.set(ylabel=TITLES[name], title=f"{TITLES[name]} over width")
    return axes


@draws_results
def draw_order_parameters_over_width(result: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw the diagonal of U_1 over width, one line per path, at the best temperature, or the lowest.

    `result` is from `bpkr.sweeps.sweep`, or from `sweep_seeds` for the mean over seeds with its standard error.
    """
    result = with_temperatures(result)
    axes = _new_axes(axes)
    lowest = result["temperature"].min()
    if "best_temperature" in result and result.sizes["temperature"] > 1:
        chosen = result[["U_1"]].sel(temperature=result["best_temperature"].fillna(lowest))
        at = "best temperature"
    else:
        chosen = result[["U_1"]].sel(temperature=lowest)
        at = temperature_name(lowest.item())
    chosen, paths = with_errors(chosen, "U_1"), result["path_1"].values
    colors = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(paths))) if len(paths) > 1 else [THEORY]
    lines = [chosen.sel(path_1=path, other_path_1=path) for path in paths]
    _draw_lines(axes, "U_1", lines, [f"path {path}" for path in paths], colors)
    axes.set(ylabel=r"$U_1^{\pi\pi}$", title=f"order parameters at {at}")
    return axes


def _draw_lines(axes: Axes, name: str, lines: list[xr.Dataset], labels: list[str], colors: Any) -> None:
    """Draw lines with error bars over finite widths, and dashed lines with a band at infinite width."""
    widths = lines[0]["width"].values
    is_numeric = np.issubdtype(widths.dtype, np.number)
    is_limit = np.isinf(widths) if is_numeric else np.zeros(len(widths), dtype=bool)
    # The legend has all lines, or some evenly spaced ones. Join points only if widths are numbers.
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
            limit = line.sel(width=np.inf)
            axes.axhline(limit[name].item(), color=color, zorder=0, **_LIMIT)
            if f"{name}_error" in limit and len(lines) == 1:
                ends = (limit[name].item() + sign * limit[f"{name}_error"].item() for sign in (-1, 1))
                axes.axhspan(*ends, color=color, alpha=0.1, linewidth=0, zorder=0)
    if is_limit.any() and any(line[name].sel(width=np.inf).notnull() for line in lines):
        axes.plot([], [], color="0.4", label="infinite width", **_LIMIT)
    if is_limit.all():
        axes.set(xlim=(0, 1), xlabel="infinite width")
        axes.set_xticks([])
    elif is_numeric:
        axes.set(xscale="log", xlabel="width $N$")
    else:
        axes.set(xlabel=r"widths $N_1$-...-$N_L$-$N_a$")
    has_bars = any(f"{name}_error" in line for line in lines)
    axes.legend(title="bars: standard errors" if has_bars else None)


def _by_width(result: xr.Dataset) -> xr.Dataset:
    """Select finite widths in ascending order; keep labels of several widths unchanged."""
    if not np.issubdtype(result["width"].dtype, np.number):
        return result
    return result.sel(width=np.isfinite(result["width"])).sortby("width")
