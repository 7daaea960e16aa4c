"""The parameters of plots."""

import tempfile
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from theorykit import plots

from .engine import Face, public_callables
from .values import EMPTY, NUMBERS, TEXTS, Kind, of, text, whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
OTHER = xr.Dataset({"x": ("seed", np.ones(2))})
SERIES, MARKS = xr.DataArray(np.ones(2), dims="seed"), xr.DataArray(np.ones((2, 3)), dims=("beta", "level"))
DATASET = of(xr.Dataset(), tree=xr.DataTree(), of_nothing=xr.Dataset(), other=OTHER)
TREE = of(xr.DataTree(), dataset=xr.Dataset(), of_nothing=xr.DataTree(), other=xr.DataTree.from_dict({"other": OTHER}))
TREES = ("hidden_markov", "one_shot", "one_shot_table", "self_attention_dynamics", "self_attention_dynamics_table")
RESULTS = [f"{name}.{of}.result" for name in TREES for of in ("draw_all", "table", "figure_2", "figure_5")]

KINDS = {
    "result dataset diagram orbits theory kernel between pruning solution": DATASET,
    " ".join(["variant", *RESULTS]): TREE,
    "values": of(SERIES, alone=xr.DataArray(1.0)),
    "results.over_networks.values": SERIES,
    "results.first_network.dataset": of(xr.Dataset(), tree=xr.DataTree()),
    "of_sampling": of(SERIES, admits=("None",), dataset=xr.Dataset()),
    "draw_marks.marks self_attention_dynamics.draw_marks.marks": MARKS,
    "self_attention_dynamics.ink.marks": np.ones((2, 3)),
    "layer": whole_number(1, least=1, most=0),
    "pattern": whole_number(0, least=0, most=0),
    "over": "gamma",
    "score": of("test_accuracy", admits=("None",)),
    "eigenvalues cosines": of(np.ones(3), fewer=np.ones(2)),
    "side": of((1, 1), zero=(0, 1), one=(1,)),
    "axes": of(Figure().subplots(), figure=Figure()),
    "panel figure": of(Figure(), axes=Figure().subplots()),
    "title distribution": text("title"),
    "distributions variants": of(("in distribution",), admits=(*TEXTS, *EMPTY)),
    "folder": FOLDER,
    "path": FOLDER / "figure.png",
    "sign": "-",
    # NaN stands for a value that was not found
    "value error": Kind(lambda: 0.5, (*NUMBERS, "NaN", "infinity")),
}
NAMES = " ".join(name for name, _ in public_callables(Face(plots, KINDS)))
FACE = Face(
    plots,
    KINDS,
    examples={NAMES: "tests.plots draw it, of whole results"},
    untried={"results.draws_results": "a decorator, applied on import"},
)
