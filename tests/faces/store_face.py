"""What the parameters of the public callables of the store are."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr

from theorykit import store
from theorykit.symbolic import Heading

from .engine import Face
from .values import Kind, flag, function, instance, path, text, whole_number

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
SETTINGS = {"computation": "of nothing"}
NAMES = ("write_text", "write_source")
OF_TEXT = {"by number": {1: "a"}, "of numbers": {"a": 1}}


def result():
    return xr.Dataset({"x": ("i", np.ones(2))})


@cache
def there():
    store.keep(result(), SETTINGS, FOLDER / "kept.nc")
    return FOLDER / "kept.nc"


@cache
def arrays():
    store.write_arrays({"x": np.ones(2)}, SETTINGS, FOLDER / "kept.npz")
    return FOLDER / "kept.npz"


def at(name):
    """A place where there may be anything; what is written to it replaces what is there."""
    return path(lambda: FOLDER / name)


def settings():
    return Kind(lambda: SETTINGS, also=lambda: OF_TEXT)


FACE = Face(
    store,
    {
        "arguments": Kind(lambda: {"a": 1}),
        "result": instance(result, also=lambda: {"an array": result()["x"]}),
        "dataset": instance(result, also=lambda: {"an array": result()["x"]}),
        "write.path": at("written.nc"),
        "write_text.path": at("written.txt"),
        "write_source.path": Kind(lambda: FOLDER / "written.md", also=lambda: {"of another ending": FOLDER / "a.nc"}),
        "refuse_to_overwrite.path": at("free"),
        "replacing.path": at("free"),
        "stem": at("document"),
        "text": text("words", any_text=True),
        **{f"{name}.text": Kind(lambda: "# words", {"text": "text", "empty text": "text"}) for name in NAMES},
        "path": path(there),
        # whatever computes is called where there is nothing only
        "resume.path": at("resumed.nc"),
        "keep.path": path(there),
        "write_arrays.path": path(arrays),
        "read_arrays.path": path(arrays),
        "overwrite": flag(),
        "blocks": Kind(lambda: [Heading("a")], also=lambda: {"of text": ["a"], "one": Heading("a")}),
        "outputs": Kind(
            lambda: [store.Output("--output", FOLDER / "a.nc", ".nc")],
            dict.fromkeys(("an empty list", "an empty array"), "nothing is written"),
            lambda: {"one": store.Output("--output", FOLDER / "a.nc", ".nc"), "of paths": [FOLDER / "a.nc"]},
        ),
        "inputs": Kind(lambda: {"--data": there()}, also=lambda: {"by number": {1: there()}, "of numbers": {"a": 1}}),
        "folder": path(lambda: FOLDER / "none"),
        "computation": text("of nothing", any_text=True),
        "version": whole_number(1, least=1),
        "kind": text("run", any_text=True),
        "settings": settings(),
        "tree": Kind(lambda: {"x": np.ones(2)}),
        "tree_like.arrays": Kind(lambda: {"leaf 0": np.ones(2)}),
        "there": settings(),
        "here": settings(),
        "compute": function(result),
        "arrays": Kind(
            lambda: {"x": np.ones(2)}, {"a dictionary": "numbers by name"}, lambda: {"by number": {1: np.ones(2)}}
        ),
    },
    records={"Output": "what a command writes, checked by check_outputs"},
    untried={
        "describe.arguments": "whatever it is, is described",
        "settings_of.arguments": "whatever it is, is described",
        **{f"{name}.tree": "any type may be a tree, and a leaf is any array" for name in ("leaf_arrays", "tree_like")},
    },
)
