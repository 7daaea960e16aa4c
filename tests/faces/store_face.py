"""What the parameters of the public callables of the store are."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr

from theorykit import store
from theorykit.symbolic import Heading

from .engine import Face
from .values import Kind, flag, instance, path

_FOLDER = tempfile.TemporaryDirectory(prefix="theorykit-faces-")
FOLDER = Path(_FOLDER.name)
NAMES = ("write_text", "write_source")


def result():
    return xr.Dataset({"x": ("i", np.ones(2))})


@cache
def there():
    store.write(result(), FOLDER / "there.nc")
    return FOLDER / "there.nc"


def at(name):
    """A place where there may be anything; what is written to it replaces what is there."""
    return path(lambda: FOLDER / name)


FACE = Face(
    store,
    {
        "result": instance(result, also=lambda: {"an array": result()["x"]}),
        "write.path": at("written.nc"),
        "write_text.path": at("written.txt"),
        "write_source.path": Kind(lambda: FOLDER / "written.md", also=lambda: {"of another ending": FOLDER / "a.nc"}),
        "stem": at("document"),
        **{f"{name}.text": Kind(lambda: "# words", {"text": "text", "empty text": "text"}) for name in NAMES},
        "path": path(there),
        "overwrite": flag(),
        "blocks": Kind(lambda: [Heading("a")], also=lambda: {"of text": ["a"], "one": Heading("a")}),
    },
)
