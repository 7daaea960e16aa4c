"""Draw one solution from a dataset of `theorykit.bpkr.sweeps.label`."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from .panels import draw_order_parameters
from .results import draws_results

__all__ = ["figure"]


@draws_results
def figure(solution: xr.Dataset) -> Figure:
    """Draw U_1 and the head scores of every layer with heads."""
    layers = [str(name) for name in solution.data_vars if str(name).startswith("head_score_")]
    drawn = plt.figure(figsize=(4.2 * (1 + bool(layers)), 3.4), layout="constrained")
    *left, right = drawn.subplots(1, 1 + bool(layers), squeeze=False)[0]
    for axes in left:
        names = []
        for name in layers:
            scores, layer = solution[name].values, name.removeprefix("head_score_")
            axes.bar(len(names) + np.arange(len(scores)), scores, label=f"layer {layer}")
            names += [str(head) for head in range(1, len(scores) + 1)]
        axes.set_xticks(range(len(names)), names)
        axes.set(xlabel="head", ylabel="head score", ylim=(0, 1.15))
        axes.legend(ncols=len(layers), loc="upper left")
    draw_order_parameters(solution, right)
    return drawn
