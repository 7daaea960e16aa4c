"""Draw Figs. 2b-e and 5b-c of Tiberi et al., and make their table, from the result of `papers.hidden_markov`."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from theorykit.checks import checked_arguments
from theorykit.plots.results import draws_results
from theorykit.plots.style import DIVERGING, LIMITS, THEORY, save, use_style

from .results import over_seeds, with_error

SHOWN_COMPONENTS = 30


@checked_arguments
def figure_paths(folder: Path) -> tuple[Path, Path]:
    """Return the files that `draw_all` writes."""
    return folder / "figure-2.png", folder / "figure-5.png"


@draws_results
def draw_all(result: xr.DataTree, folder: Path) -> list[Path]:
    """Write Fig. 2 (four panels) and Fig. 5 (two panels) to `folder`, replacing old files; return their paths."""
    with use_style():
        figures = (figure_2(result), figure_5(result))
        return [save(figure, path) for figure, path in zip(figures, figure_paths(folder), strict=True)]


@draws_results
def figure_2(result: xr.DataTree) -> Figure:
    """Draw accuracy over width (a), order parameters (b), kernel components and labels (c), the noisy variant (d)."""
    default, noisy = result["default"].to_dataset(), result["noisy"].to_dataset()
    figure = plt.figure(figsize=(10, 6.4))
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1))
    left, right = top.subfigures(1, 2, width_ratios=(1, 1.7))
    accuracy_over_width(left.subplots(), default, "a  accuracy over width")
    order_parameters(right, default, "b  order parameter $U_1$ between attention paths, one seed")
    left, right = bottom.subfigures(1, 2, width_ratios=(1, 1.7))
    kernel_components(left.subplots(), default, "c  kernel components and labels, one seed")
    noisy_variant(right, noisy, "d  noise orthogonal to the signal, two paths")
    return figure


@draws_results
def figure_5(result: xr.DataTree) -> Figure:
    """Draw the kernel of every pair of paths (a), and the noisy variant whose second head is uniform (b)."""
    figure = plt.figure(figsize=(10, 4.4))
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.4))
    path_kernels(left, result["default"].to_dataset(), "a  path kernels, examples sorted by class")
    noisy_variant(right, result["noisy_uniform"].to_dataset(), "b  as Fig. 2e, with a uniform head in layer 1")
    return figure


@draws_results
def accuracy_over_width(axes: Axes, dataset: xr.Dataset, title: str) -> None:
    """Draw test accuracy over width, with the Gaussian-process limits as dashed lines; bars are standard errors."""
    mean, error = over_seeds(dataset["accuracy"])
    axes.errorbar(dataset["width"], mean, error, color=THEORY, marker="o", markersize=3.5)
    for name, color in zip(dataset["gp_paths"].values, LIMITS, strict=True):
        if name == "good + denoising" and dataset.sizes["path_1"] == 2:
            continue  # all paths are drawn already
        limit, spread = (float(value) for value in over_seeds(dataset["gp_accuracy"].sel(gp_paths=name)))
        axes.axhline(limit, color=color, linestyle="--", linewidth=1)
        axes.axhspan(limit - spread, limit + spread, color=color, alpha=0.12, linewidth=0)
        clear_right = abs(mean[-1] - limit) > abs(mean[0] - limit)
        x, side = (0.98, "right") if clear_right else (0.02, "left")
        transform = axes.get_yaxis_transform()
        axes.text(x, limit, rf"$N=\infty$, {name}", transform=transform, ha=side, va="bottom", color=color, fontsize=8)
    axes.set(xscale="log", xlabel="width $N$", ylabel="test accuracy", title=title)


@draws_results
def order_parameters(figure: Figure | SubFigure, dataset: xr.Dataset, title: str) -> None:
    """Draw U_1 of the first seed, as matrices between paths, at a few widths on one colour scale."""
    widths = _spread(dataset["width"].values, 3)
    first = dataset["U_1"].isel(seed=0)
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    panels = figure.subplots(1, len(widths), squeeze=False)[0]
    scale = float(np.abs(first.sel(width=widths)).max())
    for axes, width in zip(panels, widths, strict=True):
        image = _matrix(axes, first.sel(width=width), f"$N={width}$", scale)
    _color_bar(figure, image, panels)


@draws_results
def kernel_components(axes: Axes, dataset: xr.Dataset, title: str) -> None:
    """Draw |cosine| of leading kernel components with the labels, first seed, smallest width and limit."""
    first = dataset.isel(seed=0, component=slice(SHOWN_COMPONENTS))
    width = int(first["width"].min())
    axes.bar(first["component"] - 0.2, first["alignment"].sel(width=width), 0.4, color=THEORY, label=f"$N={width}$")
    axes.bar(first["component"] + 0.2, first["gp_alignment"], 0.4, color=LIMITS[0], label=r"$N=\infty$")
    axes.set(xlabel="kernel principal component, by eigenvalue", ylabel="|cosine| with labels", title=title)
    axes.legend()


@draws_results
def noisy_variant(figure: Figure | SubFigure, dataset: xr.Dataset, title: str) -> None:
    """Draw accuracy over width, and U_1 between the good and the denoising path at the smallest width."""
    left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
    accuracy_over_width(left, dataset, title)
    width = int(dataset["width"].min())
    matrix = dataset["U_1"].isel(seed=0).sel(width=width)
    _color_bar(figure, _matrix(right, matrix, f"$U_1$ at $N={width}$", float(np.abs(matrix).max())), right)


@draws_results
def path_kernels(figure: Figure | SubFigure, dataset: xr.Dataset, title: str) -> None:
    """Draw the kernels phi^pi . phi^pi' of all pairs of paths, as matrices between examples on one colour scale."""
    kernels = dataset["path_kernel"]
    count = kernels.sizes["path_1"]
    scale = float(np.quantile(np.abs(kernels), 0.995))
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, fontweight="bold")
    grid = figure.subplots(count, count)
    for i, row in enumerate(grid):
        for j, axes in enumerate(row):
            image = axes.imshow(kernels[i, j], cmap=DIVERGING, vmin=-scale, vmax=scale, interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if i == 0:
                axes.set_title(str(kernels["other_path_1"].values[j]), loc="center", fontweight="normal")
            if j == 0:
                axes.set_ylabel(str(kernels["path_1"].values[i]), rotation=0, ha="right", va="center")
    figure.colorbar(image, ax=grid, shrink=0.6, aspect=25).outline.set_visible(False)


def _color_bar(figure: Figure | SubFigure, image: AxesImage, axes: Axes | np.ndarray) -> None:
    figure.colorbar(image, ax=axes, location="bottom", shrink=0.9, aspect=30).outline.set_visible(False)


def _matrix(axes: Axes, matrix: xr.DataArray, title: str, scale: float) -> AxesImage:
    """Draw a matrix between paths with its numbers. The colour scale is from -scale to scale."""
    image = axes.imshow(matrix, cmap=DIVERGING, vmin=-scale, vmax=scale)
    labels = [_path_name(label) for label in matrix["path_1"].values]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_yticks(range(len(labels)), labels)
    axes.spines[:].set_visible(False)
    decimals = 1 if np.abs(matrix).max() > 5 else 2
    for (i, j), value in np.ndenumerate(matrix.values):
        dark = abs(value) > 0.6 * scale
        axes.text(
            j,
            i,
            f"{round(value, decimals) + 0.0:.{decimals}f}",
            ha="center",
            va="center",
            fontsize=7,
            color="white" if dark else "black",
        )
    axes.set_title(title, loc="center", fontweight="normal")
    return image


def _path_name(label: str) -> str:
    return {"11": "11\ngood", "21": "21\ndenoise"}.get(label, label)


@draws_results
def table(result: xr.DataTree) -> str:
    """Format the main result: one line per width with means and standard errors over seeds, and the GP limits."""
    dataset = result["default"].to_dataset()
    lines = ["     N   accuracy          max|U-I|   gradient norm   seconds"]
    for width in dataset["width"].values:
        row = dataset.sel(width=width)
        lines.append(
            f"{width:6d}   {_pad(row['accuracy'])}   {float(row['departure'].mean()):9.3f}   "
            f"{float(row['gradient_norm'].max()):13.1e}   {float(row['seconds'].median()):7.2f}"
        )
    lines.append("   GP limit, N = infinity")
    for name in dataset["gp_paths"].values:
        lines.append(f"         {_pad(dataset['gp_accuracy'].sel(gp_paths=name))}   {name}")
    return "\n".join(lines)


def _pad(values: xr.DataArray) -> str:
    return with_error(values).ljust(len("0.000 +- 0.000"))


def _spread(values: np.ndarray, count: int) -> list[int]:
    """Select `count` of the values, evenly spaced by rank, with the first and last."""
    picks = np.unique(np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int))
    return [int(values[pick]) for pick in picks]
