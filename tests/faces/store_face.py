"""The parameters of the store."""

import numpy as np
import xarray as xr

from theorykit import store
from theorykit.symbolic import Heading

from .engine import Face
from .values import FOLDER, Kind, of

RESULT = xr.Dataset({"x": ("i", np.ones(2))})
store.write(RESULT, FOLDER / "kept.nc")

FACE = Face(
    store,
    {
        "result": of(RESULT, array=RESULT["x"]),
        "read.path": FOLDER / "kept.nc",
        "write.path": FOLDER / "written.nc",
        "write_text.path": FOLDER / "written.txt",
        "write_source.path": Kind(lambda: FOLDER / "written.md", also=lambda: {"of another ending": FOLDER / "a.nc"}),
        "stem": FOLDER / "document",
        "text": of("# words", admits=("text", "empty text")),
        "blocks": of([Heading("a")], of_text=["a"], one=Heading("a")),
    },
)
