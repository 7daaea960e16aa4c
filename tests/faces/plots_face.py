"""The parameters of plots."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from theorykit import bpkr, plots

from .engine import Face, public_callables
from .values import FOLDER, NONE, of, whole_number

OTHER = xr.Dataset({"x": ("seed", np.ones(2))})
ONE = (np.ones(2),)
KINDS = {
    "result diagram solution landscape": of(xr.Dataset(), tree=xr.DataTree(), of_nothing=xr.Dataset(), other=OTHER),
    "layer": whole_number(1, least=1, most=0),
    "pattern": whole_number(0, least=0, most=0),
    "over": "gamma",
    "costs": of(bpkr.HeadCosts(ONE, ONE, (), (), "", ONE, ONE, "a problem")),
    "cost": of("log_evidence", without_test_labels="prediction"),
    "score": of("test_accuracy", admits=NONE),
    "eigenvalues cosines": of(np.ones(3), fewer=np.ones(2)),
    "axes": of(Figure().subplots(), figure=Figure()),
    "figure": of(Figure(), axes=Figure().subplots()),
    "path": FOLDER / "figure.png",
}
NAMES = " ".join(name for name, _ in public_callables(Face(plots, KINDS)))
FACE = Face(plots, KINDS, examples={NAMES: "tests.plots draw it, of whole results"})
