"""Every writer of files that the package has, by name, each with the ending of its file and something to write."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from theorykit import store
from theorykit.plots.style import save
from theorykit.symbolic import Text

matplotlib.use("Agg")


class Writer(NamedTuple):
    """`write(path, number)` writes a file that ends in `ending`, of another content for every number."""

    ending: str
    write: Callable[[Path, float], object]


def _dataset(number: float) -> xr.Dataset:
    return xr.Dataset({"accuracy": ("width", np.full(400, float(number)))})


def _tree(number: float) -> xr.DataTree:
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs={"settings": "a"}), "/variant": _dataset(number)})


def _figure(number: float) -> plt.Figure:
    figure = plt.figure(figsize=(2, 2))
    figure.subplots().plot([0, number])
    return figure


WRITERS: Mapping[str, Writer] = {
    "dataset": Writer(".nc", lambda path, number: store.write(_dataset(number), path, overwrite=True)),
    "tree": Writer(".nc", lambda path, number: store.write(_tree(number), path, overwrite=True)),
    "arrays": Writer(".npz", lambda path, number: store.write_arrays({"a": np.full(400, number)}, {"b": "c"}, path)),
    **{
        f"source {ending}": Writer(ending, lambda path, number: store.write_source(f"{number}\n", path, overwrite=True))
        for ending in (".md", ".tex", ".html", ".py")
    },
    "document": Writer(
        ".md", lambda path, number: store.write_document([Text(f"{number}")], path.with_suffix(""), overwrite=True)
    ),
    **{
        f"figure {ending}": Writer(ending, lambda path, number: save(_figure(number), path))
        for ending in (".png", ".pdf", ".svg")
    },
}
