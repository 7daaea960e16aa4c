"""One look for all figures, and saving them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure

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
def styled() -> Iterator[None]:
    """Within it, figures have the common look."""
    with plt.rc_context(_SETTINGS):
        yield


def save(figure: Figure, path: Path) -> Path:
    """Write `figure` to `path`, creating its folder, and close it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path
