"""Draw Figs. 3 b-f, 6 and 7 of Tiberi et al. from the result of `papers.one_shot`."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from theorykit.checks import checked_arguments
from theorykit.plots.results import draws_results
from theorykit.plots.style import DIVERGING, LIMITS, THEORY, save, use_style

from .one_shot_table import table
from .results import first_network, over_networks, over_seeds

__all__ = ["draw_all", "figure", "figure_paths", "table"]

SHOWN_COMPONENTS = 50
# The paper's figure of each variant.
_NUMBERS = {"L2H4": "3", "L3H3": "6", "L2H8": "7"}
_LABELLED_PATHS = 16
_AGREEMENT = ["correlation", "sign_agreement", "block_sign_agreement"]
_COLORS = (THEORY, *LIMITS)
# Styles of points (finite width) and lines (infinite width), by the rule that chose the temperatures.
_RULES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "accuracy": ({"marker": "o", "markersize": 3.5}, {"linestyle": "--", "linewidth": 1}),
    "evidence": (
        {"marker": "o", "markersize": 5, "linestyle": "none", "markerfacecolor": "white", "linewidth": 0.8},
        {"linestyle": ":", "linewidth": 1},
    ),
}
_ORDERS = {"score": THEORY, "leave one out": LIMITS[1], "random": "0.55"}


@checked_arguments
def figure_paths(folder: Path, variants: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that `draw_all` writes for `variants`, with the paper's numbers or the variant's name."""
    return tuple(folder / f"figure-{_NUMBERS.get(name, name)}.png" for name in variants)


@draws_results
def draw_all(result: xr.DataTree, folder: Path) -> list[Path]:
    """Write a figure of panels b-f for every variant to `folder`, replacing old files; return their paths."""
    if not result.children:
        raise KeyError("it has no variants")
    written = []
    with use_style():
        for variant, path in zip(result.children, figure_paths(folder, list(result.children)), strict=True):
            written.append(save(figure(result[variant]), path))
    return written


@draws_results
def figure(variant: xr.DataTree) -> Figure:
    """Draw accuracy over width (b), kernel components (c), order parameters (d), head scores (e), heads removed (f)."""
    theory, kernel, between, pruning = (
        variant[stage].to_dataset() for stage in ("theory", "kernel", "order_parameters", "pruning")
    )
    distributions = [str(name) for name in theory["distribution"].values]
    drawn = plt.figure(figsize=(10, 11))
    top, middle, bottom = drawn.subfigures(3, 1, height_ratios=(1, 1.05, 1.25))
    left, right = top.subfigures(1, 2, width_ratios=(1, 1.15))
    accuracy_over_width(left, theory, "b   accuracy over width")
    kernel_components(right, kernel, "c   kernel components and labels, one network and seed")
    order_parameters(
        middle,
        between,
        "d   order parameter $U_1$ between attention paths, one network and seed; mean agreement with theory",
    )
    left, right = bottom.subfigures(1, 2, width_ratios=(1, 1.15))
    head_scores(left, pruning, distributions[0], "e   heads by ascending score, one network")
    heads_removed(right, pruning, distributions, "f   heads removed, not trained again")
    return drawn


@draws_results
def accuracy_over_width(panel: Figure | SubFigure, theory: xr.Dataset, title: str) -> None:
    """Draw test accuracy at temperatures chosen by accuracy (filled) and by evidence (hollow). Lines: infinite width.

    Hollow points are shifted a little to the right. Points that are not solutions are crossed out.
    """
    axes = _add_title(panel, title).subplots()
    theory = theory.sortby("width")
    widths = theory["width"].values
    colors = dict(zip(theory["distribution"].values, cycle(_COLORS)))
    for name, color in colors.items():
        for rule, (of_points, of_limit) in _RULES.items():
            chosen = theory.sel(distribution=name, rule=rule)
            at_best = chosen.sel(temperature=chosen["chosen_temperature"])
            places = widths * (1.0 if rule == "accuracy" else (widths[-1] / widths[0]) ** 0.02)
            _points(axes, places, at_best["accuracy"], color=color, **of_points)
            of_width = [dimension for dimension in at_best["converged"].dims if dimension != "width"]
            unsolved = ~(at_best["converged"] == 1).all(of_width).values
            crossed = over_seeds(at_best["accuracy"])[0].values[unsolved]
            axes.plot(places[unsolved], crossed, "x", color="black", markersize=7)
            limit = chosen["gp_accuracy"].sel(temperature=chosen["gp_chosen_temperature"])
            _level(axes, limit, band=rule == "accuracy", color=color, **of_limit)
    axes.set(xscale="log", xlabel="width $N$", ylabel="test accuracy")
    handles = [Line2D([], [], color=color, linewidth=4, label=str(name)) for name, color in colors.items()]
    for kind, before in enumerate(("", r"$N=\infty$, ")):
        handles += [
            Line2D([], [], color="0.3", label=f"{before}$T$ by {rule}", **looks[kind]) for rule, looks in _RULES.items()
        ]
    panel.legend(handles=handles, loc="outside lower center", ncols=3)


@draws_results
def kernel_components(panel: Figure | SubFigure, kernel: xr.Dataset, title: str) -> None:
    """Draw |cosine| of leading kernel components with the labels, smallest width and limit, first network."""
    kernel = first_network(kernel)
    axes = _add_title(panel, title).subplots()
    shown = kernel["alignment"].isel(component=slice(SHOWN_COMPONENTS))
    width = float(kernel["kernel_width"].min())
    for side, (at, color, label) in enumerate([(width, THEORY, f"$N={width:g}$"), (np.inf, LIMITS[0], r"$N=\infty$")]):
        axes.bar(shown["component"] + 0.4 * (side - 0.5), shown.sel(kernel_width=at), 0.4, color=color, label=label)
    axes.set(xlabel="kernel principal component, by eigenvalue", ylabel="|cosine| with labels")
    axes.margins(x=0.01)
    panel.legend(loc="outside lower center", ncols=2)


@draws_results
def order_parameters(panel: Figure | SubFigure, between: xr.Dataset, title: str) -> None:
    """Draw U_1 of theory, sampled and trained, each on a separate scale; lines separate the first layer's heads.

    The matrices are from the first network and seed; the agreement is the mean over networks and seeds.
    """
    _add_title(panel, title)
    origins = [str(origin) for origin in between["origin"].values]
    for axes, origin in zip(panel.subplots(1, len(origins)), origins, strict=True):
        matrix = first_network(between)["U_1"].isel(seed=0).sel(origin=origin)
        scale = float(np.abs(matrix).max())
        image = axes.imshow(matrix, cmap=DIVERGING, vmin=-scale, vmax=scale, interpolation="nearest")
        _path_axes(axes, [str(path) for path in matrix["path_1"].values])
        axes.set_title(_heading(between, origin), loc="center", fontweight="normal")
        panel.colorbar(image, ax=axes, shrink=0.8, aspect=25).outline.set_visible(False)


def _heading(between: xr.Dataset, origin: str) -> str:
    """Name a matrix and its agreement with theory. A star marks sampling that did not mix."""
    if origin == "theory":
        return f"theory\n$N={between.attrs['width']}$, $T={first_network(between)['temperature'].item():g}$"
    doubt = "*, not mixed" if origin == "sampled" and not between["mixed"].all() else ""
    pair = between.sel(of="theory", origin=origin)
    correlation, in_all, in_blocks = (
        _number_with_bar(pair[name], pair[f"{name}_error"], *form)
        for name, form in zip(_AGREEMENT, [(1, 3), (100, 0), (100, 0)], strict=True)
    )
    return f"{origin}{doubt}: correlation {correlation}\nsame sign {in_all} %, in blocks {in_blocks} %"


def _number_with_bar(values: xr.DataArray, of_sampling: xr.DataArray, unit: int, digits: int) -> str:
    """Format the mean over seeds and its standard error; for one seed, the sampling error."""
    mean, error = (unit * float(value) for value in over_seeds(values))
    error = error if values.size > 1 else unit * float(of_sampling.mean())
    return f"{mean:.{digits}f}" + (rf" $\pm$ {error:.{digits}f}" if error > 0 else "")


def _path_axes(axes: Axes, paths: Sequence[str]) -> None:
    """Label ticks by paths. If there are many, label blocks by the head of the first layer, with lines between them."""
    first = [path.split(".")[0] if "." in path else path[0] for path in paths]
    starts = [i for i in range(len(paths)) if i == 0 or first[i] != first[i - 1]]
    for start in starts[1:]:
        axes.axhline(start - 0.5, color="0.35", linewidth=0.6)
        axes.axvline(start - 0.5, color="0.35", linewidth=0.6)
    if len(paths) <= _LABELLED_PATHS:
        places, labels, kind = range(len(paths)), paths, "path"
    else:
        ends = [*starts[1:], len(paths)]
        places = [(start + end - 1) / 2 for start, end in zip(starts, ends, strict=True)]
        labels, kind = [f"1.{first[start]}" for start in starts], "first head of path"
    axes.set_xticks(places, labels, fontsize=7, rotation=90 if len(labels) > 8 else 0)
    axes.set_yticks(places, labels, fontsize=7)
    axes.tick_params(length=0)
    axes.set(xlabel=kind)
    axes.spines[:].set_visible(False)


@draws_results
def head_scores(panel: Figure | SubFigure, pruning: xr.Dataset, distribution: str, title: str) -> None:
    """Draw the score of every head and the accuracy without it, with a line for the whole first network."""
    pruning = first_network(pruning)
    above, below = _add_title(panel, title).subplots(2, 1, sharex=True)
    ascending = pruning.isel(head=np.argsort(pruning["score"].values, kind="stable")).sel(distribution=distribution)
    places = np.arange(ascending.sizes["head"])
    above.bar(places, ascending["score"], 0.7, color=THEORY)
    above.set(ylabel="score")
    _points(below, places, ascending["single_accuracy"], color=THEORY, marker="o", markersize=3.5, linestyle="none")
    whole = ascending["accuracy"].sel(removed=0, removal="score")
    _level(below, whole, color="0.4", linewidth=1, label="whole network")
    below.set_xticks(places, ascending["head"].values, fontsize=8 if len(places) < 12 else 7)
    below.set(xlabel="layer.head", ylabel="accuracy without it")
    panel.legend(loc="outside lower center")


@draws_results
def heads_removed(panel: Figure | SubFigure, pruning: xr.Dataset, distributions: Sequence[str], title: str) -> None:
    """Draw accuracy over the number of heads removed, by order and distribution; below, remaining storage and time."""
    mosaic = _add_title(panel, title).subplot_mosaic(
        [list(distributions), ["share left"] * len(distributions)], height_ratios=(1.7, 1)
    )
    first = mosaic[distributions[0]]
    for name in distributions:
        axes = mosaic[name]
        for order, color in _ORDERS.items():
            accuracy = pruning["accuracy"].sel(distribution=name, removal=order)
            _points(axes, pruning["removed"], accuracy, color=color, marker="o", markersize=3, label=f"order: {order}")
        axes.set_title(name, loc="center", fontweight="normal")
        if axes is not first:
            axes.sharey(first)
            axes.tick_params(labelleft=False)
    first.set(ylabel="accuracy")
    panel.legend(*first.get_legend_handles_labels(), loc="outside lower center", ncols=len(_ORDERS))
    left = mosaic["share left"]
    for name, label, style in (("parameters", "parameters", "-"), ("inference_seconds", "inference time", "--")):
        share = over_networks(pruning[name] / pruning[name].sel(removed=0))
        left.plot(pruning["removed"], share, style, color=LIMITS[2], marker="o", markersize=3, label=label)
    left.set(ylabel="share left", ylim=(0, 1.08))
    left.legend(loc="lower left")
    for axes in mosaic.values():
        axes.set_xlabel("heads removed")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def _add_title(panel: Figure | SubFigure, title: str) -> Figure | SubFigure:
    from_edge = 0.05 * panel.dpi / panel.bbox.width  # in inches, so that titles of wide and narrow panels align
    panel.suptitle(title, x=from_edge, ha="left", fontsize=9, fontweight="bold")
    return panel


def _points(axes: Axes, places: Any, values: xr.DataArray, **style: Any) -> None:
    """Draw the mean over seeds at each position, with its standard error as a bar if there are several seeds."""
    mean, error = over_seeds(values)
    seeds = values.sizes["seed"] * values.sizes.get("training_seed", 1)
    axes.errorbar(places, mean, error if seeds > 1 else None, **style)


def _level(axes: Axes, values: xr.DataArray, *, band: bool = True, color: str, **style: Any) -> None:
    """Draw a line at the mean over seeds, with its standard error as a band."""
    mean, error = (float(value) for value in over_seeds(values))
    axes.axhline(mean, color=color, zorder=1, **style)
    if band and error > 0:
        axes.axhspan(mean - error, mean + error, color=color, alpha=0.12, linewidth=0)
