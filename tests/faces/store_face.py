"""The parameters of the store."""

import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

from theorykit import store
from theorykit.symbolic import Heading

from .engine import Face
from .values import EMPTY, Kind, of, text

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
SETTINGS = {"computation": "of nothing"}
RESULT = xr.Dataset({"x": ("i", np.ones(2))})
ARRAYS = {"x": np.ones(2)}
KEPT, KEPT_ARRAYS = FOLDER / "kept.nc", FOLDER / "kept.npz"
store.keep(RESULT, SETTINGS, KEPT)
store.write_arrays(ARRAYS, SETTINGS, KEPT_ARRAYS)
OUTPUT = store.Output("--output", FOLDER / "a.nc", ".nc")

FACE = Face(
    store,
    {
        "arguments": {"a": 1},
        "result dataset": of(RESULT, array=RESULT["x"]),
        "write.path": FOLDER / "written.nc",
        "write_text.path": FOLDER / "written.txt",
        "write_source.path": Kind(lambda: FOLDER / "written.md", also=lambda: {"of another ending": FOLDER / "a.nc"}),
        "refuse_to_overwrite.path replacing.path": FOLDER / "free",
        "stem": FOLDER / "document",
        "text": text("words"),
        "write_text.text write_source.text": of("# words", admits=("text", "empty text")),
        "path": KEPT,
        # `compute` is called only if there is nothing
        "resume.path": FOLDER / "resumed.nc",
        "write_arrays.path read_arrays.path": KEPT_ARRAYS,
        "overwrite": False,
        "blocks": of([Heading("a")], of_text=["a"], one=Heading("a")),
        "outputs": of([OUTPUT], admits=EMPTY, one=OUTPUT, of_paths=[FOLDER / "a.nc"]),
        "inputs": of({"--data": KEPT}, of_numbers={"a": 1}),
        "folder": FOLDER / "none",
        "computation": text("of nothing"),
        "version": 1,
        "kind": text("run"),
        "settings there here": of(SETTINGS, of_numbers={"a": 1}),
        "tree": ARRAYS,
        "tree_like.arrays": {"leaf 0": np.ones(2)},
        "compute": lambda: RESULT,
        "arrays": of(ARRAYS, admits=("a dictionary", "with an object")),
    },
    records={"Output": "what a command writes, checked by check_outputs"},
    untried={
        "describe.arguments settings_of.arguments": "whatever it is, is described",
        "leaf_arrays.tree tree_like.tree": "any type may be a tree, and a leaf is any array",
    },
)
