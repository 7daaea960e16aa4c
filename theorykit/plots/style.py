"""Common style of all figures, and a function that saves figures."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import ascii_lowercase

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..checks import checked_arguments
from ..runs import write

THEORY = "#1f4e9c"
LIMITS = ("#b03a2e", "#d68910", "#1e8449")
DIVERGING = "RdBu_r"

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
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
}


@contextmanager
def use_style() -> Iterator[None]:
    """Use the common style for figures within this context."""
    with plt.rc_context(_SETTINGS):
        yield


def _new_axes(axes: Axes | None) -> Axes:
    """Return the given axes, or new axes."""
    # The constrained layout keeps legends outside the axes on the figure.
    return plt.figure(layout="constrained").subplots() if axes is None else axes


@checked_arguments
def save(figure: Figure, path: Path) -> Path:
    """Write a figure to a file, and close the figure.

    If several panels have titles without letters, letters are added to the titles. An existing file is replaced.

    Args:
        figure: the figure.
        path: a file that ends in .png, .pdf or .svg. Missing folders are created.

    Returns:
        The path.

    Raises:
        ValueError: the file has another ending.
    """
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"the file of a figure must end in .png, .pdf or .svg, got {str(path)!r}")
    titles = [each for each in figure.axes if each.get_title(loc="left")]
    if len(titles) > 1 and not any(re.match("[a-z]  ", each.get_title(loc="left")) for each in titles):
        for letter, each in zip(ascii_lowercase, titles, strict=False):
            each.set_title(f"{letter}  {each.get_title(loc='left')}")
    content = io.BytesIO()
    try:
        figure.savefig(content, format=path.suffix[1:])
        write(content.getvalue(), path, overwrite=True)
    finally:
        plt.close(figure)
    return path
