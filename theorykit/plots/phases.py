"""Draw phase diagrams of self-attention from the result of `theorykit.dmft.diagrams.phase_diagram`."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..dynamics import regimes
from .results import draws_results
from .style import LIMITS, THEORY

__all__ = ["REGIME_COLORS", "phase_diagram"]

REGIME_COLORS = {
    regimes.PERIODIC: THEORY,
    regimes.QUASI_PERIODIC: LIMITS[2],
    regimes.DOUBLY_QUASI_PERIODIC: "#7dcea0",
    regimes.CHAOTIC: LIMITS[0],
    regimes.HYPERCHAOTIC: LIMITS[1],
    regimes.UNDECIDED: "#c4c4c4",
}
"""The colour of each regime of orbits."""


@draws_results
def phase_diagram(result: xr.Dataset) -> Figure:
    """Draw regimes by Lyapunov exponents and by the published rule, if available, and the number of levels visited.

    The axes are the inverse temperatures. The title of the second panel contains the fraction of points where the
    published rule differs.
    """
    names = [name for name in ("regime", "regime_by_levels") if name in result]
    if not names:
        raise KeyError("it has no regimes")
    figure = plt.figure(figsize=(5 * len(names) + 5, 4.4))
    panels = figure.subplots(1, len(names) + 1, sharex=True, sharey=True)
    shown = {name: result[name].transpose("gamma", "beta").values for name in names}
    known = [name for name in REGIME_COLORS if any(np.any(found == name) for found in shown.values())]
    colors = ListedColormap([REGIME_COLORS[name] for name in known])
    titles = {"regime": "regime by Lyapunov exponents", "regime_by_levels": "by the levels that $m^o_1$ visits"}
    for axes, (name, found) in zip(panels, shown.items(), strict=False):
        codes = np.argmax([found == each for each in known], axis=0)
        _draw(axes, result, codes, cmap=colors, vmin=-0.5, vmax=len(known) - 0.5)
        axes.set_title(titles[name])
    if "differs" in result:
        panels[1].set_title(f"by the levels visited, as published: other at {share_that_differs(result):.0%}")
    handles = [Patch(color=REGIME_COLORS[name], label=name) for name in known]
    panels[0].legend(handles=handles, loc="lower left", frameon=True, framealpha=0.9)
    counts = result["distinct"].sel(pattern=1).transpose("gamma", "beta").values
    image = _draw(panels[-1], result, counts, cmap="viridis", norm=LogNorm(1, max(2, counts.max())))
    panels[-1].set(title="levels visited, of 5001")
    for axes in panels[1:]:
        axes.set_ylabel("")
    figure.colorbar(image, ax=panels[-1]).outline.set_visible(False)
    return figure


@draws_results
def share_that_differs(result: xr.Dataset) -> float:
    """Return the fraction of points, among those that exponents decide, where the published rule differs."""
    decided = result["regime"].values != regimes.UNDECIDED
    return float(np.sum(result["differs"].values) / max(1, np.sum(decided)))


def _draw(axes: Axes, result: xr.Dataset, values: np.ndarray, **how):
    axes.set(xlabel=r"inverse temperature of the output, $\beta$", ylabel=r"of the attention, $\gamma$")
    axes.spines[:].set_visible(False)
    return axes.pcolormesh(result["beta"], result["gamma"], values, shading="nearest", rasterized=True, **how)
