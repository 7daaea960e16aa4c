"""What the parameters of the public callables of training are."""

from functools import cache

import jax
import numpy as np
import xarray as xr

from tests.bpkr.training.test_gradient_descent import ARCHITECTURE, DATA, FEATURES
from theorykit import bpkr
from theorykit.bpkr import training

from .engine import Face
from .values import Kind, flag, instance, number, path, text, whole_number


@cache
def network():
    return training.initial_network(ARCHITECTURE, 3, FEATURES, key=jax.random.key(0))


def settings():
    return training.TrainingSettings(steps=1, batch=2, validation_examples=2)


def other_networks():
    other = bpkr.Architecture((2, 2), 8, temperature=0.1)
    wider = bpkr.Architecture(ARCHITECTURE.layers, 9, temperature=0.1)
    return {
        "of other layers": training.initial_network(other, 3, FEATURES, key=jax.random.key(0)),
        "of another width": training.initial_network(wider, 3, FEATURES, key=jax.random.key(0)),
        "heads": network().heads,
    }


def no_streams():
    return {"examples": DATA(3, key=jax.random.key(0)), "an array": np.ones((3, 4, FEATURES))}


def labelled():
    return training.label_network(network())


FACE = Face(
    training,
    {
        "architecture": instance(
            lambda: ARCHITECTURE, also=lambda: {"the layers alone": (2, 2), "a network": network()}
        ),
        "network": instance(network, also=other_networks),
        "label_network.network": instance(
            network,
            "heads",
            also=lambda: {
                "without queries": bpkr.sample_network(
                    bpkr.Architecture((2,), 6, temperature=0.1),
                    bpkr.heads(key_query=[np.ones((2, 5, 5))]),
                    input_features=5,
                    key=jax.random.key(0),
                )
            },
        ),
        "training": Kind(lambda: DATA, also=no_streams),
        "validation": Kind(lambda: DATA, also=no_streams),
        "key": instance(lambda: jax.random.key(0), also=lambda: {"two keys": jax.random.split(jax.random.key(0))}),
        "settings": instance(settings, also=lambda: {"a number of steps": 3}),
        "folder": path(lambda: None),
        "progress": flag(),
        "head_dimension": whole_number(3, least=1),
        "input_features": whole_number(FEATURES, least=1),
        "readout": text("mean"),
        "weights": instance(
            labelled,
            *("embedding", "readout"),
            also=lambda: {
                "an array": labelled()["embedding"],
                "without its readout": labelled().drop_attrs(),
                "of another readout": labelled().assign_attrs(readout="middle"),
                "with a NaN": labelled().assign(embedding=labelled()["embedding"] * np.nan),
                "without a weight": labelled().drop_vars("embedding"),
                "empty": xr.Dataset(),
            },
        ),
        "steps": whole_number(1, least=1),
        "batch": whole_number(2, least=1),
        "validate_every": whole_number(2, least=1),
        "patience": Kind(lambda: 2, {**whole_number(2, least=1).admits, "None": "training goes on to its last step"}),
        "validation_examples": whole_number(2, least=1),
        "learning_rate": number(1e-3, above=0.0),
    },
    records={
        "Trained": "it holds what training has found, and is not made by callers",
        "Examples": "a stream makes it",
    },
    given={"train": ("settings", "progress")},
)
