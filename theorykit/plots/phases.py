"""Phase diagrams of self-attention, from the result of `theorykit.diagrams.phases`."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..dynamics import regimes
from .style import LIMITS, THEORY

REGIME_COLORS = {
    regimes.PERIODIC: THEORY,
    regimes.QUASI_PERIODIC: LIMITS[2],
    regimes.DOUBLY_QUASI_PERIODIC: "#7dcea0",
    regimes.CHAOTIC: LIMITS[0],
    regimes.HYPERCHAOTIC: LIMITS[1],
    regimes.UNDECIDED: "#c4c4c4",
}


def phase_diagram(result: xr.Dataset) -> Figure:
    """Regimes by the number of levels visited, and that number, over both inverse temperatures."""
    figure = plt.figure(figsize=(10, 4.2))
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    found = result["regime_by_levels"].transpose("gamma", "beta").values
    known = [name for name in REGIME_COLORS if np.any(found == name)]
    codes = np.argmax([found == name for name in known], axis=0)
    colors = ListedColormap([REGIME_COLORS[name] for name in known])
    _draw(left, result, codes, cmap=colors, vmin=-0.5, vmax=len(known) - 0.5)
    left.set_title("regime by the levels that $m^o_1$ visits")
    handles = [Patch(color=REGIME_COLORS[name], label=name) for name in known]
    left.legend(handles=handles, loc="lower left", frameon=True, framealpha=0.9)
    counts = result["distinct"].sel(pattern=1).transpose("gamma", "beta").values
    image = _draw(right, result, counts, cmap="viridis", norm=LogNorm(1, max(2, counts.max())))
    right.set(title="levels visited, of 5001", ylabel="")
    figure.colorbar(image, ax=right).outline.set_visible(False)
    return figure


def _draw(axes: Axes, result: xr.Dataset, values: np.ndarray, **how):
    axes.set(xlabel=r"inverse temperature of the output, $\beta$", ylabel=r"of the attention, $\gamma$")
    axes.spines[:].set_visible(False)
    return axes.pcolormesh(result["beta"], result["gamma"], values, shading="nearest", rasterized=True, **how)
