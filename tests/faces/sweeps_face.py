"""The parameters of sweeps."""

from dataclasses import replace

import numpy as np
import xarray as xr

from tests.bpkr.sampling.problems import problem
from theorykit import bpkr
from theorykit.bpkr import sweeps

from .engine import Face
from .values import Kind, number, of, unlike

ARCHITECTURE, *ARRAYS = problem()
SADDLE, OTHER = (
    bpkr.solve(problem(name)[0], bpkr.Data(*problem(name)[1:3])) for name in ("attention", "dense, two outputs")
)
SOLUTION = sweeps.label_saddle(ARCHITECTURE, SADDLE)
PREDICTION = bpkr.Prediction(np.ones(3), np.ones(3))
ERRORS = {"test_error": (("width", "temperature"), np.ones((1, 2)))}
SWEPT = xr.Dataset(ERRORS, coords={"width": [1], "temperature": [0.1, 0.2]})


def data(_seed=0):
    return bpkr.Data(*ARRAYS, np.ones(3))


def mistaken_data():
    """Data of which one array is a mistake, or does not fit the others or the architecture."""
    right = data()
    fitting = {
        "features": {"of other paths": right.features[:, :1], "fewer": right.features[1:]},
        "labels": {"fewer": right.labels[1:]},
        "test_features": {"of other features": right.test_features[..., :2], "none": None},
        "test_labels": {"fewer": right.test_labels[1:]},
    }
    mistakes = {"a pair": (right.features, right.labels), "the features": right.features}
    for field, of_field in fitting.items():
        for name, wrong in {**unlike(np.asarray(getattr(right, field))), **of_field}.items():
            mistakes[f"{field} {name}"] = replace(right, **{field: wrong})
    mistakes["classes by name"] = replace(right, classes=("a", "b"))
    mistakes["of more classes"] = replace(right, classes=bpkr.Classes((1, 2, 3), "one-hot"))
    return mistakes


DATA = Kind(data, also=mistaken_data, called=("features", "labels", "test_features", "test_labels", "classes"))
FACE = Face(
    sweeps,
    {
        "architecture": of(ARCHITECTURE, layers=(2,)),
        "problem": of(ARCHITECTURE, layers=(2,)),
        "data": DATA,
        "sweep_seeds.data": of(data),
        "seeds": of((0,), twice=(1, 1), half=(1.5,)),
        "widths": of(
            (20, np.inf), admits=("with one that is infinity",), zero=(0,), twice=(10, 10.0), three=((1, 2, 3),)
        ),
        "temperatures": of((0.5,), negative=(-1.0,), twice=(1, 1.0)),
        "folder": of(None, admits=("text",)),
        "progress": False,
        "options executor": None,
        "test_labels": of(np.ones(3), fewer=np.ones(2)),
        "saddle": of(SADDLE, of_another_architecture=OTHER, order_parameters=SADDLE.order_parameters),
        "order_parameters": of(SADDLE.order_parameters, "U_1", of_another=OTHER.order_parameters),
        "solution": of(
            SOLUTION,
            *("U_1", "dataset"),
            of_another_architecture=sweeps.label_saddle(problem("dense, two outputs")[0], OTHER),
            array=SOLUTION["U_1"],
            without_u=SOLUTION.drop_vars("u"),
            without_labels=SOLUTION.drop_vars(["path_1", "other_path_1"]),
        ),
        "noise": number(0.1, least=0.0),
        "prediction": of(PREDICTION, "predictions", mean=PREDICTION.mean),
        "result": of(SWEPT, array=SWEPT["test_error"], without_errors=xr.Dataset()),
    },
    untried={"sweep.options sweep_seeds.options": "they are keywords, each checked by bpkr.solve"},
    given={"sweep": ("data", "progress"), "sweep_seeds": ("progress",)},
)
