"""Single panels for your own figures. Each function draws one labelled result into given axes, or new axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.container import BarContainer

from ..bpkr import HeadCosts
from ..checks import checked_arguments, checked_array, checked_choice, checked_whole_number, counted
from .results import draws_results
from .style import DIVERGING, LIMITS, THEORY, _new_axes

# Largest deviation of parameters from even spacing, relative to their range.
_UNEVEN = 1e-6
# Largest number of horizontal labels that fit next to each other.
_UPRIGHT = 8
# Line spacing relative to the font size.
_LINE = 1.3
# Smallest legible font size in points.
_SMALLEST = 5.0
# Largest number of columns and rows of pixels in an orbit diagram.
_PIXELS = (1600, 420)
# Ink of a pixel with few marks, which must be visible.
_LEAST_INK = 0.5
_INK = LinearSegmentedColormap.from_list("ink", ["white", "#7c9fd4", THEORY])


@draws_results
def draw_order_parameters(solution: xr.Dataset, axes: Axes | None = None, *, layer: int = 1) -> Axes:
    """Draw U_l of one solution as a matrix over pairs of partial paths.

    With several outputs, "21:2" is path 21 to output 2.

    Args:
        solution: a dataset from `bpkr.sweeps.label`.
        axes: where to draw. The default is new axes.
        layer: the layer l, from 1.
    """
    axes = _new_axes(axes)
    name = f"U_{checked_whole_number('layer', layer, least=1)}"
    matrix = solution[name]
    if matrix.ndim != 2:
        raise ValueError(f"{name} has several points, along {', '.join(map(str, matrix.dims[:-2]))}: select one")
    labels = [str(path) for path in solution[f"path_{layer}"].values]
    most = float(np.abs(matrix).max())
    image = axes.imshow(matrix, cmap=DIVERGING, vmin=-most, vmax=most)
    axes.figure.colorbar(image, ax=axes, label=f"$U_{{{layer}}}$")
    axes.set(xlabel="path", ylabel="path")
    # Shrink labels if there are many, and leave some out if there are too many.
    points = min(axes.get_window_extent().size) * 72 / axes.figure.dpi / max(1, len(labels))
    usual = font_manager.FontProperties(size=plt.rcParams["xtick.labelsize"]).get_size_in_points()
    size = float(np.clip(points / _LINE, _SMALLEST, usual))
    places = np.arange(len(labels))[:: max(1, math.ceil(size * _LINE / points))]
    named = [labels[place] for place in places]
    axes.set_xticks(places, named, rotation=90 if len(labels) > _UPRIGHT else 0, fontsize=size)
    axes.set_yticks(places, named, fontsize=size)
    return axes


@checked_arguments
def draw_kernel_spectrum(eigenvalues: ArrayLike, cosines: ArrayLike, axes: Axes | None = None) -> Axes:
    """Draw the eigenvalues of a kernel as a line, and squared cosines of its eigenvectors with the labels as bars.

    Args:
        eigenvalues: (components,), from `bpkr.kernel_task_alignment`.
        cosines: (components,), from `bpkr.kernel_task_alignment`.
        axes: where to draw. The default is new axes.

    Raises:
        ValueError: the arrays have different shapes.
    """
    eigenvalues = np.asarray(checked_array("eigenvalues", eigenvalues, "components"))
    cosines = np.asarray(checked_array("cosines", cosines, "components"))
    if eigenvalues.shape != cosines.shape:
        raise ValueError(
            f"cosines of shape {cosines.shape} must be one for each of {counted(len(eigenvalues), 'eigenvalue')}"
        )
    axes = _new_axes(axes)
    numbers, right = np.arange(1, len(eigenvalues) + 1), axes.twinx()
    right.bar(numbers, cosines**2, color="0.8", width=1.0)
    right.set(ylabel="squared cosine with the labels")
    axes.plot(numbers, eigenvalues, "o-", markersize=3, color=THEORY)
    axes.set(xlabel="component", ylabel="eigenvalue", yscale="log")
    # Draw the line above the bars.
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    return axes


@draws_results
def draw_orbits(diagram: xr.Dataset, axes: Axes | None = None, *, over: str = "parameter", component: int = 0) -> Axes:
    """Draw the values or levels that orbits visit against a parameter.

    Args:
        diagram: the result of `dynamics.orbits`.
        axes: where to draw. The default is new axes.
        over: name of the parameter. With levels, its values must be ascending and evenly spaced.
        component: number of the recorded value, from 0.

    Raises:
        ValueError: the values of the parameter are not ascending or not evenly spaced.
    """
    axes, places = _new_axes(axes), diagram[over].values
    component = checked_whole_number("component", component, least=0, most=diagram.sizes["component"] - 1)
    if "values" in diagram:
        values = diagram["values"].isel(component=component)
        axes.plot(places, values, ",", color=THEORY)
    else:
        steps = np.diff(places)
        if len(places) < 2 or not np.allclose(steps, steps[0], rtol=0, atol=_UNEVEN * np.ptp(places)) or steps[0] <= 0:
            raise ValueError(
                f"values of over={over!r} must ascend in equal steps: they are {places.min():g} to {places.max():g}"
            )
        draw_marks(axes, diagram["visited"].isel(component=component).swap_dims(orbit=over))
    axes.set(xlabel=over, ylabel="recorded value")
    return axes


@draws_results
def draw_marks(axes: Axes, marks: xr.DataArray) -> None:
    """Draw marks (parameter, level) as pixels over the occupied levels. Values must be evenly spaced.

    A pixel is inked if it contains any mark.
    """
    (over,) = set(marks.dims) - {"level"}
    levels = np.flatnonzero(marks.any(over))
    low, high = (levels[0], levels[-1]) if levels.size else (0, marks.sizes["level"] - 1)
    margin = 1 + (high - low) // 30
    marks = marks.transpose(over, "level").isel(level=slice(max(low - margin, 0), high + margin + 1))
    side = [-(-size // most) for size, most in zip(marks.shape, _PIXELS, strict=True)]
    image = _ink(marks.values, side)
    values, level = marks[over].values, marks["level"].values
    # The last pixels may extend beyond the marks.
    across, upwards = (pixels * marks_a_pixel for pixels, marks_a_pixel in zip(image.shape, side, strict=True))
    look = {"cmap": _INK, "vmin": 0, "vmax": 1, "origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    axes.imshow(image.T, extent=(*_edges(values, across), *_edges(level, upwards)), **look)
    axes.set(xlim=_edges(values, len(values)), ylim=_edges(level, len(level)))


def _ink(marks: np.ndarray, side: Sequence[int]) -> np.ndarray:
    """Combine blocks of `side` marks to pixels: 0 without marks, and otherwise 0.5 to 1 by their fraction."""
    padded = np.pad(marks, [(0, -size % step) for size, step in zip(marks.shape, side, strict=True)])
    pixels = padded.reshape(padded.shape[0] // side[0], side[0], padded.shape[1] // side[1], side[1])
    share = pixels.mean(axis=(1, 3))
    return np.where(share > 0, _LEAST_INK + (1 - _LEAST_INK) * share, 0.0)


def _edges(centres: np.ndarray, count: int) -> tuple[float, float]:
    """Return the start of the first cell and the end of the last cell of `count` evenly spaced cells."""
    step = centres[1] - centres[0]
    return centres[0] - step / 2, centres[0] + (count - 0.5) * step


@checked_arguments
def draw_head_costs(costs: HeadCosts, axes: Axes | None = None, *, cost: str = "log_evidence") -> Axes:
    """Draw the costs of leaving out heads as bars, and the published head scores as dots.

    Args:
        costs: the result of `bpkr.head_costs`.
        axes: where to draw. The default is new axes.
        cost: "log_evidence", or "prediction" for the cost on test examples, with its standard error over examples.

    Raises:
        ValueError: `cost` is "prediction", but the problem has no test labels.
    """
    checked_choice("cost", cost, ("log_evidence", "prediction"))
    if cost == "prediction" and not costs.measure:
        raise ValueError('cost="prediction" needs costs of test examples: add test labels to the problem')
    axes = _new_axes(axes)
    lost, error = (np.concatenate(getattr(costs, name)) for name in (cost, f"{cost}_error"))
    names = [f"{layer}.{head + 1}" for layer, each in enumerate(costs.scores, 1) for head in range(len(each))]
    places, right = np.arange(len(names)), axes.twinx()
    change = "rise of expected squared error" if costs.measure == "expected squared error" else "lost expected accuracy"
    what, spread = ("lost log evidence", "") if cost == "log_evidence" else (change, " ± standard error")
    look = {"width": 0.6, "color": THEORY, "ecolor": "0.5"}
    shown: list[Artist | BarContainer] = [axes.bar(places, lost, yerr=error, label=f"{what}{spread} (left)", **look)]
    kinds = {"": (costs.scores, LIMITS[1]), " of the Gaussian process": (costs.infinite_width_scores, "none")}
    for at, (scores, face) in kinds.items():
        look = {"color": LIMITS[1], "markerfacecolor": face, "markersize": 5, "linestyle": "none"}
        name = f"published score{at} (right)"
        shown += right.plot(places, np.concatenate(scores), marker="o", label=name, **look)
    axes.set_xticks(places, names)
    axes.set(xlabel="head left out (layer.head)", ylabel=what)
    axes.axhline(0, color="0.5", linewidth=0.6)
    right.set(ylabel="published score", ylim=(0, 1.05))
    right.spines["right"].set_visible(True)
    axes.legend(handles=shown, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return axes
