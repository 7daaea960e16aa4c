"""Numbers of the published program `deepbays` for nonlinear networks: cases by name, as this package states them."""

import functools
import json
from pathlib import Path

import numpy as np

from papers.tasks import cut_into_patches
from theorykit import bpkr
from theorykit.bpkr import Dense

DATA = Path(__file__).parents[2] / "data" / "nonlinear"
CASES = {entry["case"]: entry for entry in json.loads((DATA / "manifest.json").read_text())}
FUNCTIONS = {"id": "identity", "erf": "erf", "relu": "relu"}
# where the program stopped at 1e-5: by an independent minimiser
INDEPENDENT = {"d11": (2.03670897, 2.15631289), "d12": (1.20119381, 1.29213096, 1.42020343)}


def names(kind):
    return [name for name, entry in CASES.items() if entry["cls"] == kind]


@functools.cache
def arrays(name):
    with np.load(DATA / "nonlinear.npz") as archive:
        return {key.split("/")[1]: archive[key] for key in archive if key.startswith(f"{name}/")}


def architecture_of(name):
    entry = CASES[name]
    precisions, function = entry.get("priors", [entry.get("l0"), entry.get("l1")]), FUNCTIONS[entry["act"]]
    layers = tuple(Dense(activation=function) for _ in range(entry.get("L", 1) - 1))
    width = entry.get("N1", entry.get("Nc"))
    read = {"read_tokens": len(arrays(name)["Q"])} if entry["cls"] == "CONV_1HL" else {}
    variances = [1 / precision for precision in precisions]
    return bpkr.Architecture(layers, width, variances, temperature=entry["T"], embedding=function, **read)


def tokens(name, inputs):
    """(examples, tokens, features): one token, or the patches of a square image, row by row."""
    images = arrays(name)[inputs]
    if "mask" not in CASES[name]:
        return images[:, None, :]
    side = round(np.sqrt(images.shape[1]))
    return cut_into_patches(images.reshape(len(images), side, side), CASES[name]["mask"])


def features(name, inputs="X"):
    return bpkr.path_features(tokens(name, inputs), [], architecture_of(name))


def precisions(name):
    """lambda_1, ..., lambda_L."""
    return np.array(CASES[name].get("priors", [None, CASES[name].get("l1")])[1:])
