"""Draw a sweep over widths and temperatures from the result of `theorykit.bpkr.sweeps.sweep`."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..summaries import TITLES, select_shown, temperature_name, with_errors, with_temperatures
from .results import draws_results
from .style import THEORY, _new_axes, save, use_style

__all__ = ["draw", "figure"]

# Largest number of lines in a legend.
_LEGEND_ENTRIES = 8
# The infinitely wide network, and points that are not solutions.
_LIMIT = {"marker": "D", "markersize": 4, "markerfacecolor": "white"}
_LINE_OF_LIMIT = {"linestyle": "--", "linewidth": 0.6}
_UNSOLVED = {"marker": "x", "markersize": 7, "linestyle": "", "color": "black"}
# Distance of infinite width from the largest one, as a power of the range of widths, and as a factor if there is one.
_GAP, _ONLY_GAP = 0.2, 1.5
# Part of the width of new axes that a legend leaves, and the width of a digit per font size.
_BESIDE_LEGEND, _DIGIT = 0.75, 0.6


@draws_results
def draw(result: xr.Dataset, path: Path) -> Path:
    """Write the figure of a sweep to `path`. An existing file must have theorykit's mark, and is replaced."""
    with use_style():
        return save(figure(result), path)


@draws_results
def figure(result: xr.Dataset) -> Figure:
    """Draw test accuracy or error, or without these log evidence, and U_1 of single paths against width.

    If the sweep has an axis of the richness, draw them against the richness.
    """
    drawn = plt.figure(figsize=(8.4, 3.2))
    left, right = drawn.subplots(1, 2)
    if result.sizes.get("richness", 1) > 1:
        draw_over_richness(result, left)
        draw_over_richness(result, right, score="U_1")
        return drawn
    draw_scores_over_width(result, left)
    draw_order_parameters_over_width(result, right)
    return drawn


@draws_results
def draw_scores_over_width(result: xr.Dataset, axes: Axes | None = None, *, score: str | None = None) -> Axes:
    """Draw a score against width, one line per temperature.

    Bars are standard errors. The infinitely wide network is at the right end, with a dashed line for comparison. Points
    that are not solutions are crossed out.

    Args:
        result: the result of `bpkr.sweeps.sweep`; with seeds, their mean is drawn.
        axes: where to draw. The default is new axes.
        score: "test_accuracy", "test_log_loss", "test_error", "test_r_squared", "log_evidence", "action" or
            "log_evidence_per_width". The default is the first of these scores in `result`.
    """
    _refuse_richness(result)
    name = select_shown(result, score)
    axes = _new_axes(axes)
    result = with_errors(with_temperatures(result), name)
    temperatures = np.sort(result["temperature"].values)
    many = plt.get_cmap("viridis_r")(np.linspace(0.12, 1, len(temperatures)))
    colors = many if len(temperatures) > 1 else [THEORY]
    lines = [result.sel(temperature=temperature) for temperature in temperatures]
    _draw_lines(axes, name, lines, [temperature_name(temperature) for temperature in temperatures], colors)
    axes.set(ylabel=TITLES[name], title=f"{TITLES[name]} over width")
    return axes


@draws_results
def draw_over_richness(result: xr.Dataset, axes: Axes | None = None, *, score: str | None = None) -> Axes:
    """Draw a score against the richness, one line per width, at the lowest temperature.

    Values of the richness are evenly spaced, so that zero can be one of them.

    Args:
        result: the result of `bpkr.sweeps.sweep` with several values of the richness.
        axes: where to draw. The default is new axes.
        score: as in `draw_scores_over_width`; or "U_1" for the diagonal of U_1 at the largest width, one line per path.
    """
    name = "U_1" if score == "U_1" else select_shown(result, score)
    if "richness" not in result.dims:
        raise KeyError("the result has no axis richness: give values to sweep(..., richness=[...])")
    axes = _new_axes(axes)
    result = with_errors(with_temperatures(result), name)
    result = result.sel(temperature=result["temperature"].min())
    if name == "U_1":
        widest, paths = result.isel(width=-1), result["path_1"].values
        lines = {f"path {path}": widest.sel(path_1=path, other_path_1=path) for path in paths}
        title = f"order parameters at width {_in_words(result['width'].values[-1])}"
    else:
        lines = {f"width {_in_words(width)}": result.sel(width=width) for width in result["width"].values}
        title = f"{TITLES[name]} over richness"
    colors = plt.get_cmap("viridis")(np.linspace(0, 0.92, len(lines))) if len(lines) > 1 else [THEORY]
    places, look = np.arange(result.sizes["richness"]), {"marker": "o", "markersize": 3, "linewidth": 1.2}
    for (label, line), color in zip(lines.items(), colors, strict=True):
        bars = line[f"{name}_error"].values if f"{name}_error" in line else None
        axes.errorbar(places, line[name].values, bars, label=label, color=color, **look)
    axes.set_xticks(places, [f"{value:g}" for value in result["richness"].values])
    ylabel = r"$U_1^{\pi\pi}$" if name == "U_1" else TITLES[name]
    axes.set(xlabel=r"richness $\gamma_0$", ylabel=ylabel, title=title)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return axes


def _refuse_richness(result: xr.Dataset) -> None:
    if "richness" in result.dims:
        raise ValueError("result has an axis richness: use draw_over_richness, or result.sel(richness=...)")


def _in_words(width: Any) -> str:
    return width if isinstance(width, str) else r"$\infty$" if np.isinf(width) else f"{width:g}"


@draws_results
def draw_order_parameters_over_width(result: xr.Dataset, axes: Axes | None = None) -> Axes:
    """Draw the diagonal of U_1 against width, one line per path, at the best or the lowest temperature.

    Args:
        result: the result of `bpkr.sweeps.sweep`; with seeds, their mean is drawn with its standard error.
            The best temperature is used if the result contains it.
        axes: where to draw. The default is new axes.
    """
    _refuse_richness(result)
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
    """Draw lines with error bars at finite widths. Infinite width is at the right end, apart from them."""
    widths = lines[0]["width"].values
    is_numeric = np.issubdtype(widths.dtype, np.number)
    is_infinite = np.isinf(widths) if is_numeric else widths == "inf"
    # Finite widths in ascending order, or in the order of their labels, and then infinite width.
    order = np.lexsort((widths if is_numeric else np.arange(len(widths)), is_infinite))
    count = np.count_nonzero(~is_infinite)
    limits = slice(count, None)
    places = widths[order].astype(float) if is_numeric else np.arange(len(widths), dtype=float)
    if is_numeric and is_infinite.any():
        ratio = places[count - 1] / places[0] if count else 1.0
        places[limits] = (places[count - 1] if count else 1.0) * (ratio**_GAP if ratio > 1 else _ONLY_GAP)
    # If there are many lines, the legend contains evenly spaced ones. Points are joined only if widths are numbers.
    named = np.linspace(0, len(lines) - 1, min(len(lines), _LEGEND_ENTRIES)).round().astype(int)
    style = {"marker": "o", "markersize": 3, "linewidth": 1.2, "linestyle": "-" if is_numeric else ""}
    others: dict[str, Any] = {}
    for i, (line, label, color) in enumerate(zip(lines, labels, colors, strict=True)):
        line = line.isel(width=order)
        values = line[name].values
        axes.plot(places[:count], values[:count], color=color, label=label if i in named else None, **style)
        if f"{name}_error" in line:
            bars = {"fmt": "none", "ecolor": color, "elinewidth": 0.8, "alpha": 0.5}
            axes.errorbar(places, values, line[f"{name}_error"].values, **bars)
        for place, value in zip(places[limits], values[limits], strict=True):
            axes.axhline(value, color=color, zorder=0, **_LINE_OF_LIMIT)
            axes.plot(place, value, color=color, **_LIMIT)
            if np.isfinite(value):
                others["infinite width"] = {"color": "0.4", **_LINE_OF_LIMIT, **_LIMIT}
        unsolved = ~line["converged"].values.astype(bool) if "converged" in line else np.zeros(len(places), dtype=bool)
        if unsolved.any():
            others["not a solution"] = _UNSOLVED
            axes.plot(places[unsolved], values[unsolved], **_UNSOLVED)
    for label, look in others.items():
        axes.plot([], [], label=label, **look)
    axes.set(xscale="log" if is_numeric else "linear")
    axes.set(xlabel="width $N$" if is_numeric else r"widths $N_1$-...-$N_L$-$N_a$")
    if 0 < count < len(places):
        between = np.sqrt(places[count - 1] * places[count]) if is_numeric else count - 0.5
        axes.axvline(between, color="0.8", linewidth=0.8, zorder=0)
    finite = [f"{width:g}" if is_numeric else width for width in widths[order[:count]]]
    # Put a tick at every place, and names where these do not overlap, first at the ends.
    names = [*finite, *[r"$\infty$"] * (len(places) - count)]
    axes.minorticks_off()
    axes.set_xticks(places, names)
    # Limits are only updated when they are asked for. The legend will take part of the width.
    axes.get_xlim()
    at = axes.transData.transform([(place, 0.0) for place in places])[:, 0] * _BESIDE_LEGEND * 72 / axes.figure.dpi
    size = font_manager.FontProperties(size=plt.rcParams["xtick.labelsize"]).get_size_in_points()
    needed = [_DIGIT * size * ((1 if "$" in each else len(each)) + 0.7) for each in names]
    kept: list[int] = []
    for i in dict.fromkeys((*range(len(places))[-1:], *range(len(places))[-2:], *range(len(places)))):
        if all(abs(at[i] - at[j]) >= (needed[i] + needed[j]) / 2 for j in kept):
            kept.append(i)
    axes.set_xticks(places, [each if i in kept else "" for i, each in enumerate(names)])
    has_bars = any(f"{name}_error" in line for line in lines)
    title = "bars:\nstandard errors" if has_bars else None
    axes.legend(title=title, alignment="left", loc="upper left", bbox_to_anchor=(1, 1))
