"""The common style of figures."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..checks import checked_instance, shown

THEORY = "#1f4e9c"
LIMITS = ("#b03a2e", "#d68910", "#1e8449")
DIVERGING = "RdBu_r"
"""Colours of matrices: positive entries are red, and negative ones blue."""

_SETTINGS = {
    "font.size": 9,
    "axes.prop_cycle": cycler(color=(THEORY, *LIMITS)),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
}
# A legend above the axes, where nothing is drawn.
ABOVE = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2}


@contextmanager
def use_style() -> Iterator[None]:
    """Use the common style for figures within this context."""
    # `rc_context` would also undo the interactive mode, which a notebook's backend sets with the first figure.
    before = {name: plt.rcParams[name] for name in _SETTINGS}
    plt.rcParams.update(_SETTINGS)
    try:
        yield
    finally:
        plt.rcParams.update(before)


def _new_axes(axes: Axes | None, name: str = "", result: Any = None, variable: str = "", source: str = "") -> Axes:
    """Return axes to draw in, for a `result` of the function `source` with this variable."""
    if variable and not (isinstance(result, xr.Dataset) and variable in result):
        raise TypeError(f"{name} must be a dataset from {source} with {variable}, got {shown(result)}")
    if axes is not None:
        return checked_instance("axes", axes, Axes)
    # The constrained layout keeps legends outside the axes on the figure.
    return plt.figure(layout="constrained").subplots()


def _shades(count: int) -> Sequence | np.ndarray:
    """Return the colours of lines in a natural order."""
    return plt.get_cmap("viridis")(np.linspace(0, 0.9, count)) if count > 1 else [THEORY]


def letter_panels(*panels: Axes) -> None:
    """Put the letters a, b, ... before the titles of panels."""
    for letter, axes in zip("abcdef", panels, strict=False):
        axes.set_title(f"{letter}  {axes.get_title('left')}".rstrip())


def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file, replace an existing one, and close the figure."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path
