"""The parameters of sweeps."""

import numpy as np
import xarray as xr

from tests.bpkr.sampling.problems import problem
from theorykit import bpkr
from theorykit.bpkr import sweeps

from .bpkr_face import mistaken_data
from .engine import Face
from .values import NONE, Kind, of

ARCHITECTURE, FEATURES, LABELS, TEST_FEATURES = problem()
SADDLE, OTHER = (
    bpkr.solve(problem(name)[0], bpkr.Data(*problem(name)[1:3])) for name in ("attention", "dense, two outputs")
)
SOLUTION = sweeps.label_saddle(ARCHITECTURE, SADDLE)
ERRORS = {"test_error": (("width", "temperature"), np.ones((1, 2)))}
SWEPT = xr.Dataset(ERRORS, coords={"width": [1], "temperature": [0.1, 0.2]})
ARRAYS = {"features": FEATURES, "labels": LABELS, "test_features": TEST_FEATURES, "test_labels": np.ones(3)}


def data(_seed=0):
    return bpkr.Data(**ARRAYS)


DATA = Kind(data, also=lambda: mistaken_data(ARRAYS), called=(*ARRAYS, "classes"))
FACE = Face(
    sweeps,
    {
        "architecture problem": of(ARCHITECTURE, layers=(2,)),
        "data": DATA,
        "sweep_seeds.data": of(data),
        "seeds": of((0,), twice=(1, 1), half=(1.5,)),
        "widths": of(
            (20, np.inf), admits=("with one that is infinity",), zero=(0,), twice=(10, 10.0), three=((1, 2, 3),)
        ),
        "temperatures": of((0.5,), negative=(-1.0,), twice=(1, 1.0)),
        "richness": of((0.5,), admits=NONE, negative=(-1.0,), twice=(1, 1.0)),
        "progress": False,
        "options": None,
        "saddle": of(SADDLE, of_another_architecture=OTHER, order_parameters=SADDLE.order_parameters),
        "solution": of(
            SOLUTION,
            *("U_1", "dataset"),
            of_another_architecture=sweeps.label_saddle(problem("dense, two outputs")[0], OTHER),
            array=SOLUTION["U_1"],
            without_u=SOLUTION.drop_vars("u"),
            without_labels=SOLUTION.drop_vars(["path_1", "other_path_1"]),
        ),
        "result": of(SWEPT, array=SWEPT["test_error"], without_errors=xr.Dataset()),
    },
    untried={"sweep.options sweep_seeds.options": "they are keywords, each checked by bpkr.solve"},
    given={"sweep": ("data", "progress"), "sweep_seeds": ("progress",)},
)
