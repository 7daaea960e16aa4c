"""Draw one solution: a dataset of `theorykit.bpkr.sweeps.label`, and its kernel."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from jax.typing import ArrayLike
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..checks import checked_array
from .style import DIVERGING, THEORY, _new_axes


def figure(solution: xr.Dataset) -> Figure:
    """Draw U_1 and the head scores of every layer with heads."""
    layers = [str(name) for name in solution.data_vars if str(name).startswith("head_score_")]
    drawn = plt.figure(figsize=(4.2 * (1 + bool(layers)), 3.4), layout="constrained")
    *left, right = drawn.subplots(1, 1 + bool(layers), squeeze=False)[0]
    for axes in left:
        names: list[str] = []
        for name in layers:
            scores = solution[name].values
            axes.bar(len(names) + np.arange(len(scores)), scores, label=f"layer {name.split('_')[-1]}")
            names += [str(head) for head in range(1, len(scores) + 1)]
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel="head", ylabel="head score", ylim=(0, 1.15))
        axes.legend(ncols=len(layers), loc="upper left")
    draw_order_parameters(solution, right)
    return drawn


def draw_order_parameters(solution: xr.Dataset, axes: Axes | None = None, *, layer: int = 1) -> Axes:
    """Draw U_l of one solution as a matrix over pairs of partial paths.

    With several outputs, "21:2" is path 21 to output 2.

    Args:
        solution: a dataset from `bpkr.sweeps.label`, or one point of a sweep.
        axes: where to draw, by default new axes. They are returned.
        layer: the layer l, from 1.

    Raises:
        ValueError: `solution` has several points.
    """
    axes = _new_axes(axes, "solution", solution, f"U_{layer}", "bpkr.sweeps.label")
    matrix = solution[f"U_{layer}"]
    if matrix.ndim != 2:
        raise ValueError(f"U_{layer} has several points, along {', '.join(map(str, matrix.dims[:-2]))}: select one")
    most = float(np.abs(matrix).max())
    image = axes.imshow(matrix, cmap=DIVERGING, vmin=-most, vmax=most)
    axes.figure.colorbar(image, ax=axes, label=f"$U_{{{layer}}}$")
    names = [str(path) for path in solution[f"path_{layer}"].values]
    # Name at most sixteen paths.
    places = range(0, len(names), 1 + len(names) // 17)
    axes.set_xticks(places, names[:: places.step])
    axes.set_yticks(places, names[:: places.step])
    axes.tick_params(axis="x", rotation=90 if len(names) > 8 else 0)
    axes.set(xlabel="path", ylabel="path")
    return axes


def draw_kernel_spectrum(eigenvalues: ArrayLike, cosines: ArrayLike, axes: Axes | None = None) -> Axes:
    """Draw the eigenvalues of a kernel, and squared cosines of its eigenvectors with the labels.

    Args:
        eigenvalues: (components,), from `bpkr.kernel_task_alignment`.
        cosines: (components,), from `bpkr.kernel_task_alignment`.
        axes: where to draw, by default new axes. They are returned.
    """
    eigenvalues = np.asarray(checked_array("eigenvalues", eigenvalues, "components"))
    cosines = np.asarray(checked_array("cosines", cosines, "components"))
    if cosines.shape != eigenvalues.shape:
        raise ValueError(f"cosines must have shape {eigenvalues.shape}, got {cosines.shape}")
    axes = _new_axes(axes)
    numbers, right = np.arange(1, len(eigenvalues) + 1), axes.twinx()
    bars = right.bar(numbers, cosines**2, color="0.8", width=1.0, label="squared cosine (right)")
    right.set(ylabel="squared cosine with the labels")
    line = axes.plot(numbers, eigenvalues, "o-", markersize=3, color=THEORY, label="eigenvalue (left)")
    # Smaller eigenvalues are rounding.
    known = eigenvalues[eigenvalues > 1e-14 * eigenvalues.max()]
    axes.set(xlabel="component", ylabel="eigenvalue", yscale="log", ylim=(min(known, default=1) / 2, None))
    axes.legend(handles=[*line, bars])
    # Draw the line above the bars.
    axes.set_zorder(right.get_zorder() + 1)
    axes.patch.set_visible(False)
    return axes
