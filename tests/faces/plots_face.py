"""What the parameters of the public callables of plots are."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from theorykit import plots

from .engine import Face, public_callables
from .values import Kind, array, instance, path, text, whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
TEXTS = dict.fromkeys(("a list of text", "an array of text"), "texts")
NONE_AT_ALL = dict.fromkeys(("an empty list", "an empty array"), "none of them")
NUMBERS = dict.fromkeys(("-1", "0", "1", "1.5", "-0.5", "2**64", "NaN", "infinity"), "a number, or none was found")


def dataset():
    other = xr.Dataset({"x": ("seed", np.ones(2))})
    return instance(xr.Dataset, also=lambda: {"a tree": xr.DataTree(), "of nothing": xr.Dataset(), "other": other})


def tree():
    other = xr.DataTree.from_dict({"other": xr.Dataset({"x": ("seed", np.ones(2))})})
    return instance(xr.DataTree, also=lambda: {"a dataset": xr.Dataset(), "of nothing": xr.DataTree(), "other": other})


TREES = ("hidden_markov", "one_shot", "one_shot_table", "self_attention_dynamics", "self_attention_dynamics_table")

FACE = Face(
    plots,
    {
        "result": dataset(),
        **{f"{name}.{of}.result": tree() for name in TREES for of in ("draw_all", "table", "figure_2", "figure_5")},
        "variant": tree(),
        **dict.fromkeys(("dataset", "diagram", "orbits", "theory", "kernel", "between", "pruning"), dataset()),
        "values": instance(lambda: xr.DataArray(np.ones(2), dims="seed"), also=lambda: {"alone": xr.DataArray(1.0)}),
        "results.over_networks.values": instance(lambda: xr.DataArray(np.ones(2), dims="seed")),
        "results.first_network.dataset": instance(xr.Dataset, also=lambda: {"a tree": xr.DataTree()}),
        "of_sampling": Kind(
            lambda: xr.DataArray(np.ones(2), dims="seed"),
            {"None": "there is none"},
            lambda: {"a dataset": xr.Dataset()},
        ),
        "draw_marks.marks": instance(lambda: xr.DataArray(np.ones((2, 3)), dims=("beta", "level"))),
        "self_attention_dynamics.draw_marks.marks": instance(lambda: xr.DataArray(np.ones((2, 3)))),
        "self_attention_dynamics.ink.marks": array(lambda: np.ones((2, 3))),
        "solution": dataset(),
        "layer": whole_number(1, least=1, most=0),
        "pattern": whole_number(0, least=0, most=0),
        "over": text("gamma"),
        "score": replace(text("test_accuracy"), admits={"None": "the first that there is"}),
        "eigenvalues": array(lambda: np.ones(3), also=lambda: {"fewer": np.ones(2)}),
        "cosines": array(lambda: np.ones(3), also=lambda: {"fewer": np.ones(2)}),
        "side": Kind(lambda: (1, 1), also=lambda: {"zero": (0, 1), "one": (1,), "no numbers": ("1", "2")}),
        "axes": instance(lambda: Figure().subplots(), also=lambda: {"a figure": Figure()}),
        **dict.fromkeys(("panel", "figure"), instance(Figure, also=lambda: {"axes": Figure().subplots()})),
        "title": text("title", any_text=True),
        "distribution": text("in distribution", any_text=True),
        "distributions": Kind(
            lambda: ("in distribution",), {**TEXTS, **NONE_AT_ALL}, lambda: {"one": "in distribution"}
        ),
        "variants": Kind(lambda: ("L2H4",), {**TEXTS, **NONE_AT_ALL}, lambda: {"one": "L2H4"}),
        "folder": path(lambda: FOLDER),
        "path": path(lambda: FOLDER / "figure.png"),
        "sign": text("-"),
        "value": Kind(lambda: 0.5, NUMBERS),
        "error": Kind(lambda: 0.1, NUMBERS),
    },
)
# what is drawn needs a whole result each
DRAWN = {name: "tests.plots draw it, of whole results" for name, _ in public_callables(FACE)}
FACE = Face(plots, FACE.kinds, examples=DRAWN, untried={"results.draws_results": "a decorator, applied on import"})
