"""What the parameters of the public callables of sweeps are."""

from dataclasses import replace
from functools import cache

import numpy as np
import xarray as xr

from tests.bpkr.sampling.problems import problem
from theorykit import bpkr
from theorykit.bpkr import sweeps

from .engine import Face
from .values import Kind, array, flag, function, instance, number, path, unlike

DATA = problem()
OTHER = problem("dense, two outputs")


@cache
def saddle(name="attention"):
    architecture, features, labels = problem(name)[:3]
    return bpkr.solve(architecture, bpkr.Data(features, labels))


@cache
def solution(name="attention"):
    return sweeps.label_saddle(problem(name)[0], saddle(name))


def data(_seed=0):
    return bpkr.Data(*DATA[1:], np.ones(3))


FIELDS = ("features", "labels", "test_features", "test_labels", "classes")


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


def other_saddles():
    return {"of another architecture": saddle("dense, two outputs"), "its order parameters": saddle().order_parameters}


def swept():
    values = {"test_error": (("width", "temperature"), np.ones((1, 2)))}
    return xr.Dataset(values, coords={"width": [1], "temperature": [0.1, 0.2]})


PREDICTION = bpkr.Prediction(np.ones(3), np.ones(3))

FACE = Face(
    sweeps,
    {
        "architecture": instance(lambda: DATA[0], also=lambda: {"the layers alone": (2,)}),
        "test_labels": array(lambda: np.ones(3), also=lambda: {"fewer": np.ones(2)}),
        "widths": Kind(
            lambda: (20,),
            also=lambda: {"a zero": (0,), "twice": (10, 10.0), "too many": ((1, 2, 3),), "text": ("10",), "one": 10.0},
        ),
        "temperatures": Kind(
            lambda: (0.5,), also=lambda: {"negative": (-1.0,), "twice": (1, 1.0), "text": ("1",), "one": 1.0}
        ),
        "folder": path(lambda: None),
        "progress": flag(),
        "options": Kind(dict),
        "data": instance(data, *FIELDS, also=mistaken_data),
        "sweep_seeds.data": function(data),
        "seeds": Kind(lambda: (0,), also=lambda: {"twice": (1, 1), "a half": (1.5,), "text": ("1",), "one": 1}),
        "executor": Kind(lambda: None),
        "saddle": instance(saddle, also=other_saddles),
        "order_parameters": instance(
            lambda: saddle().order_parameters,
            "U_1",
            also=lambda: {"of another architecture": saddle("dense, two outputs").order_parameters},
        ),
        "solution": instance(
            solution,
            *("U_1", "dataset"),
            also=lambda: {
                "of another architecture": solution("dense, two outputs"),
                "an array": solution()["U_1"],
                "without u": solution().drop_vars("u"),
                "without labels": solution().drop_vars(["path_1", "other_path_1"]),
            },
        ),
        "noise": number(0.1, least=0.0),
        "prediction": instance(lambda: PREDICTION, "predictions", also=lambda: {"its mean": PREDICTION.mean}),
        "result": instance(swept, also=lambda: {"an array": swept()["test_error"], "without errors": xr.Dataset()}),
    },
    untried={
        "sweep.options": "they are keywords, each checked by bpkr.solve",
        "sweep_seeds.options": "they are keywords, each checked by bpkr.solve",
    },
    given={"sweep": ("progress",), "sweep_seeds": ("progress",)},
)
